"""Text Generation Inference. It tells no cached tokens, so independence stays unknown: a verdict over it is a hold.

A reply that is not streamed is computed from the whole prompt (TGI asks itself for `decoder_input_details` then, which
reuses no prefix), so requests are sent so; nothing in the reply shows it. Facts: ENGINES.md section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.base import Body, Identity
from prefillgate.engines.common import BodyEditor
from prefillgate.engines.http import HttpLane
from prefillgate.engines.openai_routes import (
    ColdMeans,
    OpenAIRoutes,
    answers_with,
    as_object,
    as_text,
    as_whole,
    put_nonce,
)
from prefillgate.engines.probing import NONCE_PLAN, nonce_words
from prefillgate.engines.prometheus import Series

NAME = "tgi"
_OTHER = "none: serve the model by an engine that tells cached tokens (vLLM, SGLang, llama.cpp)"
SERIES = Series(
    totals={"output_tokens": ("tgi_request_generated_tokens_sum",)},
    running=("tgi_batch_current_size",),
    waiting=("tgi_queue_size",),
)
WORDS = nonce_words(
    no_counter="TGI tells no cached tokens: independence unknown; no flag of it gives them: serve the model by an "
    "engine that tells them (vLLM, SGLang, llama.cpp)",
    cache_off="TGI fills in a 0",
)
FLAGS: Mapping[str, str] = {
    capability.FRESH: _OTHER,
    capability.COUNTER: _OTHER,
    capability.WEIGHTS: "--revision, so that /info tells model_sha",
}


async def recognise(lane: HttpLane) -> bool:
    """Whether TGI answers there: /info tells of its limits (its sister for embeddings has no `max_total_tokens`)."""
    return await answers_with(lane, "/info", "max_total_tokens")


class TGI(OpenAIRoutes):
    """One TGI server. Use as an async context manager."""

    name = NAME
    shares_blocks = True  # its radix tree is shared by all requests
    series = SERIES
    cold_means: ClassVar[Mapping[str, ColdMeans]] = {ColdProof.NONCE: put_nonce}
    plan = NONCE_PLAN
    words = WORDS

    async def _describe(self, entries: list[Body], model: str | None) -> Identity:
        info = as_object(await self._optional("/info"))
        weights = [text for name in ("model_id", "model_sha") if (text := as_text(info.get(name)))]
        build = [text for name in ("version", "sha", "docker_label") if (text := as_text(info.get(name)))]
        dtype = as_text(info.get("model_dtype"))
        return Identity(
            engine=NAME,
            build=" ".join(build) or None,
            model=model,
            models=tuple(entry["id"] for entry in entries),
            server_epoch=None,
            weights="@".join(weights) if len(weights) == 2 else None,
            context_tokens=as_whole(info.get("max_total_tokens")),
            settings=(("model_dtype", dtype),) if dtype else (),
        )

    def _extend(self, editor: BodyEditor) -> None:
        editor.set("stream", False)
        editor.drop("stream_options")
