"""What engines of the OpenAI family share: preparing a body, sending it once, reading numbers out of a reply.

An engine adds its own knob and its own counters; nothing here knows a family.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_exponential

from prefillgate.engines.assemble import Assembly, Failure
from prefillgate.engines.base import (
    Answer,
    AnswerStatus,
    Body,
    CellRequest,
    EngineError,
    PreparedRequest,
    TerminalEngineError,
    TransientEngineError,
)
from prefillgate.engines.http import EngineOptions, HttpLane, Sent, encode_body, quote
from prefillgate.engines.secrets import Secrets
from prefillgate.engines.sse import SseLimitError, SseParser

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ROUTES = (CHAT, COMPLETIONS)
MAX_ASKED_WAIT_SECONDS = 10.0  # between two small questions; who is to wait longer is told so by the caller
_T = TypeVar("_T")


class BodyEditor:
    """A copy of a body that notes every field it changes, with the old value (None: absent) and the new one."""

    def __init__(self, body: Body) -> None:
        self.body = dict(body)
        self.changes: list[tuple[str, Any, Any]] = []

    def set(self, name: str, value: Any) -> None:
        """Set a top-level field, unless it has that value already."""
        old = self.body.get(name)
        if name in self.body and type(old) is type(value) and old == value:
            return
        self.body[name] = value
        self.changes.append((name, old, value))

    def drop(self, name: str) -> None:
        """Take a top-level field away."""
        if name in self.body:
            self.changes.append((name, self.body.pop(name), None))

    def basics(self, request: CellRequest) -> None:
        """The fields every engine sets: model, n, seed, stream, stream_options."""
        if request.model is not None:
            self.set("model", request.model)
        self.set("n", 1)
        if request.seed is not None:
            self.set("seed", request.seed)
        self.set("stream", request.stream)
        if request.stream:
            options = self.body.get("stream_options")
            self.set("stream_options", {**(options if isinstance(options, dict) else {}), "include_usage": True})
        else:
            self.drop("stream_options")

    def nonce(self, path: str, nonce: str) -> None:
        """Put `nonce` on the first line of the system message, or of the prompt.

        Raises `TerminalEngineError` for a body that has no such place.
        """
        if path == CHAT:
            messages = self.body.get("messages")
            if not isinstance(messages, list):
                raise TerminalEngineError("messages is not a list: no place for the nonce")
            self.set("messages", _with_system_nonce(messages, nonce))
            return
        prompt = self.body.get("prompt")
        if isinstance(prompt, str):
            self.set("prompt", f"{nonce}\n{prompt}")
        elif isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
            self.set("prompt", [f"{nonce}\n{prompt[0]}"])
        else:
            raise TerminalEngineError("prompt is not one text: no place for the nonce")

    def prepared(self, path: str) -> PreparedRequest:
        """The request with the changes noted."""
        return PreparedRequest(path, self.body, tuple(self.changes))


def _with_system_nonce(messages: list[Any], nonce: str) -> list[Any]:
    first = messages[0] if messages else None
    if not isinstance(first, dict) or first.get("role") not in ("system", "developer"):
        return [{"role": "system", "content": nonce}, *messages]
    content = first.get("content")
    if isinstance(content, list):
        changed: Any = [{"type": "text", "text": f"{nonce}\n"}, *content]
    else:
        changed = f"{nonce}\n{content or ''}"
    return [{**first, "content": changed}, *messages[1:]]


def check_route(path: str) -> None:
    """Raise `TerminalEngineError` for a route whose replies carry no witnesses or cannot be read."""
    if path not in ROUTES:
        raise TerminalEngineError(f"{path!r} is not a route this engine measures; allowed: {', '.join(ROUTES)}")


@dataclass(frozen=True, slots=True)
class Counts:
    """What an engine read of a reply's counters. None where not told."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    processed_tokens: int | None = None
    output_tokens: int | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    draft_tokens: int | None = None
    draft_accepted_tokens: int | None = None
    reasoning_tokens: int | None = None
    retractions: int | None = None


_BLANK = b"\xef\xbb\xbf \t\r\n"  # what may stand before the first letter of a reply, byte order mark included
_STREAM_STARTS = (b":", b"data", b"event", b"id", b"retry", b"error")
ReadCounts = Callable[[Assembly], Counts]


class _Collector:
    """Takes the bytes of one reply as they come, streamed or whole, and knows when it was complete."""

    def __init__(self) -> None:
        self.assembly = Assembly()
        self.first_token_at: float | None = None
        self._parser = SseParser()
        self._chunks: list[bytes] = []
        self._streamed: bool | None = None

    def take(self, chunk: bytes) -> bool:
        """Add a chunk; True when nothing more is wanted."""
        self._chunks.append(chunk)
        if self._streamed is None:
            # By what came, not by the header: servers stream under text/plain and answer whole when asked to stream.
            start = chunk.lstrip(_BLANK)[:1]
            if not start:
                return False
            self._streamed = start not in b'{[<"'
            chunk = self.body
        if not self._streamed:
            return False
        try:
            for event in self._parser.feed(chunk):
                if self.assembly.add_data(event.data, event.event) and self.first_token_at is None:
                    self.first_token_at = time.perf_counter()
        except SseLimitError as error:
            self.assembly.fail("TooLong", str(error))
        return self.assembly.done or self.assembly.error is not None

    def finish(self) -> None:
        """The reply ended where it should."""
        if not self._streamed:
            self._finish_whole()
            return
        for event in self._parser.close() if self.assembly.error is None else ():
            self.assembly.add_data(event.data, event.event)
        if self._parser.replaced:
            self.assembly.note("the reply held bytes that are not UTF-8; they were replaced")
        if not self.assembly.choices and not self.body.lstrip(_BLANK).startswith(_STREAM_STARTS):
            self.assembly.fail("NotJson", f"the reply is neither JSON nor a stream of events: {quote(self.body)}")

    def _finish_whole(self) -> None:
        try:
            text = self.body.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.assembly.note("the reply held bytes that are not UTF-8; they were replaced")
            text = self.body.decode("utf-8", "replace")
        try:
            payload = json.loads(text)
        except (ValueError, RecursionError):
            self.assembly.fail("NotJson", f"the reply is not JSON: {quote(self.body)}")
            return
        self.assembly.add_whole(payload)

    @property
    def body(self) -> bytes:
        """All bytes so far."""
        return b"".join(self._chunks)


async def send_once(lane: HttpLane, request: PreparedRequest, timeout_seconds: float, read: ReadCounts) -> Answer:
    """Send `request` once and tell everything the server said. Never retries, never raises for what a server does."""
    try:
        body = encode_body(request.body)
    except ValueError as error:
        now = time.time()
        return Answer(AnswerStatus.REFUSED, now, now, reason="BadRequest", detail=f"the body is not JSON: {error}")
    collector = _Collector()
    started_at, start = time.time(), time.perf_counter()
    sent = await lane.post(request.path, body, timeout_seconds, collector.take)
    seconds = time.perf_counter() - start
    if sent.failure is None:
        collector.finish()
        failure = collector.assembly.failure()
    else:
        failure = sent.failure
    answer = _without_secrets(_answer(sent, failure, collector, read), lane.secrets)
    first = collector.first_token_at
    return replace(
        answer,
        started_at=started_at,
        ended_at=started_at + seconds,
        time_to_first_token_ms=None if first is None or answer.retractions else (first - start) * 1000,
    )


def _answer(sent: Sent, failure: Failure | None, collector: _Collector, read: ReadCounts) -> Answer:
    assembly = collector.assembly
    taken = sent.http_status == 200
    if assembly.choices > 1:
        assembly.note(f"the reply has {assembly.choices} choices: one prefill posing as {assembly.choices} answers")
        counts = Counts()
    else:
        counts = read(assembly) if taken else Counts()
    status = AnswerStatus.OK if failure is None else AnswerStatus.FAILED
    if not sent.accepted:
        status = AnswerStatus.REFUSED
    return Answer(
        status=status,
        started_at=0.0,
        ended_at=0.0,
        http_status=sent.http_status,
        reason=failure.reason if failure else None,
        detail=failure.detail if failure else None,
        retry_after_seconds=sent.retry_after_seconds,
        content=assembly.content,
        reasoning=assembly.reasoning,
        tool_calls=assembly.tool_calls,
        finish_reason=assembly.finish_reason,
        request_id=assembly.request_id,
        model=assembly.model,
        raw=collector.body.decode("utf-8", "replace") if taken else sent.error_body,
        findings=tuple(assembly.findings),
        **_fields(counts),
    )


def read_again(raw: str, read: ReadCounts) -> Answer:
    """What a reply that was kept whole tells, read as `send_once` read it; times are 0, that of the first token None
    where no token came in a stream. Pure."""
    collector = _Collector()
    collector.take(raw.encode("utf-8", "replace"))
    collector.finish()
    answer = _answer(Sent(http_status=200), collector.assembly.failure(), collector, read)
    return replace(answer, time_to_first_token_ms=None if collector.first_token_at is None else 0.0)


def _without_secrets(answer: Answer, secrets: Secrets) -> Answer:
    """A server that repeats our key in its answer must not bring it into the evidence."""
    return replace(
        answer,
        detail=None if answer.detail is None else secrets.out_of_error(answer.detail),
        content=secrets.out_of_answer(answer.content),
        reasoning=secrets.out_of_answer(answer.reasoning),
        tool_calls=secrets.out_of_answer(answer.tool_calls),
        raw=secrets.out_of_answer(answer.raw),
    )


def _fields(counts: Counts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in Counts.__slots__}


def count(owner: Body | None, name: str, note: Callable[[str], None]) -> int | None:
    """A token count out of `owner`, or None with a finding when it is there and is no count."""
    value = owner.get(name) if owner else None
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
        return value
    note(f"{name} is {json.dumps(value)[:60]}, not a count of tokens; taken as unknown")
    return None


def milliseconds(owner: Body | None, name: str, note: Callable[[str], None]) -> float | None:
    """A duration out of `owner`, or None with a finding when it is there and is no duration."""
    value = owner.get(name) if owner else None
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    note(f"{name} is {json.dumps(value)[:60]}, not a duration; taken as unknown")
    return None


def usage_cached_tokens(assembly: Assembly) -> int | None:
    """`usage.prompt_tokens_details.cached_tokens`, None where absent."""
    details = (assembly.usage or {}).get("prompt_tokens_details")
    return count(details if isinstance(details, dict) else None, "cached_tokens", assembly.note)


def usage_reasoning_tokens(assembly: Assembly) -> int | None:
    """`usage.completion_tokens_details.reasoning_tokens`, None where absent."""
    details = (assembly.usage or {}).get("completion_tokens_details")
    return count(details if isinstance(details, dict) else None, "reasoning_tokens", assembly.note)


_DOUBLED = wait_exponential(multiplier=0.2, max=2.0)


def _wait(state: RetryCallState) -> float:
    """Seconds until a question is asked again: twice as long each time, or as long as the server asked for."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after_seconds if isinstance(error, EngineError) else None
    return max(_DOUBLED(state), min(asked or 0.0, MAX_ASKED_WAIT_SECONDS))


async def retried(options: EngineOptions, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask an idempotent question again while the error is transient. Never put around a generation."""
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(TransientEngineError),
        stop=stop_after_attempt(max(1, options.attempts)),
        wait=_wait,
        reraise=True,
    )

    async def once() -> _T:
        return await ask()

    return await retrying(once)
