"""One input of an importer: a file, a compressed one or a pipe, read once from its start, with a look at its head."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from typing import Any, BinaryIO, cast

from prefillgate.api.errors import InputError, Problem

HEAD_BYTES = 64 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_DAMAGE = (OSError, EOFError, zlib.error)


class ImportProblem(InputError):
    """A foreign log cannot be read, or nothing recognises it."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line above `MAX_LINE_BYTES`, passed over."""

    number: int


class _Begun(RawIOBase):
    """A stream whose first bytes were taken already, whole again."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = memoryview(head)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._head:
            return self._fill(buffer, self._rest.read(len(buffer)))
        data = self._head[: len(buffer)]
        self._head = self._head[len(data) :] or memoryview(b"")  # the last piece lets go of the whole
        return self._fill(buffer, data)

    @staticmethod
    def _fill(buffer: Any, data: bytes | memoryview) -> int:
        buffer[: len(data)] = data
        return len(data)


class Source:
    """A named stream of bytes. Gzip is undone by its first two bytes, whatever the file is called."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Reads the head. Raises `ImportProblem` where not even that can be read."""
        self.name = name
        try:
            head = file.read(HEAD_BYTES)
            if head.startswith(_GZIP):
                file = cast("BinaryIO", gzip.GzipFile(fileobj=BufferedReader(_Begun(head, file))))
                head = file.read(HEAD_BYTES)
        except _DAMAGE as error:
            raise self._broken(error) from error
        self._head = head.removeprefix(_BOM)
        self._file = BufferedReader(_Begun(head, file), HEAD_BYTES)

    def head(self) -> bytes:
        """The first bytes, up to `HEAD_BYTES`, without a byte order mark. They stay in the stream."""
        return self._head

    def file(self) -> BinaryIO:
        """The bytes from the start, uncompressed, for a reader of its own; damage is its to catch."""
        return cast("BinaryIO", self._file)

    def longer_than(self, size: int) -> bool:
        """Whether more bytes than these are left. They stay in the stream. Raises `ImportProblem`."""
        try:
            data = self._file.read(size + 1)
        except _DAMAGE as error:
            raise self._broken(error) from error
        self._file = BufferedReader(_Begun(data, cast("BinaryIO", self._file)), HEAD_BYTES)
        return len(data) > size

    def lines(self) -> Iterator[tuple[int, bytes] | TooLong]:
        """Lines with their numbers from 1, without line ends. Raises `ImportProblem` for a damaged stream."""
        number = 0
        while raw := self._readline():
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = self._readline()
                yield TooLong(number)
                continue
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
            yield number, raw.removeprefix(_BOM) if number == 1 else raw

    def whole(self, limit: int) -> bytes:
        """All of it, for formats that are one document. Raises `ImportProblem` above `limit` bytes."""
        try:
            data = self._file.read(limit + 1)
        except _DAMAGE as error:
            raise self._broken(error) from error
        if len(data) > limit:
            raise ImportProblem(Problem(self.name, "", "the file is too large", f"up to {limit} bytes"))
        return data.removeprefix(_BOM)

    def _readline(self) -> bytes:
        try:
            return self._file.readline(MAX_LINE_BYTES + 1)
        except _DAMAGE as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ImportProblem:
        return ImportProblem(Problem(self.name, "", f"cannot be read to its end: {error}"))
