"""An earlier run's baseline, shown beside this run: what is taken of it, and what makes it incomparable.

It decides nothing and never gives a pair its other half: it was measured at another time, under another load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import decide
from prefillgate.core.gate import Gate, cells_of
from prefillgate.core.journal import BaselineShown, CaseRef, Planned
from prefillgate.core.snapshot import take_snapshot
from prefillgate.core.units import count_arm
from prefillgate.core.verdict import Outcome

SECONDS_A_DAY = 86_400.0
CLOCK_SLACK_SECONDS = 300.0  # by how much two machines' clocks may differ
Checks = Mapping[str, Mapping[str, str]]  # case -> check -> version


class NoStoredBaseline(ValueError):
    """A store holds nothing that may stand for a baseline. The message says why."""


def baseline_of(stored: Gate, store: str, at: float) -> BaselineShown:
    """What is shown of the baseline that `stored` holds, under the name `store`, at this moment.

    A store without a baseline gives its candidate if that was promoted: it is the baseline now. Raises
    `NoStoredBaseline` where there is neither.
    """
    arm = _arm_of(stored)
    counts = count_arm(stored.classified(), arm)
    ends = [event.cell.ended_at for event in cells_of(stored, arm) if event.cell.ended_at is not None]
    if not counts.requests or not ends:
        raise NoStoredBaseline(f"no cell of its {arm} was measured")
    seen = stored.epochs[arm][-1] if stored.epochs[arm] else None
    return BaselineShown(
        at=at,
        store=store,
        run_id=stored.plan.run_id,
        arm=arm,
        measured_at=max(ends),
        requests=counts.requests,
        bad_requests=counts.bad_requests,
        prefills=counts.prefills,
        bad_prefills=counts.bad_prefills,
        request_interval=counts.request_interval,
        prefill_interval=counts.prefill_interval,
        build=None if seen is None else seen.build,
        model=None if seen is None else seen.model,
        weights=None if seen is None else seen.weights,
        cut_left_out=arm == BASELINE and stored.baseline_pass_cut,
    )


def _arm_of(stored: Gate) -> str:
    if not stored.plan.shape.candidate_alone:
        return BASELINE
    ruling = decide(take_snapshot(stored))
    if ruling.decision is not Outcome.PROMOTE:
        raise NoStoredBaseline(
            f"it is of a candidate alone that was not promoted ({ruling.reason}), and no baseline stands in it"
        )
    return CANDIDATE


def why_not_comparable(stored: Gate, plan: Planned, checks: Checks) -> str | None:
    """What differs between a stored run and a plan in prompts, sampling or checks, in words; None: nothing does.

    `checks` are those that will be run on each case, with their versions.
    """
    return _prompts(stored.plan, plan) or _flags(stored.plan, plan) or _checks(stored, checks)


def _prompts(stored: Planned, plan: Planned) -> str | None:
    """Bodies hold their sampling parameters, so an equal digest is an equal temperature, limit and stop string."""
    theirs, ours = ({case.case_id: case for case in one.cases} for one in (stored, plan))
    for name in (*theirs, *ours):
        if name not in ours:
            return f"case {name} stands in its replay set alone"
        if name not in theirs:
            return f"case {name} is not in its replay set"
        if theirs[name] != ours[name]:
            return f"case {name} differs: {_case_difference(theirs[name], ours[name])}"
    if stored.replay_set_sha256 != plan.replay_set_sha256:
        return f"its replay set is another one (digest {stored.replay_set_sha256}, now {plan.replay_set_sha256})"
    return None


def _case_difference(stored: CaseRef, case: CaseRef) -> str:
    if stored.max_tokens != case.max_tokens:
        return f"max_tokens was {_told(stored.max_tokens)}, now {_told(case.max_tokens)}"
    if stored.greedy != case.greedy:
        return f"sampling was {'greedy' if stored.greedy else 'random'}, now {'greedy' if case.greedy else 'random'}"
    return f"its body had digest {stored.sha256[:12]}, now {case.sha256[:12]}"


def _told(value: int | None) -> str:
    return "none" if value is None else str(value)


def _flags(stored: Planned, plan: Planned) -> str | None:
    theirs, ours = stored.policy.flags, plan.policy.flags
    if theirs == ours:
        return None
    return f"bad meant {_flag_words(theirs)}, now {_flag_words(ours)}"


def _flag_words(flags: tuple[object, ...]) -> str:
    return "; ".join(
        f"{getattr(flag, 'name', flag)} ({', '.join(getattr(flag, 'checks', ())) or 'every check'})" for flag in flags
    )


def _checks(stored: Gate, checks: Checks) -> str | None:
    arm = BASELINE if not stored.plan.shape.candidate_alone else CANDIDATE
    for event in cells_of(stored, arm):
        if event.cell.status is not Status.OK:
            continue
        theirs = {outcome.check: outcome.version for outcome in stored.outcomes.get(event.cell_id, ())}
        ours = checks.get(event.cell.case_id, {})
        for name in (*theirs, *ours):
            if theirs.get(name) != ours.get(name):
                then, now = (one.get(name, "not run") for one in (theirs, ours))
                return f"check {name} on case {event.cell.case_id}: version {then} then, {now} now"
    return None


def why_of_no_age(shown: BaselineShown, most_days: float) -> str | None:
    """Why a stored baseline is too old, or not of the past; None: neither."""
    if shown.age_seconds < -CLOCK_SLACK_SECONDS:
        return "its last cell lies in the future: the clocks of two machines differ"
    if shown.age_seconds > most_days * SECONDS_A_DAY:
        return f"it is {age_words(shown.age_seconds)} old, more than {most_days:g} days"
    return None


def age_words(seconds: float) -> str:
    """An age as a person says it: under an hour, 5 hours, 3.2 days."""
    if seconds < 3600:
        return "under an hour"
    if seconds < SECONDS_A_DAY:
        return f"{seconds / 3600:.0f} hours" if seconds >= 5400 else "1 hour"
    return f"{seconds / SECONDS_A_DAY:.1f} days"


def same_baseline(one: BaselineShown, other: BaselineShown) -> bool:
    """Whether both are of one measurement, whenever it was looked at."""
    return replace(one, at=other.at) == other


def baseline_sentence(shown: BaselineShown) -> str:
    """The stored baseline in one sentence, its age in it."""
    what = "baseline" if shown.arm == BASELINE else "candidate, promoted then,"
    told = [f"run {shown.run_id}", f"{age_words(shown.age_seconds)} old"]
    told += [f"{name} {value}" for name, value in (("model", shown.model), ("build", shown.build)) if value is not None]
    cut = " Its answers cut at their token limit are not among the bad." if shown.cut_left_out else ""
    seen = f"{shown.bad_requests} of {shown.requests} requests bad; by prefill {shown.bad_prefills} of {shown.prefills}"
    return (
        f"Stored {what} of {shown.store} ({', '.join(told)}): {seen}. It is shown for comparison and decides "
        f"nothing.{cut}"
    )
