"""A judge endpoint that answers as a test plans it, over a socket, in a thread of its own.

with judge_server(says(bad=True, why="it guesses")) as judge:
    ...  # judge.url, judge.bodies, judge.headers
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.serving import serving

Plan = Callable[[dict[str, Any], int], Any]
"""Given the request's body and its number from 1: the content of an answer (text or a JSON value), or a response."""


@dataclass
class JudgeServer:
    """What the endpoint was asked."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """What stood in the last message of each request."""
        return [body["messages"][-1]["content"] for body in self.bodies]


def says(bad: bool, why: str = "a reason") -> Plan:
    """Always this verdict."""
    return lambda body, number: {"bad": bad, "why": why}


def says_bad_of(*parts: str) -> Plan:
    """Bad where one of `parts` stands in the text to be judged."""

    def plan(body: dict[str, Any], number: int) -> Any:
        text = body["messages"][-1]["content"]
        return {"bad": any(part in text for part in parts), "why": "it holds what it may not"}

    return plan


def fault(status: int, text: str = "out of order", **headers: str) -> web.Response:
    """An error as servers write it."""
    return web.json_response({"error": {"message": text, "type": "server_error"}}, status=status, headers=headers)


def chat(content: Any, **message: Any) -> web.Response:
    """A whole chat reply."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
    return web.json_response({"id": "judged", "object": "chat.completion", "choices": [choice]})


@contextmanager
def judge_server(plan: Plan) -> Iterator[JudgeServer]:
    """The endpoint, until the block ends."""
    seen = JudgeServer()

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        seen.bodies.append(body)
        seen.headers.append({name.lower(): value for name, value in request.headers.items()})
        said = plan(body, len(seen.bodies))
        if asyncio.iscoroutine(said):
            said = await said
        return said if isinstance(said, web.StreamResponse) else chat(said)

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", complete)
    with serving(app) as seen.url:
        yield seen


def write_examples(path: Path, good: int = 12, bad: int = 12) -> Path:
    """Labelled outputs: the bad ones hold the word rubbish."""
    lines = [{"output": f"clean text {number}", "label": "good"} for number in range(good)]
    lines += [{"output": f"rubbish text {number}", "label": "bad"} for number in range(bad)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
