"""Who swaps the servers of a sequential run, and how a lane to the one that was put up is opened."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from prefillgate.core.cells import ARMS
from prefillgate.engines.base import Identity
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.lane import Lane
from prefillgate.replay.session import RunRequest
from prefillgate.replay.swapping import OLD_LIFE_SECONDS, PATIENCE_SECONDS, CommandHand, Hand, Swapper, WaitingHand
from prefillgate.runs.around import IN_USE, Around
from prefillgate.runs.errors import BadInput, CouldNotMeasure
from prefillgate.runs.judges import keep_judges_apart
from prefillgate.runs.reach import reach


def check_swap_command(command: Sequence[str]) -> None:
    """Raise `BadInput` for a command that cannot be started: it may be wanted only after a window, an hour on."""
    if command and shutil.which(command[0]) is None:
        raise BadInput(
            f"--swap-command: {command[0]!r} is no program that can be started (allowed: a name on PATH, or the path "
            "of a file that may be executed, from the folder the run is started in)"
        )


def patience_of(request: RunRequest) -> float:
    """How long a swap and the server's start are waited for, in seconds."""
    return request.wait_ready_seconds or PATIENCE_SECONDS


def hand_of(request: RunRequest, around: Around) -> Hand:
    """Who swaps: whom the caller names, the command, or somebody who is only waited for."""
    if around.hooks.hand is not None:
        return around.hooks.hand(request, around.said)
    if request.swap_command:
        patience = patience_of(request)
        return CommandHand(request.swap_command, patience, min(OLD_LIFE_SECONDS, patience))
    return WaitingHand(around.said)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a lane is opened with."""

    suite: CheckSuite
    around: Around
    stack: AsyncExitStack
    deadline_at: float | None


def swapper_of(request: RunRequest, lanes: dict[str, Lane], place: Surroundings) -> Swapper:
    """The swapper of a sequential run; it fills `lanes` as servers are met."""
    return Swapper(
        hand=hand_of(request, place.around),
        urls={arm: request.arm(arm).url for arm in ARMS},
        lanes=lanes,
        open_lane=partial(_open, request, place),
        clock=place.around.clock,
        say=place.around.said,
        vet=partial(_vet, request, place),
        deadline_at=place.deadline_at,
        address=place.around.hooks.address,
    )


async def _vet(request: RunRequest, place: Surroundings, arm: str, identity: Identity) -> None:
    """Raise `BadInput` where a judge is the server that was put up."""
    await keep_judges_apart(place.suite, request, {arm: identity})


async def _open(request: RunRequest, place: Surroundings, arm: str) -> Lane | str:
    """A lane to that arm's server, or why there is none yet."""
    asked, address = request.arm(arm), place.around.hooks.address
    if address is not None:
        url = address(arm)
        if url is None:
            return f"no server of the {arm} is up"
        asked = replace(asked, url=url)
    try:
        lane = await reach(arm, asked, request.times, place.around, place.stack)
    except CouldNotMeasure as error:
        return str(error)
    lane.deadline_at = place.deadline_at
    lane.on_wait = partial(place.around.said, f"{arm}: the server is busy; waiting until it is idle", IN_USE)
    return lane
