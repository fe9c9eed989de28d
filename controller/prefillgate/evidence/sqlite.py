"""The evidence store: the journal in one SQLite file.

One transaction per event, its text in the same row; write-ahead log, synchronous FULL, one writer. A process may be
killed at any instant: an event whose `append` returned is there, once. Opening holds every row against the chain
(`prefillgate.evidence.chain`); what does not fit is reported and never repaired. The one thing SQLite does by itself
is to drop a transaction that was never committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefillgate.core.journal import Planned
from prefillgate.evidence import schema
from prefillgate.evidence.chain import Entry
from prefillgate.evidence.errors import (
    RESTORE,
    StoreDamaged,
    StoreExists,
    StoreForeign,
    StoreMissing,
    StoreRefused,
    named,
    outside,
    translated,
)
from prefillgate.evidence.facts import Moved
from prefillgate.evidence.fence import NOBODY, Fence, fenced, held_token, may_take_over
from prefillgate.evidence.files import absolute, beside, read, uri
from prefillgate.evidence.kept import Keeper, KeptJournal
from prefillgate.evidence.ledger import Ledger
from prefillgate.evidence.lock import WriterLock
from prefillgate.evidence.same_file import SameFile
from prefillgate.evidence.versions import SCHEMA, lost_by


class SqliteJournal(KeptJournal):
    """A journal in a file. Make one by `create`, `open` or `open_readonly`."""

    def __init__(self, path: Path, ledger: Ledger, keeper: Keeper) -> None:
        super().__init__(str(path), ledger, keeper)
        self.path = path

    @classmethod
    def create(cls, path: str | Path, planned: Planned, fence: Fence | None = None) -> SqliteJournal:
        """A new store that holds its plan, opened for writing. Makes the folder if there is none.

        Raises `StoreExists` when a file is there already, `StoreBusy` when it is just being made, `StoreRefused` for a
        plan that cannot be written.
        """
        path = absolute(path)
        ledger = Ledger()
        entry = ledger.prepare(planned, None)
        ledger.record(entry)
        _refuse_existing(path)
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as lock:
            _refuse_existing(path)
            with translated(path):
                schema.create(path, entry, ledger.tail, held_token(fence, None))
            return cls(path, *_open_writer(path, lock, fence))

    @classmethod
    def open(cls, path: str | Path, fence: Fence | None = None) -> SqliteJournal:
        """An existing store for reading and writing, every row of it checked.

        With a `fence` it is taken over from a writer on this host who is alive and has a lower token; the lock of one
        on another host cannot be broken. Raises `StoreMissing`, `StoreForeign`, `StoreBusy` naming the process that
        writes it, `StoreFenced` where a higher token has written it, `StoreVersion`, `StoreDamaged` naming the row.
        """
        path = absolute(path)
        refuse_foreign(path)
        with _locked(path, fence) as lock:
            return cls(path, *_open_writer(path, lock, fence))

    @classmethod
    def open_readonly(cls, path: str | Path) -> SqliteJournal:
        """An existing store as it is now, every row of it checked, while another process may be writing it.

        Creates and changes nothing. Raises `StoreMissing`, `StoreForeign`, `StoreVersion`, `StoreDamaged`.
        """
        path = absolute(path)
        refuse_foreign(path)
        with named(str(path)):
            return cls(path, read(path, _load_readonly), _Reader(path))


def migrate_file(path: str | Path, target: int) -> Moved:
    """Lead the tables of a store to a version, up or back, the file copied first.

    Raises what `SqliteJournal.open` raises.
    """
    path = absolute(path)
    refuse_foreign(path)
    with _locked(path) as lock:
        writer = _Writer(path, lock)
        try:
            with named(str(path)), translated(path):
                before = schema.check(writer.connection)
                schema.load(writer.connection)
                copy = schema.migrate(writer.connection, path, target)
        finally:
            writer.close()
    return Moved(before, lost_by(schema.STEPS, before, target), copy)


class _Reader:
    """Opens the file for each text that is asked for: a reader keeps nothing open."""

    writes = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def commit(self, entry: Entry, tail: str) -> None:
        raise StoreRefused(f"{self._path}: opened for reading only")

    def texts(self, seq: int) -> tuple[object, object] | None:
        return read(self._path, lambda connection: _texts(connection, seq))

    def close(self) -> None:
        """Nothing is open."""


class _Writer:
    """The one connection that writes, and the lock that makes it the one."""

    writes = True

    def __init__(self, path: Path, lock: WriterLock) -> None:
        self._path = path
        self._lock = lock
        self.token = NOBODY
        self.file: SameFile | None = None  # None: nothing is written yet
        with translated(path):
            self.connection = sqlite3.connect(
                uri(path, "rw"), uri=True, timeout=10.0, isolation_level=None, check_same_thread=False
            )

    def commit(self, entry: Entry, tail: str) -> None:
        """Write one entry after the event that `tail` names, whatever this process believes. Raises `StoreMissing`
        where the file is not the one at its path any more."""
        new_tail = f"{entry.seq}:{entry.digest.hex()}"
        assert self.file is not None
        with translated(self._path):
            self.file.check()
            self._lock.try_again()
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                self._refuse_if_fenced()
                moved = self.connection.execute(
                    "UPDATE meta SET value = ? WHERE key = 'tail' AND value = ?", (new_tail, tail)
                )
                if moved.rowcount != 1:
                    raise outside(str(self._path))
                schema.insert(self.connection, entry)
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
            self.file.check()

    def take(self, fence: Fence | None, ledger: Ledger) -> Ledger:
        """The right to write after all events: those of `ledger`, or more that a writer appended who gives way.

        Raises `StoreFenced`, `StoreDamaged`.
        """
        self.connection.execute("BEGIN IMMEDIATE")  # a file that cannot be written is told before a cell is paid
        try:
            self.token = held_token(fence, schema.token(self.connection))
            if schema.meta(self.connection, "tail") != ledger.tail:
                ledger = schema.load(self.connection)
            schema.keep_token(self.connection, self.token)
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        return ledger

    def _refuse_if_fenced(self) -> None:
        found = schema.token(self.connection)
        if found is not None and found > self.token:
            with named(str(self._path)):
                raise fenced(self.token, found)

    def texts(self, seq: int) -> tuple[object, object] | None:
        return _texts(self.connection, seq)

    def close(self) -> None:
        self.connection.close()
        self._lock.release()


def _open_writer(path: Path, lock: WriterLock, fence: Fence | None) -> tuple[Ledger, _Writer]:
    """Check first, then write: a store that is refused stays as it is."""
    writer = _Writer(path, lock)
    try:
        with named(str(path)), translated(path):
            schema.check(writer.connection)
            schema.migrate(writer.connection, path, SCHEMA)
            ledger = schema.load(writer.connection)
            schema.prepare_writer(writer.connection, path)
            ledger = writer.take(fence, ledger)
            writer.file = SameFile(path)
    except BaseException:
        writer.connection.close()
        raise
    return ledger, writer


def _load_readonly(connection: sqlite3.Connection) -> Ledger:
    schema.check(connection)  # an older version is read as it is
    return schema.load(connection)


def _texts(connection: sqlite3.Connection, seq: int) -> tuple[object, object] | None:
    row: tuple[object, object] | None = connection.execute(
        "SELECT texts_sha256, texts FROM events WHERE seq = ?", (seq,)
    ).fetchone()
    return row


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise StoreExists(f"{path}: there is a file already. Open it to resume its run, or name another file.")


def refuse_foreign(path: Path) -> None:
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
def _locked(path: Path, fence: Fence | None = None) -> Iterator[WriterLock]:
    """The writer's lock, given back if what follows fails; without it where its holder must give way to `fence`."""
    lock = WriterLock(path, lambda: fence is not None and may_take_over(fence, read(path, schema.token_of_any_version)))
    try:
        yield lock
    except BaseException:
        lock.release()
        raise
