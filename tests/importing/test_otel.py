"""OpenTelemetry GenAI traces: names of several conventions, captured contents, events joined to spans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefillgate.core.cells import Status
from prefillgate.importers.base import Imported, Prompted
from prefillgate.importers.joining import Joiner, asks_only
from prefillgate.importers.otel import NO_CALL, NO_EVENT
from prefillgate.importers.otel_events import NO_CONTENT, NO_SPAN
from prefillgate.importers.source import ImportProblem
from tests.support.imports import (
    absent,
    as_document,
    as_lines,
    cells_of,
    imported,
    read_bytes,
    spoiled,
    unread,
    withstands,
)

START = "1788256800000000000"
END = "1788256803000000000"
INPUT = [{"role": "user", "parts": [{"type": "text", "content": "2+2?"}]}]
OUTPUT = [{"role": "assistant", "parts": [{"type": "text", "content": "four"}], "finish_reason": "stop"}]
CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m-q4",
    "gen_ai.request.max_tokens": 64,
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 242,
    "gen_ai.usage.output_tokens": 5,
    "gen_ai.usage.cache_read.input_tokens": 240,
}
CONTENT = {"gen_ai.input.messages": json.dumps(INPUT), "gen_ai.output.messages": json.dumps(OUTPUT)}


def value(told: Any) -> dict[str, Any]:
    if isinstance(told, bool):
        return {"boolValue": told}
    if isinstance(told, int):
        return {"intValue": str(told)}
    if isinstance(told, float):
        return {"doubleValue": told}
    if isinstance(told, list):
        return {"arrayValue": {"values": [value(each) for each in told]}}
    if isinstance(told, dict):
        return {"kvlistValue": {"values": pairs(told)}}
    return {"stringValue": told}


def pairs(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(each)} for key, each in told.items()]


def span(attrs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    found = {"traceId": "t1", "spanId": "s1", "name": "chat m-q4", "kind": 3, "startTimeUnixNano": START}
    return {
        **found,
        "endTimeUnixNano": END,
        "attributes": pairs(CALL if attrs is None else attrs),
        "status": {},
        **more,
    }


def export(*spans: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]}


def logs(*entries: Any) -> dict[str, Any]:
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {}, "logRecords": list(entries)}]}]}


def event(attrs: dict[str, Any], name: str = "gen_ai.client.inference.operation.details") -> dict[str, Any]:
    return {"eventName": name, "traceId": "t1", "spanId": "s1", "attributes": pairs(attrs), "timeUnixNano": END}


SAMPLE = as_lines(export(span({**CALL, **CONTENT}), span({"http.method": "GET"})), export(span()))
SAMPLE_LOGS = as_lines(logs(event(CONTENT)))
SAMPLE_PLAIN = as_lines({"type": "span", "name": "chat", "attributes": CALL, "startTime": [1788256800, 0]})


def one(attrs: dict[str, Any], **more: Any) -> Imported:
    (found,) = imported(read_bytes(as_document(export(span(attrs, **more)))))
    return found


def test_a_span_of_a_model_call_is_a_cell_with_counts_times_label_and_content() -> None:
    found = read_bytes(SAMPLE)
    first = imported(found)[0]
    cell = first.line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == (242, 240, 5)
    assert (cell.started_at, cell.ended_at, cell.request_id) == (1788256800.0, 1788256803.0, "chatcmpl-1")
    assert (cell.finish_reason, first.label, cell.status, cell.bad) == ("stop", "m-q4", Status.OK, None)
    assert first.asked is not None
    assert first.asked.body == {"messages": [{"role": "user", "content": "2+2?"}], "max_tokens": 64}
    assert first.texts is not None and first.texts.content == "four"
    assert [each.where for each in imported(found)] == ["log:1: spans[0]", "log:2: spans[0]"]
    assert unread(found) == [("log:1: spans[1]", NO_CALL)]
    assert absent(found) == {}


def test_without_captured_content_the_setting_is_named() -> None:
    said = absent(read_bytes(as_document(export(span()))))
    assert set(said) == {"prompts", "outputs"}
    assert "CAPTURE_MESSAGE_CONTENT" in str(said["prompts"])


def test_plain_spans_of_other_exporters_are_read() -> None:
    (found,) = imported(read_bytes(SAMPLE_PLAIN))
    assert (found.line.cell.prompt_tokens, found.line.cell.started_at) == (242, 1788256800.0)
    python = {
        "context": {"trace_id": "0xt", "span_id": "0xs"},
        "attributes": CALL,
        "start_time": "2026-09-01T10:00:00Z",
    }
    (found,) = imported(read_bytes(as_lines(python)))
    assert (found.custom_id, found.line.cell.started_at) == ("0xt/0xs", 1788256800.0)


@pytest.mark.parametrize(
    ("attrs", "counts"),
    [
        ({"gen_ai.usage.prompt_tokens": 242, "gen_ai.usage.completion_tokens": 5}, (242, None, 5)),
        ({"llm.usage.prompt_tokens": 242, "llm.usage.completion_tokens": 5}, (242, None, 5)),
        ({"gen_ai.usage.input_tokens": "242", "gen_ai.usage.cache_read_input_tokens": 0}, (242, 0, None)),
        ({"gen_ai.usage.input_tokens": 2, "gen_ai.usage.cache_read.input_tokens": 240}, (None, 240, None)),
        (
            {
                "gen_ai.usage.input_tokens": 2,
                "gen_ai.usage.output_tokens": 5,
                "gen_ai.usage.cache_read_input_tokens": 240,
                "llm.usage.total_tokens": 247,
            },
            (242, 240, 5),
        ),
        ({"gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 0}, (None, None, 0)),
    ],
)
def test_counts_of_older_names_are_read_and_contradictions_are_unknown(attrs: Any, counts: Any) -> None:
    cell = one({"gen_ai.request.model": "m", **attrs}).line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == counts


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ({"gen_ai.input.messages": INPUT}, [{"role": "user", "content": "2+2?"}]),
        (
            {**CONTENT, "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "be brief"}])},
            [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}],
        ),
        (
            {"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "s"}
            | {"gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "u"},
            [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        ),
        ({"gen_ai.prompt": json.dumps([{"role": "user", "content": "u"}])}, [{"role": "user", "content": "u"}]),
    ],
)
def test_messages_of_every_convention_are_the_prompt(content: Any, messages: Any) -> None:
    asked = one({**CALL, **content}).asked
    assert asked is not None and asked.body["messages"] == messages


def test_messages_in_the_events_of_a_span_are_the_prompt() -> None:
    older = [{"name": "gen_ai.user.message", "attributes": pairs({"content": "2+2?"})}]
    newer = [{"name": "gen_ai.client.inference.operation.details", "attributes": pairs(CONTENT)}]
    middle = [
        {
            "name": "gen_ai.content.prompt",
            "attributes": pairs({"gen_ai.prompt": '[{"role": "user", "content": "2+2?"}]'}),
        }
    ]
    digests = {one(CALL, events=events).line.cell.prompt_sha256 for events in (older, newer, middle)}
    assert len(digests) == 1 and None not in digests


def test_a_log_record_with_the_messages_is_joined_to_its_span() -> None:
    (prompted,) = read_bytes(SAMPLE_LOGS)
    assert isinstance(prompted, Prompted) and prompted.custom_id == "t1/s1"
    assert asks_only(SAMPLE_LOGS) and not asks_only(SAMPLE)
    joiner = Joiner()
    joiner.join(prompted)
    joined = joiner.join(one(CALL))
    assert isinstance(joined, Imported) and joined.asked == prompted.asked


def said(name: str, body: Any, **more: Any) -> dict[str, Any]:
    """An event of one message, of the conventions before today's."""
    return {**event({"gen_ai.system": "openai"}, name), "body": value(body), **more}


SAID = (
    said("gen_ai.system.message", {"content": "Be terse."}),
    said("gen_ai.user.message", {"content": "2+2?"}),
    said("gen_ai.assistant.message", {"tool_calls": [{"id": "c1", "function": {"name": "add"}}]}),
    said("gen_ai.tool.message", {"content": "4", "id": "c1"}),
    said("gen_ai.choice", {"index": 0, "message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}),
    said("gen_ai.choice", {"index": 1, "message": {"role": "assistant", "content": "other"}}),
)
MESSAGES = [
    {"role": "system", "content": "Be terse."},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "add"}}]},
    {"role": "tool", "content": "4", "tool_call_id": "c1"},
]


def test_an_event_for_each_message_is_the_request_of_its_span_in_one_file() -> None:
    other = said("gen_ai.user.message", {"content": "no span of this file"}, spanId="s9")
    found = read_bytes(as_lines(logs(*SAID, other), export(span())))
    (told,) = imported(found)
    assert told.asked is not None and told.asked.body == {"messages": MESSAGES}
    assert told.texts is not None and told.texts.content == "four", "the first choice"
    (left,) = [each for each in found if isinstance(each, Prompted)]
    assert left.custom_id == "t1/s9" and unread(found) == []
    assert set(absent(found)) == set()


def test_an_event_for_each_message_is_the_request_of_its_span_in_another_file() -> None:
    joiner = Joiner()
    (prompted,) = read_bytes(as_document(logs(*SAID)))
    joiner.join(prompted)
    joined = joiner.join(one(CALL))
    assert isinstance(joined, Imported) and joined.asked is not None and joined.asked.body == {"messages": MESSAGES}
    assert joined.texts is not None and joined.texts.content == "four"
    assert joiner.gave("prompts") and joiner.gave("outputs") and not joiner.gave("cached tokens")
    joiner = Joiner()
    (without,) = read_bytes(as_document(logs(event({"gen_ai.input.messages": json.dumps(INPUT)}))))
    joiner.join(without)
    assert not joiner.gave("prompts")
    joiner.join(one(CALL))
    assert joiner.gave("prompts") and not joiner.gave("outputs")


def test_a_request_of_which_one_message_was_not_captured_is_unknown() -> None:
    withheld = said("gen_ai.user.message", {})
    found = read_bytes(as_lines(logs(SAID[0], withheld, SAID[4]), export(span())))
    (told,) = imported(found)
    assert told.asked is None and [why for _, why in unread(found)] == [NO_CONTENT]
    assert told.texts is not None and told.texts.content == "four"
    nowhere = said("gen_ai.user.message", {"content": "x"}, spanId="")
    assert [why for _, why in unread(read_bytes(as_document(logs(nowhere))))] == [NO_SPAN]


def test_what_a_console_prints_between_spans_is_named_and_a_cut_one_too() -> None:
    plain = json.dumps({"attributes": CALL, "context": {"trace_id": "0x1", "span_id": "0x2"}}, indent=4)
    data = f"Loading ...\n{plain}\n{plain}\nready\n{plain[:60]}\n{plain}\n{plain[:60]}\n{{\n  7\n}}\n".encode()
    found = read_bytes(data)
    assert len(imported(found)) == 3
    lines = plain.count("\n") + 1
    cut = plain[:60].count("\n") + 1
    assert unread(found) == [
        ("log:1", "text between JSON objects"),
        (f"log:{2 * lines + 2}", "text between JSON objects"),
        (f"log:{2 * lines + 3}", "JSON that ends too early"),
        (f"log:{3 * lines + cut + 3}", "JSON that ends too early"),
        (f"log:{3 * lines + 2 * cut + 3}", "not JSON"),
    ]
    with pytest.raises(ImportProblem, match="not one JSON document"):
        read_bytes(plain[:-30].encode())


def test_what_javascript_prints_is_refused_with_what_would_do() -> None:
    printed = (
        b"{\n  resource: { attributes: { 'service.name': 'x' } },\n  instrumentationScope: { name: 'y' },\n"
        b"  traceId: '1a',\n  name: 'chat m',\n  attributes: { 'gen_ai.operation.name': 'chat' },\n}\n"
    )
    with pytest.raises(ImportProblem, match=r"JavaScript's ConsoleSpanExporter .*OTLP JSON"):
        read_bytes(printed)


def test_spans_of_vllm_itself_tell_prefill_decode_and_first_token() -> None:
    found = one(
        {
            "gen_ai.request.id": "cmpl-1",
            "gen_ai.response.model": "m",
            "gen_ai.usage.prompt_tokens": 242,
            "gen_ai.usage.completion_tokens": 5,
            "gen_ai.latency.time_to_first_token": 0.25,
            "gen_ai.latency.time_in_model_prefill": 0.125,
            "gen_ai.latency.time_in_model_decode": 0.5,
        }
    )
    cell = found.line.cell
    assert (cell.prefill_ms, cell.decode_ms, found.time_to_first_token_ms) == (125.0, 500.0, 250.0)
    assert (found.label, cell.request_id) == ("m", "cmpl-1")


@pytest.mark.parametrize("operation", ["invoke_agent", "execute_tool", "embeddings", 7])
def test_spans_around_a_call_are_none(operation: Any) -> None:
    assert unread(read_bytes(as_document(export(span({**CALL, "gen_ai.operation.name": operation}))))) == [
        ("log[0]: spans[0]", NO_CALL)
    ]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"status": {"code": 2, "message": "timeout"}}, "timeout"),
        ({"status": {"code": "STATUS_CODE_ERROR"}}, "an error"),
        ({"attributes": pairs({**CALL, "error.type": "RateLimit"})}, "RateLimit"),
    ],
)
def test_a_failed_call_is_invalid(more: Any, reason: str) -> None:
    found = imported(read_bytes(as_document(export({**span(), **more}))))[0]
    assert (found.line.cell.status, found.line.reason) == (Status.INVALID, reason)


def test_damage_is_named() -> None:
    told = [7, span(attributes=7), span({**CALL, "gen_ai.usage.input_tokens": -1}), span(attributes=[{"value": {}}])]
    assert [why for _, why in unread(read_bytes(as_document(export(*told))))] == [
        "an entry that is no object",
        "attributes is no list of keys and values",
        "a usage attribute is no count of tokens",
        "attributes is no list of keys and values",
    ]
    entries = [event(CONTENT, "gen_ai.user.message"), event({}, "other"), event({})]
    assert [why for _, why in unread(read_bytes(as_document(logs(*entries))))] == [
        NO_CONTENT,
        NO_EVENT,
        "an event of a model call without its messages",
    ]
    assert unread(read_bytes(as_document({"resourceSpans": [{"scopeSpans": 7}]}))) != []
    assert read_bytes(as_document({"resourceSpans": [{"resource": {}}]})) == []


def test_no_hostile_input_is_a_traceback() -> None:
    full = span({**CALL, **CONTENT}, events=[{"name": "gen_ai.user.message", "attributes": pairs({"content": "x"})}])
    plain = {"attributes": {**CALL, "gen_ai.input.messages": INPUT, "gen_ai.prompt.0.role": "user"}}

    def spoil(seed: int) -> tuple[bytes, bytes]:
        said = spoiled(logs(event(CONTENT), *SAID), seed)
        return as_lines(spoiled(export(full), seed), said, export(full)), as_lines(spoiled(plain, seed))

    withstands("otel", [SAMPLE, SAMPLE_LOGS, SAMPLE_PLAIN], spoil, times=40, seeds=400)
    assert cells_of(read_bytes(SAMPLE)) != []
