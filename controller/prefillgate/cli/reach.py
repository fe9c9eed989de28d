"""From a server as a person names it to an open lane: the one way every command that asks a server takes."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.core.cells import ARMS
from prefillgate.engines.access import AccessError, access_findings, engine_options
from prefillgate.engines.base import AmbiguousModelError, EngineError, Identity, ModelNotServedError
from prefillgate.engines.registry import detect
from prefillgate.replay.clock import Clock
from prefillgate.replay.lane import Lane, LaneTimes
from prefillgate.replay.session import ArmRequest


async def reach(arm: str, asked: ArmRequest, times: LaneTimes, clock: Clock, stack: AsyncExitStack) -> Lane:
    """A lane to the server, its engine known and open until `stack` closes.

    Raises `BadInput` for a variable or a file that cannot be used, `CouldNotMeasure` where no server answers.
    """
    try:
        options = engine_options(asked.access, asked.model, os.environ)
    except AccessError as error:
        raise BadInput(f"{arm}: {error}") from error
    try:
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
        return await lane.identify()
    except AmbiguousModelError as error:
        option = f"--{arm}-model" if arm in ARMS else "--model"
        raise BadInput(f"{arm}: {error} (allowed: one of them, named by {option})") from error
    except ModelNotServedError as error:
        raise BadInput(f"{arm}: {error}") from error
    except EngineError as error:
        raise CouldNotMeasure(f"{arm}: {error}") from error
