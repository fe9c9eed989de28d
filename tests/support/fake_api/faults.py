"""What can be made to go wrong, and with which calls."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass

from aiohttp import web

PAGE = "<!DOCTYPE html>\n<html><body><h1>Please sign in</h1></body></html>\n"


@dataclass
class Fault:
    """`what` happens to the next `times` calls of `verb` on `plural` (empty: any; verbs as in prefillgate.kube).

    status: an answer of the API with `code`, `reason`, `message`, `retry_after`. html: the page of a proxy with `code`.
    text: `body` with `code`. hang: no answer. reset: the connection is reset. truncate: half an answer. slow: the
    answer in tiny pieces. hold: the right answer, once the fake's `release` is called. close: an empty answer that ends
    at once (a watch that is closed). With `applied` the call is carried out first, and only its answer is lost.
    """

    what: str
    verb: str = ""
    plural: str = ""
    times: int = 1
    code: int = 500
    reason: str = ""
    message: str = "made to fail"
    retry_after: int | None = None
    body: str = ""
    applied: bool = False
    met: int = 0

    def meets(self, verb: str, plural: str) -> bool:
        return self.times > 0 and self.verb in {"", verb} and self.plural in {"", plural}

    def take(self) -> None:
        self.times -= 1
        self.met += 1


def status(code: int, reason: str, message: str, **details: object) -> dict[str, object]:
    """An object of kind Status, as the API server answers."""
    found: dict[str, object] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": code}
    found |= {"status": "Success" if code < 300 else "Failure", "reason": reason, "message": message}
    return {**found, "details": details} if details else found


async def reset(request: web.Request) -> web.StreamResponse:
    """Send a TCP reset."""
    transport = request.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response()


async def in_pieces(request: web.Request, body: bytes) -> web.StreamResponse:
    """The answer five bytes at a time."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for at in range(0, len(body), 5):
        await response.write(body[at : at + 5])
        await asyncio.sleep(0)
    await response.write_eof()
    return response


async def cut(request: web.Request, body: bytes, length: int) -> web.StreamResponse:
    """The first half of a body that was announced whole."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(length)})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
