"""A large cell log as blocks of rows, for an audit that keeps none of its cells.

It says what `read_logs` says of the same file, line by line: what is not plainly a line of a shape that was met before
is read strictly.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from prefillgate.api.cell_log import MAX_LINE_BYTES, CellLogError, StrictLines
from prefillgate.api.errors import Problem
from prefillgate.api.quick_lines import Shapes
from prefillgate.core.cells import ColdProof, Status
from prefillgate.core.log_row import Block, Kind, Own, Row, column, row_of
from prefillgate.importers.reading import BUSY, CELLS_TITLE, Account, of_another_arm
from prefillgate.importers.source import Source
from prefillgate.importers.spool import Kinds

BLOCK_BYTES = 512 * 1024
_BOM = b"\xef\xbb\xbf"
_COUNTS = (
    *("arm", "case_id", "prompt_sha256", "server_epoch", "status", "bad", "replicate", "prompt_tokens"),
    *("cached_tokens", "processed_tokens", "counter_processed_tokens", "cold_proof", "choice_index"),
    *("counter_alive", "shares_blocks", "shared_server", "http_status"),
)
_kind_of = attrgetter(*_COUNTS)
_OWN = Own._fields[:-1]  # a cell log tells no time to first token
_own_of = attrgetter(*_OWN)


class CellBlocks:
    """Reads one cell log. `arm` is that of an input that was given for one arm."""

    def __init__(self, source: Source, arm: str | None, account: Account) -> None:
        self._name, self._file = source.name, source.file()
        self._arm, self._account = arm, account
        self._strict = StrictLines(account.cells, source.name)
        self._shapes = Shapes()
        self._kinds = Kinds(_made)

    def each(self) -> Iterator[Block]:
        """Its rows. Raises `InputError` as `read_logs`: what was given until then is not a log."""
        self._account.formats[CELLS_TITLE] += 1
        number = 1
        for data in self._pieces():
            lines = data.split(b"\n")
            if not lines[-1] or self._strict.is_torn(number + len(lines) - 1, lines[-1]):
                lines.pop()
            block = self._block(self._rows(data, lines, number))
            number += len(lines)
            if block.numbers:
                yield block
            if self._strict.cut:
                break
        self._strict.end()
        self._account.note_torn()

    def _pieces(self) -> Iterator[bytes]:
        """The file in pieces of whole lines; the last of a piece may be cut a byte above the longest allowed."""
        try:
            while data := self._file.read(BLOCK_BYTES):
                yield data if data.endswith(b"\n") else data + self._file.readline(MAX_LINE_BYTES + 2)
        except (OSError, EOFError, zlib.error) as error:
            raise CellLogError(Problem(self._name, "", f"cannot be read to its end: {error}")) from error

    def _rows(self, data: bytes, lines: list[bytes], number: int) -> list[Any]:
        """The lines of a piece that count: as decoded, or (Kind, Own) of one that was read strictly."""
        shape = self._shapes.latest()
        quick = None
        if shape is not None and not self._strict.problems and len(data) <= MAX_LINE_BYTES:
            quick = shape.block(data, lines)
        if shape is None or quick is None:
            return [row for place, raw in enumerate(lines, number) if (row := self._row(place, raw)) is not None]
        self._strict.found()
        self._account.cells.ignored.update(dict.fromkeys(shape.ignored, len(lines)))
        if self._all_count(quick):
            return quick
        return [row for place, line in enumerate(quick, number) if (row := self._counted(place, line)) is not None]

    def _all_count(self, lines: list[Any]) -> bool:
        """Whether all of them count, as they are."""
        if None in map(attrgetter("case_id"), lines) or False in map(attrgetter("scored"), lines):
            return False
        return self._arm is None or set(map(attrgetter("arm"), lines)) == {self._arm}

    def _row(self, number: int, raw: bytes) -> Any | None:
        """One line, quickly where that is plain; None for one that does not count."""
        if self._strict.cut:
            return None
        raw = raw.removesuffix(b"\r")
        if number == 1:
            raw = raw.removeprefix(_BOM)
        known = None
        if not self._strict.problems and len(raw) <= MAX_LINE_BYTES:
            known = self._shapes.line(raw)
        if known is not None:
            shape, line = known
            self._strict.found()
            self._account.cells.ignored.update(shape.ignored)
            return self._counted(number, line)
        told = self._strict.read(number, raw)
        if told is None:
            return None
        self._shapes.learn(self._strict.keys)
        if told.unchecked:
            self._account.unscored += 1
            return None
        row = row_of(told.cell, None, told.http_status in BUSY)
        self._place(number, row.kind.arm)
        return row

    def _counted(self, number: int, line: Any) -> Any | None:
        """A decoded line, its case named; None for one that no check has read yet."""
        if line.scored is False and line.status != Status.INVALID:
            self._account.unscored += 1
            return None
        if line.case_id is None:
            line.case_id = line.prompt_sha256 or f"unknown case of {self._name}:{number}"
            self._account.cells.without_case += 1
        self._place(number, line.arm)
        return line

    def _place(self, number: int, arm: str) -> None:
        if self._arm is not None and arm != self._arm:
            raise of_another_arm(f"{self._name}:{number}", arm, self._arm)

    def _block(self, rows: list[Any]) -> Block:
        self._kinds.begin()
        account = self._account
        account.requests += len(rows)
        account.arms_told = account.arms_told or bool(rows)
        if not any(isinstance(row, Row) for row in rows):
            numbers = list(map(self._kinds.__getitem__, map(_kind_of, rows)))
            columns = [column([getattr(row, name) for row in rows]) for name in _OWN]
            return Block(self._kinds.kinds, numbers, [*columns, None])
        told = [row if isinstance(row, Row) else (_kind_of(row), (*_own_of(row), None)) for row in rows]
        numbers = [self._kinds[kind] for kind, _ in told]
        return Block(
            self._kinds.kinds, numbers, [column(list(each)) for each in zip(*(own for _, own in told), strict=True)]
        )


def _made(told: Any) -> Kind:
    """The kind of a row that was read strictly, or of what `_kind_of` gave of a decoded line."""
    if isinstance(told, Kind):
        return told
    arm, case, prompt, epoch, status, bad, replicate, length, cached, processed, moved, *rest = told
    proof, choice, alive, blocks, shared, answered = rest
    return Kind(
        arm,
        case,
        case if prompt is None else prompt,
        epoch,
        Status.OK if status is None else Status(status),
        bad,
        replicate or 0,
        length,
        cached,
        processed,
        moved,
        None if proof is None else ColdProof(proof),
        choice,
        bool(alive),
        bool(blocks),
        bool(shared),
        answered in BUSY,
        named=prompt is None,
    )
