"""Lines of a bundle: one JSON object each, canonical, ASCII, so that the same value is always the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefillgate.api.errors import clean, shown
from prefillgate.core.quality_expect import NotStrictJson, parse_json

MAX_LINE_BYTES = 256 * 1024 * 1024


class BadLine(ValueError):
    """A line is not what a bundle holds. `file` and `number` (from 1) say where."""

    def __init__(self, file: str, number: int, what: str) -> None:
        self.file = file
        self.number = number
        self.what = what
        super().__init__(f"{file}:{number}: {what}")


def as_line(value: dict[str, Any]) -> bytes:
    """A line with its end: sorted keys, no spaces, nothing that could steer a terminal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f").encode() + b"\n"


def payload_of(event: dict[str, Any]) -> bytes:
    """The canonical bytes of an event, as `prefillgate.evidence.codec` writes them."""
    text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line, its end included. Raises `BadLine` for one no bundle holds."""
    name, number = path.name, 0
    with path.open("rb") as file:
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise BadLine(name, number, f"the line is longer than {MAX_LINE_BYTES} bytes")
            if raw.endswith(b"\r\n"):
                raise BadLine(name, number, "the line ends in CR LF: the file was converted, by git on Windows perhaps")
            if not raw.endswith(b"\n"):
                raise BadLine(name, number, "the file is cut off inside this line")
            yield number, raw


def document(raw: bytes, name: str, number: int) -> dict[str, Any]:
    """The object of a line. Raises `BadLine` for anything but strict JSON."""
    try:
        found = parse_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadLine(name, number, f"not UTF-8 at byte {error.start + 1} of the line") from error
    except NotStrictJson as error:
        raise BadLine(name, number, f"not JSON: {clean(str(error))}") from error
    if not isinstance(found, dict):
        raise BadLine(name, number, f"not a JSON object: {shown(found)}")
    return found


def canonical_document(raw: bytes, name: str, number: int) -> dict[str, Any]:
    """The object of a line that `as_line` wrote. Raises `BadLine` where it would have written other bytes."""
    found = document(raw, name, number)
    try:
        same = as_line(found) == raw
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise BadLine(name, number, "the same JSON, written in another way than a bundle writes it")
    return found
