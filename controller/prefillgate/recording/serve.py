"""Runs a pass-through until it is told to end, then lets what is under way come to its end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from urllib.parse import urlsplit

from aiohttp import web

from prefillgate.recording.proxy import HEADER_BYTES

DRAIN_SECONDS = 30.0
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, who is told the address, who is asked every `every_seconds` to say how it goes, and where the
    HTTP server's own lines go."""

    host: str
    port: int
    ready: Callable[[str], None]
    tell: Callable[[], None]
    every_seconds: float = 60.0
    logger: logging.Logger | None = None


async def serve(application: web.Application, listening: Listening) -> int:
    """Serve until a signal and return its number. What is under way then has `DRAIN_SECONDS`, or until a second one.

    Raises OSError where it cannot listen.
    """
    loop = asyncio.get_running_loop()
    came: list[int] = []
    first, second = asyncio.Event(), asyncio.Event()

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        loop.call_soon_threadsafe((first if len(came) == 1 else second).set)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=listening.logger or logging.getLogger(__name__),
        handler_cancellation=True,
        shutdown_timeout=DRAIN_SECONDS,
        max_line_size=HEADER_BYTES,
        max_field_size=HEADER_BYTES,
    )
    try:
        await runner.setup()
        await web.TCPSite(runner, listening.host, listening.port).start()
        listening.ready(_url(runner, listening.host))
        while not first.is_set():
            await _wait(first, listening.every_seconds)
            if not first.is_set():
                listening.tell()
        return came[0]
    finally:
        await _end(runner, second)
        for number, handler in before.items():
            signal.signal(number, handler)


async def _end(runner: web.AppRunner, second: asyncio.Event) -> None:
    ending = asyncio.create_task(runner.cleanup())
    hurry = asyncio.create_task(_wait(second, DRAIN_SECONDS + 5))
    await asyncio.wait({ending, hurry}, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not ending.done():
        ending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ending


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event or so long. Wakes now and then: on Windows a signal is seen only when the loop turns."""
    end = asyncio.get_running_loop().time() + seconds
    while not event.is_set() and (left := end - asyncio.get_running_loop().time()) > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), min(0.5, left))


def _url(runner: web.AppRunner, host: str) -> str:
    port = runner.addresses[0][1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_itself(upstream: str, host: str, port: int) -> bool:
    """Whether whoever listens at `host` and `port` would be the server at the address `upstream`."""
    parts = urlsplit(upstream)
    if (parts.port or _PORTS[parts.scheme]) != port:
        return False
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = {ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found}
    mine = ipaddress.ip_address(host)
    return mine in addresses or (mine.is_unspecified and any(_is_here(each) for each in addresses))


def _is_here(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether this machine has that address: one that can be bound."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
