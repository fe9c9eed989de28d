"""`prefillgate run --sequential`: its options, and who swaps the servers."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.outcome import say

if TYPE_CHECKING:
    from prefillgate.core.shape import Shape
    from prefillgate.replay.session import RunRequest
    from prefillgate.replay.swapping import Hand
    from prefillgate.runs.around import Said

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


def hand_of(request: RunRequest, said: Said = say) -> Hand:
    """Who swaps: the command, the person at the terminal, or somebody who is only waited for."""
    from prefillgate.cli.swap_person import PersonHand
    from prefillgate.runs.around import Around
    from prefillgate.runs.sequential import hand_of as hand_without_a_terminal
    from prefillgate.runs.sequential import patience_of

    if not request.swap_command and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        return PersonHand(patience_of(request))
    return hand_without_a_terminal(request, Around(listener=said))


def check_swap_command(command: Sequence[str]) -> None:
    """Raise `BadInput` for a command that cannot be started."""
    from prefillgate.runs.sequential import check_swap_command as check

    check(command)
