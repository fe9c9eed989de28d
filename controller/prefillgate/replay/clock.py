"""Time as a parameter: what the runner asks of a clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in seconds since the Unix epoch, in whole microseconds, and a way to wait."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        """Seconds since the epoch, to the microsecond, so that it survives being written as a timestamp."""
        return round(time.time(), 6)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
