"""Following a file that others write, as `tail -F` does: whole lines, through rotation by rename and by truncation.

A `Place` says how far a file was read and which file it was: its number on the disk and a digest of its first bytes,
so that the same place is found again after a restart, also when the file was renamed meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from prefillgate.importers.source import MAX_LINE_BYTES, TooLong

HEAD_DIGEST_BYTES = 1024
OVERLAP_BYTES = 256 * 1024  # read again before a place, so that a record of several lines is whole
READ_BYTES = 256 * 1024
QUIET_LOOKS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where a file was read: `offset` in bytes, `line` lines. `head_sha256` is of its first `head_bytes`."""

    device: int
    number: int
    head_sha256: str = ""
    head_bytes: int = 0
    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end. `again`: it was read before the restart and is here for what follows it."""

    number: int
    raw: bytes | TooLong
    again: bool


class Follower:
    """The lines of one path, whatever file stands there."""

    def __init__(self, path: Path, place: Place | None = None, quiet_looks: int = QUIET_LOOKS) -> None:
        """Begin at the first line of `path`, which need not be there yet, or after `place` wherever that file is now.

        A renamed file is left once nothing was added to it for `quiet_looks` looks: its writer may still hold it.
        `remarks` collects what a person should know.
        """
        self.path = path
        self._quiet_looks = quiet_looks
        self.remarks: list[str] = []
        self._file: BinaryIO | None = None
        self._place: Place | None = None
        self._resumed: Place | None = None
        self._pending = b""
        self._skipping = False
        self._again_until = 0
        self._quiet = 0
        self._older: deque[Path] = deque()
        if place is not None:
            self._resume(place)

    @property
    def place(self) -> Place | None:
        """After the last line that was given, lines given again left out; None before any file was there."""
        reading_again = self._place is not None and self._place.offset < self._again_until
        return self._resumed if reading_again else self._place

    def head(self, most: int) -> bytes:
        """The first bytes of the file that is read now, up to `most`; empty where there is none."""
        if self._file is None and not self._open_next():
            return b""
        return self._read_at(0, most)

    def next(self) -> Line | None:
        """The next whole line, or None where there is none yet."""
        while True:
            line = self._whole_line()
            if line is not None:
                return line
            if self._file is None:
                if not self._open_next():
                    return None
            elif not self._more():
                left = self._leave()
                if left is None:
                    return None
                if isinstance(left, Line):
                    return left

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- lines

    def _whole_line(self) -> Line | None:
        data, end, rest = self._pending.partition(b"\n")
        if not end:
            if len(data) > MAX_LINE_BYTES:
                self._advance(len(data), 0)
                self._pending, self._skipping = b"", True
            return None
        self._pending = rest
        return self._line(data, len(data) + 1)

    def _line(self, data: bytes, size: int) -> Line:
        place = self._advance(size, 1)
        too_long = self._skipping or len(data) > MAX_LINE_BYTES
        self._skipping = False
        raw = TooLong(place.line) if too_long else data.removesuffix(b"\r")
        return Line(place.line, raw, place.offset <= self._again_until)

    def _advance(self, size: int, lines: int) -> Place:
        assert self._place is not None
        self._place = replace(self._place, offset=self._place.offset + size, line=self._place.line + lines)
        return self._place

    def _more(self) -> bool:
        """Read on. A file that became shorter, or another, was truncated: its beginning is new."""
        assert self._file is not None and self._place is not None
        size = os.fstat(self._file.fileno()).st_size
        at = self._place.offset + len(self._pending)
        if size < at or (size > at and not self._is_still(self._place)):
            self._truncated(self._file, self._place)
            return True
        if size == at:
            return False
        data = self._read_at(at, READ_BYTES)
        self._pending += data
        if self._place.head_bytes < HEAD_DIGEST_BYTES:
            self._place = self._known_by(self._place)
        self._quiet = 0
        return bool(data)

    def _truncated(self, file: BinaryIO, place: Place) -> None:
        """Finish the copy that was made before the truncation, where it holds more; then what stands there now."""
        for path in self._newest_first(self._rotated()):
            try:
                self._file = path.open("rb", buffering=0)
            except OSError:
                continue
            stat = os.fstat(self._file.fileno())
            if stat.st_size > place.offset and self._is_still(place):
                file.close()
                self.remarks.append(f"{self.path}: truncated; finishing its copy {path} first")
                self._pending, self._place = b"", replace(place, device=stat.st_dev, number=stat.st_ino)
                return
            self._file.close()
        self.remarks.append(f"{self.path}: truncated; reading it from its beginning")
        self._begin(file)

    def _read_at(self, offset: int, most: int) -> bytes:
        assert self._file is not None
        self._file.seek(offset)
        return self._file.read(most)

    # -- files

    def _open_next(self) -> bool:
        """Open the oldest file not read yet. A file without a byte is not there yet: it has no head to know it by."""
        path = self._older[0] if self._older else self.path
        try:
            file = path.open("rb", buffering=0)
        except OSError:
            if self._older:
                self._older.popleft()
                return self._open_next()
            return False
        if not os.fstat(file.fileno()).st_size:
            file.close()
            return False
        if self._older:
            self._older.popleft()
        self._begin(file)
        return True

    def _begin(self, file: BinaryIO) -> None:
        self._file, self._pending, self._skipping, self._again_until = file, b"", False, 0
        stat = os.fstat(file.fileno())
        self._place = self._known_by(Place(stat.st_dev, stat.st_ino))

    def _leave(self) -> Line | bool | None:
        """At the end of the file: leave it if another stands at the path and nothing more comes.

        None: stay. A line: what the writer left without an end.
        """
        if not self._older and not self._another_stands_there():
            return None
        self._quiet += 1
        if self._quiet < self._quiet_looks and not self._older:
            return None
        if self._pending:
            data, self._pending = self._pending, b""
            return self._line(data, len(data))
        self._quiet = 0
        self.close()
        return True

    def _another_stands_there(self) -> bool:
        assert self._place is not None
        try:
            stat = self.path.stat()
        except OSError:
            return False
        return bool(stat.st_size) and (stat.st_dev, stat.st_ino) != (self._place.device, self._place.number)

    def _is_still(self, place: Place) -> bool:
        """Whether the open file begins as it did."""
        return _digest(self.head(place.head_bytes)) == place.head_sha256

    def _known_by(self, place: Place) -> Place:
        """The place with the digest of as much of the head as there is."""
        head = self.head(HEAD_DIGEST_BYTES)
        return replace(place, head_sha256=_digest(head), head_bytes=len(head))

    # -- after a restart

    def _resume(self, place: Place) -> None:
        found = next((path for path in self._candidates(place) if self._go_on(path, place)), None)
        if found is None:
            self.remarks.append(
                f"{self.path}: the file that was read up to byte {place.offset} is gone, with what stood behind that; "
                "going on at the beginning of the one that stands there"
            )
        elif found != self.path:
            self._older.extend(self._rotated_since(found))
            self.remarks.append(f"{self.path}: rotated while nobody watched; going on in {found}")

    def _candidates(self, place: Place) -> list[Path]:
        """Where the file may be: at the path, renamed beside it, or copied there before it was truncated."""
        renamed = []
        rotated = self._rotated()
        for path in [self.path, *rotated]:
            try:
                stat = path.stat()
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) == (place.device, place.number):
                renamed.append(path)
        return [*renamed, *(path for path in rotated if path not in renamed)]

    def _rotated(self) -> list[Path]:
        try:
            return sorted(each for each in self.path.parent.iterdir() if each.name.startswith(f"{self.path.name}."))
        except OSError:
            return []

    def _newest_first(self, paths: list[Path]) -> list[Path]:
        told = []
        for path in paths:
            with contextlib.suppress(OSError):
                told.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(told, reverse=True)]

    def _rotated_since(self, found: Path) -> list[Path]:
        """Files that were written and rotated after `found`, oldest first."""
        newer = []
        began = found.stat().st_mtime_ns
        for path in self._rotated():
            stat = path.stat()
            if path != found and stat.st_mtime_ns > began and path.suffix not in (".gz", ".zst", ".xz", ".bz2"):
                newer.append((stat.st_mtime_ns, path))
        return [path for _, path in sorted(newer)]

    def _go_on(self, path: Path, place: Place) -> bool:
        """Open the file at its place, and somewhat before it; False where it is another one by now."""
        try:
            self._file = path.open("rb", buffering=0)
        except OSError:
            return False
        if os.fstat(self._file.fileno()).st_size < place.offset or not self._is_still(place):
            self.close()
            return False
        start = max(0, place.offset - OVERLAP_BYTES)
        before = self._read_at(start, place.offset - start)
        cut = before.find(b"\n") + 1 if start else 0
        again = before[cut:] if cut or not start else b""
        lines = again.count(b"\n")
        stat = os.fstat(self._file.fileno())
        place = replace(place, device=stat.st_dev, number=stat.st_ino)
        self._place = replace(place, offset=place.offset - len(again), line=place.line - lines)
        self._again_until, self._resumed = place.offset, place
        return True


def end_of(path: Path) -> Place | None:
    """The place after the last whole line that stands in a file now; None where there is no file."""
    follower = Follower(path)
    try:
        while follower.next() is not None:
            pass
    finally:
        follower.close()
    return follower.place


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()
