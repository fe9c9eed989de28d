"""A reply is put together from its chunks; text, reasoning and tool calls apart. What makes it no answer is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefillgate.engines.assemble import Assembly, Failure, error_message, joined


def chunk(delta: Any = None, finish: Any = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}


def streamed(*chunks: Any, done: bool = True) -> Assembly:
    assembly = Assembly()
    for item in chunks:
        assembly.add_data(json.dumps(item))
    if done:
        assembly.add_data("[DONE]")
    return assembly


def whole(payload: Any) -> Assembly:
    assembly = Assembly()
    assembly.add_whole(payload)
    return assembly


def test_chat_deltas_become_one_text_with_its_finish_reason() -> None:
    pieces = [chunk({"content": text}) for text in ("Hel", "lo")]
    assembly = streamed(chunk({"role": "assistant", "content": None}), *pieces, chunk({}, "stop"))
    assert (assembly.content, assembly.finish_reason, assembly.choices) == ("Hello", "stop", 1)
    assert assembly.failure() is None
    assert assembly.findings == []


def test_completion_chunks_and_whole_replies_give_the_same() -> None:
    pieces = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("a", "b")]
    last = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": {"prompt_tokens": 3}}
    one = {"choices": [{"index": 0, "text": "ab", "finish_reason": "length"}], "usage": {"prompt_tokens": 3}}
    for assembly in (streamed(*pieces, last), whole(one)):
        assert (assembly.content, assembly.finish_reason) == ("ab", "length")
        assert assembly.usage == {"prompt_tokens": 3}
        assert assembly.failure() is None


def test_a_whole_chat_reply_gives_its_message() -> None:
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "Think"}
    assembly = whole({"id": "x1", "choices": [{"message": message, "finish_reason": "stop"}]})
    assert (assembly.content, assembly.reasoning, assembly.request_id) == ("Hi", "Think", "x1")
    assert assembly.done


def test_only_pieces_of_the_answer_count_as_pieces() -> None:
    assembly = Assembly()
    assert not assembly.add_chunk(chunk({"role": "assistant", "content": ""}))
    assert assembly.add_chunk(chunk({"content": "x"}))
    assert assembly.add_chunk(chunk({"reasoning": "x"}))
    assert assembly.add_chunk(chunk({"tool_calls": [{"index": 0, "id": "c"}]}))
    assert not assembly.add_chunk({"choices": [], "usage": {}})
    assert not assembly.add_data("[DONE]")


def test_reasoning_goes_under_either_name_and_is_not_doubled_when_both_are_sent() -> None:
    assert streamed(chunk({"reasoning": "a"}), chunk({"reasoning_content": "b"})).reasoning == "ab"
    assert streamed(chunk({"reasoning": "a", "reasoning_content": "a"})).reasoning == "a"


def test_reasoning_alone_is_an_answer() -> None:
    assembly = streamed(chunk({"reasoning_content": "hmm"}), chunk({}, "stop"))
    assert assembly.content == ""
    assert assembly.failure() is None


def test_tool_calls_alone_are_an_answer() -> None:
    assembly = whole({"choices": [{"message": {"content": None, "tool_calls": [TOOL]}, "finish_reason": "tool_calls"}]})
    assert assembly.failure() is None
    assert json.loads(assembly.tool_calls) == [TOOL]


TOOL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}


def test_tool_call_deltas_are_joined_by_their_index_in_its_order() -> None:
    assembly = streamed(
        chunk({"tool_calls": [{"index": 1, "id": "call_2", "function": {"name": "go", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "look"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        chunk({}, "tool_calls"),
    )
    second = {"id": "call_2", "type": "function", "function": {"name": "go", "arguments": "{}"}}
    assert json.loads(assembly.tool_calls) == [TOOL, second]


def test_tool_calls_without_index_keep_their_place_and_objects_become_text() -> None:
    calls = [{"function": {"name": "a", "arguments": {"x": "é"}}}, {"function": {"name": "b"}}]
    assembly = streamed(chunk({"tool_calls": calls}), chunk({}, "stop"))
    assert [call["function"]["arguments"] for call in json.loads(assembly.tool_calls)] == ['{"x":"é"}', ""]
    assert [call["id"] for call in json.loads(assembly.tool_calls)] == [None, None]


def test_no_tool_call_is_an_empty_text() -> None:
    assert streamed(chunk({"content": "x", "tool_calls": []}, "stop")).tool_calls == ""


def test_usage_and_timings_are_handed_on_as_they_came_the_last_one_wins() -> None:
    assembly = streamed(chunk({"content": "a"}, usage={"n": 1}, timings=None), {"usage": {"n": 2}, "timings": {"m": 3}})
    assert (assembly.usage, assembly.timings) == ({"n": 2}, {"m": 3})
    assert streamed(chunk({"content": "a"})).usage is None


def test_a_stream_without_finish_reason_and_done_was_cut() -> None:
    failure = streamed(chunk({"content": "Hel"}), done=False).failure()
    assert failure == Failure("CutStream", "the stream ended without a finish reason and without [DONE]")


def test_a_finish_reason_without_done_is_an_answer_with_a_finding() -> None:
    assembly = streamed(chunk({"content": "Hel"}, "stop"), done=False)
    assert assembly.failure() is None
    assert assembly.findings == ["the stream ended without [DONE]"]


def test_done_without_a_finish_reason_is_a_failed_delivery() -> None:
    failure = streamed(chunk({"content": "Hel"})).failure()
    assert failure == Failure(
        "NoFinishReason", "the reply tells no finish reason: a delivery that failed, not an answer"
    )


@pytest.mark.parametrize(("finish", "told"), [("stop", "finish reason 'stop'"), (None, "no finish reason")])
def test_an_empty_text_is_a_failed_delivery(finish: str | None, told: str) -> None:
    for assembly in (
        streamed(chunk({"content": ""}, finish)),
        whole({"choices": [{"message": {"content": ""}, "finish_reason": finish}]}),
        whole({"choices": [{"text": "", "finish_reason": finish}]}),
    ):
        failure = assembly.failure()
        assert failure is not None
        assert failure.reason == "EmptyAnswer"
        assert failure.detail == f"the reply holds no text, no reasoning and no tool call ({told})"


def test_no_choice_at_all_is_a_failed_delivery() -> None:
    for assembly in (streamed({"choices": []}), whole({"choices": []}), whole({"choices": None}), whole({})):
        failure = assembly.failure()
        assert failure is not None and failure.reason == "EmptyAnswer"


@pytest.mark.parametrize(
    "payload",
    [
        {"error": {"message": "out of memory", "type": "server_error", "code": 500}},
        {"object": "error", "message": "out of memory", "type": "server_error"},
    ],
)
def test_an_error_object_in_the_stream_fails_whatever_came_before(payload: Any) -> None:
    assembly = streamed(chunk({"content": "Hello"}, "stop"), payload)
    assert assembly.failure() == Failure("ErrorInStream", "server_error: out of memory")
    assert assembly.content == "Hello"


def test_an_error_event_fails_with_its_message() -> None:
    for data, detail in (('{"message":"boom"}', "boom"), ('{"error":{"message":"boom"}}', "boom")):
        assembly = Assembly()
        assembly.add_data(data, "error")
        assert assembly.failure() == Failure("ErrorInStream", detail)
    assembly = Assembly()
    assembly.add_data("plain words", "error")
    failure = assembly.failure()
    assert failure is not None and failure.reason == "ErrorInStream" and "plain words" in failure.detail


def test_a_null_error_is_no_error() -> None:
    assert streamed(chunk({"content": "x"}, "stop", error=None)).failure() is None


@pytest.mark.parametrize("data", ["not json", "", "{", "[" * 100_000, "1" * 5000])
def test_an_event_that_is_not_json_fails(data: str) -> None:
    assembly = Assembly()
    assert not assembly.add_data(data)
    failure = assembly.failure()
    assert failure is not None and failure.reason == "NotJson"
    assert len(failure.detail) < 500


@pytest.mark.parametrize("payload", [[], "text", 3, None, True])
def test_a_reply_that_is_no_object_fails(payload: Any) -> None:
    for assembly in (streamed(payload), whole(payload)):
        failure = assembly.failure()
        assert failure is not None and failure.reason == "NotJson"


def test_the_first_failure_stays() -> None:
    assembly = streamed({"error": "first"}, {"error": "second"})
    assert assembly.failure() == Failure("ErrorInStream", "first")


def test_more_than_one_choice_is_counted_and_only_the_first_is_read() -> None:
    assembly = streamed(chunk({"content": "a"}), chunk({"content": "b"}, "stop", index=3), chunk({}, "length"))
    assert (assembly.choices, assembly.content, assembly.finish_reason) == (4, "a", "length")
    one = whole({"choices": [{"text": "a", "finish_reason": "stop"}, {"text": "b", "finish_reason": "length"}]})
    assert (one.choices, one.content, one.finish_reason) == (2, "a", "stop")


@pytest.mark.parametrize(
    ("payload", "finding"),
    [
        ({"choices": {"a": 1}}, "choices is dict, not a list"),
        ({"choices": ["x"]}, "a choice is str, not an object"),
        ({"choices": [{"delta": "x"}]}, "delta is str, not an object"),
        (chunk({"content": 7}), "content is int, not text"),
        (chunk({"reasoning": {"a": 1}}), "reasoning is dict, not text"),
        (chunk({"tool_calls": {"a": 1}}), "tool_calls is dict, not a list"),
        (chunk({"tool_calls": ["x"]}), "a tool call is str, not an object"),
        (chunk({"content": "x"}, usage=[1]), "usage is list, not an object"),
        (chunk({"content": "x"}, timings="fast"), "timings is str, not an object"),
    ],
)
def test_a_field_of_the_wrong_type_is_unknown_and_told_once(payload: Any, finding: str) -> None:
    assert streamed(payload, payload).findings == [finding]


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, "odd", {"type": "text", "text": "b"}]
    assert streamed(chunk({"content": parts}, "stop")).content == "ab"


def test_halves_of_a_surrogate_pair_meet_across_chunks_and_a_lone_half_is_replaced() -> None:
    assert joined(["\ud83d", "\ude00"]) == "\U0001f600"
    assert joined(["a\ud83d", "b"]) == "a\ufffdb"
    assert joined(["é", "x"]) == "éx"
    assembly = Assembly()
    assembly.add_data('{"choices":[{"delta":{"content":"\\ud83d"}}]}')
    assembly.add_data('{"choices":[{"delta":{"content":"\\ude00\\u0000"},"finish_reason":"stop"}]}')
    assert assembly.content == "\U0001f600\x00"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"error": {"type": "t", "message": "m"}}, "t: m"),
        ({"error": {"message": "m"}}, "m"),
        ({"error": "m"}, "m"),
        ({"detail": "m"}, "m"),
        ({"error": {"code": 5}}, '{"code": 5}'),
        (["odd"], '["odd"]'),
    ],
)
def test_error_messages_are_found_in_every_usual_shape(payload: Any, words: str) -> None:
    assert error_message(payload) == words


def test_an_error_message_is_one_clean_line_under_500_characters() -> None:
    words = error_message({"error": "a\x1b[31m\nb" + "x" * 900})
    assert "\x1b" not in words and "\n" not in words
    assert len(words) < 500
