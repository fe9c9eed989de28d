"""A small replay after a promotion, as its journal tells it: what a report shows, and what comes after it."""

from __future__ import annotations

import math

from prefillgate.core.cells import CANDIDATE
from prefillgate.core.earlier import Trigger, Watching
from prefillgate.core.gate import Gate
from prefillgate.core.schedule import last_bad_end, tainted_epochs
from prefillgate.core.verdict import WatchView
from prefillgate.core.watch import bad_cases, next_watching


class NoWatch(ValueError):
    """A store is no small replay after a promotion, or of another profile. The message says why."""


def watch_view(gate: Gate) -> WatchView | None:
    """A replay after a promotion, added to those before it; None for any other run."""
    watching = gate.plan.watching
    if watching is None:
        return None
    seen = gate.watched(watching)
    return WatchView(
        wanted=watching.prefills,
        prefills=seen.prefills,
        bad_prefills=seen.bad_prefills,
        replays=watching.replays_before + 1,
        prefills_since=watching.prefills_before + seen.prefills,
        bad_since=watching.bad_before + seen.bad_prefills,
        alarms_since=watching.alarms_before + seen.alarmed,
    )


def watch_sentence(view: WatchView, level: float, alarm_at: float) -> str:
    """A replay and all of them in one sentence. Levels are in nats."""
    alarms = "no alarm" if not view.alarms_since else f"{view.alarms_since} alarm" + "s" * (view.alarms_since > 1)
    return (
        f"Watch: replay {view.replays} since the promotion took {view.prefills} of {view.wanted} fresh prefills, "
        f"{view.bad_prefills} bad; all replays {view.bad_since} of {view.prefills_since} bad, {alarms}. The level "
        f"is {math.exp(level):.3g}, and {math.exp(alarm_at):.3g} alarms."
    )


def after_replay(stored: Gate, candidate: str, flags: int, prefills: int) -> Watching:
    """Where the replay after a stored one begins. `candidate` is what the promoted profile is called, `flags` how many
    its checks make.

    Raises `NoWatch` for a run that is none, or of another profile, or of other flags.
    """
    before = stored.plan.watching
    if before is None:
        raise NoWatch("it is no small replay after a promotion")
    if stored.plan.candidate_url != candidate:
        raise NoWatch(f"it is of {stored.plan.candidate_url}, now {candidate} is asked for")
    if len(stored.flags) != flags:
        raise NoWatch(f"it has {len(stored.flags)} flags, now there are {flags}: their levels do not go on")
    return next_watching(before, stored.watched(before), stored.plan.run_id, prefills)


def trigger_of(stored: Gate) -> Trigger:
    """What a replicate must know of the alarm that a replay raised. Raises `NoWatch` where it raised none."""
    before = stored.plan.watching
    if before is None or not stored.ever_alarmed:
        raise NoWatch("it raised no alarm after a promotion")
    seen = stored.watched(before)
    return Trigger(
        run_id=stored.plan.run_id,
        cases=bad_cases(before, seen),
        last_bad_at=last_bad_end(stored, CANDIDATE),
        epochs=tuple(tainted_epochs(stored)),
        prefills=before.prefills_before + seen.prefills,
        bad_prefills=before.bad_before + seen.bad_prefills,
        answers_cut=before.answers_cut,
    )
