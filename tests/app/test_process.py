"""The process of the controller over a real socket: it begins, leads, looks, stands by, and ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from prefillgate.api.errors import InputError
from prefillgate.app import process
from prefillgate.app.process import LATE_SECONDS, STUCK_SECONDS
from prefillgate.evidence.book import Book, open_book
from prefillgate.evidence.errors import StoreAway, StoreForeign
from prefillgate.evidence.fence import Fence
from prefillgate.kube.clock import SystemClock
from prefillgate.kube.elector import Term
from prefillgate.kube.objects import LEASES, SERVING_LINES
from tests.support.controllers import Controller, line
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Object, Write
from tests.support.manual_clock import settle, until

Make = Callable[..., Controller]


def put(fake: FakeApi, name: str) -> None:
    fake.store.create(fake._of(SERVING_LINES), "default", line(name), Write("somebody"))


def stored(fake: FakeApi, plural: str, name: str) -> Object:
    return fake.store.objects[plural, "default", name]


def holder(fake: FakeApi) -> str | None:
    lease = fake.store.objects.get(("leases", "default", "prefillgate-controller"))
    return None if lease is None else lease["spec"]["holderIdentity"]


async def get(controller: Controller, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(controller.process.address + path)


async def test_it_leads_and_says_in_the_status_what_it_saw(fake: FakeApi, controller: Make) -> None:
    put(fake, "chat")
    one = controller().start()
    await until(lambda: stored(fake, "servinglines", "chat").get("status"))
    assert stored(fake, "servinglines", "chat")["status"] == {"observedGeneration": 1}
    assert holder(fake) == one.process.identity


async def test_a_stop_gives_the_lease_back_and_closes_what_the_term_had(fake: FakeApi, controller: Make) -> None:
    one = controller().start()
    await until(lambda: one.shelves)
    assert await one.stop() is True
    assert holder(fake) == ""
    assert one.shelves[0].closed


async def test_who_leads_and_who_stands_by_are_both_ready_and_say_so(fake: FakeApi, controller: Make) -> None:
    one = controller("shared").start()
    await until(lambda: one.shelves)
    two = controller("shared").start()
    await until(lambda: two.sights and two.sights[0].synced())
    assert [(await get(each, "/readyz")).status_code for each in (one, two)] == [200, 200]
    assert "role: leader" in (await get(one, "/readyz")).text
    assert "role: standby" in (await get(two, "/readyz")).text
    assert "prefillgate_leading 1.0" in (await get(one, "/metrics")).text
    assert "prefillgate_leading 0.0" in (await get(two, "/metrics")).text
    assert two.sights[0].looks == [] and two.shelves == []


async def test_a_standby_takes_over_when_the_leader_is_stopped_and_looks_at_all_lines(
    fake: FakeApi, controller: Make
) -> None:
    put(fake, "a")
    put(fake, "b")
    one = controller("shared").start()
    await until(lambda: stored(fake, "servinglines", "b").get("status"))
    two = controller("shared").start()
    await until(lambda: two.sights and two.sights[0].synced())
    await one.stop()
    await until(lambda: two.sights[0].looks)
    assert sorted(set(two.sights[0].looks)) == ["default/a", "default/b"]
    assert two.shelves[0].leading.fence.token == one.shelves[0].leading.fence.token + 1


async def test_a_leader_whose_lease_is_taken_ends_its_replays_and_writes_no_more(
    fake: FakeApi, controller: Make
) -> None:
    put(fake, "a")
    one = controller().start()
    await until(lambda: stored(fake, "servinglines", "a").get("status"))
    lease = stored(fake, "leases", "prefillgate-controller")
    spec = {**lease["spec"], "holderIdentity": "another", "leaseTransitions": 9, "leaseDurationSeconds": 3600}
    fake.store.update(fake._of(LEASES), "default", "prefillgate-controller", {**lease, "spec": spec}, Write("another"))
    await until(lambda: one.shelves[0].closed)
    looks = len(one.sights[0].looks)
    thing = stored(fake, "servinglines", "a")
    fake.store.update(fake._of(SERVING_LINES), "default", "a", {**thing, "spec": {"n": 2}}, Write("somebody"))
    for _ in range(3):  # time goes by
        before = fake.calls.count(("get", "leases"))
        await until(lambda before=before: fake.calls.count(("get", "leases")) > before)
    assert len(one.sights[0].looks) == looks
    assert stored(fake, "servinglines", "a")["status"] == {"observedGeneration": 1}
    assert (await get(one, "/readyz")).status_code == 200


async def test_the_token_goes_on_from_the_book_where_the_lease_was_deleted(fake: FakeApi, controller: Make) -> None:
    one = controller()
    with open_book(one.settings.book, Fence(17)):
        pass
    one.start()
    await until(lambda: one.shelves)
    assert one.shelves[0].leading.fence.token == 18


class Hasty(SystemClock):
    """The machine's clock, but nobody waits; `waited` are the seconds that each would have."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize("leads", [False, True])
async def test_a_database_that_is_away_for_hours_is_waited_for_at_intervals_that_stay_short(
    leads: bool, controller: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, away = controller().process, 1100
    clock = one.clock = Hasty()
    with open_book(one.settings.book, Fence(17)):
        pass

    def opened(*asked: Any) -> Book:
        nonlocal away
        away -= 1
        if away >= 0:
            raise StoreAway("it is away")
        return open_book(*asked)

    monkeypatch.setattr(process, "open_book", opened)
    if leads:
        book = await one._open(Term(18, 3600.0, clock))
        assert book is not None and book.highest_token() == 18
        book.close()
    else:
        assert await one._token_of_store() == 17
    assert len(clock.waited) == 1100 and clock.waited[0] <= 0.5
    assert min(clock.waited[10:]) >= 7.5 and max(clock.waited) <= 15.0


async def test_an_api_server_that_goes_away_ends_nothing_and_work_goes_on_when_it_is_back(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "a")
    one = controller(lease_duration_seconds="5", lease_renew_seconds="2").start()
    await until(lambda: stored(fake, "servinglines", "a").get("status"))
    await fake.stop()
    await until(lambda: one.process._troubles.standing)
    assert (await get(one, "/healthz")).status_code == 200
    ready = await get(one, "/readyz")
    assert ready.status_code == 200 and "trouble: Lease" in ready.text
    await until(lambda: one.shelves[0].closed)  # a term that cannot be renewed is over
    put(fake, "b")
    await fake.start()
    await until(lambda: stored(fake, "servinglines", "b").get("status"))
    assert len(one.shelves) == 2
    rows = [json.loads(row) for row in capsys.readouterr().err.splitlines()]
    assert len([row for row in rows if row["event"] == "lease_trouble"]) <= 4  # of some twenty attempts
    assert ("trouble_over", "Lease") in [(row["event"], row.get("about")) for row in rows]


async def test_before_anything_was_listed_it_is_not_ready_but_well(fake: FakeApi, controller: Make) -> None:
    fake.fail(Fault("hang", "list", "servinglines"))
    one = controller().start()
    await until(lambda: one.process.address)
    assert (await get(one, "/readyz")).status_code == 503
    assert (await get(one, "/healthz")).status_code == 200
    assert "listed: not yet" in (await get(one, "/readyz")).text


async def test_a_stop_is_no_longer_ready_while_replays_end(fake: FakeApi, controller: Make) -> None:
    one = controller().start()
    await until(lambda: one.shelves)
    one.shelves[0].may_end.clear()
    stopping = asyncio.create_task(one.stop())
    await until(lambda: one.shelves[0].closing)
    answer = await get(one, "/readyz")
    assert answer.status_code == 503 and "role: stopping" in answer.text
    assert holder(fake) == one.process.identity  # nobody else begins meanwhile
    one.shelves[0].may_end.set()
    assert await stopping is True
    assert holder(fake) == ""


async def test_a_stop_waits_for_a_look_that_is_under_way_and_begins_no_other_term(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "a")
    one = controller()
    looking, may_end = asyncio.Event(), asyncio.Event()

    async def hook(key: str) -> None:
        looking.set()
        await may_end.wait()

    one.hook = hook
    one.start()
    await looking.wait()
    stopping = asyncio.create_task(one.stop())
    await until(lambda: one.process._loop is not None and one.process._loop._queue._draining.is_set())
    may_end.set()
    assert await stopping is True
    assert stored(fake, "servinglines", "a")["status"] == {"observedGeneration": 1}
    spec = stored(fake, "leases", "prefillgate-controller")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 1)
    assert "term_given_up" not in capsys.readouterr().err


async def test_replays_that_do_not_end_are_told_and_the_process_ends_all_the_same(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    one = controller(stop_seconds="3").start()
    await until(lambda: one.shelves)
    one.shelves[0].ends = False
    assert await one.stop() is False
    assert one.shelves[0].seconds == 3
    assert "replays_did_not_end" in capsys.readouterr().err
    assert holder(fake) == ""


async def test_a_look_that_hangs_is_no_health(fake: FakeApi, controller: Make) -> None:
    put(fake, "a")
    one = controller()
    hanging = asyncio.Event()

    async def hook(key: str) -> None:
        hanging.set()
        await asyncio.Event().wait()

    one.hook = hook
    one.start()
    await hanging.wait()
    assert one.process.health().good
    loop = one.process._loop
    assert loop is not None
    loop._began = {key: began - STUCK_SECONDS for key, began in loop._began.items()}
    answer = await get(one, "/healthz")
    assert answer.status_code == 503 and "longest look: 9" in answer.text
    one.process._beat -= LATE_SECONDS
    assert "event loop: 3" in (await get(one, "/healthz")).text


async def test_a_bug_of_a_part_ends_the_process_with_it_and_is_in_the_log(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    one = controller()

    async def broken(touched: object) -> None:
        await until(lambda: one.shelves)
        raise ZeroDivisionError("a bug")

    one.observing = broken
    with pytest.raises(ZeroDivisionError):
        await one.start().task
    rows = [json.loads(row) for row in capsys.readouterr().err.splitlines()]
    (crashed,) = [row for row in rows if row["event"] == "crashed"]
    assert "ZeroDivisionError: a bug" in crashed["exception"] and crashed["level"] == "error"
    assert holder(fake) == "" and one.shelves[0].closed


async def test_a_store_that_cannot_be_opened_is_told_at_once(fake: FakeApi, controller: Make) -> None:
    one = controller()
    one.settings.book.parent.mkdir(parents=True, exist_ok=True)
    one.settings.book.write_bytes(b"something else, and long enough to be looked at" * 100)
    with pytest.raises(StoreForeign):
        await one.start().task


async def test_an_address_that_is_taken_is_told(fake: FakeApi, controller: Make) -> None:
    one = controller(listen=f"127.0.0.1:{fake.port}")
    with pytest.raises(InputError, match=f"--listen: cannot listen on 127.0.0.1:{fake.port}"):
        await one.start().task


async def test_lease_times_that_do_not_fit_are_told(fake: FakeApi, controller: Make) -> None:
    with pytest.raises(InputError, match="do not fit"):
        await controller(lease_renew_seconds="15").start().task


async def test_a_kubeconfig_that_is_not_there_is_told(fake: FakeApi, controller: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        await controller(kubeconfig=str(tmp_path / "none")).start().task
    with pytest.raises(InputError, match="no context"):
        await controller(context="other").start().task


@pytest.mark.parametrize(
    ("name", "value"), [("lease_name", "mine"), ("namespace", "kube-system"), ("lease_duration_seconds", "33")]
)
async def test_the_lease_is_the_one_of_the_settings(name: str, value: str, fake: FakeApi, controller: Make) -> None:
    one = controller(**{name: value}).start()
    await until(lambda: one.shelves)
    ((_, space, lease),) = [key for key in fake.store.objects if key[0] == "leases"]
    spec = fake.store.objects["leases", space, lease]["spec"]
    given = {"lease_name": lease, "namespace": space, "lease_duration_seconds": str(spec["leaseDurationSeconds"])}
    assert given[name] == value


async def test_workers_look_at_so_many_lines_at_once(fake: FakeApi, controller: Make) -> None:
    for number in range(6):
        put(fake, f"line-{number}")
    one = controller(workers="3")
    inside: list[str] = []

    async def hook(key: str) -> None:
        inside.append(key)
        await asyncio.Event().wait()

    one.hook = hook
    one.start()
    await until(lambda: len(inside) == 3)
    await settle()
    assert len(inside) == 3
