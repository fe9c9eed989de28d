"""A CSV file with a header: one request a row, columns named as the fields of a cell log or mapped to them.

`--column prompt_tokens=in_tok` reads a field from a column of another name. Beside the fields of a cell log there are
`prompt` and `output` (texts), `label`, `http_status`, `time_to_first_token_ms`, `ended_at` and `output_sha256`. The
delimiter is the one of comma, semicolon, tab and bar that cuts the header into most names. An empty cell is unknown.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.cell_log import FIELDS, LogLine
from prefillgate.api.errors import Problem, shown
from prefillgate.api.replay_set import COMPLETIONS
from prefillgate.core.cells import Cell
from prefillgate.core.journal import Texts
from prefillgate.importers.base import UNKNOWN_ARM, Asked, Found, Imported, Unread
from prefillgate.importers.records import Damaged, moment
from prefillgate.importers.replies import known_prompt
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, Seen
from prefillgate.importers.source import MAX_LINE_BYTES, ImportProblem, Source, TooLong

DELIMITERS = (",", ";", "\t", "|")
UNKNOWN = frozenset({"", "null", "none", "na", "n/a", "nan", "-"})
FLAGS = {
    PROMPTS: "a column of prompts: --column prompt=NAME",
    LENGTHS: "a column of prompt lengths: --column prompt_tokens=NAME",
    CACHED: "a column of cached tokens: --column cached_tokens=NAME",
}
_TRUE, _FALSE = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})
_HEADER = re.compile(r"[^\W\d][\w .\-/()%]{0,63}")
_BESIDE = ("prompt", "output", "label", "http_status", "time_to_first_token_ms", "ended_at", "output_sha256")
_TIMES = frozenset({"started_at", "ended_at"})
_NUMBERS = frozenset(
    {"replicate", "prompt_tokens", "cached_tokens", "processed_tokens", "output_tokens", "prefill_ms", "decode_ms"}
    | {"choice_index", "http_status", "time_to_first_token_ms"}
)
_RULES = {
    **FIELDS,
    "http_status": FIELDS["choice_index"],
    "time_to_first_token_ms": FIELDS["prefill_ms"],
    "output_sha256": FIELDS["prompt_sha256"],
}
_Row = dict[str, Any]


@dataclass(slots=True)
class CsvTable:
    """The format `csv`. `columns` names columns by field."""

    name: str = "csv"
    title: str = "CSV with a header"
    columns: Mapping[str, str] = field(default_factory=dict)

    def recognise(self, head: bytes) -> bool:
        """A first line of several names, and a second of as many cells."""
        lines = head.decode("utf-8", "replace").splitlines()[:2]
        if not lines or lines[0].lstrip()[:1] in ("{", "["):
            return False
        cut = delimiter_of(lines[0])
        names = _cells_of(lines[0], cut)
        named = len(names) > 1 and len(set(names)) == len(names) and all(_HEADER.fullmatch(name) for name in names)
        return named and (len(lines) == 1 or '"' in lines[1] or len(_cells_of(lines[1], cut)) == len(names))

    def with_columns(self, columns: Mapping[str, str]) -> CsvTable:
        """The format with names of columns by field. Raises `ImportProblem` for an unknown field."""
        unknown = [name for name in columns if name not in column_fields()]
        if unknown:
            what = f"{', '.join(map(shown, unknown))}: no fields"
            raise ImportProblem(Problem("", "--column", what, ", ".join(column_fields())))
        return CsvTable(columns=columns)

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each row. Raises `ImportProblem` where the header does not fit what was asked."""
        csv.field_size_limit(MAX_LINE_BYTES)
        rows = _Rows(source)
        cut = delimiter_of(source.head().partition(b"\n")[0].decode("utf-8", "replace"))
        reader = csv.reader(rows.texts(), delimiter=cut)
        header = next(_tried(reader, rows), None)
        if not isinstance(header, list):
            raise ImportProblem(Problem(source.name, "", "the first line is no header", "names of columns"))
        rows.began = rows.number + 1
        places = self._places([name.strip() for name in header], source.name)
        left = [name for at, name in enumerate(header) if at not in places.values()]
        if left:
            named = ", ".join(left[:20])[:400]
            yield Unread(f"{source.name}:1", f"columns not read: {named} (--column FIELD=NAME reads one)")
        seen = Seen()
        for row in _tried(reader, rows):
            yield from rows.damage()
            where = f"{source.name}:{rows.began}"
            if isinstance(row, Unread):
                yield row
            elif row:
                found = _request(row, where, places, len(header))
                if isinstance(found, Imported):
                    seen.add(found)
                yield found
            rows.began = rows.number + 1
        yield from rows.damage()
        yield from seen.absent(FLAGS)

    def _places(self, header: list[str], name: str) -> dict[str, int]:
        """The position of each field that is read."""
        twice = next((each for each in header if header.count(each) > 1), None)
        if twice is not None:
            raise ImportProblem(
                Problem(f"{name}:1", "", f"two columns are called {shown(twice)}", "names of their own")
            )
        missing = [f"{each}: there is no column {shown(at)}" for each, at in self.columns.items() if at not in header]
        if missing:
            allowed = ", ".join(map(shown, header[:50]))
            raise ImportProblem(*(Problem(f"{name}:1", "--column", what, allowed) for what in missing))
        places = {each: header.index(column) for each, column in self.columns.items()}
        taken = set(places.values())
        for at, column in enumerate(header):
            if column in column_fields() and column not in places and at not in taken:
                places[column] = at
        if not places:
            what = "no column is called like a field, and --column names none"
            raise ImportProblem(Problem(f"{name}:1", "", what, ", ".join(column_fields())))
        return places


def delimiter_of(header: str) -> str:
    """The delimiter that cuts a header into most names."""
    return max(DELIMITERS, key=lambda each: len(_cells_of(header, each)))


@dataclass(slots=True)
class _Rows:
    """The lines of a source for a CSV reader, with the number of the line that it took last."""

    source: Source
    number: int = 0
    began: int = 1
    _damage: list[Unread] = field(default_factory=list)

    def texts(self) -> Iterator[str]:
        for line in self.source.lines():
            if isinstance(line, TooLong):
                where = f"{self.source.name}:{line.number}"
                self._damage.append(Unread(where, f"the line is longer than {MAX_LINE_BYTES} bytes"))
                continue
            self.number, raw = line
            try:
                yield raw.decode("utf-8") + "\n"
            except UnicodeDecodeError:
                self._damage.append(Unread(f"{self.source.name}:{self.number}", "not UTF-8 text"))

    def damage(self) -> Iterator[Unread]:
        """What was passed over since the last look."""
        while self._damage:
            yield self._damage.pop(0)


def _tried(reader: Iterator[list[str]], rows: _Rows) -> Iterator[list[str] | Unread]:
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield Unread(f"{rows.source.name}:{rows.number}", "no row of CSV")


def _request(row: list[str], where: str, places: Mapping[str, int], width: int) -> Found:
    if len(row) != width:
        return Unread(where, "more or fewer cells than the header has names")
    told: _Row = {}
    try:
        for name, at in places.items():
            value = row[at]
            if value.strip().lower() not in UNKNOWN:
                told[name] = _value(name, value)
        return _imported(told, where)
    except Damaged as damage:
        return Unread(where, str(damage))


def _value(name: str, value: str) -> Any:
    if name in ("prompt", "output", "label"):
        return value
    value = value.strip()
    if name in _TIMES:
        found: Any = moment(value)
    elif name == "bad":
        found = True if value.lower() in _TRUE else False if value.lower() in _FALSE else value
    elif name in _NUMBERS:
        found = _number(value)
    else:
        found = value
    rule = FIELDS["started_at"] if name in _TIMES else _RULES[name]
    try:
        if found is None:
            raise ValueError
        return rule.read(found)
    except (ValueError, OverflowError) as error:
        raise Damaged(f"{name} is not {rule.allowed.removesuffix(', or null')}") from error


def _number(value: str) -> int | float | None:
    made: tuple[Callable[[str], int | float], ...] = (int, float)
    for each in made:
        try:
            return each(value)
        except ValueError:
            continue
    return None


def _imported(told: _Row, where: str) -> Imported:
    asked = Asked(COMPLETIONS, {"prompt": told["prompt"]}) if "prompt" in told else None
    known = known_prompt(asked, told.get("prompt_sha256"), where)
    values = {name: told[name] for name in (*FIELDS, "ended_at", "output_sha256") if name in told}
    cell = Cell(**{"arm": UNKNOWN_ARM, **known, **values})
    return Imported(
        LogLine(cell, http_status=told.get("http_status")),
        where,
        arm_told="arm" in told,
        label=told.get("label"),
        texts=Texts(content=told["output"]) if "output" in told else None,
        asked=asked,
        time_to_first_token_ms=told.get("time_to_first_token_ms"),
    )


def _cells_of(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


def column_fields() -> tuple[str, ...]:
    """Every field that a column can be, as `--column` takes it."""
    return (*FIELDS, *_BESIDE)


def named_rows(source: Source) -> Iterator[tuple[str, dict[str, str]] | Unread]:
    """Each row of a CSV file by the names of its header, with its place; a cell may hold several lines."""
    csv.field_size_limit(MAX_LINE_BYTES)
    rows = _Rows(source)
    reader = csv.reader(rows.texts())
    header = next(_tried(reader, rows), None)
    rows.began = rows.number + 1
    for row in _tried(reader, rows):
        yield from rows.damage()
        where = f"{source.name}:{rows.began}"
        rows.began = rows.number + 1
        if isinstance(row, Unread):
            yield row
        elif not isinstance(header, list) or (row and len(row) != len(header)):
            yield Unread(where, "more or fewer cells than the header has names")
        elif row:
            yield where, dict(zip(header, row, strict=True))
    yield from rows.damage()
