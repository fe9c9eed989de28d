"""Opening a store's files. A reader never creates one, repairs one or keeps one open.

Never open a store with `open()`: on POSIX, closing any descriptor of a file drops the locks that SQLite holds on it in
the same process. The one exception is a store that no process has open (no `-shm` file), which may be copied.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from prefillgate.evidence.errors import (
    RESTORE,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreMissing,
    translate,
    translated,
)

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]

_TRIES = 20
_PAUSE_SECONDS = 0.05


def uri(path: PurePath, mode: str) -> str:
    """SQLite's URI of an absolute path, on Windows too (drives and shares). `mode` is ro, rw, rwc or immutable."""
    posix = path.as_posix()
    slash = "" if posix.startswith("/") else "/"
    query = "mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}"
    return f"file://{slash}{quote(os.fsencode(posix), safe='/:')}?{query}"


def absolute(path: str | Path) -> Path:
    """Through symbolic links, because SQLite puts its own files beside the real one."""
    path = Path(path)
    with translated(path):
        return path.resolve()


def beside(path: Path, suffix: str) -> Path:
    """A file that belongs to a store: `-wal`, `-shm`, `-lock`."""
    return path.with_name(path.name + suffix)


def read(path: Path, work: Work[Result]) -> Result:
    """Do `work` on one unchanging view of the store, with or without a writer at it. Raises `StoreError`.

    With nobody writing the file is read as it is (`immutable`), which creates nothing. A writer may come or leave in
    the middle of it, so an answer got that way, and any error, counts only if the file stayed the same.
    """
    failure: StoreError | None = None
    for _ in range(_TRIES):
        before = _state(path)
        try:
            if before.shared:
                return _read_shared(path, work)
            result = _read_copy(path, work) if before.log_bytes else _work(path, "immutable", _whole(path, work))
            if _state(path) == before:
                return result
        except StoreError as error:
            if _state(path) == before:
                raise
            failure = error
        time.sleep(_PAUSE_SECONDS)
    raise failure or StoreBusy(f"{path}: it changes faster than it can be read. Try again.")


class _State(NamedTuple):
    modified_ns: int
    size_bytes: int
    log_bytes: int
    shared: bool  # a process has it open, or was killed while it had


def _state(path: Path) -> _State:
    try:
        stat = path.stat()
        log_bytes = beside(path, "-wal").stat().st_size if beside(path, "-wal").exists() else 0
        return _State(stat.st_mtime_ns, stat.st_size, log_bytes, beside(path, "-shm").exists())
    except FileNotFoundError:
        if path.exists():  # the log went between two looks
            return _state(path)
        raise StoreMissing(f"{path}: the evidence store is gone.") from None
    except OSError as error:
        raise translate(path, error) from error


def _work(path: Path, mode: str, work: Work[Result]) -> Result:
    try:
        with closing(sqlite3.connect(uri(path, mode), uri=True, timeout=5.0, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            return work(connection)
    except (sqlite3.Error, OSError) as error:
        raise translate(path, error) from error


def _whole(path: Path, work: Work[Result]) -> Work[Result]:
    """`work`, of a file that nobody writes: its last page must be all there. SQLite would fill it up with zeros."""

    def checked(connection: sqlite3.Connection) -> Result:
        result = work(connection)
        over = path.stat().st_size % int(connection.execute("PRAGMA page_size").fetchone()[0])
        if over:
            raise StoreDamaged(f"{path}: the file was cut short: it ends {over} bytes into a page. {RESTORE}")
        return result

    return checked


def _read_shared(path: Path, work: Work[Result]) -> Result:
    """Beside a writer, or after one that was killed: SQLite's own shared reading, which changes neither file."""
    try:
        return _work(path, "ro", work)
    except StoreDamaged:
        raise
    except StoreError as error:
        code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
        if code not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise
    return _read_copy(path, work)  # the folder cannot be written, so nobody writes the store there


def _read_copy(path: Path, work: Work[Result]) -> Result:
    """A log without its index: SQLite would have to create one beside the store, so it does that beside a copy."""
    with tempfile.TemporaryDirectory(prefix="prefillgate-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(beside(path, "-wal"), beside(copy, "-wal"))
        except OSError as error:
            raise translate(path, error) from error
        return _work(copy, "rw", work)
