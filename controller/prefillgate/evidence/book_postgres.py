"""The book in the PostgreSQL database that holds the runs, in a schema of its own, `prefillgate_book`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, TypeVar

import psycopg

from prefillgate.api.store_address import PostgresUrl, StoreAddress
from prefillgate.evidence.book_link import Ask, Loss, Rows
from prefillgate.evidence.book_tables import check_version, missing, statements
from prefillgate.evidence.errors import StoreAway, StoreDamaged, StoreForeign, named
from prefillgate.evidence.fence import NOBODY, Fence, fenced, held_token
from prefillgate.evidence.postgres_link import Connection, connect, lost, translated
from prefillgate.evidence.postgres_schema import LOCKS

BOOK_LOCK = -2  # of its making, beside those of the runs
RECONNECT_SECONDS = 5.0
LOCK_SECONDS = 10  # of another's transaction; one that hangs is ended by the server after half of it
LOST = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)  # somebody dropped it
_PAUSE_SECONDS = 0.1
_VALUE = re.compile(r"(?<!:):([a-z][a-z_0-9]*)")
_T = TypeVar("_T")


class PostgresLink:
    """The connection of this process to a book in a database, made anew when it was lost."""

    def __init__(self, url: PostgresUrl, fence: Fence | None) -> None:
        """Open it, made where there is none. Raises `StoreFenced`, `StoreForeign`, `StoreVersion`, `StoreError`."""
        self._url = PostgresUrl(url.server, None)
        self._fence = fence
        self._loss = Loss()
        self.name = f"{self._url} (the book)"
        self._token = NOBODY if fence is None else fence.token
        self._connection = _connected(self._url)
        try:
            with named(self.name), translated(self._url):
                self._begin()
        except BaseException:
            self._connection.close()
            raise

    def write(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` in one transaction that no other write comes between; again where the connection was lost, since
        whether it was done is not known then. Raises `StoreFenced`, `StoreAway`, `StoreError`."""

        def fencing() -> _T:
            found = self._found("FOR UPDATE")
            if found > self._token:
                raise fenced(self._token, found)
            return work(self._ask)

        return self._again(fencing)

    def read(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` on one moment of the book. Raises `StoreAway`, `StoreError`."""

        def reading() -> _T:
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return work(self._ask)

        return self._again(reading)

    def gone(self, stores: Collection[StoreAddress]) -> frozenset[StoreAddress]:
        """Those of these runs that are not in the database. Raises `StoreAway`, `StoreError`."""
        names = [each.run for each in stores if isinstance(each, PostgresUrl)]

        def reading() -> set[object]:
            if self._connection.execute("SELECT to_regclass('prefillgate.runs')").fetchone() == (None,):
                return set()
            found = self._connection.execute("SELECT name FROM prefillgate.runs WHERE name = ANY(%s)", (names,))
            return {row[0] for row in found}

        there = self._again(reading)
        return frozenset(each for each in stores if isinstance(each, PostgresUrl) and each.run not in there)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _again(self, work: Callable[[], _T]) -> _T:
        until = time.monotonic() + RECONNECT_SECONDS
        with named(self.name):
            while True:
                try:
                    with translated(self._url):
                        if self._loss.due():
                            self._begin()
                            self._loss.over()
                        return self._transaction(work)
                except StoreDamaged as error:
                    if isinstance(error.__cause__, LOST):
                        self._loss.found(error)
                    raise
                except StoreAway:
                    if time.monotonic() >= until:
                        raise
                time.sleep(_PAUSE_SECONDS)
                self._reconnect(until)

    def _reconnect(self, until: float) -> None:
        while lost(self._connection):
            try:
                self._connection = _connected(self._url)
            except StoreAway:
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _ask(self, statement: str, values: dict[str, Any]) -> Rows:
        cursor = self._connection.execute(_translated(statement), values)
        return cursor.fetchall() if cursor.description is not None else []

    def _transaction(self, work: Callable[[], _T]) -> _T:
        with self._connection.transaction():
            return work()

    def _begin(self) -> None:
        self._make()
        self._transaction(lambda: self._take(self._fence))

    def _make(self) -> None:
        """The schema, unless it is there. Raises `StoreForeign` for one of that name that is not ours."""
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, BOOK_LOCK))
            there = "SELECT 1 FROM pg_namespace WHERE nspname = 'prefillgate_book'"
            if self._connection.execute(there).fetchone() is None:
                self._connection.execute("CREATE SCHEMA prefillgate_book")
                for statement in statements():
                    self._ask(statement, {})
            try:
                meta = {row[0]: row[1] for row in self._ask("SELECT key, value FROM book.meta", {})}
            except psycopg.errors.UndefinedTable as error:
                raise StoreForeign(
                    "the schema prefillgate_book in this database is not the book of a controller. It was left "
                    "untouched. Use another database."
                ) from error
            check_version(meta)
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'prefillgate_book'"
            for statement in missing([row[0] for row in self._connection.execute(tables)]):
                self._ask(statement, {})

    def _take(self, fence: Fence | None) -> None:
        found = self._found("FOR UPDATE")
        self._token = held_token(fence, None if found == NOBODY else found)
        self._ask("UPDATE book.fence SET token = :token", {"token": self._token})

    def _found(self, how: str) -> int:
        rows = self._ask(f"SELECT token FROM book.fence {how}", {})
        if len(rows) != 1:
            raise StoreDamaged("the book does not say who may write it.")
        return int(rows[0][0])


def _connected(url: PostgresUrl) -> Connection:
    """A connection that neither waits for a hung writer for long nor is one for long."""
    connection = connect(url)
    with translated(url):
        connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
        connection.execute(f"SET idle_in_transaction_session_timeout = '{LOCK_SECONDS // 2}s'")
    return connection


@cache
def _translated(statement: str) -> str:
    """The book's SQL as psycopg takes it."""
    return _VALUE.sub(r"%(\1)s", statement.replace("%", "%%")).replace("book.", "prefillgate_book.")
