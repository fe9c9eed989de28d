"""Time as a parameter: what the elector, the reflector and the queue ask of a clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time, time that never goes back (both in seconds), and a way to wait."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        """Seconds since the Unix epoch. Only ever written for people to read: it jumps when somebody sets it."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds from an unknown start, time asleep included where the system tells it: a leader that was suspended
        must wake up knowing that its lease is over."""
        boot, read = getattr(time, "CLOCK_BOOTTIME", None), getattr(time, "clock_gettime", None)
        return time.monotonic() if boot is None or read is None else float(read(boot))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def micro_time(seconds: float) -> str:
    """Seconds since the epoch as a Kubernetes MicroTime, such as `2026-11-30T10:28:10.000000Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
