"""One writer per store: a lock that vanishes with its holder, even under kill -9, on every system SQLite runs on.

The lock is an open write transaction on a small SQLite database beside the store (`<store>-lock`). Its one row names
the holder; it is committed before the transaction that is the lock begins, so that whoever is refused can read it.
The file stays behind when the lock is gone: removing it would let two writers hold one each.

A holder that must give way (`prefillgate.evidence.fence`) and hangs keeps the lock; nobody can take it from him. On the
same host the store may be written all the same, since every append looks at the token; the lock is taken once he ends.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from prefillgate.evidence.errors import StoreBusy, StoreError, translated
from prefillgate.evidence.files import uri

_TRIES = 15
_PAUSE_SECONDS = 0.02
_TABLE = """CREATE TABLE IF NOT EXISTS holder (
  only INTEGER PRIMARY KEY CHECK (only = 1), token TEXT NOT NULL, pid INTEGER, host TEXT, since TEXT)"""


def lock_path(store: Path) -> Path:
    """The lock file beside a store."""
    return store.with_name(f"{store.name}-lock")


class WriterLock:
    """The right to write one store. Held from construction until `release` or the end of the process."""

    def __init__(self, store: Path, gives_way: Callable[[], bool] = lambda: False) -> None:
        """Take the lock at once. Raises `StoreBusy` naming the process that has it.

        A holder on this host that `gives_way` is passed by, and keeps the lock while he lives.
        """
        self._path = lock_path(store)
        self._token = uuid.uuid4().hex
        self.held = False
        with translated(self._path):
            self._connection = sqlite3.connect(
                uri(self._path, "rwc"), uri=True, timeout=1.0, isolation_level=None, check_same_thread=False
            )
        try:
            self._take(store, gives_way)
        except BaseException:
            self._connection.close()
            raise

    def release(self) -> None:
        """Let the next writer in. May be called twice."""
        self._connection.close()

    def try_again(self) -> None:
        """Take the lock if it is not held and free by now."""
        while not self.held and self._begin():
            self._hold_or_sign()

    def _take(self, store: Path, gives_way: Callable[[], bool]) -> None:
        """Hold a transaction in which the committed row is ours. Another opener may slip in between: then again."""
        for _ in range(_TRIES):
            if self._begin():
                self._hold_or_sign()
                if self.held:
                    return
            else:
                time.sleep(_PAUSE_SECONDS)
        if not gives_way():
            raise StoreBusy(f"{store}: {self._who()} is writing it. Wait for it, end it, or name another file.")
        if self._host() != platform.node():
            raise StoreBusy(
                f"{store}: {self._who()} has a lower token and must give way, but its lock cannot be broken from "
                f"{platform.node()}. End that process, or the pod it is in."
            )

    def _hold_or_sign(self) -> None:
        """With the transaction begun: keep it where the committed row is ours, else commit ours."""
        if self._holder() == self._token:
            self.held = True
        else:
            self._sign(self._token)

    def _begin(self) -> bool:
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise StoreError(f"{self._path}: cannot be locked: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error
        return True

    def _holder(self) -> str | None:
        try:
            if not self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'holder'").fetchone():
                return None
            row = self._connection.execute("SELECT token FROM holder").fetchone()
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error
        return None if row is None else str(row[0])

    def _sign(self, token: str) -> None:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        me = (token, os.getpid(), platform.node(), since)
        with translated(self._path):
            self._connection.execute("PRAGMA busy_timeout = 1000")  # for readers of the holder's name
            self._connection.execute(_TABLE)
            self._connection.execute("INSERT OR REPLACE INTO holder VALUES (1, ?, ?, ?, ?)", me)
            self._connection.execute("COMMIT")

    def _signed(self) -> tuple[object, object, object] | None:
        """Process, host and time of the holder, as he signed."""
        try:
            with closing(sqlite3.connect(uri(self._path, "ro"), uri=True, timeout=1.0)) as connection:
                row: tuple[object, object, object] | None = connection.execute(
                    "SELECT pid, host, since FROM holder"
                ).fetchone()
        except sqlite3.Error:
            return None
        return row

    def _host(self) -> object:
        row = self._signed()
        return None if row is None else row[1]

    def _who(self) -> str:
        row = self._signed()
        if row is None:
            return "another process"
        mine = " (this very process)" if row[0] == os.getpid() and row[1] == platform.node() else ""
        return f"process {row[0]} on {row[1]}{mine}, since {row[2]},"

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"{self._path}: not a lock file of prefillgate ({error}). Remove it if no run is writing.")
