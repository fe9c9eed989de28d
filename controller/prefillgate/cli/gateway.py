"""`run --gateway`: its options, and the check of the bad cells once a run has come to its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.server_options import access_of, model_of, prefixed_options

if TYPE_CHECKING:
    from prefillgate.core.gate import Gate
    from prefillgate.replay.clock import Clock
    from prefillgate.replay.lane import Lane
    from prefillgate.replay.runner import Runner
    from prefillgate.replay.session import ArmRequest, RunRequest

PREFIX = "gateway"
_F = TypeVar("_F", bound=Callable[..., Any])


def gateway_options(function: _F) -> _F:
    """Add --gateway and how it is reached. Nothing of the servers' own access is ever shown to a gateway."""
    function = prefixed_options(PREFIX, "engine")(function)
    return click.option(
        "--gateway",
        metavar="URL",
        help="Gateway in front of the candidate: bad cells are sent once more, straight and through it, at the end.",
    )(function)


def gateway_of(options: dict[str, Any], known: ArmRequest | None = None) -> ArmRequest | None:
    """The gateway asked for; options win over what a run file says of it (`known`).

    Raises `BadInput` for one that cannot be an address, or options without one.
    """
    from prefillgate.cli.addresses import check_access, checked_url
    from prefillgate.cli.errors import BadInput
    from prefillgate.replay.session import ArmRequest

    own = {name: value for name, value in options.items() if name.startswith(f"{PREFIX}_")}
    if options[PREFIX] is None and known is None:
        given = [f"--{name.replace('_', '-')}" for name, value in own.items() if value]
        if given:
            raise BadInput(f"{given[0]}: there is no gateway (allowed: together with --gateway URL)")
        return None
    known = known or ArmRequest("")
    url = known.url if options[PREFIX] is None else checked_url("--gateway", options[PREFIX])
    access = access_of(own, PREFIX, known.access)
    asked = ArmRequest(url, model=model_of(own, PREFIX) or known.model, access=access)
    check_access(PREFIX, asked)
    return asked


def gateway_due(request: RunRequest, gate: Gate) -> bool:
    """Whether bad cells stand there that the gateway was not asked for yet."""
    from prefillgate.core.gateway import next_comparison

    return request.gateway is not None and next_comparison(gate, len(gate.compared)) is not None


async def servers_to_ask_again(request: RunRequest, clock: Clock, stack: AsyncExitStack) -> list[Lane]:
    """Lanes to every server of the candidate: a cell is asked again where it ran. Raises `CouldNotMeasure`."""
    from prefillgate.cli.reach import reach
    from prefillgate.core.cells import CANDIDATE

    lanes = []
    for number, url in enumerate(request.candidate.urls):
        asked = replace(request.candidate, url=url, more_urls=())
        lane = await reach(CANDIDATE, asked, request.times, clock, stack)
        lane.number, lane.shared = number, request.shape.shared
        lanes.append(lane)
    return lanes


async def check_gateway(runner: Runner, request: RunRequest, stack: AsyncExitStack) -> None:
    """Ask the candidate's bad cells once more, straight and through the gateway, where one was named.

    Whatever cannot be asked is said and is no error of the run.
    """
    from prefillgate.cli.outcome import say
    from prefillgate.core.cells import CANDIDATE
    from prefillgate.core.gateway import cells_to_compare
    from prefillgate.engines.access import access_findings, engine_options
    from prefillgate.engines.base import EngineError
    from prefillgate.engines.registry import create
    from prefillgate.replay.gateway import GatewayCheck

    asked, gate = request.gateway, runner.gate
    if asked is None:
        return
    why_not = _why_not(gate, bool(cells_to_compare(gate)))
    if why_not is not None:
        say(f"gateway: not asked: {why_not}")
        return
    try:
        options = engine_options(asked.access, asked.model, os.environ)
        family = runner.lanes[CANDIDATE].engine.name
        gateway = await stack.enter_async_context(create(family, asked.url, options))
        findings = access_findings(asked.access, gateway.url)
        await GatewayCheck(runner, gateway, asked.model, findings, say).run()
    except EngineError as error:
        say(f"gateway: not asked: {error}")


def _why_not(gate: Gate, bad: bool) -> str | None:
    """Why nothing is sent, or None."""
    from prefillgate.core.cells import CANDIDATE

    if not bad:
        return "the candidate has no bad cell that could be sent again with a fresh prefill"
    if gate.deadline is not None:
        return "the deadline passed"
    last = next(reversed(gate.measured.values()))
    if gate.plan.shape.sequential and last.cell.arm != CANDIDATE:
        return "the candidate's server does not stand in its place now"
    return None
