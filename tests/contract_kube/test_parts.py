"""The parts of a controller on both servers: a Lease is led, objects are reflected, events are kept."""

from __future__ import annotations

import asyncio

from prefillgate.kube.elector import Elector, LeaseTerms, Term
from prefillgate.kube.events import WARNING, Happening, Recorder
from prefillgate.kube.objects import EVENTS, LEASES, Object, Query, Ref
from prefillgate.kube.reflector import Handlers, Reflector
from tests.contract_kube.conftest import Side
from tests.support.gadgets import GADGETS, gadget
from tests.support.manual_clock import ManualClock, until


async def test_a_lease_is_made_renewed_released_and_taken_over_with_a_larger_token(side: Side) -> None:
    clock = ManualClock()
    ref = Ref(LEASES, "leader", side.space)
    terms: list[Term] = []

    async def lead(term: Term) -> None:
        terms.append(term)
        await asyncio.Event().wait()

    def elector(name: str) -> Elector:
        return Elector(side.kube, LeaseTerms(side.space, "leader", name), clock=clock)

    first = asyncio.create_task(elector("a").run(lead))
    await until(lambda: terms)
    lease = await side.kube.get(ref)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("a", terms[0].token)
    waiting = elector("b")
    second = asyncio.create_task(waiting.run(lead))
    await until(lambda: waiting.holder == "a")
    for _ in range(12):  # 24 seconds, longer than the Lease lasts without renewal
        before = (await side.kube.get(ref))["spec"]["renewTime"]
        await clock.advance(2)
        while (await side.kube.get(ref))["spec"]["renewTime"] == before:  # noqa: ASYNC110 - of another server
            await asyncio.sleep(0.001)
        await until(lambda: len(clock.sleeping()) == 2)
    assert len(terms) == 1 and terms[0].valid()
    first.cancel()
    await asyncio.wait({first})
    assert (await side.kube.get(ref))["spec"]["holderIdentity"] == ""
    await until(clock.sleeping)
    await clock.advance(3)
    await until(lambda: len(terms) == 2)
    assert terms[1].token > terms[0].token
    second.cancel()
    await asyncio.wait({second})


async def test_a_reflector_holds_what_there_is_and_tells_every_change(side: Side) -> None:
    told: list[tuple[str, int | None, int | None]] = []

    def size(obj: Object | None) -> int | None:
        return None if obj is None else int(obj["spec"]["size"])

    await side.kube.create(GADGETS, gadget("one", side.space, 1))
    handlers = Handlers(changed=lambda key, old, new: told.append((key.partition("/")[2], size(old), size(new))))
    reflector = Reflector(side.kube, Query(GADGETS, side.space), handlers)
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    await side.kube.create(GADGETS, gadget("two", side.space, 2))
    await side.kube.merge_patch(Ref(GADGETS, "one", side.space), {"spec": {"size": 7}})
    await side.kube.delete(Ref(GADGETS, "two", side.space))
    await until(lambda: len(told) == 4)
    assert told == [("one", None, 1), ("two", None, 2), ("one", 1, 7), ("two", 2, None)]
    held = reflector.get(f"{side.space}/one")
    assert held is not None and held["spec"]["size"] == 7 and "managedFields" not in held["metadata"]
    assert len(reflector) == 1 and reflector.trouble is None
    task.cancel()
    await asyncio.wait({task})


async def test_an_event_is_kept_once_and_repeats_become_a_series(side: Side) -> None:
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    recorder = Recorder(side.kube, "pod-1")
    once = Happening(GADGETS, made, WARNING, "RollbackAllowed", "Decide", "a sentence", once="RollbackAllowed/1")
    assert await recorder.emit(once) is True
    assert await Recorder(side.kube, "pod-2").emit(once) is False
    again = Happening(GADGETS, made, WARNING, "EndpointUnreachable", "Probe", "no answer " * 200)
    assert [await recorder.emit(again) for _ in range(5)] == [True, True, False, True, False]
    found = (await side.kube.list(Query(EVENTS, side.space))).items
    by_reason = {each["reason"]: each for each in found}
    assert len(found) == 2 and set(by_reason) == {"RollbackAllowed", "EndpointUnreachable"}
    assert by_reason["RollbackAllowed"]["regarding"]["uid"] == made["metadata"]["uid"]
    assert by_reason["RollbackAllowed"]["note"] == "a sentence" and "series" not in by_reason["RollbackAllowed"]
    assert by_reason["EndpointUnreachable"]["series"]["count"] == 4
    assert len(by_reason["EndpointUnreachable"]["note"].encode()) <= 1024
