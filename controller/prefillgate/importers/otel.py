"""OpenTelemetry GenAI traces: OTLP as JSON (lines of the collector's file exporter, or one document), or spans and log
records as plain objects, one a line or as Python's console exporters print them.

A span of a model call is a request; those of vLLM itself are read too. Names are those of the GenAI conventions and the
older ones that instrumentations still write. Content is there only where its capture was on: on the span, in its
events, or in log records (`gen_ai.client.inference.operation.details`; in older ones one for each message), which are
joined to the spans given with them.
`gen_ai.usage.input_tokens` includes what was cached, by convention; where fewer are told than were cached, the length
of the prompt is unknown. The label is the model that was asked. Nothing here judges an output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.importers.base import Found, Imported, Prompted, Unread
from prefillgate.importers.otel_events import CAPTURE, MessageEvents, is_message
from prefillgate.importers.otel_values import attributes, output_of, parsed, request_of, with_events
from prefillgate.importers.records import Damaged, Record, count, moment, outline, records, text
from prefillgate.importers.replies import TokenCounts
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, TEXTS, Seen
from prefillgate.importers.source import ImportProblem, Source
from prefillgate.importers.told import Told, cached_within, duration_ms, prompt_length

DETAILS = "gen_ai.client.inference.operation.details"
NO_CALL = "a span of no model call"
NO_EVENT = "a log record of no model call"
_JAVASCRIPT = re.compile(rb"(?m)^\s+(?:traceId|instrumentationScope): ['{]")
_FLAGS = {
    PROMPTS: CAPTURE,
    TEXTS: CAPTURE,
    CACHED: "an instrumentation that writes gen_ai.usage.cache_read.input_tokens, and a server that reports it",
    LENGTHS: "a server that reports `usage`, in streams too",
}
_CALLS = frozenset({"chat", "text_completion", "generate_content", "completion"})
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
_CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
_TOTAL = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens")
_FIRST_TOKEN = ("gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token")
_MODEL = ("gen_ai.request.model", "gen_ai.response.model", "llm.request.model")


def begins_with_events(head: bytes) -> bool:
    """Whether a file begins with log records, whose messages spans of another file may name."""
    keys = outline(head)
    return "resourceLogs" in keys or keys >= {"event_name", "body"}


class OpenTelemetry:
    """The format `otel`."""

    name = "otel"
    title = "OpenTelemetry GenAI traces (OTLP JSON)"

    def recognise(self, head: bytes) -> bool:
        """OTLP's resource spans or logs; or plain spans with attributes of the GenAI conventions."""
        keys = outline(head)
        if {"resourceSpans", "resourceLogs"} & keys or _is_inspected(head):
            return True
        return "attributes" in keys and any(key.startswith(("attributes.gen_ai.", "attributes.llm.")) for key in keys)

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each span of a model call, a `Prompted` for each log record with its messages."""
        if _is_inspected(source.head()):
            what = "what JavaScript's ConsoleSpanExporter prints is no JSON"
            raise ImportProblem(Problem(source.name, "", what, "OTLP JSON, as the collector's file exporter writes it"))
        seen = Seen()
        events = MessageEvents()
        for found in records(source):
            if isinstance(found, Unread):
                yield found
                continue
            for where, entry, log in _entries(*found):
                each = _told(entry, where, log, events)
                if isinstance(each, Imported):
                    seen.add(each)
                if each is not None:
                    yield each
        yield from events.left()
        yield from seen.absent(_FLAGS)


def _is_inspected(head: bytes) -> bool:
    return b"gen_ai." in head and _JAVASCRIPT.search(head) is not None


def _entries(where: str, record: Record) -> Iterator[tuple[str, Any, bool]]:
    """Everything in one export request, or one plain span or log record: its place, itself, whether it is a record."""
    if "resourceSpans" not in record and "resourceLogs" not in record:
        yield where, record, "body" in record and "event_name" in record
        return
    for resource, scope, kind in (
        ("resourceSpans", "scopeSpans", "spans"),
        ("resourceLogs", "scopeLogs", "logRecords"),
    ):
        for place, entry in enumerate(_inside(record, resource, scope, kind)):
            yield f"{where}: {kind}[{place}]", entry, kind == "logRecords"


def _inside(record: Record, *names: str) -> Iterator[Any]:
    """The entries under lists of lists of lists; what is no list or no object stands for itself, to be named."""
    level: list[Any] = [record]
    for name in names:
        below: list[Any] = []
        for owner in level:
            found = owner.get(name) if isinstance(owner, dict) else None
            if isinstance(found, list):
                below.extend(found)
            elif found is not None or not isinstance(owner, dict):
                below.append(None)
        level = below
    yield from level


def _told(entry: Any, where: str, log: bool, events: MessageEvents) -> Found | None:
    """What an entry tells; None for an event that waits for its span."""
    if not isinstance(entry, dict):
        return Unread(where, "an entry that is no object")
    try:
        return _event(entry, where, events) if log else _span(entry, where, events)
    except Damaged as damage:
        return Unread(where, str(damage))


def _event(record: Record, where: str, events: MessageEvents) -> Found | None:
    attrs = attributes(record)
    named = text(record, "eventName") or text(record, "event_name") or text(attrs, "event.name")
    if named is not None and is_message(named):
        events.take(record, named, _called(record), where)
        return None
    if named != DETAILS:
        return Unread(where, NO_EVENT)
    asked = request_of(attrs)
    if asked is None:
        return Unread(where, "an event of a model call without its messages")
    return Prompted(asked, where, _called(record), texts=output_of(attrs))


def _called(entry: Record) -> str | None:
    """What a span is called in every file: its trace and its own id."""
    context = entry.get("context")
    owner = context if isinstance(context, dict) else entry
    trace = text(owner, "traceId") or text(owner, "trace_id")
    span = text(owner, "spanId") or text(owner, "span_id")
    return f"{trace}/{span}"[:256] if trace and span else None


def _span(span: Record, where: str, events: MessageEvents) -> Found:
    attrs = with_events(span)
    asked, texts = events.of(_called(span))
    if not _is_call(attrs):
        return Unread(where, NO_CALL)
    prefill, decode = (duration_ms(attrs.get(f"gen_ai.latency.time_in_model_{name}")) for name in ("prefill", "decode"))
    waits = [duration_ms(attrs.get(name)) for name in _FIRST_TOKEN]
    counts = _counts(attrs)
    finishes = parsed(attrs.get("gen_ai.response.finish_reasons"))
    finish = finishes[0] if isinstance(finishes, list) and finishes else finishes
    return Told(
        where,
        asked=request_of(attrs) or asked,
        custom_id=_called(span),
        label=next((found for name in _MODEL if (found := text(attrs, name)) is not None), None),
        texts=output_of(attrs) or texts,
        counts=TokenCounts(counts.prompt, counts.cached, None, counts.output, prefill, decode),
        started_at=_moment(span, "startTimeUnixNano", "start_time", "startTime"),
        ended_at=_moment(span, "endTimeUnixNano", "end_time", "endTime"),
        time_to_first_token_ms=next((ms for ms in waits if ms is not None), None),
        request_id=text(attrs, "gen_ai.response.id") or text(attrs, "gen_ai.request.id"),
        finish_reason=finish if isinstance(finish, str) and finish else None,
        failure=_failure(span, attrs),
    ).imported()


def _is_call(attrs: Mapping[str, Any]) -> bool:
    operation = attrs.get("gen_ai.operation.name", attrs.get("llm.request.type"))
    if operation is not None:
        return operation in _CALLS if isinstance(operation, str) else False
    told = any(name in attrs for name in (*_INPUT, *_OUTPUT))
    return told and (any(name in attrs for name in _MODEL) or "gen_ai.request.id" in attrs)


def _counts(attrs: Mapping[str, Any]) -> TokenCounts:
    told, output, cached, total = (_first(attrs, names) for names in (_INPUT, _OUTPUT, _CACHED, _TOTAL))
    if total:
        prompt = prompt_length({"input": told, "output": output, "total": total, "cached": cached})
    else:
        prompt = None if told is not None and cached is not None and cached > told else told
    return TokenCounts(prompt=prompt or None, cached=cached_within(cached, prompt), output=output)


def _first(attrs: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these counts that is told; some instrumentations write numbers as text."""
    for name in names:
        value = attrs.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 16:
            value = int(value)
        if value is not None:
            return count({"a usage attribute": value}, "a usage attribute")
    return None


def _moment(span: Record, *names: str) -> float | None:
    for name in names:
        value = span.get(name)
        if isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value):
            value = value[0] + value[1] / 1e9  # seconds and nanoseconds, as JavaScript writes them
        found = moment(value)
        if found is not None:
            return found
    return None


def _failure(span: Record, attrs: Mapping[str, Any]) -> str | None:
    status = span.get("status")
    status = status if isinstance(status, dict) else {}
    code = status.get("code", status.get("status_code"))
    if code in (2, "STATUS_CODE_ERROR", "ERROR") or attrs.get("error.type"):
        return text(status, "message") or text(status, "description") or text(attrs, "error.type") or "an error"
    return None
