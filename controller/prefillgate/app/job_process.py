"""One replay as a process of its own: it looks at its line itself, and ends with its work.

It has the token of the controller that made it, so that its evidence is fenced like that one's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.app.carrying import WorkSettings
from prefillgate.app.jobs import STANDSTILL_CODES, in_a_job
from prefillgate.app.logs import Troubles, logger
from prefillgate.app.make import observer, said
from prefillgate.app.metrics import Metrics
from prefillgate.app.process import Surroundings
from prefillgate.app.replay_thread import TAKEN_OVER
from prefillgate.app.seams import Leading, Observed, Observer, Works
from prefillgate.app.settings import Settings
from prefillgate.app.work import ThreadWorks
from prefillgate.evidence.book import open_book
from prefillgate.evidence.book_rows import Wait
from prefillgate.evidence.errors import StoreError
from prefillgate.evidence.fence import Fence
from prefillgate.kube.access import Where
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import SystemClock
from prefillgate.kube.errors import KubeError
from prefillgate.kube.objects import metadata, uid_of
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.override_targets import holds
from prefillgate.reconcile.snapshot import WorkSeen, WorkState
from prefillgate.reconcile.standstill import has_ended_it

LOOK_SECONDS = 10.0
ENDED, NOT_NOW, REFUSED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Errand:
    """What is to be replayed: an order about a line (`namespace/name`), under a token."""

    order: StartWork
    line: str
    token: int


async def replay(settings: Settings, errand: Errand, stop: asyncio.Event) -> int:
    """Carry it out. The exit code: 0 ended with an answer, 1 taken over, stopped or its rollout is gone, 2 refused.

    Raises InputError where no cluster can be found, StoreError where the book cannot be opened.
    """
    settings = settings.model_copy(update={"watch_namespaces": (errand.line.partition("/")[0],)})
    clock, fence, woken = SystemClock(), Fence(errand.token), asyncio.Event()
    async with await Kube.connect(Where(settings.kubeconfig, settings.context)) as kube:
        troubles = Troubles(clock.monotonic)
        around = Surroundings(settings, kube, clock, Metrics(), troubles, errand.order.key)
        leading = Leading(await asyncio.to_thread(open_book, settings.book, fence), fence)
        works = ThreadWorks(
            leading, WorkSettings(settings.store, 1, said=partial(said, errand.token)), lambda line: woken.set()
        )
        try:
            return await _Replaying(around, leading, works, errand, woken).until_its_end(stop)
        finally:
            await works.close(settings.stop_seconds)
            await asyncio.to_thread(leading.book.close)


@dataclass(slots=True)
class _Replaying:
    around: Surroundings
    leading: Leading
    works: Works
    errand: Errand
    woken: asyncio.Event
    said: Wait | None = None  # what the book says that it waits for

    async def until_its_end(self, stop: asyncio.Event) -> int:
        eyes = observer(self.around)
        line = self.errand.line

        def touched(kind: str, key: str) -> None:
            if key == line or line in eyes.lines_of(kind, key):
                self.woken.set()

        looking = asyncio.ensure_future(eyes.run(touched))
        stopped = asyncio.ensure_future(stop.wait())
        working = asyncio.ensure_future(self._work(eyes))
        try:
            done, _ = await asyncio.wait({looking, stopped, working}, return_when=asyncio.FIRST_COMPLETED)
            if looking in done:
                looking.result()
            return working.result() if working in done else NOT_NOW
        finally:
            for task in (looking, stopped, working):
                task.cancel()
            await asyncio.wait({looking, stopped, working})

    async def _work(self, eyes: Observer) -> int:
        while True:
            self.woken.clear()
            if not eyes.synced():
                await asyncio.sleep(0.05)
                continue
            code = await self._look(eyes)
            if code is not None:
                return code
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.woken.wait()

    async def _is_taken_over(self) -> bool:
        """Whether another controller has led since."""
        try:
            return await asyncio.to_thread(self.leading.book.highest_token) > self.errand.token
        except StoreError:
            return False  # nothing can be written then, either

    async def _look(self, eyes: Observer) -> int | None:
        """A look at the line; the exit code once nothing more is to be done."""
        order = self.errand.order
        try:
            observed = await eyes.look(self.errand.line, self.works, self.leading)
        except KubeError as error:
            self.around.troubles.note("look", f"{type(error).__name__}: {error}", "api_server_trouble")
            return None
        if await self._is_taken_over():
            logger().warning("taken_over", work=order.key, message=TAKEN_OVER)
            return NOT_NOW
        if observed is None or order.key not in {uid_of(each.thing) for each in observed.snapshot.rollouts}:
            logger().warning("rollout_gone", work=order.key, message="the line or its rollout is not there any more")
            return NOT_NOW
        if not _is_wanted(order, observed):
            logger().warning(
                "not_wanted", work=order.key, message="the line is suspended or asks for no Job, or its rollout is over"
            )
            return NOT_NOW
        self.works.start(order, observed)
        seen = [each for each in self.works.seen(uid_of(observed.snapshot.line)) if each.key == order.key]
        if not seen:
            return None
        await self._say(seen[0])
        return _code(seen[0])

    async def _say(self, seen: WorkSeen) -> None:
        """Tell the controller what it waits for: by the book, which is all that both can write."""
        since = seen.started_at if seen.waiting_since is None else seen.waiting_since
        wait = Wait(seen.key, seen.waiting, since) if seen.waiting else None
        if wait == self.said:
            return
        book = self.leading.book
        with suppress(StoreError):  # else with the next look
            if wait is None:
                await asyncio.to_thread(book.end_wait, seen.key)
            else:
                await asyncio.to_thread(book.keep_wait, wait)
            self.said = wait


def _is_wanted(order: StartWork, observed: Observed) -> bool:
    """Whether it may go on: a controller that is gone ends no Job."""
    line, spec = observed.snapshot.line, observed.snapshot.spec
    rollout = next(each.thing for each in observed.snapshot.rollouts if uid_of(each.thing) == order.key)
    over = (rollout.get("status") or {}).get("endedAt") is not None or holds(rollout, ConditionType.SUPERSEDED)
    leaving = any(metadata(each).get("deletionTimestamp") for each in (line, rollout))
    elsewhere = spec is not None and (spec.suspend or not in_a_job(order, observed))
    return not (over or leaving or elsewhere)


def _code(seen: WorkSeen) -> int | None:
    """The exit code of a replay that has ended, or of which nothing is to be hoped for; None of one that goes on, or
    is tried again."""
    if seen.state is not WorkState.ENDED and has_ended_it(seen) and seen.standstill is not None:
        logger().warning("replay_stands_still", work=seen.key, message=seen.standstill.trouble)
        return next(code for code, arm in STANDSTILL_CODES.items() if arm == seen.standstill.arm)
    if seen.state is WorkState.RUNNING or (seen.state is WorkState.BROKEN and seen.trouble != TAKEN_OVER):
        return None
    logger().info("replay_over", work=seen.key, state=seen.state.value, message=seen.trouble)
    return {WorkState.ENDED: ENDED, WorkState.REFUSED: REFUSED}.get(seen.state, NOT_NOW)
