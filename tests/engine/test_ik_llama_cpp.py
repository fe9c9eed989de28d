"""ik_llama.cpp and llama.cpp's own older builds by their schema: every difference to a current server is handled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines.base import Activity, Answer, CellRequest, Counters
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.ik_llama_cpp import IkLlamaCpp
from prefillgate.engines.llama_cpp import PAST_A_MILLION, LlamaCpp
from tests.support.small_engines import (
    CHAT,
    COMPLETIONS,
    IK_LLAMA,
    Body,
    Speaks,
    Totals,
    ik_timings,
    llama_metrics,
    small_engine,
)

SHORT = EngineOptions(probe_words=120, attempts=1)


def speaks(routes: Mapping[str, Any] | None = None, **changes: Any) -> Speaks:
    """The fork with some of its routes changed; None takes one away."""
    changed = {path: value for path, value in {**IK_LLAMA.routes, **(routes or {})}.items() if value is not None}
    return replace(IK_LLAMA, routes=changed, **changes)


async def ask(engine: LlamaCpp, stream: bool = True, proof: str | None = "cache_off", path: str = CHAT) -> Answer:
    text = "Notes of the week. " * 40
    body: Body = {"max_tokens": 12}
    body |= {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    return await engine.generate(engine.prepare(CellRequest(path, body, None, 1, "n", proof, stream)), 10)


async def test_the_knob_the_counter_and_the_totals_are_shown_without_cache_n() -> None:
    with small_engine(IK_LLAMA) as server:
        async with IkLlamaCpp(server.url, SHORT) as engine:
            shown, look = await engine.probe("salt", None), await engine.look()
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree) == (True, "cache_off", True)
    assert (shown.findings, shown.decode_times) == ((), True)
    assert [body.get("cache_prompt") for _, body in server.seen] == [False, None, False]
    assert look.counters == Counters(server.totals.prompt - server.totals.cached, None, 6)
    assert (look.activity, look.epoch) == (Activity(0, 0), f"start-{8127001 + server.totals.started}")


@pytest.mark.parametrize("stream", [True, False])
async def test_cached_tokens_are_what_was_not_processed_streamed_and_whole(stream: bool) -> None:
    with small_engine(IK_LLAMA) as server:
        async with IkLlamaCpp(server.url, SHORT) as engine:
            cold, warm = await ask(engine, stream), await ask(engine, stream, None)
    assert cold.prompt_tokens is not None
    assert (cold.cached_tokens, cold.processed_tokens) == (0, cold.prompt_tokens)
    assert (warm.cached_tokens, warm.processed_tokens) == (cold.prompt_tokens - 1, 1)
    assert (warm.prefill_ms, warm.decode_ms) == (2.5, 360.0)
    assert (cold.reasoning, cold.content[:9], cold.findings) == ("Let me think.", "The ferry", ())


@pytest.mark.parametrize(
    ("prompt_n", "alive", "finding"),
    [
        (None, False, "tell no timings.prompt_n beside their prompt tokens: independence unknown"),
        ("12", False, "prompt_n is"),
        (0, False, "never sent before was reported with 121 of 121 tokens cached: the counter cannot be trusted"),
        (121, False, "an exact repeat was reported with 0 cached tokens: the counter is dead"),
        (500, False, "counters contradict each other: 500 processed of 121 prompt tokens"),
    ],
)
async def test_a_processed_count_that_is_absent_odd_or_stands_still_proves_nothing(
    prompt_n: Any, alive: bool, finding: str
) -> None:
    def timings(prompt: int, cached: int, output: int) -> Body:
        return {**ik_timings(prompt, cached, output), "prompt_n": prompt_n}

    with small_engine(speaks(timings=timings)) as server:
        async with IkLlamaCpp(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (alive, None)
    assert any(finding in words for words in shown.findings), shown.findings


async def test_a_flag_that_is_ignored_is_told() -> None:
    with small_engine(speaks(cache_flag=None)) as server:
        async with IkLlamaCpp(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (True, None)
    assert (
        "`cache_prompt: false` is not honoured: by the replies' own count 0 and 120 of 121 prompt" in shown.findings[0]
    )


async def test_a_newer_build_that_tells_cache_n_is_read_by_it() -> None:
    def timings(prompt: int, cached: int, output: int) -> Body:
        return {**ik_timings(prompt, cached, output), "cache_n": cached}

    with small_engine(speaks(timings=timings)) as server:
        async with IkLlamaCpp(server.url, SHORT) as engine:
            await ask(engine)
            warm = await ask(engine, proof=None)
    assert warm.prompt_tokens is not None
    assert (warm.cached_tokens, warm.processed_tokens, warm.findings) == (warm.prompt_tokens - 1, 1, ())


async def test_discovery_tells_weights_context_and_flat_settings_and_no_build() -> None:
    with small_engine(IK_LLAMA) as server:
        async with IkLlamaCpp(server.url, SHORT) as engine:
            found = await engine.discover()
            assert await engine.epoch() == found.server_epoch == f"start-{8127001 + server.totals.started}"
    assert (found.engine, found.build, found.model) == ("ik_llama.cpp", None, "deepseek-q4")
    assert (found.weights, found.context_tokens, found.slots) == ("deepseek-q4.gguf", 16384, 1)
    settings = dict(found.settings)
    assert (settings["default.temperature"], settings["default.top_k"]) == ("0.8", "40")
    assert settings["default.samplers"] == '["top_k","min_p"]'
    assert not {"default.seed", "default.stream", "default.n_ctx", "default.model", "speculation"} & set(settings)


async def test_without_metrics_nothing_marks_a_life_and_the_slots_tell_the_work_by_their_state() -> None:
    slots = [{"id": 0, "state": 1}, {"id": 1, "state": 0}]
    with small_engine(speaks({"/slots": slots}, metrics=None)) as server:
        async with IkLlamaCpp(server.url, SHORT) as engine:
            look, shown = await engine.look(), await engine.probe("salt", None)
    assert (look.activity, look.epoch, look.counters) == (Activity(running=1), None, None)
    assert "start the server with --metrics" in shown.findings[0]


@pytest.mark.parametrize(
    ("slots", "health", "activity"),
    [
        ([{"is_processing": True}, {"is_processing": False}], None, Activity(running=1)),
        ([{"state": 0}, {"state": 0}], None, Activity(running=0)),
        ([{"state": 2, "is_processing": False}], None, Activity(running=0)),
        ([{"id": 0}], {"slots_processing": 3, "slots_idle": 1}, Activity(running=3)),
        ([{"id": 0}, {"state": 1}], {"status": "ok"}, Activity()),
        ([{"state": True}], None, Activity()),
        ([], {"slots_processing": 0}, Activity(running=0)),
        (None, {"slots_processing": 0}, Activity(running=0)),
        (None, {"slots_processing": True}, Activity()),
        (None, {"slots_processing": -1}, Activity()),
        (None, {"status": "ok"}, Activity()),
        (None, None, Activity()),
    ],
)
async def test_work_is_read_from_both_forms_of_a_slot_and_else_from_an_older_health(
    slots: Any, health: Any, activity: Activity
) -> None:
    with small_engine(speaks({"/slots": slots, "/health": health}, metrics=None)) as server:
        async with LlamaCpp(server.url, SHORT) as engine:
            assert await engine.activity() == activity


async def test_totals_past_a_million_have_lost_the_digits_of_a_request_and_are_unknown() -> None:
    def metrics(totals: Totals) -> str:
        return llama_metrics(replace(totals, prompt=totals.prompt + 1_234_567))

    with small_engine(speaks(metrics=metrics)) as server:
        async with LlamaCpp(server.url, SHORT) as engine:
            shown, look = await engine.probe("salt", None), await engine.look()
    assert "1.23457e+06" in metrics(Totals())
    assert look.counters == Counters(None, None, 6)
    assert (shown.cold_proof, shown.counters_agree, shown.findings) == ("cache_off", None, (PAST_A_MILLION,))


async def test_totals_just_short_of_a_million_and_those_printed_whole_are_counted() -> None:
    def whole(totals: Totals) -> str:
        return f"llamacpp:prompt_tokens_total {1_234_567 + totals.prompt - totals.cached}\n"

    def short(totals: Totals) -> str:
        return llama_metrics(replace(totals, prompt=totals.prompt + 990_000))

    for metrics in (whole, short):
        with small_engine(speaks(metrics=metrics)) as server:
            async with LlamaCpp(server.url, SHORT) as engine:
                shown = await engine.probe("salt", None)
        assert (shown.counters_agree, shown.findings) == (True, ())


async def test_a_marker_in_props_goes_before_the_start_in_a_header() -> None:
    props = {**IK_LLAMA.routes["/props"], "media_marker": "<__media_Ab3__>"}
    with small_engine(speaks({"/props": props})) as server:
        async with LlamaCpp(server.url, SHORT) as engine:
            assert (await engine.look()).epoch == (await engine.discover()).server_epoch == "Ab3"


async def test_a_completion_is_read_like_a_chat() -> None:
    with small_engine(speaks(reasoning_field=None)) as server:
        async with IkLlamaCpp(server.url, SHORT) as engine:
            answer = await ask(engine, path=COMPLETIONS)
    assert (answer.cached_tokens, answer.processed_tokens, answer.output_tokens) == (0, 160, 12)


async def test_totals_without_the_colon_in_their_names_are_the_same_totals() -> None:
    def metrics(totals: Totals) -> str:
        return llama_metrics(totals).replace("llamacpp:", "llamacpp_")

    with small_engine(speaks(metrics=metrics)) as server:
        async with LlamaCpp(server.url, SHORT) as engine:
            shown, look = await engine.probe("salt", None), await engine.look()
    assert (shown.counters_agree, look.activity) == (True, Activity(0, 0))
    assert look.counters == Counters(server.totals.prompt - server.totals.cached, None, 6)
