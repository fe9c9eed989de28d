"""Which keys need looking at: each once, however often it was asked for, and never by two workers at the same time.

A key that is asked for while it is worked on is looked at again afterwards. What a worker decides when to look next
replaces what was planned before: it saw everything there was.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prefillgate.kube.backoff import Backoff
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.errors import KubeError

Handle = Callable[[str], Awaitable[float | None]]


@dataclass(frozen=True, slots=True)
class Depth:
    """How many keys are ready, worked on, and planned for later (retries among them)."""

    ready: int
    busy: int
    later: int


class EndedFromInside(Exception):
    """A worker's own work was cancelled, and not the worker: what it waited for was given up by somebody else."""


async def _not_ended_from_inside(handle: Handle, key: str) -> float | None:
    """What `handle` gives. A cancelled task that it waited for must not pass for the end of the worker."""
    try:
        return await handle(key)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise EndedFromInside(f"{key}: what was waited for was cancelled") from error


class KeyedQueue:
    """Keys for workers. `on_error(key, error)` is told of everything a worker raised; the key is then tried again."""

    def __init__(
        self,
        on_error: Callable[[str, Exception], None],
        backoff: Backoff | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._on_error = on_error
        self._backoff = backoff or Backoff(0.5, 300.0)
        self._clock = clock or SystemClock()
        self._rng = random.Random()
        self._ready: dict[str, None] = {}  # in the order they came
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._failures: dict[str, int] = {}
        self._work_there = asyncio.Event()
        self._plan_changed = asyncio.Event()
        self._one_done = asyncio.Event()
        self._draining = asyncio.Event()

    @property
    def depth(self) -> Depth:
        return Depth(len(self._ready), len(self._busy), len(self._due))

    def failures(self, key: str) -> int:
        """How often in a row the key has failed."""
        return self._failures.get(key, 0)

    def add(self, key: str) -> None:
        """Look at it as soon as a worker is free; at most once for any number of calls before that."""
        if self._draining.is_set():
            return
        if key in self._busy:
            self._again.add(key)
            return
        self._due.pop(key, None)
        self._ready[key] = None
        self._work_there.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Look at it in a while. The earliest of several calls counts; `add` before that replaces it."""
        if seconds <= 0:
            self.add(key)
            return
        if self._draining.is_set() or key in self._ready:
            return
        due = self._clock.monotonic() + seconds
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            if len(self._heap) > 2 * len(self._due) + 64:  # mostly plans that were replaced since
                self._heap = [(due, key) for key, due in self._due.items()]
                heapq.heapify(self._heap)
            self._plan_changed.set()

    async def run(self, handle: Handle, workers: int = 1) -> None:
        """Work until drained. `handle(key)` returns in how many seconds to look again, None for when it is added.

        It must not wait for long work: it starts, adopts or polls it. On a failure it is called again, later each time.
        """
        timer = asyncio.ensure_future(self._promote())
        crew = [asyncio.ensure_future(self._worker(handle)) for _ in range(workers)]
        try:
            await asyncio.gather(*crew)
        finally:
            for task in (timer, *crew):
                task.cancel()
            await asyncio.wait({timer, *crew})

    async def drain(self, seconds: float) -> bool:
        """Take no more keys, and wait for those in work; whether they ended in time. `run` then returns, or is yours to
        cancel."""
        self._draining.set()
        self._work_there.set()
        self._ready.clear()
        self._due.clear()
        self._again.clear()
        waiting = asyncio.ensure_future(self._idle())
        alarm = asyncio.ensure_future(self._clock.sleep(seconds))
        await asyncio.wait({waiting, alarm}, return_when=asyncio.FIRST_COMPLETED)
        ended = waiting.done()
        for task in (waiting, alarm):
            task.cancel()
        await asyncio.wait({waiting, alarm})
        return ended

    async def _idle(self) -> None:
        while self._busy:
            self._one_done.clear()
            await self._one_done.wait()

    async def _worker(self, handle: Handle) -> None:
        while True:
            while not self._ready:
                if self._draining.is_set():
                    return
                self._work_there.clear()
                await self._work_there.wait()
            key = next(iter(self._ready))
            del self._ready[key]
            self._due.pop(key, None)
            self._busy.add(key)
            try:
                await self._once(handle, key)
            finally:
                self._busy.discard(key)
                self._one_done.set()
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            await asyncio.sleep(0)  # a key that is asked for without end must not keep everything else from running

    async def _once(self, handle: Handle, key: str) -> None:
        try:
            after = await _not_ended_from_inside(handle, key)
        except Exception as error:
            self._failures[key] = self._failures.get(key, 0) + 1
            wait = self._backoff.seconds(self._failures[key], self._rng)
            if isinstance(error, KubeError):
                wait = max(wait, error.retry_after_seconds or 0.0)
            self._plan(key, wait)
            self._on_error(key, error)
            return
        self._failures.pop(key, None)
        if after is not None:
            self._plan(key, after)

    def _plan(self, key: str, seconds: float) -> None:
        """What the worker of a key says of its next time."""
        if seconds <= 0:
            self._again.add(key)
        else:
            self.add_after(key, seconds)

    async def _promote(self) -> None:
        """Make planned keys ready when their time has come."""
        while True:
            self._plan_changed.clear()
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                due, key = heapq.heappop(self._heap)
                if self._due.get(key) == due:
                    del self._due[key]
                    self.add(key)
            await self._until(self._heap[0][0] - now if self._heap else None)

    async def _until(self, seconds: float | None) -> None:
        """Until then, or until the plan changes."""
        changed = asyncio.ensure_future(self._plan_changed.wait())
        tasks = {changed} if seconds is None else {changed, asyncio.ensure_future(self._clock.sleep(seconds))}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
