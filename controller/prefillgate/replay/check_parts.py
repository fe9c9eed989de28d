"""What every kind of check is made of: what it looks at, what it answers, how it says that it cannot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from prefillgate.api.check_spec import CheckSpec
from prefillgate.api.replay_set import Case
from prefillgate.core.quality import Finding, Output


class CheckError(Exception):
    """A check cannot be built, or cannot say anything about this output. Never a pass.

    `text` is what the program or the server that was asked said all the same: evidence.
    """

    def __init__(self, message: str, allowed: str = "", text: str = "") -> None:
        self.allowed = allowed
        self.text = text
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Judged:
    """An output with what a check may look at beside it."""

    case: Case
    output: Output
    baseline: Output | None = None
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What a program or a server that was asked answered: its finding (None: good), and its words as evidence."""

    finding: Finding | None
    text: str = ""


Judge = Callable[[Judged], Finding | None]
Asking = Callable[[Judged], Awaitable[Told]]  # looks beyond the output: a program, another server


@dataclass(frozen=True, slots=True)
class Built:
    """A judge and the version of its rule; a rule that may judge an output otherwise gets the next number."""

    judge: Judge | Asking
    version: str = "1"


P = TypeVar("P")


def parameters_of(spec: CheckSpec, kind: type[P]) -> P:
    if not isinstance(spec.parameters, kind):
        raise CheckError(f"a check of type {spec.type} has no parameters of its own", kind.__name__)
    return spec.parameters
