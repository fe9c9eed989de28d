"""What can go wrong with a store, in one tree. Every message says what to do.

StoreError
├── StoreMissing   nothing is there
├── StoreExists    something is there already
├── StoreForeign   something else is there; it was left untouched
├── StoreVersion   written by another version of prefillgate
├── StoreBusy      another process writes it
├── StoreAway      the server that keeps it cannot be reached
├── StoreFenced    a writer with a higher token took it over
├── StoreDamaged   its contents are not what was written; nothing was repaired
└── StoreRefused   this event may not be appended, or not here; the store is fine
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StoreError(Exception):
    """The evidence store cannot do what was asked. Base of all its errors."""


class StoreMissing(StoreError):
    """There is no store at this path."""


class StoreExists(StoreError):
    """A new store was asked for where a file already is."""


class StoreForeign(StoreError):
    """The file is not an evidence store. It was left untouched."""


class StoreVersion(StoreError):
    """The store was written by another version, and this one cannot use it as it is."""


class StoreBusy(StoreError):
    """Another process, or another part of this one, writes the store."""


class StoreAway(StoreError):
    """The database server that keeps the store did not answer, or went away."""


class StoreFenced(StoreError):
    """A writer with a higher token has written the store: this one was replaced and must stop."""


class StoreDamaged(StoreError):
    """The store does not hold what was written into it. Nothing was repaired."""


class StoreRefused(StoreError):
    """The event was not written: it breaks a rule of the journal. The store itself is fine."""


RESTORE = "Nothing was repaired. Restore the store from a copy, or start a new one."
LOCAL_DISK = "SQLite's locks and write-ahead log need a local disk: not NFS, SMB or a synchronised folder."

SAFE = "Everything committed before is safe."
_MEANING: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_NOTADB: (StoreForeign, "it is not an SQLite database, or its first page is damaged"),
    sqlite3.SQLITE_ERROR: (StoreDamaged, f"its tables are not those of a store. {RESTORE}"),
    sqlite3.SQLITE_CORRUPT: (StoreDamaged, f"SQLite finds it malformed. {RESTORE}"),
    sqlite3.SQLITE_FULL: (StoreError, f"the disk is full. {SAFE} Free some space and run the same command again."),
    sqlite3.SQLITE_READONLY: (StoreError, "it cannot be written. Check the permissions of the file and its folder."),
    sqlite3.SQLITE_PERM: (StoreError, "access is denied. Check the permissions of the file and its folder."),
    sqlite3.SQLITE_CANTOPEN: (StoreError, "it cannot be opened. Check that its folder exists and can be written."),
    sqlite3.SQLITE_IOERR: (StoreError, f"reading or writing the disk failed. {SAFE} {LOCAL_DISK}"),
    sqlite3.SQLITE_PROTOCOL: (StoreError, f"locking failed. {LOCAL_DISK}"),
    sqlite3.SQLITE_BUSY: (StoreBusy, "another program holds it. Close that program and try again."),
    sqlite3.SQLITE_LOCKED: (StoreBusy, "another part of this program holds it."),
}


def translate(path: Path, error: sqlite3.Error | OSError) -> StoreError:
    """The store's own error for one of SQLite or the operating system."""
    if isinstance(error, OSError):
        return StoreError(f"{path}: {error.strerror or error}. Check the file, its folder and the free space.")
    # Without a code the Python module itself could not read a value: text that is no text.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    kind, meaning = _MEANING.get(code & 0xFF, (StoreError, "SQLite refused."))
    return kind(f"{path}: {meaning} [SQLite: {error}]")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns errors of SQLite and of the operating system into `StoreError`, the original chained."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translate(path, error) from error


@contextmanager
def named(store: str) -> Iterator[None]:
    """Puts the store's name in front of what its contents complain about."""
    try:
        yield
    except (StoreMissing, StoreDamaged, StoreVersion, StoreForeign, StoreBusy, StoreFenced) as error:
        if str(error).startswith(store):
            raise
        raise type(error)(f"{store}: {error}") from error


def outside(store: str) -> StoreError:
    """The error of a writer that finds another tail than its own."""
    return StoreError(f"{store}: it was changed from outside. Open it again to see what it holds.")
