"""The cell log: one JSON object a line, one line a cell, as `prefillgate cells --json` writes and `audit` reads it.

A line holds the fields of `FIELDS`, any of them null or absent meaning unknown; only `arm` must be known. Fields of
`EXTRA_FIELDS` are what a measured run knows beyond them, so that an audit of its log counts as the run did.
`DERIVED_FIELDS` are for a person with jq: they are written and never read, an audit computes them anew. Other fields
are ignored and counted.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, NamedTuple

from prefillgate.api.errors import MAX_PROBLEMS, InputError, Problem, clean, shown
from prefillgate.core import freshness
from prefillgate.core.cells import ARMS, Cell, ColdProof, Status
from prefillgate.core.journal import CellMeasured
from prefillgate.core.quality_expect import NotStrictJson, parse_json
from prefillgate.core.verdict import CellView, Verdict

MAX_LINE_BYTES = 1024 * 1024
MAX_CHARACTERS = 1024
MAX_COUNT = 10**12
MAX_REPLICATE = 10**6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799  # the years 1 to 9999, in seconds
_BOM = b"\xef\xbb\xbf"


class CellLogError(InputError):
    """A cell log cannot be read or is not one."""


class Rule(NamedTuple):
    """How a value that is not null is read. `read` raises ValueError; `allowed` says in words what it takes."""

    read: Callable[[Any], Any]
    allowed: str


def _whole(most: int) -> Rule:
    def read(value: Any) -> int:
        if type(value) not in (int, float) or value != value // 1 or not 0 <= value <= most:
            raise ValueError
        return int(value)

    return Rule(read, f"a whole number from 0 to {most}, or null")


def _text(least: int = 1) -> Rule:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not least <= len(value) <= MAX_CHARACTERS:
            raise ValueError
        return value

    return Rule(read, f"text of {least} to {MAX_CHARACTERS} characters, or null")


def _one_of(values: tuple[str, ...], made: Callable[[str], Any] = str) -> Rule:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in values:
            raise ValueError
        return made(value)

    return Rule(read, f"{', '.join(values)}{'' if values is ARMS else ', or null'}")


def _milliseconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= MAX_COUNT:
        raise ValueError
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def read_moment(value: Any) -> float:
    """Seconds since the Unix epoch of an ISO 8601 time (UTC where it names no offset) or of a number of seconds."""
    if isinstance(value, str):
        told = datetime.fromisoformat(value)
        told = told if told.tzinfo is not None else told.replace(tzinfo=UTC)
        return (told - _EPOCH) / timedelta(seconds=1)
    if type(value) not in (int, float) or not FIRST_SECOND <= value <= LAST_SECOND:
        raise ValueError
    return float(value)


def _flags(value: Any) -> tuple[tuple[str, bool | None], ...]:
    if not isinstance(value, dict) or not all(
        outcome is None or isinstance(outcome, bool) for outcome in value.values()
    ):
        raise ValueError
    return tuple(value.items())


_COUNT, _TEXT, _BOOLEAN = _whole(MAX_COUNT), _text(), Rule(_boolean, "true, false, or null")
_DURATION = Rule(_milliseconds, f"milliseconds from 0 to {MAX_COUNT}, or null")
_TIME = Rule(read_moment, "an ISO 8601 time such as 2026-11-29T08:15:00.000000Z, seconds since 1970, or null")

#: The fields of issue and README, in the order they are written.
FIELDS: Mapping[str, Rule] = {
    "arm": _one_of(ARMS),
    "case_id": _TEXT,
    "replicate": _whole(MAX_REPLICATE),
    "server_epoch": _TEXT,
    "started_at": _TIME,
    "prompt_sha256": _TEXT,
    "prompt_tokens": _COUNT,
    "cached_tokens": _COUNT,
    "processed_tokens": _COUNT,
    "output_tokens": _COUNT,
    "prefill_ms": _DURATION,
    "decode_ms": _DURATION,
    "finish_reason": _text(least=0),
    "cold_proof": _one_of(tuple(ColdProof), ColdProof),
    "request_id": _TEXT,
    "choice_index": _COUNT,
    "status": _one_of(tuple(Status), Status),
    "bad": _BOOLEAN,
}
#: What only a measured run knows. They mean what the fields of `Cell` and `CellMeasured` mean.
EXTRA_FIELDS: Mapping[str, Rule] = {
    "ended_at": _TIME,
    "counter_processed_tokens": _COUNT,
    "counter_alive": _BOOLEAN,
    "shares_blocks": _BOOLEAN,
    "shared_server": _BOOLEAN,
    "output_sha256": _TEXT,
    "flag_outcomes": Rule(_flags, "an object of true, false or null by flag name, or null"),
    "scored": _BOOLEAN,  # false: invalid, or measured and not checked yet
    "http_status": _COUNT,
    "cell_id": _COUNT,
    "purpose": _TEXT,
    "pair": _COUNT,
    "reason": _text(least=0),
}
DERIVED_FIELDS = frozenset({"class", "unit", "witness"})

_RULES = {**FIELDS, **EXTRA_FIELDS}
_OF_THE_LINE = frozenset({"scored", "http_status", "cell_id", "purpose", "pair", "reason"})  # the others are the cell's


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: the cell, and what the line tells beside it."""

    cell: Cell
    scored: bool = True
    http_status: int | None = None
    cell_id: int | None = None
    purpose: str | None = None
    pair: int | None = None
    reason: str | None = None

    @property
    def unchecked(self) -> bool:
        """Measured, and no check has read it yet: it is not counted."""
        return not self.scored and self.cell.status is not Status.INVALID


@dataclass(slots=True)
class CellLog:
    """Several files read as one log, in the order they were given. `ignored` counts lines by unknown field."""

    lines: list[LogLine] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    without_case: int = 0
    torn: list[str] = field(default_factory=list)  # places of last lines that were cut, where these are forgiven

    def read(self, file: BinaryIO, name: str) -> None:
        """Add the lines of one file. Raises `CellLogError` naming file, line, field and value of what is wrong."""
        self.lines.extend(line for _, line in self.each(file, name))

    def each(self, file: BinaryIO, name: str, forgiving: bool = False) -> Iterator[tuple[int, LogLine]]:
        """The lines of one file with their numbers, one at a time and not kept. Raises as `read`, at the end of the
        file or after `MAX_PROBLEMS`: what was given until then is not a log.

        With `forgiving` a last line that a writer left unfinished goes to `torn` and is no problem.
        """
        strict = StrictLines(self, name)
        for number, raw in _numbered(file):
            if forgiving and strict.is_torn(number, raw):
                continue
            line = strict.read(number, raw.removesuffix(b"\n").removesuffix(b"\r"))
            if line is not None:
                yield number, line
            if strict.cut:
                break
        strict.end()

    @property
    def unscored(self) -> int:
        """Lines of cells that were measured and that no check has read yet."""
        return sum(1 for line in self.lines if line.unchecked)

    def cells(self) -> list[LogLine]:
        """The lines that an audit counts: all but those that no check has read yet."""
        return [line for line in self.lines if not line.unchecked]


class StrictLines:
    """The lines of one file, one at a time, each by the rules of every field. `cut` says that the rest is left unread,
    `keys` are those of the latest line that was an object."""

    def __init__(self, log: CellLog, name: str) -> None:
        self._log, self._name = log, name
        self._found = False
        self.problems: list[Problem] = []
        self.cut = False
        self.keys: tuple[str, ...] = ()

    def read(self, number: int, raw: bytes) -> LogLine | None:
        """The line, None for one that is blank or after any problem so far. Raises `CellLogError` after `MAX_PROBLEMS`.

        `raw` is without its line end, and may be cut a byte above `MAX_LINE_BYTES`.
        """
        where = f"{self._name}:{number}"
        if len(raw) > MAX_LINE_BYTES:
            self.problems.append(Problem(where, "", "the line is too long", f"up to {MAX_LINE_BYTES} bytes"))
            self.cut = True
            return None
        if raw.isspace() or not raw:
            return None
        document = _document(raw, where, self.problems)
        self.keys = () if document is None else tuple(document)
        line = None if document is None else self._line(document, where)
        if len(self.problems) >= MAX_PROBLEMS:
            raise CellLogError(*self.problems[:MAX_PROBLEMS], more=True)
        self._found = self._found or line is not None
        return line

    def is_torn(self, number: int, raw: bytes) -> bool:
        """Whether a line, told with its line end, has none and is an object that never closes: the writer was cut off.

        It is noted in the log then.
        """
        raw = raw.removeprefix(_BOM) if number == 1 else raw
        closes = raw.count(b"{") <= raw.count(b"}")
        if closes or raw.endswith(b"\n") or not raw.startswith(b"{") or len(raw) > MAX_LINE_BYTES:
            return False
        where = f"{self._name}:{number}"
        problems: list[Problem] = []
        _document(raw, where, problems)
        if problems:
            self._log.torn.append(where)
        return bool(problems)

    def found(self) -> None:
        """Take note of a line that was read elsewhere."""
        self._found = True

    def end(self) -> None:
        """Raises `CellLogError` for every problem, or where there was no cell."""
        if self.problems:
            raise CellLogError(*self.problems)
        if not self._found:
            raise CellLogError(Problem(self._name, "", "no cell in it", "one JSON object a line, one line a cell"))

    def _line(self, document: dict[str, Any], where: str) -> LogLine | None:
        """The line of a document; None after a problem, its own or an earlier one."""
        values: dict[str, Any] = {}
        for name, value in document.items():
            rule = _RULES.get(name)
            if rule is None:
                if name not in DERIVED_FIELDS:
                    self._log.ignored[name] += 1
            elif value is not None:
                try:
                    values[name] = rule.read(value)
                except (ValueError, OverflowError):
                    self.problems.append(Problem(where, name, shown(value), rule.allowed))
        if document.get("arm") is None:
            self.problems.append(Problem(where, "arm", "unknown", FIELDS["arm"].allowed))
        if self.problems:
            return None
        if "case_id" not in values:
            # A prompt known by its digest is known. Any other stands for itself: nothing is merged on a guess.
            values["case_id"] = values.get("prompt_sha256", f"unknown case of {where}")
            self._log.without_case += 1
        beside = {name: values.pop(name) for name in _OF_THE_LINE & values.keys()}
        return LogLine(Cell(**values), **beside)


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1 and line ends, cut a byte above the longest allowed; a first BOM dropped."""
    number = 0
    while raw := file.readline(MAX_LINE_BYTES + 2):
        number += 1
        yield number, raw.removeprefix(_BOM) if number == 1 else raw


def _document(raw: bytes, where: str, problems: list[Problem]) -> dict[str, Any] | None:
    """The object of a line, or None after a problem was noted."""
    found: Any = None
    try:
        found = parse_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        what = f"invalid UTF-8 at byte {error.start + 1} of the line (0x{raw[error.start]:02x})"
        problems.append(Problem(where, "", what, "UTF-8 text"))
    except NotStrictJson as error:
        problems.append(Problem(where, "", f"not JSON: {clean(str(error))}", "one JSON object a line"))
    else:
        if isinstance(found, dict):
            return found
        problems.append(Problem(where, "", f"not a JSON object: {shown(found)}", "one JSON object a line"))
    return None


def line_of(view: CellView, event: CellMeasured) -> dict[str, Any]:
    """The line of a cell of a store: every field, null where unknown. `view` and `event` are of the same cell."""
    cell = view.cell
    values: dict[str, Any] = {name: getattr(cell, name) for name in _RULES if name not in _OF_THE_LINE}
    values["started_at"], values["ended_at"] = iso_time(cell.started_at), iso_time(cell.ended_at)
    values["flag_outcomes"] = dict(cell.flag_outcomes) or None
    return {
        **values,
        "bad": view.bad,
        "scored": view.cell_class is not None,
        "http_status": event.http_status,
        "cell_id": view.cell_id,
        "purpose": view.purpose.value,
        "pair": view.pair,
        "reason": view.reason,
        "class": None if view.cell_class is None else view.cell_class.value,
        "unit": view.unit,
        "witness": view.witness or None,
    }


def cell_lines(verdict: Verdict, measured: Mapping[int, CellMeasured]) -> Iterator[dict[str, Any]]:
    """The lines of a store's cells in time order; `measured` are its cells by id."""
    return (line_of(view, measured[view.cell_id]) for view in in_time_order(verdict.cells))


def in_time_order(views: Sequence[CellView]) -> list[CellView]:
    """Views in the order their cells started, as the core orders them."""
    by_cell = {id(view.cell): view for view in views}
    return [by_cell[id(cell)] for cell in freshness.in_time_order([view.cell for view in views])]


def write_line(line: Mapping[str, Any]) -> str:
    """A line as ASCII JSON without its line end: no text of a model or a server can steer a terminal with it."""
    return json.dumps(line, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def iso_time(moment: float | None) -> str | float | None:
    """ISO 8601 in UTC with microseconds; outside the years 1 to 9999 the number of seconds itself."""
    if moment is None or not math.isfinite(moment):
        return None
    try:
        told = _EPOCH + timedelta(microseconds=round(moment * 1_000_000))
    except OverflowError:
        return moment
    return told.isoformat(timespec="microseconds").replace("+00:00", "Z")
