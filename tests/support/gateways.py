"""Gateways in front of a server, each with one thing it does to requests, as those of production do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from tests.support.rewriting import Arrived, Rewrite, rewriting

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


@contextmanager
def passing(url: str, arrived: list[Arrived] | None = None) -> Iterator[str]:
    """Passes everything on as it is."""
    with rewriting(url, {}, arrived) as address:
        yield address


@contextmanager
def editing(url: str, change: Callable[[dict[str, Any]], None]) -> Iterator[str]:
    """Passes on each body after `change` was made to it."""

    def edit(path: str, body: bytes) -> bytes:
        if path not in (COMPLETIONS, CHAT):
            return body
        document = json.loads(body)
        change(document)
        return json.dumps(document).encode()

    with rewriting(url, {}, edit=edit) as address:
        yield address


@contextmanager
def refusing(url: str, status: int, message: str) -> Iterator[str]:
    """Answers every generation with this status."""

    def edit(path: str, body: bytes) -> bytes | web.Response:
        if path not in (COMPLETIONS, CHAT):
            return body
        return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=status)

    with rewriting(url, {}, edit=edit) as address:
        yield address


@contextmanager
def caching(url: str, kept: dict[bytes, bytes] | None = None) -> Iterator[str]:
    """Answers a body it saw before from its response cache, to the byte, without asking the server."""
    answers: dict[bytes, bytes] = {} if kept is None else kept

    def edit(path: str, body: bytes) -> bytes | web.Response:
        known = answers.get(body)
        return body if known is None else web.Response(body=known, content_type="text/event-stream")

    async def keep(request: web.Request, said: bytes) -> bytes:
        answers[await request.read()] = said
        return said

    with rewriting(url, {COMPLETIONS: keep, CHAT: keep}, edit=edit) as address:
        yield address


@contextmanager
def saying(url: str, say: Callable[[bytes], bytes]) -> Iterator[str]:
    """Passes on every answer after `say` was applied to its bytes."""

    async def answer(request: web.Request, said: bytes) -> bytes:
        return say(said)

    rewrites: dict[str, Rewrite] = {COMPLETIONS: answer, CHAT: answer}
    with rewriting(url, rewrites) as address:
        yield address


def with_text(text: str) -> Callable[[bytes], bytes]:
    """Makes a streamed answer say `text`, its ids, counters and finish as they were."""

    def say(stream: bytes) -> bytes:
        lines, left = [], [text]
        for line in stream.split(b"\n"):
            if line.startswith(b"data: {"):
                chunk = json.loads(line.removeprefix(b"data: "))
                for choice in chunk.get("choices", ()):
                    part = choice.get("delta", choice)
                    for name in ("text", "content"):
                        if part.get(name):
                            part[name] = left.pop() if left else ""
                line = b"data: " + json.dumps(chunk).encode()
            lines.append(line)
        return b"\n".join(lines)

    return say
