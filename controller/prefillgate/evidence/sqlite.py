"""The evidence store: the journal in one SQLite file.

One transaction per event, its text in the same row; write-ahead log, synchronous FULL, one writer. A process may be
killed at any instant: an event whose `append` returned is there, once. Opening holds every row against the chain
(`prefillgate.evidence.chain`); what does not fit is reported and never repaired. The one thing SQLite does by itself
is to drop a transaction that was never committed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from prefillgate.core.journal import Event, Planned, Texts
from prefillgate.evidence import schema
from prefillgate.evidence.chain import Entry, sha256
from prefillgate.evidence.codec import decode_texts
from prefillgate.evidence.errors import (
    RESTORE,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreForeign,
    StoreMissing,
    StoreRefused,
    StoreVersion,
    translated,
)
from prefillgate.evidence.files import beside, read, uri
from prefillgate.evidence.ledger import Ledger
from prefillgate.evidence.lock import WriterLock


class SqliteJournal:
    """A journal in a file. Make one by `create`, `open` or `open_readonly`; close it, or use it in a `with` statement.

    Safe to use from any thread. A read-only journal is the store as it was when it was opened.
    """

    def __init__(self, path: Path, ledger: Ledger, writer: _Writer | None) -> None:
        self.path = path
        self._ledger = ledger
        self._writer = writer
        self._mutex = threading.Lock()
        self._closed = False

    @classmethod
    def create(cls, path: str | Path, planned: Planned) -> SqliteJournal:
        """A new store that holds its plan, opened for writing. Makes the folder if there is none.

        Raises `StoreExists` when a file is there already, `StoreBusy` when it is just being made, `StoreRefused` for a
        plan that cannot be written.
        """
        path = _absolute(path)
        ledger = Ledger()
        entry = ledger.prepare(planned, None)
        ledger.record(entry)
        _refuse_existing(path)
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as lock:
            _refuse_existing(path)
            with translated(path):
                schema.create(path, entry, ledger.tail)
            return cls(path, *_open_writer(path, lock))

    @classmethod
    def open(cls, path: str | Path) -> SqliteJournal:
        """An existing store for reading and writing, every row of it checked.

        Raises `StoreMissing`, `StoreForeign`, `StoreBusy` naming the process that writes it, `StoreVersion`,
        `StoreDamaged` naming the row.
        """
        path = _absolute(path)
        _refuse_foreign(path)
        with _locked(path) as lock:
            return cls(path, *_open_writer(path, lock))

    @classmethod
    def open_readonly(cls, path: str | Path) -> SqliteJournal:
        """An existing store as it is now, every row of it checked, while another process may be writing it.

        Creates and changes nothing. Raises `StoreMissing`, `StoreForeign`, `StoreVersion`, `StoreDamaged`.
        """
        path = _absolute(path)
        _refuse_foreign(path)
        with _named(path):
            return cls(path, read(path, _load_readonly), None)

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
            if self._writer is None:
                raise StoreRefused(f"{self.path}: opened for reading only")
            entry = self._ledger.prepare(event, texts)
            self._writer.commit(entry, self._ledger.tail)
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
            with _named(self.path):
                if self._writer is not None:
                    return _texts(self._writer.connection, seq)
                return read(self.path, lambda connection: _texts(connection, seq))

    def close(self) -> None:
        """Let the next writer in. `events` still answers. May be called twice."""
        with self._mutex:
            self._closed = True
            if self._writer is not None:
                self._writer.close()

    def __enter__(self) -> SqliteJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreRefused(f"{self.path}: this journal is closed")


class _Writer:
    """The one connection that writes, and the lock that makes it the one. Its journal serialises the calls."""

    def __init__(self, path: Path, lock: WriterLock) -> None:
        self._path = path
        self._lock = lock
        with translated(path):
            self.connection = sqlite3.connect(
                uri(path, "rw"), uri=True, timeout=10.0, isolation_level=None, check_same_thread=False
            )

    def commit(self, entry: Entry, tail: str) -> None:
        """Write one entry after the event that `tail` names, whatever this process believes."""
        new_tail = f"{entry.seq}:{entry.digest.hex()}"
        with translated(self._path):
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                moved = self.connection.execute(
                    "UPDATE meta SET value = ? WHERE key = 'tail' AND value = ?", (new_tail, tail)
                )
                if moved.rowcount != 1:
                    raise StoreError(f"{self._path}: it was changed from outside. Open it again to see what it holds.")
                schema.insert(self.connection, entry)
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        self.connection.close()
        self._lock.release()


def _open_writer(path: Path, lock: WriterLock) -> tuple[Ledger, _Writer]:
    """Check first, then write: a store that is refused stays as it is."""
    writer = _Writer(path, lock)
    try:
        with _named(path), translated(path):
            schema.check(writer.connection)
            schema.migrate(writer.connection, path, schema.SCHEMA, schema.STEPS)
            ledger = schema.load(writer.connection)
            schema.prepare_writer(writer.connection, path)
            writer.connection.execute("BEGIN IMMEDIATE")  # a file that cannot be written is told before a cell is paid
            writer.connection.execute("ROLLBACK")
    except BaseException:
        writer.connection.close()
        raise
    return ledger, writer


def _load_readonly(connection: sqlite3.Connection) -> Ledger:
    version = schema.check(connection)
    if version < schema.SCHEMA:
        raise StoreVersion(
            f"it has schema version {version}, this prefillgate reads {schema.SCHEMA}. Open it for writing once (run "
            "with --store): it is copied, then brought up to date."
        )
    return schema.load(connection)


def _texts(connection: sqlite3.Connection, seq: int) -> Texts | None:
    row = connection.execute("SELECT texts_sha256, texts FROM events WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        raise StoreDamaged(f"event {seq} is missing. {RESTORE}")
    plain = schema.unpack(f"event {seq}", row[1])
    if sha256(plain) != row[0]:
        raise StoreDamaged(f"event {seq}: its text was altered. {RESTORE}")
    return None if plain is None else decode_texts(plain)


def _absolute(path: str | Path) -> Path:
    """Through symbolic links, because SQLite puts its own files beside the real one."""
    path = Path(path)
    with translated(path):
        return path.resolve()


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise StoreExists(f"{path}: there is a file already. Open it to resume its run, or name another file.")


def _refuse_foreign(path: Path) -> None:
    """Raises unless the first page says it is ours. Reads that page only, creates nothing."""
    if path.is_dir():
        raise StoreForeign(f"{path}: this is a folder, not an evidence store.")
    if not path.exists():
        raise StoreMissing(f"{path}: there is no evidence store. Check the path; `prefillgate run` makes one.")
    try:
        found = read(path, lambda connection: int(connection.execute("PRAGMA application_id").fetchone()[0]))
        if found == schema.APPLICATION_ID:
            return
        what = "empty" if path.stat().st_size == 0 else "an SQLite database of something else"
    except StoreForeign:
        what = "no SQLite database"
    if beside(path, "-lock").exists():
        raise StoreDamaged(f"{path}: there was an evidence store here, but the start of the file is lost. {RESTORE}")
    raise StoreForeign(
        f"{path}: this is not an evidence store of prefillgate ({what}). It was left untouched. Check the path; if a "
        "store was here, restore the file from a copy."
    )


@contextmanager
def _locked(path: Path) -> Iterator[WriterLock]:
    """The writer's lock, given back if what follows fails."""
    lock = WriterLock(path)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Puts the store's path in front of what its contents complain about."""
    try:
        yield
    except (StoreDamaged, StoreVersion, StoreForeign, StoreBusy) as error:
        if str(error).startswith(str(path)):
            raise
        raise type(error)(f"{path}: {error}") from error
