"""Langfuse exports of observations: JSON, JSON lines or CSV, of the interface, of blob storage or of its API.

A GENERATION is a request, anything else is none. Names are those of the interface (`usageDetails`) or of blob storage
(`usage_details`). Langfuse takes cached tokens out of `input`; other sources of usage leave them in: the total tells
which. The label is the model. Scores stand in an export of their own, so `bad` stays unknown.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.core.journal import Texts
from prefillgate.importers.base import Asked, Found, Imported, Unread
from prefillgate.importers.csv_table import named_rows
from prefillgate.importers.records import Damaged, Record, count, moment, outline, records, text
from prefillgate.importers.replies import TokenCounts, asked_of
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, TEXTS, Seen
from prefillgate.importers.source import Source
from prefillgate.importers.told import Told, as_json, asked_text, between_ms, cached_within, duration_ms, prompt_length

NO_GENERATION = "an observation that is no generation"
_FLAGS = {
    PROMPTS: "an export with the field group `io`, of traces whose input was not masked",
    TEXTS: "an export with the field group `io`, of traces whose output was not masked",
    CACHED: "usage details with cached tokens, of a server that reports them",
    LENGTHS: "usage details of a server that reports `usage`",
}
_CACHED = ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read", "input_cache_read_tokens")
_WRITTEN = ("cache_creation_input_tokens", "input_cache_creation", "input_cache_write_tokens")
_SETTINGS = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed")
_OURS = {"usageDetails", "providedModelName", "completionStartTime", "promptTokens", "inputUsage"}
_TOLD = {"type", "id"}


class LangfuseExport:
    """The format `langfuse`."""

    name = "langfuse"
    title = "Langfuse exports of observations"

    def recognise(self, head: bytes) -> bool:
        """Objects or columns with a type, a trace and what only an observation has."""
        if head.lstrip()[:1] in (b"{", b"["):
            keys = {key.removeprefix("data.") for key in outline(head)}
        else:
            first = head.partition(b"\n")[0].decode("utf-8", "replace")
            try:
                keys = set(next(csv.reader([first]), []))
            except csv.Error:
                return False
        names = {_camel(key) for key in keys}
        return names >= _TOLD | {"traceId", "startTime"} and bool(names & _OURS)

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each generation."""
        seen = Seen()
        yield from seen.tell(_rows(source), _observation)
        yield from seen.absent(_FLAGS)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _rows(source: Source) -> Iterator[tuple[str, Record] | Unread]:
    """Observations with their names as the interface writes them, whatever the file is."""
    if source.head().lstrip()[:1] not in (b"{", b"["):
        for row in named_rows(source):
            yield row if isinstance(row, Unread) else (row[0], _named({key: _cell(row[1][key]) for key in row[1]}))
        return
    for found in records(source):
        if isinstance(found, Unread):
            yield found
            continue
        where, record = found
        if "type" in record or not isinstance(record.get("data"), list):
            yield where, _named(record)
            continue
        for place, each in enumerate(record["data"]):
            at = f"{source.name}: data[{place}]"
            yield (at, _named(each)) if isinstance(each, dict) else Unread(at, "not a JSON object")


def _named(record: Mapping[str, Any]) -> Record:
    return {_camel(key): value for key, value in record.items()}


def _cell(value: str) -> Any:
    """What a cell of the CSV holds: JSON where it is some, a text else, None where it is empty."""
    if not value or value == "null":
        return None
    if value[0] in '{["-0123456789':
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _observation(row: Record, where: str) -> Iterator[Imported | Unread]:
    kind = row.get("type")
    if not isinstance(kind, str):
        raise Damaged("no type: no observation of Langfuse")
    if kind.upper() != "GENERATION":
        yield Unread(where, NO_GENERATION)
        return
    started = moment(row.get("startTime"))
    waited = between_ms(started, moment(row.get("completionStartTime")))
    if waited is None:
        waited = duration_ms(row.get("timeToFirstToken"))
    failed = row.get("level") == "ERROR"
    yield Told(
        where,
        asked=_asked(_parsed(row.get("input")), _parsed(row.get("modelParameters"))),
        label=text(row, "model") or text(row, "providedModelName"),
        texts=_texts(_parsed(row.get("output"))),
        counts=_counts(row),
        started_at=started,
        ended_at=moment(row.get("endTime")),
        time_to_first_token_ms=waited,
        request_id=text(row, "id"),
        failure=(text(row, "statusMessage") or "an error") if failed else None,
    ).imported()


def _parsed(value: Any) -> Any:
    """JSON kept as text (blob storage does so), else the value itself."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _asked(told: Any, settings: Any) -> Asked | None:
    more = {}
    if isinstance(settings, dict):
        more = {name: settings[name] for name in _SETTINGS if type(settings.get(name)) in (int, float)}
    if isinstance(told, dict):
        asked = asked_of(told)
        return None if asked is None else Asked(asked.path, {**more, **asked.body})
    return asked_text(told, more=more) if told else None


def _texts(told: Any) -> Texts | None:
    if isinstance(told, dict) and "content" in told:
        content, calls = told.get("content"), told.get("tool_calls")
        if isinstance(content, str) or calls:
            said = content if isinstance(content, str) else ""
            return Texts(said, tool_calls=as_json(calls) if calls else "")
        return None
    if isinstance(told, str):
        return Texts(told)
    return None if told is None else Texts(as_json(told))


def _counts(row: Record) -> TokenCounts:
    usage = _parsed(row.get("usageDetails"))
    if usage is None or usage == {}:
        return _older_counts(row)
    if not isinstance(usage, dict):
        raise Damaged("usageDetails is no object")
    known = {name: count(usage, name) for name in usage}
    outputs = sum(value or 0 for name, value in known.items() if name.startswith("output"))
    inputs = {name: value or 0 for name, value in known.items() if name.startswith("input") and name != "input"}
    cached = next((known[name] for name in _CACHED if known.get(name) is not None), None)
    beside = sum(value for name, value in inputs.items() if name not in _CACHED)
    written = beside + sum(known.get(name) or 0 for name in _WRITTEN if name not in inputs)
    parts = {"input": known.get("input"), "total": known.get("total"), "cached": cached, "written": written}
    prompt = None
    for output in (outputs, known.get("output")):
        prompt = prompt_length({**parts, "output": output}) if prompt is None else prompt
    prompt = prompt or None
    return TokenCounts(prompt=prompt, cached=cached_within(cached, prompt), output=outputs or None)


def _older_counts(row: Record) -> TokenCounts:
    """Counts of exports without usage details: sums, with no word of a cache."""
    usage = _parsed(row.get("usage"))
    usage = usage if isinstance(usage, dict) else {}
    prompt = count(usage, "input") or count(row, "inputUsage") or count(row, "promptTokens")
    output = count(usage, "output") or count(row, "outputUsage") or count(row, "completionTokens")
    return TokenCounts(prompt=prompt or None, output=output or None)
