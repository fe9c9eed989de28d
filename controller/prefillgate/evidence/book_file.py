"""The book in one SQLite file. Several processes may have it open; a write is one transaction, on the disk when it
returns. A file that was lost meanwhile is told for a few seconds, and made anew after them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from prefillgate.api.store_address import StoreAddress
from prefillgate.evidence import schema
from prefillgate.evidence.book_link import Ask, Loss, Rows
from prefillgate.evidence.book_tables import check_version, missing, statements
from prefillgate.evidence.errors import StoreDamaged, StoreForeign, StoreMissing, named, translated
from prefillgate.evidence.fence import NOBODY, Fence, fenced, held_token
from prefillgate.evidence.files import absolute, uri
from prefillgate.evidence.same_file import SameFile

APPLICATION_ID = 0x5066426B  # "PfBk"
BUSY_SECONDS = 10.0
_T = TypeVar("_T")


class FileLink:
    """The one connection of this process to a book in a file."""

    def __init__(self, path: Path, fence: Fence | None) -> None:
        """Open it, made where there is none. Raises `StoreFenced`, `StoreForeign`, `StoreVersion`, `StoreError`."""
        self._path = absolute(path)
        self.name = str(self._path)
        self._fence = fence
        self._token = NOBODY if fence is None else fence.token
        self._loss = Loss()
        self._connection, self._file = self._open()

    def write(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` in one transaction. Raises `StoreFenced`, `StoreMissing` where the file is not there any more (what
        `work` did is nowhere then; a later use makes a new one), `StoreError`."""

        def fencing() -> _T:
            found = self._found()
            if found > self._token:
                raise fenced(self._token, found)
            return work(self._ask)

        return self._done(fencing, "BEGIN IMMEDIATE")

    def read(self, work: Callable[[Ask], _T]) -> _T:
        """Do `work` on one moment of the book. Raises `StoreMissing` as `write` does, `StoreError`."""
        return self._done(lambda: work(self._ask), "BEGIN")

    def gone(self, stores: Collection[StoreAddress]) -> frozenset[StoreAddress]:
        """Those of these files that are not there, or empty. Raises `StoreError` where that cannot be seen."""
        return frozenset(each for each in stores if isinstance(each, Path) and not _holds_something(each))

    def close(self) -> None:
        """Close the file."""
        self._loss.over()
        self._connection.close()

    def _open(self) -> tuple[sqlite3.Connection, SameFile]:
        with translated(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                uri(self._path, "rwc"), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with named(self.name), translated(self._path):
                self._transaction(self._make)
                schema.prepare_writer(self._connection, self._path)
                self._transaction(lambda: self._take(self._fence))
                return self._connection, SameFile(self._path)
        except BaseException:
            self._connection.close()
            raise

    def _done(self, work: Callable[[], _T], begin: str) -> _T:
        """What comes of `work`, in the file that stands at the path before and after it."""
        if self._loss.due():
            self._connection, self._file = self._open()
            self._loss.over()
        with named(self.name), translated(self._path):
            try:
                self._file.check()
                result = self._transaction(work, begin)
                self._file.check()
            except StoreMissing as error:
                self._loss.found(error)
                self._connection.close()  # SQLite leaves the files of another one alone that took its place
                raise
        return result

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


def _holds_something(path: Path) -> bool:
    with translated(path):
        try:
            return path.stat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False
