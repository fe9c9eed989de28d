"""What a store holds, counted and not judged."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prefillgate.evidence import schema
from prefillgate.evidence.errors import named
from prefillgate.evidence.files import read


class Moved(NamedTuple):
    """A change of version: the version before, what going back forgot, and where the file as it was is kept."""

    before: int
    lost: tuple[str, ...]
    copy: Path | None


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """One store. `kept_bytes` are those of events and texts as they are kept, without the database's own."""

    store: str
    version: int
    created_by: str
    events: int
    cells: int
    kept_bytes: int
    written_at: float | None  # seconds since the epoch, of the last event; None where the version does not tell
    writer: str | None  # who writes it now; None for nobody, and for a file, which tells only whom it refuses


def file_facts(path: Path) -> StoreFacts:
    """What is in a file. The chain is not held. Raises `StoreError`."""
    with named(str(path)):
        return read(path, lambda connection: _facts(path, connection))


def _facts(path: Path, connection: sqlite3.Connection) -> StoreFacts:
    version = schema.check(connection)
    written = "max(written_at)" if version > 1 else "NULL"
    events, cells, kept, at = connection.execute(
        f"SELECT count(*), count(cell_id), sum(length(payload) + coalesce(length(texts), 0)), {written} FROM events"
    ).fetchone()
    created_by = schema.meta(connection, "created_by")
    return StoreFacts(str(path), version, created_by, events, cells, kept or 0, at, None)
