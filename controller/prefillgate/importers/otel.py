"""OpenTelemetry GenAI traces: OTLP as JSON (lines of the collector's file exporter, or one document), or spans as plain
objects, one a line.

A span of a model call is a request; those of vLLM itself are read too. Names are those of the GenAI conventions and the
older ones that instrumentations still write. Content is there only where its capture was on: on the span, in its
events, or in log records (`gen_ai.client.inference.operation.details`), which are joined to the spans given with them.
`gen_ai.usage.input_tokens` includes what was cached, by convention; where fewer are told than were cached, the length
of the prompt is unknown. The label is the model that was asked. Nothing here judges an output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.importers.base import Found, Imported, Prompted, Unread
from prefillgate.importers.otel_values import attributes, output_of, parsed, request_of, with_events
from prefillgate.importers.records import Damaged, Record, count, moment, outline, records, text
from prefillgate.importers.replies import TokenCounts
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, TEXTS, Seen
from prefillgate.importers.source import Source
from prefillgate.importers.told import Told, cached_within, duration_ms, prompt_length

DETAILS = "gen_ai.client.inference.operation.details"
NO_CALL = "a span of no model call"
NO_EVENT = "a log record of no model call"
ONE_MESSAGE = "an event of one message (OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental writes whole requests)"
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT (older: true)"
_FLAGS = {
    PROMPTS: _CAPTURE,
    TEXTS: _CAPTURE,
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
    return "resourceLogs" in outline(head)


class OpenTelemetry:
    """The format `otel`."""

    name = "otel"
    title = "OpenTelemetry GenAI traces (OTLP JSON)"

    def recognise(self, head: bytes) -> bool:
        """OTLP's resource spans or logs; or plain spans with attributes of the GenAI conventions."""
        keys = outline(head)
        if {"resourceSpans", "resourceLogs"} & keys:
            return True
        return "attributes" in keys and any(key.startswith(("attributes.gen_ai.", "attributes.llm.")) for key in keys)

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each span of a model call, a `Prompted` for each log record with its messages."""
        seen = Seen()
        for found in records(source):
            if isinstance(found, Unread):
                yield found
                continue
            for each in _entries(*found):
                if isinstance(each, Imported):
                    seen.add(each)
                yield each
        yield from seen.absent(_FLAGS)


def _entries(where: str, record: Record) -> Iterator[Found]:
    """Everything in one export request, or in one plain span."""
    if "resourceSpans" not in record and "resourceLogs" not in record:
        yield from _tried(record, where, log=False)
        return
    for resource, scope, kind in (
        ("resourceSpans", "scopeSpans", "spans"),
        ("resourceLogs", "scopeLogs", "logRecords"),
    ):
        for place, entry in enumerate(_inside(record, resource, scope, kind)):
            yield from _tried(entry, f"{where}: {kind}[{place}]", log=kind == "logRecords")


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


def _tried(entry: Any, where: str, log: bool) -> Iterator[Found]:
    if not isinstance(entry, dict):
        yield Unread(where, "an entry that is no object")
        return
    try:
        yield _event(entry, where) if log else _span(entry, where)
    except Damaged as damage:
        yield Unread(where, str(damage))


def _event(record: Record, where: str) -> Found:
    attrs = attributes(record)
    named = text(record, "eventName") or attrs.get("event.name")
    if named != DETAILS:
        said = isinstance(named, str) and named.startswith("gen_ai.")
        return Unread(where, ONE_MESSAGE if said else NO_EVENT)
    asked = request_of(attrs)
    if asked is None:
        return Unread(where, "an event of a model call without its messages")
    return Prompted(asked, where, _called(record))


def _called(entry: Record) -> str | None:
    """What a span is called in every file: its trace and its own id."""
    context = entry.get("context")
    owner = context if isinstance(context, dict) else entry
    trace = text(owner, "traceId") or text(owner, "trace_id")
    span = text(owner, "spanId") or text(owner, "span_id")
    return f"{trace}/{span}"[:256] if trace and span else None


def _span(span: Record, where: str) -> Found:
    attrs = with_events(span)
    if not _is_call(attrs):
        return Unread(where, NO_CALL)
    prefill, decode = (duration_ms(attrs.get(f"gen_ai.latency.time_in_model_{name}")) for name in ("prefill", "decode"))
    waits = [duration_ms(attrs.get(name)) for name in _FIRST_TOKEN]
    counts = _counts(attrs)
    finishes = parsed(attrs.get("gen_ai.response.finish_reasons"))
    finish = finishes[0] if isinstance(finishes, list) and finishes else finishes
    return Told(
        where,
        asked=request_of(attrs),
        custom_id=_called(span),
        label=next((found for name in _MODEL if (found := text(attrs, name)) is not None), None),
        texts=output_of(attrs),
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
