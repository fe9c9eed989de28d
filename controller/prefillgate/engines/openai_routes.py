"""What every engine with the OpenAI routes does alike: discovery, preparing, sending once, totals, the probe.

A family is a subclass in a file of its own that says only what is its own: a name, the means of forcing a fresh prefill
(`_cold_means`), how a reply's counters are read (`_read`), what its series are called (`series`), how it is probed and
in what words. What a server tells beyond /v1/models it adds to `_describe`; how it marks one life of the process, to
`_epoch_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

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
    BodyEditor,
    Counts,
    check_route,
    count,
    read_again,
    retried,
    send_once,
    usage_cached_tokens,
    usage_reasoning_tokens,
)
from prefillgate.engines.http import EngineOptions, HttpLane, HttpStatusError, NotJsonError
from prefillgate.engines.probing import ProbePlan, ProbeWords, judge_probe, run_probe, zeros_put_in
from prefillgate.engines.prometheus import (
    NOT_THERE,
    Scrape,
    Series,
    activity_of,
    agreement,
    counters_of,
    scrape,
    start_of,
)
from prefillgate.engines.synthetic import synthetic_prompt
from prefillgate.report.clean import one_line

# A server that lists its models for our key may keep other questions for its administrator.
NOT_TOLD = NOT_THERE | {401, 403}
MAX_TOLD_CHARACTERS = 400  # of a build or of weights
MAX_PROBE_WORDS = 8192  # whatever a server says of its blocks
ColdMeans = Callable[[BodyEditor, CellRequest], None]


class OpenAIRoutes:
    """One server of one family with the OpenAI routes. Use as an async context manager."""

    name: str
    shares_blocks: bool = False
    series: ClassVar[Series | None] = None  # None: this family exports no totals
    cold_means: ClassVar[Mapping[str, ColdMeans]]  # by `ColdProof` value
    plan: ClassVar[ProbePlan]
    words: ClassVar[ProbeWords]
    not_told: ClassVar[frozenset[int]] = NOT_THERE  # statuses of a small question that mean: nothing is told here

    def __init__(self, url: str, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._lane = HttpLane(url, self.options)
        self.url = self._lane.url
        self._leaves_zeros_out = False  # whether the probe saw that no cached tokens told means none
        self._block_tokens = 0  # of the prompt cache, where the server tells them

    async def __aenter__(self) -> Self:
        await self._lane.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._lane.__aexit__(*exc)

    # -- who is there

    async def discover(self) -> Identity:
        """What the server tells of itself. Raises `TransientEngineError` or `TerminalEngineError`."""
        return await retried(self.options, self._discover)

    async def _discover(self) -> Identity:
        entries = model_entries(self.url, await self._lane.get_json("/v1/models"))
        found = await self._describe(entries, self._chosen(entries))
        return replace(
            found,
            build=None if found.build is None else one_line(found.build, MAX_TOLD_CHARACTERS),
            weights=None if found.weights is None else one_line(found.weights, MAX_TOLD_CHARACTERS),
        )

    async def _describe(self, entries: list[Body], model: str | None) -> Identity:
        """The identity, from the entries of /v1/models and the model chosen; families add what they tell elsewhere."""
        return Identity(self.name, None, model, models_of(entries), await self.epoch())

    def _chosen(self, entries: list[Body]) -> str | None:
        """The model asked for, else the only one. Some servers take any name in a request: here a wrong one shows."""
        wanted = self.options.model
        models = models_of(entries)
        if wanted is None:
            return models[0] if len(models) == 1 else None
        for entry in entries:
            aliases = entry.get("aliases")
            if wanted == entry["id"] or (isinstance(aliases, list) and wanted in aliases):
                return wanted
        raise ModelNotServedError(
            f"{self.url} does not serve model {wanted!r}; it serves {', '.join(models) or 'none'}"
        )

    # -- one request

    def prepare(self, request: CellRequest) -> PreparedRequest:
        """Set model, n, seed, stream and the cold means asked for. Raises `TerminalEngineError` for one it has not."""
        check_route(request.path)
        editor = BodyEditor(request.body)
        editor.basics(request)
        if request.cold_proof is not None:
            means = self.cold_means.get(request.cold_proof)
            if means is None:
                allowed = ", ".join(self.cold_means)
                raise TerminalEngineError(f"{self.name} has no cold proof {request.cold_proof!r}; it has: {allowed}")
            means(editor, request)
        self._extend(editor)
        return editor.prepared(request.path)

    def _extend(self, editor: BodyEditor) -> None:
        """Set what else this family must be asked for."""

    async def generate(self, request: PreparedRequest, timeout_seconds: float) -> Answer:
        """Send once; never raises for what a server does, never retries."""
        return await send_once(self._lane, request, timeout_seconds, self._read_settled)

    def _read_settled(self, assembly: Assembly) -> Counts:
        counts = self._read(assembly)
        details = (assembly.usage or {}).get("prompt_tokens_details")
        silent = assembly.usage is not None and as_object(details).get("cached_tokens") is None
        if self._leaves_zeros_out and silent and counts.cached_tokens is None:
            return replace(counts, cached_tokens=0)
        return counts

    def read_again(self, raw: str) -> Answer:
        """What a reply that was kept whole tells, read as when it came; times are 0. No server is asked."""
        return read_again(raw, self._read)

    def _read(self, assembly: Assembly) -> Counts:
        """The counters of a reply. What is missing or no count is None with a finding, never 0."""
        return read_usage(assembly)

    # -- the server's own totals

    async def counters(self) -> Counters | None:
        """The server's totals, None where it exports none."""
        return None if self.series is None else counters_of((await self._scrape()).samples, self.series)

    async def activity(self) -> Activity:
        """Requests at work and waiting, unknown where the server exports no gauges."""
        return Activity() if self.series is None else activity_of((await self._scrape()).samples, self.series)

    async def epoch(self) -> str | None:
        """The marker of this life of the process, None where the server shows none."""
        return None if self.series is None else await self._epoch_of(await self._scrape())

    async def look(self) -> Look:
        """Totals, work and life of the process from one reading of the totals."""
        if self.series is None:
            return Look(None, Activity(), None)
        read = await self._scrape()
        samples = read.samples
        return Look(counters_of(samples, self.series), activity_of(samples, self.series), await self._epoch_of(read))

    async def _epoch_of(self, read: Scrape) -> str | None:
        """The marker of this life of the process, with as few questions beyond the totals as the family allows."""
        return None if self.series is None else start_of(read.samples, self.series)

    async def _scrape(self) -> Scrape:
        return Scrape(None, {}) if self.series is None else await scrape(self._lane, self.series)

    # -- the capability probe

    async def probe(self, salt: str, model: str | None) -> Capabilities:
        """Steps (a) to (d) of ENGINES.md section 1: cold, its repeat, cold again; the server's totals.

        Raises `TransientEngineError` or `TerminalEngineError` when a step brings no numbers.
        """
        return await self._probe_by(self.plan, self.words, salt, model)

    async def _probe_by(self, plan: ProbePlan, words: ProbeWords, salt: str, model: str | None) -> Capabilities:
        self._leaves_zeros_out = False
        # Longer than two blocks of the cache, or the repeat would find none that is full.
        blocks = min(2 * self._block_tokens + 64, MAX_PROBE_WORDS) if self._block_tokens else 0
        length = max(self.options.probe_words, blocks)
        before = await self.counters()
        steps = await run_probe(plan, synthetic_prompt(salt, length), salt, self._ask, model)
        after = await self.counters()
        with_zeros = zeros_put_in(steps)
        if with_zeros is not None and agreement(before, after, with_zeros):
            self._leaves_zeros_out, steps = True, with_zeros
        return judge_probe(plan, words, steps, agreement(before, after, steps))

    async def _ask(self, request: CellRequest) -> Answer:
        return await self.generate(self.prepare(request), self.options.probe_timeout_seconds)

    # -- small questions

    async def _object(self, path: str) -> Body:
        value = await self._lane.get_json(path)
        if not isinstance(value, dict):
            raise TerminalEngineError(f"{self.url}{path} answered {type(value).__name__}, not an object: wrong server?")
        return value

    async def _optional(self, *paths: str) -> Any:
        """The JSON at the first of `paths` that is there (names differ between versions), None where none is."""
        for path in paths:
            try:
                return await self._lane.get_json(path)
            except HttpStatusError as error:
                if error.status not in self.not_told:
                    raise
            except NotJsonError:
                continue  # gateways show a page of their own in the place of what is not there
        return None


def put_nonce(editor: BodyEditor, request: CellRequest) -> None:
    """The cold means every family has: a nonce on the first line."""
    editor.nonce(request.path, request.nonce)


def read_usage(assembly: Assembly) -> Counts:
    """Prompt, cached and output tokens as `usage` tells them; what is missing or no count is None with a finding."""
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
        reasoning_tokens=usage_reasoning_tokens(assembly),
    )


def model_entries(url: str, listing: object) -> list[Body]:
    """The models of a /v1/models listing. Raises `TerminalEngineError` for what is no such listing."""
    data = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(data, list):
        raise TerminalEngineError(f"{url}/v1/models lists no models: not an OpenAI-compatible server")
    return [entry for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def as_object(value: Any) -> Body:
    """A JSON object, empty for anything else."""
    return value if isinstance(value, dict) else {}


def as_text(value: Any) -> str | None:
    """A text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def as_whole(value: Any) -> int | None:
    """A whole number above 0, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def models_of(entries: list[Body]) -> tuple[str, ...]:
    """The ids of the models in a listing."""
    return tuple(str(entry["id"]) for entry in entries)


def entry_of(entries: list[Body], model: str | None) -> Body:
    """The entry of the model to measure, else the first, empty where there is none."""
    return next((entry for entry in entries if entry["id"] == model), entries[0] if entries else {})


async def answers_with(lane: HttpLane, path: str, *fields: str) -> bool:
    """Whether a JSON object with any of `fields` is at `path`. Raises for a missing key and what may pass (503)."""
    try:
        value = await lane.get_json(path)
    except HttpStatusError as error:
        if error.status in (401, 403):
            raise
        return False
    except TerminalEngineError:
        return False
    return isinstance(value, dict) and any(name in value for name in fields)
