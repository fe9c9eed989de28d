"""Who leads: one Lease, held by one process at a time, with a token that only ever grows.

The holder counts its term from the moment it *sent* the last renewal that succeeded, on its own monotonic clock, and
ends it before anybody who saw that renewal may take the Lease. Candidates count from the moment they *saw* the Lease
change. No wall clock is compared with another. A term that ended in doubt is fenced by its token, `leaseTransitions`,
at the evidence store.

```
           somebody else's, not seen to rest for its whole duration
              +--+
              v  |      written                    renewed in time
  start --> candidate ------------> leader --+
              ^                       ^      |
              |                       +------+
              +-- deadline, taken, deleted --+      shutdown or end of the work: released
```
"""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from prefillgate.api.errors import InputError, Problem, clean
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock, SystemClock, micro_time
from prefillgate.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from prefillgate.kube.objects import LEASES, Object, Ref, metadata

T = TypeVar("T")
SAFETY_SECONDS = 1.0  # at least between the end of our term and the first moment another may begin one


def new_identity() -> str:
    """A name no other process has, with the host (in a pod: the pod) in it."""
    return f"{clean(socket.gethostname())[:100]}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Which Lease, in whose name, and its times in seconds. Raises InputError where they do not fit each other."""

    namespace: str
    name: str
    identity: str
    duration_seconds: int = 15
    renew_within_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_within_seconds <= self.duration_seconds - SAFETY_SECONDS:
            given = f"{self.retry_seconds}, {self.renew_within_seconds}, {self.duration_seconds}"
            allowed = f"0 < retry < renewWithin <= duration - {SAFETY_SECONDS}"
            raise InputError(Problem("", "lease retry, renewWithin, duration", f"{given} do not fit", allowed))
        if not self.identity:
            raise InputError(Problem("", "lease identity", "it is empty", "a name no other process has"))


class Term:
    """One time of leading. `token` is larger than that of every term before it, of whatever process."""

    def __init__(self, token: int, deadline: float, clock: Clock) -> None:
        self.token = token
        self.lost = asyncio.Event()
        self._deadline = deadline
        self._clock = clock

    def seconds_left(self) -> float:
        """How long this term lasts unless it is renewed: 0 once it is over."""
        return 0.0 if self.lost.is_set() else max(0.0, self._deadline - self._clock.monotonic())

    def valid(self) -> bool:
        """Whether we lead at this moment. Ask before every act that only a leader may do."""
        return self.seconds_left() > 0

    def extend(self, deadline: float) -> None:
        self._deadline = max(self._deadline, deadline)

    def end(self) -> None:
        self.lost.set()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A Lease as a candidate saw it change last, and when, on its own clock."""

    spec: Object
    at: float


async def no_token() -> int:
    """For a controller without a store: no token is known but those of the Lease."""
    return 0


class Elector:
    """Leads whenever it can. `known_token` gives the highest token the evidence store has seen, so that a Lease that
    somebody deleted does not begin anew below it; what it raises ends `run`. `on_trouble` is told of every call that
    failed."""

    def __init__(
        self,
        kube: Kube,
        terms: LeaseTerms,
        known_token: Callable[[], Awaitable[int]] = no_token,
        on_trouble: Callable[[KubeError], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self._kube = kube
        self._terms = terms
        self._known_token = known_token
        self._on_trouble = on_trouble
        self._clock = clock or SystemClock()
        self._rng = random.Random()
        self._ref = Ref(LEASES, terms.name, terms.namespace)
        self._seen: _Seen | None = None
        self._lease: Object = {}
        self._highest = 0
        self.term: Term | None = None
        self.holder: str | None = None  # as last seen; "" after a release, None before the first look

    async def run(self, lead: Callable[[Term], Awaitable[T]]) -> T:
        """Wait for the Lease, then run `lead(term)`; again each time the Lease was lost, until `lead` ends by itself.

        `lead` is cancelled when the term is lost or this is cancelled, and the next term begins only after it ended.
        While it winds down after a cancellation from outside the Lease is still renewed; then it is released.
        """
        while True:
            term = await self._acquire()
            self.term = term
            try:
                ended, result = await self._lead(term, lead)
            finally:
                self.term = None
            if ended:
                return result  # type: ignore[return-value]

    async def _lead(self, term: Term, lead: Callable[[Term], Awaitable[T]]) -> tuple[bool, T | None]:
        work: asyncio.Future[T] = asyncio.ensure_future(lead(term))
        keeping: asyncio.Future[None] = asyncio.ensure_future(self._keep(term))
        both: set[asyncio.Future[Any]] = {work, keeping}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped = not work.done()
            if stopped:
                work.cancel()
                await asyncio.wait({work})
            keeping.cancel()
            await asyncio.wait({keeping})
            await self._release(term)
        if not keeping.cancelled():
            keeping.result()  # a bug in it must not pass for a lost Lease
        if stopped and (work.cancelled() or work.exception() is None):
            return False, None
        return True, work.result()

    async def _keep(self, term: Term) -> None:
        """Renew until the term is over, and end it. Cancelled, it leaves the term: there is a Lease to release."""
        try:
            await self._renewals(term)
        except Exception:
            term.end()
            raise
        term.end()

    async def _renewals(self, term: Term) -> None:
        while term.valid():
            await self._clock.sleep(min(self._terms.retry_seconds, term.seconds_left()))
            sent = self._clock.monotonic()
            renewed = await self._within(term, self._renew(term))
            if renewed:
                term.extend(sent + self._terms.renew_within_seconds)
            elif renewed is False:
                return

    async def _within(self, term: Term, attempt: Coroutine[Any, Any, bool | None]) -> bool | None:
        """What an attempt gives before the term is over. A server that hangs must not make it longer."""
        task = asyncio.ensure_future(attempt)
        alarm = asyncio.ensure_future(self._clock.sleep(term.seconds_left()))
        try:
            await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, alarm):
                each.cancel()
            await asyncio.wait({task, alarm})

    async def _renew(self, term: Term) -> bool | None:
        """True: renewed. False: it is ours no longer. None: it could not be found out."""
        if not term.valid():
            return None
        try:
            try:
                return await self._put(self._lease, self._spec(term.token, self._lease))
            except Conflict:  # somebody wrote it: a person, another leader, or our own request that we gave up
                fresh = await self._kube.get(self._ref)
                spec = fresh.get("spec") or {}
                if not self._is_ours(spec, term.token):
                    self._note(spec)
                    return False
                return await self._put(fresh, self._spec(term.token, fresh))
        except KubeError as error:
            self._on_trouble(error)
            deleted = isinstance(error, NotFound) and error.reason == "NotFound"
            return False if deleted else None

    async def _acquire(self) -> Term:
        while True:
            try:
                term = await self._attempt()
            except (AlreadyExists, Conflict):
                term = None  # another was faster
            except KubeError as error:
                self._on_trouble(error)
                term = None
            if term is not None and term.valid():
                return term
            await self._clock.sleep(self._terms.retry_seconds * (0.75 + 0.5 * self._rng.random()))

    async def _attempt(self) -> Term | None:
        """One look at the Lease, and one write where it is free. Raises KubeError."""
        lease = await self._kube.find(self._ref)
        now = self._clock.monotonic()
        spec: Object = (lease or {}).get("spec") or {}
        if lease is not None and (self._seen is None or self._seen.spec != spec):
            self._seen = _Seen(spec, now)
        if lease is not None:
            self._note(spec)
        if self._seen is not None and not self._free(self._seen, now):
            return None  # also where it was deleted meanwhile: its holder may not know yet
        token = max(self._highest, await self._known_token()) + 1
        sent = self._clock.monotonic()
        if lease is None:
            body = {"metadata": {"name": self._terms.name, "namespace": self._terms.namespace}}
            self._lease = await self._kube.create(LEASES, {**body, "spec": self._spec(token, {})})
            self._note(self._lease.get("spec") or {})
        elif not await self._put(lease, self._spec(token, {})):
            return None
        return Term(token, sent + self._terms.renew_within_seconds, self._clock)

    def _free(self, seen: _Seen, now: float) -> bool:
        holder = seen.spec.get("holderIdentity")
        if not holder or holder == self._terms.identity:
            return True
        duration = seen.spec.get("leaseDurationSeconds")
        # a Lease without a duration was written by something else; ours is as good a guess as any
        seconds = duration if isinstance(duration, int) and duration > 0 else self._terms.duration_seconds
        return now - seen.at >= seconds

    async def _put(self, lease: Object, spec: Object) -> bool | None:
        """Write it over the one that was read; whether the answer says that it is ours."""
        written = await self._kube.replace(LEASES, {"metadata": metadata(lease), "spec": spec})
        said = written.get("spec") or {}
        if said.get("renewTime") != spec["renewTime"]:
            return None  # the answer of a cache on the way
        self._lease = written
        self._note(said)
        return True

    def _spec(self, token: int, lease: Object) -> Object:
        now = micro_time(self._clock.now())
        acquired = (lease.get("spec") or {}).get("acquireTime")
        return {
            "holderIdentity": self._terms.identity,
            "leaseDurationSeconds": self._terms.duration_seconds,
            "acquireTime": acquired or now,
            "renewTime": now,
            "leaseTransitions": token,
        }

    def _note(self, spec: Object) -> None:
        self.holder = str(spec.get("holderIdentity") or "")
        transitions = spec.get("leaseTransitions")
        if isinstance(transitions, int):
            self._highest = max(self._highest, transitions)

    async def _release(self, term: Term) -> None:
        """Let the next one begin at once. Where that fails it waits for the duration, as after a crash."""
        if term.valid():
            spec = {**self._spec(term.token, self._lease), "holderIdentity": "", "leaseDurationSeconds": 1}
            await self._within(term, self._try_put(spec))
        term.end()

    async def _try_put(self, spec: Object) -> bool | None:
        try:
            try:
                return await self._put(self._lease, spec)
            except Conflict:  # our own last renewal may have been written, and its answer given up
                fresh = await self._kube.get(self._ref)
                if not self._is_ours(fresh.get("spec") or {}, int(spec["leaseTransitions"])):
                    return False
                return await self._put(fresh, spec)
        except KubeError as error:
            self._on_trouble(error)
            return None

    def _is_ours(self, spec: Object, token: int) -> bool:
        return spec.get("holderIdentity") == self._terms.identity and spec.get("leaseTransitions") == token
