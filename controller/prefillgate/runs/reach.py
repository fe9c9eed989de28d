"""From a server as it was named to an open lane: the one way every run and every command that asks a server takes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial

from prefillgate.core.cells import ARMS
from prefillgate.engines.access import AccessError, access_findings, engine_options
from prefillgate.engines.base import AmbiguousModelError, EngineError, Identity, ModelNotServedError
from prefillgate.engines.registry import detect
from prefillgate.replay.lane import Lane, LaneTimes
from prefillgate.replay.session import ArmRequest
from prefillgate.runs.around import Around
from prefillgate.runs.errors import BadInput, CouldNotMeasure

QUIET_SECONDS = 5.0  # without a word from a server, after which a person is told what is waited for


@contextmanager
def told_to_wait(url: str, around: Around) -> Iterator[None]:
    """Say that a server has not answered yet: one that takes connections and is silent costs minutes."""

    def tell() -> None:
        around.said(f"{url}: no answer for {QUIET_SECONDS:g} s yet; waiting for it", "waiting")

    told = asyncio.get_running_loop().call_later(QUIET_SECONDS, tell)
    try:
        yield
    finally:
        told.cancel()


async def reach(arm: str, asked: ArmRequest, times: LaneTimes, around: Around, stack: AsyncExitStack) -> Lane:
    """A lane to the server, its engine known and open until `stack` closes.

    Raises `BadInput` for a variable, a file or a secret that cannot be used, `CouldNotMeasure` where no server answers.
    """
    try:
        options = engine_options(asked.access, asked.model, os.environ)
    except AccessError as error:
        raise BadInput(f"{arm}: {error}") from error
    try:
        with told_to_wait(asked.url, around):
            engine = await stack.enter_async_context(await detect(asked.url, options, asked.engine))
    except EngineError as error:
        raise CouldNotMeasure(f"{arm}: {error}", arm) from error
    lane = Lane(arm, engine, around.clock, times)
    lane.access_findings = access_findings(asked.access, engine.url)
    if around.hooks.present_epoch is not None and asked.url not in around.hooks.untold:
        lane.present_epoch = partial(around.hooks.present_epoch, arm, asked.url)
    return lane


async def identified(arm: str, lane: Lane, around: Around) -> Identity:
    """Who is there, with the model to measure.

    Raises `BadInput` where a model must be named or another one, `CouldNotMeasure` where no server answers.
    """
    try:
        with told_to_wait(lane.engine.url, around):
            return await lane.identify()
    except AmbiguousModelError as error:
        option = f"--{arm}-model" if arm in ARMS else "--model"
        raise BadInput(f"{arm}: {error} (allowed: one of them, named by {option})") from error
    except ModelNotServedError as error:
        raise BadInput(f"{arm}: {error}") from error
    except EngineError as error:
        raise CouldNotMeasure(f"{arm}: {error}", arm) from error
