"""LiteLLM's standard logging payloads and spend logs: calls that reached a server, and those that did not, by name."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from prefillgate.core.cells import Status
from prefillgate.importers.registry import find_format
from prefillgate.importers.source import Source
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

USAGE = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
RESPONSE = {
    "id": "chatcmpl-1",
    "model": "m",
    "choices": [{"index": 0, "message": {"content": "yo"}, "finish_reason": "stop"}],
    "usage": USAGE,
}
PAYLOAD: dict[str, Any] = {
    "id": "chatcmpl-1",
    "trace_id": "t",
    "call_type": "acompletion",
    "stream": True,
    "status": "success",
    "prompt_tokens": 40,
    "completion_tokens": 2,
    "startTime": 1764404100.0,
    "completionStartTime": 1764404100.25,
    "endTime": 1764404101.5,
    "model": "hosted_vllm/m",
    "model_group": "chat",
    "api_base": "http://u:s3cret@old:8000/v1/",
    "metadata": {"user_api_key_hash": "s3cret", "requester_ip_address": "10.0.0.1"},
    "cache_hit": None,
    "messages": [{"role": "user", "content": "hi"}],
    "response": RESPONSE,
    "model_parameters": {"temperature": 0, "max_tokens": 9, "user": "s3cret", "extra_headers": {"x": "s3cret"}},
}
SPEND: dict[str, Any] = {
    "request_id": "chatcmpl-1",
    "call_type": "acompletion",
    "api_key": "s3cret",
    "spend": 0.0,
    "prompt_tokens": 40,
    "completion_tokens": 2,
    "startTime": "2025-11-29T08:15:00.000Z",
    "endTime": "2025-11-29T08:15:01.500Z",
    "completionStartTime": "2025-11-29T08:15:01.500Z",
    "model": "m",
    "api_base": "http://old:8000/v1",
    "metadata": json.dumps({"usage_object": USAGE, "user_api_key": "s3cret"}),
    "cache_hit": "False",
    "messages": {},
    "response": {},
    "proxy_server_request": {},
}


def name_of(data: bytes) -> str:
    return find_format(Source(io.BytesIO(data), "log")).name


@pytest.mark.parametrize(
    "data", [as_lines(PAYLOAD), as_document([PAYLOAD]), as_lines({"standard_logging_object": PAYLOAD})]
)
def test_a_standard_logging_payload_is_a_request_with_prompt_reply_and_times(data: bytes) -> None:
    assert name_of(data) == "litellm"
    (found,) = imported(read_bytes(data))
    cell = found.line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens, cell.request_id) == (40, 0, 2, "chatcmpl-1")
    assert (cell.started_at, cell.ended_at, found.time_to_first_token_ms) == (1764404100.0, 1764404101.5, 250.0)
    assert found.asked is not None
    assert found.asked.body == {"model": "chat", "temperature": 0, "max_tokens": 9, "messages": PAYLOAD["messages"]}
    assert (found.label, found.texts and found.texts.content) == ("old:8000", "yo")
    assert "s3cret" not in repr(found) and "10.0.0.1" not in repr(found)


@pytest.mark.parametrize("data", [as_lines(SPEND), as_document([SPEND]), as_document({"data": [SPEND], "total": 1})])
def test_a_row_of_the_spend_logs_has_its_usage_in_its_metadata_and_no_prompt(data: bytes) -> None:
    assert name_of(data) == "litellm"
    found = read_bytes(data)
    (one,) = imported(found)
    cell = one.line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.started_at) == (40, 0, 1764404100.0)
    assert (one.asked, one.texts, one.time_to_first_token_ms) == (None, None, None)
    assert set(absent(found)) == {"prompts", "outputs"}
    assert "store_prompts_in_spend_logs" in str(absent(found)["prompts"])


@pytest.mark.parametrize("hit", [True, "True", "true"])
def test_an_answer_from_litellms_cache_is_no_request(hit: Any) -> None:
    found = read_bytes(as_lines(PAYLOAD, {**PAYLOAD, "cache_hit": hit}))
    assert unread(found) == [("log:2", "answered from LiteLLM's own cache: no request to a server, zero prefills")]
    assert len(cells_of(found)) == 1


def test_the_body_that_the_proxy_took_is_the_request() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "as sent"}],
        "metadata": {"headers": {"a": "s3cret"}},
    }
    for kept in (
        body,
        json.dumps(body),
        {"url": "http://p/v1/chat/completions", "body": body, "headers": {"a": "s3cret"}},
    ):
        (found,) = imported(read_bytes(as_lines({**SPEND, "proxy_server_request": kept})))
        assert found.asked is not None
        assert found.asked.body == {"model": "m", "messages": body["messages"]}


@pytest.mark.parametrize("said", ["redacted-by-litellm", "the start ... (litellm_truncated 1200 chars) the end"])
def test_a_prompt_that_was_cut_or_taken_out_is_no_prompt(said: str) -> None:
    messages = [{"role": "user", "content": said}]
    (found,) = imported(read_bytes(as_lines({**PAYLOAD, "messages": messages})))
    assert (found.asked, found.line.cell.prompt_sha256) == (None, None)
    choices = [{"index": 0, "message": {"content": said}, "finish_reason": "stop"}]
    (found,) = imported(read_bytes(as_lines({**PAYLOAD, "response": {**RESPONSE, "choices": choices}})))
    assert (found.texts, found.line.cell.prompt_tokens) == (None, 40)


def test_a_failed_call_is_an_invalid_cell_with_its_status() -> None:
    error = {"error_code": "429", "error_class": "RateLimitError", "error_message": "x"}
    payload = {**PAYLOAD, "status": "failure", "error_information": error, "response": None}
    row = {**SPEND, "metadata": json.dumps({"status": "failure", "error_information": error})}
    for call in (payload, row):
        (found,) = imported(read_bytes(as_lines(call)))
        assert (found.line.cell.status, found.line.http_status) == (Status.INVALID, 429)
        assert found.line.reason == "RateLimitError"


def test_tokens_that_were_never_told_are_unknown_and_not_zero() -> None:
    (cell,) = cells_of(read_bytes(as_lines({**SPEND, "metadata": "{}", "prompt_tokens": 0, "completion_tokens": 0})))
    assert (cell.prompt_tokens, cell.output_tokens, cell.cached_tokens) == (None, None, None)


def test_a_text_completion_keeps_its_prompt_and_never_the_messages_made_of_it() -> None:
    call = {**PAYLOAD, "call_type": "atext_completion"}
    (found,) = imported(read_bytes(as_lines(call)))
    assert found.asked is None
    (found,) = imported(read_bytes(as_lines({**call, "messages": "once upon"})))
    assert found.asked is not None and (found.asked.path, found.asked.body["prompt"]) == (
        "/v1/completions",
        "once upon",
    )


def test_other_calls_and_damaged_records_are_named() -> None:
    bad = {**PAYLOAD, "response": {**RESPONSE, "usage": {"prompt_tokens": "x"}}}
    found = read_bytes(as_lines(PAYLOAD, {**PAYLOAD, "call_type": "aembedding"}, bad, "{"))
    assert unread(found) == [
        ("log:2", "a call that is no chat or text completion"),
        ("log:3", "prompt_tokens is no count of tokens"),
        ("log:4", "JSON that ends too early"),
    ]


def test_hostile_records_break_nothing() -> None:
    whole = as_document([PAYLOAD, SPEND])
    withstands("litellm", [whole], lambda seed: [as_lines(spoiled(PAYLOAD, seed), spoiled(SPEND, seed))])
