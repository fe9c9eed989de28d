"""vLLM's request log in the shapes of several versions: prompts where it tells them, cached tokens nowhere."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.core.cells import Status
from prefillgate.importers.base import Imported
from prefillgate.importers.registry import find_format
from prefillgate.importers.source import Source
from tests.support.imports import absent, cells_of, imported, read_bytes, unread

CUT = "a line of a request that is cut or damaged"
PARAMS = (
    "SamplingParams(n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, temperature=0.5, "
    "top_p=1.0, top_k=-1, min_p=0.0, seed=None, stop=['\\n\\n', \"it's\"], max_tokens=512)"
)
IDS = "[128000, 12805, 5304, 264, 892, 11]"
STATS = (
    "INFO 12-06 14:08:57 metrics.py:449] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, "
    "Running: 0 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.0%, CPU KV cache usage: 0.0%.\n"
)
V0 = (
    f"INFO 12-06 14:09:27 logger.py:37] Received request cmpl-a-0: prompt: 'Once \\'upon\\'\\n a time,', "
    f"params: {PARAMS}, prompt_token_ids: {IDS}, lora_request: None, prompt_adapter_request: None.\n"
    "INFO 12-06 14:09:27 engine.py:267] Added request cmpl-a-0.\n"
)
OLDEST = (
    "INFO 02-20 21:36:30 async_llm_engine.py:433] Received request cmpl-b-1: prompt: None, prefix_pos: None,"
    f"sampling_params: {PARAMS}, prompt_token_ids: [5195, 407, 30], lora_request: None.\n"
)
V1 = (
    f"INFO 09-03 03:00:37 [logger.py:43] Received request chatcmpl-c: prompt: '<|user|>hi', params: {PARAMS}, "
    "prompt_token_ids: None, prompt_embeds shape: None, lora_request: None, prompt_adapter_request: None.\n"
)
NEW = (
    f'(APIServer pid=1) DEBUG 11-05 12:39:35 [logger.py:50] Request chatcmpl-d details: prompt: "it\'s", '
    f"prompt_token_ids: {IDS}, prompt_embeds shape: None.\n"
    f"(APIServer pid=1) INFO 11-05 12:39:35 [logger.py:60] Received request chatcmpl-d: params: {PARAMS}, "
    "lora_request: None.\n"
)
QUIET = (
    f"(APIServer pid=1) INFO 11-05 12:39:35 [logger.py:60] Received request chatcmpl-e: params: {PARAMS}, lora: 0.\n"
)
PREVIEW = f"INFO 11-05 12:39:35 [logger.py:60] Received request chatcmpl-f: params: {PARAMS}, lora: 0, prompt: 'hi'.\n"
OUTPUT = (
    "INFO 11-05 12:39:36 [logger.py:80] Generated response chatcmpl-c (streaming complete): output: 'yo', "
    "output_token_ids: [5, 6], finish_reason: stop\n"
)
ACCESS = 'INFO:     127.0.0.1:34612 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


def read(log: str) -> list[Imported]:
    return imported(read_bytes(log.encode(), "vllm-log"))


@pytest.mark.parametrize("log", [V0, OLDEST, V1, NEW, QUIET, PREVIEW, STATS])
def test_it_is_recognised_in_all_its_shapes(log: str) -> None:
    assert find_format(Source(io.BytesIO(log.encode()), "log")).name == "vllm-log"


@pytest.mark.parametrize(
    ("log", "prompt", "tokens"),
    [
        (V0, "Once 'upon'\n a time,", 6),
        (OLDEST, None, 3),
        (V1, "<|user|>hi", None),
        (NEW, "it's", 6),
        (QUIET, None, None),
        (PREVIEW, "hi", None),
    ],
    ids=["0.6", "0.3", "0.10", "debug", "info", "preview"],
)
def test_a_request_is_read_in_the_shapes_of_several_versions(log: str, prompt: str | None, tokens: int | None) -> None:
    (found,) = read(log)
    assert (found.asked and found.asked.body["prompt"]) == prompt
    assert (found.line.cell.prompt_tokens, found.line.cell.cached_tokens) == (tokens, None)
    assert found.line.cell.started_at is None, "its times have no year"


def test_a_case_is_the_rendered_prompt_with_the_sampling_that_was_asked_for() -> None:
    (found,) = read(V0)
    assert found.asked is not None and found.asked.path == "/v1/completions"
    body = {key: value for key, value in found.asked.body.items() if key != "prompt"}
    assert body == {"temperature": 0.5, "max_tokens": 512, "stop": ["\n\n", "it's"]}


def test_a_prompt_that_quotes_a_log_is_a_prompt() -> None:
    said = "x, params: top_k=3, prompt_token_ids: [1], Received request y: prompt: 'z', HTTP/1.1"
    for log in (V1.replace("'<|user|>hi'", repr(said)), NEW.replace('"it\'s"', repr(said))):
        (found,) = read(log)
        assert found.asked is not None
        assert (found.asked.body["prompt"], found.asked.body.get("top_k")) == (said, None)
        assert found.line.cell.prompt_tokens in (None, 6)


def test_an_output_is_that_of_its_request_and_requests_keep_their_order() -> None:
    first, second = read(V0 + V1 + OUTPUT)
    assert (first.line.cell.request_id, first.texts) == ("cmpl-a-0", None)
    assert second.texts is not None and second.texts.content == "yo"
    assert (second.line.cell.output_tokens, second.line.cell.finish_reason) == (2, "stop")


def test_a_streamed_piece_is_no_output_and_an_empty_one_is_a_failed_delivery() -> None:
    delta = OUTPUT.replace("complete", "delta")
    (found,) = read(V1 + delta)
    assert found.texts is None
    (found,) = read(V1 + OUTPUT.replace("'yo'", "''"))
    assert (found.line.cell.status, found.line.reason) == (Status.FAILED, "EmptyAnswer")


def test_access_lines_are_requests_only_where_nothing_else_tells_of_them() -> None:
    refused = ACCESS.replace("200 OK", "503 Service Unavailable")
    other = ACCESS.replace("POST /v1/chat/completions", "GET /metrics")
    found = read(STATS + V0 + ACCESS + ACCESS + refused + other)
    told = [(each.line.cell.status, each.line.http_status, each.where) for each in found]
    assert told == [(Status.OK, None, "log:2"), (Status.OK, 200, "log:5"), (Status.INVALID, 503, "log:6")]


def test_an_aborted_request_is_an_invalid_cell() -> None:
    (found,) = read(V0 + "INFO 12-06 14:09:28 async_llm.py:300] Aborted request cmpl-a-0.\n")
    assert (found.line.cell.status, found.line.reason) == (Status.INVALID, "aborted")


def test_prompts_that_are_cut_are_no_prompts_and_are_counted() -> None:
    start = "INFO 09-03 03:00:00 [utils.py:233] non-default args: {'model': 'm', 'max_log_len': 10}\n"
    found = read_bytes((start + V1 + V0 + PREVIEW).encode(), "vllm-log")
    assert [each.asked is None for each in imported(found)] == [True, True, False]
    assert "2 prompts whole: they are cut" in absent(found)
    long = PREVIEW.replace("'hi'", repr("x" * 4096))
    assert read(long)[0].asked is None
    assert read(PREVIEW.replace("'hi'", repr("x" * 4095)))[0].asked is not None
    assert read(V1.replace("'<|user|>hi'", repr("x" * 5000)))[0].asked is not None, "no limit unless one is told"


def test_token_numbers_that_are_cut_tell_no_length() -> None:
    start = "args: Namespace(model='m', max_log_len=6)\n"
    assert cells_of(read_bytes((start + V0).encode(), "vllm-log"))[0].prompt_tokens is None
    start = "args: Namespace(model='m', max_log_len=7)\n"
    assert cells_of(read_bytes((start + V0).encode(), "vllm-log"))[0].prompt_tokens == 6


def test_cached_tokens_are_said_to_be_in_no_log_of_vllm_with_what_its_statistics_tell() -> None:
    rates = "INFO [loggers.py:111] Engine 000: Avg prompt throughput: 0.9 tokens/s, Prefix cache hit rate: 43.2%\n"
    told = absent(read_bytes((STATS + QUIET + rates).encode()))
    (what,) = [each for each in told if each.startswith("cached tokens")]
    assert what.endswith("its statistics: up to 43.2 %)") and "--enable-prompt-tokens-details" in str(told[what])
    assert "DEBUG" in str(told["prompts"]) and "--max-log-len" in str(told["prompts"])
    assert told["outputs"] == "vLLM --enable-log-outputs"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("INFO Received request x: pro\n", CUT),
        ("INFO Received request x: prompt: '\\xZZ', params: 3\n", "a prompt that cannot be read"),
        ("INFO Generated response x: output: 'yo\n", CUT),
        ("INFO Generated response x: output: '\\N{no}', \n", "a response that cannot be read"),
        ("Received request " + "x" * 17_000_000 + "\n", "the line is longer than 16777216 bytes"),
    ],
)
def test_damaged_lines_are_named(line: str, why: str) -> None:
    found = read_bytes((V0 + line + V1).encode(), "vllm-log")
    assert unread(found) == [("log:3", why)]
    read_ones = {"cmpl-a-0", "chatcmpl-c"}
    assert {cell.request_id for cell in cells_of(found)} == read_ones | ({"x"} if "\\N" in line else set())


@given(st.data())
def test_nothing_in_a_log_can_break_the_reader(data: st.DataObject) -> None:
    lines = (V0 + OLDEST + V1 + NEW + QUIET + PREVIEW + OUTPUT + ACCESS + STATS).splitlines()
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=20))
    cut = [line[: data.draw(st.integers(0, len(line)))] + data.draw(st.text(max_size=3)) for line in chosen]
    read_bytes("\n".join(cut).encode("utf-8", "replace"), "vllm-log")


def test_a_long_hostile_line_is_read_in_one_pass() -> None:
    line = 'Received request x: prompt: "' + '\\"' * 500_000
    assert unread(read_bytes(line.encode(), "vllm-log")) == [("log:1", CUT)], "quadratic, it would not end"
