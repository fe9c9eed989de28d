"""Names are looked up in threads of their own: one that nobody answers for holds up nobody else."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from prefillgate.api.access import Access
from prefillgate.api.addresses import AddressRules
from prefillgate.api.kinds.replay_set_kind import ReplaySetSpec
from prefillgate.app.observe.cases import Cases
from prefillgate.app.observe.reach import MOST_AT_ONCE, MOST_OF_ONE, Reach
from prefillgate.app.observe.settings import ProbePace
from prefillgate.engines.access import engine_options
from prefillgate.engines.http import HttpLane
from prefillgate.engines.judged import JudgedTransport, NameUnanswered, resolved
from prefillgate.engines.lookups import AT_ONCE, OF_ONE, Places, addresses_of
from prefillgate.kube.errors import Unreachable
from prefillgate.reconcile.snapshot import ArmSeen, ServerSeen
from tests.support.manual_clock import ManualClock, settle, until

PATIENCE_SECONDS = 20.0


class Names:
    """A name server: of names that begin with `dead` nothing is heard until `answer` is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.asked: list[str] = []
        self.threads: set[threading.Thread] = set()

    def look(self, host: Any, port: Any, *more: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        self.threads.add(threading.current_thread())
        if name.startswith("dead"):
            self.answer.wait(PATIENCE_SECONDS)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("10.0.0.1", "10.0.0.2", "10.0.0.1")
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    found = Names()
    monkeypatch.setattr(socket, "getaddrinfo", found.look)
    yield found
    found.answer.set()


def dead(count: int, whose: str) -> list[asyncio.Task[tuple[str, ...]]]:
    return [asyncio.create_task(addresses_of(f"dead-{whose}-{n}", whose)) for n in range(count)]


async def test_dead_names_of_many_lines_keep_no_thread_from_files_and_books(names: Names) -> None:
    pace = ProbePace(answer_seconds=PATIENCE_SECONDS)
    reach = Reach(AddressRules(), pace, ManualClock(), lambda line: None)
    for n in range(2 * MOST_AT_ONCE):
        url = f"http://dead-{n}.example:80"
        reach.seen(f"team-{n}/chat", ArmSeen("d", servers=(ServerSeen(url, url, True),)), Access())
    await until(lambda: len(names.asked) == MOST_AT_ONCE)
    async with asyncio.timeout(PATIENCE_SECONDS / 2):  # red where it waits for the names
        assert await asyncio.to_thread(lambda: "read") == "read"
    assert not names.answer.is_set()
    assert all(each.daemon for each in names.threads)  # nor does the end of the process wait for them
    reach.close()


async def test_dead_names_of_one_namespace_keep_no_other_from_its_own(names: Names) -> None:
    waiting = dead(OF_ONE + 2, "evil")
    await until(lambda: len(names.asked) == OF_ONE)
    assert await addresses_of("llm.example", "good") == ("10.0.0.1", "10.0.0.2")
    await settle()
    assert sorted(names.asked) == sorted([*(f"dead-evil-{n}" for n in range(OF_ONE)), "llm.example"])
    names.answer.set()
    assert await asyncio.gather(*waiting) == [()] * (OF_ONE + 2)
    assert len(names.asked) == OF_ONE + 3


async def test_so_many_names_are_looked_up_at_once_and_addresses_are_none(names: Names) -> None:
    tenants = AT_ONCE // OF_ONE
    waiting = [each for n in range(tenants) for each in dead(OF_ONE, f"team-{n}")]
    await until(lambda: len(names.asked) == AT_ONCE)
    late = asyncio.create_task(addresses_of("llm.example", "late"))
    await settle()
    assert len(names.asked) == AT_ONCE
    for whose in ("late", "team-0"):
        assert await addresses_of("10.0.0.9", whose) == ("10.0.0.9",)
        assert await addresses_of("fd00::9", whose) == ("fd00::9",)
    names.answer.set()
    assert await late == ("10.0.0.1", "10.0.0.2")
    await asyncio.gather(*waiting)


async def test_who_gave_up_keeps_the_place_until_the_name_server_does(names: Names) -> None:
    given_up = dead(OF_ONE, "evil")
    await until(lambda: len(names.asked) == OF_ONE)
    for each in given_up:
        each.cancel()
    await asyncio.wait(given_up)
    (later,) = dead(1, "evil")
    await settle()
    assert len(names.asked) == OF_ONE
    names.answer.set()
    assert await later == ()
    assert len(names.asked) == OF_ONE + 1


async def test_places_are_given_in_turn_and_one_that_is_not_waited_for_any_more_is_free() -> None:
    places = Places(2, 1)
    back = await places.take("a")
    second = asyncio.create_task(places.take("a"))
    other = await places.take("b")
    third = asyncio.create_task(places.take("c"))
    await settle()
    assert not second.done()
    assert not third.done()
    third.cancel()
    await asyncio.wait({third})
    other()
    (await places.take("c"))()  # what the cancelled one had of its own is free
    await settle()
    assert not second.done()
    back()
    (await second)()


async def test_who_is_asked_by_a_name_that_nobody_answers_for_is_told_as_that(names: Names) -> None:
    clock, told = ManualClock(), list[str]()
    reach = Reach(AddressRules(), ProbePace(answer_seconds=0.01, refusals=1), clock, told.append)
    url = "http://dead.example:8080"
    arm = ArmSeen("d", servers=(ServerSeen(url, url, True),))
    assert reach.seen("evil/chat", arm, Access()).arm.asked is False
    await until(lambda: told)
    reached = reach.seen("evil/chat", arm, Access())
    words = "no answer in time to what dead.example is: is the cluster's DNS well, or the name server of that name?"
    assert (reached.arm.unreachable, reached.forbidden) == (f"{url}: {words}", None)
    reach.close()
    options = engine_options(Access(addresses=AddressRules(tenant="good")), None, {})
    async with HttpLane(url, replace(options, connect_timeout_seconds=0.01)) as lane:
        sent = await lane.post("/v1/completions", b"{}", PATIENCE_SECONDS, lambda chunk: False)
    assert sent.failure is not None
    assert (sent.failure.reason, sent.failure.detail, sent.accepted) == ("ConnectTimeout", words, False)
    transport = JudgedTransport(AddressRules(tenant="evil"), httpx.AsyncHTTPTransport())
    async with httpx.AsyncClient(transport=transport, timeout=0.01) as client:
        with pytest.raises(NameUnanswered, match="no answer in time to what dead"):
            await client.get(url)


async def test_servers_of_one_namespace_that_do_not_answer_keep_no_other_from_being_asked(names: Names) -> None:
    told: list[str] = []
    rules = AddressRules()
    reach = Reach(rules, ProbePace(answer_seconds=PATIENCE_SECONDS, refusals=1), ManualClock(), told.append)
    for n in range(MOST_AT_ONCE):
        url = f"http://dead-{n}.example:80"
        reach.seen("evil/chat", ArmSeen("d", servers=(ServerSeen(url, url, True),)), Access())
    await until(lambda: len(names.asked) == OF_ONE)
    url = "http://127.0.0.1:9"  # forbidden: nobody is asked
    assert MOST_OF_ONE < MOST_AT_ONCE
    reach.seen("good/chat", ArmSeen("d", servers=(ServerSeen(url, url, True),)), Access())
    await until(lambda: told)
    assert told == ["good/chat"]
    reach.close()


async def test_a_replay_set_is_looked_up_for_its_namespace(names: Names) -> None:
    waiting = dead(OF_ONE, "evil")
    await until(lambda: len(names.asked) == OF_ONE)
    url = {"url": "http://dead-set.example/cases.jsonl"}
    spec = ReplaySetSpec.model_validate({"url": url, "sha256": "0" * 64})
    nobody: Any = None  # there is nothing in the cluster that it needs
    told: list[str] = []
    cases = Cases(nobody, nobody, nobody, ManualClock(), AddressRules(), None, told.append, seconds=0.0)
    for namespace in ("evil", "good"):
        with pytest.raises(Unreachable, match="still being read"):
            await cases.read({"metadata": {"name": "set", "namespace": namespace, "uid": "u"}}, spec)
    await until(lambda: len(names.asked) > OF_ONE)
    await settle()
    assert names.asked[OF_ONE:] == ["dead-set.example"]  # of the good one
    names.answer.set()
    await until(lambda: len(told) == 2)
    await asyncio.gather(*waiting)


async def test_a_name_is_looked_up_for_whom_the_rules_are(names: Names) -> None:
    waiting = dead(OF_ONE, "evil")
    await until(lambda: len(names.asked) == OF_ONE)
    of_evil = asyncio.create_task(resolved("http://llm.example:80/x", AddressRules(tenant="evil")))
    assert await resolved("http://llm.example:80/x", AddressRules(tenant="good")) == ("10.0.0.1", "10.0.0.2")
    await settle()
    assert not of_evil.done()
    names.answer.set()
    assert await of_evil == ("10.0.0.1", "10.0.0.2")
    await asyncio.gather(*waiting)
