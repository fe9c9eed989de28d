"""The book in one SQLite file. Several processes may have it open; a write is one transaction, on the disk when it
returns."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from prefillgate.evidence import schema
from prefillgate.evidence.book_link import Ask, Rows
from prefillgate.evidence.book_tables import check_version, missing, statements
from prefillgate.evidence.errors import StoreDamaged, StoreForeign, named, translated
from prefillgate.evidence.fence import NOBODY, Fence, fenced, held_token
from prefillgate.evidence.files import absolute, uri

APPLICATION_ID = 0x5066426B  # "PfBk"
BUSY_SECONDS = 10.0
_T = TypeVar("_T")


class FileLink:
    """The one connection of this process to a book in a file."""

    def __init__(self, path: Path, fence: Fence | None) -> None:
        """Open it, made where there is none. Raises `StoreFenced`, `StoreForeign`, `StoreVersion`, `StoreError`."""
        self._path = absolute(path)
        self.name = str(self._path)
        self._token = NOBODY if fence is None else fence.token
        with translated(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                uri(self._path, "rwc"), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with named(self.name), translated(self._path):
                self._transaction(self._make)
                schema.prepare_writer(self._connection, self._path)
                self._transaction(lambda: self._take(fence))
        except BaseException:
            self._connection.close()
            raise

    def write(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` in one transaction. Raises `StoreFenced`, `StoreError`."""

        def fencing() -> _T:
            found = self._found()
            if found > self._token:
                raise fenced(self._token, found)
            return work(self._ask)

        with named(self.name), translated(self._path):
            return self._transaction(fencing)

    def read(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` on one moment of the book. Raises `StoreError`."""
        with named(self.name), translated(self._path):
            return self._transaction(lambda: work(self._ask), "BEGIN")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _ask(self, statement: str, values: dict[str, Any]) -> Rows:
        return self._connection.execute(statement.replace("book.", "main."), values).fetchall()

    def _transaction(self, work: Callable[[], _T], begin: str = "BEGIN IMMEDIATE") -> _T:
        self._connection.execute(begin)
        try:
            result = work()
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result

    def _make(self) -> None:
        """The tables, unless they are there. Raises `StoreForeign` for a file of something else."""
        (found,) = self._connection.execute("PRAGMA application_id").fetchone()
        tables = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if found == 0 and tables == (0,):
            self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            for statement in statements():
                self._ask(statement, {})
        elif found != APPLICATION_ID:
            raise StoreForeign("this is not the book of a controller. It was left untouched. Name another file.")
        check_version({row[0]: row[1] for row in self._ask("SELECT key, value FROM book.meta", {})})
        for statement in missing([row[0] for row in self._connection.execute("SELECT name FROM sqlite_schema")]):
            self._ask(statement, {})

    def _take(self, fence: Fence | None) -> None:
        found = self._found()
        self._token = held_token(fence, None if found == NOBODY else found)
        self._ask("UPDATE book.fence SET token = :token", {"token": self._token})

    def _found(self) -> int:
        rows = self._ask("SELECT token FROM book.fence", {})
        if len(rows) != 1:
            raise StoreDamaged("the book does not say who may write it.")
        return int(rows[0][0])
