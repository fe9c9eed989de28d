"""A journal that lives and dies with its process: for tests, simulations and logs read from elsewhere."""

from __future__ import annotations

from prefillgate.core.journal import Planned
from prefillgate.evidence.chain import Entry
from prefillgate.evidence.kept import KeptJournal, pack
from prefillgate.evidence.ledger import Ledger


class MemoryJournal(KeptJournal):
    """Keeps the same contract as `SqliteJournal`, its refusals and its chain included, without a file."""

    def __init__(self, planned: Planned | None = None) -> None:
        super().__init__("the journal in memory", Ledger(), _Rows())
        if planned is not None:
            self.append(planned)


class _Rows:
    """Texts by the number of their event."""

    writes = True

    def __init__(self) -> None:
        self._texts: dict[int, tuple[object, object]] = {}

    def commit(self, entry: Entry, tail: str) -> None:
        """Keep the texts of one entry."""
        self._texts[entry.seq] = (entry.texts_sha256, pack(entry.texts))

    def texts(self, seq: int) -> tuple[object, object] | None:
        """The digest and the compressed texts of an event."""
        return self._texts.get(seq)

    def close(self) -> None:
        """There is nothing to let go of."""
