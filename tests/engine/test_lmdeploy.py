"""LMDeploy by its own schema: a nonce, a counter on the chat route of one engine, totals and a start at /metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines.base import Activity, Answer, CellRequest, Counters
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.lmdeploy import LMDeploy
from tests.support.small_engines import (
    CHAT,
    COMPLETIONS,
    LMDEPLOY,
    Body,
    Totals,
    lmdeploy_metrics,
    plain_usage,
    small_engine,
)

SHORT = EngineOptions(probe_words=120, attempts=1)


async def ask(engine: LMDeploy, path: str = CHAT, stream: bool = True, nonce: str = "n-1") -> Answer:
    text = "Notes of the week. " * 40
    body: Body = {"max_tokens": 12}
    body |= {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    return await engine.generate(engine.prepare(CellRequest(path, body, None, 1, nonce, "nonce", stream)), 10)


async def test_with_prefix_caching_on_the_nonce_the_counter_and_the_totals_are_shown() -> None:
    with small_engine(LMDEPLOY) as server:
        async with LMDeploy(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
            found, look = await engine.discover(), await engine.look()
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree, shown.findings) == (True, "nonce", True, ())
    assert look.counters == Counters(server.totals.prompt - server.totals.cached, server.totals.cached, 6)
    assert (look.activity, look.epoch) == (Activity(0, 0), f"{1764480000.0 + server.totals.started}")
    assert (found.engine, found.model, found.server_epoch, found.build) == (
        "lmdeploy",
        "internlm",
        f"{1764480000.0 + server.totals.started}",
        None,
    )


async def test_prefix_caching_off_leaves_a_zero_that_proves_nothing_and_its_flag_is_named() -> None:
    def usage(path: str, prompt: int, cached: int, output: int) -> Body:
        return {**plain_usage(path, prompt, 0, output), "prompt_tokens_details": {"cached_tokens": 0}}

    with small_engine(replace(LMDEPLOY, usage=usage)) as server:
        async with LMDeploy(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (False, None)
    assert shown.findings[0].startswith("an exact repeat was reported with 0 cached tokens")
    assert "--backend pytorch --enable-prefix-caching" in shown.findings[0]


@pytest.mark.parametrize(
    ("details", "finding"),
    [
        (..., "LMDeploy 0.16 or later tells it"),
        (None, "LMDeploy 0.16 or later tells it"),
        ({}, "LMDeploy 0.16 or later tells it"),
        ({"cached_tokens": 128}, "the counter cannot be trusted"),
        ({"cached": 3}, "LMDeploy 0.16 or later tells it"),
    ],
)
async def test_a_counter_that_is_absent_null_inflated_or_renamed_proves_nothing(details: Any, finding: str) -> None:
    def usage(path: str, prompt: int, cached: int, output: int) -> Body:
        told = {} if details is ... else {"prompt_tokens_details": details}
        return {**plain_usage(path, prompt, cached, output), **told}

    with small_engine(replace(LMDEPLOY, usage=usage)) as server:
        async with LMDeploy(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (False, None)
    assert any(finding in words for words in shown.findings), shown.findings


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cell_is_read_alike_streamed_and_whole_with_its_reasoning_apart(stream: bool) -> None:
    with small_engine(LMDEPLOY) as server:
        async with LMDeploy(server.url, SHORT) as engine:
            first, again = await ask(engine, stream=stream), await ask(engine, stream=stream)
            renewed = await ask(engine, stream=stream, nonce="n-2")
    assert (first.cached_tokens, first.output_tokens) == (0, 12)
    assert again.prompt_tokens is not None and again.cached_tokens == again.prompt_tokens - 1
    assert renewed.cached_tokens == 1
    assert (first.reasoning, first.content[:9]) == ("Let me think.", "The ferry")


async def test_the_completions_route_tells_no_cached_tokens_and_they_stay_unknown() -> None:
    with small_engine(replace(LMDEPLOY, reasoning_field=None)) as server:
        async with LMDeploy(server.url, SHORT) as engine:
            answer = await ask(engine, COMPLETIONS)
    assert (answer.prompt_tokens is not None, answer.cached_tokens, answer.findings) == (True, None, ())


@pytest.mark.parametrize("name", ["lmdeploy:cached_tokens_total", "lmdeploy:request_cached_tokens_sum"])
async def test_cached_totals_are_read_by_the_names_of_both_versions(name: str) -> None:
    def metrics(totals: Totals) -> str:
        text = lmdeploy_metrics(totals)
        if name.endswith("_sum"):
            text = text.replace("lmdeploy:cached_tokens_total counter", "lmdeploy:request_cached_tokens histogram")
        return text.replace("lmdeploy:cached_tokens_total", name)

    with small_engine(replace(LMDEPLOY, metrics=metrics)) as server:
        async with LMDeploy(server.url, SHORT) as engine:
            await engine.probe("salt", None)
            counters = await engine.counters()
    assert counters == Counters(server.totals.prompt - server.totals.cached, server.totals.cached, 6)
    assert server.totals.cached > 100


async def test_an_older_build_without_a_total_of_cached_tokens_has_no_second_witness() -> None:
    def metrics(totals: Totals) -> str:
        return "".join(line + "\n" for line in lmdeploy_metrics(totals).splitlines() if "cached" not in line)

    with small_engine(replace(LMDEPLOY, metrics=metrics)) as server:
        async with LMDeploy(server.url, SHORT) as engine:
            shown, counters = await engine.probe("salt", None), await engine.counters()
    assert (shown.cold_proof, shown.counters_agree) == ("nonce", None)
    assert counters == Counters(None, None, 6)
    assert "--enable-metrics" in shown.findings[0]
