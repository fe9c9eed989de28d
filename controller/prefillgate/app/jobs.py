"""Replays in Jobs of the controller's namespace (`spec.runner: Job`); everything else in threads of this process.

A Job has the token of the term that made it. What an earlier term left is deleted, and gone, before another one is
made: two replays of a rollout are never at work at once, and the later one goes on at the next missing cell. What a
Job has come to is read from the evidence store, which is a database.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.api.kinds.names import REPLAY_LABEL
from prefillgate.app.job_manifest import JobSeen, JobWanted, NoTemplate, is_of, job_of, job_seen, token_of
from prefillgate.app.logs import logger
from prefillgate.app.orders import Asked
from prefillgate.app.replay_thread import retry_seconds
from prefillgate.app.run_stores import RunStores, told
from prefillgate.app.seams import Changed, Leading, Observed, Works
from prefillgate.app.watching_run import so_far
from prefillgate.core.gate import fold
from prefillgate.core.schedule import Stop, next_step
from prefillgate.core.verdict import Verdict
from prefillgate.evidence import StoreError, read_store, store_exists
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.errors import AlreadyExists, KubeError, Transient
from prefillgate.kube.objects import JOBS, PODS, Object, Query, Ref, name_of
from prefillgate.reconcile.effects import RecordOverride, StartWork
from prefillgate.reconcile.snapshot import WorkKind, WorkSeen, WorkState
from prefillgate.report.clean import one_line

POLL_SECONDS = 2.0
REFUSED_CODE = 2
WORD_LOOKS = 5  # a second apart, for a person's word to be written down before the replay goes on
STUCK_SECONDS = 60.0
AWAY = Backoff(1.0, 30.0)
IN_THREADS = ("Drain", "Scratch")  # isolation that puts pods aside, and puts back what was there


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where Jobs are made: the controller's namespace, and its own pod, which they are made like; None: in no pod."""

    kube: Kube
    namespace: str
    pod: str | None
    stores: RunStores
    poll_seconds: float = POLL_SECONDS


@dataclass(slots=True)
class _Work:
    asked: Asked
    line: str
    seen: WorkSeen
    task: asyncio.Task[None] | None = None
    failures: int = 0
    rows_at_failure: int = 0
    writing: bool = False  # a person's word is being written down


@dataclass(frozen=True, slots=True)
class _Read:
    """What stands in the store of a replay."""

    rows: int
    head: str
    verdict: Verdict
    over: bool


class Stuck(Exception):
    """A pod of an earlier Job does not end."""


def in_a_job(order: StartWork, observed: Observed) -> bool:
    """Whether a replay runs in a Job: that of a rollout of a line that asks for it, where nothing is to be put back."""
    spec = observed.snapshot.spec
    if spec is None or spec.runner != "Job" or order.kind is not WorkKind.JUDGE:
        return False
    return not Asked(order, observed).takes_turns and spec.baseline.isolation.mode not in IN_THREADS


@dataclass(slots=True)
class JobWorks:
    """The replays of one term, in Jobs and in `threads`. Make it in the loop that `changed` is to be called in."""

    threads: Works
    place: JobPlace
    leading: Leading
    changed: Changed
    clock: Clock = field(default_factory=SystemClock)
    _works: dict[tuple[str, str], _Work] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _closed: bool = False
    _sweeping: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self._sweeping = self._begin(self._insisting(self._sweep))
        self._sweeping.add_done_callback(_heard)

    def seen(self, line_uid: str) -> tuple[WorkSeen, ...]:
        """All work of a line that is known."""
        mine = {key: work.seen for (uid, key), work in self._works.items() if uid == line_uid}
        return (*(each for each in self.threads.seen(line_uid) if each.key not in mine), *mine.values())

    def start(self, order: StartWork, observed: Observed) -> None:
        """Begin it, or go on with what stands in its store."""
        if not in_a_job(order, observed):
            self.threads.start(order, observed)
            return
        metadata = observed.snapshot.line["metadata"]
        key, line = (str(metadata["uid"]), order.key), f"{metadata['namespace']}/{metadata['name']}"
        asked, now = Asked(order, observed), self.clock.now()
        work = self._works.get(key)
        if work is None:
            there = {str(each.thing["metadata"]["uid"]) for each in observed.snapshot.rollouts}
            for other in [one for one in self._works if one[0] == key[0] and one[1] not in there]:
                self._end(self._works.pop(other), "its rollout is gone")
            work = self._works[key] = _Work(asked, line, WorkSeen(order.key, order.kind, WorkState.RUNNING, now))
        early = work.seen.retry_at is not None and now < work.seen.retry_at
        if self._closed or work.seen.state is WorkState.ENDED or early or work.writing:
            return
        if work.task is not None and not work.task.done():
            if work.asked.order == order and work.seen.state is WorkState.RUNNING:
                return
            work.task.cancel()  # another order: its Job is replaced; or it was ended, and is wanted again
        work.asked = asked
        work.seen = replace(work.seen, state=WorkState.RUNNING, trouble="", retry_at=None)
        work.task = self._begin(self._keep(work))

    def stop(self, line_uid: str, key: str, why: str) -> None:
        """End it; what is in its store stays."""
        self.threads.stop(line_uid, key, why)
        work = self._works.get((line_uid, key))
        if work is not None and work.seen.state is WorkState.RUNNING:
            self._end(work, why)

    def record(self, order: RecordOverride, observed: Observed) -> None:
        """Write a person's override into its journal. A Job that writes there is ended first, and goes on after it."""
        work = self._works.get((str(observed.snapshot.line["metadata"]["uid"]), order.work))
        if work is None:
            self.threads.record(order, observed)
            return
        if work.writing or self._closed:
            return
        if work.seen.state is WorkState.RUNNING:
            self._end(work, "a person's word is written down")
        work.writing = True
        self._begin(self._word(work, order, observed))

    def present_epoch(self, url: str, epoch: str | None) -> None:
        """The present life of a server: a Job sees it itself."""
        self.threads.present_epoch(url, epoch)

    def looked(self, observed: Observed) -> None:
        """A look at a line was carried out."""
        self.threads.looked(observed)

    async def close(self, seconds: float) -> bool:
        """Let go of Jobs, which whoever leads next replaces, and end what runs in threads."""
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        return await self.threads.close(seconds)

    # -- one Job

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self, work: _Work, why: str) -> None:
        if work.task is not None:
            work.task.cancel()
        work.seen = replace(work.seen, state=WorkState.BROKEN, trouble=why)
        work.task = self._begin(self._cleared(work))

    async def _cleared(self, work: _Work) -> None:
        """Its Jobs are gone, however long that takes: what keeps them is told."""
        failures, rng = 0, random.Random()
        while True:
            try:
                await self._insisting(lambda: self._clear(work.seen.key))
                return
            except (KubeError, Stuck) as error:
                failures += 1
                text = one_line(str(error), 1000)
                if work.seen.trouble != text:
                    logger().warning("job_stays", work=work.seen.key, message=text)
                    work.seen = replace(work.seen, trouble=text)
                    self.changed(work.line)
                await self.clock.sleep(AWAY.seconds(failures, rng))

    async def _word(self, work: _Work, order: RecordOverride, observed: Observed) -> None:
        try:
            await self._cleared(work)
            await self._note(work)
            rows = work.seen.rows
            self.threads.record(order, observed)
            for _ in range(WORD_LOOKS):
                await self.clock.sleep(1.0)
                await self._note(work)
                if work.seen.rows != rows:
                    break
        finally:
            work.writing = False  # before the look that is asked for now
        self.changed(work.line)

    async def _keep(self, work: _Work) -> None:
        """Have its Job run, and know what it has come to, until it ends."""
        wanted = JobWanted(work.asked.order, work.line, self.leading.fence.token)
        try:
            await self._swept()
            await self._insisting(lambda: self._clear(wanted.order.key, wanted))
            await self._insisting(lambda: self._make(wanted))
        except (KubeError, NoTemplate, Stuck) as error:
            self._failed(work, one_line(str(error), 1000), refused=isinstance(error, NoTemplate))
            return
        while True:
            await self.clock.sleep(self.place.poll_seconds)
            seen = await self._look(wanted)
            turned = await self._note(work)
            if seen is not None and seen.ended:
                break
            if turned:
                self.changed(work.line)
        self._settled(work, seen)

    def _settled(self, work: _Work, seen: JobSeen) -> None:
        """Its Job is over: with an answer, or without."""
        if work.seen.state is WorkState.ENDED:
            self.changed(work.line)
        elif not seen.there:
            self._failed(work, "its Job was deleted by somebody else")
        else:
            code = "" if seen.code is None else f" with code {seen.code}"
            job = JobWanted(work.asked.order, work.line, self.leading.fence.token).name
            where = f"kubectl logs -n {self.place.namespace} job/{job}"
            self._failed(work, f"its Job ended{code}; {where} says why", refused=seen.code == REFUSED_CODE)

    def _failed(self, work: _Work, trouble: str, refused: bool = False) -> None:
        work.failures = 1 if work.seen.rows > work.rows_at_failure else work.failures + 1
        work.rows_at_failure = work.seen.rows
        state = WorkState.REFUSED if refused else WorkState.BROKEN
        retry_at = self.clock.now() + retry_seconds(work.failures, refused)
        work.seen = replace(work.seen, state=state, trouble=trouble, retry_at=retry_at)
        self.changed(work.line)

    async def _note(self, work: _Work) -> bool:
        """Read what stands in the store; whether a person is to be told of anything new."""
        namespace, _, line = work.line.partition("/")
        store = self.place.stores.of(namespace, line, work.seen.key)

        def read() -> _Read | None:
            if not store_exists(store):
                return None
            with read_store(store) as journal:
                gate = fold(journal.events())
                rows, _, head = journal.tail.partition(":")
                return _Read(int(rows), head, so_far(gate), isinstance(next_step(gate), Stop))

        try:
            found = await asyncio.to_thread(read)
        except StoreError:
            return False
        if found is None or (found.rows == work.seen.rows and work.seen.run):
            return False
        before = work.seen.verdict
        goes_on = WorkState.BROKEN if work.seen.state is WorkState.ENDED else work.seen.state
        state = WorkState.ENDED if found.over else goes_on  # what ended it may have been taken back
        ended_at = (found.verdict.ended_at or self.clock.now()) if found.over else None
        work.seen = replace(
            work.seen,
            run=work.seen.key,
            store=told(store),
            rows=found.rows,
            head=found.head,
            verdict=found.verdict,
            state=state,
            ended_at=ended_at,
        )
        return before is None or _words(before) != _words(found.verdict)

    # -- the cluster

    async def _swept(self) -> None:
        """What earlier terms left is deleted. Raises KubeError."""
        if self._sweeping.done() and self._sweeping.exception() is not None:
            await self._insisting(self._sweep)
            return
        await asyncio.shield(self._sweeping)

    async def _sweep(self) -> None:
        """Delete the Jobs of earlier terms, also those that nobody orders any more."""
        for job in await self._list(JOBS, REPLAY_LABEL):
            token = token_of(job)
            leaving = (job.get("metadata") or {}).get("deletionTimestamp")
            if token is not None and token < self.leading.fence.token and not leaving:
                await self.place.kube.delete(Ref(JOBS, name_of(job), self.place.namespace), foreground=True)

    async def _insisting(self, work: Callable[[], Any]) -> None:
        """Do it; where the API server is away, once it is back."""
        rng, failures = random.Random(), 0
        while True:
            try:
                await work()
                return
            except Transient as error:
                failures += 1
                await self.clock.sleep(max(error.retry_after_seconds or 0.0, AWAY.seconds(failures, rng)))

    async def _clear(self, key: str, but: JobWanted | None = None) -> None:
        """Delete the Jobs of a replay, all but the one wanted while that has not failed, and wait until their pods are
        gone. Raises KubeError, `Stuck`."""
        kube, labels = self.place.kube, f"{REPLAY_LABEL}={key[:63]}"
        until = self.clock.monotonic() + STUCK_SECONDS
        while True:
            jobs = [each for each in await self._list(JOBS, labels) if is_of(each, key)]
            kept = {
                name_of(each) for each in jobs if but is not None and name_of(each) == but.name and not _failed(each)
            }
            rest = [each for each in jobs if name_of(each) not in kept]
            pods = [each for each in await self._list(PODS, labels) if _owner(each) not in kept and _lives(each)]
            if not rest and not pods:
                return
            for each in rest:
                if not (each.get("metadata") or {}).get("deletionTimestamp"):
                    await kube.delete(Ref(JOBS, name_of(each), self.place.namespace), foreground=True)
            if self.clock.monotonic() >= until:
                kind, thing = ("pod", pods[0]) if pods else ("job", rest[0])
                raise Stuck(
                    f"{kind} {self.place.namespace}/{name_of(thing)} of an earlier Job has not ended in "
                    f"{STUCK_SECONDS:g} s, and two replays of a rollout are never at work at once. "
                    f"If its node is gone: kubectl delete {kind} -n {self.place.namespace} {name_of(thing)} --force"
                )
            await self.clock.sleep(min(1.0, self.place.poll_seconds))

    async def _list(self, kind: Any, labels: str) -> list[Object]:
        return (await self.place.kube.list(Query(kind, self.place.namespace, labels))).items

    async def _make(self, wanted: JobWanted) -> None:
        if not self.leading.leads():
            return  # whoever leads makes another one
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
            return  # of this term, from before a moment's outage

    async def _look(self, wanted: JobWanted) -> JobSeen | None:
        """How its Job stands; None where the API server is away."""
        try:
            job = await self.place.kube.find(Ref(JOBS, wanted.name, self.place.namespace))
            return job_seen(job, await self._list(PODS, f"{REPLAY_LABEL}={wanted.order.key[:63]}"))
        except KubeError:
            return None


def _heard(sweeping: asyncio.Task[None]) -> None:
    if not sweeping.cancelled() and (error := sweeping.exception()) is not None:
        logger().warning("jobs_not_swept", message=one_line(str(error), 1000))


def _failed(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Failed" and each.get("status") == "True" for each in conditions)


def _owner(pod: Object) -> str:
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    return next((str(each.get("name")) for each in owners if each.get("kind") == JOBS.kind), "")


def _lives(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _words(verdict: Verdict) -> tuple[Any, ...]:
    decision = verdict.decision
    replicates = tuple((each.number, each.ending) for each in verdict.replicates)
    return (decision.decision, decision.reason, decision.promotion, decision.rollback, verdict.alarm, replicates)
