"""Cells under way and servers left alone, as tasks: what the runner waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from prefillgate.core.flight import Flight, RunCell

Rest = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Flying:
    """The tasks of one runner. A cell stays in `flight` until it was written down; then its server may rest."""

    _cells: dict[asyncio.Task[float], RunCell] = field(default_factory=dict)
    _rests: dict[asyncio.Task[float], tuple[str, int]] = field(default_factory=dict)
    _rest: Rest = asyncio.sleep

    @property
    def flight(self) -> Flight:
        """What the schedule has to know of it."""
        return Flight(tuple(self._cells.values()), frozenset(self._rests.values()))

    def begin(self, step: RunCell, work: Coroutine[Any, Any, float], rest: Rest) -> None:
        """Begin a cell. `work` measures it and writes it down, and tells how many seconds `rest` is given after."""
        self._rest = rest
        self._cells[asyncio.create_task(work)] = step

    async def next_change(self) -> None:
        """Wait until a cell ended or a rest is over. Raises what a cell could not handle: a store that is gone."""
        done, _ = await asyncio.wait({*self._cells, *self._rests}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            self._rests.pop(task, None)
            step = self._cells.pop(task, None)
            seconds = task.result()
            if step is not None and seconds:
                self._rests[asyncio.create_task(self._resting(seconds))] = (step.arm, step.lane)

    async def _resting(self, seconds: float) -> float:
        await self._rest(seconds)
        return 0.0

    async def all(self) -> None:
        """Wait until nothing is under way and no server rests."""
        while self._cells or self._rests:
            await self.next_change()

    async def drop(self) -> None:
        """Give up what is under way: none of it was written down, so all of it is planned anew."""
        tasks = [*self._cells, *self._rests]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cells.clear()
        self._rests.clear()
