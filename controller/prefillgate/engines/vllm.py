"""vLLM.

Knob: `cache_salt`, which gives a prompt a place of its own in the prefix cache. Witness 1:
`usage.prompt_tokens_details.cached_tokens` (--enable-prompt-tokens-details), or `metrics.prefix_cache` of the reply
(--enable-per-request-metrics), witness 2: the counters at /metrics. Epoch: `process_start_time_seconds`.
Facts: ENGINES.md sections 1 to 4; vLLM's pages on production metrics and per-request metrics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from prefillgate.engines import capability
from prefillgate.engines.assemble import Assembly
from prefillgate.engines.base import Answer, Body, CellRequest, Identity
from prefillgate.engines.common import Counts, count, milliseconds
from prefillgate.engines.http import HttpLane
from prefillgate.engines.openai_routes import (
    NOT_TOLD,
    ColdMeans,
    OpenAIRoutes,
    as_object,
    as_text,
    as_whole,
    entry_of,
    models_of,
    read_usage,
)
from prefillgate.engines.owners import models_owned_by
from prefillgate.engines.probing import NONCE_INSTEAD, ProbeWords
from prefillgate.engines.prometheus import Less, Samples, Scrape, Series
from prefillgate.engines.salted import PLAN, SALTED_FLAGS, salted

NAME = "vllm"
SERIES = Series(
    totals={
        # Queries and hits count tokens. They know nothing of an external cache, so they come second.
        "prompt_tokens_processed": (
            Less("vllm:prompt_tokens_total", "vllm:prompt_tokens_cached_total"),
            Less("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
            Less("vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total"),
        ),
        "prompt_tokens_cached": (
            "vllm:prompt_tokens_cached_total",
            "vllm:prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits_total",
        ),
        "output_tokens": ("vllm:generation_tokens_total",),
        "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
        "draft_accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    },
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    start=("process_start_time_seconds",),
)
EXTERNAL_HITS = "vllm:external_prefix_cache_hits_total"
# What of the cache's configuration is of the profile; the number of blocks follows from free memory at the start.
_TOLD = ("block_size", "cache_dtype", "enable_prefix_caching", "sliding_window", "cpu_offload_gb")
# What gives a capability that is missing, for `prefillgate doctor`.
FLAGS: Mapping[str, str] = {
    **SALTED_FLAGS,
    capability.FRESH: "--enable-prompt-tokens-details, --enable-prefix-caching, and no external KV connector",
    capability.COUNTER: "--enable-prompt-tokens-details, and --enable-prefix-caching (the default)",
    capability.WITNESS: "no --disable-log-stats, so that /metrics counts",
    capability.IDLE: "no --disable-log-stats, so that /metrics tells requests",
    capability.EPOCH: "--api-server-count 1 (the default), so that /metrics tells process_start_time_seconds",
    capability.TIMES: "--enable-per-request-metrics",
    capability.BUILD: "a build that answers /version",
    capability.WEIGHTS: "a build whose /v1/models tells root",
    capability.SPECULATION: "no --disable-log-stats, so that /metrics tells of drafts",
}
WORDS = ProbeWords(
    no_counter=(
        "the replies tell no cached tokens: independence unknown; start vLLM with --enable-prompt-tokens-details"
    ),
    cache_off="prefix caching is off (--no-enable-prefix-caching)",
    knob_ignored="`cache_salt` is not honoured (an external KV connector or a gateway may drop it)",
    knob_flag=f"no external KV connector and no gateway in the path, or {NONCE_INSTEAD}",
    no_metrics="no counters at /metrics: start vLLM without --disable-log-stats for a second witness",
)


async def recognise(lane: HttpLane) -> bool:
    """Whether vLLM answers there: it owns the models at /v1/models."""
    return await models_owned_by(lane, "vllm")


def salt_of(nonce: str) -> str:
    """32 hex digits made of a nonce: what every version accepts as a salt."""
    return hashlib.sha256(nonce.encode("utf-8", "replace")).hexdigest()[:32]


class Vllm(OpenAIRoutes):
    """One vLLM server. Use as an async context manager."""

    name = NAME
    shares_blocks = True
    series = SERIES
    # Some versions tell a request's own figures only if the request asks; the others ignore the field.
    cold_means: ClassVar[Mapping[str, ColdMeans]] = salted(salt_of, "include_metrics")
    plan = PLAN
    words = WORDS
    not_told = NOT_TOLD

    async def _describe(self, entries: list[Body], model: str | None) -> Identity:
        """Build from /version, weights and context from /v1/models, cache and speculation from /metrics."""
        entry = entry_of(entries, model)
        version = as_object(await self._optional("/version"))
        read = await self._scrape()
        cache = read.labels.get("vllm:cache_config_info", {})
        self._block_tokens = int(cache.get("block_size", "0")) if cache.get("block_size", "").isdigit() else 0
        return Identity(
            engine=NAME,
            build=as_text(version.get("version")),
            model=model,
            models=models_of(entries),
            server_epoch=await self._epoch_of(read),
            weights=as_text(entry.get("root")),
            context_tokens=as_whole(entry.get("max_model_len")),
            settings=_settings(cache, read.samples),
        )

    def _read(self, assembly: Assembly) -> Counts:
        return read_counts(assembly)

    async def _ask(self, request: CellRequest) -> Answer:
        """What an external cache served counts as cached, whatever the reply says of it."""
        before = _external(await self._scrape())
        answer = await super()._ask(request)
        served = _external(await self._scrape()) - before
        if served > (answer.cached_tokens or 0) and answer.prompt_tokens is not None:
            finding = f"an external KV connector served {served:g} prompt tokens of a probe request"
            return replace(answer, cached_tokens=int(served), findings=(*answer.findings, finding))
        return answer


def read_counts(assembly: Assembly) -> Counts:
    """The counters of a reply: `usage`, and what `metrics` adds where the server was told to give it."""
    note, metrics = assembly.note, assembly.extras.get("metrics")
    counts = read_usage(assembly)
    cache = as_object((metrics or {}).get("prefix_cache"))
    drafts = as_object((metrics or {}).get("speculative_decoding"))
    processed, own = count(cache, "num_computed_tokens", note), count(cache, "num_cached_tokens", note)
    cached = own if counts.cached_tokens is None else counts.cached_tokens
    if None not in (own, cached) and own != cached:
        note(f"counters contradict each other: usage tells {cached} cached tokens, prefix_cache {own}")
    if None not in (counts.prompt_tokens, cached, processed) and cached + processed != counts.prompt_tokens:  # type: ignore[operator]
        note(
            f"counters contradict each other: {cached} cached + {processed} processed is not {counts.prompt_tokens} "
            "prompt tokens"
        )
    external = count(cache, "num_external_cached_tokens", note)
    if external:
        note(f"an external KV connector served {external} of the prompt's tokens")
    prefill = milliseconds(cache, "prefill_time_ms", note)
    return replace(
        counts,
        cached_tokens=cached,
        processed_tokens=processed,
        prefill_ms=milliseconds(metrics, "time_to_first_token_ms", note) if prefill is None else prefill,
        decode_ms=milliseconds(metrics, "generation_time_ms", note),
        draft_tokens=count(drafts, "num_draft_tokens", note),
        draft_accepted_tokens=count(drafts, "num_accepted_draft_tokens", note),
    )


def _external(read: Scrape) -> float:
    return (read.samples or {}).get(EXTERNAL_HITS, 0.0)


def _settings(cache: Mapping[str, str], samples: Samples | None) -> tuple[tuple[str, str], ...]:
    """What the server tells of its profile in /metrics. Series of speculation are there only where a draft runs."""
    settings = {name: cache[name] for name in _TOLD if name in cache}
    if samples is not None and any(name.startswith("vllm:") for name in samples):
        drafts = any(name.startswith("vllm:spec_decode_") for name in samples)
        settings["speculation"] = "on" if drafts else "off"
    return tuple(sorted(settings.items()))
