"""A generation under way: what the model and the HTTP side hand each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from prefillgate.simulate.cache import Placement, Prefill, Slot
from prefillgate.simulate.epoch import Epoch
from prefillgate.simulate.faults import Turn
from prefillgate.simulate.reporting import Figures, Report
from prefillgate.simulate.request import GenerationRequest
from prefillgate.simulate.truth import TruthLine
from prefillgate.simulate.wire import Output, Scribe, Token


@dataclass(frozen=True, slots=True)
class Began:
    """The prefill is done."""

    scribe: Scribe


@dataclass(frozen=True, slots=True)
class Ended:
    """All results are there, and the truth is written."""

    outputs: tuple[Output, ...]
    report: Report


Event = Began | Token | Ended


@dataclass(slots=True)
class Job:
    """One generation. `gone` tells whether its client has left; `breaks` names the fault that cuts its delivery."""

    request: GenerationRequest
    turn: Turn
    tokens: tuple[int, ...]
    line: TruthLine
    gone: Callable[[], bool]
    breaks: str | None
    events: asyncio.Queue[Event | BaseException] = field(default_factory=asyncio.Queue)

    async def next(self) -> Event:
        """What happens next. Raises what went wrong in the computation, which would be a bug of the simulation."""
        happened = await self.events.get()
        if isinstance(happened, BaseException):
            raise happened
        return happened


@dataclass(frozen=True, slots=True)
class Plan:
    """What is settled once a generation has its place in the cache. `step_ms` is one decode step."""

    epoch: Epoch
    placement: Placement
    slots: tuple[Slot, ...]
    prefill: Prefill
    fresh: bool
    bad: bool
    outputs: tuple[Output, ...]
    figures: Figures
    step_ms: float
    scribe: Scribe
    report: Report
