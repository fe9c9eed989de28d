"""The process of the controller: put together, led, stopped.

A standby keeps its reflectors, so that a new leader has only to look. Everything that a leader has (book, replays,
loop) is made for its term and gone with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from prefillgate import __version__
from prefillgate.app.carry_out import Hand, Means
from prefillgate.app.logs import Troubles, logger
from prefillgate.app.loop import API_SERVER, STORE, Loop, Parts, Planner
from prefillgate.app.metrics import Metrics
from prefillgate.app.seams import Changed, Leading, Observer, Works
from prefillgate.app.settings import Settings
from prefillgate.app.web import Answer, serve
from prefillgate.evidence.book import Book, open_book
from prefillgate.evidence.errors import StoreAway, StoreBusy, StoreError, StoreFenced
from prefillgate.evidence.fence import Fence
from prefillgate.kube.access import Where
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.elector import Elector, LeaseTerms, Term, new_identity
from prefillgate.kube.errors import KubeError
from prefillgate.kube.events import Recorder
from prefillgate.kube.objects import LEASES
from prefillgate.kube.status import StatusWriter
from prefillgate.kube.transport import CallMade

LEASE = "Lease"
STUCK_SECONDS = 900.0  # a look is given up long before
MIND_SECONDS = 2.0  # between two looks at the store that nothing asked for
LATE_SECONDS = 30.0  # of the heartbeat: something blocks the event loop
AWAY = Backoff(0.5, 15.0)
_T = TypeVar("_T")
SYNC_SECONDS = 0.02
DRAIN_SECONDS = 5.0  # for looks that are under way when the process is stopped


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the parts of a controller are made with."""

    settings: Settings
    kube: Kube
    clock: Clock
    metrics: Metrics
    troubles: Troubles
    identity: str


@dataclass(frozen=True, slots=True)
class Makers:
    """Who looks, who replays, who plans."""

    observer: Callable[[Surroundings], Observer]
    works: Callable[[Surroundings, Leading, Changed], Works]
    plan: Planner


@dataclass(slots=True)
class Process:
    """One controller. `run` returns once `stop` is set and everything has ended; whether it ended in time."""

    settings: Settings
    makers: Makers
    clock: Clock = field(default_factory=SystemClock)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    identity: str = field(default_factory=new_identity)
    address: str = ""
    _metrics: Metrics = field(init=False)
    _troubles: Troubles = field(init=False)
    _observer: Observer | None = None
    _loop: Loop | None = None
    _elector: Elector | None = None
    _beat: float = 0.0
    _all_ended: bool = True

    def __post_init__(self) -> None:
        self._metrics = Metrics()
        self._troubles = Troubles(self.clock.monotonic)
        self._beat = self.clock.monotonic()

    async def run(self) -> bool:
        """Lead whenever we can, until `stop`. Raises InputError and StoreError where it cannot begin."""
        settings = self.settings
        await asyncio.to_thread(self._known_token)
        async with AsyncExitStack() as stack:
            where = Where(settings.kubeconfig, settings.context)
            kube = await stack.enter_async_context(await Kube.connect(where, on_call=self._called))
            terms = self._terms(kube)
            self.address, end_serving = await serve(settings.listen, self._metrics, self.health, self.ready)
            stack.push_async_callback(end_serving)
            around = Surroundings(settings, kube, self.clock, self._metrics, self._troubles, self.identity)
            self._observer = self.makers.observer(around)
            self._elector = Elector(kube, terms, self._token_of_store, self._lease_trouble, self.clock)
            logger().info(
                "started",
                version=__version__,
                identity=self.identity,
                cluster=kube.source,
                namespace=terms.namespace,
                store=str(settings.store),
                listen=self.address,
            )
            await self._live(around)
        logger().info("stopped", all_ended=self._all_ended)
        return self._all_ended

    def _terms(self, kube: Kube) -> LeaseTerms:
        settings = self.settings
        return LeaseTerms(
            settings.namespace or kube.namespace,
            settings.lease_name,
            self.identity,
            settings.lease_duration_seconds,
            settings.lease_renew_seconds,
            settings.lease_retry_seconds,
        )

    async def _live(self, around: Surroundings) -> None:
        """Until `stop`, or until one of the parts ends, which none does but for a bug."""
        assert self._observer is not None
        tasks = {
            asyncio.ensure_future(self._observer.run(self._touched)),
            asyncio.ensure_future(self._lead_again(around)),
            asyncio.ensure_future(self._heart()),
        }
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            done, _ = await asyncio.wait({stopped, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop.set()
            logger().info("stopping")
            if self._loop is not None:
                await self._loop.drain(min(DRAIN_SECONDS, self.settings.stop_seconds))
            for task in (stopped, *tasks):
                task.cancel()
            await asyncio.wait({stopped, *tasks})
        for task in done - {stopped}:
            error = task.exception()
            logger().error("crashed", message="a part of the controller ended, which none does", exc_info=error)
            task.result()

    async def _heart(self) -> None:
        while True:
            self._beat = self.clock.monotonic()
            self._metrics.synced(self._synced())
            await self.clock.sleep(1.0)

    # -- leading

    async def _lead_again(self, around: Surroundings) -> None:
        assert self._elector is not None
        while True:
            await self._elector.run(lambda term: self._lead(around, term))
            if self.stop.is_set():
                return  # it was drained, and nobody here begins another term
            logger().warning("term_given_up", message="the evidence store was written by a later leader")

    async def _lead(self, around: Surroundings, term: Term) -> None:
        """One term: until it is lost, until the store says that another one leads, or until the process stops."""
        with structlog.contextvars.bound_contextvars(term=term.token):
            logger().info("leading")
            self._metrics.leads(term.token)
            try:
                book = await self._open(term)
                if book is not None:
                    await self._term(around, term, book)
            finally:
                self._metrics.leads(None)
                logger().info("leading_ended", stopping=self.stop.is_set())

    async def _term(self, around: Surroundings, term: Term, book: Book) -> None:
        assert self._observer is not None
        leading = Leading(book, Fence(term.token), term.valid)
        works = self.makers.works(around, leading, self._work_changed)
        means = Means(
            kube=around.kube,
            statuses=StatusWriter(around.kube),
            recorder=Recorder(around.kube, self.identity, self.clock),
            works=works,
            leading=leading,
            term=term,
            clock=self.clock,
            told=self._metrics.told,
        )
        hand = Hand(means)
        parts = Parts(self._observer, self.makers.plan, works, hand, leading, self._metrics, self._troubles, self.clock)
        loop = self._loop = Loop(parts, self.settings.workers)
        try:
            while not self._synced():
                await self.clock.sleep(SYNC_SECONDS)
            loop.look_at_all()
            await _first(loop.run(), loop.fenced.wait(), self._mind(book, loop))
        finally:
            self._loop = None
            ended = await works.close(self.settings.stop_seconds)
            if not ended:
                self._all_ended = False
                logger().warning("replays_did_not_end", seconds=self.settings.stop_seconds)
            await asyncio.to_thread(book.close)

    async def _mind(self, book: Book, loop: Loop) -> None:
        """See that the store is lost, or there again, though nothing asks for a look; every line is told then."""
        well = True
        while True:
            await self.clock.sleep(MIND_SECONDS)
            well = well and not loop.store_failed.is_set()
            loop.store_failed.clear()
            try:
                await asyncio.to_thread(book.highest_token)
            except StoreError as error:
                self._troubles.note(STORE, str(error), "store_trouble")
                found = False
            else:
                self._troubles.over(STORE)
                found = True
            if found != well:
                loop.look_at_all()
            well = found

    async def _open(self, term: Term) -> Book | None:
        """The book in the name of this term; waited for where its database is away. None: another one leads."""
        try:
            return await self._once_there(lambda: open_book(self.settings.book, Fence(term.token)))
        except StoreFenced as error:
            logger().warning("fenced", message=str(error))
            return None

    async def _once_there(self, work: Callable[[], _T]) -> _T:
        """What comes of it in a thread; while the database is away it is tried again."""
        failures, rng = 0, random.Random()
        while True:
            try:
                found = await asyncio.to_thread(work)
                self._troubles.over(STORE)
                return found
            except (StoreAway, StoreBusy) as error:
                failures += 1
                self._troubles.note(STORE, str(error), "store_trouble")
                await self.clock.sleep(AWAY.seconds(failures, rng))

    def _known_token(self) -> int:
        with open_book(self.settings.book) as book:
            return book.highest_token()

    async def _token_of_store(self) -> int:
        """The highest token of the store. A database that is away is waited for: nobody leads without it."""
        return await self._once_there(self._known_token)

    # -- what others tell

    def _touched(self, kind: str, key: str) -> None:
        if self._loop is not None:
            self._loop.touched(kind, key)

    def _work_changed(self, line: str) -> None:
        loop = self._loop
        if loop is not None:
            loop.work_changed(line)

    def _called(self, call: CallMade) -> None:
        self._metrics.called(call)
        if call.outcome == "Ok":
            self._troubles.over(API_SERVER)
            if call.plural == LEASES.plural:
                self._troubles.over(LEASE)
            if call.verb in ("list", "watch"):
                for singular in (call.plural.removesuffix("s"), call.plural.removesuffix("ies") + "y"):
                    self._troubles.over(watch_of(singular))

    def _lease_trouble(self, error: KubeError) -> None:
        self._troubles.note(LEASE, f"{type(error).__name__}: {error}", "lease_trouble")

    # -- health

    def health(self) -> Answer:
        """Whether this process works: its event loop turns, and no look hangs. An API server that is away is no reason
        to restart it."""
        late = self.clock.monotonic() - self._beat
        longest = 0.0 if self._loop is None else self._loop.longest_look_seconds()
        lines = (f"event loop: {late:.1f} s behind", f"longest look: {longest:.1f} s")
        return Answer(late < LATE_SECONDS and longest < STUCK_SECONDS, lines)

    def ready(self) -> Answer:
        """Whether this process could lead at once: everything was listed. A standby is ready, too."""
        synced = self._synced()
        term = None if self._elector is None else self._elector.term
        role = "stopping" if self.stop.is_set() else "standby" if term is None else "leader"
        troubled = tuple(f"trouble: {scope}" for scope in self._troubles.standing[:20])
        lines = (f"role: {role}", f"listed: {'yes' if synced else 'not yet'}", *troubled)
        return Answer(synced and not self.stop.is_set(), lines)

    def _synced(self) -> bool:
        return self._observer is not None and self._observer.synced()


def watch_of(kind: str) -> str:
    """What is troubled where a kind, in lower case, cannot be listed or watched."""
    return f"watch of {kind}"


async def _first(*work: object) -> None:
    """Until one of them ends; the others are cancelled. What it raises is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]  # type: ignore[call-overload]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
