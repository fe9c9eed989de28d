"""Which engine answers at an address. A new engine is its file and one line in `FAMILIES`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from prefillgate.engines import (
    ik_llama_cpp,
    koboldcpp,
    llama_cpp,
    lmdeploy,
    ollama,
    openai_compatible,
    sglang,
    tensorrt_llm,
    tgi,
    vllm,
)
from prefillgate.engines.base import Engine, TerminalEngineError
from prefillgate.engines.common import retried
from prefillgate.engines.http import EngineOptions, HttpLane, HttpStatusError
from prefillgate.engines.openai_routes import OpenAIRoutes

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Family:
    """One server family: its name, how it is recognised from its own endpoints, how its engine is made."""

    name: str
    recognise: Callable[[HttpLane], Awaitable[bool]]
    create: Callable[[str, EngineOptions], Engine]
    flags: Mapping[str, str] = field(default_factory=dict)  # by capability: what gives one that is missing


# In the order of asking; the last one takes any server with the OpenAI routes.
FAMILIES: tuple[Family, ...] = (
    Family(koboldcpp.NAME, koboldcpp.recognise, koboldcpp.KoboldCpp, koboldcpp.FLAGS),  # poses as the next and Ollama
    Family(ik_llama_cpp.NAME, ik_llama_cpp.recognise, ik_llama_cpp.IkLlamaCpp, ik_llama_cpp.FLAGS),
    Family(llama_cpp.NAME, llama_cpp.recognise, llama_cpp.LlamaCpp, llama_cpp.FLAGS),
    Family(vllm.NAME, vllm.recognise, vllm.Vllm, vllm.FLAGS),
    Family(sglang.NAME, sglang.recognise, sglang.Sglang, sglang.FLAGS),
    Family(tensorrt_llm.NAME, tensorrt_llm.recognise, tensorrt_llm.TensorRTLLM, tensorrt_llm.FLAGS),
    Family(lmdeploy.NAME, lmdeploy.recognise, lmdeploy.LMDeploy, lmdeploy.FLAGS),
    Family(ollama.NAME, ollama.recognise, ollama.Ollama, ollama.FLAGS),
    Family(tgi.NAME, tgi.recognise, tgi.TGI, tgi.FLAGS),
    Family(
        openai_compatible.NAME, openai_compatible.recognise, openai_compatible.OpenAICompatible, openai_compatible.FLAGS
    ),
)


def engine_names() -> tuple[str, ...]:
    """What may be asked for by name."""
    return (AUTO, *(family.name for family in FAMILIES))


def flags_of(name: str) -> Mapping[str, str]:
    """What gives a capability that a server of this family lacks, by the names of `engines/capability.py`."""
    return next((family.flags for family in FAMILIES if family.name == name), {})


def create(name: str, url: str, options: EngineOptions | None = None) -> Engine:
    """The engine of a family by name, without asking the server.

    Raises `TerminalEngineError` naming what is allowed.
    """
    for family in FAMILIES:
        if family.name == name:
            return family.create(url, options or EngineOptions())
    allowed = ", ".join(family.name for family in FAMILIES)
    raise TerminalEngineError(f"engine {name!r} is not known; allowed: {allowed}")


def reader(name: str) -> OpenAIRoutes | None:
    """The engine of a family for reading replies that were kept; None for a family unknown here. Asks no server."""
    found = next((family.create for family in FAMILIES if family.name == name), None)
    engine = None if found is None else found("http://localhost", EngineOptions())
    return engine if isinstance(engine, OpenAIRoutes) else None


async def detect(url: str, options: EngineOptions | None = None, name: str = AUTO) -> Engine:
    """The engine for the server at `url`, not yet entered: by `name`, or by asking the server who it is.

    Every family has /v1/models, so a missing key or a wrong address is told by that route. An ingress may forbid all
    others: a family whose own routes are forbidden is passed over. Raises `TransientEngineError` when the server cannot
    be reached, `TerminalEngineError` when it is no model server.
    """
    options = options or EngineOptions()
    if name != AUTO:
        return create(name, url, options)
    async with HttpLane(url, options) as lane:
        await retried(options, partial(openai_compatible.recognise, lane))
        for family in FAMILIES:
            try:
                if await retried(options, partial(family.recognise, lane)):
                    return family.create(url, options)
            except HttpStatusError as error:
                if error.status not in (401, 403):
                    raise
    raise TerminalEngineError(f"{lane.url}: no engine recognises this server")
