"""The audit of a log too large for memory: its requests go through a temporary file, and come to the same answer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prefillgate.core.cells import Status
from prefillgate.core.log_audit import Placing, Told
from prefillgate.core.log_times import Survey
from prefillgate.importers.spool import Blocks, Spool

if TYPE_CHECKING:
    from prefillgate.core.log_row import Block, Kind, Row
    from prefillgate.core.policy import Policy
    from prefillgate.core.restated import Restated, Restatement
    from prefillgate.core.verdict import Verdict


class LargeLog:
    """The requests of a large log, on disk. `judge` closes it."""

    def __init__(self) -> None:
        self._spool, self._survey, self._told = Spool(), Survey(), Told("")
        self._blocks = Blocks(self._take)
        self._rows: Counter[int] = Counter()
        self._kinds: list[Kind] = []

    def add(self, row: Row) -> None:
        """Keep one more request."""
        self._blocks.add(row)

    def take(self, block: Block) -> None:
        """Keep the requests of a block, after all that were added before it."""
        self._blocks.flush()
        self._take(block)

    def _take(self, block: Block) -> None:
        block.anew = block.kinds is not self._kinds  # the rows of several inputs have lists of kinds of their own
        if block.anew:
            self._count()
            self._kinds = block.kinds
        self._rows.update(block.numbers)
        self._told.span(block)
        self._survey.take(block)
        self._spool.add(block)

    def _count(self) -> None:
        counted = [(self._kinds[number], rows) for number, rows in self._rows.items()]
        self._survey.count(counted)
        self._told.count(counted)
        self._rows = Counter()

    def judge(
        self, policy: Policy, title: str, notes: tuple[str, ...], labelled: bool = False
    ) -> tuple[Verdict, Restatement]:
        """The verdict on the log, and the log restated. With `labelled` every label stands for itself as well."""
        self._blocks.flush()
        self._count()
        told = self._told
        told.title, told.notes = title, notes
        with self._spool as spool:
            for block in spool.counted_in_order():
                for number in block.numbers:
                    kind = block.kinds[number]
                    if not kind.waited:
                        told.invalid.add(kind.arm, kind.case_id, kind.status is Status.INVALID)
            placing = Placing(self._survey, max(policy.acceptance))
            for block in spool.scored_in_order():
                placing.take(block)
            labels = _labels(spool) if labelled else ()
        return placing.verdict(policy, told, labels)


def _labels(spool: Spool) -> tuple[Restated, ...]:
    survey = Survey()
    for block in spool.labelled_in_order():
        survey.take(block)
        survey.count((block.kinds[number], rows) for number, rows in Counter(block.numbers).items())
    placing = Placing(survey, 0)
    for block in spool.labelled_in_order():
        placing.take(block)
    return placing.labels()
