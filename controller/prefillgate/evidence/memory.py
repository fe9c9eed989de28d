"""A journal that lives and dies with its process: for tests, simulations and logs read from elsewhere."""

from __future__ import annotations

import threading
from types import TracebackType

from prefillgate.core.journal import Event, Planned, Texts
from prefillgate.evidence.codec import decode_texts
from prefillgate.evidence.errors import StoreRefused
from prefillgate.evidence.ledger import Ledger


class MemoryJournal:
    """Keeps the same contract as `SqliteJournal`, its refusals and its chain included, without a file."""

    def __init__(self, planned: Planned | None = None) -> None:
        self._mutex = threading.Lock()
        self._ledger = Ledger()
        self._texts: dict[int, bytes] = {}
        self._closed = False
        if planned is not None:
            self.append(planned)

    @property
    def tail(self) -> str:
        """How many events there are and the digest of the last, equal in every journal of the same events."""
        with self._mutex:
            return self._ledger.tail

    def append(self, event: Event, texts: Texts | None = None) -> None:
        """Keep one event. Raises `StoreRefused` if it breaks a rule of the journal."""
        with self._mutex:
            self._refuse_if_closed()
            entry = self._ledger.prepare(event, texts)
            if entry.texts is not None:
                self._texts[entry.seq] = entry.texts
            self._ledger.record(entry)

    def events(self) -> tuple[Event, ...]:
        """Every event in order."""
        with self._mutex:
            return self._ledger.events()

    def texts(self, cell_id: int) -> Texts | None:
        """What the cell said, or None when nothing was kept."""
        with self._mutex:
            self._refuse_if_closed()
            seq = self._ledger.seq_of_cell(cell_id)
            kept = None if seq is None else self._texts.get(seq)
        return None if kept is None else decode_texts(kept)

    def close(self) -> None:
        """Refuse everything but `events` from now on. May be called twice."""
        with self._mutex:
            self._closed = True

    def __enter__(self) -> MemoryJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreRefused("this journal is closed")
