"""TGI by its own schema: whole replies, no word on its cache, so independence is unknown and no flag would give it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines.base import Activity, Answer, CellRequest, Counters
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.tgi import TGI as TextGenerationInference
from tests.support.small_engines import CHAT, COMPLETIONS, TGI, Body, Totals, small_engine, tgi_metrics

SHORT = EngineOptions(probe_words=120, attempts=1)


def request(path: str = CHAT, proof: str | None = None, **more: Any) -> CellRequest:
    body: Body = {"max_tokens": 12, **more}
    body |= {"messages": [{"role": "user", "content": "Hi"}]} if path == CHAT else {"prompt": "Hi"}
    return CellRequest(path, body, None, 1, "n-1", proof)


async def ask(engine: TextGenerationInference, asked: CellRequest) -> Answer:
    return await engine.generate(engine.prepare(asked), 10)


async def test_independence_is_unknown_and_the_finding_says_that_no_flag_gives_it() -> None:
    with small_engine(TGI) as server:
        async with TextGenerationInference(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree) == (False, None, None)
    assert shown.findings == (
        "TGI tells no cached tokens: independence unknown; no flag of it gives them: serve the model by an engine that "
        "tells them (vLLM, SGLang, llama.cpp)",
    )


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_every_request_asks_for_a_whole_reply_which_reuses_no_prefix(path: str) -> None:
    with small_engine(TGI) as server:
        async with TextGenerationInference(server.url, SHORT) as engine:
            answer = await ask(engine, request(path, stream=True, stream_options={"include_usage": True}))
    body = server.seen[0][1]
    assert (body["stream"], "stream_options" in body) == (False, False)
    assert (answer.content[:9], answer.output_tokens, answer.cached_tokens) == ("The ferry", 12, None)


async def test_discovery_tells_build_weights_and_context() -> None:
    with small_engine(TGI) as server:
        async with TextGenerationInference(server.url, SHORT) as engine:
            found = await engine.discover()
    assert (found.engine, found.context_tokens, found.server_epoch) == ("tgi", 2048, None)
    assert found.build == "3.3.4 9f18f4c00627e1a0ad696b6774e5ad7ca8f4261c"
    assert found.weights == "bigscience/bloom@e985a63cdc139290c5f700ff1929f0b5942cced2"


async def test_without_a_revision_the_weights_are_not_told() -> None:
    info = {**TGI.routes["/info"], "model_sha": None, "model_dtype": "float16"}
    with small_engine(replace(TGI, routes={**TGI.routes, "/info": info})) as server:
        async with TextGenerationInference(server.url, SHORT) as engine:
            found = await engine.discover()
    assert (found.weights, found.settings) == (None, (("model_dtype", "float16"),))


async def test_work_under_way_and_written_tokens_are_told_and_prompts_are_not_taken_for_prefills() -> None:
    def metrics(totals: Totals) -> str:
        busy = tgi_metrics(totals).replace("current_size 0", "current_size 3").replace("queue_size 0", "queue_size 2")
        return busy + f"tgi_request_input_length_sum {totals.prompt}\n"

    with small_engine(replace(TGI, metrics=metrics)) as server:
        async with TextGenerationInference(server.url, SHORT) as engine:
            await ask(engine, request())
            look = await engine.look()
    assert (look.activity, look.counters) == (Activity(3, 2), Counters(output_tokens=12))
