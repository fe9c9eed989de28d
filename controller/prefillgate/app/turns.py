"""Who may replay now: so many at once and no more, in threads and in Jobs together; first come, first served."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from prefillgate.replay.clock import Clock

WAITS_LONG_SECONDS = 60.0
MOST_THAT_WAIT = 256  # replays beyond the limit, while others only wait
QUEUE_LOOK_SECONDS = 5.0


class Taker(Protocol):
    """A replay that wants a turn. Its methods are called from any thread, and none waits."""

    def begin(self, freed: Callable[[], None]) -> bool:
        """Its turn has come; `freed` is to be called once when it ends. False: it is given back already."""

    def waits_for_turn(self) -> None:
        """Others have theirs first."""

    def waits_since(self, then: float) -> bool:
        """Whether it has only waited since that moment, or longer."""


class Turns:
    """The turns of one term. Make it in the loop of the term; all but `ended` may be called from any thread."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._lock = threading.RLock()
        self._waiting: deque[Taker] = deque()
        self._at_work: list[Taker] = []  # one for each turn: one that ends and one that begins may be of the same
        self._minding = self._loop.create_task(self._mind_the_queue())
        self._all_ended = asyncio.Event()
        self._closed = False

    def ask(self, taker: Taker) -> None:
        """Give it a turn, now or when it is the first of those that wait."""
        with self._lock:
            if self._closed:
                return
            if self._has_room():
                self._give(taker)
            elif taker not in self._waiting:
                self._waiting.append(taker)
                taker.waits_for_turn()

    def withdraw(self, taker: Taker) -> None:
        """It waits no more."""
        with self._lock:
            if taker in self._waiting:
                self._waiting.remove(taker)

    def close(self) -> None:
        """Nobody is given a turn any more."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._minding.cancel()

    async def ended(self, seconds: float) -> bool:
        """Once closed: wait until all turns have ended, at most so long; whether they have."""
        with self._lock:
            if not self._at_work:
                return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_ended.wait()
        return not self._at_work

    def _give(self, taker: Taker) -> None:
        self._at_work.append(taker)
        if not taker.begin(partial(self._freed, taker)):
            self._at_work.remove(taker)

    def _has_room(self) -> bool:
        """Whether one more may run. One that has long waited for a server to be idle, or for what production is left
        of an hour, loads nobody and is not counted: it may wait for days."""
        now = self._clock.now()
        if len(self._at_work) < self._most:
            return True
        if len(self._at_work) >= self._most + MOST_THAT_WAIT:
            return False
        return sum(not each.waits_since(now - WAITS_LONG_SECONDS) for each in self._at_work) < self._most

    async def _mind_the_queue(self) -> None:
        """That some have long waited is told by nobody."""
        while True:
            await asyncio.sleep(QUEUE_LOOK_SECONDS)
            with self._lock:
                self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and not self._closed and self._has_room():
            self._give(self._waiting.popleft())

    def _freed(self, taker: Taker) -> None:
        """A turn has ended: the one that waits longest has the next."""
        with self._lock:
            self._at_work.remove(taker)
            self._begin_next()
            if self._closed and not self._at_work:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._all_ended.set)
