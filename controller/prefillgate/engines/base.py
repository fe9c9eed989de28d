"""The one protocol every engine speaks. The runner knows nothing else of a model server.

An engine turns a case's body into a request that forces a fresh prefill, sends it once, and tells what
the server reported: counters, timings, text. It never retries a generation and never judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from prefillgate.report.clean import one_line

Body = dict[str, Any]
MAX_NAMED_MODELS = 20


class EngineError(Exception):
    """A server could not be reached or did not answer as its family does. Base of both kinds.

    `http_status` is what it answered with, None where it gave no HTTP answer or a good one; `retry_after_seconds` is
    how long it asked to be left alone.
    """

    http_status: int | None = None
    retry_after_seconds: float | None = None


class TransientEngineError(EngineError):
    """Trying again may help: refused connection, 429, 503, a model still loading."""


class TerminalEngineError(EngineError):
    """Trying again will not help: TLS failure, 401, 404, HTML instead of JSON, wrong server."""


class ModelNotServedError(TerminalEngineError):
    """The model asked for is none of those the server has."""


class AmbiguousModelError(TerminalEngineError):
    """The server has several models, and nobody said which one to measure."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What discovery told. None where this server tells nothing."""

    engine: str
    build: str | None
    model: str | None  # the id to send as `model`
    models: tuple[str, ...]
    server_epoch: str | None
    weights: str | None = None
    context_tokens: int | None = None  # per slot
    slots: int | None = None
    settings: tuple[tuple[str, str], ...] = ()


def measured_model(url: str, identity: Identity) -> str:
    """The id that goes into every body: the one asked for, else the only one served.

    Raises `AmbiguousModelError` where several are served, `TerminalEngineError` where none is.
    """
    if identity.model is not None:
        return identity.model
    if not identity.models:
        raise TerminalEngineError(f"{url} lists no model at /v1/models: is one loaded?")
    listed = ", ".join(one_line(name, 100) for name in identity.models[:MAX_NAMED_MODELS])
    more = len(identity.models) - MAX_NAMED_MODELS
    rest = f" and {more} more" if more > 0 else ""
    raise AmbiguousModelError(f"{url} serves {len(identity.models)} models and none was asked for: {listed}{rest}")


@dataclass(frozen=True, slots=True)
class Counters:
    """The server's own totals since its start, from /metrics. None where not exported."""

    prompt_tokens_processed: float | None = None
    prompt_tokens_cached: float | None = None
    output_tokens: float | None = None
    draft_tokens: float | None = None
    draft_accepted_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """How busy the server is now. None where it does not tell."""

    running: int | None = None
    waiting: int | None = None

    @property
    def idle(self) -> bool | None:
        """True when nothing runs or waits, None when nothing is told."""
        if self.running is None and self.waiting is None:
            return None
        return not self.running and not self.waiting


@dataclass(frozen=True, slots=True)
class Look:
    """What a server tells of itself at one moment, before or after a cell: totals, work under way, which life it is."""

    counters: Counters | None
    activity: Activity
    epoch: str | None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the capability probe showed in this server epoch (ENGINES.md section 1).

    `cold_proof` is a `ColdProof` value or None: the means of forcing a fresh prefill that was seen to work.
    """

    counter_alive: bool
    cold_proof: str | None
    counters_agree: bool | None  # None: no /metrics
    findings: tuple[str, ...] = ()  # one sentence each: what could not be shown, and the flag that would give it
    decode_times: bool | None = None  # whether a reply tells how long its decode took; None: nothing was decoded
    route_proofs: tuple[
        tuple[str, str], ...
    ] = ()  # of routes that do not take `cold_proof`: what was seen to work there
    knob_ignored: str | None = None  # the finding, where a live counter showed that nothing forces a fresh prefill


@dataclass(frozen=True, slots=True)
class CellRequest:
    """What the runner wants sent: the case's body as written, and what only this cell has."""

    path: str  # "/v1/chat/completions"
    body: Body
    model: str | None  # None: leave the body's own
    seed: int | None  # None: leave the body's own
    nonce: str  # unique to the cell's prompt round, equal on both arms; used only if `cold_proof` is salt or nonce
    cold_proof: str | None = None  # None: send with the cache as it is
    stream: bool = True


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request as it will be sent. `changes` name every field the gate touched, old and new value."""

    path: str  # "/v1/completions"
    body: Body
    changes: tuple[tuple[str, Any, Any], ...]


class AnswerStatus(StrEnum):
    """How a request ended. Only `refused` was never accepted by the server."""

    OK = "ok"
    FAILED = "failed"  # accepted, then no complete answer
    REFUSED = "refused"  # no connection, TLS failure, any 4xx, 503, before a byte of the answer


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought. Token counts as reported, None where absent. Times in seconds since the epoch."""

    status: AnswerStatus
    started_at: float
    ended_at: float
    http_status: int | None = None
    reason: str | None = None  # one CamelCase word when not ok: Timeout, ConnectionLost, ConnectionRefused, Tls,
    # HttpError, NotJson, CutStream, EmptyAnswer, ErrorInStream, TooLong ...
    detail: str | None = None  # the server's message, at most 500 characters, one line
    retry_after_seconds: float | None = None
    content: str = ""
    reasoning: str = ""
    tool_calls: str = ""  # JSON array as text, or empty
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    processed_tokens: int | None = None
    output_tokens: int | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    time_to_first_token_ms: float | None = None
    draft_tokens: int | None = None
    draft_accepted_tokens: int | None = None
    reasoning_tokens: int | None = None  # of the output tokens, those of the reasoning
    retractions: int | None = None  # how often the server took the request back and computed it anew
    request_id: str | None = None
    model: str | None = None  # as the reply names it
    raw: str = ""  # the reply as it came over the wire, decoded with replacement
    findings: tuple[str, ...] = field(default=())  # what was odd about the reply, one sentence each


@runtime_checkable
class CountsTokens(Protocol):
    """An engine whose servers can be asked for a prompt's length before it is sent. Not every family has one."""

    async def prompt_tokens(self, request: PreparedRequest) -> int | None:
        """Tokens of the prompt as the server reads it; None where this server does not tell."""


class Engine(Protocol):
    """One server of one family. Use as an async context manager."""

    name: str
    shares_blocks: bool  # whether in-flight requests share prefix blocks
    url: str

    async def __aenter__(self) -> Engine: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def discover(self) -> Identity:
        """Who is there. Raises `TransientEngineError` or `TerminalEngineError`."""

    async def probe(self, salt: str, model: str | None) -> Capabilities:
        """The capability probe, once per server epoch, on a synthetic prompt that `salt` makes new."""

    def prepare(self, request: CellRequest) -> PreparedRequest:
        """The body that forces a fresh prefill by `request.cold_proof` (the nonce where the engine has no knob)."""

    async def generate(self, request: PreparedRequest, timeout_seconds: float) -> Answer:
        """Send once; never raises for what a server does, never retries."""

    async def counters(self) -> Counters | None:
        """The server's totals, or None when it exports none."""

    async def activity(self) -> Activity:
        """Whether other work is running or waiting."""

    async def epoch(self) -> str | None:
        """The marker of this life of the server process, or None when it shows none."""

    async def look(self) -> Look:
        """Counters, activity and epoch of one moment, by as few questions as this family allows."""
