"""KoboldCpp by its own schema: its work and its build are told, its cache is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines.base import Activity, CellRequest
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.koboldcpp import PERF, KoboldCpp
from tests.support.small_engines import CHAT, COMPLETIONS, KOBOLD, small_engine

SHORT = EngineOptions(probe_words=120, attempts=1)


async def test_independence_is_unknown_and_the_finding_says_what_would_tell() -> None:
    with small_engine(KOBOLD) as server:
        async with KoboldCpp(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree) == (False, None, None)
    assert shown.findings == (
        "KoboldCpp tells no cached tokens: independence unknown; no flag of it gives them: serve the model by "
        "llama-server",
    )
    assert [path for path, _ in server.seen] == [COMPLETIONS] * 3


async def test_discovery_tells_its_own_version_and_context_and_no_made_up_digest() -> None:
    with small_engine(KOBOLD) as server:
        async with KoboldCpp(server.url, SHORT) as engine:
            found = await engine.discover()
    assert (found.engine, found.build, found.model) == ("koboldcpp", "1.119", "koboldcpp/llama-3")
    assert (found.context_tokens, found.weights, found.server_epoch) == (8192, None, None)


@pytest.mark.parametrize(
    ("perf", "activity"),
    [
        ({"idle": 1, "queue": 0}, Activity(0, 0)),
        ({"idle": 0, "queue": 2}, Activity(1, 2)),
        ({"idle": None, "queue": -1}, Activity()),
        ({}, Activity()),
    ],
)
async def test_its_work_is_told_by_its_own_page(perf: dict[str, Any], activity: Activity) -> None:
    with small_engine(replace(KOBOLD, routes={**KOBOLD.routes, PERF: perf})) as server:
        async with KoboldCpp(server.url, SHORT) as engine:
            look = await engine.look()
    assert (look.activity, look.counters, look.epoch) == (activity, None, None)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cell_is_read_alike_streamed_and_whole(stream: bool) -> None:
    with small_engine(KOBOLD) as server:
        async with KoboldCpp(server.url, SHORT) as engine:
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12}
            request = engine.prepare(CellRequest(CHAT, body, None, 1, "n-1", "nonce", stream))
            answer = await engine.generate(request, 10)
    assert (answer.content[:9], answer.output_tokens, answer.cached_tokens) == ("The ferry", 12, None)
    assert answer.prompt_tokens == 8
