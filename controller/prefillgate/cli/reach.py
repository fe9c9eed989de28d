"""From a server as a person names it to an open lane: the one way every command that asks a server takes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from prefillgate.api.run_file import check_url
from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.cli.outcome import say
from prefillgate.cli.server_options import access_of, engine_of, model_of
from prefillgate.core.cells import ARMS
from prefillgate.engines.access import AccessError, access_findings, engine_options
from prefillgate.engines.base import AmbiguousModelError, EngineError, Identity, ModelNotServedError
from prefillgate.engines.registry import AUTO, detect, engine_names
from prefillgate.replay.clock import Clock
from prefillgate.replay.lane import Lane, LaneTimes
from prefillgate.replay.session import ArmRequest

QUIET_SECONDS = 5.0  # without a word from a server, after which a person is told what is waited for


def one_server(options: dict[str, Any]) -> ArmRequest:
    """The server that a command with `--server` and the options of one server names. Raises `BadInput`."""
    url, engine = options["server"], engine_of(options) or AUTO
    try:
        check_url(url)
    except ValueError as error:
        raise BadInput(f"--server: {error}") from error
    if engine not in engine_names():
        raise BadInput(f"--engine: {engine!r} is not known (allowed: {', '.join(engine_names())})")
    return ArmRequest(url.rstrip("/"), model_of(options), engine, access_of(options))


@contextmanager
def told_to_wait(url: str) -> Iterator[None]:
    """Say that a server has not answered yet: one that takes connections and is silent costs minutes."""

    def tell() -> None:
        say(f"{url}: no answer for {QUIET_SECONDS:g} s yet; waiting for it", "waiting")

    told = asyncio.get_running_loop().call_later(QUIET_SECONDS, tell)
    try:
        yield
    finally:
        told.cancel()


async def reach(arm: str, asked: ArmRequest, times: LaneTimes, clock: Clock, stack: AsyncExitStack) -> Lane:
    """A lane to the server, its engine known and open until `stack` closes.

    Raises `BadInput` for a variable or a file that cannot be used, `CouldNotMeasure` where no server answers.
    """
    try:
        options = engine_options(asked.access, asked.model, os.environ)
    except AccessError as error:
        raise BadInput(f"{arm}: {error}") from error
    try:
        with told_to_wait(asked.url):
            engine = await stack.enter_async_context(await detect(asked.url, options, asked.engine))
    except EngineError as error:
        raise CouldNotMeasure(f"{arm}: {error}") from error
    lane = Lane(arm, engine, clock, times)
    lane.access_findings = access_findings(asked.access, engine.url)
    return lane


async def identified(arm: str, lane: Lane) -> Identity:
    """Who is there, with the model to measure.

    Raises `BadInput` where a model must be named or another one, `CouldNotMeasure` where no server answers.
    """
    try:
        with told_to_wait(lane.engine.url):
            return await lane.identify()
    except AmbiguousModelError as error:
        option = f"--{arm}-model" if arm in ARMS else "--model"
        raise BadInput(f"{arm}: {error} (allowed: one of them, named by {option})") from error
    except ModelNotServedError as error:
        raise BadInput(f"{arm}: {error}") from error
    except EngineError as error:
        raise CouldNotMeasure(f"{arm}: {error}") from error
