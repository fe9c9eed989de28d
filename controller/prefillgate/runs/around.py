"""What stands around a run: its clock, who is told what happens, and what only its caller can know or do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from prefillgate.replay.clock import Clock, SystemClock

if TYPE_CHECKING:
    from prefillgate.core.schedule import RunCell
    from prefillgate.evidence import Fence, KeptJournal
    from prefillgate.replay.session import RunRequest
    from prefillgate.replay.swapping import Hand

IN_USE = "in_use"  # the event of a server that is waited for until it is idle
LEFT_ALONE = "left_alone"  # of one that is waited for since it answered 429 or 503
_OPTION = re.compile(r"--[a-z]+(?:-[a-z]+)*")


class Said(Protocol):
    """Who is told, in one sentence, what a person would want to know while a run goes on."""

    def __call__(self, line: str, event: str = "note", level: str = "info", **facts: Any) -> None:
        """One line; `event` is a word for it, `level` info, warning or error, `facts` what the line holds."""


def unsaid(line: str, event: str = "note", level: str = "info", **facts: Any) -> None:
    """A listener that forgets."""


PresentEpoch = Callable[[str, str], "str | None"]
"""Arm and URL to the present life of the server there as the caller knows it (pod UID and container ID); None while
it knows of none. Asked around every cell, so it must answer from memory."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What only the caller of a run can know or do. None: the run does without."""

    present_epoch: PresentEpoch | None = None
    untold: frozenset[str] = frozenset()  # URLs of which `present_epoch` can never tell; the server's marker is all
    pace: Callable[[RunCell], float] | None = None  # seconds before a cell may be begun; 0: now, and it is counted
    hand: Callable[[RunRequest, Said], Hand] | None = None  # who swaps the servers of a sequential run
    address: Callable[[str], str | None] | None = (
        None  # where an arm's server is now, of a sequential run; None: nowhere
    )
    fence: Fence | None = None  # the right to write the store; without one any writer may
    opened: Callable[[KeptJournal], None] | None = None  # told of the run's store before anything is added to it
    names: Mapping[str, str] = field(default_factory=dict)  # `--wait-ready` -> what the caller's own users call it

    def told(self, text: str) -> str:
        """`text` with the options in it named as the caller's own users name them."""
        return _OPTION.sub(lambda found: self.names.get(found[0], found[0]), text)


@dataclass(frozen=True, slots=True)
class Around:
    """What a run is carried out in."""

    clock: Clock = field(default_factory=SystemClock)
    listener: Said = unsaid
    hooks: Hooks = field(default_factory=Hooks)

    def said(self, line: str, event: str = "note", level: str = "info", **facts: Any) -> None:
        """Tell the listener."""
        self.listener(self.hooks.told(line), event, level, **facts)
