"""llama.cpp's llama-server, builds with `timings.cache_n` and older ones.

Knob: `cache_prompt: false`. Witness 1: `timings.cache_n` (older: prompt tokens less `timings.prompt_n`), witness 2: the
counters at /metrics. Epoch: /props `media_marker`, random in each life of the process.
Facts: ENGINES.md sections 1, 2, 6.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.assemble import Assembly
from prefillgate.engines.base import (
    Activity,
    Answer,
    Body,
    Capabilities,
    CellRequest,
    Counters,
    Identity,
    Look,
    ModelNotServedError,
    PreparedRequest,
    TerminalEngineError,
)
from prefillgate.engines.common import (
    COMPLETIONS,
    NO_PROMPT_TOKENS,
    BodyEditor,
    Counts,
    check_route,
    count,
    counter_moved,
    milliseconds,
    moved,
    probe_error,
    retried,
    send_once,
    told_decode_times,
    told_fresh,
    usage_cached_tokens,
)
from prefillgate.engines.http import EngineOptions, HttpLane, HttpStatusError
from prefillgate.engines.synthetic import synthetic_prompt
from prefillgate.engines.token_count import count_prompt_tokens

NAME = "llama.cpp"
_MARKER = re.compile(r"<__media_(\w+)__>")
_METRICS = {
    "prompt_tokens_processed": "llamacpp:prompt_tokens_total",
    "prompt_tokens_cached": "llamacpp:prompt_tokens_cached_total",
    "output_tokens": "llamacpp:tokens_predicted_total",
    "draft_tokens": "llamacpp:spec_decode_num_draft_tokens_total",
    "draft_accepted_tokens": "llamacpp:spec_decode_num_accepted_tokens_total",
}
# What gives a capability that is missing, for `prefillgate doctor`.
FLAGS: Mapping[str, str] = {
    capability.FRESH: "a build that honours cache_prompt, or a nonce with --engine openai-compatible",
    capability.COUNTER: "--cache-prompt (the default), and a build that tells timings.cache_n",
    capability.WITNESS: "--metrics",
    capability.IDLE: "--slots or --metrics",
    capability.EPOCH: "a build whose /props tells media_marker",
    capability.TIMES: "a build whose replies carry timings",
    capability.BUILD: "a build made from a checkout, so that /props tells build_info",
    capability.WEIGHTS: "a build whose /props tells model_path",
    capability.CONTEXT: "--slots",
    capability.SPECULATION: "--slots",
    capability.KEY: "--api-key-file, if it shall ask for one",
}
_NOT_THERE = frozenset({404, 405, 501})
START_HEADER = "Process-Start-Time-Unix"  # monotonic microseconds of a process's start: good for equality only


async def recognise(lane: HttpLane) -> bool:
    """Whether llama-server answers there: /props tells of generation settings or a build."""
    try:
        props = await lane.get_json("/props")
    except HttpStatusError as error:
        if error.status in (401, 403):
            raise
        return False
    except TerminalEngineError:
        return False
    return isinstance(props, dict) and ("default_generation_settings" in props or "build_info" in props)


class LlamaCpp:
    """One llama-server. Use as an async context manager."""

    name = NAME
    shares_blocks = False  # each slot keeps its own cells

    def __init__(self, url: str, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._lane = HttpLane(url, self.options)
        self.url = self._lane.url
        self._speculative: bool | None = None
        self._started: str | None = None  # the header's value while `_epoch` was the marker
        self._epoch: str | None = None

    async def __aenter__(self) -> LlamaCpp:
        await self._lane.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._lane.__aexit__(*exc)

    async def discover(self) -> Identity:
        """Build, model, weights, slots and settings from /props, /v1/models and /slots."""
        return await retried(self.options, self._discover)

    async def _discover(self) -> Identity:
        props = await self._object("/props")
        entries = _model_entries(await self._object("/v1/models"))
        slots = await self._slots()
        models = tuple(str(entry["id"]) for entry in entries)
        model = self._chosen(entries, models)
        self._speculative = _speculative(slots)
        entry = next((entry for entry in entries if entry["id"] == model), entries[0] if entries else {})
        defaults = _dict(props.get("default_generation_settings"))
        context = _whole(slots[0].get("n_ctx") if slots else None) or _whole(defaults.get("n_ctx"))
        return Identity(
            engine=NAME,
            build=_text(props.get("build_info")),
            model=model,
            models=models,
            server_epoch=_marker(props),
            weights=_weights(props, _dict(entry.get("meta"))),
            context_tokens=context,
            slots=_whole(props.get("total_slots")) or (len(slots) if slots else None),
            settings=_settings(props, self._speculative),
        )

    def _chosen(self, entries: list[Body], models: tuple[str, ...]) -> str | None:
        wanted = self.options.model
        if wanted is None:
            return models[0] if len(models) == 1 else None
        for entry in entries:
            aliases = entry.get("aliases")
            if wanted == entry["id"] or (isinstance(aliases, list) and wanted in aliases):
                return wanted
        # This server accepts any name in a request and answers with what it has: only here a wrong one shows.
        raise ModelNotServedError(
            f"{self.url} does not serve model {wanted!r}; it serves {', '.join(models) or 'none'}"
        )

    def prepare(self, request: CellRequest) -> PreparedRequest:
        """Set model, n, seed, stream and, by `cold_proof`, `cache_prompt: false` or the nonce."""
        check_route(request.path)
        editor = BodyEditor(request.body)
        editor.basics(request)
        if request.cold_proof == ColdProof.CACHE_OFF:
            editor.set("cache_prompt", False)
        elif request.cold_proof == ColdProof.NONCE:
            editor.nonce(request.path, request.nonce)
        elif request.cold_proof is not None:
            raise TerminalEngineError(f"llama.cpp has no cold proof {request.cold_proof!r}; it ignores cache_salt")
        return editor.prepared(request.path)

    async def prompt_tokens(self, request: PreparedRequest) -> int | None:
        """The prompt's length by the server's own tokenizer and template; None for a build that has no such route."""
        return await count_prompt_tokens(self._lane, request)

    async def generate(self, request: PreparedRequest, timeout_seconds: float) -> Answer:
        """Send once; counters by the newer or the older names."""
        return await send_once(self._lane, request, timeout_seconds, self._read)

    def _read(self, assembly: Assembly) -> Counts:
        return read_counts(assembly, self._speculative)

    async def counters(self) -> Counters | None:
        """The totals at /metrics, None when the server was started without `--metrics`."""
        return _counters((await self._metrics())[0])

    async def activity(self) -> Activity:
        """Busy slots at /slots; a request waits only when every slot is busy. Without /slots the gauges of /metrics."""
        slots = await self._slots()
        if slots is not None:
            return Activity(running=sum(slot.get("is_processing") is True for slot in slots))
        return _gauges((await self._metrics())[0])

    async def epoch(self) -> str | None:
        """The random part of /props `media_marker`, None for a build whose marker is always the same."""
        return _marker(await self._object("/props"))

    async def look(self) -> Look:
        """One question at /metrics, where its header marks the life of the process and its gauges tell the work.

        The header is good for equality alone, so /props gives the marker when the header is new. What /metrics does
        not tell is asked for at /props and /slots.
        """
        values, started = await self._metrics()
        if started is None or started != self._started:
            self._epoch, self._started = await self.epoch(), started
        activity = _gauges(values)
        if activity.idle is None:
            activity = await self.activity()
        return Look(_counters(values), activity, self._epoch)

    async def probe(self, salt: str, model: str | None) -> Capabilities:
        """Steps (a) to (d) of ENGINES.md section 1: cold, its repeat with the cache, cold again; /metrics.

        Raises `TransientEngineError` or `TerminalEngineError` when a step brings no numbers.
        """
        prompt = synthetic_prompt(salt, self.options.probe_words)
        before = await self.counters()
        steps = []
        for step, proof in (("a cold prompt", "cache_off"), ("its repeat", None), ("it cold again", "cache_off")):
            body = {"prompt": prompt, "max_tokens": 2, "temperature": 0.0, "ignore_eos": True}
            request = CellRequest(COMPLETIONS, body, model, 1, salt, proof, stream=False)
            answer = await self.generate(self.prepare(request), self.options.probe_timeout_seconds)
            if answer.http_status != 200 or answer.reason not in (None, "EmptyAnswer"):
                raise probe_error(step, answer)
            steps.append(answer)
        agree = _agreement(before, await self.counters(), steps)
        return judge_probe(steps, agree)

    async def _object(self, path: str) -> Body:
        value = await self._lane.get_json(path)
        if not isinstance(value, dict):
            raise TerminalEngineError(f"{self.url}{path} answered {type(value).__name__}, not an object: wrong server?")
        return value

    async def _slots(self) -> list[Body] | None:
        try:
            value = await self._lane.get_json("/slots")
        except HttpStatusError as error:
            if error.status in _NOT_THERE:
                return None
            raise
        return [slot for slot in value if isinstance(slot, dict)] if isinstance(value, list) else None

    async def _metrics(self) -> tuple[dict[str, float] | None, str | None]:
        """Samples of /metrics by name and its mark of the process's start; (None, None) without `--metrics`."""
        try:
            body, headers = await self._lane.get("/metrics")
        except HttpStatusError as error:
            if error.status in _NOT_THERE:
                return None, None
            raise
        return read_metrics(body.decode("utf-8", "replace"), f"{self.url}/metrics"), headers.get(START_HEADER)


def _counters(values: dict[str, float] | None) -> Counters | None:
    if values is None:
        return None
    return Counters(**{field: values.get(name) for field, name in _METRICS.items()})


def _gauges(values: dict[str, float] | None) -> Activity:
    running, waiting = ((values or {}).get(f"llamacpp:requests_{word}") for word in ("processing", "deferred"))
    return Activity(
        running=None if running is None else int(running),
        waiting=None if waiting is None else int(waiting),
    )


def read_metrics(text: str, where: str) -> dict[str, float]:
    """Samples of a Prometheus exposition by name, summed over labels. Raises `TerminalEngineError` if it is none."""
    values: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    values[sample.name] = values.get(sample.name, 0.0) + sample.value
    except (ValueError, IndexError, KeyError) as error:
        raise TerminalEngineError(f"{where} is not a Prometheus exposition: {error}") from error
    return values


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


def judge_probe(steps: list[Answer], agree: bool | None) -> Capabilities:
    """What three probe answers (cold, repeated, cold again) and the agreement of /metrics show."""
    cold, repeat, again = steps
    findings = [finding for step in steps for finding in step.findings]
    alive = counter_moved(cold, repeat)
    if repeat.cached_tokens is None:
        findings.append("the server tells no cached tokens: independence unknown; newer builds tell `timings.cache_n`")
    elif repeat.prompt_tokens is None:
        findings.append(NO_PROMPT_TOKENS)
    elif not alive:
        findings.append(
            f"an exact repeat was reported with {repeat.cached_tokens} cached tokens: the counter is dead or the "
            "prompt cache is off (--no-cache-prompt); independence unknown"
        )
    honoured = alive and told_fresh(cold) and told_fresh(again)
    if alive and not honoured:
        findings.append(
            f"`cache_prompt: false` is not honoured: {cold.cached_tokens} and {again.cached_tokens} of "
            f"{again.prompt_tokens} prompt tokens came from the cache"
        )
    if agree is None and any(step.processed_tokens is step.cached_tokens is None for step in steps):
        findings.append("the replies tell no counts that /metrics could confirm: no second witness")
    elif agree is None:
        findings.append("no counters at /metrics: start the server with --metrics for a second witness")
    proof = ColdProof.CACHE_OFF.value if honoured else None
    return Capabilities(alive, proof, agree, tuple(dict.fromkeys(findings)), told_decode_times(steps))


def _agreement(before: Counters | None, after: Counters | None, steps: list[Answer]) -> bool | None:
    """Whether the totals moved by exactly what the replies told; older builds export no cached total."""
    verdicts = []
    for total, told in (("prompt_tokens_processed", "processed_tokens"), ("prompt_tokens_cached", "cached_tokens")):
        delta = moved(before, after, total)
        values = [getattr(step, told) for step in steps]
        if delta is not None and None not in values:
            verdicts.append(delta == sum(values))
    return all(verdicts) if verdicts else None


def _model_entries(listing: Body) -> list[Body]:
    data = listing.get("data")
    entries = data if isinstance(data, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _marker(props: Body) -> str | None:
    found = _MARKER.fullmatch(str(props.get("media_marker") or ""))
    return found.group(1) if found else None


def _speculative(slots: list[Body] | None) -> bool | None:
    told = [slot["speculative"] for slot in slots or () if isinstance(slot.get("speculative"), bool)]
    return any(told) if told else None


def _weights(props: Body, meta: Body) -> str | None:
    """File name, parameters and bytes: what tells one set of weights from another over HTTP."""
    path = _text(props.get("model_path"))
    parts = [re.split(r"[/\\]", path)[-1]] if path else []
    for name, unit in (("n_params", "parameters"), ("size", "bytes")):
        number = _whole(meta.get(name))
        if number is not None:
            parts.append(f"{number} {unit}")
    return ", ".join(parts) or None


def _settings(props: Body, speculative: bool | None) -> tuple[tuple[str, str], ...]:
    """What else the server tells of its profile: default sampling, chat template, quantization, speculation."""
    settings: dict[str, str] = {}
    defaults = _dict(_dict(props.get("default_generation_settings")).get("params"))
    for name, value in defaults.items():
        # /props says "none" of speculation whatever the truth; /slots tells it.
        if name not in ("seed", "stream", "speculative.types"):
            settings[f"default.{name}"] = _plain(value)
    for name in ("model_ftype", "modalities", "bos_token", "eos_token"):
        if props.get(name) is not None:
            settings[name] = _plain(props[name])
    template = _text(props.get("chat_template"))
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


def _dict(value: Any) -> Body:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
