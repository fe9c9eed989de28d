"""Waiting for a server that starts: through refused connections and through "Loading model" (503)."""

from __future__ import annotations

import asyncio
import os

from prefillgate.engines.access import AccessError, engine_options
from prefillgate.engines.base import TerminalEngineError, TransientEngineError
from prefillgate.engines.http import HttpLane
from prefillgate.replay.session import ArmRequest
from prefillgate.report.clean import one_line
from prefillgate.runs.around import Around
from prefillgate.runs.errors import BadInput, CouldNotMeasure

ASK_EVERY_SECONDS = 1.0
SAY_EVERY_SECONDS = 15.0


async def wait_until_ready(arm: str, asked: ArmRequest, seconds: float, around: Around) -> None:
    """Wait until every server of the arm answers, `seconds` at most; 0 does not even ask.

    An answer that will not change (401, a certificate that cannot be trusted) ends the wait: what follows says it.
    Raises `CouldNotMeasure` where the time is over, `BadInput` for a variable or a file that cannot be used.
    """
    if seconds <= 0:
        return
    try:
        options = engine_options(asked.access, asked.model, os.environ)
    except AccessError as error:
        raise BadInput(f"{arm}: {error}") from error
    until = around.clock.now() + seconds
    for url in asked.urls:
        await _one(arm, HttpLane(url, options), (seconds, until), around)


async def _one(arm: str, lane: HttpLane, patience: tuple[float, float], around: Around) -> None:
    (seconds, until), clock = patience, around.clock
    began, said = clock.now(), None
    async with lane:
        while (why := await _not_ready(lane, max(ASK_EVERY_SECONDS, until - clock.now()))) is not None:
            now = clock.now()
            if now >= until:
                raise CouldNotMeasure(f"{arm}: not ready within the {seconds:g} s of --wait-ready: {why}", arm)
            if said is None or now - said >= SAY_EVERY_SECONDS:
                around.said(f"{arm}: not ready yet, waiting {until - now:.0f} s more at most: {one_line(why, 200)}")
                said = now
            await clock.sleep(min(ASK_EVERY_SECONDS, until - now))
        if said is not None:
            around.said(f"{arm}: ready after {clock.now() - began:.0f} s")


async def _not_ready(lane: HttpLane, seconds: float) -> str | None:
    """Why the server is not ready; None when it is, or when asking again would not change its answer."""
    try:
        async with asyncio.timeout(seconds):
            # llama-server lists its models while it loads one, and says so at /health; other servers have no /health.
            for path in ("/health", "/v1/models"):
                try:
                    await lane.get_bytes(path)
                except TerminalEngineError:
                    continue
    except TransientEngineError as error:
        return str(error)
    except TimeoutError:
        return f"{lane.url}: no answer"
    return None
