"""A copy that is kept: whatever the server does, it comes right again, and the server is never asked in a loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import KubeError, NotFound, NotJson
from prefillgate.kube.objects import Object, Query, Ref, name_of
from prefillgate.kube.reflector import Handlers, Pace, Reflector
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Write
from tests.support.gadgets import GADGETS, gadget
from tests.support.manual_clock import ManualClock, until

Change = tuple[str, int | None, int | None]


class Kept:
    """A reflector that runs, and what it told."""

    def __init__(self, kube: Kube, clock: ManualClock, pace: Pace, **handlers: Callable[..., object]) -> None:
        self.told: list[Change] = []
        self.troubles: list[KubeError] = []
        given = Handlers(changed=self._changed, trouble=self.troubles.append, **handlers)  # type: ignore[arg-type]
        self.reflector = Reflector(kube, Query(GADGETS, "default"), given, pace, clock)
        self.task = asyncio.create_task(self.reflector.run())

    def _changed(self, key: str, old: Object | None, new: Object | None) -> None:
        self.told.append((key, _size(old), _size(new)))

    @property
    def names(self) -> list[str]:
        return sorted(name_of(each) for each in self.reflector)


def _size(obj: Object | None) -> int | None:
    return None if obj is None else int(obj.get("spec", {}).get("size", -1))


@pytest.fixture
async def keep(kube: Kube, clock: ManualClock) -> AsyncIterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(pace: Pace | None = None, **handlers: Callable[..., object]) -> Kept:
        made.append(Kept(kube, clock, pace or Pace(), **handlers))
        return made[-1]

    yield make
    for each in made:
        each.task.cancel()
        await asyncio.wait({each.task})


async def watching(fake: FakeApi, kept: Kept) -> None:
    await kept.reflector.synced.wait()
    await until(lambda: fake.store.watchers)


async def add(fake: FakeApi, *names: str, size: int = 1) -> None:
    for name in names:
        fake.store.create(fake._of(GADGETS), "default", gadget(name, "default", size), Write("somebody"))


async def test_what_is_there_is_told_once_in_pages_then_every_change(
    fake: FakeApi, kube: Kube, keep: Callable[..., Kept]
) -> None:
    await add(fake, "a", "b", "c")
    kept = keep(Pace(page=2))
    await watching(fake, kept)
    assert fake.count("list") == 2
    assert kept.told == [(f"default/{name}", None, 1) for name in "abc"]
    await kube.merge_patch(Ref(GADGETS, "a", "default"), {"spec": {"size": 4}})
    await kube.delete(Ref(GADGETS, "b", "default"))
    await until(lambda: len(kept.told) == 5)
    assert kept.told[3:] == [("default/a", 1, 4), ("default/b", 1, None)]
    assert kept.names == ["a", "c"] and fake.count("list") == 2


async def test_a_watch_that_ended_goes_on_where_it_was_without_a_new_list(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock
) -> None:
    kept = keep()
    await watching(fake, kept)
    await clock.advance(300)
    fake.end_watches()
    await until(lambda: fake.count("watch") == 2)
    await add(fake, "late")
    await until(lambda: kept.told)
    assert kept.told == [("default/late", None, 1)] and fake.count("list") == 1 and kept.troubles == []


async def test_what_happened_while_no_watch_ran_is_told_once(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock
) -> None:
    kept = keep()
    await watching(fake, kept)
    fake.end_watches()
    await until(clock.sleeping)
    await add(fake, "x", "y")
    await clock.advance(1)
    await until(lambda: len(kept.told) == 2)
    assert kept.told == [("default/x", None, 1), ("default/y", None, 1)] and fake.count("list") == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_too_old_means_a_new_list_and_only_differences_are_told(
    fake: FakeApi, kube: Kube, keep: Callable[..., Kept], clock: ManualClock, stream: bool
) -> None:
    await add(fake, "stays", "goes", "changes")
    kept = keep()
    await watching(fake, kept)
    kept.told.clear()
    fake.end_watches()
    await until(clock.sleeping)
    await kube.delete(Ref(GADGETS, "goes", "default"))
    await kube.merge_patch(Ref(GADGETS, "changes", "default"), {"spec": {"size": 9}})
    await add(fake, "comes")
    if stream:
        fake.expire()
    else:
        fake.fail(Fault("status", "watch", code=410, reason="Expired"))
    await clock.advance(0.5)
    await until(lambda: fake.count("watch") == 2 and clock.sleeping())
    assert fake.count("list") == 1  # not at once: after a wait
    await clock.advance(1)
    await until(lambda: len(kept.told) == 3)
    assert sorted(kept.told) == [("default/changes", 1, 9), ("default/comes", None, 1), ("default/goes", 1, None)]
    assert kept.names == ["changes", "comes", "stays"] and fake.count("list") == 2


async def test_a_bookmark_moves_the_place_a_watch_goes_on_from(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock
) -> None:
    kept = keep()
    await watching(fake, kept)
    fake.store.version += 50  # the rest of the cluster goes on
    fake.bookmark()
    await until(lambda: kept.reflector._since == str(fake.store.version))
    fake.store.compact()
    await clock.advance(300)
    fake.end_watches()
    await until(lambda: fake.count("watch") == 2)
    await add(fake, "late")
    await until(lambda: kept.told)
    assert fake.count("list") == 1 and kept.troubles == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault("close", "watch", times=9999),
        Fault("html", "watch", times=9999, code=200),
        Fault("html", "watch", times=9999, code=502),
        Fault("reset", "watch", times=9999),
        Fault("status", "watch", times=9999, code=410, reason="Expired"),
        Fault(
            "text",
            "watch",
            times=9999,
            code=200,
            body='{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"100"}}}\n',
        ),
    ],
    ids=lambda fault: fault.what + str(fault.code),
)
async def test_a_server_that_ends_every_watch_at_once_is_asked_ever_less(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock, fault: Fault
) -> None:
    fake.fail(Fault(**vars(fault)))
    kept = keep()
    await kept.reflector.synced.wait()
    for _ in range(600):
        await until(clock.sleeping)
        await clock.advance(1)
    # 0.5, 1, 2 ... 30 seconds, half of that at the least: 10 until the steps are at their longest, then one in 15
    assert 600 / 30 <= fake.count("watch") <= 2 * (10 + 600 / 15)
    fake.faults.clear()
    await clock.advance(30)
    await watching(fake, kept)
    await add(fake, "late")
    await until(lambda: ("default/late", None, 1) in kept.told)
    assert kept.reflector.trouble is None


async def test_a_server_that_asks_to_be_left_alone_is(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock
) -> None:
    fake.fail(Fault("status", "list", code=429, reason="TooManyRequests", retry_after=90))
    kept = keep()
    await until(clock.sleeping)
    assert clock.sleeping() == [90.0]
    await clock.advance(89)
    assert fake.count("list") == 1
    await clock.advance(1)
    await watching(fake, kept)


async def test_an_outage_of_ten_minutes_ends_with_everything_known_again(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock
) -> None:
    await add(fake, "before")
    kept = keep()
    await watching(fake, kept)
    await fake.stop()
    for _ in range(600):
        await until(clock.sleeping)
        await clock.advance(1)
    assert kept.names == ["before"]  # what was known stays
    heard = kept.reflector.seconds_since_heard()
    assert kept.reflector.trouble is not None and heard is not None and heard >= 595
    await add(fake, "after")
    await fake.start()
    await clock.advance(30)
    await until(lambda: kept.names == ["after", "before"])
    await watching(fake, kept)
    assert kept.reflector.trouble is None


async def test_a_server_restored_from_a_backup_is_listed_again(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock
) -> None:
    kept = keep()
    await watching(fake, kept)
    future = Fault(
        "status", "watch", times=2, code=504, reason="Timeout", message="Too large resource version: 9, current: 3"
    )
    fake.fail(future)
    fake.end_watches()
    for _ in range(60):
        await until(lambda: clock.sleeping() or fake.store.watchers)
        await clock.advance(1)
    assert fake.count("list") == 2


async def test_a_kind_that_is_not_there_yet_is_waited_for(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock
) -> None:
    served = fake._resources.pop((GADGETS.group, GADGETS.version, GADGETS.plural))
    kept = keep()
    await until(lambda: kept.troubles)
    assert isinstance(kept.reflector.trouble, NotFound) and not kept.reflector.synced.is_set()
    assert kept.reflector.seconds_since_heard() is None
    fake.serve(served)
    await clock.advance(60)
    await watching(fake, kept)


async def test_a_page_of_a_proxy_never_empties_what_is_known(
    fake: FakeApi, keep: Callable[..., Kept], clock: ManualClock
) -> None:
    await add(fake, "a")
    kept = keep()
    await watching(fake, kept)
    fake.store.version += 1
    fake.expire()
    fake.fail(Fault("html", "list", times=5, code=200))
    fake.end_watches()
    for _ in range(20):
        await until(lambda: clock.sleeping() or fake.store.watchers)
        await clock.advance(1)
        assert kept.names == ["a"]
    assert any(isinstance(each, NotJson) for each in kept.troubles)


async def test_what_is_kept_is_what_the_trim_leaves(fake: FakeApi, keep: Callable[..., Kept]) -> None:
    def bare(obj: Object) -> Object:
        return {"metadata": {key: obj["metadata"][key] for key in ("name", "namespace", "resourceVersion")}}

    await add(fake, "a")
    kept = keep(trim=bare)
    await watching(fake, kept)
    await add(fake, "b")
    await until(lambda: len(kept.told) == 2)
    assert all(set(each) == {"metadata"} for each in kept.reflector)
    assert kept.told == [("default/a", None, -1), ("default/b", None, -1)]


async def test_the_usual_trim_drops_who_owns_which_field_and_what_kubectl_applied(
    fake: FakeApi, kube: Kube, keep: Callable[..., Kept]
) -> None:
    body = gadget("a", "default")
    body["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "x"}
    await kube.create(GADGETS, body)
    kept = keep()
    await watching(fake, kept)
    held = kept.reflector.get("default/a")
    assert held is not None
    assert held["metadata"]["annotations"] == {"mine": "x"} and "managedFields" not in held["metadata"]
    assert held["metadata"]["resourceVersion"] and held["spec"] == {"size": 1}


def test_waits_double_up_to_the_longest_and_are_never_less_than_half() -> None:
    class Fixed:
        def __init__(self, value: float) -> None:
            self.value = value

        def random(self) -> float:
            return self.value

    backoff = Backoff(0.5, 30.0)
    assert [backoff.seconds(n, Fixed(1.0)) for n in (0, 1, 2, 3, 6, 7, 8, 5000)] == [0.5, 0.5, 1, 2, 16, 30, 30, 30]  # type: ignore[arg-type]
    assert [backoff.seconds(n, Fixed(0.0)) for n in (1, 2, 7)] == [0.25, 0.5, 15.0]  # type: ignore[arg-type]
