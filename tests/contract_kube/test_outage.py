"""An API server that is killed and comes back: what was known stays, what was missed is told, nobody leads in vain."""

from __future__ import annotations

import asyncio

from prefillgate.kube.elector import Elector, LeaseTerms, Term
from prefillgate.kube.errors import Transient
from prefillgate.kube.objects import Query
from prefillgate.kube.reflector import Handlers, Reflector
from tests.contract_kube.conftest import Side
from tests.support.gadgets import GADGETS, gadget
from tests.support.manual_clock import ManualClock, until


async def test_an_api_server_that_was_killed_is_waited_for(side: Side) -> None:
    clock = ManualClock()
    told: list[str] = []
    terms: list[Term] = []
    await side.kube.create(GADGETS, gadget("before", side.space))
    handlers = Handlers(changed=lambda key, *_: told.append(key.partition("/")[2]))
    reflector = Reflector(side.kube, Query(GADGETS, side.space), handlers, clock=clock)

    async def lead(term: Term) -> None:
        terms.append(term)
        await asyncio.Event().wait()

    elector = Elector(side.kube, LeaseTerms(side.space, "leader", "a"), clock=clock)
    tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(elector.run(lead))]
    await until(lambda: told == ["before"] and terms)
    await side.go_away()
    while terms[0].valid():
        assert clock.monotonic() < 30
        await clock.advance(0.5)
        await asyncio.sleep(0.01)
    await until(lambda: isinstance(reflector.trouble, Transient))
    assert [each["metadata"]["name"] for each in reflector] == ["before"]
    await side.come_back()
    await side.kube.create(GADGETS, gadget("after", side.space))
    while told != ["before", "after"] or len(terms) < 2 or reflector.trouble is not None:  # it begins in parts
        assert clock.monotonic() < 6_000
        await clock.advance(0.5)
        await asyncio.sleep(0.01)
    assert terms[1].token > terms[0].token and not terms[0].valid()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
