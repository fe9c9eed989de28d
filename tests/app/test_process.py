"""The process of the controller over a real socket: it begins, leads, looks, stands by, and ends."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from tests.support.controllers import LINES, Controller, line
from tests.support.fake_api import FakeApi
from tests.support.fake_api.store import Object, Write
from tests.support.manual_clock import until

Make = Callable[..., Controller]


def put(fake: FakeApi, name: str) -> None:
    fake.store.create(fake._of(LINES), "default", line(name), Write("somebody"))


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
