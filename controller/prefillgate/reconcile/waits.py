"""What a replay that was begun waits for, and when that is told."""

from __future__ import annotations

from prefillgate.api.kinds.reasons import ROWS, ConditionType
from prefillgate.reconcile.snapshot import WorkSeen

PATIENCE_SECONDS = 60.0  # a wait is told once it has lasted so long: a busy server comes and goes with every request
BEGUN_SECONDS = 2.0  # after which it is looked whether what was begun has its turn
FIRST_CELL_SECONDS = 30.0  # that a replay runs is told with its first numbers, or without them after so long
AT_REST = ("WaitingForTurn", "WaitingForWindow")  # nothing of a replay runs while it waits for these


def wait_told_at(work: WorkSeen) -> float:
    """When its wait has lasted so long that it is told, seconds since the epoch."""
    return 0.0 if work.waiting_since is None else work.waiting_since + PATIENCE_SECONDS


def wait_told(work: WorkSeen, now: float) -> str:
    """The sentence of a wait that has lasted so long; empty where there is none."""
    row = ROWS.get((ConditionType.SCREENED, work.waiting))
    return row.sentence if row is not None and now >= wait_told_at(work) else ""
