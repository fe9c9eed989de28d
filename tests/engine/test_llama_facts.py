"""Facts of the real llama.cpp server the engine steers around: names that lie, ready-made rates, idle knobs."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from prefillgate.engines.base import AnswerStatus, CellRequest, TerminalEngineError
from prefillgate.engines.llama_cpp import LlamaCpp
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.hosts.models import packaged_model
from tests.support.llama import real_llama

FERRY = "The ferry crosses the sound four times a day and carries mail, milk and a few passengers. " * 8
COUNTING = "one two three four five six seven eight nine ten " * 6


def post(server: LlamaServer, path: str, **body: Any) -> Any:
    return httpx.post(server.url + path, json=body, timeout=60, trust_env=False).json()


def metrics(server: LlamaServer) -> dict[str, float]:
    text = httpx.get(server.url + "/metrics", trust_env=False).text
    return {name: float(value) for name, value in re.findall(r"^(llamacpp:\w+) (\S+)$", text, re.MULTILINE)}


def cell(prompt: str, max_tokens: int = 4) -> CellRequest:
    return CellRequest("/v1/completions", {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0.0}, None, 1, "n", "cache_off")  # fmt: skip  # noqa: E501


def test_on_the_native_route_names_lie_so_the_engine_refuses_it(llama: LlamaServer) -> None:
    cold = post(llama, "/completion", prompt=f"Native. {FERRY}", n_predict=4, cache_prompt=False)
    warm = post(llama, "/completion", prompt=f"Native. {FERRY}", n_predict=4)
    length = cold["timings"]["prompt_n"]
    assert cold["timings"]["cache_n"] == 0
    assert cold["tokens_cached"] >= length  # of a call that took nothing from the cache
    assert warm["timings"]["prompt_n"] < length
    assert warm["tokens_evaluated"] == length  # of a call that evaluated next to nothing
    with pytest.raises(TerminalEngineError, match="'/completion' is not a route this engine measures"):
        LlamaCpp(llama.url).prepare(CellRequest("/completion", {"prompt": "x"}, None, 1, "n", "cache_off"))


def test_a_whole_reply_of_the_responses_route_carries_no_timings(llama: LlamaServer) -> None:
    reply = post(llama, "/v1/responses", input="Hello", max_output_tokens=3)
    assert reply["status"] == "completed"
    assert "timings" not in reply
    with pytest.raises(TerminalEngineError, match="'/v1/responses' is not a route this engine measures"):
        LlamaCpp(llama.url).prepare(CellRequest("/v1/responses", {"input": "x"}, None, 1, "n", "cache_off"))


async def test_the_engine_takes_times_and_counts_and_leaves_the_ready_made_rate(llama: LlamaServer) -> None:
    async with LlamaCpp(llama.url) as engine:
        answer = await engine.generate(engine.prepare(cell(f"Rate. {FERRY}", 12)), 60)
    told = {name: float(value) for name, value in re.findall(r'"(\w+_(?:ms|n|second))":([\d.]+)', answer.raw)}
    assert (answer.output_tokens, answer.decode_ms, answer.prefill_ms) == (12, told["predicted_ms"], told["prompt_ms"])
    per_ms = told["predicted_per_second"] / 1000 * told["predicted_ms"]
    assert per_ms == pytest.approx(11) or per_ms == pytest.approx(12)  # which of them changed between builds


def test_scraping_metrics_resets_the_rate_gauges_and_not_the_counters(llama: LlamaServer) -> None:
    post(llama, "/v1/completions", prompt=f"Scrape. {FERRY}", max_tokens=4)
    first, second = metrics(llama), metrics(llama)
    assert first["llamacpp:prompt_tokens_seconds"] > 0
    assert second["llamacpp:prompt_tokens_seconds"] == 0
    assert first["llamacpp:prompt_tokens_total"] == second["llamacpp:prompt_tokens_total"] > 0


def test_nonces_of_equal_length_are_not_of_equal_tokens(llama: LlamaServer) -> None:
    counts = {len(post(llama, "/tokenize", content=f"{number:032x}")["tokens"]) for number in (0, 7**30, 11**31)}
    assert len(counts) > 1


async def test_a_draft_model_without_a_speculation_type_is_silently_ignored(request: pytest.FixtureRequest) -> None:
    server = real_llama(request, ("--cache-ram", "0", "-md", str(packaged_model())))
    async with LlamaCpp(server.url) as engine:
        identity = await engine.discover()
        answer = await engine.generate(engine.prepare(cell(COUNTING, 12)), 60)
    assert dict(identity.settings)["speculation"] == "off"
    assert answer.status is AnswerStatus.OK
    assert (answer.draft_tokens, answer.draft_accepted_tokens) == (None, None)


async def test_a_model_as_its_own_draft_is_accepted_and_counted(request: pytest.FixtureRequest) -> None:
    draft = ("-md", str(packaged_model()), "--spec-type", "draft-simple")
    server = real_llama(request, ("--cache-ram", "0", *draft))
    async with LlamaCpp(server.url) as engine:
        identity = await engine.discover()
        before = await engine.counters()
        answer = await engine.generate(engine.prepare(cell(COUNTING, 24)), 60)
        after = await engine.counters()
    assert dict(identity.settings)["speculation"] == "on"
    assert answer.draft_tokens is not None and answer.draft_accepted_tokens is not None
    assert 0 < answer.draft_accepted_tokens <= answer.draft_tokens
    assert answer.draft_accepted_tokens >= 0.8 * answer.draft_tokens
    assert before is not None and after is not None
    assert (before.draft_tokens, after.draft_tokens) == (0, answer.draft_tokens)
    assert after.draft_accepted_tokens == answer.draft_accepted_tokens
