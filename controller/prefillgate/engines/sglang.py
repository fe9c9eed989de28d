"""SGLang.

Knob: `cache_salt`, which gives a prompt a place of its own in the radix cache. Witness 1: the cached tokens of the
reply, `sglext.cached_tokens_details` (asked for with every request), or `usage.prompt_tokens_details`
(--enable-cache-report, left out when 0), witness 2: the counters at /metrics (--enable-metrics). A reply tells no
decode time. Epoch: the start of the process or what it took, as far as /metrics tells either.
Facts: ENGINES.md sections 1 to 4; SGLang's OpenAI protocol and usage processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from prefillgate.engines import capability
from prefillgate.engines.assemble import Assembly
from prefillgate.engines.base import Activity, Body, Identity, Look
from prefillgate.engines.common import Counts, count
from prefillgate.engines.http import HttpLane
from prefillgate.engines.openai_routes import (
    NOT_TOLD,
    ColdMeans,
    as_object,
    as_text,
    as_whole,
    entry_of,
    models_of,
    read_usage,
)
from prefillgate.engines.owners import models_owned_by
from prefillgate.engines.probing import NONCE_INSTEAD, ProbeWords
from prefillgate.engines.prometheus import Less, Series
from prefillgate.engines.resting import RestingGauges
from prefillgate.engines.salted import PLAN, SALTED_FLAGS, salted

NAME = "sglang"
_PROMPT, _CACHED = "sglang:prompt_tokens_total", "sglang:cached_tokens_total"
SERIES = Series(
    totals={
        "prompt_tokens_processed": (Less(_PROMPT, _CACHED),),
        "prompt_tokens_cached": (_CACHED,),
        "output_tokens": ("sglang:generation_tokens_total",),
    },
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    start=("process_start_time_seconds", "sglang:engine_startup_time", "sglang:engine_load_weights_time"),
    unset={_CACHED: _PROMPT},
)
# What of the server's arguments is of the profile. Paths of logs, ports and seeds are not.
_TOLD = (
    "attention_backend",
    "chunked_prefill_size",
    "context_length",
    "disable_radix_cache",
    "dp_size",
    "dtype",
    "enable_hierarchical_cache",
    "kv_cache_dtype",
    "load_format",
    "page_size",
    "pp_size",
    "quantization",
    "revision",
    "sampling_backend",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_draft_model_quantization",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "tp_size",
)
# What gives a capability that is missing, for `prefillgate doctor`.
FLAGS: Mapping[str, str] = {
    **SALTED_FLAGS,
    capability.FRESH: "--enable-cache-report, --enable-metrics, no --disable-radix-cache, a build that has cache_salt",
    capability.COUNTER: "--enable-cache-report with --enable-metrics, and no --disable-radix-cache",
    capability.WITNESS: "--enable-metrics",
    capability.IDLE: "--enable-metrics, or a build that answers /v1/loads",
    capability.EPOCH: "a build whose /metrics tells when it was started (process_start_time_seconds)",
    capability.BUILD: "a build whose /server_info tells version",
    capability.WEIGHTS: "a build that answers /model_info",
    capability.SPECULATION: "a build that answers /server_info",
}
WORDS = ProbeWords(
    no_counter=(
        "the replies tell no cached tokens: independence unknown; start SGLang with --enable-cache-report and "
        "--enable-metrics, or use a build that answers return_cached_tokens_details"
    ),
    cache_off="the radix cache is off (--disable-radix-cache)",
    knob_ignored="`cache_salt` is not honoured (an older build or a gateway may drop it)",
    knob_flag=f"a build that has cache_salt and no gateway in the path, or {NONCE_INSTEAD}",
    no_metrics="no counters at /metrics: start SGLang with --enable-metrics for a second witness",
)


async def recognise(lane: HttpLane) -> bool:
    """Whether SGLang answers there: it owns the models at /v1/models."""
    return await models_owned_by(lane, "sglang")


class Sglang(RestingGauges):
    """One SGLang server. Use as an async context manager."""

    name = NAME
    shares_blocks = True
    series = SERIES
    # What a reply leaves out otherwise; builds that know nothing of these fields ignore them.
    cold_means: ClassVar[Mapping[str, ColdMeans]] = salted(str, "return_cached_tokens_details", "return_meta_info")
    plan = PLAN
    words = WORDS
    not_told = NOT_TOLD

    async def _describe(self, entries: list[Body], model: str | None) -> Identity:
        """Build and arguments from /server_info, weights from /model_info, context from /v1/models."""
        entry = entry_of(entries, model)
        server = as_object(await self._optional("/server_info", "/get_server_info"))
        weights = as_object(await self._optional("/model_info", "/get_model_info"))
        self._block_tokens = as_whole(server.get("page_size")) or 0
        return Identity(
            engine=NAME,
            build=as_text(server.get("version")),
            model=model,
            models=models_of(entries),
            server_epoch=await self.epoch(),
            weights=as_text(weights.get("model_path")) or as_text(server.get("model_path")),
            context_tokens=as_whole(entry.get("max_model_len")),
            settings=_settings(server),
        )

    def _read(self, assembly: Assembly) -> Counts:
        return read_counts(assembly)

    async def activity(self) -> Activity:
        """Requests at work and waiting at /v1/loads or /get_load.

        The gauges of /metrics come last: an idle server brings them up to date every half minute only.
        """
        told = _loads(await self._optional("/v1/loads", "/get_load"))
        return await super().activity() if told is None else told

    async def look(self) -> Look:
        """Totals and life from /metrics, work from /v1/loads."""
        found = await super().look()
        told = _loads(await self._optional("/v1/loads", "/get_load"))
        return found if told is None else replace(found, activity=told)


def read_counts(assembly: Assembly) -> Counts:
    """The counters of a reply: `usage`, and what `sglext` or `meta_info` adds where the build gives it."""
    note, counts = assembly.note, read_usage(assembly)
    meta = assembly.extras.get("meta_info")
    told = (
        counts.cached_tokens,
        _by_source(as_object(assembly.extras.get("sglext")).get("cached_tokens_details"), note),
        count(meta, "cached_tokens", note),
    )
    known = [value for value in told if value is not None]
    if len(set(known)) > 1:
        note(f"counters contradict each other: {' and '.join(map(str, known))} cached tokens")
    # Where they contradict each other the largest one is the one that can do no harm.
    cached = max(known, default=None)
    retractions = count(meta, "num_retractions", note)
    if retractions:
        often = "once" if retractions == 1 else f"{retractions} times"
        note(f"the request was taken back and computed anew {often}: its times tell nothing")
        if cached:
            note(f"{cached} cached tokens may be those of its own first prefill; taken as unknown")
            cached = None
    drafted, accepted = _drafts(assembly)
    return replace(
        counts,
        cached_tokens=cached,
        retractions=retractions,
        draft_tokens=drafted,
        draft_accepted_tokens=accepted,
        reasoning_tokens=_reasoning(assembly, counts),
    )


def _by_source(details: Any, note: Any) -> int | None:
    """The sum over device, host and storage; None where they are not told."""
    parts = [count(as_object(details), name, note) for name in ("device", "host", "storage")]
    known = [part for part in parts if part is not None]
    return sum(known) if parts[0] is not None else None


def _drafts(assembly: Assembly) -> tuple[int | None, int | None]:
    """Drafted and accepted tokens, from `usage` or from `meta_info`."""
    usage = as_object((assembly.usage or {}).get("completion_tokens_details"))
    accepted = count(usage, "accepted_prediction_tokens", assembly.note)
    rejected = count(usage, "rejected_prediction_tokens", assembly.note)
    if accepted is not None and rejected is not None:
        return accepted + rejected, accepted
    meta = assembly.extras.get("meta_info")
    return (
        count(meta, "spec_num_proposed_drafts", assembly.note),
        count(meta, "spec_num_correct_drafts", assembly.note),
    )


def _reasoning(assembly: Assembly, counts: Counts) -> int | None:
    """`usage.reasoning_tokens`. It is 0 by default: beside a text of reasoning that tells nothing."""
    if counts.reasoning_tokens is not None:
        return counts.reasoning_tokens
    told = count(assembly.usage, "reasoning_tokens", assembly.note)
    return None if told == 0 and assembly.reasoning else told


def _loads(value: Any) -> Activity | None:
    """Requests of all ranks at /v1/loads, or at /get_load, where `num_reqs` counts the waiting ones too."""
    ranks = value.get("loads") if isinstance(value, dict) else value
    if not isinstance(ranks, list) or not ranks or not all(isinstance(rank, dict) for rank in ranks):
        return None
    running = waiting = 0
    for rank in ranks:
        queued, busy, both = (rank.get(name) for name in ("num_waiting_reqs", "num_running_reqs", "num_reqs"))
        told = (queued, busy if busy is not None else both)
        if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in told):
            return None
        waiting += queued
        running += busy if busy is not None else max(0, both - queued)
    return Activity(running, waiting)


def _settings(server: Body) -> tuple[tuple[str, str], ...]:
    """What the server tells of its profile: an argument that was not given is no setting."""
    settings = {name: str(server[name]) for name in _TOLD if server.get(name) is not None}
    if "speculative_algorithm" in server:
        settings["speculation"] = "off" if server["speculative_algorithm"] is None else "on"
    return tuple(sorted(settings.items()))
