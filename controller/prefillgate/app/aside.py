"""Servers that are put aside for a replay, asked for from the replay's own thread and loop.

Putting aside and putting back are tasks of the loop that owns the client, and each is waited for to its end, however
often the replay is interrupted meanwhile: what is left behind serves nobody.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from prefillgate.app.apart import Apart
from prefillgate.app.orders import Asked, Chosen

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Aside:
    """`apart` as a replay uses it; `loop` is the one that it works in."""

    apart: Apart
    loop: asyncio.AbstractEventLoop

    def server(self, asked: Asked, digest: str, chosen: Chosen) -> AbstractAsyncContextManager[Chosen]:
        """The server to ask in the place of `chosen`. Raises `Unusable`, `CouldNotMeasure`."""
        return self._there(self.apart.server(asked, digest, chosen))

    def scratch(self, asked: Asked, digest: str) -> AbstractAsyncContextManager[Chosen]:
        """A pod of the profile. Raises `Unusable`, `CouldNotMeasure`."""
        return self._there(self.apart.scratch(asked, digest))

    @asynccontextmanager
    async def _there(self, made: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        entered, interrupted = await self._ended(made.__aenter__(), may_be_cancelled=True)
        if interrupted:
            if not entered.cancelled() and entered.exception() is None:  # it was put aside at that very moment
                await self._ended(made.__aexit__(None, None, None))
            raise asyncio.CancelledError
        value = entered.result()
        try:
            yield value
        finally:
            left, interrupted = await self._ended(made.__aexit__(None, None, None))
            if interrupted:
                raise asyncio.CancelledError
            left.result()

    async def _ended(
        self, work: Coroutine[Any, Any, Any], may_be_cancelled: bool = False
    ) -> tuple[asyncio.Future[Any], bool]:
        """The work done in `loop` to its end, and whether we were interrupted meanwhile: the first interruption is
        handed on to what may be cancelled, and that too is waited for."""
        told: concurrent.futures.Future[Any] = concurrent.futures.Future()
        tasks: list[asyncio.Task[Any]] = []

        def begin() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(lambda task: _hand_over(task, told))

        self.loop.call_soon_threadsafe(begin)
        ended, interrupted = asyncio.wrap_future(told), False
        while not ended.done():
            try:
                await asyncio.wait({ended})
            except asyncio.CancelledError:
                if may_be_cancelled and not interrupted:
                    self.loop.call_soon_threadsafe(_cancel, tasks)
                interrupted = True
        return ended, interrupted


def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()


def _hand_over(task: asyncio.Task[Any], told: concurrent.futures.Future[Any]) -> None:
    """What a task came to, for another thread."""
    if task.cancelled():
        told.cancel()
        told.set_running_or_notify_cancel()
    elif (error := task.exception()) is not None:
        told.set_exception(error)
    else:
        told.set_result(task.result())
