"""JSON in foreign logs: lines or one document, read leniently, and the few kinds of values that every log has.

What cannot be used is a `Damaged` with one clause that is the same for all of its kind; a reader turns it into an
`Unread`.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from prefillgate.api.errors import Problem
from prefillgate.importers.base import Unread
from prefillgate.importers.source import MAX_LINE_BYTES, ImportProblem, Source, TooLong

MAX_DOCUMENT_BYTES = 512 * 1024 * 1024  # a file that is one JSON document is read whole
MAX_YAML_BYTES = 64 * 1024 * 1024
MAX_COUNT = 10**12
MAX_MILLISECONDS = 10.0**12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = (10**8, 10**11)  # 1973 to 5138; a larger number of the same years is in milli-, micro- or nanoseconds
_BLANK = b" \t\r\n"
_PRINTED = re.compile(rb'(?m)^\{\r?\n[ \t]+"')  # an object over several lines
TOO_EARLY = "JSON that ends too early"

Record = dict[str, Any]


class Damaged(ValueError):
    """A record cannot be used. The text says why in one clause, without anything out of the record."""


def records(source: Source) -> Iterator[tuple[str, Record] | Unread]:
    """Each object of JSON lines, of one JSON array, of one JSON object or of several that were printed over lines (as
    jq does and OpenTelemetry's console exporters), with its place; what is none is `Unread`.

    Raises `ImportProblem` for one document that is damaged or too large.
    """
    head = source.head().lstrip(_BLANK)
    if head.startswith(b"[") or (head.startswith(b"{") and not _is_lines(head)) or _PRINTED.search(head):
        yield from _whole(source)
    else:
        yield from json_lines(source)


def json_lines(source: Source) -> Iterator[tuple[str, Record] | Unread]:
    """Each object of JSON lines with `name:line`. Blank lines are passed over."""
    name = source.name
    for found in source.lines():
        if isinstance(found, TooLong):
            yield Unread(f"{name}:{found.number}", f"the line is longer than {MAX_LINE_BYTES} bytes")
            continue
        number, raw = found
        try:
            document = parsed(raw)
        except (ValueError, RecursionError):
            if raw and not raw.isspace():
                yield Unread(f"{name}:{number}", why_not_json(raw))
            continue
        if type(document) is dict:
            yield f"{name}:{number}", document
        else:
            yield Unread(f"{name}:{number}", "not a JSON object")


def parsed(raw: bytes) -> Any:
    """One JSON value. Raises ValueError or RecursionError.

    Most of an audit's time is parsing. What the faster parser refuses (NaN, halves of a surrogate pair, long integers)
    is left to the other, so that the two read the same.
    """
    try:
        return orjson.loads(raw)
    except ValueError:
        return json.loads(raw)


def document(source: Source) -> Any:
    """The file as one JSON value. Raises `ImportProblem` where it is none or is larger than `MAX_DOCUMENT_BYTES`."""
    return _one(source.whole(MAX_DOCUMENT_BYTES), source)


def _one(data: bytes, source: Source) -> Any:
    try:
        return parsed(data)
    except RecursionError as error:
        raise ImportProblem(Problem(source.name, "", "nested too deep")) from error
    except ValueError as error:
        where = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise ImportProblem(Problem(source.name, "", f"not one JSON document{where}", "a whole file")) from error


def yaml_document(source: Source) -> Any:
    """The file as one YAML document. Raises `ImportProblem` where it is none or is larger than `MAX_YAML_BYTES`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(source.whole(MAX_YAML_BYTES), loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ImportProblem(Problem(source.name, "", "not one YAML document", "a whole file")) from error


def why_not_json(raw: bytes) -> str:
    """Why bytes are no JSON, in the words of `Unread`."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "not UTF-8 text"
    return TOO_EARLY if text.lstrip()[:1] in "{[" and not text.rstrip().endswith("}") else "not JSON"


def _is_lines(head: bytes) -> bool:
    """Whether the first line is an object by itself, or is no end of one."""
    line, end, _ = head.partition(b"\n")
    if not end:
        return True  # one line as long as the head: a document of one line reads the same
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return len(line.rstrip()) > 1 and not line.rstrip().endswith((b"{", b"[", b","))


def _whole(source: Source) -> Iterator[tuple[str, Record] | Unread]:
    data = source.whole(MAX_DOCUMENT_BYTES)
    try:
        found = _one(data, source)
    except ImportProblem:
        several = _several(data, source.name)
        if not any(isinstance(each, tuple) for each in several):
            raise
        yield from several
        return
    for place, each in enumerate(found if isinstance(found, list) else [found]):
        where = f"{source.name}[{place}]"
        yield (where, each) if isinstance(each, dict) else Unread(where, "not a JSON object")


def _several(data: bytes, name: str) -> list[tuple[str, Record] | Unread]:
    """Objects that were printed one after the other: each begins with a line `{` and ends with a line `}`."""
    found: list[tuple[str, Record] | Unread] = []
    began, kept = 0, bytearray()
    for number, line in enumerate(io.BytesIO(data), 1):
        bare = line.rstrip()
        if bare == b"{":
            if kept:
                found.append(Unread(f"{name}:{began}", TOO_EARLY))
            began, kept = number, bytearray(line)
        elif kept:
            kept += line
            if bare == b"}":
                found.append(_object(bytes(kept), f"{name}:{began}"))
                kept = bytearray()
        elif bare:
            found.append(Unread(f"{name}:{number}", "text between JSON objects"))
    if kept:
        found.append(Unread(f"{name}:{began}", TOO_EARLY))
    return found


def _object(data: bytes, where: str) -> tuple[str, Record] | Unread:
    try:
        found = parsed(data)
    except (ValueError, RecursionError):
        return Unread(where, why_not_json(data))
    return (where, found) if isinstance(found, dict) else Unread(where, "not a JSON object")


_TOKEN = re.compile(rb'(?<!\\)"(?:[^"\\\n]|\\.)*"|[{}\[\],:]|\n(?=\{)')


def outline(head: bytes, depth: int = 3) -> frozenset[str]:
    """The keys in the head of a file as dotted paths (`choices.message`), lists left out, up to `depth` keys deep.

    The head may end anywhere. A line that begins with `{` begins anew, so damage stays in its line.
    """
    found: set[str] = set()
    path: list[str | None] = []  # an open object is its latest key, an open list None
    last = b""
    for match in _TOKEN.finditer(head):
        token = match.group()
        if token == b"\n":
            path = []
        elif token == b"{":
            path.append("")
        elif token == b"[":
            path.append(None)
        elif token in (b"}", b"]"):
            del path[-1:]
        elif token == b":" and path and path[-1] is not None and last[:1] == b'"':
            path[-1] = last[1:-1].decode("utf-8", "replace")
            keys = [key for key in path if key is not None]
            if len(keys) <= depth:
                found.add(".".join(keys))
        last = token
    return frozenset(found)


def count(owner: Mapping[str, Any], name: str) -> int | None:
    """A token count, None where absent or null. Raises `Damaged` for anything that is no count."""
    value = owner.get(name)
    if value is None:
        return None
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    if type(value) is float and value.is_integer() and 0 <= value <= MAX_COUNT:
        return int(value)
    raise Damaged(f"{name} is no count of tokens")


def milliseconds(owner: Mapping[str, Any], name: str) -> float | None:
    """A duration in milliseconds, None where absent or null. Raises `Damaged` for anything that is none."""
    value = owner.get(name)
    if value is None:
        return None
    if type(value) in (int, float) and 0 <= value <= MAX_MILLISECONDS:
        return float(value)
    raise Damaged(f"{name} is no duration")


def text(owner: Mapping[str, Any], name: str) -> str | None:
    """A text that is not empty, None for anything else: used for what only labels."""
    value = owner.get(name)
    return value if isinstance(value, str) and value else None


def moment(value: Any) -> float | None:
    """Seconds since 1970 of an ISO 8601 time (UTC where it names no offset), or of a number of seconds, milli-, micro-
    or nanoseconds by its size; None where it is none of them."""
    if type(value) is int and _SECONDS[0] <= value < _SECONDS[1]:
        return float(value)
    if isinstance(value, str):
        try:
            told = datetime.fromisoformat(value)
        except ValueError:
            return _of_number(value)
        told = told if told.tzinfo is not None else told.replace(tzinfo=UTC)
        return (told - _EPOCH) / timedelta(seconds=1)
    if type(value) not in (int, float) or not math.isfinite(value) or value < _SECONDS[0]:
        return None
    for unit in (1, 10**3, 10**6, 10**9):
        if value < _SECONDS[1] * unit:
            return float(value / unit)
    return None


def _of_number(value: str) -> float | None:
    try:
        return moment(float(value))
    except ValueError:
        return None
