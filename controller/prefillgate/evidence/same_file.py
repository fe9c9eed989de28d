"""Whether the file at a path is still the one that is open.

SQLite goes on writing into a file that was deleted, moved away or replaced, and says so to nobody. The log beside it
(`-wal`) is part of the store: a new one in its place holds nothing of what was committed to the old one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from prefillgate.evidence.errors import StoreMissing
from prefillgate.evidence.files import beside

NEXT = "Nothing more goes into the lost file. Restore it from a backup, or go on with a new one."


class _Found(NamedTuple):
    device: int
    inode: int
    size_bytes: int


class SameFile:
    """The file of a store that was just opened for writing, and its log."""

    def __init__(self, path: Path) -> None:
        """Raises `StoreMissing` where they are gone already."""
        self._path = path
        self._log = beside(path, "-wal")
        self._of_store, self._of_log = self._look()

    def check(self) -> None:
        """Raises `StoreMissing` where another file stands there, none, or one that was cut short: a store never
        shrinks."""
        store, log = self._look()
        if store[:2] != self._of_store[:2] or log[:2] != self._of_log[:2]:
            raise StoreMissing(f"{self._path}: another file took its place while it was open. {NEXT}")
        if store.size_bytes < self._of_store.size_bytes:
            raise StoreMissing(f"{self._path}: it was cut short while it was open. {NEXT}")
        self._of_store = store

    def _look(self) -> tuple[_Found, _Found]:
        try:
            return _found(self._path), _found(self._log)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreMissing(f"{self._path}: it was deleted or moved away while it was open. {NEXT}") from error


def _found(path: Path) -> _Found:
    stat = path.stat()
    return _Found(stat.st_dev, stat.st_ino, stat.st_size)
