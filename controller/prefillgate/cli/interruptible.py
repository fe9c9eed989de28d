"""Work that may be interrupted at any moment, in an event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

EXIT_TERMINATED = 143
_T = TypeVar("_T")


def carry_out(work: Coroutine[Any, Any, _T]) -> _T:
    """What `work` returns. SIGTERM cancels it between two steps and ends in SystemExit(143).

    An exception raised out of a signal handler could strike anywhere, also where Python swallows it.
    """
    terminated = False

    async def cancellable() -> _T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal terminated
            terminated = True
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        before = signal.signal(signal.SIGTERM, terminate)
        try:
            return await work
        finally:
            signal.signal(signal.SIGTERM, before)

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if terminated:
            raise SystemExit(EXIT_TERMINATED) from None
        raise
