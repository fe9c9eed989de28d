"""Leading: one holder at a time, a token that only grows, and an end that no server, clock or request can delay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from prefillgate.api.errors import InputError
from prefillgate.kube.client import Kube
from prefillgate.kube.elector import Elector, LeaseTerms, Term, new_identity
from prefillgate.kube.errors import KubeError
from prefillgate.kube.objects import LEASES, Object, Ref
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Write
from tests.support.manual_clock import ManualClock, settle, until

LEASE = Ref(LEASES, "gate", "default")


class Candidate:
    """A process that wants to lead, and what it saw of leading."""

    def __init__(
        self, kube: Kube, clock: ManualClock, name: str, known: Callable[[], Awaitable[int]] | None = None
    ) -> None:
        self.terms: list[Term] = []
        self.ended = 0
        self.troubles: list[KubeError] = []
        self.winding_down = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        extra = {} if known is None else {"known_token": known}
        terms = LeaseTerms("default", "gate", name)
        self.elector = Elector(kube, terms, on_trouble=self.troubles.append, clock=clock, **extra)
        self.task = asyncio.create_task(self.elector.run(self.lead))

    @property
    def leads(self) -> bool:
        return bool(self.terms) and self.terms[-1].valid()

    async def lead(self, term: Term) -> None:
        self.terms.append(term)
        try:
            await asyncio.Event().wait()
        finally:
            self.winding_down.set()
            await self.may_end.wait()
            self.ended += 1

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


@pytest.fixture
async def candidate(kube: Kube, clock: ManualClock) -> AsyncIterator[Callable[..., Candidate]]:
    made: list[Candidate] = []

    def make(name: str, known: Callable[[], Awaitable[int]] | None = None) -> Candidate:
        made.append(Candidate(kube, clock, name, known))
        return made[-1]

    yield make
    for each in made:
        each.may_end.set()
        await each.stop()


def lease(fake: FakeApi) -> Object:
    """The Lease's spec as the server has it."""
    return fake.store.objects["leases", "default", "gate"]["spec"]


def put_lease(fake: FakeApi, **spec: object) -> None:
    found = fake.store.objects["leases", "default", "gate"]
    fake.store.update(
        fake._of(LEASES), "default", "gate", {**found, "spec": {**found["spec"], **spec}}, Write("somebody")
    )


async def tick(fake: FakeApi, clock: ManualClock, seconds: float = 2.0) -> None:
    """One retry of everybody, and the end of what it asks."""
    await clock.advance(seconds)
    for _ in range(20):
        await asyncio.sleep(0.001)


async def test_a_fresh_cluster_gets_its_lease_and_the_first_token(
    fake: FakeApi, candidate: Callable[..., Candidate]
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    assert lease(fake)["holderIdentity"] == "a"
    assert lease(fake)["leaseDurationSeconds"] == 15
    assert a.terms[0].token == lease(fake)["leaseTransitions"] == 1
    assert a.elector.term is a.terms[0] and a.elector.holder == "a"


async def test_a_holder_that_renews_keeps_it_and_nobody_else_leads(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    b = candidate("b")
    for _ in range(60):
        await tick(fake, clock)
        assert a.leads and not b.terms
    assert a.terms[0].token == 1 and len(a.terms) == 1 and b.elector.holder == "a"


async def test_a_shutdown_releases_it_and_the_next_begins_at_once_with_a_larger_token(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    b = candidate("b")
    await until(lambda: b.elector.holder == "a")
    await a.stop()
    assert a.ended == 1 and not a.terms[0].valid() and a.terms[0].lost.is_set()
    assert lease(fake)["holderIdentity"] == ""
    await tick(fake, clock, 3.0)
    assert b.leads and b.terms[0].token == 2


async def test_a_holder_that_died_is_followed_after_the_duration_and_not_before(
    fake: FakeApi, kube: Kube, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 41}
    await kube.create(LEASES, {"metadata": {"name": "gate", "namespace": "default"}, "spec": spec})
    b = candidate("b")
    await until(lambda: b.elector.holder == "dead")
    for _ in range(14):
        await tick(fake, clock, 1.0)
    assert not b.terms  # seen at 0; 14 seconds are not 15
    for _ in range(4):
        await tick(fake, clock, 1.0)
    assert b.leads and b.terms[0].token == 42


async def test_the_times_written_in_a_lease_are_never_compared_with_our_clock(
    fake: FakeApi, kube: Kube, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    spec = {"holderIdentity": "alive", "leaseDurationSeconds": 15, "leaseTransitions": 1}
    old = {**spec, "renewTime": "1999-01-01T00:00:00.000000Z"}
    await kube.create(LEASES, {"metadata": {"name": "gate", "namespace": "default"}, "spec": old})
    b = candidate("b")
    await until(lambda: b.elector.holder == "alive")
    for second in range(40):
        put_lease(fake, renewTime=f"1999-01-01T00:00:{second:02}.000000Z")
        await tick(fake, clock, 2.0)
    assert not b.terms


@pytest.mark.parametrize(
    "fault",
    [
        Fault("hang", "update", "leases", 99),
        Fault("html", "update", "leases", 999, 502),
        Fault("status", "update", "leases", 999, 429, "TooManyRequests"),
        Fault("status", "update", "leases", 999, 403, "Forbidden"),
        Fault("reset", "update", "leases", 999),
    ],
    ids=lambda fault: fault.what + str(fault.code),
)
async def test_a_holder_that_cannot_renew_stops_before_another_may_begin(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock, fault: Fault
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    began = clock.monotonic()
    fake.fail(Fault(**vars(fault)))
    while a.leads:
        assert clock.monotonic() - began < 10.0  # its time to renew within, from the last that succeeded
        await tick(fake, clock, 0.5)
    assert clock.monotonic() - began == 10.0
    await until(lambda: a.ended == 1)
    assert a.terms[0].lost.is_set()
    assert lease(fake)["holderIdentity"] == "a"  # nobody can have begun: 15 seconds are not over


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_a_term_counts_from_when_it_was_asked_for_not_from_the_answer(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock, verb: str
) -> None:
    if verb == "create":
        held = fake.fail(Fault("hold", "create", "leases"))
        a = candidate("a")
    else:
        a = candidate("a")
        await until(lambda: a.terms)
        held = fake.fail(Fault("hold", "update", "leases"))
        await clock.advance(2)
    await until(lambda: held.met)
    await clock.advance(6)
    fake.release()
    await until(lambda: a.terms)
    await tick(fake, clock, 0.0)
    assert a.terms[0].seconds_left() == 4.0


async def test_an_answer_that_comes_after_the_term_it_would_have_begun_begins_none(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    held = fake.fail(Fault("hold", "create", "leases"))
    a = candidate("a")
    await until(lambda: held.met)
    await clock.advance(10)
    fake.release()
    await until(clock.sleeping)
    assert not a.terms and lease(fake)["holderIdentity"] == "a"
    await tick(fake, clock, 3.0)
    assert a.leads and a.terms[0].token == 2


async def test_the_term_ends_by_its_clock_even_when_nothing_runs(
    candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    clock.ran += 9.99  # as if the process had been stopped: no task ran, no timer fired
    assert a.terms[0].valid()
    clock.ran += 0.02
    assert not a.terms[0].valid() and a.terms[0].seconds_left() == 0.0


async def test_a_jump_of_the_wall_clock_changes_nothing(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    b = candidate("b")
    for jump in (86_400.0, -10 * 86_400.0, 3_600.0):
        clock.wall += jump
        for _ in range(5):
            await tick(fake, clock)
        assert a.leads and not b.terms


async def test_who_was_taken_over_stops_at_its_next_renewal(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    put_lease(fake, holderIdentity="thief", leaseTransitions=2)
    await tick(fake, clock)
    assert not a.leads and a.ended == 1 and len(a.terms) == 1
    assert lease(fake)["holderIdentity"] == "thief"


async def test_another_process_of_the_same_name_is_another(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    put_lease(fake, leaseTransitions=2)
    await tick(fake, clock)
    assert a.terms[0].lost.is_set() and a.ended == 1


async def test_a_change_by_somebody_else_that_leaves_the_holder_alone_is_no_loss(
    fake: FakeApi, kube: Kube, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    await kube.merge_patch(LEASE, {"metadata": {"annotations": {"looked": "at"}}})
    for _ in range(10):
        await tick(fake, clock)
    assert a.leads and len(a.terms) == 1


async def test_a_renewal_whose_answer_was_lost_is_no_loss(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    fault = fake.fail(Fault("reset", "update", "leases", times=2, applied=True))
    for _ in range(10):
        await tick(fake, clock)
    assert fault.met == 2 and a.leads and len(a.terms) == 1


async def test_an_answer_from_a_cache_on_the_way_is_no_renewal(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    stale = json.dumps(fake.store.objects["leases", "default", "gate"])
    fake.fail(Fault("text", "update", "leases", 999, 200, body=stale))
    for _ in range(6):
        await tick(fake, clock)
    assert not a.leads


async def test_a_lease_that_is_deleted_ends_the_term_and_the_next_token_is_larger_still(
    fake: FakeApi, kube: Kube, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    b = candidate("b")
    await until(lambda: b.elector.holder == "a")
    await kube.delete(LEASE)
    await tick(fake, clock)
    assert a.terms[0].lost.is_set() and a.ended == 1
    for _ in range(20):
        await tick(fake, clock)
    leads = [each for each in (a, b) if each.leads]
    assert len(leads) == 1 and leads[0].terms[-1].token == 2


async def test_who_saw_a_holder_does_not_take_a_lease_that_was_deleted_before_its_time(
    fake: FakeApi, kube: Kube, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    spec = {"holderIdentity": "alive", "leaseDurationSeconds": 15, "leaseTransitions": 7}
    await kube.create(LEASES, {"metadata": {"name": "gate", "namespace": "default"}, "spec": spec})
    b = candidate("b")
    await until(lambda: b.elector.holder == "alive")
    await kube.delete(LEASE)
    for _ in range(6):
        await tick(fake, clock)
    assert not b.terms
    for _ in range(3):
        await tick(fake, clock)
    assert b.leads and b.terms[0].token == 8


async def test_the_token_is_above_what_the_store_knows_where_the_lease_began_anew(
    fake: FakeApi, candidate: Callable[..., Candidate]
) -> None:
    async def known() -> int:
        return 1234

    a = candidate("a", known)
    await until(lambda: a.terms)
    assert a.terms[0].token == lease(fake)["leaseTransitions"] == 1235


async def test_two_that_begin_at_once_give_one_leader(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    several = [candidate(name) for name in "abcd"]
    await until(lambda: any(each.terms for each in several))
    for _ in range(10):
        await tick(fake, clock)
    assert sum(each.leads for each in several) == 1
    assert sum(len(each.terms) for each in several) == 1


async def test_the_lease_is_renewed_while_the_work_winds_down_and_released_after_it(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    a.may_end.clear()
    a.task.cancel()
    await a.winding_down.wait()
    for _ in range(10):
        await tick(fake, clock)
    assert a.leads and lease(fake)["holderIdentity"] == "a" and a.ended == 0
    a.may_end.set()
    await until(a.task.done)
    assert a.ended == 1 and lease(fake)["holderIdentity"] == ""


async def test_work_that_will_not_end_keeps_its_process_from_leading_again(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    a.may_end.clear()
    put_lease(fake, holderIdentity="", leaseTransitions=2)
    for _ in range(10):
        await tick(fake, clock)
    assert len(a.terms) == 1 and not a.leads
    a.may_end.set()
    for _ in range(3):
        await tick(fake, clock)
    assert len(a.terms) == 2 and a.leads and a.terms[1].token == 3


async def test_work_that_ends_by_itself_gives_its_result_and_the_lease_back(
    fake: FakeApi, kube: Kube, clock: ManualClock
) -> None:
    async def lead(term: Term) -> str:
        return f"done under {term.token}"

    elector = Elector(kube, LeaseTerms("default", "gate", "a"), clock=clock)
    assert await elector.run(lead) == "done under 1"
    assert lease(fake)["holderIdentity"] == "" and elector.term is None


async def test_work_that_fails_is_told_and_the_lease_given_back(fake: FakeApi, kube: Kube, clock: ManualClock) -> None:
    async def lead(_: Term) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await Elector(kube, LeaseTerms("default", "gate", "a"), clock=clock).run(lead)
    assert lease(fake)["holderIdentity"] == ""


async def test_a_server_that_is_away_is_waited_for(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    await fake.stop()
    a = candidate("a")
    for _ in range(5):
        await tick(fake, clock, 3.0)
    assert not a.terms and len(a.troubles) >= 3
    await fake.start()
    await tick(fake, clock, 3.0)
    await until(lambda: a.terms)


async def test_a_release_into_a_server_that_hangs_ends_with_the_term(
    fake: FakeApi, candidate: Callable[..., Candidate], clock: ManualClock
) -> None:
    a = candidate("a")
    await until(lambda: a.terms)
    fake.fail(Fault("hang", "update", "leases", 99))
    a.task.cancel()
    await until(lambda: a.ended == 1)
    await settle()
    await tick(fake, clock, 10.0)
    assert a.task.done() and not a.leads


@pytest.mark.parametrize(
    ("duration", "within", "retry"), [(15, 14.5, 2), (15, 10, 10), (15, 10, 0), (1, 0.5, 0.1), (15, 0, 0)]
)
def test_times_that_do_not_fit_are_refused(duration: int, within: float, retry: float) -> None:
    with pytest.raises(InputError, match="retry < renewWithin"):
        LeaseTerms("default", "gate", "a", duration, within, retry)


def test_times_at_the_edge_are_taken() -> None:
    assert LeaseTerms("default", "gate", "a", 15, 14.0, 13.9).renew_within_seconds == 14.0


def test_a_name_for_a_process_is_never_given_twice() -> None:
    assert new_identity() != new_identity()
    with pytest.raises(InputError, match="identity"):
        LeaseTerms("default", "gate", "")
