"""LMDeploy's api_server. It has no knob, so a nonce makes each prompt new; prefix caching is off unless asked for.

Witness 1: `usage.prompt_tokens_details.cached_tokens` on /v1/chat/completions, told by the PyTorch engine; 0 is also
what it says with prefix caching off, so only a probe that sees it move makes it a witness. Witness 2: the totals at
/metrics. Epoch: the start of the process there. Facts: ENGINES.md section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.http import HttpLane
from prefillgate.engines.openai_routes import ColdMeans, put_nonce
from prefillgate.engines.owners import models_owned_by
from prefillgate.engines.probing import NONCE_PLAN, nonce_words
from prefillgate.engines.prometheus import Less, Series
from prefillgate.engines.resting import RestingGauges

NAME = "lmdeploy"
_PROMPT = "lmdeploy:prompt_tokens_total"
_CACHED = ("lmdeploy:cached_tokens_total", "lmdeploy:request_cached_tokens_sum")  # by version
SERIES = Series(
    totals={
        "prompt_tokens_processed": tuple(Less(_PROMPT, cached) for cached in _CACHED),
        "prompt_tokens_cached": _CACHED,
        "output_tokens": ("lmdeploy:generation_tokens_total",),
    },
    running=("lmdeploy:num_requests_running",),
    waiting=("lmdeploy:num_requests_waiting",),
    start=("process_start_time_seconds",),
)
WORDS = nonce_words(
    no_counter="the reply tells no usage.prompt_tokens_details.cached_tokens: independence unknown; LMDeploy 0.16 or "
    "later tells it on /v1/chat/completions, with --backend pytorch --enable-prefix-caching",
    cache_off="prefix caching is off or the engine is TurboMind (--backend pytorch --enable-prefix-caching)",
    no_metrics="no totals at /metrics: start LMDeploy with --enable-metrics for a second witness",
)
_COUNTED = "--backend pytorch --enable-prefix-caching, in LMDeploy 0.16 or later"
FLAGS: Mapping[str, str] = {
    capability.FRESH: _COUNTED,
    capability.COUNTER: _COUNTED,
    capability.WITNESS: "--enable-metrics, in LMDeploy 0.16 or later",
    capability.IDLE: "--enable-metrics",
    capability.EPOCH: "--enable-metrics",
}


async def recognise(lane: HttpLane) -> bool:
    """Whether LMDeploy answers there: it owns the models it lists."""
    return await models_owned_by(lane, "lmdeploy")


class LMDeploy(RestingGauges):
    """One LMDeploy api_server. Use as an async context manager."""

    name = NAME
    shares_blocks = True  # its trie of blocks is shared by all requests
    series = SERIES
    cold_means: ClassVar[Mapping[str, ColdMeans]] = {ColdProof.NONCE: put_nonce}
    plan = NONCE_PLAN
    words = WORDS
