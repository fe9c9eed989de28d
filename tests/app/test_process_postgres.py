"""The process with its book in a real PostgreSQL server, which is away at times."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import psycopg
import pytest

from prefillgate.evidence.book import open_book
from prefillgate.evidence.errors import StoreAway
from prefillgate.evidence.fence import Fence
from prefillgate.kube.objects import SERVING_LINES
from tests.support.controllers import Controller, line
from tests.support.fake_api import FakeApi
from tests.support.fake_api.store import Write
from tests.support.manual_clock import until
from tests.support.postgres import PostgresServer, recorded, running_server

Make = Callable[..., Controller]
KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with running_server("fsync=off") as server:
        yield server


@pytest.fixture
def database(own_server: PostgresServer) -> str:
    return recorded(own_server).new_database()


def put(fake: FakeApi, name: str) -> None:
    fake.store.create(fake._of(SERVING_LINES), "default", line(name), Write("somebody"))


def looked_at(fake: FakeApi, name: str) -> bool:
    return bool(fake.store.objects["servinglines", "default", name].get("status"))


async def test_the_book_of_a_database_is_written_in_the_name_of_the_term(
    fake: FakeApi, controller: Make, database: str
) -> None:
    put(fake, "a")
    one = controller(store=database, seal_key=KEY)
    with open_book(one.settings.book, Fence(6)):
        pass
    one.start()
    await until(lambda: looked_at(fake, "a"))
    assert one.shelves[0].leading.fence.token == 7
    with open_book(one.settings.book) as book:
        assert book.highest_token() == 7


async def test_a_database_that_cannot_be_reached_at_the_start_is_told(
    controller: Make, own_server: PostgresServer, database: str
) -> None:
    own_server.stop()
    try:
        with pytest.raises(StoreAway):
            await controller(store=database, seal_key=KEY).start().task
    finally:
        own_server.start()


async def test_nobody_begins_to_lead_while_the_database_is_away_and_it_is_told_once(
    fake: FakeApi, controller: Make, own_server: PostgresServer, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "a")
    one = controller(store=database, seal_key=KEY).start()
    await until(lambda: one.shelves)
    two = controller(store=database, seal_key=KEY).start()
    await until(lambda: two.sights and two.sights[0].synced())
    own_server.stop()
    try:
        assert await one.stop() is True  # it ends well, though its database is away
        await until(lambda: "evidence store" in two.process._troubles.standing)
        await asyncio.sleep(1.0)
        assert two.process.health().good and two.process.ready().good
        assert two.shelves == []
    finally:
        own_server.start()
    await until(lambda: two.shelves)
    put(fake, "b")
    await until(lambda: looked_at(fake, "b"))
    rows = [json.loads(row) for row in capsys.readouterr().err.splitlines()]
    assert len([row for row in rows if row["event"] == "store_trouble"]) == 1
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT token FROM prefillgate_book.fence").fetchone() == (2,)
