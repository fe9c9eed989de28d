"""The bodies of answers, field by field as llama-server writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prefillgate.simulate import dialects, logprobs
from prefillgate.simulate.reporting import Report
from prefillgate.simulate.request import GenerationRequest, Route
from prefillgate.simulate.sampling import sampling
from prefillgate.simulate.settings import Dialect, Settings
from prefillgate.simulate.tokens import token_id


@dataclass(frozen=True, slots=True)
class Piece:
    """One token's text on its channel: content, reasoning, or tool:N:name (N counts the calls from 0)."""

    channel: str
    text: str


@dataclass(frozen=True, slots=True)
class Token:
    """A result grew by one token, its `count`-th of `of`; `opens` when it begins a tool call."""

    index: int
    piece: Piece
    count: int
    of: int
    opens: bool


@dataclass(frozen=True, slots=True)
class Output:
    """One result: its pieces in order and how it ended."""

    pieces: tuple[Piece, ...]
    finish_reason: str | None

    def text(self, channel: str) -> str:
        """All text of a channel."""
        return "".join(piece.text for piece in self.pieces if piece.channel == channel)

    def tool_calls(self) -> list[dict[str, Any]]:
        """The complete calls, in the order they were made."""
        channels = dict.fromkeys(piece.channel for piece in self.pieces if piece.channel.startswith("tool:"))
        return [
            {
                "type": "function",
                "function": {"name": channel.split(":", 2)[2], "arguments": self.text(channel)},
                "id": f"call_{channel.split(':', 2)[1]}",
            }
            for channel in channels
        ]


def encode(data: object) -> bytes:
    """JSON without spaces; surrogates that stand for broken bytes become those bytes."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def event(data: object) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(data) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Scribe:
    """Writes the bodies of one request."""

    settings: Settings
    request: GenerationRequest
    identifier: str
    created: int
    slot: int
    prompt_tokens: int

    @property
    def _llama(self) -> bool:
        return self.settings.dialect is Dialect.LLAMA

    @property
    def _reasoning_name(self) -> str:
        return "reasoning" if self.settings.dialect is Dialect.VLLM else "reasoning_content"

    def _envelope(self, kind: str) -> dict[str, Any]:
        body = {"created": self.created, "model": self.settings.model}
        fingerprint = {"system_fingerprint": self.settings.build_info} if self._llama else {}
        return {**body, **fingerprint, "object": kind, "id": self.identifier}

    def _usage(self, outputs: tuple[Output, ...], report: Report) -> dict[str, Any]:
        if not report.shows_usage:
            return {}
        dialect = self.settings.dialect
        reasoning = sum(piece.channel == "reasoning" for output in outputs for piece in output.pieces)
        return {"usage": dialects.usage(dialect, report, reasoning) if dialect.salted else report.usage()}

    def _timings(self, report: Report) -> dict[str, Any]:
        if self.settings.dialect.salted:
            return dialects.beside(self.settings.dialect, self.request, report)
        return {"timings": report.timings()} if report.shows_timings and self._llama else {}

    def whole(self, outputs: tuple[Output, ...], report: Report) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        if self.request.route is Route.COMPLETION:
            return self._native(outputs[0], outputs[0].text("content"), report)
        chat = self.request.route is Route.CHAT
        choices = [self._message(i, out) if chat else self._text(i, out) for i, out in enumerate(outputs)]
        envelope = self._envelope("chat.completion" if chat else "text_completion")
        return {"choices": choices, **envelope, **self._usage(outputs, report), **self._timings(report)}

    def _text(self, index: int, output: Output) -> dict[str, Any]:
        text = output.text("content")
        told = self._logprobs(*(piece.text for piece in output.pieces))
        return {"text": text, "index": index, "logprobs": told, "finish_reason": output.finish_reason}

    def _message(self, index: int, output: Output) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": output.text("content")}
        if reasoning := output.text("reasoning"):
            message[self._reasoning_name] = reasoning
        if calls := output.tool_calls():
            message["tool_calls"] = calls
        told = self._logprobs(*(piece.text for piece in output.pieces))
        with_logprobs = {} if told is None else {"logprobs": told}
        return {"finish_reason": output.finish_reason, "index": index, "message": message, **with_logprobs}

    def _logprobs(self, *texts: str) -> dict[str, Any] | None:
        """What was asked for of these tokens; None where nothing was."""
        alternatives = logprobs.wanted(self.request.body, self.request.route is Route.CHAT)
        if alternatives is None:
            return None
        return {"content": [logprobs.of_token(text, alternatives) for text in texts]}

    def _native(self, output: Output, content: str, report: Report) -> dict[str, Any]:
        figures = report.figures
        limit = {"length": "limit", "stop": "eos"}.get(output.finish_reason or "", "none")
        return {
            "index": 0,
            "content": content,
            "tokens": [],
            "id_slot": self.slot,
            "stop": True,
            "model": self.settings.model,
            "tokens_predicted": figures.output_tokens,
            "tokens_evaluated": figures.prompt_tokens,
            "generation_settings": sampling(self.request),
            "prompt": self.request.prompt,
            "has_new_line": "\n" in output.text("content"),
            "truncated": False,
            "stop_type": limit,
            "stopping_word": "",
            "tokens_cached": figures.prompt_tokens
            + figures.output_tokens
            - 1,  # llama-server's name; not what was reused
            **self._timings(report),
        }

    def opening(self) -> list[bytes]:
        """What a stream begins with."""
        if self.request.route is not Route.CHAT:
            return []
        first = {"role": "assistant", "content": None}
        return [event(self._chunk({"finish_reason": None, "index": i, "delta": first})) for i in range(self.request.n)]

    def _chunk(self, choice: dict[str, Any] | None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.request.route is Route.CHAT else "text_completion"
        return {"choices": [] if choice is None else [choice], **self._envelope(kind)}

    def piece(self, token: Token) -> bytes:
        """The event of one token."""
        route, index, text = self.request.route, token.index, token.piece.text
        if route is Route.COMPLETION:
            body = {"index": 0, "content": text, "tokens": [token_id(text)], "stop": False, "id_slot": -1}
            return event({**body, "tokens_predicted": token.count, "tokens_evaluated": self.prompt_tokens})
        if route is Route.COMPLETIONS:
            told = self._logprobs(text)
            return event(self._chunk({"text": text, "index": index, "logprobs": told, "finish_reason": None}))
        told = self._logprobs(text)
        with_logprobs = {} if told is None else {"logprobs": told}
        return event(self._chunk({"finish_reason": None, "index": index, "delta": self._delta(token), **with_logprobs}))

    def _delta(self, token: Token) -> dict[str, Any]:
        text = token.piece.text
        if token.piece.channel == "content":
            return {"content": text}
        if token.piece.channel == "reasoning":
            return {self._reasoning_name: text}
        _, number, name = token.piece.channel.split(":", 2)
        if not token.opens:
            return {"tool_calls": [{"index": int(number), "function": {"arguments": text}}]}
        function = {"name": name, "arguments": text}
        return {
            "tool_calls": [{"index": int(number), "id": f"call_{number}", "type": "function", "function": function}]
        }

    def closing(self, outputs: tuple[Output, ...], report: Report) -> Iterator[bytes]:
        """What a stream ends with: finish reasons, usage, timings, the end mark."""
        if self.request.route is Route.COMPLETION:
            yield event(self._native(outputs[0], "", report))
            return
        chat = self.request.route is Route.CHAT
        apart = self.request.include_usage and (chat or not self._llama)
        for index, output in enumerate(outputs):
            end: dict[str, Any] = {"finish_reason": output.finish_reason, "index": index}
            choice = {**end, "delta": {}} if chat else {"text": "", **end, "logprobs": None}
            usage = self._usage(outputs, report) if self._llama and not chat else {}
            if self._llama and not chat and output.finish_reason == "stop":  # the stop token's chunk, without text
                empty = {"text": "", "index": index, "logprobs": None, "finish_reason": None}
                yield event({**self._chunk(empty), **self._timings(report)})
            yield event({**self._chunk(choice), **usage, **({} if apart else self._timings(report))})
        if apart:
            yield event({**self._chunk(None), **self._usage(outputs, report), **self._timings(report)})
        yield b"data: [DONE]\n\n"
