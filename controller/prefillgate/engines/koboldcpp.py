"""KoboldCpp, a fork of llama.cpp with a server of its own. It tells no cached tokens: independence stays unknown.

It answers on the discovery routes of llama.cpp and Ollama as well, with made-up values, so it is looked for before
them. Other work stands at /api/extra/perf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.base import Activity, Body, Identity, Look, TerminalEngineError
from prefillgate.engines.common import CHAT, COMPLETIONS
from prefillgate.engines.http import HttpLane, HttpStatusError
from prefillgate.engines.openai_routes import ColdMeans, OpenAIRoutes, as_object, as_text, as_whole, put_nonce
from prefillgate.engines.probing import NONCE_PLAN, nonce_words

NAME = "koboldcpp"
VERSION, PERF, CONTEXT = "/api/extra/version", "/api/extra/perf", "/api/extra/true_max_context_length"
_OTHER = "none: serve the model by llama-server, which tells cached tokens"
PLAN = replace(NONCE_PLAN, routes=(COMPLETIONS, CHAT))
WORDS = nonce_words(
    no_counter="KoboldCpp tells no cached tokens: independence unknown; no flag of it gives them: serve the model by "
    "llama-server",
    cache_off="KoboldCpp fills in a 0",
)
FLAGS: Mapping[str, str] = {
    capability.FRESH: _OTHER,
    capability.COUNTER: _OTHER,
}


async def recognise(lane: HttpLane) -> bool:
    """Whether KoboldCpp answers there: only it names itself so."""
    try:
        value = await lane.get_json(VERSION)
    except HttpStatusError as error:
        if error.status in (401, 403):
            raise
        return False
    except TerminalEngineError:
        return False
    return as_object(value).get("result") == "KoboldCpp"


class KoboldCpp(OpenAIRoutes):
    """One KoboldCpp server. Use as an async context manager."""

    name = NAME
    shares_blocks = False  # one request after the other
    cold_means: ClassVar[Mapping[str, ColdMeans]] = {ColdProof.NONCE: put_nonce}
    plan = PLAN
    words = WORDS

    async def _describe(self, entries: list[Body], model: str | None) -> Identity:
        version = as_object(await self._optional(VERSION))
        return Identity(
            engine=NAME,
            build=as_text(version.get("version")),
            model=model,
            models=tuple(entry["id"] for entry in entries),
            server_epoch=None,
            context_tokens=as_whole(as_object(await self._optional(CONTEXT)).get("value")),
        )

    async def activity(self) -> Activity:
        """Whether it is at work, and how many requests wait."""
        perf = as_object(await self._optional(PERF))
        idle, queue = perf.get("idle"), perf.get("queue")
        return Activity(
            running=1 - idle if idle in (0, 1) else None,
            waiting=queue if isinstance(queue, int) and not isinstance(queue, bool) and queue >= 0 else None,
        )

    async def look(self) -> Look:
        """Its work; it tells neither totals nor a marker of its life."""
        return Look(None, await self.activity(), None)
