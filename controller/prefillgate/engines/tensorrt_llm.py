"""TensorRT-LLM's trtllm-serve. Knob: `cache_salt` on /v1/chat/completions; /v1/completions has none and refuses unknown
fields, so there, and where the salt does not do, a nonce makes each prompt new, once the probe saw that it does.

Witness 1: `usage.prompt_tokens_details.cached_tokens`. Witness 2: the totals at /prometheus/metrics, which
`return_perf_metrics` opens. No marker of a life is shown; totals that fall back tell of a restart.
Facts: ENGINES.md section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.base import (
    Answer,
    Body,
    Capabilities,
    CellRequest,
    Identity,
    PreparedRequest,
    TerminalEngineError,
)
from prefillgate.engines.common import CHAT, COMPLETIONS, BodyEditor
from prefillgate.engines.http import EngineOptions, HttpLane
from prefillgate.engines.openai_routes import ColdMeans, as_object, as_text, put_nonce
from prefillgate.engines.owners import models_owned_by
from prefillgate.engines.probing import NONCE_INSTEAD, TWO_TOKENS_FORCED, ProbePlan, ProbeWords, nonce_words
from prefillgate.engines.prometheus import Less, Scrape, Series
from prefillgate.engines.resting import RestingGauges

NAME = "tensorrt-llm"
_CACHED, _PROMPT = "trtllm_prompt_cached_tokens_total", "trtllm_prompt_tokens_total"
_OUTPUT = "trtllm_generation_tokens_total"
SERIES = Series(
    totals={
        "prompt_tokens_processed": (Less(_PROMPT, _CACHED),),
        "prompt_tokens_cached": (_CACHED,),
        "output_tokens": (_OUTPUT,),
        "draft_tokens": ("trtllm_spec_decode_num_draft_tokens_total", "trtllm_spec_decode_drafted_tokens_total"),
        "draft_accepted_tokens": (
            "trtllm_spec_decode_num_accepted_tokens_total",
            "trtllm_spec_decode_accepted_tokens_total",
        ),
    },
    running=("trtllm_num_requests_running",),
    waiting=("trtllm_num_requests_waiting",),
    path="/prometheus/metrics",
    unset={_CACHED: _PROMPT},  # a total with labels is left out until something raises it
)
PLAN = ProbePlan(ColdProof.SALT, (CHAT,), TWO_TOKENS_FORCED)
NONCE_PLAN = ProbePlan(ColdProof.NONCE, (CHAT, COMPLETIONS), TWO_TOKENS_FORCED)
WORDS = ProbeWords(
    no_counter="the reply tells no usage.prompt_tokens_details.cached_tokens: independence unknown; trtllm-serve 1.1 "
    "or later tells it",
    cache_off="block reuse is off (kv_cache_config.enable_block_reuse)",
    knob_ignored="`cache_salt` is not honoured",
    knob_flag=f"a build that has cache_salt, or {NONCE_INSTEAD}",
    no_metrics="no totals at /prometheus/metrics: start trtllm-serve with `return_perf_metrics: true` in its options "
    "file (--extra_llm_api_options) for a second witness",
)
COMPLETIONS_PLAN = replace(NONCE_PLAN, routes=(COMPLETIONS,))
NONCE_WORDS = nonce_words(WORDS.no_counter, WORDS.cache_off, WORDS.no_metrics)
FLAGS: Mapping[str, str] = {
    capability.FRESH: "kv_cache_config.enable_block_reuse: true, and trtllm-serve 1.1 or later",
    capability.COUNTER: "kv_cache_config.enable_block_reuse: true, and trtllm-serve 1.1 or later",
    capability.WITNESS: "return_perf_metrics: true in the file of --extra_llm_api_options",
    capability.IDLE: "return_perf_metrics and enable_iter_perf_stats, both true in the file of --extra_llm_api_options",
    capability.SPECULATION: "return_perf_metrics: true in the file of --extra_llm_api_options",
}


async def recognise(lane: HttpLane) -> bool:
    """Whether trtllm-serve answers there: it owns the models it lists."""
    return await models_owned_by(lane, "tensorrt_llm")


def _salt(editor: BodyEditor, request: CellRequest) -> None:
    if request.path != CHAT:
        raise TerminalEngineError(
            f"trtllm-serve takes cache_salt on {CHAT} alone and refuses it on {request.path}: write it for {CHAT}"
        )
    editor.set("cache_salt", request.nonce)


class TensorRTLLM(RestingGauges):
    """One trtllm-serve. Use as an async context manager."""

    name = NAME
    shares_blocks = True  # blocks are stored as soon as they are full, and found by requests in flight
    series = SERIES
    cold_means: ClassVar[Mapping[str, ColdMeans]] = {ColdProof.SALT: _salt, ColdProof.NONCE: put_nonce}
    plan = PLAN
    words = WORDS

    def __init__(self, url: str, options: EngineOptions | None = None) -> None:
        super().__init__(url, options)
        self._answered = False

    async def generate(self, request: PreparedRequest, timeout_seconds: float) -> Answer:
        """Send once; never raises for what a server does, never retries."""
        answer = await super().generate(request, timeout_seconds)
        self._answered = self._answered or answer.http_status == 200
        return answer

    async def _scrape(self) -> Scrape:
        """One reading. A server that has answered nobody exports no total at all: there they stand at 0, and only what
        is still missing behind an answer is not told."""
        read = await super()._scrape()
        if read.samples is None or self._answered:
            return read
        return replace(read, samples={_PROMPT: 0.0, _OUTPUT: 0.0, **read.samples})

    async def _describe(self, entries: list[Body], model: str | None) -> Identity:
        version = as_object(await self._optional("/version"))
        counters = await self.counters()
        drafted = None if counters is None else counters.draft_tokens
        return Identity(
            engine=NAME,
            build=as_text(version.get("version")),
            model=model,
            models=tuple(entry["id"] for entry in entries),
            server_epoch=await self.epoch(),
            settings=(("speculation", "on"),) if drafted else (),
        )

    async def probe(self, salt: str, model: str | None) -> Capabilities:
        """By `cache_salt`, and by a nonce on the route that has no salt; by a nonce alone where chat or the salt is
        refused (a base model, an older build) or does nothing.

        Raises `TransientEngineError` or `TerminalEngineError` when a step brings no numbers.
        """
        try:
            salted = await super().probe(salt, model)
        except TerminalEngineError as error:
            if error.http_status not in (400, 404, 422):
                raise
            return await self._by_nonce(f"{salt}-n", model)
        if salted.counter_alive and salted.cold_proof is None:
            named = await self._by_nonce(f"{salt}-n", model)
            return replace(named, findings=tuple(dict.fromkeys((*salted.findings, *named.findings))))
        return await self._with_completions(salted, f"{salt}-c", model) if salted.cold_proof is not None else salted

    async def _with_completions(self, salted: Capabilities, salt: str, model: str | None) -> Capabilities:
        """What was shown, and what forces a fresh prefill on the route without a salt, where there is one."""
        try:
            named = await self._probe_by(COMPLETIONS_PLAN, NONCE_WORDS, salt, model)
        except TerminalEngineError as error:
            if error.http_status not in (400, 404, 405, 422):
                raise
            return salted
        findings = tuple(f"{COMPLETIONS}: {finding}" for finding in named.findings if finding not in salted.findings)
        proofs = () if named.cold_proof is None else ((COMPLETIONS, named.cold_proof),)
        return replace(salted, route_proofs=proofs, findings=(*salted.findings, *findings))

    async def _by_nonce(self, salt: str, model: str | None) -> Capabilities:
        return await self._probe_by(NONCE_PLAN, NONCE_WORDS, salt, model)
