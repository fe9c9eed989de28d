"""A clock that goes when a test says so."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable


class ManualClock:
    """`prefillgate.kube.clock.Clock`: time stands still until `advance`, which wakes who slept so long, in order."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.wall = now
        self.ran = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.ran

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.ran + seconds, self._count, woken))
        await woken

    def sleeping(self) -> list[float]:
        """In how many seconds each that sleeps would wake."""
        return sorted(due - self.ran for due, _, woken in self._sleepers if not woken.done())

    async def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every moment at which somebody wakes."""
        end = self.ran + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, woken = heapq.heappop(self._sleepers)
            if woken.done():
                continue
            self.wall += due - self.ran
            self.ran = due
            woken.set_result(None)
            await settle()
        self.wall += end - self.ran
        self.ran = end
        await settle()


async def settle(rounds: int = 20) -> None:
    """Let everything that can go on without time or a socket go on."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Wait for what the loop, the sockets and the servers of this process will do. A test that waits in vain is ended
    by its time limit."""
    while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
        await asyncio.sleep(0.001)
