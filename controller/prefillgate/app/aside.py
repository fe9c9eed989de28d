"""Servers that are put aside for a replay, asked for from the replay's own thread and loop."""

from __future__ import annotations

import asyncio
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
        value = await self._done(made.__aenter__())
        try:
            yield value
        finally:
            await self._done(made.__aexit__(None, None, None))

    async def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))
