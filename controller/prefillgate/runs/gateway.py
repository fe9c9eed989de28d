"""The gateway check of the bad cells once a run has come to its end."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import replace

from prefillgate.core.cells import CANDIDATE
from prefillgate.core.gate import Gate
from prefillgate.core.gateway import cells_to_compare, next_comparison
from prefillgate.engines.access import access_findings, engine_options
from prefillgate.engines.base import EngineError
from prefillgate.engines.registry import create
from prefillgate.replay.gateway import GatewayCheck
from prefillgate.replay.lane import Lane
from prefillgate.replay.runner import Runner
from prefillgate.replay.session import RunRequest
from prefillgate.runs.around import Around
from prefillgate.runs.reach import reach


def gateway_due(request: RunRequest, gate: Gate) -> bool:
    """Whether bad cells stand there that the gateway was not asked for yet."""
    return request.gateway is not None and next_comparison(gate, len(gate.compared)) is not None


async def servers_to_ask_again(request: RunRequest, around: Around, stack: AsyncExitStack) -> list[Lane]:
    """Lanes to every server of the candidate: a cell is asked again where it ran. Raises `CouldNotMeasure`."""
    lanes = []
    for number, url in enumerate(request.candidate.urls):
        asked = replace(request.candidate, url=url, more_urls=())
        lane = await reach(CANDIDATE, asked, request.times, around, stack)
        lane.number, lane.shared = number, request.shape.shared
        lanes.append(lane)
    return lanes


async def check_gateway(runner: Runner, request: RunRequest, around: Around, stack: AsyncExitStack) -> None:
    """Ask the candidate's bad cells once more, straight and through the gateway, where one was named.

    Whatever cannot be asked is said and is no error of the run.
    """
    asked, gate = request.gateway, runner.gate
    if asked is None:
        return
    why_not = _why_not(gate, bool(cells_to_compare(gate)))
    if why_not is not None:
        around.said(f"gateway: not asked: {why_not}")
        return
    try:
        options = engine_options(asked.access, asked.model, os.environ)
        family = runner.lanes[CANDIDATE].engine.name
        gateway = await stack.enter_async_context(create(family, asked.url, options))
        findings = access_findings(asked.access, gateway.url)
        await GatewayCheck(runner, gateway, asked.model, findings, around.said).run()
    except EngineError as error:
        around.said(f"gateway: not asked: {error}")


def _why_not(gate: Gate, bad: bool) -> str | None:
    """Why nothing is sent, or None."""
    if not bad:
        return "the candidate has no bad cell that could be sent again with a fresh prefill"
    if gate.deadline is not None:
        return "the deadline passed"
    last = next(reversed(gate.measured.values()))
    if gate.plan.shape.sequential and last.cell.arm != CANDIDATE:
        return "the candidate's server does not stand in its place now"
    return None
