"""Server-sent events out of bytes.

Lines end at CR, LF or CR LF and nowhere else: JSON may hold U+2028, U+2029 and U+0085 unescaped, and readers
that split text at them (`str.splitlines`, httpx's `aiter_lines`) tear such an event apart. Pure and incremental:
chunks may end anywhere, in a CR LF or inside a character too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024


class SseLimitError(ValueError):
    """One event grew beyond the limit."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event: its data (lines joined by LF) and its name, "message" when it has none."""

    data: str
    event: str = "message"


class SseParser:
    """Feed chunks, get the events that are complete. `limit_bytes` bounds a line and the data of one event.

    After the input, `replaced` tells whether bytes that are not UTF-8 were replaced by U+FFFD.
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.replaced = False
        self._parts: list[bytes] = []  # a line not ended yet, in pieces: joining at each chunk would be quadratic
        self._pending = 0
        self._after_cr = False
        self._first_line = True
        self._data: list[str] = []
        self._data_size = 0
        self._event = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events completed by `chunk`. Raises `SseLimitError`."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\n" not in chunk and b"\r" not in chunk:
            self._keep(chunk)
            return []
        self._after_cr = chunk.endswith(b"\r")
        if self._parts:
            chunk = b"".join([*self._parts, chunk])
        self._parts, self._pending = [], 0
        lines = chunk.split(b"\n") if b"\r" not in chunk else _LINE_END.split(chunk)
        self._keep(lines.pop())
        events = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                events.append(event)
        return events

    def close(self) -> list[SseEvent]:
        """What the end of the input completes. A last event without its blank line counts: some servers forget it."""
        rest, self._parts, self._pending = b"".join(self._parts), [], 0
        events = [self._line(rest) if rest else None, self._line(b"")]
        return [event for event in events if event is not None]

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pending += len(piece)
            self._check(self._pending)
            self._parts.append(piece)

    def _check(self, size: int) -> None:
        if size > self.limit_bytes:
            raise SseLimitError(f"an event of more than {self.limit_bytes} bytes")

    def _line(self, line: bytes) -> SseEvent | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, colon, value = line.partition(b":")
        if colon and value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._event = self._text(value)
        elif name == b"error":
            # Older llama.cpp sends a failure as a line of its own: "error: {...}".
            self._event = "error"
            self._add(value)
        return None

    def _add(self, value: bytes) -> None:
        self._data_size += len(value)
        self._check(self._data_size)
        self._data.append(self._text(value))

    def _text(self, value: bytes) -> str:
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            self.replaced = True
            return value.decode("utf-8", "replace")

    def _dispatch(self) -> SseEvent | None:
        data, event = self._data, self._event
        self._data, self._data_size, self._event = [], 0, ""
        if not data:
            return None
        return SseEvent("\n".join(data), event or "message")
