"""The evidence store in a PostgreSQL database: the journal of one run, beside those of other gates.

One statement per event, its text in the same row; the tail of the run guards it, and an advisory lock makes its writer
the one. The lock dies with the connection. After a lost connection the journal takes the lock anew, which shows that
the old session is over, and looks whether the event that was under way is there: it is never written twice, and never
given up in silence.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

import psycopg

from prefillgate.api.store_address import PostgresUrl, store_address
from prefillgate.core.journal import Planned
from prefillgate.evidence import postgres_schema as schema
from prefillgate.evidence.chain import Entry
from prefillgate.evidence.errors import (
    StoreAway,
    StoreBusy,
    StoreError,
    StoreExists,
    StoreMissing,
    StoreRefused,
    StoreVersion,
    named,
    outside,
)
from prefillgate.evidence.fence import NOBODY, Fence, fenced, held_token, may_take_over
from prefillgate.evidence.kept import Keeper, KeptJournal
from prefillgate.evidence.ledger import Ledger
from prefillgate.evidence.postgres_link import Connection, connect, lost, translate, translated
from prefillgate.evidence.versions import CREATED_BY, SCHEMA

RECONNECT_SECONDS = 30.0
_PAUSE_SECONDS = 0.1

T = TypeVar("T")
_TRIES = 20


class PostgresJournal(KeptJournal):
    """A journal in a database. Make one by `create`, `open` or `open_readonly`."""

    def __init__(self, url: PostgresUrl, ledger: Ledger, keeper: Keeper) -> None:
        super().__init__(str(url), ledger, keeper)
        self.url = url

    @classmethod
    def create(cls, url: str | PostgresUrl, planned: Planned, fence: Fence | None = None) -> PostgresJournal:
        """A new run that holds its plan, opened for writing. Makes the tables if there are none.

        Raises `StoreExists` when the run is there already, `StoreRefused` for a plan that cannot be written,
        `StoreVersion`, `StoreBusy`, `StoreAway`.
        """
        url = _address(url)
        if url.run is None:
            raise StoreMissing(f"{url}: no run is named. Name one as ?run=NAME.")
        ledger = Ledger()
        entry = ledger.prepare(planned, None)
        connection = connect(url)
        try:
            with named(str(url)), translated(url):
                schema.make(connection)
                _writable(connection)
                right = _insert(connection, url, (entry, ledger.tail), held_token(fence, None))
        except BaseException:
            connection.close()
            raise
        ledger.record(entry)
        return cls(url, ledger, _Writer(url, connection, right))

    @classmethod
    def open(cls, url: str | PostgresUrl, fence: Fence | None = None) -> PostgresJournal:
        """An existing run for reading and writing, every row of it checked.

        With a `fence` it is taken over from a writer who is alive and has a lower token: his appends are refused from
        then on, and the server is asked to end his session. Raises `StoreMissing` naming the runs that are there,
        `StoreForeign`, `StoreBusy` naming the process that writes it, `StoreFenced` where a higher token has written
        it, `StoreVersion`, `StoreDamaged` naming the row, `StoreAway`.
        """
        url = _address(url)
        connection = connect(url)
        try:
            with named(str(url)), translated(url):
                _present(schema.version(connection))
                _writable(connection)
                right, held = _take(connection, schema.find(connection, url.run).run, fence)
                run, ledger = schema.load(connection, url.run)
                _sign(connection, run.run)
        except BaseException:
            connection.close()
            raise
        return cls(url, ledger, _Writer(url, connection, right, held))

    @classmethod
    def open_readonly(cls, url: str | PostgresUrl) -> PostgresJournal:
        """An existing run as it is now, every row of it checked, while another process may be writing it.

        Creates and changes nothing. Raises `StoreMissing` naming the runs that are there, `StoreForeign`,
        `StoreVersion`, `StoreDamaged`, `StoreAway`.
        """
        url = _address(url)
        connection = connect(url)
        try:
            with named(str(url)), translated(url):
                _present(schema.version(connection))
                run, ledger = schema.load(connection, url.run)
        except BaseException:
            connection.close()
            raise
        return cls(url, ledger, _Reader(url, connection, run.run))


class _Reader:
    """Reads texts, row by row, on a connection that is made anew when it was lost."""

    writes = False

    def __init__(self, url: PostgresUrl, connection: Connection, run: int) -> None:
        self._url = url
        self._run = run
        self.connection = connection

    def commit(self, entry: Entry, tail: str) -> None:
        raise StoreRefused(f"{self._url}: opened for reading only")

    def texts(self, seq: int) -> tuple[object, object] | None:
        with translated(self._url):
            try:
                return self._texts(seq)
            except psycopg.Error:
                if not lost(self.connection):
                    raise
        return self._when_back(lambda: self._texts(seq))

    def _when_back(self, work: Callable[[], T]) -> T:
        """Do `work` on a new connection once there is one. Raises `StoreAway` after `RECONNECT_SECONDS`."""
        until = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                self.reconnect()
                with translated(self._url):
                    return work()
            except StoreAway:
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def reconnect(self) -> None:
        """A new connection in place of a lost one. Raises `StoreError`."""
        self.connection = connect(self._url)

    def close(self) -> None:
        self.connection.close()

    def _texts(self, seq: int) -> tuple[object, object] | None:
        row = self.connection.execute(
            "SELECT texts_sha256, texts FROM prefillgate.events WHERE run = %s AND seq = %s",
            (self._run, seq),
            binary=True,
        ).fetchone()
        return None if row is None else (row[0], row[1])


class _Writer(_Reader):
    """The one session that writes a run, and the lock that makes it the one."""

    writes = True

    def __init__(self, url: PostgresUrl, connection: Connection, right: schema.Right, held: bool = True) -> None:
        """`held`: the lock of the run is; not where the session that has it must give way and cannot be ended."""
        super().__init__(url, connection, right.run)
        self._right, self._held = right, held
        self._backend = connection.info.backend_pid
        self._over: StoreError | None = None

    def commit(self, entry: Entry, tail: str) -> None:
        """Write one entry after the event that `tail` names, whatever this process believes."""
        if self._over is not None:
            raise type(self._over)(str(self._over))
        try:
            self._write(entry, tail)
        except psycopg.Error as error:
            if not lost(self.connection):
                raise translate(self._url, error) from error
            self._settle(entry, tail)

    def reconnect(self) -> None:
        """A new session, with the lock of the run. Raises `StoreBusy` where somebody else has that by now."""
        connection = connect(self._url)
        try:
            with named(str(self._url)), translated(self._url):
                schema.share_tables(connection)
                found = schema.version(connection)
                if found != SCHEMA:
                    raise StoreVersion(f"its tables were changed meanwhile, from version {SCHEMA} to {found}.")
                self._refuse_if_fenced(connection)
                self._take_back(connection)
                _sign(connection, self._run)
        except BaseException:
            connection.close()
            raise
        self.connection, self._backend = connection, connection.info.backend_pid

    def close(self) -> None:
        """Give the locks back before the connection: whoever comes next finds them free at once."""
        with suppress(psycopg.Error):
            if not lost(self.connection):
                self.connection.execute("SELECT pg_advisory_unlock_all()")
        self.connection.close()

    def _write(self, entry: Entry, tail: str) -> None:
        done = self.connection.execute(schema.COMMIT, schema.parameters(self._right, entry, tail))
        if done.rowcount != 1:
            self._refuse_if_fenced(self.connection)
            raise outside(str(self._url))

    def _settle(self, entry: Entry, tail: str) -> None:
        """The connection went while `entry` was under way: look whether it is there, and write it if it is not."""

        def look() -> None:
            if not self._is_there(entry, tail):
                self._write(entry, tail)

        try:
            self._when_back(look)
        except StoreAway as error:
            self._over = StoreAway(
                f"{self._url}: the connection was lost while event {entry.seq} was written, and the server did not "
                f"come back within {RECONNECT_SECONDS:g} s: whether it is there is not known yet. Run the same command "
                "again: it looks, and goes on from there."
            )
            raise self._over from error
        except StoreError as error:
            self._over = error
            raise

    def _is_there(self, entry: Entry, tail: str) -> bool:
        """Whether the run ends with `entry`, and not with the event before it. The old session is over by now."""
        row = self.connection.execute(
            "SELECT r.tail, e.digest FROM prefillgate.runs r LEFT JOIN prefillgate.events e ON e.run = r.run "
            "AND e.seq = %s WHERE r.run = %s",
            (entry.seq, self._run),
            binary=True,
        ).fetchone()
        if row == (f"{entry.seq}:{entry.digest.hex()}", entry.digest):
            return True
        if row != (tail, None):
            raise outside(str(self._url))
        return False

    def _refuse_if_fenced(self, connection: Connection) -> None:
        found = schema.token(connection, self._run)
        if found is not None and found > self._right.token:
            with named(str(self._url)):
                raise fenced(self._right.token, found)

    def _take_back(self, connection: Connection) -> None:
        """The run's lock, if need be from this process's own session that the server has not given up yet."""
        if schema.take_run(connection, self._run):
            self._held = True
            return
        if not self._held:
            return
        backend, who = schema.holder(connection, self._run)
        if backend not in (None, self._backend):
            raise StoreBusy(f"the connection was lost, and {who} is writing it by now. Wait for it, or end it.")
        if backend is not None:
            connection.execute("SELECT pg_terminate_backend(%s)", (backend,))
        raise StoreAway(f"{self._url}: the lost session still has the lock of the run.")


def _address(url: str | PostgresUrl) -> PostgresUrl:
    address = store_address(url) if isinstance(url, str) else url
    if not isinstance(address, PostgresUrl):
        raise ValueError(f"{address} is no URL of a database")
    return address


def _present(version: int | None) -> None:
    if version is None:
        raise StoreMissing("there is no evidence store in this database. `prefillgate run` makes one.")


def _writable(connection: Connection) -> None:
    """Tables of this version, which stay so as long as the connection lives. Older ones are led up."""
    for _ in range(_TRIES):
        schema.share_tables(connection)
        if schema.version(connection) == SCHEMA:
            return
        schema.give_tables(connection)
        schema.migrate(connection, SCHEMA)
    raise StoreBusy("its tables change from version to version. Try again in a moment.")


def _take(connection: Connection, run: int, fence: Fence | None) -> tuple[schema.Right, bool]:
    """The right to write a run, and whether its lock is held.

    Raises `StoreFenced`, and `StoreBusy` naming the process that has the lock and need not give way.
    """
    found = schema.token(connection, run)
    right = schema.Right(run, held_token(fence, found))
    over, who = may_take_over(fence, found), ""
    if over:
        schema.raise_token(connection, right)  # first: whatever becomes of the old session, it appends no more
    for _ in range(_TRIES):
        if schema.take_run(connection, run):
            schema.raise_token(connection, right)
            return schema.Right(run, held_token(fence, schema.token(connection, run))), True
        backend, who = schema.holder(connection, run)
        if over and backend is not None:
            _end(connection, backend)
        time.sleep(_PAUSE_SECONDS / 4)  # its holder has not signed yet, or was just killed
    if over:
        return schema.Right(run, held_token(fence, schema.token(connection, run))), False
    mine = " (this very process)" if who.startswith(f"{_me()},") else ""
    raise StoreBusy(f"{who or 'another process'}{mine} is writing it. Wait for it, end it, or use another run.")


def _end(connection: Connection, backend: int) -> None:
    """Have the server end a session, where this role may; another role's goes on, and its appends are refused."""
    with suppress(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT pg_terminate_backend(%s)", (backend,))


def _sign(connection: Connection, run: int) -> None:
    """Name the writer. A run that cannot be written is told here, before a cell is paid."""
    connection.execute(
        "UPDATE prefillgate.runs SET writer = %s, writer_backend = pg_backend_pid() WHERE run = %s", (_signature(), run)
    )


def _me() -> str:
    return f"process {os.getpid()} on {platform.node()}"


def _signature() -> str:
    return f"{_me()}, since {datetime.now(UTC).isoformat(timespec='seconds')}"


def _insert(connection: Connection, url: PostgresUrl, first: tuple[Entry, str], token: int) -> schema.Right:
    """A new run with its first event, whole or not at all, its lock taken before anybody can see it."""
    try:
        with connection.transaction():
            row = connection.execute(
                schema.INSERT_RUN,
                {
                    "name": url.run,
                    "created_by": CREATED_BY,
                    "tail": first[1],
                    "writer": _signature(),
                    "token": None if token == NOBODY else token,
                },
            ).fetchone()
            assert row is not None
            right = schema.Right(int(row[0]), token)
            if not schema.take_run(connection, right.run):
                raise StoreBusy("another process holds the lock of a run that is just being made.")
            connection.execute(schema.COMMIT, schema.parameters(right, *first))
    except psycopg.errors.UniqueViolation as error:
        raise StoreExists(f"{url}: there is such a run already. Open it to resume it, or name another run.") from error
    return right
