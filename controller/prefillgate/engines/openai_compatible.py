"""Any server with the OpenAI routes. It has no knob of its own, so a nonce makes each prompt new.

The one witness is `usage.prompt_tokens_details.cached_tokens`, and only if the probe saw it rise on a repeat and fall
with a new nonce: many servers leave it out, send null, or send a 0 that means nothing. Otherwise independence is
unknown and the findings say which flag would give the counter.
"""

from __future__ import annotations

from collections.abc import Mapping

from prefillgate.core.cells import ColdProof
from prefillgate.engines import capability
from prefillgate.engines.assemble import Assembly
from prefillgate.engines.base import (
    Activity,
    Answer,
    AnswerStatus,
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
    CHAT,
    COMPLETIONS,
    NO_PROMPT_TOKENS,
    BodyEditor,
    Counts,
    check_route,
    count,
    counter_moved,
    probe_error,
    retried,
    send_once,
    told_decode_times,
    told_fresh,
    usage_cached_tokens,
)
from prefillgate.engines.http import EngineOptions, HttpLane
from prefillgate.engines.synthetic import synthetic_prompt

NAME = "openai-compatible"
_COUNTER_FLAGS = "--enable-prompt-tokens-details (vLLM), --enable-cache-report (SGLang)"
# What gives a capability that is missing, for `prefillgate doctor`. Of a family not known only this much can be said.
FLAGS: Mapping[str, str] = {
    capability.FRESH: _COUNTER_FLAGS,
    capability.COUNTER: f"{_COUNTER_FLAGS}, and prefix caching on",
}
_NO_COUNTER = (
    "the reply tells no usage.prompt_tokens_details.cached_tokens: independence unknown; vLLM tells it with "
    "--enable-prompt-tokens-details, SGLang with --enable-cache-report"
)


async def recognise(lane: HttpLane) -> bool:
    """Whether /v1/models lists models there. Raises when nothing can be said: wrong server, key, connection."""
    _model_ids(lane.url, await lane.get_json("/v1/models"))
    return True


class OpenAICompatible:
    """One server with the OpenAI routes, of a family not known. Use as an async context manager."""

    name = NAME
    shares_blocks = False  # not known to; the runner never has two requests in flight

    def __init__(self, url: str, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._lane = HttpLane(url, self.options)
        self.url = self._lane.url

    async def __aenter__(self) -> OpenAICompatible:
        await self._lane.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._lane.__aexit__(*exc)

    async def discover(self) -> Identity:
        """The models at /v1/models; such a server tells nothing else in a common way."""
        return await retried(self.options, self._discover)

    async def _discover(self) -> Identity:
        models = _model_ids(self.url, await self._lane.get_json("/v1/models"))
        wanted = self.options.model
        if wanted is not None and wanted not in models:
            raise ModelNotServedError(
                f"{self.url} does not serve model {wanted!r}; it serves {', '.join(models) or 'none'}"
            )
        chosen = wanted or (models[0] if len(models) == 1 else None)
        return Identity(engine=NAME, build=None, model=chosen, models=models, server_epoch=None)

    def prepare(self, request: CellRequest) -> PreparedRequest:
        """Set model, n, seed, stream and, if that is the cold proof, the nonce."""
        check_route(request.path)
        editor = BodyEditor(request.body)
        editor.basics(request)
        if request.cold_proof == ColdProof.NONCE:
            editor.nonce(request.path, request.nonce)
        elif request.cold_proof is not None:
            raise TerminalEngineError(f"an OpenAI-compatible server has no common cold proof {request.cold_proof!r}")
        return editor.prepared(request.path)

    async def generate(self, request: PreparedRequest, timeout_seconds: float) -> Answer:
        """Send once; counters as `usage` tells them, times unknown."""
        return await send_once(self._lane, request, timeout_seconds, read_counts)

    async def counters(self) -> Counters | None:
        """None: there is no common name for them."""
        return None

    async def activity(self) -> Activity:
        """Unknown: there is no common way to ask."""
        return Activity()

    async def epoch(self) -> str | None:
        """None: no common marker."""
        return None

    async def look(self) -> Look:
        """Nothing is told, and nothing is asked."""
        return Look(None, Activity(), None)

    async def probe(self, salt: str, model: str | None) -> Capabilities:
        """A prompt under one nonce, its exact repeat, and the same under another nonce (ENGINES.md section 1).

        Raises `TransientEngineError` or `TerminalEngineError` when a step brings no answer.
        """
        prompt = synthetic_prompt(salt, self.options.probe_words)
        path = CHAT
        steps: list[Answer] = []
        for step, nonce in (("a new prompt", f"{salt}-1"), ("its repeat", f"{salt}-1"), ("a new nonce", f"{salt}-2")):
            answer = await self._probe_step(path, prompt, nonce, model)
            if not steps and answer.status is AnswerStatus.REFUSED and answer.http_status in (400, 404, 405, 422):
                # A base model without a chat template has the other route only.
                path = COMPLETIONS
                answer = await self._probe_step(path, prompt, nonce, model)
            if answer.http_status != 200 or answer.reason not in (None, "EmptyAnswer"):
                raise probe_error(step, answer)
            steps.append(answer)
        return judge_probe(steps)

    async def _probe_step(self, path: str, prompt: str, nonce: str, model: str | None) -> Answer:
        body: Body = {"max_tokens": 2, "temperature": 0}
        body |= {"messages": [{"role": "user", "content": prompt}]} if path == CHAT else {"prompt": prompt}
        request = CellRequest(path, body, model, 1, nonce, ColdProof.NONCE, stream=False)
        return await self.generate(self.prepare(request), self.options.probe_timeout_seconds)


def read_counts(assembly: Assembly) -> Counts:
    """The counters of a reply. What is missing or no count is None with a finding, never 0."""
    if assembly.usage is None:
        assembly.note("the reply carries no usage: prompt and output tokens unknown")
    prompt = count(assembly.usage, "prompt_tokens", assembly.note)
    cached = usage_cached_tokens(assembly)
    if None not in (prompt, cached) and cached > prompt:  # type: ignore[operator]
        assembly.note(f"counters contradict each other: {cached} cached of {prompt} prompt tokens")
    return Counts(
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=count(assembly.usage, "completion_tokens", assembly.note),
    )


def judge_probe(steps: list[Answer]) -> Capabilities:
    """What three probe answers (new, repeated, new nonce) show of the counter and of the nonce."""
    first, repeat, renewed = steps
    findings = [finding for step in steps for finding in step.findings]
    alive = counter_moved(first, repeat)
    if repeat.cached_tokens is None:
        findings.append(_NO_COUNTER)
    elif repeat.prompt_tokens is None:
        findings.append(NO_PROMPT_TOKENS)
    elif not alive:
        findings.append(
            f"an exact repeat was reported with {repeat.cached_tokens} cached tokens: the counter is dead or prefix "
            "caching is off; independence unknown"
        )
    fell = alive and told_fresh(first) and told_fresh(renewed)
    if alive and not fell:
        findings.append(
            f"a new nonce does not make the prompt new: {renewed.cached_tokens} of {renewed.prompt_tokens} prompt "
            "tokens came from the cache"
        )
    proof = ColdProof.NONCE.value if fell else None
    return Capabilities(alive, proof, None, tuple(dict.fromkeys(findings)), told_decode_times(steps))


def _model_ids(url: str, listing: object) -> tuple[str, ...]:
    data = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(data, list):
        raise TerminalEngineError(f"{url}/v1/models lists no models: not an OpenAI-compatible server")
    return tuple(entry["id"] for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str))
