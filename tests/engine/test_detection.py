"""Which engine answers at an address: no family's server is taken for another's, and a name given wins over all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prefillgate.engines.base import TerminalEngineError
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.registry import FAMILIES, detect
from tests.engine.hostile import Exchange, HostileServer, whole
from tests.support.engine_table import TABLE
from tests.support.small_engines import OLD_OLLAMA, OLLAMA, Speaks, models, small_engine

ROOT = Path(__file__).parents[2]
ONCE = EngineOptions(attempts=1)
#: What servers answer on their discovery routes, by the family that must be found.
DISCOVERY: dict[str, tuple[str, Speaks]] = {
    **{name: (name, row.speaks) for name, row in TABLE.items()},
    "ollama before it told cached tokens": ("ollama", OLD_OLLAMA),
}


def bare(routes: dict[str, Any]) -> Speaks:
    """A server with these routes and nothing else."""
    return replace(OLLAMA, routes=routes)


LLAMA_PROPS = {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 1, "chat_template": "{{ x }}"}
OTHERS: dict[str, tuple[str, Speaks]] = {
    "llama-server with Ollama's list of models": (
        "llama.cpp",
        bare(
            {
                "/v1/models": models("llamacpp", "m"),
                "/props": {**LLAMA_PROPS, "build_info": "b1-abc", "model_path": "m.gguf"},
                "/api/tags": {"models": [{"name": "m"}]},
            }
        ),
    ),
    "an older llama-server": ("llama.cpp", bare({"/v1/models": models("llamacpp", "m"), "/props": LLAMA_PROPS})),
    "llamafile from 0.10 on": (
        "llama.cpp",
        bare({"/v1/models": models("llamacpp", "m"), "/props": {**LLAMA_PROPS, "build_info": "b1775854028-5e9c63546"}}),
    ),
    "an older llamafile": ("openai-compatible", bare({"/v1/models": models("llamafile", "m")})),
    "a version and no list of Ollama's": (
        "openai-compatible",
        bare({"/v1/models": models("somebody", "m"), "/api/version": {"version": "1"}}),
    ),
    "a server for embeddings with TGI's /info": (
        "openai-compatible",
        bare({"/v1/models": models("hf", "m"), "/info": {"model_id": "m", "max_input_length": 512}}),
    ),
    "a gateway over TensorRT-LLM and another": (
        "openai-compatible",
        bare({"/v1/models": {"data": models("tensorrt_llm", "a")["data"] + models("openai", "b")["data"]}}),
    ),
    "a gateway that lists nothing": ("openai-compatible", bare({"/v1/models": {"data": []}})),
    "odd entries": ("openai-compatible", bare({"/v1/models": {"data": ["m", {"id": "n", "owned_by": None}]}})),
}


@pytest.mark.parametrize("title", [*DISCOVERY, *OTHERS])
async def test_a_server_is_known_by_its_own_discovery_routes(title: str) -> None:
    family, speaks = (DISCOVERY | OTHERS)[title]
    with small_engine(speaks) as server:
        engine = await detect(server.url, ONCE)
    assert engine.name == family


@pytest.mark.parametrize("title", DISCOVERY)
async def test_each_family_but_one_says_that_it_is_not_its_server(title: str) -> None:
    family, speaks = DISCOVERY[title]
    first = next(at for at, known in enumerate(FAMILIES) if known.name == family)
    with small_engine(speaks) as server:
        async with (await detect(server.url, ONCE))._lane as lane:  # type: ignore[attr-defined]
            found = [known.name for known in FAMILIES[:first] if await known.recognise(lane)]
    assert found == []


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
async def test_a_family_named_is_taken_without_asking(name: str) -> None:
    assert (await detect("http://127.0.0.1:1", ONCE, name)).name == name


async def test_a_name_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(TerminalEngineError, match=r"'olama' is not known; allowed: .*llama\.cpp.*ollama.*tgi"):
        await detect("http://127.0.0.1:1", ONCE, "olama")


def test_who_serves_requests_in_flight_from_each_others_blocks_says_so() -> None:
    """There the same prompt in flight twice is a copy. A server with a cache for each slot is none of them."""
    sharing = {family.name for family in FAMILIES if family.create("http://host", ONCE).shares_blocks}
    assert sharing == {"vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi"}


def test_every_family_has_a_row_in_the_readmes_table_of_engines() -> None:
    rows = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [
        family.name for family in FAMILIES if not any(f"`{family.name}`" in row.split("|")[1] for row in rows)
    ] == []


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_an_ingress_that_forbids_all_but_v1_leaves_what_the_models_tell(status: str) -> None:
    for owner, family in (("tensorrt_llm", "tensorrt-llm"), ("somebody", "openai-compatible")):

        async def reply(exchange: Exchange, owner: str = owner) -> None:
            listed = exchange.path == "/v1/models"
            await exchange.json(models(owner, "m") if listed else {"error": "no"}, "200 OK" if listed else status)

        async with HostileServer(reply) as server:
            assert (await detect(server.url, ONCE)).name == family


async def test_a_missing_key_is_told_by_the_route_that_every_family_has() -> None:
    async with HostileServer(whole({"error": "no key"}, "401 Unauthorized")) as server:
        with pytest.raises(TerminalEngineError, match=r"/v1/models: HTTP 401.*no key"):
            await detect(server.url, ONCE)
