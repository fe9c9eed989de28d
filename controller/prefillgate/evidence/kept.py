"""A journal that outlives its process: what one in a file and one in a database have in common.

The `Ledger` in memory knows the rules and the chain; a `Keeper` writes one entry in one transaction and reads one text.
"""

from __future__ import annotations

import threading
import zlib
from types import TracebackType
from typing import Protocol, Self

from prefillgate.core.journal import Event, Texts
from prefillgate.evidence.chain import Entry, sha256
from prefillgate.evidence.codec import decode_texts
from prefillgate.evidence.errors import RESTORE, StoreDamaged, StoreRefused, named
from prefillgate.evidence.ledger import Ledger


class Keeper(Protocol):
    """Where the rows are. Its journal serialises the calls."""

    @property
    def writes(self) -> bool:
        """Whether it was opened for writing."""

    def commit(self, entry: Entry, tail: str) -> None:
        """Write one entry, durably, after the event that `tail` names. Raises `StoreError`: then it is not there."""

    def texts(self, seq: int) -> tuple[object, object] | None:
        """The digest and the compressed texts of an event; None when there is no such row."""

    def close(self) -> None:
        """Let go of everything. May be called twice."""


class KeptJournal:
    """A journal in a store. Close it, or use it in a `with` statement. Safe to use from any thread.

    A read-only one is the store as it was when it was opened.
    """

    def __init__(self, name: str, ledger: Ledger, keeper: Keeper) -> None:
        self._name = name
        self._ledger = ledger
        self._keeper = keeper
        self._mutex = threading.Lock()
        self._closed = False

    @property
    def tail(self) -> str:
        """How many events there are and the digest of the last, equal in every journal of the same events."""
        with self._mutex:
            return self._ledger.tail

    def append(self, event: Event, texts: Texts | None = None) -> None:
        """Commit one event with its texts, durably, in one transaction. Blocks for a few milliseconds.

        Raises `StoreRefused` if the event breaks a rule of the journal (a cell measured twice, a second plan, a number
        that is not finite); `StoreError` if it could not be written: then it is not part of the journal.
        """
        with self._mutex:
            self._refuse_if_closed()
            if not self._keeper.writes:
                raise StoreRefused(f"{self._name}: opened for reading only")
            entry = self._ledger.prepare(event, texts)
            self._keeper.commit(entry, self._ledger.tail)
            self._ledger.record(entry)

    def events(self) -> tuple[Event, ...]:
        """Every event in order."""
        with self._mutex:
            return self._ledger.events()

    def texts(self, cell_id: int) -> Texts | None:
        """What the cell said, or None when nothing was kept. Raises `StoreDamaged` if that is not what was written."""
        with self._mutex:
            self._refuse_if_closed()
            seq = self._ledger.seq_of_cell(cell_id)
            if seq is None:
                return None
            with named(self._name):
                return _read(seq, self._keeper.texts(seq))

    def close(self) -> None:
        """Let the next writer in. `events` still answers. May be called twice."""
        with self._mutex:
            self._closed = True
            self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreRefused(f"{self._name}: this journal is closed")


def _read(seq: int, row: tuple[object, object] | None) -> Texts | None:
    if row is None:
        raise StoreDamaged(f"event {seq} is missing. {RESTORE}")
    plain = unpack(f"event {seq}", row[1])
    if sha256(plain) != row[0]:
        raise StoreDamaged(f"event {seq}: its text was altered. {RESTORE}")
    return None if plain is None else decode_texts(plain)


def pack(texts: bytes | None) -> bytes | None:
    """The texts of an event as a row keeps them."""
    return None if texts is None else zlib.compress(texts)


def unpack(where: str, stored: object) -> bytes | None:
    """The texts of a row, uncompressed. Raises `StoreDamaged`."""
    if stored is None:
        return None
    if not isinstance(stored, bytes):
        raise StoreDamaged(f"{where}: its text was altered. {RESTORE}")
    try:
        return zlib.decompress(stored)
    except zlib.error as error:
        raise StoreDamaged(f"{where}: its text was altered ({error}). {RESTORE}") from error
