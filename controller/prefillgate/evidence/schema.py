"""The tables of a store in a file, and how one version of them becomes another (`prefillgate.evidence.versions`).

meta    `schema` (version), `created_by`, `tail` (count and digest of the last event, moved in the event's transaction)
events  one row per event; `payload` is canonical JSON, `texts` canonical JSON compressed by zlib. `cell_id` repeats the
        payload's, so that the database itself refuses a cell measured twice; `written_at` is in no digest.
fence   at most one row: the highest token of a writer

No table holds a verdict or a count of cells.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from prefillgate.evidence.chain import Entry, Row
from prefillgate.evidence.errors import RESTORE, StoreDamaged, StoreForeign
from prefillgate.evidence.fence import NOBODY
from prefillgate.evidence.files import beside, uri
from prefillgate.evidence.kept import pack, unpack
from prefillgate.evidence.ledger import Ledger
from prefillgate.evidence.versions import CREATED_BY, FIRST, SCHEMA, Step, Steps, readable, way

APPLICATION_ID = 0x50664774  # "PfGt"
STEPS: Steps = {
    1: Step(
        up=("ALTER TABLE events ADD COLUMN written_at REAL",),
        down=("ALTER TABLE events DROP COLUMN written_at",),
        lost="when each event was written",
    ),
    2: Step(
        up=("CREATE TABLE fence (only INTEGER PRIMARY KEY CHECK (only = 1), token INTEGER NOT NULL)",),
        down=("DROP TABLE fence",),
        lost="the highest token of a writer",
    ),
}

_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE events (
      seq INTEGER PRIMARY KEY,
      cell_id INTEGER UNIQUE,
      payload BLOB NOT NULL,
      texts_sha256 BLOB,
      digest BLOB NOT NULL,
      texts BLOB)""",
)


def create(path: Path, first: Entry, tail: str, token: int) -> None:
    """A new store with its first event, whole or not at all: built beside `path` and then renamed.

    The caller holds the writer's lock and has seen that nothing is at `path`. SQLite's errors go through.
    """
    draft = beside(path, "-new")
    for leftover in (draft, beside(draft, "-journal"), beside(draft, "-wal"), beside(draft, "-shm")):
        leftover.unlink(missing_ok=True)  # of a process killed right here: it was never a store
    with closing(sqlite3.connect(uri(draft, "rwc"), uri=True, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        prepare_writer(connection, path)
        connection.execute("BEGIN IMMEDIATE")
        for statement in (*_TABLES, *way(STEPS, FIRST, SCHEMA)):
            connection.execute(statement)
        meta = {"schema": str(SCHEMA), "created_by": CREATED_BY, "tail": tail}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        insert(connection, first)
        keep_token(connection, token)
        connection.execute("COMMIT")
    draft.replace(path)
    _sync_folder(path.parent)


def prepare_writer(connection: sqlite3.Connection, path: Path) -> None:
    """Every commit reaches the disk before it returns, and the main file too unless a reader is at it."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreForeign(f"{path}: the write-ahead log cannot be used here (journal mode {mode}). Use a local disk.")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = 1")  # macOS: fsync alone does not reach the disk there
    connection.execute("PRAGMA checkpoint_fullfsync = 1")
    connection.execute("PRAGMA wal_autocheckpoint = 1")  # so a copy of the one file holds everything


def insert(connection: sqlite3.Connection, entry: Entry) -> None:
    """Write one row, inside the caller's transaction."""
    row = (entry.seq, entry.cell_id, entry.payload, entry.texts_sha256, entry.digest, pack(entry.texts), time.time())
    names = "seq, cell_id, payload, texts_sha256, digest, texts, written_at"
    connection.execute(f"INSERT INTO events ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def token(connection: sqlite3.Connection) -> int | None:
    """The highest token of a writer; None where no writer had one."""
    row = connection.execute("SELECT token FROM fence").fetchone()
    return None if row is None else int(row[0])


def token_of_any_version(connection: sqlite3.Connection) -> int | None:
    """The same of a store that may be too old to keep one."""
    return token(connection) if int(meta(connection, "schema")) > 2 else None


def keep_token(connection: sqlite3.Connection, token: int) -> None:
    """Make a token the highest, inside the caller's transaction."""
    if token != NOBODY:
        connection.execute("INSERT OR REPLACE INTO fence VALUES (1, ?)", (token,))


def load(connection: sqlite3.Connection) -> Ledger:
    """Every event, held against the chain. Call inside a transaction. Raises `StoreDamaged`, `StoreVersion`."""
    ledger = Ledger()
    for row in _rows(connection):
        ledger.replay(row)
    ledger.hold_against(meta(connection, "tail"))
    return ledger


def check(connection: sqlite3.Connection) -> int:
    """The schema version of a store whose pages SQLite finds sound. Raises `StoreDamaged`, `StoreVersion`."""
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreDamaged(f"SQLite's check of the file failed: {' '.join(str(found).split())}. {RESTORE}")
    return readable(meta(connection, "schema"), meta(connection, "created_by"))


def migrate(connection: sqlite3.Connection, path: Path, target: int, steps: Steps = STEPS) -> Path | None:
    """Lead a store to `target`, up or down, one transaction for all steps, the file copied first.

    Returns the copy's path, `<store>-schema<version>.bak`, or None where nothing was to do; SQLite writes the copy, so
    it holds what the log holds. Raises `StoreVersion`.
    """
    version = int(meta(connection, "schema"))
    if version == target:
        return None
    statements = way(steps, version, target)
    copy = beside(path, f"-schema{version}.bak")
    draft = beside(copy, "-new")
    draft.unlink(missing_ok=True)
    with closing(sqlite3.connect(uri(draft, "rwc"), uri=True)) as target_connection:
        connection.backup(target_connection)
    draft.replace(copy)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(target),))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return copy


def meta(connection: sqlite3.Connection, key: str) -> str:
    """One value of the table meta. Raises `StoreDamaged`."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None or not isinstance(row[0], str):
        raise StoreDamaged(f"the table meta has no {key}. {RESTORE}")
    return row[0]


def _rows(connection: sqlite3.Connection) -> Iterator[Row]:
    rows = connection.execute("SELECT seq, cell_id, payload, texts_sha256, digest, texts FROM events ORDER BY seq")
    for seq, cell_id, payload, texts_sha256, digest, texts in rows:
        yield Row(seq, cell_id, payload, texts_sha256, digest, unpack(f"event {seq}", texts))


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable. Windows has no such call and needs none."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
