"""How far the first collection of a rollout is. That it runs is told while it does, not before its turn has come."""

from __future__ import annotations

from prefillgate.api.kinds.reasons import ROWS, ConditionType
from prefillgate.reconcile import standstill
from prefillgate.reconcile.answer import Answer
from prefillgate.reconcile.findings import Finding
from prefillgate.reconcile.seen import RolloutView
from prefillgate.reconcile.snapshot import WorkState
from prefillgate.reconcile.waits import AT_REST, BEGUN_SECONDS, FIRST_CELL_SECONDS, wait_told_at

SCREENED = ConditionType.SCREENED
_WAITS = ("WaitingForIdle", "WaitingForServer", "WaitingForWindow", "WaitingForTurn", "LoadLimitReached")


def screened_so_far(rollout: RolloutView) -> Finding:
    """What stood there before, where that still says something and is still so."""
    before, work = _before(rollout), rollout.work
    if before.holds:
        return before
    runs = work is not None and work.state is WorkState.RUNNING and work.waiting not in AT_REST
    if before.reason == "Screening" and runs:
        return before
    return (
        Finding(SCREENED, "False", "ScreenInterrupted")
        if _begun(rollout)
        else Finding(SCREENED, "Unknown", "NotStarted")
    )


def _before(rollout: RolloutView) -> Finding:
    for each in rollout.before.conditions or ():
        if each.type == SCREENED and (SCREENED, each.reason) in ROWS:
            return Finding(SCREENED, each.status, each.reason)
    return Finding(SCREENED, "Unknown", "NotStarted")


def _begun(rollout: RolloutView) -> bool:
    """Whether anything of it was measured, as far as it was told."""
    told = _before(rollout).reason in ("Screening", "ScreenInterrupted", "ReplayInterrupted", "ScreenEnded")
    return told or rollout.before.started_at is not None


def screening(rollout: RolloutView, answer: Answer | None, now: float) -> tuple[Finding, tuple[float, ...]]:
    """How far the first collection is, and when it is to be looked at again. That it runs is told once it does."""
    work, before = rollout.work, _before(rollout)
    if before.holds or (answer is not None and answer.replicates):
        return Finding(SCREENED, "True", "ScreenEnded"), ()
    if (found := standstill.told(work)) is not None:
        detail = (standstill.sentence(found), standstill.remedy(found), standstill.when_it_ends(found))
        return Finding(SCREENED, "False", "ReplayInterrupted", " ".join(filter(None, detail))), ()
    if work is not None and work.state in (WorkState.BROKEN, WorkState.REFUSED):
        return Finding(SCREENED, "False", "ScreenInterrupted", f"It is tried again: {work.trouble}"), ()
    begun = answer is not None or _begun(rollout)
    stands = Finding(SCREENED, "False", "ScreenInterrupted" if begun else "Starting")
    if work is None or work.state is not WorkState.RUNNING:  # it is begun now; after a restart it was running
        return before if before.reason == "Screening" and work is None else stands, (now + BEGUN_SECONDS,)
    if not work.waiting or (SCREENED, work.waiting) not in ROWS:
        told_at = work.started_at + FIRST_CELL_SECONDS
        if before.reason == "Starting" and answer is None and now < told_at:
            return before, (told_at,)
        return Finding(SCREENED, "False", "Screening"), ()
    told_at = wait_told_at(work)
    if told_at <= now or before.reason in _WAITS:
        return Finding(SCREENED, "False", work.waiting), ()
    if begun and work.waiting not in AT_REST and before.reason != "ScreenInterrupted":
        return Finding(SCREENED, "False", "Screening"), (told_at,)
    return stands, (told_at,)
