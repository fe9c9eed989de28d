"""A prompt's length asked before it is sent: what the server's tokenizer says is what its answer then reports."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from prefillgate.engines.base import CellRequest, CountsTokens
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.llama_cpp import LlamaCpp
from prefillgate.engines.openai_compatible import OpenAICompatible
from prefillgate.hosts.llama_server import LlamaServer
from tests.support.simulated import start_simulated

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
LONG_CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Is <b>rain</b> near? " * 9}]
PROMPTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a completion": (COMPLETIONS, {"prompt": "Der Hafenmeister schrieb jedes Schiff auf. " * 9}),
    "one with a template's tokens": (COMPLETIONS, {"prompt": "<start_of_turn>user\nHi<end_of_turn>\n"}),
    "a chat": (CHAT, {"messages": LONG_CHAT}),
    "a chat with tools": (CHAT, {"messages": LONG_CHAT, "tools": [TOOL]}),
}


async def counted_and_reported(url: str, path: str, body: dict[str, Any], proof: str) -> tuple[int | None, int | None]:
    async with LlamaCpp(url) as engine:
        sent = {**body, "max_tokens": 1, "temperature": 0.0}
        request = engine.prepare(CellRequest(path, sent, None, 1, "0123456789abcdef", proof, stream=False))
        counted = await engine.prompt_tokens(request)
        answer = await engine.generate(request, 60.0)
    return counted, answer.prompt_tokens


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("proof", ["cache_off", "nonce"])
def test_the_real_server_counts_a_prompt_as_it_then_reports_it(llama: LlamaServer, name: str, proof: str) -> None:
    counted, reported = asyncio.run(counted_and_reported(llama.url, *PROMPTS[name], proof))
    assert counted is not None and counted > 5
    assert counted == reported


@pytest.mark.parametrize("name", ["a completion", "a chat", "a chat with tools"])
def test_the_simulated_server_does_the_same(name: str) -> None:
    with start_simulated() as server:
        counted, reported = asyncio.run(counted_and_reported(server.url, *PROMPTS[name], "cache_off"))
        assert counted == reported is not None
        assert len(server.truth()) == 1  # counting generates nothing


@pytest.mark.parametrize("name", ["a completion", "a chat"])
def test_a_server_without_such_a_route_tells_nothing(name: str) -> None:
    with start_simulated(fault="tokenize-absent=1") as server:
        counted, reported = asyncio.run(counted_and_reported(server.url, *PROMPTS[name], "cache_off"))
        assert counted is None and reported is not None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": [1, 2, 3]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]}),
    ],
)
def test_what_is_no_text_is_not_counted(llama: LlamaServer, path: str, body: dict[str, Any]) -> None:
    async def counted() -> int | None:
        async with LlamaCpp(llama.url) as engine:
            return await engine.prompt_tokens(engine.prepare(CellRequest(path, body, None, 1, "n", "cache_off")))

    assert asyncio.run(counted()) is None


def test_a_server_that_is_away_tells_nothing() -> None:
    async def counted() -> int | None:
        async with LlamaCpp("http://127.0.0.1:9", EngineOptions(connect_timeout_seconds=1.0)) as engine:
            return await engine.prompt_tokens(engine.prepare(CellRequest(COMPLETIONS, {"prompt": "x"}, None, 1, "n")))

    assert asyncio.run(counted()) is None


def test_not_every_family_can_be_asked() -> None:
    assert isinstance(LlamaCpp("http://127.0.0.1:9"), CountsTokens)
    assert not isinstance(OpenAICompatible("http://127.0.0.1:9"), CountsTokens)
