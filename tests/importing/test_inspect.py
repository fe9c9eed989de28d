"""inspect_ai logs: model events of samples, in a document and in an archive, with its caches, pools and scores."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
import zstandard

from prefillgate.core.cells import Status
from prefillgate.importers.inspect_log import EARLIER, FROM_CACHE
from prefillgate.importers.zipped import ZSTANDARD, Archive
from tests.support.imports import (
    absent,
    as_document,
    cells_of,
    imported,
    read_bytes,
    spoiled,
    survives,
    unread,
    withstands,
)

USAGE = {"input_tokens": 2, "output_tokens": 5, "total_tokens": 247, "input_tokens_cache_read": 240}
MESSAGE = {"id": "m1", "role": "user", "content": "2+2?", "source": "input"}


def event(**more: Any) -> dict[str, Any]:
    choice = {"message": {"id": "a", "role": "assistant", "content": "four"}, "stop_reason": "stop"}
    return {
        "event": "model",
        "uuid": "u",
        "span_id": "solver",
        "timestamp": "2026-09-01T10:00:00+00:00",
        "completed": "2026-09-01T10:00:02+00:00",
        "model": "openai/m-q4",
        "input": [MESSAGE],
        "tools": [],
        "tool_choice": "none",
        "config": {},
        "output": {"model": "m-q4", "choices": [choice], "usage": USAGE, "time": 2.0},
        **more,
    }


def sample(*events: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "epoch": 1,
        "input": "2+2?",
        "target": "four",
        "messages": [MESSAGE, {"role": "assistant", "content": "four"}],
        "output": event()["output"],
        "scores": {"match": {"value": "C", "answer": "four"}},
        "events": list(events),
        "attachments": {},
        **more,
    }


def log(*samples: Any) -> dict[str, Any]:
    run = {
        "run_id": "r",
        "task": "sums",
        "task_id": "t",
        "model": "openai/m-q4",
        "dataset": {},
        "config": {"epochs": 2},
    }
    return {
        "version": 2,
        "status": "success",
        "eval": run,
        "plan": {},
        "results": {},
        "stats": {},
        "samples": list(samples),
    }


def archive(*samples: Any, compression: int = zipfile.ZIP_DEFLATED, header: bool = True) -> bytes:
    whole = log()
    del whole["samples"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as file:
        file.writestr("_journal/start.json", json.dumps({"version": 2, "eval": whole["eval"], "plan": {}}))
        for place, each in enumerate(samples):
            file.writestr(f"samples/{place}_epoch_1.json", each if isinstance(each, str) else json.dumps(each))
        if header:
            file.writestr("header.json", json.dumps(whole))
    return packed.getvalue()


def zstandard_archive(text: str) -> bytes:
    """An archive as inspect writes it today: its member is stored in Zstandard, with the method that says so."""
    packed = zstandard.ZstdCompressor().compress(text.encode())
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        info = zipfile.ZipInfo("samples/1_epoch_1.json")
        made.writestr(info, packed)
        info.compress_type, info.file_size = ZSTANDARD, len(text.encode())
        info.CRC = zipfile.crc32(text.encode())  # type: ignore[attr-defined]
    return file.getvalue()


SAMPLE = as_document(log(sample(event()), sample(event(), epoch=2)))


def one(*events: Any, **more: Any) -> Any:
    (found,) = imported(read_bytes(as_document(log(sample(*events, **more)))))
    return found


def test_each_model_event_is_a_cell_with_its_counts_times_label_and_prompt() -> None:
    found = read_bytes(SAMPLE)
    first = imported(found)[0]
    cell = first.line.cell
    assert (first.where, first.label) == ("log: samples[0].events[0]", "openai/m-q4")
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == (242, 240, 5)
    assert (cell.started_at, cell.ended_at, cell.finish_reason) == (1788256800.0, 1788256802.0, "stop")
    assert first.texts is not None and first.texts.content == "four"
    assert first.asked is not None and first.asked.body == {"messages": [{"role": "user", "content": "2+2?"}]}
    assert len({each.prompt_sha256 for each in cells_of(found)}) == 1, "an epoch repeats the prompt"
    assert (unread(found), absent(found)) == ([], {})


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_gives_what_the_document_gives(compression: int) -> None:
    found = read_bytes(archive(sample(event()), sample(event()), compression=compression))
    assert [each.where for each in imported(found)] == [
        "log: samples/0_epoch_1.json.events[0]",
        "log: samples/1_epoch_1.json.events[0]",
    ]
    assert [(cell.prompt_tokens, cell.cached_tokens) for cell in cells_of(found)] == [(242, 240)] * 2


def test_an_archive_that_was_not_finished_has_its_model_from_the_journal() -> None:
    plain = event()
    del plain["model"]
    assert imported(read_bytes(archive(sample(plain), header=False)))[0].label == "openai/m-q4"


def test_a_member_in_zstandard_is_read_and_a_wrong_one_refused() -> None:
    data = zstandard_archive(json.dumps(sample(event())))
    assert Archive(data).names() == ["samples/1_epoch_1.json"]
    assert cells_of(read_bytes(data))[0].prompt_tokens == 242
    broken = data.replace(zstandard.FRAME_HEADER, b"\0\0\0\0", 1)
    assert unread(read_bytes(broken)) == [
        ("log: samples/1_epoch_1.json", "a member of the archive that cannot be decompressed")
    ]


@pytest.mark.parametrize(
    ("usage", "prompt", "cached"),
    [
        (USAGE, 242, 240),
        ({"input_tokens": 242, "output_tokens": 5, "total_tokens": 247, "input_tokens_cache_read": 240}, 242, 240),
        ({"input_tokens": 242, "output_tokens": 5, "total_tokens": 247}, 242, None),
        ({"input_tokens": 242, "output_tokens": 5, "total_tokens": 999, "input_tokens_cache_read": 240}, None, 240),
        ({"input_tokens": 242, "output_tokens": 5, "input_tokens_cache_read": 0}, 242, 0),
        ({"input_tokens": 2, "output_tokens": 5, "total_tokens": 7, "input_tokens_cache_read": 9}, 2, None),
        ({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, None, None),
        (None, None, None),
    ],
)
def test_the_total_tells_whether_the_input_includes_what_was_cached(
    usage: Any, prompt: int | None, cached: int | None
) -> None:
    cell = one(event(output={**event()["output"], "usage": usage})).line.cell
    assert (cell.prompt_tokens, cell.cached_tokens) == (prompt, cached)


def test_a_logged_call_gives_the_request_and_the_servers_own_counters() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}], "max_tokens": 9}
    reply = {"usage": {"prompt_tokens": 242, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 7}}}
    found = one(event(call={"request": request, "response": reply}))
    assert found.asked.body == request
    assert found.line.cell.cached_tokens == 7


def test_messages_and_texts_that_are_stored_once_are_put_in_place() -> None:
    long = {"role": "user", "content": "attachment://abc"}
    kept = {"events_data": {"messages": [MESSAGE, long, MESSAGE], "calls": []}, "attachments": {"abc": "long text"}}
    found = one(event(input=[], input_refs=[[1, 2], [0, 1]]), **kept)
    assert [each["content"] for each in found.asked.body["messages"]] == ["long text", "2+2?"]
    assert one(event(input=[long])).asked is None, "an attachment that is missing makes the prompt unknown"


def test_ids_of_messages_do_not_make_two_prompts_of_one() -> None:
    other = one(event(input=[{**MESSAGE, "id": "another", "source": None}]))
    assert other.line.cell.prompt_sha256 == one(event()).line.cell.prompt_sha256


def test_tools_and_tool_calls_belong_to_the_prompt() -> None:
    tool = {"name": "add", "description": "adds", "parameters": {"type": "object"}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": "add", "arguments": {"a": 2}}]}
    found = one(event(input=[MESSAGE, call], tools=[tool]))
    assert found.asked.body["tools"][0]["function"]["name"] == "add"
    assert found.asked.body["messages"][1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2}'}


def test_an_answer_out_of_inspects_cache_is_no_request() -> None:
    found = read_bytes(as_document(log(sample(event(cache="read"), event(cache="write"), event(pending=True)))))
    assert len(imported(found)) == 1
    assert [why for _, why in unread(found)] == [
        FROM_CACHE,
        "a call that had not come back when the log was written",
    ]


def test_what_scorers_and_other_roles_asked_is_labelled_apart() -> None:
    begins = {"event": "span_begin", "id": "s1", "name": "scorers", "type": None, "parent_id": None}
    inner = {"event": "span_begin", "id": "s2", "name": "graded", "type": "scorer", "parent_id": "s1"}
    calls = event(), begins, inner, event(span_id="s2"), event(span_id="s2", role="grader")
    found = read_bytes(as_document(log(sample(*calls))))
    assert [each.label for each in imported(found)] == [
        "openai/m-q4",
        "openai/m-q4 (scorer)",
        "openai/m-q4 (grader)",
    ]
    assert [cell.bad for cell in cells_of(found)] == [False, None, None]
    begin, end = ({"event": "step", "action": action, "type": "scorer"} for action in ("begin", "end"))
    old = read_bytes(as_document(log(sample(event(span_id=None), begin, event(span_id=None), end))))
    assert [each.label for each in imported(old)] == ["openai/m-q4", "openai/m-q4 (scorer)"]


@pytest.mark.parametrize(
    ("scores", "bad"),
    [
        ({"match": {"value": "C"}}, False),
        ({"match": {"value": "I"}}, True),
        ({"match": {"value": "P"}}, None),
        ({"match": {"value": 1}}, None),
        ({"match": {"value": {"a": 1}}}, None),
        ({"match": {"value": "C"}, "other": {"value": "C"}}, None),
        (None, None),
    ],
)
def test_bad_is_one_score_of_one_call_and_else_unknown(scores: Any, bad: bool | None) -> None:
    assert one(event(), scores=scores).line.cell.bad is bad


def test_a_score_of_several_calls_judges_none_of_them() -> None:
    assert [cell.bad for cell in cells_of(read_bytes(as_document(log(sample(event(), event())))))] == [None, None]


def test_a_call_that_failed_is_invalid() -> None:
    found = one(event(error="Connection error.", output={"model": "m", "choices": [], "usage": None}))
    assert (found.line.cell.status, found.line.cell.bad, found.line.reason) == (
        Status.INVALID,
        None,
        "Connection error.",
    )


def test_a_log_without_events_tells_the_last_answer_alone() -> None:
    found = read_bytes(as_document(log(sample())))
    (last,) = imported(found)
    assert last.asked is not None and last.asked.body["messages"] == [{"role": "user", "content": "2+2?"}]
    assert (last.line.cell.prompt_tokens, last.line.cell.bad) == (242, False)
    assert EARLIER in absent(found)


def test_reasoning_is_kept_apart_and_a_length_stop_is_one() -> None:
    content = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "4"}]
    choice = {"message": {"role": "assistant", "content": content}, "stop_reason": "max_tokens"}
    found = one(event(output={"choices": [choice]}))
    assert (found.texts.content, found.texts.reasoning, found.line.cell.finish_reason) == ("4", "hm", "length")


def test_damage_is_named() -> None:
    found = read_bytes(as_document({**log(), "samples": [7, sample(event(input="x")), sample(event(output=[]))]}))
    assert [why for _, why in unread(found)] == [
        "a sample that is no object",
        "the input of a model event is no list of messages",
        "output is no object",
    ]
    without = log()
    del without["samples"]
    assert unread(read_bytes(as_document(without)))[0][1].startswith("a log without samples")
    assert [why for _, why in unread(read_bytes(archive("[1]", "{", "?")))] == [
        "a sample that is no object",
        "a member of the archive that is not JSON",
        "a member of the archive that is not JSON",
    ]


def test_no_hostile_input_is_a_traceback() -> None:
    packed = archive(sample(event()))
    whole = log(sample(event(), events_data={"messages": [MESSAGE]}))
    one = sample(event(input_refs=[[0, 1]], call={"response": {}}))
    withstands(
        "inspect", [SAMPLE, packed], lambda seed: [as_document(spoiled(whole, seed)), archive(spoiled(one, seed))]
    )
    survives(packed[:40] + b"\xff" * 60 + packed[100:], "inspect")
