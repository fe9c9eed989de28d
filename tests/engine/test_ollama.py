"""Ollama by its own schema: a nonce, a counter that only newer builds tell, and nothing else that proves anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.engines.base import Answer, AnswerStatus, CellRequest, TerminalEngineError
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.ollama import Ollama
from tests.support.small_engines import CHAT, COMPLETIONS, DIGEST, OLD_OLLAMA, OLLAMA, Body, plain_usage, small_engine

CUTS = "Ollama cuts a prompt that is longer than its context without a word (OLLAMA_CONTEXT_LENGTH sets it)"
SHORT = EngineOptions(probe_words=120, attempts=1)
PROMPT = "Notes of the week. " * 40


def told(**details: Any) -> Any:
    """A usage whose cached tokens are told by `details`, given the true number of them."""

    def usage(path: str, prompt: int, cached: int, output: int) -> Body:
        value = details["by"](prompt, cached)
        told = {} if value is ... else {"prompt_tokens_details": value}
        return {**plain_usage(path, prompt, cached, output), **told}

    return usage


async def ask(engine: Ollama, stream: bool = True, path: str = CHAT, nonce: str = "n-1") -> Answer:
    body: Body = {"max_tokens": 12}
    body |= {"messages": [{"role": "user", "content": PROMPT}]} if path == CHAT else {"prompt": PROMPT}
    return await engine.generate(engine.prepare(CellRequest(path, body, "m", 1, nonce, "nonce", stream)), 10)


async def test_a_newer_build_is_proven_by_the_nonce_and_its_counter() -> None:
    with small_engine(OLLAMA) as server:
        async with Ollama(server.url, SHORT) as engine:
            shown = await engine.probe("salt", "llama3.2:latest")
            assert (await engine.counters(), await engine.epoch(), (await engine.activity()).idle) == (None, None, None)
    assert (shown.counter_alive, shown.cold_proof, shown.counters_agree) == (True, "nonce", None)
    assert (shown.findings, shown.decode_times) == ((CUTS,), False)
    assert [path for path, _ in server.seen] == [CHAT] * 3
    assert all("cache_prompt" not in body and "cache_salt" not in body for _, body in server.seen)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_cell_is_read_alike_streamed_and_whole(path: str, stream: bool) -> None:
    with small_engine(replace(OLLAMA, reasoning_field="reasoning" if path == CHAT else None)) as server:
        async with Ollama(server.url, SHORT) as engine:
            first = await ask(engine, stream, path)
            again = await ask(engine, stream, path)
            renewed = await ask(engine, stream, path, "n-2")
    assert {answer.status for answer in (first, again, renewed)} == {AnswerStatus.OK}
    assert first.cached_tokens == 0
    assert again.prompt_tokens is not None and again.cached_tokens == again.prompt_tokens - 1
    assert renewed.cached_tokens is not None and renewed.cached_tokens <= 1
    assert (first.output_tokens, first.processed_tokens, first.decode_ms) == (12, None, None)
    assert (first.reasoning, first.content[:9]) == ("Let me think." if path == CHAT else "", "The ferry")


async def test_an_older_build_tells_nothing_and_the_finding_names_what_would_change_it() -> None:
    with small_engine(OLD_OLLAMA) as server:
        async with Ollama(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (False, None)
    assert shown.findings[1:] == (CUTS,)
    assert shown.findings[0].startswith("Ollama tells no cached tokens here: independence unknown")
    assert "Ollama 0.34 or later" in shown.findings[0]


@pytest.mark.parametrize(
    ("by", "alive", "proof", "finding"),
    [
        (lambda prompt, cached: ..., False, None, "independence unknown"),
        (lambda prompt, cached: None, False, None, "independence unknown"),
        (lambda prompt, cached: {"cached_tokens": None}, False, None, "independence unknown"),
        (lambda prompt, cached: {"cached_tokens": 0}, False, None, "the counter is dead or this model's runner keeps"),
        (lambda prompt, cached: {"cached_tokens": prompt - 1}, False, None, "the counter cannot be trusted"),
        (lambda prompt, cached: {"cached_tokens": cached} if cached else ..., True, None, "a new nonce does not make"),
        (lambda prompt, cached: {"prompt_eval_cached_count": cached}, False, None, "independence unknown"),
        (lambda prompt, cached: {"cached_tokens": str(cached)}, False, None, "not a count of tokens"),
    ],
)
async def test_the_counter_decides_and_what_is_missing_is_never_zero(
    by: Any, alive: bool, proof: str | None, finding: str
) -> None:
    with small_engine(replace(OLLAMA, usage=told(by=by))) as server:
        async with Ollama(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert (shown.counter_alive, shown.cold_proof) == (alive, proof)
    assert any(finding in words for words in shown.findings), shown.findings


async def test_prompt_tokens_of_zero_are_unknown() -> None:
    def usage(path: str, prompt: int, cached: int, output: int) -> Body:
        return plain_usage(path, 0 if cached else prompt, cached, output)

    with small_engine(replace(OLLAMA, usage=usage)) as server:
        async with Ollama(server.url, SHORT) as engine:
            first, again = await ask(engine), await ask(engine)
    assert first.prompt_tokens is not None and first.findings == ()
    assert again.prompt_tokens is None
    assert again.findings == (
        "prompt_tokens is 0, which older Ollama tells of a prompt it had cached; taken as unknown",
    )


async def test_a_build_that_counts_only_what_it_processed_is_named() -> None:
    def usage(path: str, prompt: int, cached: int, output: int) -> Body:
        return plain_usage(path, prompt - cached, cached, output)

    with small_engine(replace(OLLAMA, usage=usage)) as server:
        async with Ollama(server.url, SHORT) as engine:
            shown = await engine.probe("salt", None)
    assert shown.cold_proof is None
    assert shown.findings[-2].endswith(
        "counts only what it processed, so prompt lengths cannot be compared; update Ollama"
    )
    assert "told with 1 prompt tokens instead of 128" in shown.findings[-2]


async def test_discovery_tells_the_digest_the_version_and_what_the_model_was_built_with() -> None:
    loaded = {"models": [{"name": "llama3.2:latest", "digest": DIGEST, "size": 3_000, "context_length": 4096}]}
    with small_engine(replace(OLLAMA, routes={**OLLAMA.routes, "/api/ps": loaded})) as server:
        async with Ollama(server.url, SHORT) as engine:
            found = await engine.discover()
    assert (found.engine, found.build, found.model) == ("ollama", "0.34.0", "llama3.2:latest")
    assert (found.weights, found.context_tokens) == ("digest a80c4f17acd5, 3000 bytes", 4096)
    assert dict(found.settings)["parameters"] == 'stop "<|eot_id|>"; num_ctx 4096'
    assert len(dict(found.settings)["chat_template_sha256"]) == 64
    assert found.server_epoch is None


async def test_a_model_that_is_not_loaded_tells_its_digest_and_no_context_until_the_probe_loads_it() -> None:
    with small_engine(OLLAMA) as server:
        async with Ollama(server.url, SHORT) as engine:
            found = await engine.discover()
    assert (found.weights, found.context_tokens) == ("digest a80c4f17acd5, 2019393189 bytes", None)
    assert dict(found.settings)["quantization_level"] == "Q4_K_M"


async def test_the_probe_names_the_context_beyond_which_prompts_are_cut() -> None:
    loaded = {"models": [{"name": "llama3.2:latest", "digest": DIGEST, "context_length": 4096}]}
    with small_engine(replace(OLLAMA, routes={**OLLAMA.routes, "/api/ps": loaded})) as server:
        async with Ollama(server.url, SHORT) as engine:
            shown = await engine.probe("salt", "llama3.2:latest")
    assert shown.findings == (CUTS.replace("its context", "its context of 4096 tokens"),)


async def test_a_name_without_a_tag_is_the_latest_and_another_is_refused() -> None:
    with small_engine(OLLAMA) as server:
        async with Ollama(server.url, replace(SHORT, model="llama3.2")) as engine:
            assert (await engine.discover()).model == "llama3.2:latest"
        async with Ollama(server.url, replace(SHORT, model="llama3.2:1b")) as engine:
            with pytest.raises(TerminalEngineError, match=r"does not serve model 'llama3\.2:1b'"):
                await engine.discover()


def test_it_has_no_knob_of_its_own() -> None:
    for proof in ("cache_off", "salt"):
        request = CellRequest(CHAT, {"messages": []}, None, 1, "n", proof)
        with pytest.raises(TerminalEngineError, match=f"ollama has no cold proof '{proof}'"):
            Ollama("http://host").prepare(request)
