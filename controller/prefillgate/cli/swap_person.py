"""The person at the terminal who swaps the servers of a sequential run."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

from prefillgate.cli.outcome import say
from prefillgate.replay.swapping import SwapFailed, SwapOrder


@dataclass(slots=True)
class PersonHand:
    """Asks the person at the terminal, and waits for Enter."""

    patience_seconds: float | None
    old_life_seconds: float = 5.0
    how: str = "person"
    keeps_word: bool = True
    asks_again: bool = True

    async def swap(self, order: SwapOrder) -> None:
        """Ask; return once Enter was pressed. Raises `SwapFailed` when the terminal was closed."""
        say(f"SWAP: {order.text}; then press Enter")
        loop = asyncio.get_running_loop()
        pressed: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            # Not through sys.stdin: a thread that sits in its lock would block the end of the program.
            line = os.read(sys.stdin.fileno(), 4096)
            with suppress(RuntimeError):  # the run ended meanwhile
                loop.call_soon_threadsafe(_settle, pressed, line)

        threading.Thread(target=read, daemon=True).start()
        if not await pressed:
            raise SwapFailed(f"the terminal was closed before the {order.arm}'s server was up")


def _settle(pressed: asyncio.Future[bytes], line: bytes) -> None:
    if not pressed.done():
        pressed.set_result(line)
