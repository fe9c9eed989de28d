"""llama.cpp's llama-server, builds with `timings.cache_n` and older ones.

Knob: `cache_prompt: false`. Witness 1: `timings.cache_n` (older: prompt tokens less `timings.prompt_n`), witness 2: the
counters at /metrics. Epoch: /props `media_marker`, random in each life of the process; an older build has the start
that heads its /metrics. Its work stands at /slots, in two forms, at /metrics, or at an older /health.
Facts: ENGINES.md sections 1, 2, 6.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.assemble import Assembly
from prefillgate.engines.base import Activity, Body, Capabilities, CellRequest, Identity, Look, PreparedRequest
from prefillgate.engines.common import (
    COMPLETIONS,
    BodyEditor,
    Counts,
    count,
    milliseconds,
    usage_cached_tokens,
    usage_reasoning_tokens,
)
from prefillgate.engines.http import EngineOptions, HttpLane, HttpStatusError
from prefillgate.engines.openai_routes import (
    ColdMeans,
    OpenAIRoutes,
    answers_with,
    as_object,
    as_text,
    as_whole,
    entry_of,
    models_of,
    put_nonce,
)
from prefillgate.engines.probing import NONCE_INSTEAD, TWO_TOKENS_FORCED, ProbePlan, ProbeWords
from prefillgate.engines.prometheus import NOT_THERE, Scrape, Series, activity_of, counters_of
from prefillgate.engines.token_count import count_prompt_tokens

NAME = "llama.cpp"
# Of the defaults: what changes with each request, what stands elsewhere, and speculation, of which /props says "none"
# whatever the truth; /slots tells it.
_NO_SETTINGS = frozenset(
    {"seed", "stream", "speculative.types", "speculative", "id", "id_task", "is_processing", "state", "prompt", "model"}
    | {"next_token", "n_ctx"}
)
_MARKER = re.compile(r"<__media_(\w+)__>")


def _names(name: str) -> tuple[str, str]:
    """As llama-server calls it, and as exporters in front of forks do, which allow themselves no colon."""
    return f"llamacpp:{name}", f"llamacpp_{name}"


SERIES = Series(
    totals={
        "prompt_tokens_processed": _names("prompt_tokens_total"),
        "prompt_tokens_cached": _names("prompt_tokens_cached_total"),
        "output_tokens": _names("tokens_predicted_total"),
        "draft_tokens": _names("spec_decode_num_draft_tokens_total"),
        "draft_accepted_tokens": _names("spec_decode_num_accepted_tokens_total"),
    },
    running=_names("requests_processing"),
    waiting=_names("requests_deferred"),
)
_TOTALS = frozenset(str(name) for names in SERIES.totals.values() for name in names)
PLAN = ProbePlan(ColdProof.CACHE_OFF, (COMPLETIONS,), TWO_TOKENS_FORCED)
WORDS = ProbeWords(
    no_counter="the server tells no cached tokens: independence unknown; newer builds tell `timings.cache_n`",
    cache_off="the prompt cache is off (--no-cache-prompt)",
    knob_ignored="`cache_prompt: false` is not honoured",
    knob_flag=f"a build that honours cache_prompt and no gateway in the path, or {NONCE_INSTEAD}",
    no_metrics="no counters at /metrics: start the server with --metrics for a second witness",
)
# What gives a capability that is missing, for `prefillgate doctor`.
FLAGS: Mapping[str, str] = {
    capability.FRESH: "a build that honours cache_prompt, or a nonce with --engine openai-compatible",
    capability.COUNTER: "--cache-prompt (the default), and a build that tells timings.cache_n",
    capability.WITNESS: "--metrics",
    capability.IDLE: "--slots or --metrics",
    capability.EPOCH: "a build whose /props tells media_marker, or --metrics",
    capability.TIMES: "a build whose replies carry timings",
    capability.BUILD: "a build made from a checkout, so that /props tells build_info",
    capability.WEIGHTS: "a build whose /props tells model_path",
    capability.CONTEXT: "--slots",
    capability.SPECULATION: "--slots",
    capability.KEY: "--api-key-file, if it shall ask for one",
}
PAST_A_MILLION = (
    "the totals at /metrics are past a million and printed with six digits, so what one request adds cannot be read: "
    "no second witness until the server is restarted"
)
START_HEADER = "Process-Start-Time-Unix"  # monotonic microseconds of a process's start: good for equality only


async def recognise(lane: HttpLane) -> bool:
    """Whether llama-server answers there: /props tells of generation settings or a build."""
    return await answers_with(lane, "/props", "default_generation_settings", "build_info")


def _forbid_cache(editor: BodyEditor, _request: CellRequest) -> None:
    editor.set("cache_prompt", False)


class LlamaCpp(OpenAIRoutes):
    """One llama-server. Use as an async context manager."""

    name = NAME
    shares_blocks = False  # each slot keeps its own cells
    series = SERIES
    cold_means: ClassVar[Mapping[str, ColdMeans]] = {ColdProof.CACHE_OFF: _forbid_cache, ColdProof.NONCE: put_nonce}
    plan = PLAN
    words = WORDS

    def __init__(self, url: str, options: EngineOptions | None = None) -> None:
        super().__init__(url, options)
        self._speculative: bool | None = None
        self._started: str | None = None  # the header's value while `_epoch` was the marker
        self._epoch: str | None = None
        self._rounded = False  # totals too large for the digits they are printed with

    async def _describe(self, entries: list[Body], model: str | None) -> Identity:
        """Build, model, weights, slots and settings from /props, /v1/models and /slots."""
        props = await self._object("/props")
        slots = await self._slots()
        self._speculative = _speculative(slots)
        entry = entry_of(entries, model)
        defaults = as_object(props.get("default_generation_settings"))
        context = as_whole(slots[0].get("n_ctx") if slots else None) or as_whole(defaults.get("n_ctx"))
        return Identity(
            engine=self.name,
            build=as_text(props.get("build_info")),
            model=model,
            models=models_of(entries),
            server_epoch=_marker(props) or await self._start(),
            weights=_weights(props, as_object(entry.get("meta"))),
            context_tokens=context,
            slots=as_whole(props.get("total_slots")) or (len(slots) if slots else None),
            settings=_settings(props, self._speculative),
        )

    async def prompt_tokens(self, request: PreparedRequest) -> int | None:
        """The prompt's length by the server's own tokenizer and template; None for a build that has no such route."""
        return await count_prompt_tokens(self._lane, request)

    def _read(self, assembly: Assembly) -> Counts:
        return read_counts(assembly, self._speculative)

    async def activity(self) -> Activity:
        """Busy slots at /slots; a request waits only when every slot is busy. Without /slots the gauges of /metrics,
        without those the slots that an older /health counts."""
        busy = [_busy(slot) for slot in await self._slots() or ()]
        if busy and None not in busy:
            return Activity(running=sum(map(bool, busy)))
        activity = await super().activity()
        if activity.idle is None:
            working = as_object(await self._optional("/health")).get("slots_processing")
            activity = Activity(running=working if type(working) is int and working >= 0 else None)
        return activity

    async def epoch(self) -> str | None:
        """The random part of /props `media_marker`, else the start that heads /metrics; None for a build that has
        neither (an older one without --metrics)."""
        return _marker(await self._object("/props")) or await self._start()

    async def probe(self, salt: str, model: str | None) -> Capabilities:
        """The capability probe, and whether the totals still have the digits of a single request. Raises as it does."""
        shown = await super().probe(salt, model)
        if not self._rounded:
            return shown
        others = tuple(finding for finding in shown.findings if finding != self.words.no_metrics)
        return replace(shown, findings=(*others, PAST_A_MILLION))

    async def look(self) -> Look:
        """One question at /metrics, where its header marks the life of the process and its gauges tell the work.

        What /metrics does not tell is asked for at /props and /slots.
        """
        read = await self._scrape()
        epoch, activity = await self._epoch_of(read), activity_of(read.samples, SERIES)
        if activity.idle is None:
            activity = await self.activity()
        return Look(counters_of(read.samples, SERIES), activity, epoch)

    async def _epoch_of(self, read: Scrape) -> str | None:
        """The header is good for equality alone, so /props gives the marker when the header is new."""
        started = read.headers.get(START_HEADER)
        if started is None or started != self._started:
            self._epoch, self._started = _marker(await self._object("/props")) or _begun(started), started
        return self._epoch

    async def _start(self) -> str | None:
        try:
            _, headers = await self._lane.get("/metrics")
        except HttpStatusError as error:
            if error.status in NOT_THERE:
                return None
            raise
        return _begun(headers.get(START_HEADER))

    async def _scrape(self) -> Scrape:
        """One reading of the totals, without those too large for the digits they are printed with."""
        read = await super()._scrape()
        self._rounded = bool(read.rounded & _TOTALS)
        if not self._rounded or read.samples is None:
            return read
        return replace(read, samples={name: value for name, value in read.samples.items() if name not in read.rounded})

    async def _slots(self) -> list[Body] | None:
        value = await self._optional("/slots")
        return [slot for slot in value if isinstance(slot, dict)] if isinstance(value, list) else None


def read_counts(assembly: Assembly, speculative: bool | None = None) -> Counts:
    """The counters of a reply. What is missing or no count is None with a finding, never 0.

    `draft_n` is absent both when speculation is off and when nothing was drafted; /slots tells which (`speculative`).
    """
    note, usage, timings = assembly.note, assembly.usage, assembly.timings
    if usage is None:
        note("the reply carries no usage: prompt and output tokens unknown")
    if timings is None:
        note("the reply carries no timings: cached and processed tokens unknown by this server's own measure")
    prompt = count(usage, "prompt_tokens", note)
    processed = count(timings, "prompt_n", note)
    cached = _cached(assembly, prompt, processed)
    if None not in (prompt, cached, processed) and cached + processed != prompt:  # type: ignore[operator]
        note(f"counters contradict each other: {cached} cached + {processed} processed is not {prompt} prompt tokens")
    drafted = count(timings, "draft_n", note)
    accepted = count(timings, "draft_n_accepted", note)
    if speculative and timings is not None:
        drafted = 0 if "draft_n" not in timings else drafted
        accepted = 0 if "draft_n_accepted" not in timings else accepted
    return Counts(
        prompt_tokens=prompt,
        cached_tokens=cached,
        processed_tokens=processed,
        output_tokens=count(usage, "completion_tokens", note),
        prefill_ms=milliseconds(timings, "prompt_ms", note),
        decode_ms=milliseconds(timings, "predicted_ms", note),
        draft_tokens=drafted,
        draft_accepted_tokens=accepted,
        reasoning_tokens=usage_reasoning_tokens(assembly),
    )


def _cached(assembly: Assembly, prompt: int | None, processed: int | None) -> int | None:
    told = usage_cached_tokens(assembly)
    timings = assembly.timings or {}
    if "cache_n" in timings:
        cached = count(timings, "cache_n", assembly.note)
        if None not in (cached, told) and cached != told:
            assembly.note(f"counters contradict each other: cache_n is {cached}, usage says {told} cached tokens")
        return cached
    if told is not None:
        return told
    if prompt is None or processed is None:
        return None
    # Builds before September 2025 tell only how much they processed.
    if processed > prompt:
        assembly.note(f"counters contradict each other: {processed} processed of {prompt} prompt tokens")
        return None
    return prompt - processed


def _busy(slot: Body) -> bool | None:
    """Whether a slot is at work: told so, or by its state (0: idle) in builds before November 2024 and their forks."""
    told, state = slot.get("is_processing"), slot.get("state")
    if isinstance(told, bool):
        return told
    return state != 0 if isinstance(state, int) and not isinstance(state, bool) else None


def _begun(started: str | None) -> str | None:
    """A marker of this life of the process out of its start, which is good for equality only."""
    return f"start-{started}" if started else None


def _marker(props: Body) -> str | None:
    found = _MARKER.fullmatch(str(props.get("media_marker") or ""))
    return found.group(1) if found else None


def _speculative(slots: list[Body] | None) -> bool | None:
    told = [slot["speculative"] for slot in slots or () if isinstance(slot.get("speculative"), bool)]
    return any(told) if told else None


def _weights(props: Body, meta: Body) -> str | None:
    """File name, parameters and bytes: what tells one set of weights from another over HTTP."""
    path = as_text(props.get("model_path"))
    parts = [re.split(r"[/\\]", path)[-1]] if path else []
    for name, unit in (("n_params", "parameters"), ("size", "bytes")):
        number = as_whole(meta.get(name))
        if number is not None:
            parts.append(f"{number} {unit}")
    return ", ".join(parts) or None


def _settings(props: Body, speculative: bool | None) -> tuple[tuple[str, str], ...]:
    """What else the server tells of its profile: default sampling, chat template, quantization, speculation."""
    settings: dict[str, str] = {}
    told = as_object(props.get("default_generation_settings"))
    defaults = as_object(told["params"]) if "params" in told else told  # older builds and forks tell them flat
    for name, value in defaults.items():
        if name not in _NO_SETTINGS:
            settings[f"default.{name}"] = _plain(value)
    for name in ("model_ftype", "modalities", "bos_token", "eos_token"):
        if props.get(name) is not None:
            settings[name] = _plain(props[name])
    template = as_text(props.get("chat_template"))
    if template:
        settings["chat_template_sha256"] = hashlib.sha256(template.encode("utf-8", "replace")).hexdigest()
    if speculative is not None:
        settings["speculation"] = "on" if speculative else "off"
    return tuple(sorted(settings.items()))


def _plain(value: Any) -> str:
    if isinstance(value, float):
        # Defaults are 32-bit floats printed as 64-bit ones.
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
