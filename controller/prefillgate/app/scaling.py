"""Scaling the two workloads of a line whose profiles do not fit at once, and putting back what was there before.

What was there is written down on the ServingLine (annotation `prefillgate.io/scaled`) before anything is scaled, so
that whoever leads next puts it back: also after a kill, also without the evidence store. A replica count that somebody
else has set meanwhile is left as it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from prefillgate.api.kinds.names import SCALED
from prefillgate.app.observe.pods import is_ready
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Conflict, KubeError, NotFound
from prefillgate.kube.objects import (
    DEPLOYMENTS,
    PODS,
    SERVING_LINES,
    STATEFUL_SETS,
    Kind,
    Object,
    Query,
    Ref,
    annotation,
    metadata,
    version_of,
)
from prefillgate.replay.swapping import SwapFailed

T = TypeVar("T")
KINDS: Mapping[str, Kind] = {kind.kind: kind for kind in (DEPLOYMENTS, STATEFUL_SETS)}
POLL_SECONDS = 0.5
GONE_SECONDS = 600.0  # for pods to end
READY_SECONDS = 3600.0  # for a server to load its model; the window ends it sooner
PUT_BACK_SECONDS = 60.0  # for pods to end before the other workload gets its place back
ATTEMPTS = 5  # at writing to an object that somebody else writes to as well


class NotLeading(SwapFailed):
    """Another controller leads now: it puts back what stands written."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A workload of a line that was scaled: how many replicas it had, and every number that we set since."""

    kind: str
    name: str
    before: int
    ours: tuple[int, ...] = ()

    def asked_for(self, replicas: int) -> bool:
        """Whether this count is one of ours, and nobody else's."""
        return replicas == self.before or replicas in self.ours


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a workload as read."""

    replicas: int
    selector: str


@dataclass(slots=True)
class Scaling:
    """In the loop that owns the client. `leads` says whether we still may write."""

    kube: Kube
    leads: Callable[[], bool] = lambda: True
    poll_seconds: float = POLL_SECONDS
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _going_on: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def here(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it in our loop, for whoever runs in another."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(future)

    # -- what stands written

    async def noted(self, line: Ref) -> tuple[Noted, ...]:
        """The workloads of a line that are scaled; none where nothing is."""
        found = await self.kube.find(line)
        return () if found is None else noted_on(found)

    async def note(self, line: Ref, wanted: Sequence[Ref]) -> tuple[Noted, ...]:
        """Write down what these workloads have now, unless that stands written already; what stands there then."""
        for _ in range(ATTEMPTS):
            found = await self.kube.get(line)
            known = {(each.kind, each.name): each for each in noted_on(found)}
            if all((ref.kind.kind, ref.name) in known for ref in wanted):
                return tuple(known.values())
            for ref in wanted:
                if (ref.kind.kind, ref.name) not in known:
                    scale = await self.scale(ref)
                    known[(ref.kind.kind, ref.name)] = Noted(ref.kind.kind, ref.name, scale.replicas)
            with suppress(Conflict):
                await self._write(line, found, tuple(known.values()))
        raise SwapFailed(f"{line}: what is scaled could not be written down, somebody else changes it again and again")

    async def _write(self, line: Ref, found: Object, noted: tuple[Noted, ...]) -> None:
        self._check_leading()
        value = json.dumps([_told(each) for each in noted]) if noted else None
        patch = {"metadata": {"annotations": {SCALED: value}, "resourceVersion": version_of(found)}}
        await self.kube.merge_patch(line, patch)

    # -- scaling

    async def scale(self, ref: Ref) -> Scale:
        """How many replicas a workload is to have, and how its pods are found."""
        found = await self.kube.get(ref, "scale")
        spec, status = found.get("spec") or {}, found.get("status") or {}
        return Scale(int(spec.get("replicas") or 0), str(status.get("selector") or ""))

    async def pods(self, ref: Ref) -> list[Object]:
        """The pods of a workload, those that are ending too."""
        scale = await self.scale(ref)
        if not scale.selector:
            return []
        return (await self.kube.list(Query(PODS, ref.namespace, labels=scale.selector))).items

    async def set(self, line: Ref, ref: Ref, replicas: int) -> None:
        """Scale a workload of the line, noted before."""
        for _ in range(ATTEMPTS):
            found = await self.kube.get(line)
            noted = noted_on(found)
            mine = next((each for each in noted if (each.kind, each.name) == (ref.kind.kind, ref.name)), None)
            if mine is None:
                raise SwapFailed(f"{line}: what {ref} had before is not written down")
            present = (await self.scale(ref)).replicas
            if not mine.asked_for(present):
                raise SwapFailed(f"{ref} was scaled to {present} by somebody else")
            if mine.asked_for(replicas):
                break
            more = replace(mine, ours=(*mine.ours, replicas))
            with suppress(Conflict):
                await self._write(line, found, tuple(more if each is mine else each for each in noted))
        self._check_leading()
        await self.kube.merge_patch(ref, {"spec": {"replicas": replicas}}, "scale")

    async def until_gone(self, ref: Ref, most: int, seconds: float = GONE_SECONDS) -> None:
        """Wait until no more than so many pods of a workload are there, ending ones counted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    if sum(map(_holds_its_place, await self.pods(ref))) <= most:
                        return
                    await asyncio.sleep(self.poll_seconds)
        raise SwapFailed(f"{ref}: its pods did not end within {seconds:.0f} s")

    async def until_ready(self, ref: Ref, replicas: int, wanted: Callable[[Object], bool]) -> Object:
        """The newest Ready pod of a workload that is wanted, once there is one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                while True:
                    if (present := (await self.scale(ref)).replicas) != replicas:
                        raise SwapFailed(f"{ref} was scaled to {present} by somebody else")
                    found = newest_ready(await self.pods(ref))
                    if found is not None and wanted(found):
                        return found
                    await asyncio.sleep(self.poll_seconds)
        raise SwapFailed(f"{ref}: no pod became Ready within {READY_SECONDS:.0f} s")

    def _check_leading(self) -> None:
        if not self.leads():
            raise NotLeading("another controller leads now")

    # -- putting back

    def put_back_soon(self, line: Ref) -> asyncio.Task[None]:
        """Put back what stands written of a line; one at a time. Call it in our loop."""
        running = self._going_on.get(line.key)
        if running is None or running.done():
            running = self._going_on[line.key] = self._loop.create_task(self._put_back_quietly(line))
        return running

    async def put_back(self, line: Ref) -> None:
        """Put back what stands written of a line. Raises KubeError, `NotLeading`."""
        lock = self._locks.setdefault(line.key, asyncio.Lock())
        async with lock:
            noted = await self.noted(line)
            refs = {each: Ref(KINDS[each.kind], each.name, line.namespace) for each in noted if each.kind in KINDS}
            wanted = {each: await self._still_ours(ref, each) for each, ref in refs.items()}
            for each, ref in refs.items():
                present = wanted[each]
                if present is not None and present > each.before:
                    await self._back(ref, each.before)
                    with suppress(SwapFailed):  # production comes first
                        await self.until_gone(ref, each.before, PUT_BACK_SECONDS)
            for each, ref in refs.items():
                present = wanted[each]
                if present is not None and present < each.before:
                    await self._back(ref, each.before)
            await self._forget(line)

    async def _still_ours(self, ref: Ref, noted: Noted) -> int | None:
        """The present replicas where they are what we set; None where they are another's, or the workload is gone."""
        try:
            present = (await self.scale(ref)).replicas
        except NotFound:
            return None
        return present if noted.asked_for(present) else None

    async def _back(self, ref: Ref, replicas: int) -> None:
        self._check_leading()
        await self.kube.merge_patch(ref, {"spec": {"replicas": replicas}}, "scale")

    async def _forget(self, line: Ref) -> None:
        for _ in range(ATTEMPTS):
            found = await self.kube.find(line)
            if found is None or annotation(found, SCALED) is None:
                return
            with suppress(Conflict):
                await self._write(line, found, ())

    async def _put_back_quietly(self, line: Ref) -> None:
        """What could not be put back now is tried at the next look."""
        with suppress(KubeError, SwapFailed):
            await self.put_back(line)


def line_ref(line: Mapping[str, Any]) -> Ref:
    """The ServingLine itself."""
    found = metadata(dict(line))
    return Ref(SERVING_LINES, str(found.get("name", "")), str(found.get("namespace", "")))


def noted_on(line: Mapping[str, Any]) -> tuple[Noted, ...]:
    """What stands written on a line; nothing where that cannot be read."""
    try:
        rows = json.loads(annotation(line, SCALED) or "[]")
        return tuple(
            Noted(str(row["kind"]), str(row["name"]), int(row["before"]), tuple(map(int, row["ours"]))) for row in rows
        )
    except (ValueError, TypeError, KeyError):
        return ()


def newest_ready(pods: Sequence[Object]) -> Object | None:
    """The pod that was made last of those that are Ready."""
    ready = [pod for pod in pods if is_ready(pod)]
    return max(ready, key=_made_at, default=None)


def _holds_its_place(pod: Object) -> bool:
    """Whether it still has what it runs on: until it is gone, or has ended."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _made_at(pod: Object) -> tuple[str, str]:
    found = metadata(pod)
    return str(found.get("creationTimestamp", "")), str(found.get("name", ""))


def _told(noted: Noted) -> dict[str, Any]:
    return {"kind": noted.kind, "name": noted.name, "before": noted.before, "ours": list(noted.ours)}
