"""What every journal knows of itself: its events, the end of its chain and the rules of appending.

Both journals keep a `Ledger` in memory, so they cannot differ in what they accept. It serves events as they read back
from their canonical bytes: a running gate sees exactly what an offline one will see.
"""

from __future__ import annotations

from prefillgate.core.journal import CellMeasured, Event, Planned, Texts
from prefillgate.evidence.chain import GENESIS, Entry, Row, link, sha256
from prefillgate.evidence.codec import CodecError, NewerFormatError, decode_event, encode_event, encode_texts
from prefillgate.evidence.errors import RESTORE, StoreDamaged, StoreRefused, StoreVersion

LARGEST_CELL_ID = 2**63 - 1


class Ledger:
    """The committed events in order. Not thread-safe: its journal holds the lock."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._served: tuple[Event, ...] | None = ()
        self._seq_of_cell: dict[int, int] = {}
        self._digest = GENESIS

    @property
    def tail(self) -> str:
        """How many events there are and the digest of the last: `12:ab34...`."""
        return f"{len(self._events)}:{self._digest.hex()}"

    def events(self) -> tuple[Event, ...]:
        """Every event in order."""
        if self._served is None:
            self._served = tuple(self._events)
        return self._served

    def seq_of_cell(self, cell_id: int) -> int | None:
        """Where the cell was measured, or None."""
        return self._seq_of_cell.get(cell_id)

    def prepare(self, event: Event, texts: Texts | None) -> Entry:
        """The next entry, not yet part of the ledger. Raises `StoreRefused` if the journal's rules forbid it."""
        try:
            payload = encode_event(event)
            text_bytes = None if texts is None else encode_texts(texts)
        except CodecError as error:
            raise StoreRefused(f"the event was not written: {error}") from error
        broken = self._broken_rule(event, has_texts=texts is not None)
        if broken:
            raise StoreRefused(f"{type(event).__name__} was not written: {broken}")
        return self._entry(decode_event(payload), payload, text_bytes)

    def record(self, entry: Entry) -> None:
        """Take in an entry that was committed."""
        self._events.append(entry.event)
        self._served = None
        self._digest = entry.digest
        if entry.cell_id is not None:
            self._seq_of_cell[entry.cell_id] = entry.seq

    def replay(self, row: Row) -> None:
        """Take in the next row of a store after holding it against the chain. Raises `StoreDamaged`, `StoreVersion`."""
        expected = len(self._events) + 1
        if row.seq != expected:
            raise StoreDamaged(f"event {expected} is missing, event {row.seq!r} stands in its place. {RESTORE}")
        where = f"event {expected}"
        if sha256(row.texts) != row.texts_sha256:
            raise StoreDamaged(f"{where}: its text was altered. {RESTORE}")
        if not isinstance(row.payload, bytes) or link(self._digest, row.payload, sha256(row.texts)) != row.digest:
            hint = "it was altered, or an event was inserted, removed or moved here"
            raise StoreDamaged(f"{where} does not follow from event {expected - 1}: {hint}. {RESTORE}")
        try:
            event = decode_event(row.payload)
        except NewerFormatError as error:
            raise StoreVersion(f"{where} was written by a newer prefillgate: {error}. Upgrade prefillgate.") from error
        except CodecError as error:
            raise StoreDamaged(f"{where} cannot be read: {error}. {RESTORE}") from error
        broken = self._broken_rule(event, has_texts=row.texts is not None)
        entry = self._entry(event, row.payload, row.texts)
        if broken or entry.cell_id != row.cell_id:
            raise StoreDamaged(f"{where}: {broken or f'it is filed under cell {row.cell_id!r}'}. {RESTORE}")
        self.record(entry)

    def hold_against(self, tail: str) -> None:
        """Raise `StoreDamaged` unless these are all the events of the store that says its end is `tail`."""
        if self.tail != tail:
            raise StoreDamaged(
                f"the store was closed by event {tail.partition(':')[0]}, the last one found is "
                f"{self.tail.partition(':')[0]}: events at the end were removed or added. {RESTORE}"
            )

    def _entry(self, event: Event, payload: bytes, texts: bytes | None) -> Entry:
        texts_sha256 = sha256(texts)
        return Entry(
            seq=len(self._events) + 1,
            event=event,
            cell_id=event.cell_id if isinstance(event, CellMeasured) else None,
            payload=payload,
            texts=texts,
            texts_sha256=texts_sha256,
            digest=link(self._digest, payload, texts_sha256),
        )

    def _broken_rule(self, event: Event, has_texts: bool) -> str | None:
        """The journal's own rules: one plan, first of all; a cell is measured once; only a cell has texts."""
        if isinstance(event, Planned) and self._events:
            return "the journal has its plan already, one run has one store"
        if not isinstance(event, Planned) and not self._events:
            return "the first event of a journal is its plan (Planned)"
        if not isinstance(event, CellMeasured):
            return "texts belong to a measured cell" if has_texts else None
        if not 0 <= event.cell_id <= LARGEST_CELL_ID:
            return f"cell_id {event.cell_id} is not allowed, only 0 to {LARGEST_CELL_ID}"
        if event.cell_id in self._seq_of_cell:
            return f"cell {event.cell_id} was measured already, as event {self._seq_of_cell[event.cell_id]}"
        return None
