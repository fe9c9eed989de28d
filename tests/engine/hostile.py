"""A raw socket server that says exactly the bytes a test gives it: replies that no real server can be made to give."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

Reply = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One request as it came, and the means to answer it byte by byte."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    async def say(self, *pieces: bytes) -> None:
        """Write each piece on its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            if len(pieces) > 1:
                await asyncio.sleep(0.002)

    async def head(self, status: str = "200 OK", *lines: str) -> None:
        """Status line and headers; the body then ends with the connection."""
        await self.say("\r\n".join([f"HTTP/1.1 {status}", *lines, "Connection: close", "", ""]).encode())

    async def json(self, value: Any, status: str = "200 OK", *lines: str) -> None:
        """A whole JSON reply."""
        body = json.dumps(value).encode()
        await self.head(status, "Content-Type: application/json", f"Content-Length: {len(body)}", *lines)
        await self.say(body)

    def reset(self) -> None:
        """Cut the connection with a reset instead of an orderly end."""
        held = self.writer.get_extra_info("socket")
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass
class HostileServer:
    """Use as an async context manager. `reply` answers every request; `seen` holds them all."""

    reply: Reply
    tls: ssl.SSLContext | None = None
    seen: list[Exchange] = field(default_factory=list)
    url: str = ""
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> HostileServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            exchange = Exchange(method, path, headers, body, writer)
            self.seen.append(exchange)
            await self.reply(exchange)
        with suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()


def event(value: Any) -> bytes:
    """One server-sent event with `value` as JSON."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(text: str, finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a chat stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event({"id": "cmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more})


DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 20, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
TIMINGS = {"cache_n": 3, "prompt_n": 17, "prompt_ms": 12.5, "predicted_n": 2, "predicted_ms": 6.5}
GOOD = chunk("Hello") + chunk(" you", "stop", usage=USAGE, timings=TIMINGS) + DONE


def stream(*pieces: bytes) -> Reply:
    """A reply that streams these pieces and ends the connection."""

    async def reply(exchange: Exchange) -> None:
        await exchange.head("200 OK", "Content-Type: text/event-stream")
        await exchange.say(*pieces)

    return reply


def whole(value: Any, status: str = "200 OK", *lines: str) -> Reply:
    """A reply in one piece."""

    async def reply(exchange: Exchange) -> None:
        await exchange.json(value, status, *lines)

    return reply


def raw(status: str, body: bytes, *lines: str) -> Reply:
    """A reply with exactly this body."""

    async def reply(exchange: Exchange) -> None:
        await exchange.head(status, *lines)
        await exchange.say(body)

    return reply


def routes(**answers: Reply) -> Reply:
    """Different replies by path; underscores stand for slashes. Other paths are not found."""

    async def reply(exchange: Exchange) -> None:
        answer = answers.get(exchange.path.strip("/").replace("/", "_"))
        await (answer or whole({"error": {"message": "not found"}}, "404 Not Found"))(exchange)

    return reply
