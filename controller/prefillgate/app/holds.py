"""Who may scale the workloads of a line: one replay at a time, from before its first change until what was there before
is back. What cannot be put back is tried again as long as we lead, and told; meanwhile no replay scales that line.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prefillgate.app.scaling import NotLeading, Scaling
from prefillgate.evidence.errors import StoreError, StoreFenced
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.errors import Forbidden, KubeError
from prefillgate.kube.objects import Ref
from prefillgate.replay.swapping import SwapFailed

AGAIN = Backoff(1.0, 30.0)
SCALER = "prefillgate-scaler"  # the ClusterRole of manifests/rbac

Trouble = Callable[[str, "str | None"], None]
"""Told what is troubled and how; None: no more."""


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """A replay's right to scale these workloads. `begun`: nobody else has it. `over`: what was there is back, or could
    not be put back at the first try. Its events are of the loop that scales."""

    line: Ref
    wanted: Collection[Ref]
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Holds:
    """Of one term. `hold`, `begin` and `end` are for any thread, all else for the loop that scales."""

    scaling: Scaling
    trouble: Trouble = lambda scope, text: None
    again: Backoff = AGAIN
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _causes: dict[str, str] = field(default_factory=dict)  # why something is not back, by line
    _soon: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    # -- for a replay

    def hold(self, line: Ref, wanted: Collection[Ref]) -> Hold:
        """Ask for it. Whatever comes of that, `end` it."""
        hold = Hold(line, wanted)
        self.scaling.loop.call_soon_threadsafe(lambda: self._start(self._live(hold)))
        return hold

    async def begin(self, hold: Hold) -> None:
        """Wait for its turn. Raises `SwapFailed` where what was scaled before cannot be put back."""
        await self.scaling.here(self._turn_of(hold))

    async def end(self, hold: Hold) -> None:
        """What was there before is put back: waited for whatever interrupts, and once it has failed left to us."""
        self.scaling.loop.call_soon_threadsafe(hold.let_go.set)
        if hold.begun.is_set():
            await _through(self.scaling.here(hold.over.wait()))

    async def _turn_of(self, hold: Hold) -> None:
        while not hold.begun.is_set():
            cause = self._causes.get(hold.line.key)
            if cause is not None:
                raise SwapFailed(f"{hold.line}: nothing is scaled before what was there is back: {cause}")
            if hold.over.is_set():
                raise NotLeading("nothing is scaled any more: the controller ends")
            with suppress(TimeoutError):
                async with asyncio.timeout(self.scaling.poll_seconds):
                    await hold.begun.wait()

    async def _live(self, hold: Hold) -> None:
        try:
            async with self._lock(hold.line):
                if hold.let_go.is_set() or not await self._back(hold.line, keep=hold.wanted):
                    return
                hold.begun.set()
                await hold.let_go.wait()
                await self._back(hold.line, hold.over)
        finally:
            hold.over.set()

    # -- for looks

    def put_back_soon(self, line: Ref) -> None:
        """Put back what stands written of a line, unless a replay holds it, or somebody is at it."""
        if self._lock(line).locked() or line.key in self._soon or self._closing.is_set():
            return
        self._soon.add(line.key)
        self._start(self._at_rest(line))

    async def adopt(self) -> None:
        """Put back what earlier terms left of lines that are gone."""
        failures, rng = 0, random.Random()
        while self.scaling.leads() and not self._closing.is_set():
            try:
                for line in await self.scaling.left_behind():
                    self.put_back_soon(line)
                return
            except StoreFenced:
                return
            except (KubeError, StoreError):  # the looks of the same term tell that it is away
                failures += 1
            await self._pause(failures, rng)

    async def close(self, seconds: float) -> bool:
        """Try nothing again, and wait for what is under way, at most so long; whether it has ended."""
        self._closing.set()
        if not self._tasks:
            return True
        _, left = await asyncio.wait(tuple(self._tasks), timeout=seconds)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        return not left

    async def _at_rest(self, line: Ref) -> None:
        try:
            async with self._lock(line):
                await self._back(line)
        finally:
            self._soon.discard(line.key)

    # --

    def _lock(self, line: Ref) -> asyncio.Lock:
        return self._locks.setdefault(line.key, asyncio.Lock())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.scaling.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _back(self, line: Ref, tried: asyncio.Event | None = None, keep: Collection[Ref] = ()) -> bool:
        """Put back until it is done; whether it is, and not another's, or left to whoever leads next."""
        failures, rng, scope = 0, random.Random(), f"replicas of {line.key}"
        try:
            while self.scaling.leads():
                try:
                    await self.scaling.put_back(line, keep)
                    return True
                except NotLeading:
                    return False
                except Exception as error:  # a fault of our own is no reason to leave production scaled down
                    text = _told(error, line)
                failures += 1
                self._causes[line.key] = text
                self.trouble(scope, text)
                if tried is not None:
                    tried.set()
                if self._closing.is_set():
                    return False
                await self._pause(failures, rng)
            return False
        finally:
            self._causes.pop(line.key, None)
            self.trouble(scope, None)

    async def _pause(self, failures: int, rng: random.Random) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.again.seconds(failures, rng)):
                await self._closing.wait()


def how_to_allow(error: Forbidden, namespace: str | None) -> str:
    """What to do where scaling is forbidden."""
    return (
        f"{error}; to allow it: kubectl create rolebinding -n {namespace} {SCALER} --clusterrole={SCALER} "
        "--serviceaccount=NAMESPACE:NAME, the controller's"
    )


def _told(error: Exception, line: Ref) -> str:
    if isinstance(error, Forbidden):
        return how_to_allow(error, line.namespace)
    return str(error) if isinstance(error, SwapFailed) else f"{type(error).__name__}: {error}"


async def _through(work: Coroutine[Any, Any, Any]) -> None:
    """Wait for it, whatever interrupts; an interruption comes after it."""
    task, interrupted = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        raise asyncio.CancelledError
