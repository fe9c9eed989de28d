"""A large log on disk: its rows kept in a temporary file as they are read, and given back in time order.

Memory holds one block of rows, the kinds of the latest rows, and digests of the latest request ids.
"""

from __future__ import annotations

import marshal
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import eq
from types import TracebackType
from typing import Any

from prefillgate.core.cells import ColdProof, Status
from prefillgate.core.log_row import Block, Kind, Own, Row, column
from prefillgate.importers.digests import Digests

BLOCK_ROWS = 2048
MAX_KINDS = 16 * 1024
_STATUS_AT, _PROOF_AT = Kind._fields.index("status"), Kind._fields.index("cold_proof")
_SCHEMA = "CREATE TABLE cells (started REAL, place INTEGER, request TEXT, choice INTEGER, row BLOB)"
_IN_ORDER = """
SELECT row FROM (
  SELECT row, place, choice, first_value(started) OVER own AS first, first_value(place) OVER own AS at FROM cells
  WINDOW own AS (PARTITION BY request ORDER BY started, place)
) ORDER BY first, at, choice, place
"""
Flat = tuple[Any, ...]


class Kinds(dict[Any, int]):
    """Numbers of kinds by whatever tells them apart, which `made` makes a kind of. Begun anew above `MAX_KINDS`."""

    def __init__(self, made: Callable[[Any], Kind]) -> None:
        super().__init__()
        self._made = made
        self.kinds: list[Kind] = []
        self._full = False

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self.kinds)
        self.kinds.append(self._made(key))
        return number

    def begin(self) -> None:
        """Before a block: forget all kinds where they are too many, and start another list."""
        if len(self.kinds) >= MAX_KINDS:
            self.clear()
            self.kinds = []


class Order:
    """Whether rows stand in time order as they come, the choices of each request side by side. Then any of them do."""

    def __init__(self) -> None:
        self.latest = float("-inf")
        self._whole = True
        self._digests = Digests()
        self._request = 0  # digest of the latest one
        self._choice = 0
        self._prompts: list[int] = []  # digests by number of the kind

    def take(self, block: Block) -> None:
        """Take the rows of a block."""
        if block.anew:
            self._prompts = []
        for kind in block.kinds[len(self._prompts) :]:
            self._prompts.append(hash((kind.arm, kind.server_epoch, kind.prompt_key)))
        started = block.column("started_at")
        if started is not None:
            self._times([time for time in started if time is not None] if None in started else started)
        self._requests(block.kinds, block.numbers, block.column("request_id"))

    def _times(self, started: list[float]) -> None:
        self._whole = self._whole and started[0] >= self.latest and started == sorted(started)
        self.latest = started[-1]

    def _requests(self, kinds: list[Kind], numbers: list[int], requests: list[Any] | None) -> None:
        if requests is None:
            self._request = 0
            return
        told = zip(map(self._prompts.__getitem__, numbers), requests, strict=True)
        digests = [0 if each[1] is None else hash(each) for each in told]
        if not any(map(eq, digests, chain((self._request,), digests))):
            self._digests.add(digests)
            self._request, self._choice = digests[-1], kinds[numbers[-1]].choice_index or 0
            return
        for number, digest in zip(numbers, digests, strict=True):
            choice = kinds[number].choice_index or 0
            if digest and digest == self._request:
                self._whole = self._whole and choice >= self._choice
            elif digest:
                self._digests.add((digest,))
            self._request, self._choice = digest, choice

    def holds(self) -> bool:
        """Whether no row so far would have to move."""
        return self._whole and not self._digests.repeat()

    def close(self) -> None:
        """Forget the requests."""
        self._digests.close()


def _scored(kind: Kind) -> bool:
    return kind.status is not Status.INVALID


def _counted(kind: Kind) -> bool:
    return not kind.waited


class Spool:
    """Rows in a temporary file. Use it as a context manager."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._order = Order()
        self._kept = 0  # kinds that are in the file
        self._invalid = False

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._order.close()

    def add(self, block: Block) -> None:
        """Keep one more block."""
        if block.anew:
            self._kept = 0
        self._order.take(block)
        new = [_flat(kind) for kind in block.kinds[self._kept :]]
        self._invalid = self._invalid or any(not _scored(kind) for kind in block.kinds[self._kept :])
        self._kept = len(block.kinds)
        marshal.dump((block.anew, new, block.numbers, block.columns), self._file)

    def scored_in_order(self) -> Iterator[Block]:
        """The rows as `in_time_order` puts the scored ones; where invalid ones stand tells nothing."""
        return self._blocks() if self._order.holds() else _sorted(self._blocks(), _scored)

    def counted_in_order(self) -> Iterator[Block]:
        """All rows in time order, those of a busy server anywhere; none where no row is invalid."""
        if not self._invalid:
            return iter(())
        return self._blocks() if self._order.holds() else _sorted(self._blocks(), _counted)

    def labelled_in_order(self) -> Iterator[Block]:
        """The scored rows that have a label, which is their arm here, as `in_time_order` puts them alone; of a log that
        tells no arms, so that each label is of one."""
        blocks = _relabelled(self._blocks())
        return blocks if self._order.holds() else _sorted(blocks, _scored)

    def _blocks(self) -> Iterator[Block]:
        self._file.seek(0)
        kinds: list[Kind] = []
        while True:
            try:
                anew, new, numbers, columns = marshal.load(self._file)
            except EOFError:
                return
            if anew:
                kinds = []
            kinds += map(_kind, new)
            yield Block(kinds, numbers, columns, anew)


def _flat(kind: Kind) -> Flat:
    """A kind as marshal takes it."""
    told = list(kind)
    told[_STATUS_AT] = kind.status.value
    told[_PROOF_AT] = None if kind.cold_proof is None else kind.cold_proof.value
    return tuple(told)


def _kind(flat: Flat) -> Kind:
    told = list(flat)
    told[_STATUS_AT] = Status(told[_STATUS_AT])
    told[_PROOF_AT] = None if told[_PROOF_AT] is None else ColdProof(told[_PROOF_AT])
    return Kind(*told)


def _relabelled(blocks: Iterable[Block]) -> Iterator[Block]:
    """The rows with their labels for arms. Those without one are made invalid: they are never scored."""
    kinds: list[Kind] = []
    for block in blocks:
        if block.anew:
            kinds = []
        for kind in block.kinds[len(kinds) :]:
            kinds.append(_unlabelled(kind) if kind.label is None else kind._replace(arm=kind.label))
        yield Block(kinds, block.numbers, block.columns, block.anew)


def _unlabelled(kind: Kind) -> Kind:
    return kind._replace(status=Status.INVALID)


class Blocks:
    """Rows gathered into blocks, which `take` is given."""

    def __init__(self, take: Callable[[Block], None]) -> None:
        self._take = take
        self._kinds = Kinds(_itself)
        self._given: list[Kind] | None = None
        self._numbers: list[int] = []
        self._own: list[Own] = []

    def add(self, row: Row) -> None:
        """Take one more row."""
        if not self._numbers:
            self._kinds.begin()
        self._numbers.append(self._kinds[row.kind])
        self._own.append(row.own)
        if len(self._numbers) >= BLOCK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Give the rows that are no whole block yet."""
        if self._numbers:
            columns = [column(list(each)) for each in zip(*self._own, strict=True)]
            kinds = self._kinds.kinds
            self._take(Block(kinds, self._numbers, columns, kinds is not self._given))
            self._given = kinds
            self._numbers, self._own = [], []


def _itself(kind: Kind) -> Kind:
    return kind


def _sorted(blocks: Iterable[Block], wanted: Callable[[Kind], bool]) -> Iterator[Block]:
    """The wanted rows as `in_time_order` puts them, sorted on disk."""
    ready: list[Block] = []
    again = Blocks(ready.append)
    with sqlite3.connect("") as database:
        database.execute("PRAGMA temp_store = FILE")
        database.execute("PRAGMA cache_size = -8000")
        database.execute(_SCHEMA)
        database.executemany("INSERT INTO cells VALUES (?, ?, ?, ?, ?)", _keyed(blocks, wanted))
        for (blob,) in database.execute(_IN_ORDER):
            flat, own = marshal.loads(blob)
            again.add(Row(_kind(flat), Own(*own)))
            if ready:
                yield ready.pop()
    database.close()
    again.flush()
    yield from ready


def _keyed(blocks: Iterable[Block], wanted: Callable[[Kind], bool]) -> Iterator[tuple[float, int, str, int, bytes]]:
    latest, place = float("-inf"), 0
    for block in blocks:
        for number, *own in block.rows():
            kind, told = block.kinds[number], Own(*own)
            if not wanted(kind):
                continue
            place += 1
            latest = latest if told.started_at is None else told.started_at
            request = f"alone {place}"
            if told.request_id is not None:
                request = f"of {kind.arm} {kind.prompt_key} {kind.server_epoch} {told.request_id}"
            choice = 0 if told.request_id is None else kind.choice_index or 0
            yield latest, place, request, choice, marshal.dumps((_flat(kind), tuple(own)))
