"""The audit of a log too large for memory: its requests go through a temporary file, and come to the same answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefillgate.core.cells import Status
from prefillgate.core.log_audit import Placing, Survey, Told
from prefillgate.importers.spool import Spool

if TYPE_CHECKING:
    from prefillgate.core.log_row import Row
    from prefillgate.core.policy import Policy
    from prefillgate.core.restated import Restatement
    from prefillgate.core.verdict import Verdict


class LargeLog:
    """The requests of a large log, on disk. `judge` closes it."""

    def __init__(self) -> None:
        self._spool, self._survey, self._told = Spool(), Survey(), Told("")

    def add(self, row: Row) -> None:
        """Keep one more request."""
        self._spool.add(row)
        self._survey.add(row)
        self._told.count(row)

    def judge(self, policy: Policy, title: str, notes: tuple[str, ...]) -> tuple[Verdict, Restatement]:
        """The verdict on the log, and the log restated."""
        told = self._told
        told.title, told.notes = title, notes
        with self._spool as spool:
            for row in spool.counted_in_order():
                told.invalid.add(row.arm, row.case_id, row.status is Status.INVALID)
            placing = Placing(self._survey, policy)
            for row in spool.scored_in_order():
                placing.add(row)
        return placing.verdict(policy, told)
