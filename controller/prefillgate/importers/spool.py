"""A large log on disk: its rows kept in a temporary file as they are read, and given back in time order.

Memory holds one block of rows, eight bytes for each request id, and each text (case, prompt, epoch) once.
"""

from __future__ import annotations

import marshal
import sqlite3
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from prefillgate.core.cells import ARMS, ColdProof, Status
from prefillgate.core.log_row import Row

BLOCK_ROWS = 1024
BUCKETS = 64
_STATUS, _PROOF = tuple(Status), (None, *ColdProof)
_AT = {name: place for place, name in enumerate(Row._fields)}
_SCHEMA = "CREATE TABLE cells (started REAL, place INTEGER, request TEXT, choice INTEGER, row BLOB)"
_IN_ORDER = """
SELECT row FROM (
  SELECT row, place, choice, first_value(started) OVER own AS first, first_value(place) OVER own AS at FROM cells
  WINDOW own AS (PARTITION BY request ORDER BY started, place)
) ORDER BY first, at, choice, place
"""
Flat = tuple[Any, ...]


class Order:
    """Whether rows stand in time order as they come, the choices of each request side by side."""

    def __init__(self) -> None:
        self.latest = float("-inf")
        self._whole = True
        self._request: object = None
        self._choice = 0
        self._seen = [array("q") for _ in range(BUCKETS)]

    def add(self, row: Row) -> None:
        """Take the next row."""
        if row.started_at is not None:
            self._whole = self._whole and row.started_at >= self.latest
            self.latest = row.started_at
        request = None
        if row.request_id is not None:
            request = (row.arm, row.server_epoch, row.prompt_key, row.request_id)
            choice = row.choice_index or 0
            if request == self._request:
                self._whole = self._whole and choice >= self._choice
            else:
                number = hash(request)
                self._seen[number % BUCKETS].append(number)
            self._choice = choice
        self._request = request

    def holds(self) -> bool:
        """Whether no row so far would have to move."""
        return self._whole and all(len(set(bucket)) == len(bucket) for bucket in self._seen)


class Spool:
    """Rows in a temporary file. Use it as a context manager."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._block: list[Flat] = []
        self._names: dict[str, int] = {}
        self._texts: list[str] = []
        self._scored, self._all = Order(), Order()

        self._invalid = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, row: Row) -> None:
        """Keep one more row."""
        if row.status is not Status.INVALID:
            self._scored.add(row)
        if not row.waited:
            self._all.add(row)
        self._invalid += row.status is Status.INVALID
        self._block.append(self._flat(row))
        if len(self._block) >= BLOCK_ROWS:
            self._flush()

    def scored_in_order(self) -> Iterator[Row]:
        """The scored rows as `in_time_order` puts them."""
        scored = (flat for flat in self._blocks() if _STATUS[flat[_AT["status"]]] is not Status.INVALID)
        return map(self._row, scored if self._scored.holds() else _sorted(scored, self._request))

    def counted_in_order(self) -> Iterator[Row]:
        """All rows but those of a busy server, in time order; none where no row is invalid."""
        if not self._invalid:
            return iter(())
        counted = (flat for flat in self._blocks() if not flat[_AT["waited"]])
        return map(self._row, counted if self._all.holds() else _sorted(counted, self._request))

    def _flush(self) -> None:
        if self._block:
            marshal.dump(self._block, self._file)
            self._block = []

    def _blocks(self) -> Iterator[Flat]:
        self._flush()
        self._file.seek(0)
        while True:
            try:
                block = marshal.load(self._file)
            except EOFError:
                return
            yield from block

    def _name(self, text: str) -> int:
        found = self._names.get(text)
        if found is None:
            found = self._names[text] = len(self._texts)
            self._texts.append(text)
        return found

    def _flat(self, row: Row) -> Flat:
        arm, case, prompt, epoch, status, *rest = row
        case_at = self._name(case)
        prompt_at = case_at if prompt == case else self._name(prompt)
        epoch_at = None if epoch is None else self._name(epoch)
        rest[9] = _PROOF.index(row.cold_proof)
        return (ARMS.index(arm), case_at, prompt_at, epoch_at, _STATUS.index(status), *rest)

    def _row(self, flat: Flat) -> Row:
        texts = self._texts
        arm, case, prompt, epoch, status, *rest = flat
        rest[9] = _PROOF[rest[9]]
        name = None if epoch is None else texts[epoch]
        return Row(ARMS[arm], texts[case], texts[prompt], name, _STATUS[status], *rest)

    def _request(self, flat: Flat) -> str | None:
        """What tells its request apart from others; None for a row without one."""
        own = flat[_AT["request_id"]]
        return None if own is None else f"{flat[0]} {flat[2]} {flat[3]} {own}"


def _sorted(rows: Iterable[Flat], request_of: Any) -> Iterator[Flat]:
    """The rows as `in_time_order` puts them, sorted on disk."""
    with sqlite3.connect("") as database:
        database.execute("PRAGMA temp_store = FILE")
        database.execute("PRAGMA cache_size = -8000")
        database.execute(_SCHEMA)
        database.executemany("INSERT INTO cells VALUES (?, ?, ?, ?, ?)", _keyed(rows, request_of))
        for (blob,) in database.execute(_IN_ORDER):
            yield marshal.loads(blob)
    database.close()


def _keyed(rows: Iterable[Flat], request_of: Any) -> Iterator[tuple[float, int, str, int, bytes]]:
    latest = float("-inf")
    started_at, choice_at = _AT["started_at"], _AT["choice_index"]
    for place, flat in enumerate(rows):
        latest = latest if flat[started_at] is None else flat[started_at]
        request = request_of(flat)
        choice = 0 if request is None else flat[choice_at] or 0
        yield latest, place, f"alone {place}" if request is None else f"of {request}", choice, marshal.dumps(flat)
