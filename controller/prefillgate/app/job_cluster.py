"""The Jobs of one term on the API server: what earlier terms left is deleted, one is made, and how it stands."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from prefillgate.api.kinds.names import REPLAY_LABEL
from prefillgate.app.job_manifest import JobSeen, JobWanted, NoTemplate, is_of, is_wanted, job_of, job_seen, token_of
from prefillgate.app.run_stores import RunStores
from prefillgate.app.seams import Leading
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock
from prefillgate.kube.errors import AlreadyExists, KubeError, Transient
from prefillgate.kube.objects import JOBS, PODS, Object, Query, Ref, name_of

POLL_SECONDS = 2.0
STUCK_SECONDS = 60.0
AWAY = Backoff(1.0, 30.0)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where Jobs are made: the controller's namespace, and its own pod, which they are made like; None: in no pod."""

    kube: Kube
    namespace: str
    pod: str | None
    stores: RunStores
    poll_seconds: float = POLL_SECONDS


class Stuck(Exception):
    """A pod of an earlier Job does not end, or a Job that is not ours bears the name of ours."""


@dataclass(frozen=True, slots=True)
class JobHand:
    """Makes and deletes them. Its methods raise KubeError where the API server refuses; while it is away they wait."""

    place: JobPlace
    leading: Leading
    clock: Clock

    async def sweep(self) -> None:
        """Delete the Jobs of earlier terms, also those that nobody orders any more."""
        await self._insisting(self._sweep)

    async def clear(self, key: str) -> None:
        """Delete the Jobs of a replay, and wait until their pods are gone. Raises KubeError, `Stuck`."""
        await self._insisting(lambda: self._clear(key))

    async def begin(self, wanted: JobWanted) -> bool:
        """Have that Job there and no other one of its replay: one that failed, that is being deleted or that has
        another order is deleted first. Whether it was made now. Raises KubeError, `NoTemplate`, `Stuck`."""
        until = self.clock.monotonic() + STUCK_SECONDS
        while not await self._insisting(lambda: self._clear(wanted.order.key, wanted)):
            if await self._insisting(lambda: self._make(wanted)):
                return True
            if self.clock.monotonic() >= until:
                name, where = wanted.name, self.place.namespace
                raise Stuck(f"a Job of another origin has the name of ours: kubectl delete job -n {where} {name}")
            await self._pause()
        return False

    async def look(self, wanted: JobWanted) -> JobSeen | None:
        """How it stands; None where the API server does not say."""
        try:
            job = await self.place.kube.find(Ref(JOBS, wanted.name, self.place.namespace))
            return job_seen(job, await self._list(PODS, f"{REPLAY_LABEL}={wanted.order.key[:63]}"))
        except KubeError:
            return None

    async def _insisting(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do it; where the API server is away, once it is back."""
        rng, failures = random.Random(), 0
        while True:
            try:
                return await work()
            except Transient as error:
                failures += 1
                await self.clock.sleep(max(error.retry_after_seconds or 0.0, AWAY.seconds(failures, rng)))

    async def _pause(self) -> None:
        await self.clock.sleep(min(1.0, self.place.poll_seconds))

    async def _sweep(self) -> None:
        for job in await self._list(JOBS, REPLAY_LABEL):
            token = token_of(job)
            if token is not None and token < self.leading.fence.token and not _leaves(job):
                await self.place.kube.delete(Ref(JOBS, name_of(job), self.place.namespace), foreground=True)

    async def _clear(self, key: str, but: JobWanted | None = None) -> bool:
        """Delete the Jobs of a replay, all but the one wanted while that goes on or has succeeded; whether that one is
        there."""
        kube, labels = self.place.kube, f"{REPLAY_LABEL}={key[:63]}"
        until = self.clock.monotonic() + STUCK_SECONDS
        while True:
            jobs = [each for each in await self._list(JOBS, labels) if is_of(each, key)]
            kept = {
                name_of(each)
                for each in jobs
                if but is not None and is_wanted(each, but) and not _failed(each) and not _leaves(each)
            }
            rest = [each for each in jobs if name_of(each) not in kept]
            pods = [each for each in await self._list(PODS, labels) if _owner(each) not in kept and _lives(each)]
            if not rest and not pods:
                return bool(kept)
            for each in rest:
                if not _leaves(each):
                    await kube.delete(Ref(JOBS, name_of(each), self.place.namespace), foreground=True)
            if self.clock.monotonic() >= until:
                raise self._stuck(*(("pod", pods[0]) if pods else ("job", rest[0])))
            await self._pause()

    def _stuck(self, kind: str, thing: Object) -> Stuck:
        return Stuck(
            f"{kind} {self.place.namespace}/{name_of(thing)} of an earlier Job has not ended in "
            f"{STUCK_SECONDS:g} s, and two replays of a rollout are never at work at once. "
            f"If its node is gone: kubectl delete {kind} -n {self.place.namespace} {name_of(thing)} --force"
        )

    async def _list(self, kind: Any, labels: str) -> list[Object]:
        return (await self.place.kube.list(Query(kind, self.place.namespace, labels))).items

    async def _make(self, wanted: JobWanted) -> bool:
        """Make it, or leave it to whoever leads now; False where one of its name is there."""
        if not self.leading.leads():
            return True
        if self.place.pod is None:
            raise NoTemplate(
                "spec.runner Job takes a controller that runs in a pod and knows its name (PREFILLGATE_POD)"
            )
        query = Query(PODS, self.place.namespace, fields=f"metadata.name={self.place.pod}")
        pods = (await self.place.kube.list(query)).items
        if not pods:
            raise NoTemplate(f"there is no pod {self.place.pod} in namespace {self.place.namespace}")
        try:
            await self.place.kube.create(JOBS, job_of(pods[0], wanted))
        except AlreadyExists:
            return False  # ours, from before a moment's outage, or one that is still being deleted
        return True


def _leaves(job: Object) -> bool:
    return bool((job.get("metadata") or {}).get("deletionTimestamp"))


def _failed(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Failed" and each.get("status") == "True" for each in conditions)


def _owner(pod: Object) -> str:
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    return next((str(each.get("name")) for each in owners if each.get("kind") == JOBS.kind), "")


def _lives(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
