"""What a replay put aside is put back to the end, however often the replay is interrupted meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from prefillgate.app.apart import Apart
from prefillgate.app.aside import Aside
from prefillgate.app.orders import Asked, Chosen
from prefillgate.app.replay_thread import Answer, Replay, Turn
from prefillgate.app.seams import Observed
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import LineSnapshot, WorkKind, WorkState
from prefillgate.replay.clock import SystemClock

SERVER = Chosen("http://127.0.0.1:9", "x", None)
LINE = {"metadata": {"namespace": "a", "name": "b", "uid": "u"}}
ASKED = Asked(StartWork("k", WorkKind.JUDGE, baseline="d"), Observed(LineSnapshot(0.0, LINE, None)))


class Held:
    """Puts aside and back when it is let: `left` is what stands aside."""

    def __init__(self, at_once: bool = True) -> None:
        self.left: set[str] = set()
        self.may_enter, self.may_leave, self.leaving = asyncio.Event(), asyncio.Event(), threading.Event()
        self.entering = threading.Event()
        if at_once:
            self.may_enter.set()

    @asynccontextmanager
    async def server(self, asked: Asked, digest: str, chosen: Chosen) -> AsyncIterator[Chosen]:
        try:
            self.left.add("pod")
            self.entering.set()
            await self.may_enter.wait()
            yield chosen
        finally:
            self.leaving.set()
            await self.may_leave.wait()
            self.left.discard("pod")


def replaying(held: Held) -> tuple[Replay, threading.Event, threading.Event]:
    """A replay in its thread; when its server is there, and when the thread has ended."""
    aside, there, freed = Aside(cast(Apart, held), asyncio.get_running_loop()), threading.Event(), threading.Event()

    async def carry(turn: Turn) -> Answer | None:
        async with aside.server(turn.asked, "d", SERVER):
            there.set()
            await asyncio.Event().wait()
        return None

    replay = Replay(ASKED, carry, SystemClock(), lambda: None)
    replay.begin(freed.set)
    return replay, there, freed


async def happened(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 20)


@pytest.mark.parametrize("again", ["stop", "cancel"])
async def test_a_second_interruption_does_not_cancel_the_putting_back(again: str) -> None:
    held = Held()
    replay, there, freed = replaying(held)
    await happened(there)
    replay.stop("superseded")
    await happened(held.leaving)
    for _ in range(3):
        if again == "stop":
            replay.stop("superseded")
        else:
            replay._interrupt()
        await asyncio.sleep(0.02)
    assert (held.left, freed.is_set()) == ({"pod"}, False)
    held.may_leave.set()
    await happened(freed)
    assert held.left == set()
    assert (replay.seen().state, replay.seen().trouble) == (WorkState.BROKEN, "superseded")


async def test_what_is_interrupted_while_it_is_put_aside_is_waited_for_too() -> None:
    held = Held(at_once=False)
    replay, there, freed = replaying(held)
    await happened(held.entering)
    replay.stop("superseded")
    await happened(held.leaving)
    replay._interrupt()
    await asyncio.sleep(0.05)
    assert (held.left, freed.is_set(), there.is_set()) == ({"pod"}, False, False)
    held.may_leave.set()
    await happened(freed)
    assert held.left == set()


async def test_a_stop_while_it_is_ending_asks_for_no_second_end() -> None:
    held = Held()
    replay, there, freed = replaying(held)
    await happened(there)
    asked: list[Any] = []
    replay.stop("superseded")
    await happened(held.leaving)
    interrupt, replay._interrupt = replay._interrupt, lambda: asked.append(1)  # type: ignore[method-assign]
    replay.stop("another word")
    replay._interrupt = interrupt  # type: ignore[method-assign]
    held.may_leave.set()
    await happened(freed)
    assert (asked, replay.seen().trouble) == ([], "superseded")


async def test_what_goes_wrong_while_it_is_put_aside_is_raised() -> None:
    class Refused:
        @asynccontextmanager
        async def server(self, asked: Asked, digest: str, chosen: Chosen) -> AsyncIterator[Chosen]:
            raise ValueError("no room")
            yield chosen

    with pytest.raises(ValueError, match="no room"):
        async with Aside(cast(Apart, Refused()), asyncio.get_running_loop()).server(ASKED, "d", SERVER):
            raise AssertionError("it was never there")
