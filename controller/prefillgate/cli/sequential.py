"""`prefillgate run --sequential`: its options, and who swaps the servers."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.cli.outcome import say

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from prefillgate.core.shape import Shape
    from prefillgate.engines.base import Identity
    from prefillgate.replay.checks import CheckSuite
    from prefillgate.replay.clock import Clock
    from prefillgate.replay.lane import Lane
    from prefillgate.replay.session import RunRequest
    from prefillgate.replay.swapping import Hand, Swapper

_F = TypeVar("_F", bound=Callable[..., Any])
ALLOWED = (
    """allowed: words as a shell writes them, or a JSON list, such as 'systemctl restart' or ["my swap.cmd", "--gpu"]"""
)


def sequential_options(function: _F) -> _F:
    """Add `--sequential` and `--swap-command`."""
    command = click.option(
        "--swap-command",
        metavar="WORDS",
        help="With --sequential: what swaps the servers, run without a shell with the wanted arm as its last word.  "
        "[default: a person is asked]",
    )
    flag = click.option(
        "--sequential", is_flag=True, help="One server at a time on one place: windows of cells, swaps between them."
    )
    return flag(command(function))


def swap_words(text: str) -> tuple[str, ...]:
    """The argument list of `--swap-command`. Raises `BadInput`."""
    try:
        words = json.loads(text) if text.lstrip().startswith("[") else shlex.split(text)
    except ValueError as error:
        raise BadInput(f"--swap-command: {text!r} cannot be read: {error} ({ALLOWED})") from error
    if not words or not all(isinstance(word, str) and word for word in words):
        raise BadInput(f"--swap-command: {text!r} is no list of words ({ALLOWED})")
    return tuple(words)


def swap_command_of(options: dict[str, Any], from_file: dict[str, Any], shape: Shape) -> tuple[str, ...]:
    """The swap command asked for; empty where a person swaps. Raises `BadInput` where none can be used."""
    given = options["swap_command"]
    command: tuple[str, ...] = from_file.get("swap_command", ()) if given is None else swap_words(given)
    if command and not shape.sequential:
        raise BadInput("--swap-command: only a sequential run swaps servers (allowed: together with --sequential)")
    if shape.sequential and shape.candidate_alone:
        raise BadInput("--sequential is given and --baseline is not (allowed: both, with one URL or two)")
    if shape.sequential and shape.shared:
        raise BadInput(
            "--sequential with --isolation shared: a server that is swapped serves nobody else (allowed: one)"
        )
    if shape.sequential and (options.get("gateway") or from_file.get("gateway")):
        raise BadInput("--gateway with --sequential: the candidate may not be up at the end (allowed: one of them)")
    if shape.sequential and shape.parallel:
        raise BadInput("--sequential with several servers for an arm or --arms-at-once (allowed: one server at a time)")
    return command


def check_swap_command(command: Sequence[str]) -> None:
    """Raise `BadInput` for a command that cannot be started: it may be wanted only after a window, an hour on."""
    if command and shutil.which(command[0]) is None:
        raise BadInput(
            f"--swap-command: {command[0]!r} is no program that can be started (allowed: a name on PATH, or the path "
            "of a file that may be executed, from the folder the run is started in)"
        )


def hand_of(request: RunRequest) -> Hand:
    """Who swaps: the command, the person at the terminal, or somebody who is only waited for."""
    from prefillgate.cli.swap_person import PersonHand
    from prefillgate.replay.swapping import OLD_LIFE_SECONDS, PATIENCE_SECONDS, CommandHand, WaitingHand

    patience = request.wait_ready_seconds or PATIENCE_SECONDS
    if request.swap_command:
        return CommandHand(request.swap_command, patience, min(OLD_LIFE_SECONDS, patience))
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        return PersonHand(patience)
    return WaitingHand(say)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a lane is opened with."""

    suite: CheckSuite
    clock: Clock
    stack: AsyncExitStack
    deadline_at: float | None


def swapper_of(request: RunRequest, lanes: dict[str, Lane], around: Surroundings) -> Swapper:
    """The swapper of a sequential run; it fills `lanes` as servers are met."""
    from prefillgate.core.cells import ARMS
    from prefillgate.replay.swapping import Swapper

    return Swapper(
        hand=hand_of(request),
        urls={arm: request.arm(arm).url for arm in ARMS},
        lanes=lanes,
        open_lane=partial(_open, request, around),
        clock=around.clock,
        say=say,
        vet=partial(_vet, request, around),
        deadline_at=around.deadline_at,
    )


async def _vet(request: RunRequest, around: Surroundings, arm: str, identity: Identity) -> None:
    """Raise `BadInput` where a judge is the server that was put up."""
    from prefillgate.cli.judges import keep_judges_apart

    await keep_judges_apart(around.suite, request, {arm: identity})


async def _open(request: RunRequest, around: Surroundings, arm: str) -> Lane | str:
    """A lane to that arm's server, or why there is none yet."""
    from prefillgate.cli.reach import reach

    try:
        lane = await reach(arm, request.arm(arm), request.times, around.clock, around.stack)
    except CouldNotMeasure as error:
        return str(error)
    lane.deadline_at = around.deadline_at
    lane.on_wait = partial(say, f"{arm}: the server is busy; waiting until it is idle")
    return lane
