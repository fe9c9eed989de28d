"""What serving profiles of the real llama.cpp server look like from outside, and how alike their outputs are."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from prefillgate.engines.base import CellRequest
from prefillgate.engines.llama_cpp import LlamaCpp
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.hosts.models import packaged_model
from tests.support.llama import real_llama

PLAIN = ("--cache-ram", "0")
BEGINNINGS = (
    "The lighthouse keeper opened the door at dawn and saw",
    "In the second year of the drought the village council decided",
    "A function that reads a file line by line must",
    "My grandmother's recipe for plum cake begins with",
    "The committee reviewed three proposals for the new bridge and",
    "When the night train finally stopped between two stations,",
    "The report lists the reasons why the pump failed:",
)
BACKGROUND = "It was a slow week on the coast, and people had time to tell each other what they had seen. " * 3
TOKENS = 24


def get(server: LlamaServer, path: str) -> httpx.Response:
    return httpx.get(server.url + path, trust_env=False)


def without_life(server: LlamaServer, path: str) -> Any:
    """A page of the server without what differs from one life to the next."""
    page = get(server, path).json()
    if path == "/props":
        return {name: value for name, value in page.items() if name != "media_marker"}
    return [{name: value for name, value in model.items() if name != "created"} for model in page["data"]]


def test_kv_types_and_threads_are_not_visible_over_http(request: pytest.FixtureRequest, llama: LlamaServer) -> None:
    other = real_llama(request, (*PLAIN, "-ctk", "q8_0", "-ctv", "q8_0", "-t", "2"))
    for path in ("/props", "/v1/models"):
        assert without_life(other, path) == without_life(llama, path)


async def test_the_draft_model_is_not_visible_over_http(request: pytest.FixtureRequest, llama: LlamaServer) -> None:
    drafting = real_llama(request, (*PLAIN, "-md", str(packaged_model()), "--spec-type", "draft-simple"))
    for path in ("/props", "/v1/models"):
        assert without_life(drafting, path) == without_life(llama, path)
    async with LlamaCpp(llama.url) as one, LlamaCpp(drafting.url) as two:
        first, second = await one.discover(), await two.discover()
    told = {first.settings, second.settings}
    assert len(told) == 2  # /slots tells that there is a draft, and nothing tells which
    assert replace(first, settings=(), server_epoch=None) == replace(second, settings=(), server_epoch=None)


def test_no_endpoint_tells_when_the_server_started(llama: LlamaServer) -> None:
    told = []
    for _ in range(2):
        before = int(time.time())
        told.append(get(llama, "/v1/models").json()["data"][0]["created"])
        assert before <= told[-1] <= int(time.time()) + 1
        time.sleep(1.1)
    assert told[1] > told[0]  # "created" is now
    started = [get(llama, "/metrics").headers["Process-Start-Time-Unix"] for _ in range(2)]
    assert started[0] == started[1]
    assert abs(int(started[0]) - time.time()) > 86_400  # neither seconds since 1970 nor near them


async def texts(server: LlamaServer, count: int = len(BEGINNINGS)) -> list[str]:
    """Greedy continuations of the first `count` prompts, each prefilled anew."""
    async with LlamaCpp(server.url) as engine:
        found = []
        for beginning in BEGINNINGS[:count]:
            body = {"prompt": BACKGROUND + beginning, "max_tokens": TOKENS, "temperature": 0.0}
            prepared = engine.prepare(CellRequest("/v1/completions", body, None, 1, "n", "cache_off"))
            found.append((await engine.generate(prepared, 120)).content or "")
    assert all(found)
    return found


async def test_greedy_outputs_are_equal_across_threads_and_differ_across_other_profiles(
    request: pytest.FixtureRequest, llama: LlamaServer
) -> None:
    profile = partial(real_llama, request)
    plain = await texts(llama)
    assert await texts(llama, 3) == plain[:3]
    assert await texts(profile((*PLAIN, "-t", "2")), 3) == plain[:3]
    for change in (("-ctk", "q8_0", "-ctv", "q8_0"), ("-ub", "32"), ("-fa", "off")):
        changed = await texts(profile((*PLAIN, *change)))
        assert sum(one == two for one, two in zip(plain, changed, strict=True)) < len(plain), change


async def test_the_n_gram_cache_learns_across_requests_so_samples_depend_on_their_order(
    request: pytest.FixtureRequest,
) -> None:
    server = real_llama(request, (*PLAIN, "--spec-type", "ngram-cache"))
    body = {"prompt": "The harbour master wrote down every ship.", "max_tokens": 32, "temperature": 0.0}
    async with LlamaCpp(server.url) as engine:
        await engine.discover()
        prepared = engine.prepare(CellRequest("/v1/completions", body, None, 1, "n", "cache_off"))
        first, second = await engine.generate(prepared, 60), await engine.generate(prepared, 60)
    assert (first.cached_tokens, second.cached_tokens) == (0, 0)  # a fresh prefill, and still not independent
    assert first.draft_tokens is not None and second.draft_tokens is not None
    assert second.draft_tokens > first.draft_tokens
