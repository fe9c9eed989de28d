"""Runs the simulated server until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from prefillgate.simulate.answers import load_answers
from prefillgate.simulate.dice import Dice
from prefillgate.simulate.faults import Faults
from prefillgate.simulate.model import SimulatedModel
from prefillgate.simulate.server import Server
from prefillgate.simulate.settings import Settings


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen, who is told the address, and where the HTTP server's own lines go. Port 0 takes any free one."""

    host: str = "127.0.0.1"
    port: int = 0
    ready: Callable[[str], None] = lambda url: None
    logger: logging.Logger | None = None


async def serve(settings: Settings, faults: Faults, listen: Listen) -> None:
    """Serve until SIGINT or SIGTERM. Raises OSError when the port is taken, AnswersError for a bad answers file."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    wording = Dice(settings.seed if settings.text_seed is None else settings.text_seed)
    model = SimulatedModel(settings, faults, load_answers(settings.answers, wording, settings.bad_text))
    logger = listen.logger or logging.getLogger(__name__)
    runner = web.AppRunner(Server(model).application(), access_log=None, logger=logger, shutdown_timeout=0.2)
    try:
        await runner.setup()
        site = web.TCPSite(runner, listen.host, listen.port)
        await site.start()
        listen.ready(_url(runner, listen.host))
        await _wait(stop)
    finally:
        await model.close()
        await runner.cleanup()


def _url(runner: web.AppRunner, host: str) -> str:
    port = runner.addresses[0][1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _wait(stop: asyncio.Event) -> None:
    """Wake now and then: on Windows a signal is seen only when the loop turns."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)


def write_ready_file(path: Path, url: str) -> None:
    """Write the address so that a reader sees all of it or nothing."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(url + "\n", encoding="utf-8")
    partial.replace(path)
