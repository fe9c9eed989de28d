"""Replays in Jobs of the controller's namespace (`spec.runner: Job`); everything else in threads of this process.

A Job has the token of the term that made it. What an earlier term left is deleted, and gone, before another one is
made: two replays of a rollout are never at work at once, and the later one goes on at the next missing cell. Nor are
they where a line's replay goes from a Job to a thread, or back. What a Job has come to is read from the evidence store,
which is a database.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.app.job_cluster import AWAY, JobHand, JobPlace, Stuck
from prefillgate.app.job_manifest import JobSeen, JobWanted, NoTemplate
from prefillgate.app.logs import logger
from prefillgate.app.orders import Asked
from prefillgate.app.replay_thread import TURN, retry_seconds
from prefillgate.app.run_stores import told
from prefillgate.app.seams import Changed, Leading, Observed
from prefillgate.app.watching_run import is_over, so_far, told_of_ended, waits_for
from prefillgate.app.work import Key, ThreadWorks
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.gate import fold
from prefillgate.core.verdict import Verdict
from prefillgate.evidence import StoreError, read_store, store_exists
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.errors import KubeError
from prefillgate.reconcile.effects import RecordOverride, StartWork
from prefillgate.reconcile.snapshot import WorkKind, WorkSeen, WorkState
from prefillgate.reconcile.standstill import BOTH, standstill_of_a_job
from prefillgate.report.clean import one_line

REFUSED_CODE = 2
STANDSTILL_CODES = {3: CANDIDATE, 4: BASELINE, 5: BOTH}  # whose servers gave nothing that can be measured, for an hour
WORD_LOOKS = 5  # a second apart, for a person's word to be written down before the replay goes on
IN_THREADS = ("Drain", "Scratch")  # isolation that puts pods aside, and puts back what was there
TO_A_JOB = "it goes on in a Job"
TO_A_THREAD = "it goes on in the controller once its Job is gone"


@dataclass(slots=True, eq=False)
class _Work:
    """A replay in a Job, and its place among those that take turns."""

    uid: str  # of its line
    line: str
    order: StartWork
    seen: WorkSeen
    given: Callable[[_Work, Callable[[], None]], None]  # told that its turn has come, and what ends it
    now: Callable[[], float]
    freed: Callable[[], None] | None = None  # ends its turn; None: it has none
    task: asyncio.Task[None] | None = None
    failures: int = 0
    rows_at_failure: int = 0
    writing: bool = False  # a person's word is being written down
    leaves: bool = False  # for a thread
    waits: str = ""  # what its store alone tells that it waits for
    met: bool = False  # what stood in its store before is known

    def begin(self, freed: Callable[[], None]) -> bool:
        """Its turn has come."""
        self.given(self, freed)
        return True

    def waits_for_turn(self) -> None:
        """Others have theirs first."""
        self.seen = replace(self.seen, waiting=TURN, waiting_since=self.now())

    def waits_since(self, then: float) -> bool:
        """Whether it only waits, at least since then."""
        since = self.seen.waiting_since
        return self.seen.waiting not in ("", TURN) and since is not None and since <= then


@dataclass(frozen=True, slots=True)
class _Read:
    """What stands in the store of a replay."""

    rows: int
    head: str
    verdict: Verdict
    over: bool
    waits: str


def in_a_job(order: StartWork, observed: Observed) -> bool:
    """Whether a replay runs in a Job: that of a rollout of a line that asks for it, where nothing is to be put back."""
    spec = observed.snapshot.spec
    if spec is None or spec.runner != "Job" or order.kind is not WorkKind.JUDGE:
        return False
    return not Asked(order, observed).takes_turns and spec.baseline.isolation.mode not in IN_THREADS


@dataclass(slots=True)
class JobWorks:
    """The replays of one term, in Jobs and in `threads`, which take turns together. Make it in the loop that `changed`
    is to be called in."""

    threads: ThreadWorks
    place: JobPlace
    leading: Leading
    changed: Changed
    clock: Clock = field(default_factory=SystemClock)
    _works: dict[Key, _Work] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _closed: bool = False
    _hand: JobHand = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _sweeping: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._hand = JobHand(self.place, self.leading, self.clock)
        self._sweeping = self._task(self._hand.sweep())
        self._sweeping.add_done_callback(_heard)

    def seen(self, line_uid: str) -> tuple[WorkSeen, ...]:
        """All work of a line that is known."""
        mine = {key: work.seen for (uid, key), work in self._works.items() if uid == line_uid}
        return (*(each for each in self.threads.seen(line_uid) if each.key not in mine), *mine.values())

    def start(self, order: StartWork, observed: Observed) -> None:
        """Begin it, or go on with what stands in its store. Where its line asks for another runner than before, the one
        it had ends first."""
        metadata = observed.snapshot.line["metadata"]
        key = (str(metadata["uid"]), order.key)
        work = self._works.get(key)
        if not in_a_job(order, observed):
            if work is None:
                self.threads.start(order, observed)
            elif work.seen.state is not WorkState.ENDED and not work.leaves and not work.writing:
                work.leaves = True
                self._end(work, TO_A_THREAD)
            return
        if self._closed:
            return
        if work is None:
            self._forget(key[0], {str(each.thing["metadata"]["uid"]) for each in observed.snapshot.rollouts})
            line = f"{metadata['namespace']}/{metadata['name']}"
            seen = WorkSeen(order.key, order.kind, WorkState.BROKEN, self.clock.now())
            work = self._works[key] = _Work(key[0], line, order, seen, self._given, self.clock.now)
        state, retry_at = work.seen.state, work.seen.retry_at
        early = retry_at is not None and self.clock.now() < retry_at
        goes_on = state is WorkState.RUNNING and work.order == order
        if not (state is WorkState.ENDED or early or goes_on or work.writing):
            self._start(work, order)

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
        self._task(self._word(work, order, observed))

    def present_epoch(self, url: str, epoch: str | None) -> None:
        """The present life of a server: a Job sees it itself."""
        self.threads.present_epoch(url, epoch)

    def looked(self, observed: Observed) -> None:
        """A look at a line was carried out."""
        self.threads.looked(observed)

    def gone(self, line_uid: str) -> None:
        """A line was deleted."""
        self._forget(line_uid, set())
        self.threads.gone(line_uid)

    async def close(self, seconds: float) -> bool:
        """Let go of Jobs, which whoever leads next replaces, and end what runs in threads."""
        self._closed = True
        self.threads.turns.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        return await self.threads.close(seconds)

    # -- one Job

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _start(self, work: _Work, order: StartWork) -> None:
        """Have it run once its turn has come; where it has one, at once, another Job in the place of its own."""
        work.order, work.leaves = order, False
        work.seen = replace(work.seen, state=WorkState.RUNNING, trouble="", retry_at=None)
        self.threads.stop(work.uid, order.key, TO_A_JOB)
        if work.freed is None:
            self.threads.turns.ask(work)
        else:
            self._give_task(work, self._keep(work))

    def _given(self, work: _Work, freed: Callable[[], None]) -> None:
        """Its turn has come. From any thread."""
        self._loop.call_soon_threadsafe(self._has_turn, work, freed)

    def _has_turn(self, work: _Work, freed: Callable[[], None]) -> None:
        if self._closed or work.freed is not None or work.seen.state is not WorkState.RUNNING:
            freed()  # it was ended meanwhile
            return
        work.freed = freed
        waited = work.seen.waiting == TURN
        work.seen = replace(work.seen, waiting="", waiting_since=None)
        self._give_task(work, self._keep(work))
        if waited:
            self.changed(work.line)

    def _give_task(self, work: _Work, living: Coroutine[Any, Any, None]) -> None:
        """What it does from now on, instead of what it did."""
        if work.task is not None:
            work.task.cancel()
        work.task = self._task(living)
        work.task.add_done_callback(lambda task: self._came_to_its_end(work, task))

    def _came_to_its_end(self, work: _Work, task: asyncio.Task[None]) -> None:
        if task is not work.task:
            return  # something else goes on in its turn
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(work, one_line(f"a fault of the gate itself: {error!r}", 1000))
        freed, work.freed = work.freed, None
        if freed is not None:
            freed()

    def _forget(self, line_uid: str, there: set[str]) -> None:
        """Of a line all but the rollouts that are there: what is at work is ended, and memory stays bounded."""
        for key in [each for each in self._works if each[0] == line_uid and each[1] not in there]:
            work = self._works.pop(key)
            if work.seen.state is not WorkState.ENDED:
                self._end(work, "its rollout is gone")

    def _end(self, work: _Work, why: str) -> None:
        self.threads.turns.withdraw(work)
        work.seen = replace(work.seen, state=WorkState.BROKEN, trouble=why, retry_at=None)
        work.seen = replace(work.seen, waiting="", waiting_since=None)
        self._give_task(work, self._ending(work))

    async def _ending(self, work: _Work) -> None:
        """Its Jobs are gone; one that leaves for a thread is not known here any more."""
        await self._cleared(work)
        await self._unsaid(work)
        key = (work.uid, work.seen.key)
        if work.leaves and self._works.get(key) is work:
            del self._works[key]
            self.changed(work.line)

    async def _cleared(self, work: _Work) -> None:
        """Its Jobs are gone, however long that takes: what keeps them is told."""
        failures, rng = 0, random.Random()
        while True:
            try:
                await self._hand.clear(work.seen.key)
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
        wanted = JobWanted(work.order, work.line, self.leading.fence.token)
        try:
            await self._swept()
            await self._left_by_threads(work)
            await self._note(work)
            if work.seen.state is WorkState.ENDED:
                self.changed(work.line)
                return
            if await self._hand.begin(wanted):
                await self._unsaid(work)
        except (KubeError, NoTemplate, Stuck) as error:
            self._failed(work, one_line(str(error), 1000), refused=isinstance(error, NoTemplate))
            return
        while True:
            await self.clock.sleep(self.place.poll_seconds)
            seen = await self._hand.look(wanted)
            turned = await self._note(work)
            turned = await self._hear(work) or turned
            if seen is not None and seen.ended:
                break
            if turned:
                self.changed(work.line)
        self._settled(work, seen)

    async def _swept(self) -> None:
        """What earlier terms left is deleted. Raises KubeError."""
        if self._sweeping.done() and self._sweeping.exception() is not None:
            await self._hand.sweep()
            return
        await asyncio.shield(self._sweeping)

    async def _left_by_threads(self, work: _Work) -> None:
        """The thread that it had has come to its end."""
        while any(
            each.key == work.seen.key and each.state is WorkState.RUNNING for each in self.threads.seen(work.uid)
        ):
            self.threads.stop(work.uid, work.seen.key, TO_A_JOB)
            await self.clock.sleep(min(1.0, self.place.poll_seconds))

    def _settled(self, work: _Work, seen: JobSeen) -> None:
        """Its Job is over: with an answer, or without."""
        work.seen = replace(work.seen, waiting="", waiting_since=None)
        if work.seen.state is WorkState.ENDED:
            self.changed(work.line)
        elif not seen.there:
            self._failed(work, "its Job was deleted by somebody else")
        else:
            code = "" if seen.code is None else f" with code {seen.code}"
            job = JobWanted(work.order, work.line, self.leading.fence.token).name
            where = f"kubectl logs -n {self.place.namespace} job/{job}"
            arm = STANDSTILL_CODES.get(seen.code or 0, "")
            self._failed(work, f"its Job ended{code}; {where} says why", seen.code == REFUSED_CODE, arm)

    def _failed(self, work: _Work, trouble: str, refused: bool = False, arm: str = "") -> None:
        """`arm`: whose servers gave nothing that can be measured, for so long that the rollout ends."""
        work.failures = 1 if work.seen.rows > work.rows_at_failure else work.failures + 1
        work.rows_at_failure = work.seen.rows
        state = WorkState.REFUSED if refused else WorkState.BROKEN
        retry_at = self.clock.now() + retry_seconds(work.failures, refused)
        still = standstill_of_a_job(arm, trouble, self.clock.now()) if arm else None
        work.seen = replace(work.seen, state=state, trouble=trouble, retry_at=retry_at, standstill=still)
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
                return _Read(int(rows), head, told_of_ended(so_far(gate)), is_over(gate), waits_for(gate))

        try:
            found = await asyncio.to_thread(read)
        except StoreError:
            return False
        if not work.met:  # nothing was made for it yet
            work.met, work.seen = True, replace(work.seen, before=None if found is None else found.verdict)
        work.waits = "" if found is None else found.waits
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

    async def _hear(self, work: _Work) -> bool:
        """What it waits for, as its Job says in the book, else as its store tells; whether that changed."""
        try:
            wait = await asyncio.to_thread(self.leading.book.wait, work.seen.key)
        except StoreError:
            return False
        reason = work.waits if wait is None else wait.reason
        if reason == work.seen.waiting or work.seen.state is not WorkState.RUNNING:
            return False
        since = None if not reason else self.clock.now() if wait is None else wait.since
        work.seen = replace(work.seen, waiting=reason, waiting_since=since)
        return True

    async def _unsaid(self, work: _Work) -> None:
        """What an earlier Job of it said is of no use."""
        with suppress(StoreError):
            await asyncio.to_thread(self.leading.book.end_wait, work.seen.key)


def _heard(sweeping: asyncio.Task[None]) -> None:
    if not sweeping.cancelled() and (error := sweeping.exception()) is not None:
        logger().warning("jobs_not_swept", message=one_line(str(error), 1000))


def _words(verdict: Verdict) -> tuple[Any, ...]:
    decision = verdict.decision
    replicates = tuple((each.number, each.ending) for each in verdict.replicates)
    return (decision.decision, decision.reason, decision.promotion, decision.rollback, verdict.alarm, replicates)
