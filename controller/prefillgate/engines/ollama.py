"""Ollama, over its OpenAI routes. It has no knob (its prompt cache is always on), so a nonce makes each prompt new.

Witness 1: `usage.prompt_tokens_details.cached_tokens`, told from 0.34 on and only if the probe sees it move; before,
nothing tells, and independence is unknown. There is no witness 2, no marker of a life, no word on other work. Weights:
the model's digest at /api/tags, which covers its template and parameters too. Facts: ENGINES.md section 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.assemble import Assembly
from prefillgate.engines.base import Answer, Body, Capabilities, CellRequest, Identity
from prefillgate.engines.common import Counts
from prefillgate.engines.http import EngineOptions, HttpLane
from prefillgate.engines.openai_routes import (
    ColdMeans,
    OpenAIRoutes,
    answers_with,
    as_object,
    as_text,
    as_whole,
    put_nonce,
    read_usage,
)
from prefillgate.engines.probing import NONCE_PLAN, nonce_words
from prefillgate.engines.token_count import posted_object
from prefillgate.report.clean import one_line

NAME = "ollama"
_NEWER = "Ollama 0.34 or later, which tells usage.prompt_tokens_details.cached_tokens"
WORDS = nonce_words(
    no_counter=f"Ollama tells no cached tokens here: independence unknown; what would give it: {_NEWER}, "
    "and a model that it runs itself (llama-server or MLX)",
    cache_off="this model's runner keeps no prompts",
)
FLAGS: Mapping[str, str] = {
    capability.FRESH: _NEWER,
    capability.COUNTER: _NEWER,
    capability.TIMES: "none on its OpenAI routes; where speed decides, serve the model by llama-server",
    capability.WEIGHTS: "a model of its own, so that /api/tags tells its digest",
    capability.CONTEXT: "load the model before; OLLAMA_CONTEXT_LENGTH sets it",
}


async def recognise(lane: HttpLane) -> bool:
    """Whether Ollama answers there: its version and its own list of models."""
    return await answers_with(lane, "/api/version", "version") and await answers_with(lane, "/api/tags", "models")


class Ollama(OpenAIRoutes):
    """One Ollama server. Use as an async context manager."""

    name = NAME
    shares_blocks = False  # each runner keeps its own slots
    cold_means: ClassVar[Mapping[str, ColdMeans]] = {ColdProof.NONCE: put_nonce}
    plan = NONCE_PLAN
    words = WORDS

    def __init__(self, url: str, options: EngineOptions | None = None) -> None:
        super().__init__(url, options)
        self._probe_lengths: list[int] = []

    def _chosen(self, entries: list[Body]) -> str | None:
        """As Ollama does, a name without a tag is the one tagged `latest`."""
        wanted = self.options.model
        tagged = f"{wanted}:latest"
        if wanted is not None and ":" not in wanted and any(entry["id"] == tagged for entry in entries):
            return tagged
        return super()._chosen(entries)

    async def _describe(self, entries: list[Body], model: str | None) -> Identity:
        version = as_object(await self._optional("/api/version"))
        kept = _named(await self._optional("/api/tags"), model)
        loaded = _named(await self._optional("/api/ps"), model)
        shown = {} if model is None else await posted_object(self._lane, "/api/show", {"model": model}) or {}
        return Identity(
            engine=NAME,
            build=as_text(version.get("version")),
            model=model,
            models=tuple(entry["id"] for entry in entries),
            server_epoch=None,
            weights=_weights(loaded or kept),
            context_tokens=as_whole(loaded.get("context_length")),
            settings=_settings(as_object((loaded or kept).get("details")), shown),
        )

    def _read(self, assembly: Assembly) -> Counts:
        counts = read_usage(assembly)
        if counts.prompt_tokens == 0:
            # Builds before July 2024 left the count out for a prompt they had cached, and 0 came of that.
            assembly.note("prompt_tokens is 0, which older Ollama tells of a prompt it had cached; taken as unknown")
            return replace(counts, prompt_tokens=None)
        return counts

    async def probe(self, salt: str, model: str | None) -> Capabilities:
        """The capability probe, and what prompt lengths it told. Raises as `OpenAIRoutes.probe` does."""
        self._probe_lengths = []
        shown = await super().probe(salt, model)
        findings = shown.findings
        first, repeat, *_ = (*self._probe_lengths, 0, 0)
        if len(self._probe_lengths) > 1 and 0 < repeat < first:
            findings = (
                *findings,
                f"an exact repeat was told with {repeat} prompt tokens instead of {first}: this build counts only what "
                "it processed, so prompt lengths cannot be compared; update Ollama",
            )
        # The probe has loaded the model, and only a loaded one tells its context.
        context = as_whole(_named(await self._optional("/api/ps"), model).get("context_length"))
        size = "its context" if context is None else f"its context of {context} tokens"
        cuts = f"Ollama cuts a prompt that is longer than {size} without a word (OLLAMA_CONTEXT_LENGTH sets it)"
        return replace(shown, findings=(*findings, cuts))

    async def _ask(self, request: CellRequest) -> Answer:
        answer = await super()._ask(request)
        if answer.http_status == 200:
            self._probe_lengths.append(answer.prompt_tokens or 0)
        return answer


def _named(listing: Any, model: str | None) -> Body:
    """The entry of `model` in a list of Ollama's own; the only one where none was named."""
    models = as_object(listing).get("models")
    entries = [entry for entry in models if isinstance(entry, dict)] if isinstance(models, list) else []
    if model is None:
        return entries[0] if len(entries) == 1 else {}
    return next((entry for entry in entries if model in (entry.get("name"), entry.get("model"))), {})


def _weights(entry: Body) -> str | None:
    """The model's digest, as `ollama list` shows it, and its bytes."""
    digest, size = as_text(entry.get("digest")), as_whole(entry.get("size"))
    if digest is None:
        return None
    return f"digest {digest.removeprefix('sha256:')[:12]}" + ("" if size is None else f", {size} bytes")


def _settings(details: Body, shown: Body) -> tuple[tuple[str, str], ...]:
    """Quantization, size and family, the parameters of the model's file, and its template's digest."""
    names = ("family", "parameter_size", "quantization_level")
    settings = {name: value for name in names if (value := as_text(details.get(name)))}
    parameters, template = as_text(shown.get("parameters")), as_text(shown.get("template"))
    if parameters is not None:
        lines = [" ".join(line.split()) for line in parameters.splitlines() if line.strip()]
        settings["parameters"] = one_line("; ".join(lines), 1000)
    if template is not None:
        settings["chat_template_sha256"] = hashlib.sha256(template.encode("utf-8", "replace")).hexdigest()
    return tuple(sorted(settings.items()))
