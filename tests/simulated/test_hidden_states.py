"""Prefills draw a hidden state, copies inherit it, and the truth file tells both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulated import SimulatedServer, start_simulated

from .talk import ask, case, counters, get, post, text

BAD = "VERDICT: LGTM"


@pytest.fixture(scope="module")
def half_bad() -> Iterator[SimulatedServer]:
    with start_simulated(fault="bad-prefill=0.5", seed=11) as server:
        yield server


def test_copies_inherit_the_state_of_the_prefill_they_ride_on(half_bad: SimulatedServer) -> None:
    first = len(half_bad.truth())
    said = [[text(ask(half_bad, case(f"inherit {number}"))) for _ in range(3)] for number in range(12)]
    assert [len(set(answers)) for answers in said] == [1] * 12
    lines = half_bad.truth()[first:]
    groups = [lines[start : start + 3] for start in range(0, 36, 3)]
    assert [[line["fresh"] for line in group] for group in groups] == [[True, False, False]] * 12
    assert [len({line["prefill"] for line in group}) for group in groups] == [1] * 12
    states = [group[0]["state"] for group in groups]
    assert {"good", "bad"} == set(states)
    assert [answers[0] == BAD for answers in said] == [state == "bad" for state in states]


def test_each_fresh_prefill_of_one_prompt_draws_anew(half_bad: SimulatedServer) -> None:
    said = [text(ask(half_bad, case("anew"), cache_prompt=False)) for _ in range(16)]
    assert len(set(said)) == 2 and BAD in said
    lines = half_bad.truth()[-16:]
    assert len({line["prefill"] for line in lines}) == 16
    assert [line["outcome"] for line in lines] == ["bad" if answer == BAD else "good" for answer in said]


def test_several_results_ride_on_one_prefill(half_bad: SimulatedServer) -> None:
    for number in range(6):
        reply = ask(half_bad, case(f"several {number}"), n=3)
        assert len({choice["text"] for choice in reply["choices"]}) == 1
    sampled = ask(half_bad, case("several 6"), n=4, temperature=0.9, seed=5)["choices"]
    assert len({choice["text"] for choice in sampled}) in (1, 4)  # bad ones say the same


def test_a_truth_line_has_what_the_answer_reported(half_bad: SimulatedServer) -> None:
    for cached in (False, True):
        reply = ask(half_bad, case("reported"), cache_prompt=cached, seed=9)
        line = half_bad.truth()[-1]
        timings, usage = reply["timings"], reply["usage"]
        assert line["id"] == reply["id"]
        assert line["prompt_tokens"] == usage["prompt_tokens"] == line["cached_tokens"] + line["processed_tokens"]
        assert (line["cached_tokens"], line["processed_tokens"]) == (timings["cache_n"], timings["prompt_n"])
        assert (line["output_tokens"], line["decode_ms"]) == (timings["predicted_n"], timings["predicted_ms"])
        assert (line["prefill_ms"], line["seed"]) == (timings["prompt_ms"], 9)
        assert (line["cache_prompt"], line["knob_honoured"], line["lies"]) == (cached, True, [])
        assert line["reported"] == {"cached_tokens": timings["cache_n"], "processed_tokens": timings["prompt_n"]}
        assert (line["text"], line["delivered"], line["status"]) == (text(reply), "complete", 200)
        assert line["epoch"] == get(half_bad, "/props").json()["media_marker"]
        assert line["started_at"] <= line["ended_at"]


def _run(**options: Any) -> list[Any]:
    with start_simulated(fault=["bad-prefill=0.4", "slow-mode=0.5:3"], **options) as server:
        replies = []
        for number in range(9):
            fields = {"seed": number, "temperature": 0.7, "cache_prompt": number % 2 == 0, "max_tokens": 12}
            replies.append(post(server, {"prompt": case(f"same {number // 3}"), **fields}).json())
        return [(text(reply), reply["timings"], reply["usage"]) for reply in replies]


def test_equal_seeds_and_requests_give_equal_answers_at_any_speed() -> None:
    fast = _run(seed=5)
    assert fast == _run(seed=5, time_scale=0.02)
    assert fast != _run(seed=6)


def test_servers_that_share_a_text_seed_say_the_same_and_fail_apart() -> None:
    said = {}
    for seed in (1, 2):
        with start_simulated(seed=seed, text_seed=7, fault="bad-prefill=0.5") as server:
            said[seed] = [ask(server, case(f"{number}")) for number in range(16)]
    pairs = [(text(left), text(right)) for left, right in zip(said[1], said[2], strict=True)]
    assert all(left == right for left, right in pairs if BAD not in (left, right))
    assert {(left == BAD, right == BAD) for left, right in pairs} >= {(False, True), (True, False), (False, False)}
    times = [
        (left["timings"]["prompt_ms"], right["timings"]["prompt_ms"])
        for left, right in zip(*said.values(), strict=True)
    ]
    assert all(left != right for left, right in times)


def test_windows_and_first_ones_hit_the_counted_prompts_only() -> None:
    faults = ["bad-first=1", "bad-window=2:4"]
    with start_simulated(fault=faults, count_match="counted") as server:
        said = []
        for number in range(6):
            ask(server, f"[warm-up {number}] " + "nobody looks at this one " * 20)
            said.append(text(ask(server, case(f"counted {number}"))) == BAD)
        assert said == [True, False, True, True, False, False]
        assert [line["ordinal"] for line in server.truth()] == [None, 1, None, 2, None, 3, None, 4, None, 5, None, 6]


def test_a_true_regression_is_of_answers_or_of_prompts() -> None:
    faults = ["bad-rate=0.5@answers", "bad-prompt=0.5@prompts"]
    with start_simulated(fault=faults, seed=2) as server:
        again = [
            [text(ask(server, case(f"prompts {n}"), cache_prompt=False)) == BAD for _ in range(3)] for n in range(9)
        ]
        assert all(len(set(row)) == 1 for row in again)
        assert {row[0] for row in again} == {True, False}
        cold = {text(ask(server, case("answers"), cache_prompt=False)) == BAD for _ in range(12)}
        assert cold == {True, False}
        warm = [text(ask(server, case("answers"))) for _ in range(6)]
        assert len(set(warm)) == 1  # at temperature 0 a copy repeats its prefill
        drawn = {text(ask(server, case("answers"), temperature=1, seed=n)) == BAD for n in range(12)}
        assert drawn == {True, False}
        assert {line["state"] for line in server.truth()[9 * 3 :]} == {"good"}


def test_a_copy_of_a_bad_prefill_may_be_made_good_and_a_warm_answer_another_one() -> None:
    with start_simulated(fault=["bad-prefill=@story", "good-copy=#3", "warm-differs=@other"]) as server:
        said = [text(ask(server, case("story"))) == BAD for _ in range(4)]
        assert said == [True, True, False, True]
        assert [line["prefill"] for line in server.truth()] == [1] * 4
        cold, warm = (text(ask(server, case("other"))) for _ in range(2))
        assert cold != warm and BAD not in (cold, warm)
        assert text(ask(server, case("other"), cache_prompt=False)) == cold


def test_a_drift_begins_clean_and_ends_bad() -> None:
    with start_simulated(fault="drift=0:1:20") as server:
        said = [text(ask(server, case(f"{n}"))) == BAD for n in range(30)]
    assert not said[0] and said[20:] == [True] * 10


@pytest.mark.parametrize("kept", [False, True])
def test_a_restart_begins_an_epoch_and_loses_the_cache_unless_it_survives(kept: bool) -> None:
    faults = ["restart-every=2"] + (["restart-keeps-cache=1"] if kept else [])
    with start_simulated(fault=faults) as server:
        markers, found, processed = [], [], []
        for _ in range(5):
            markers.append(get(server, "/props").json()["media_marker"])
            processed.append(counters(server)["prompt_tokens_total"])
            found.append(ask(server, case("survivor"))["timings"]["cache_n"] > 50)
        assert markers[0] == markers[1] != markers[2] == markers[3] != markers[4]
        assert found == ([False, True, True, True, True] if kept else [False, True, False, True, False])
        assert [value == 0 for value in processed] == [True, False, True, False, True]
        assert [line["epoch"] for line in server.truth()] == markers


def test_answers_come_from_the_file_with_reasoning_and_tool_calls(tmp_path: Path) -> None:
    call = {"name": "lookup", "arguments": {"city": "Bern", "days": 3}}
    rows = [
        {
            "match": "[weather]",
            "text": "It will rain.",
            "bad_text": "dunno",
            "reasoning": "Clouds.",
            "tool_calls": [call],
        }
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    body = {"messages": [{"role": "user", "content": case("weather")}], "temperature": 0, "cache_prompt": False}
    with start_simulated(answers=path, fault="bad-prefill=#3") as server:
        whole = post(server, body, "/v1/chat/completions").json()["choices"][0]
        streamed = post(server, {**body, "stream": True}, "/v1/chat/completions").content
        bad = post(server, body, "/v1/chat/completions").json()["choices"][0]
    message = whole["message"]
    assert (message["content"], message["reasoning_content"]) == ("It will rain.", "Clouds.")
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == call["arguments"]
    assert whole["finish_reason"] == "tool_calls"
    assert bad["message"] == {"role": "assistant", "content": "dunno"}
    deltas = [event["choices"][0]["delta"] for event in _chunks(streamed) if event["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "It will rain."
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Clouds."
    calls = [part for delta in deltas for part in delta.get("tool_calls", [])]
    assert [part["function"].get("name") for part in calls].count("lookup") == 1
    assert json.loads("".join(part["function"]["arguments"] for part in calls)) == call["arguments"]


def _chunks(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(block[6:]) for block in content.split(b"\n\n") if block.startswith(b"data: {")]
