"""Several servers for one arm: each a lane of its own, all of the one profile that its first server has."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from prefillgate.engines.base import Identity
from prefillgate.replay.lane import Lane
from prefillgate.replay.servers import AnotherProfile, check_apart, check_one_profile
from prefillgate.replay.session import RunRequest
from prefillgate.runs.around import Around
from prefillgate.runs.errors import BadInput
from prefillgate.runs.reach import identified, reach


async def more_lanes(
    request: RunRequest, first: dict[str, Lane], around: Around, stack: AsyncExitStack
) -> tuple[Lane, ...]:
    """Lanes to every server beside the arms' first ones, in the order given, each seen to be of its arm's profile.

    Raises `BadInput` where one is another profile or the same server as another, `CouldNotMeasure` where none answers.
    """
    lanes: list[Lane] = []
    for arm, lane in first.items():
        asked = request.arm(arm)
        for number, url in enumerate(asked.more_urls, start=1):
            one = await reach(arm, replace(asked, url=url, more_urls=()), request.times, around, stack)
            one.number = number
            await identified(arm, one, around)
            _same_profile(lane, one)
            lanes.append(one)
    if lanes or request.shape.at_once:
        _apart([*first.values(), *lanes])
    return tuple(lanes)


def named_lane(lane: Lane, request: RunRequest) -> str:
    """`candidate: the server`, or which of several."""
    if len(request.arm(lane.arm).urls) == 1:
        return f"{lane.arm}: the server"
    return f"{lane.arm}: server {lane.number + 1} ({lane.engine.url})"


def _same_profile(first: Lane, other: Lane) -> None:
    try:
        check_one_profile(first.arm, (first.engine.url, _known(first)), (other.engine.url, _known(other)))
    except AnotherProfile as error:
        raise BadInput(str(error)) from error


def _apart(lanes: list[Lane]) -> None:
    try:
        check_apart([(lane.arm, lane.engine.url, _known(lane)) for lane in lanes])
    except AnotherProfile as error:
        raise BadInput(str(error)) from error


def _known(lane: Lane) -> Identity:
    assert lane.identity is not None
    return lane.identity
