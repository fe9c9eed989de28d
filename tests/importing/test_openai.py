"""OpenAI-style replies as JSON lines, alone, beside their requests, and as OpenAI Batch output."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.core.cells import Status
from prefillgate.importers.base import Absent, Found, Imported, Prompted, Unread
from prefillgate.importers.joining import Joiner
from prefillgate.importers.openai_batch import begins_with_requests
from prefillgate.importers.registry import find_format
from prefillgate.importers.source import Source

CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1764400000,
    "model": "m-q4",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 242, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 241}},
}
TIMINGS = {"cache_n": 0, "prompt_n": 242, "prompt_ms": 968.5, "predicted_n": 5, "predicted_ms": 150.25}
ASK = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}], "max_tokens": 8}


def source(*lines: Any, name: str = "log") -> Source:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return Source(io.BytesIO("\n".join(texts).encode()), name)


def read(*lines: Any, name: str | None = None) -> list[Found]:
    given_source = source(*lines)
    return list(find_format(given_source, name).read(given_source))


def cells(found: list[Found]) -> list[Imported]:
    return [each for each in found if isinstance(each, Imported)]


def unread(found: list[Found]) -> list[tuple[str, str]]:
    return [(each.where, each.why) for each in found if isinstance(each, Unread)]


def joined(*sources: Source) -> list[Found]:
    joiner = Joiner()
    return [joiner.join(each) for source in sources for each in find_format(source).read(source)]


def one(*lines: Any) -> Imported:
    (found,) = cells(read(*lines))
    return found


def without(reply: dict[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    return {**{key: value for key, value in reply.items() if key not in names}, **more}


def test_a_reply_with_usage_is_a_cell_with_its_counts_text_time_and_model() -> None:
    found = one(CHAT)
    cell = found.line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.processed_tokens, cell.output_tokens) == (242, 241, None, 5)
    assert (cell.started_at, cell.request_id, cell.finish_reason) == (1764400000.0, "chatcmpl-1", "stop")
    assert (cell.status, cell.bad, cell.arm, cell.case_id) == (Status.OK, None, "candidate", "unknown case of log:1")
    assert (found.label, found.arm_told, found.where) == ("m-q4", False, "log:1")
    assert found.texts is not None and found.texts.content == "four"
    assert found.line.scored


def test_llama_cpp_timings_tell_what_was_processed_and_how_long_it_took() -> None:
    cell = one({**CHAT, "timings": TIMINGS}).line.cell
    assert (cell.cached_tokens, cell.processed_tokens) == (0, 242)
    assert (cell.prefill_ms, cell.decode_ms) == (968.5, 150.25)


def test_an_older_llama_cpp_tells_the_cached_tokens_by_what_it_did_not_process() -> None:
    cell = one(without(CHAT, usage={"prompt_tokens": 242}, timings={"prompt_n": 2})).line.cell
    assert (cell.cached_tokens, cell.processed_tokens) == (240, 2)


def test_without_usage_the_prompt_is_what_was_processed_and_what_was_reused() -> None:
    cell = one(without(CHAT, "usage", timings={"prompt_n": 2, "cache_n": 240, "predicted_n": 3})).line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == (242, 240, 3)


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens": 10}, None),
        ({"prompt_tokens": 10, "prompt_tokens_details": None}, None),
        ({"prompt_tokens": 10, "prompt_tokens_details": {}}, None),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": None}}, None),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 8}, 8),
        (None, None),
    ],
)
def test_a_counter_that_is_absent_or_null_is_unknown_and_never_zero(usage: Any, cached: int | None) -> None:
    assert one({**CHAT, "usage": usage}).line.cell.cached_tokens == cached


def test_the_native_completion_reply_of_llama_cpp_is_read() -> None:
    reply = {"content": "x", "stop": True, "stop_type": "limit", "tokens_evaluated": 242, "tokens_cached": 250}
    cell = one({**reply, "timings": TIMINGS}).line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.finish_reason) == (242, 0, "length")


def test_choices_of_one_request_share_its_request_id_and_keep_their_index() -> None:
    choices = [{"index": at, "text": f"t{at}", "finish_reason": "stop"} for at in (1, 0, 2)]
    found = cells(read(without(CHAT, "id", object="text_completion", choices=choices)))
    assert [each.line.cell.choice_index for each in found] == [1, 0, 2]
    assert {each.line.cell.request_id for each in found} == {"log:1"}
    assert {each.line.cell.case_id for each in found} == {"unknown case of log:1"}
    assert {each.line.cell.prompt_tokens for each in found} == {242}
    assert {each.line.cell.output_tokens for each in found} == {None}, "the sum is nobody's own"
    assert [each.texts.content for each in found if each.texts] == ["t1", "t0", "t2"]


def test_reasoning_and_tool_calls_are_kept_apart_from_the_content() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"content": None, "reasoning_content": "hm", "tool_calls": [call]}
    found = one({**CHAT, "choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert found.texts is not None
    assert (found.texts.content, found.texts.reasoning, json.loads(found.texts.tool_calls)) == ("", "hm", [call])
    assert found.line.cell.status is Status.OK


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"message": {"content": ""}, "finish_reason": "stop"}, "EmptyAnswer"),
        ({"message": {"content": None}, "finish_reason": "stop"}, "EmptyAnswer"),
        ({"message": {"content": "x"}, "finish_reason": None}, "NoFinishReason"),
    ],
)
def test_an_empty_answer_and_one_without_an_end_are_failed_deliveries(choice: Any, reason: str) -> None:
    found = one({**CHAT, "choices": [choice]})
    assert (found.line.cell.status, found.line.reason) == (Status.FAILED, reason)


def test_a_log_that_leaves_outputs_out_has_no_failed_deliveries_by_that() -> None:
    found = one({**CHAT, "choices": [{"index": 0}]})
    assert (found.line.cell.status, found.texts) == (Status.OK, None)


def test_an_error_reply_is_an_invalid_cell_with_its_status() -> None:
    found = cells(read(CHAT, {"error": {"code": 503, "type": "busy"}}))[1]
    assert (found.line.cell.status, found.line.http_status, found.line.reason) == (Status.INVALID, 503, "busy")
    assert not found.line.scored


@pytest.mark.parametrize("wrap", [lambda body: body, json.dumps, lambda body: {"status": 200, "body": body}])
def test_a_request_beside_its_reply_gives_prompt_and_digest(wrap: Any) -> None:
    found = cells(read(*({"request": wrap(ASK), "response": wrap(CHAT), "timestamp": 1764400001500} for _ in "ab")))
    assert found[0].asked is not None
    assert (found[0].asked.path, dict(found[0].asked.body)) == ("/v1/chat/completions", ASK)
    digests = {each.line.cell.prompt_sha256 for each in found}
    assert len(digests) == 1 and None not in digests
    assert found[0].line.cell.case_id == found[0].line.cell.prompt_sha256
    assert found[0].line.cell.started_at == 1764400001.5


def test_the_same_prompt_with_other_sampling_is_the_same_prompt() -> None:
    found = cells(read({"request": ASK, "response": CHAT}, {"request": {**ASK, "seed": 3}, "response": CHAT}))
    assert found[0].line.cell.prompt_sha256 == found[1].line.cell.prompt_sha256


def test_a_streamed_reply_kept_as_text_is_put_together() -> None:
    chunks = [
        {"id": "s", "model": "m", "choices": [{"index": 0, "delta": {"content": "fo"}, "finish_reason": None}]},
        {"id": "s", "choices": [{"index": 0, "delta": {"content": "ur"}, "finish_reason": "stop"}]},
        {"id": "s", "choices": [], "usage": CHAT["usage"], "timings": TIMINGS},
    ]
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    found = one({"request": {**ASK, "stream": True}, "response": stream})
    cell = found.line.cell
    assert found.texts is not None and found.texts.content == "four"
    assert (cell.cached_tokens, cell.processed_tokens, cell.finish_reason, cell.request_id) == (0, 242, "stop", "s")


BATCH_IN = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": ASK}
BATCH_OUT = {"id": "b1", "custom_id": "a", "response": {"status_code": 200, "body": CHAT}, "error": None}


def test_batch_output_is_joined_with_its_input() -> None:
    found = joined(source(BATCH_IN, name="in"), source(BATCH_OUT, name="out"))
    assert isinstance(found[0], Prompted)
    (answer,) = cells(found)
    assert answer.asked is not None and answer.asked.body == ASK
    assert answer.line.cell.prompt_sha256 == answer.line.cell.case_id
    assert answer.where == "out:1"


def test_batch_input_and_output_in_one_file_are_joined_too() -> None:
    (answer,) = cells(joined(source(BATCH_IN, BATCH_OUT)))
    assert answer.asked is not None


def test_a_file_of_requests_alone_is_told_from_one_with_answers() -> None:
    assert begins_with_requests(source(BATCH_IN).head())
    assert not begins_with_requests(source(BATCH_OUT).head())
    assert not begins_with_requests(source(BATCH_OUT, BATCH_IN).head())


def test_batch_output_alone_knows_its_prompts_by_custom_id_only_and_says_what_is_missing() -> None:
    found = read(BATCH_OUT)
    assert cells(found)[0].line.cell.case_id == "a"
    assert Absent("prompts", "the Batch input in the same call") in found


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        ({"response": None, "error": {"code": "batch_expired", "message": "late"}}, None, "batch_expired"),
        ({"response": {"status_code": 429, "body": {"error": {"type": "rate"}}}, "error": None}, 429, "rate"),
        ({"response": {"status_code": 500, "body": None}, "error": None}, 500, "an error reply"),
    ],
)
def test_error_lines_of_a_batch_are_invalid_cells(line: Any, status: int | None, reason: str) -> None:
    found = one({"custom_id": "a", **line})
    assert found.line.cell.status is Status.INVALID
    assert (found.line.http_status, found.line.reason, found.line.cell.case_id) == (status, reason, "a")


def test_what_no_line_holds_is_said_with_the_flag_that_would_give_it() -> None:
    found = read({**CHAT, "usage": {"prompt_tokens": 1}})
    told = {each.what: each.flag for each in found if isinstance(each, Absent)}
    assert set(told) == {"prompts", "cached tokens"}
    assert "--enable-prompt-tokens-details" in str(told["cached tokens"])
    assert not [each for each in read({"request": ASK, "response": CHAT}) if isinstance(each, Absent)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "JSON that ends too early"),
        ("hello", "not JSON"),
        ("[1]", "not a JSON object"),
        ({"a": 1}, "no choices: not the reply of a chat or text completion"),
        ({**CHAT, "choices": 3}, "choices is no list of objects"),
        ({**CHAT, "choices": [3]}, "choices is no list of objects"),
        ({**CHAT, "choices": [{"message": 4}]}, "message is no object"),
        ({**CHAT, "choices": [{"message": {"content": 4}}]}, "content is no text"),
        ({**CHAT, "usage": {"prompt_tokens": "12"}}, "prompt_tokens is no count of tokens"),
        ({**CHAT, "usage": {"prompt_tokens": -1}}, "prompt_tokens is no count of tokens"),
        ({**CHAT, "usage": {"prompt_tokens": True}}, "prompt_tokens is no count of tokens"),
        ({**CHAT, "usage": []}, "usage is no object"),
        ({**CHAT, "timings": {"prompt_ms": -1}}, "prompt_ms is no duration"),
        ({**CHAT, "object": "chat.completion.chunk"}, "a piece of a streamed reply (a whole reply a line is read)"),
        ({"request": ASK, "response": None}, "a request without a response"),
        ({"request": ASK, "response": 4}, "a request or response that is no object"),
        ({"request": ASK, "response": "{"}, "a body that is not JSON"),
        ({"request": ASK, "response": "data: {\n\n"}, "a streamed reply with an event that is not JSON"),
    ],
)
def test_a_damaged_line_is_named_with_its_place_and_the_others_are_read(line: Any, why: str) -> None:
    found = read(CHAT, line, CHAT)
    assert unread(found) == [("log:2", why)]
    assert [each.where for each in cells(found)] == ["log:1", "log:3"]


def test_one_document_with_a_list_of_replies_is_read_and_gzip_is_undone() -> None:
    data = gzip.compress(json.dumps([CHAT, 5, CHAT], indent=1).encode())
    packed = Source(io.BytesIO(data), "log")
    found = list(find_format(packed).read(packed))
    assert unread(found) == [("log[1]", "not a JSON object")]
    assert [each.where for each in cells(found)] == ["log[0]", "log[2]"]


def test_a_log_is_recognised_by_a_first_line_longer_than_its_head_and_past_a_damaged_one() -> None:
    long = {"request": {**ASK, "messages": [{"role": "user", "content": "x" * 200_000}]}, "response": CHAT}
    for lines in ((CHAT,), ("{damaged", CHAT), ([CHAT],)):
        assert find_format(source(*lines)).name == "openai-jsonl"
    assert find_format(source({"choices": CHAT["choices"], "pad": "x" * 200_000})).name == "openai-jsonl"
    assert len(cells(read(long, name="openai-jsonl"))) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = [("choices",), ("usage",), ("timings",), ("id",), ("created",), ("model",), ("error",), ("object",)]
PLACES += [("choices", 0), ("choices", 0, "message"), ("choices", 0, "message", "content")]
PLACES += [("choices", 0, "message", "tool_calls"), ("choices", 0, "index"), ("choices", 0, "finish_reason")]
PLACES += [("usage", "prompt_tokens"), ("usage", "prompt_tokens_details")]


@given(
    place=st.sampled_from(PLACES), value=JSON, cut=st.integers(0, 400), shape=st.sampled_from(["reply", "pair", "out"])
)
def test_nothing_in_a_line_can_break_the_reader(place: Any, value: Any, cut: int, shape: str) -> None:
    line = json.loads(json.dumps({**CHAT, "timings": TIMINGS}))
    target = line
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    whole = {"reply": line, "pair": {"request": value, "response": line}, "out": {**BATCH_OUT, "response": line}}[shape]
    text = json.dumps(whole)
    for name in ("openai-jsonl", "openai-batch"):
        found = read(CHAT if name == "openai-jsonl" else BATCH_OUT, text, text[:cut], name=name)
        assert any(each.where == "log:1" for each in cells(found))
        assert all(each.where in ("log:2", "log:3") for each in found if isinstance(each, Unread))
