"""A generation request as parsed from its body, refused the way llama-server refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prefillgate.simulate.answers import Asked

_UNLIMITED = 1_000_000


class Route(StrEnum):
    """The three generation routes."""

    COMPLETIONS = "/v1/completions"
    COMPLETION = "/completion"
    CHAT = "/v1/chat/completions"


class Refused(Exception):
    """The request is answered with an error object. `extra` fields stand beside message and type."""

    def __init__(self, status: int, kind: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": status, "message": message, "type": kind, **extra}}


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What was asked for. `max_tokens` is at least 1, as the server always decodes one."""

    route: Route
    prompt: str
    body: dict[str, Any]
    stream: bool
    include_usage: bool
    max_tokens: int
    temperature: float
    seed: int | None
    n: int
    cache_prompt: bool
    stop: tuple[str, ...]
    cache_salt: str | None = None

    @property
    def limited(self) -> bool:
        """Whether the request bounds its answer's length."""
        return self.max_tokens < _UNLIMITED

    def asked(self, bad: bool, index: int, variant: str) -> Asked:
        """What the answer of result `index` depends on."""
        seed = None if self.seed is None else self.seed + index
        sampled = f"{variant}{index}" if self.temperature > 0 and index else variant
        return Asked(self.prompt, bad, seed, self.temperature, sampled)


def _invalid(message: str) -> Refused:
    return Refused(400, "invalid_request_error", message)


def parse(route: Route, raw: bytes, slots: int) -> GenerationRequest:
    """The request in `raw`. Raises Refused as llama-server would answer."""
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise _invalid(f"[json.exception.parse_error.101] parse error: {error}") from None
    if not isinstance(body, dict):
        raise _invalid("[json.exception.type_error.304] cannot use at() with array")
    prompt = _chat_prompt(body) if route is Route.CHAT else _plain_prompt(body)
    n = _number(body, "n", 1)
    if not 1 <= n <= slots:
        raise _invalid(f"Field 'n': Value must be between 1 <= value <= {slots}, but got {n:g}")
    options = body.get("stream_options")
    seed = _number(body, "seed", -1)
    stop = body.get("stop") or []
    return GenerationRequest(
        route=route,
        prompt=prompt,
        body=body,
        stream=_flag(body, "stream", False),
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=_limit(body),
        temperature=_number(body, "temperature", 0.8),
        seed=None if seed < 0 else int(seed),
        n=int(n),
        cache_prompt=_flag(body, "cache_prompt", True),
        cache_salt=body["cache_salt"] if isinstance(body.get("cache_salt"), str) else None,
        stop=(stop,) if isinstance(stop, str) else tuple(text for text in stop if isinstance(text, str)),
    )


def _limit(body: dict[str, Any]) -> int:
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):
        if body.get(name) is not None:
            limit = int(_number(body, name, -1))
            return _UNLIMITED if limit < 0 else max(limit, 1)
    return _UNLIMITED


def _number(body: dict[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = "string" if isinstance(value, str) else type(value).__name__
        raise _invalid(f"Field '{name}': [json.exception.type_error.302] type must be number, but is {kind}")
    return value


def _flag(body: dict[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _invalid(f"Field '{name}': [json.exception.type_error.302] type must be boolean")
    return value


def _plain_prompt(body: dict[str, Any]) -> str:
    if "prompt" not in body:
        raise _invalid("[json.exception.out_of_range.403] key 'prompt' not found")
    prompt = body["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise _invalid('"prompt" must be a string; the simulated server takes one prompt a request')
    return prompt


def _chat_prompt(body: dict[str, Any]) -> str:
    if "messages" not in body:
        raise _invalid("'messages' is required")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise _invalid("Expected 'messages' to be an array")
    parts = [f"<|im_start|>{_role(message)}\n{_content(message)}<|im_end|>\n" for message in messages]
    tools = body.get("tools")
    if tools:
        parts.insert(0, f"<|im_start|>tools\n{json.dumps(tools, sort_keys=True)}<|im_end|>\n")
    return "".join(parts) + "<|im_start|>assistant\n"


def _role(message: Any) -> str:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise _invalid("Missing 'role' in message")
    role: str = message["role"]
    return role


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(part) for part in content)
    if message["role"] != "assistant":
        raise _invalid("All non-assistant messages must contain 'content'")
    return json.dumps(message["tool_calls"], sort_keys=True) if message.get("tool_calls") else ""


def _part(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        text: str = part["text"]
        return text
    if kind == "image_url":
        message = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
        raise Refused(500, "server_error", message)
    raise _invalid("unsupported content[].type")
