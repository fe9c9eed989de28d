"""What the gate relies on, held against the simulated server and against the real one."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from .conftest import FEW_SHOTS, Subject, words
from .shapes import events

LONG = 400  # words; the real server needs a second or more for them on one thread
LONGER = 700  # a core that computes these within the second between two comments is not built yet
OWN_COUNTERS = (
    "llamacpp:prompt_tokens_total",
    "llamacpp:prompt_tokens_cached_total",
    "llamacpp:tokens_predicted_total",
)


def counts(reply: dict[str, Any]) -> tuple[int, int, int]:
    """Prompt, cached and processed tokens; the two places of the cached count must agree."""
    cached = reply["timings"]["cache_n"]
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
    assert cached + reply["timings"]["prompt_n"] == reply["usage"]["prompt_tokens"]
    assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]
    return reply["usage"]["prompt_tokens"], cached, reply["timings"]["prompt_n"]


def test_a_repeat_is_a_copy_and_the_counters_say_so(server: Subject) -> None:
    first, second = (server.complete(words(11, 60)) for _ in range(2))
    total, cached, _ = counts(first)
    assert cached <= 1
    assert counts(second) == (total, total - 5, 5)  # the checkpoint of the sliding window lies there


def test_the_knob_makes_it_fresh_and_fresh_answers_are_equal(server: Subject) -> None:
    prompt = words(12, 50)
    total = counts(server.complete(prompt))[0]
    cold = [server.complete(prompt, cache_prompt=False) for _ in range(2)]
    assert [counts(reply) for reply in cold] == [(total, 0, total)] * 2
    assert cold[0]["choices"] == cold[1]["choices"]


def test_the_knob_blocks_reading_and_not_writing(server: Subject) -> None:
    prompt = words(13, 50)
    assert counts(server.complete(prompt, cache_prompt=False))[1] == 0
    total, cached, _ = counts(server.complete(prompt))
    assert cached == total - 5


def test_a_shared_beginning_is_no_copy_under_a_sliding_window(server: Subject) -> None:
    server.complete(words(14, 80))
    assert counts(server.complete(words(14, 64) + " " + words(15, 16)))[1] <= 1


def test_a_longer_prompt_goes_on_from_a_cached_one(server: Subject) -> None:
    prompt = words(16, 50)
    total = counts(server.complete(prompt))[0]
    longer, cached, processed = counts(server.complete(prompt + " and then something else happened"))
    assert (cached, processed) == (total - 5, longer - total + 5)


def test_the_host_cache_brings_an_overwritten_prompt_back(server: Subject) -> None:
    total = counts(server.complete(words(17, 50)))[0]
    for seed in (18, 19, 20):  # more than there are slots
        assert counts(server.complete(words(seed, 50)))[1] <= 1
    assert counts(server.complete(words(17, 50)))[1] == total - 5


def test_several_results_are_one_prefill(server: Subject) -> None:
    before = server.counters()
    reply = server.complete(words(21, 50), n=2, cache_prompt=False)
    after = server.counters()
    total, cached, processed = counts(reply)
    assert (cached, processed, len(reply["choices"])) == (0, total, 2)
    assert [choice["index"] for choice in reply["choices"]] == [0, 1]
    assert [after[name] - before[name] for name in OWN_COUNTERS] == [total, 0, 6]


@pytest.mark.parametrize("cached", [False, True])
def test_the_servers_own_counters_move_by_what_the_answer_says(server: Subject, cached: bool) -> None:
    prompt = words(22, 50)
    server.complete(prompt)
    before = server.counters()
    reply = server.complete(prompt, cache_prompt=cached)
    after = server.counters()
    timings = reply["timings"]
    told = [timings["prompt_n"], timings["cache_n"], timings["predicted_n"]]
    assert [after[name] - before[name] for name in OWN_COUNTERS] == told
    assert (timings["cache_n"] > 1) is cached


def test_the_last_chunk_of_a_stream_carries_what_the_whole_answer_does(server: Subject) -> None:
    body = {"prompt": words(23, 40), "max_tokens": 4, "temperature": 0, "cache_prompt": False}
    whole = server.post("/v1/completions", body).json()
    streamed = events(server.post("/v1/completions", {**body, "stream": True}).content)
    assert streamed[-1] == "[DONE]"
    assert [event for event in streamed[:-2] if "timings" in event or "usage" in event] == []
    assert streamed[-2]["usage"] == whole["usage"]
    assert counts(streamed[-2]) == counts(whole)
    assert "".join(event["choices"][0]["text"] for event in streamed[:-1]) == whole["choices"][0]["text"]


def test_usage_of_a_streamed_chat_comes_only_when_asked_for(server: Subject) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "temperature": 0, "stream": True}
    plain = events(server.post("/v1/chat/completions", body).content)
    asked = events(server.post("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}).content)
    assert [event for event in plain[:-1] if "usage" in event] == []
    assert plain[-2]["timings"]["predicted_n"] == 2
    assert (asked[-2]["choices"], asked[-2]["usage"]["completion_tokens"]) == ([], 2)
    assert counts(asked[-2])


def test_the_decode_time_spans_the_tokens_after_the_first(server: Subject) -> None:
    timings = server.complete(words(24, 20), max_tokens=5, ignore_eos=True)["timings"]
    assert timings["predicted_n"] == 5
    assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / 4)
    assert timings["predicted_per_second"] == pytest.approx(4000 / timings["predicted_ms"])
    one = server.complete(words(24, 20), max_tokens=1)["timings"]
    assert (one["predicted_n"], one["predicted_per_second"]) == (1, 0)


def test_unknown_fields_and_unknown_models_are_accepted(server: Subject) -> None:
    prompt = words(25, 40)
    server.complete(prompt)
    total, cached, _ = counts(server.complete(prompt, cache_salt="0" * 32, model="no-such-model"))
    assert cached == total - 5


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(server: Subject) -> None:
    choice = server.complete(FEW_SHOTS, max_tokens=9, stop=["\n"])["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "\n" not in choice["text"] and choice["text"].strip()


def test_a_limit_of_nothing_still_gives_a_token(server: Subject) -> None:
    reply = server.complete(words(26, 20), max_tokens=0)
    assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (1, "length")


def test_a_stream_opens_before_the_prefill_and_is_kept_alive_by_comments(server: Subject) -> None:
    body = {"prompt": words(27, LONGER), "max_tokens": 2, "temperature": 0, "stream": True, "cache_prompt": False}
    with server.client() as client, client.stream("POST", "/v1/completions", json=body) as reply:
        server.wait_until(busy=True)  # the headers are here, no byte of the answer was read
        assert server.counters()["llamacpp:requests_processing"] == 1
        raw = b"".join(reply.iter_raw())
    assert b":\n\n" in raw[: raw.index(b"data: ")]
    server.wait_until(busy=False)
    assert server.counters()["llamacpp:requests_processing"] == 0


def test_a_client_that_leaves_does_not_stop_the_prefill(server: Subject) -> None:
    # Whether the retry finds it depends on the moment the server notices: once among a few is the trap.
    tries = (_leave_and_ask_again(server, words(seed, LONG)) for seed in (28, 128, 228, 328))
    assert any(cached >= total - 10 for total, cached in tries)


def _leave_and_ask_again(server: Subject, prompt: str) -> tuple[int, int]:
    """Prompt tokens of the retry and how many of them ride on what was computed for nobody."""
    before = server.counters()[OWN_COUNTERS[0]]
    body = {"prompt": prompt, "max_tokens": 50, "temperature": 0, "stream": True, "cache_prompt": False}
    with server.client() as client, client.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200  # leaves now: headers come before the prefill
    assert server.busy() == 1
    server.wait_until(busy=False)
    computed = server.counters()[OWN_COUNTERS[0]] - before
    total, cached, _ = counts(server.complete(prompt))
    assert total - 5 <= computed <= total  # it may look up before the last few tokens
    return total, cached


def test_without_a_key_only_health_answers(guarded: Subject) -> None:
    stranger = Subject(guarded.name, guarded.host, {})
    assert stranger.get("/health").json() == {"status": "ok"}
    refusals = [stranger.get(path) for path in ("/v1/models", "/props", "/slots", "/metrics", "/nothing")]
    refusals.append(stranger.post("/v1/completions", {"prompt": "x", "max_tokens": 1}))
    error = {"message": "Invalid API Key", "type": "authentication_error", "code": 401}
    assert [(reply.status_code, reply.json()) for reply in refusals] == [(401, {"error": error})] * 6
    assert guarded.get("/v1/models").status_code == 200


def test_metrics_that_are_off_say_how_to_switch_them_on(guarded: Subject) -> None:
    reply = guarded.get("/metrics")
    words_of_it = "This server does not support metrics endpoint. Start it with `--metrics`"
    assert (reply.status_code, reply.json()["error"]) == (
        501,
        {"code": 501, "message": words_of_it, "type": "not_supported_error"},
    )


def test_every_shared_beginning_is_reused_without_a_sliding_window(guarded: Subject) -> None:
    start = words(29, 60)
    shared = counts(guarded.complete(start + " apple pie"))[0]
    total, cached, processed = counts(guarded.complete(start + " heavy rain fell on the roof"))
    assert 0.8 * shared < cached < shared < total
    assert counts(guarded.complete(start + " heavy rain fell on the roof")) == (total, total - 1, 1)
    assert processed > 1


def test_without_a_host_cache_an_overwritten_prompt_is_gone(guarded: Subject) -> None:
    guarded.complete(words(30, 50))
    guarded.complete(words(31, 50))
    assert counts(guarded.complete(words(30, 50)))[1] <= 1


def test_a_life_has_one_marker_and_a_loading_server_says_so(server: Subject) -> None:
    marker = server.get("/props").json()["media_marker"]
    assert server.get("/props").json()["media_marker"] == marker
    server.complete(words(32, 40))
    seen: list[tuple[int, Any]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            try:
                reply = server.get("/props")
            except httpx.TransportError:
                continue
            seen.append((reply.status_code, reply.json()))
            if reply.status_code == 200 and len(seen) > 1 and seen[-2][0] == 503:
                return
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        server.host.restart()
        watcher.join(60)
    finally:
        done.set()
        watcher.join()
    error = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    assert next(reply for status, reply in seen if status == 503) == error
    assert seen[-1][1]["media_marker"] != marker
    assert counts(server.complete(words(32, 40)))[1] <= 1
