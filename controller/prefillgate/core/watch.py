"""The watch rule: small fresh replays of a promoted profile, over months (STATISTICS.md section 4).

Repeated looks need a rule of their own. The rule of more than K bad is off, the CUSUM alarms at ln 100, and only fresh
units step it, each by its own cell. A replay begins at the level that the one before it ended with, so that many small
ones are one sequence; after an alarm the level is 0 again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefillgate.core.alarm import alarm_level, stepped
from prefillgate.core.cells import CANDIDATE
from prefillgate.core.earlier import Watching
from prefillgate.core.freshness import Classified
from prefillgate.core.policy import Policy
from prefillgate.core.verdict import CellClass


@dataclass(frozen=True, slots=True)
class Watched:
    """What a replay has shown so far. `levels` are in nats, one for each flag."""

    prefills: int  # fresh units whose outcome is known under every flag
    bad_prefills: int  # under any flag
    levels: tuple[float, ...]
    peak: float  # the highest level of any flag, its start included
    alarmed: bool
    bad_cases: tuple[str, ...] = ()  # in the order they were bad, each once


def watched(classified: Sequence[Classified], policy: Policy, watching: Watching) -> Watched:
    """Step the CUSUM of each flag over the fresh units of the promoted profile, in start order."""
    names = tuple(flag.name for flag in policy.flags)
    levels = list(watching.levels) or [0.0] * len(names)
    prefills, bad = 0, list[str]()
    peak = max(levels)
    for item in classified:
        if item.cell.arm != CANDIDATE or item.cell_class is not CellClass.FRESH:
            continue
        outcomes = [outcome for name in names if (outcome := item.cell.outcome(name)) is not None]
        if len(outcomes) < len(names):
            continue
        prefills += 1
        bad += [item.cell.case_id] if any(outcomes) else []
        levels = [stepped(level, outcome, policy.alarm) for level, outcome in zip(levels, outcomes, strict=True)]
        peak = max(peak, *levels)
    alarmed = peak >= alarm_level(policy.alarm, watch=True)
    return Watched(prefills, len(bad), tuple(levels), peak, alarmed, tuple(dict.fromkeys(bad)))


def bad_cases(before: Watching, seen: Watched) -> tuple[str, ...]:
    """The cases that were bad, this replay's first, then those of the replays before it."""
    return tuple(dict.fromkeys([*seen.bad_cases, *before.bad_cases]))


def next_watching(before: Watching, seen: Watched, run_id: str, prefills: int) -> Watching:
    """Where the replay after this one begins. Bad cases are remembered for as long as the level is not back at 0."""
    goes_on = not seen.alarmed and max(seen.levels) > 0
    return Watching(
        prefills=prefills,
        levels=() if seen.alarmed else seen.levels,
        replays_before=before.replays_before + 1,
        prefills_before=before.prefills_before + seen.prefills,
        bad_before=before.bad_before + seen.bad_prefills,
        alarms_before=before.alarms_before + seen.alarmed,
        bad_cases=bad_cases(before, seen) if goes_on else (),
        after=run_id,
        answers_cut=before.answers_cut,
    )
