"""Keys and workers: each key once, in order, never twice at a time, later after failures, and an end in peace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from prefillgate.kube.backoff import Backoff
from prefillgate.kube.errors import ServerError
from prefillgate.kube.queue import Depth, EndedFromInside, KeyedQueue
from tests.support.manual_clock import ManualClock, settle


class Works:
    """A queue at work. Keys in `held` are in work until released; those in `fails` raise."""

    def __init__(
        self, clock: ManualClock, workers: int = 2, answer: Callable[[str], Awaitable[float | None]] | None = None
    ) -> None:
        self.done: list[str] = []
        self.busy: list[str] = []
        self.most: dict[str, int] = {}
        self.errors: list[tuple[str, Exception]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.fails: dict[str, Exception] = {}
        self.after: dict[str, float] = {}
        self.queue = KeyedQueue(lambda key, error: self.errors.append((key, error)), Backoff(1.0, 60.0), clock)
        self.task = asyncio.create_task(self.queue.run(self.handle, workers))

    async def handle(self, key: str) -> float | None:
        self.busy.append(key)
        self.most[key] = max(self.most.get(key, 0), self.busy.count(key))
        try:
            if key in self.held:
                await self.held[key].wait()
            if key in self.fails:
                raise self.fails[key]
        finally:
            self.busy.remove(key)
            self.done.append(key)
        return self.after.get(key)


@pytest.fixture
async def works(clock: ManualClock) -> AsyncIterator[Works]:
    made = Works(clock)
    yield made
    made.task.cancel()
    await asyncio.wait({made.task})


async def test_a_key_asked_for_many_times_is_looked_at_once(works: Works) -> None:
    for _ in range(100):
        works.queue.add("a")
    works.queue.add("b")
    await settle()
    assert works.done == ["a", "b"]
    assert works.queue.depth == Depth(0, 0, 0)


async def test_a_key_asked_for_while_in_work_is_looked_at_again_and_never_by_two(works: Works) -> None:
    works.held["a"] = asyncio.Event()
    works.queue.add("a")
    await settle()
    for _ in range(10):
        works.queue.add("a")
    await settle()
    assert works.queue.depth == Depth(0, 1, 0) and works.done == []
    works.held.pop("a").set()
    await settle()
    assert works.done == ["a", "a"] and works.most == {"a": 1}


async def test_other_keys_go_on_beside_one_that_takes_long(works: Works) -> None:
    works.held["slow"] = asyncio.Event()
    for key in ("slow", "a", "b", "c"):
        works.queue.add(key)
    await settle()
    assert works.done == ["a", "b", "c"] and works.busy == ["slow"]
    works.held["slow"].set()


async def test_a_later_look_comes_at_its_time_and_not_before(works: Works, clock: ManualClock) -> None:
    works.queue.add_after("a", 10)
    works.queue.add_after("b", 5)
    await clock.advance(4.9)
    assert works.done == [] and works.queue.depth == Depth(0, 0, 2)
    await clock.advance(0.1)
    assert works.done == ["b"]
    await clock.advance(5)
    assert works.done == ["b", "a"]


async def test_of_two_times_the_earlier_counts_and_once_only(works: Works, clock: ManualClock) -> None:
    works.queue.add_after("a", 10)
    works.queue.add_after("a", 3)
    works.queue.add_after("a", 20)
    await clock.advance(3)
    assert works.done == ["a"]
    await clock.advance(60)
    assert works.done == ["a"]


async def test_a_look_now_replaces_the_one_planned(works: Works, clock: ManualClock) -> None:
    works.queue.add_after("a", 10)
    works.queue.add("a")
    await settle()
    assert works.done == ["a"]
    await clock.advance(60)
    assert works.done == ["a"]


async def test_no_time_left_is_now(works: Works) -> None:
    works.queue.add_after("a", 0)
    works.queue.add_after("b", -1)
    await settle()
    assert works.done == ["a", "b"]


async def test_what_a_worker_answers_is_when_it_looks_next(works: Works, clock: ManualClock) -> None:
    works.after["a"] = 30.0
    works.queue.add("a")
    await settle()
    await clock.advance(29)
    assert works.done == ["a"]
    await clock.advance(1)
    assert works.done == ["a", "a"]


async def test_a_worker_that_answers_now_is_called_again_and_keeps_nobody_from_running(works: Works) -> None:
    works.after["a"] = 0.0
    works.queue.add("a")
    await settle()
    works.queue.add("b")
    await settle()
    assert works.done.count("a") > 3 and "b" in works.done
    works.after.clear()
    await settle()
    assert works.queue.depth == Depth(0, 0, 0)


async def test_failures_are_tried_again_ever_later_and_a_success_forgets_them(works: Works, clock: ManualClock) -> None:
    bug = works.fails["a"] = ValueError("a bug")
    works.queue.add("a")
    await settle()
    waits = []
    for _ in range(9):
        waits.append(clock.sleeping()[0])
        await clock.advance(waits[-1])
    for failures, wait in enumerate(waits, 1):
        step = min(60.0, 2.0 ** (failures - 1))
        assert step / 2 <= wait <= step
    assert works.errors == [("a", bug)] * 10 and works.queue.failures("a") == 10
    works.fails.clear()
    await clock.advance(60)
    assert works.queue.failures("a") == 0
    works.fails["a"] = bug
    works.queue.add("a")
    await settle()
    assert clock.sleeping()[0] <= 1.0


async def test_one_that_fails_does_not_stop_the_others(works: Works) -> None:
    works.fails["a"] = RuntimeError("a bug")
    for key in ("a", "b", "c"):
        works.queue.add(key)
    await settle()
    assert sorted(works.done) == ["a", "b", "c"] and not works.task.done()


async def test_a_server_that_says_when_is_not_asked_before(works: Works, clock: ManualClock) -> None:
    works.fails["a"] = ServerError("busy", retry_after_seconds=45.0)
    works.queue.add("a")
    await settle()
    assert clock.sleeping() == [45.0]


async def test_a_key_that_failed_is_looked_at_when_asked_for(works: Works) -> None:
    works.fails["a"] = RuntimeError("a bug")
    works.queue.add("a")
    await settle()
    works.fails.clear()
    works.queue.add("a")
    await settle()
    assert works.done == ["a", "a"] and works.queue.depth == Depth(0, 0, 0)


async def test_draining_waits_for_what_is_in_work_and_takes_nothing_new(works: Works, clock: ManualClock) -> None:
    works.held["a"] = asyncio.Event()
    works.queue.add("a")
    await settle()
    works.queue.add("a")
    works.queue.add_after("later", 5)
    draining = asyncio.create_task(works.queue.drain(30))
    await settle()
    works.queue.add("new")
    works.queue.add_after("newer", 1)
    await clock.advance(10)
    assert not draining.done() and works.done == []
    works.held["a"].set()
    await settle()
    assert await draining is True and works.done == ["a"]
    await settle()
    assert works.task.done() and works.queue.depth == Depth(0, 0, 0)


async def test_draining_does_not_wait_for_ever(works: Works, clock: ManualClock) -> None:
    works.held["a"] = asyncio.Event()
    works.queue.add("a")
    await settle()
    draining = asyncio.create_task(works.queue.drain(30))
    await settle()
    await clock.advance(30)
    assert await draining is False and works.busy == ["a"]


async def test_draining_an_idle_queue_ends_at_once(works: Works) -> None:
    assert await works.queue.drain(30) is True
    await settle()
    assert works.task.done()


async def test_a_cancelled_queue_cancels_its_workers(works: Works) -> None:
    works.held["a"] = asyncio.Event()
    works.queue.add("a")
    await settle()
    works.task.cancel()
    await asyncio.wait({works.task})
    assert works.busy == [] and works.done == ["a"] and works.errors == []


async def test_plans_that_are_replaced_take_no_memory(works: Works) -> None:
    works.after["a"] = 3600.0
    for _ in range(2_000):
        works.queue.add("a")
        await settle(6)
    assert len(works.done) == 2_000
    assert len(works.queue._heap) <= 70


async def test_work_that_was_cancelled_from_inside_is_a_failure_and_its_worker_goes_on(
    works: Works, clock: ManualClock
) -> None:
    works.fails["a"] = asyncio.CancelledError()  # type: ignore[assignment]
    works.queue.add("a")
    works.queue.add("b")
    await settle()
    assert works.done == ["a", "b"] and not works.task.done()
    ((key, error),) = works.errors
    assert (key, type(error)) == ("a", EndedFromInside)
    del works.fails["a"]
    await clock.advance(60.0)
    assert works.done == ["a", "b", "a"] and works.queue.failures("a") == 0


async def test_a_worker_that_is_ended_itself_ends(works: Works) -> None:
    works.held["a"] = asyncio.Event()
    works.queue.add("a")
    await settle()
    works.task.cancel()
    await asyncio.wait({works.task})
    assert works.task.cancelled() and works.errors == []
