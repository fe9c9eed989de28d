"""Scaling the two workloads of a line whose profiles do not fit at once, and putting back what was there before.

What was there is written down on the ServingLine (annotation `prefillgate.io/scaled`) before anything is scaled, so
that whoever leads next puts it back: also after a kill, also without the evidence store. A replica count that somebody
else has set meanwhile is left as it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from prefillgate.api.kinds.names import SCALED
from prefillgate.app.logs import logger
from prefillgate.app.observe.pods import is_ready
from prefillgate.evidence.book import Book
from prefillgate.evidence.book_rows import Scaled
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Conflict, Forbidden, KubeError, NotFound
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
    uid_of,
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
    """In the loop that owns the client. `leads` says whether we still may write.

    What stands written is in the book too, for a line that is deleted meanwhile, and in memory, for one that somebody
    puts back without its annotations.
    """

    kube: Kube
    leads: Callable[[], bool] = lambda: True
    poll_seconds: float = POLL_SECONDS
    book: Book | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _known: dict[str, tuple[Noted, ...]] = field(default_factory=dict)  # by key of the line
    _booked: set[str] = field(default_factory=set)

    async def here(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it in our loop, for whoever runs in another."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        return await asyncio.wrap_future(future)

    # -- what stands written

    def knows(self, line: Ref) -> bool:
        """Whether this term scaled workloads of a line, or heard of it, and what they had is not back yet."""
        return line.key in self._known

    async def left_behind(self) -> list[Ref]:
        """Lines that earlier terms scaled and that are gone since: no look comes to them. Of a line that is there its
        annotation tells. Raises KubeError, StoreError."""
        found = []
        for row in () if self.book is None else await asyncio.to_thread(self.book.scaled):
            namespace, _, name = row.line.partition("/")
            ref = Ref(SERVING_LINES, name, namespace)
            self._booked.add(ref.key)
            line = await self._listed(ref)
            if line is None or uid_of(line) != row.uid:
                self._known[ref.key] = _read(row.noted)
                found.append(ref)
            elif annotation(line, SCALED) is None:  # that it was put back could not be written into the book
                await self._unbook(ref)
        return found

    async def note(self, line: Ref, wanted: Sequence[Ref]) -> tuple[Noted, ...]:
        """Write down what these workloads have now, unless that stands written already; what stands there then.

        Raises KubeError, StoreError, `SwapFailed`.
        """
        for _ in range(ATTEMPTS):
            found = await self.kube.get(line)
            known = {(each.kind, each.name): each for each in self._noted(line, found)}
            for ref in wanted:
                if (ref.kind.kind, ref.name) not in known:
                    scale = await self.scale(ref)
                    known[(ref.kind.kind, ref.name)] = Noted(ref.kind.kind, ref.name, scale.replicas)
            noted = tuple(known.values())
            if noted == noted_on(found) and (self.book is None or line.key in self._booked):
                return noted
            with suppress(Conflict):
                await self._write(line, found, noted)
                return noted
        raise SwapFailed(f"{line}: what is scaled could not be written down, somebody else changes it again and again")

    def _noted(self, line: Ref, found: Object | None) -> tuple[Noted, ...]:
        """What stands on the line, and what we know beside that."""
        written = () if found is None else noted_on(found)
        there = {(each.kind, each.name) for each in written}
        return *written, *(each for each in self._known.get(line.key, ()) if (each.kind, each.name) not in there)

    async def _listed(self, ref: Ref) -> Object | None:
        """An object as it is, by a right that lasts where its namespace ends; None where it is gone."""
        found = (await self.kube.list(Query(ref.kind, ref.namespace, fields=f"metadata.name={ref.name}"))).items
        return found[0] if found else None

    async def _write(self, line: Ref, found: Object, noted: tuple[Noted, ...]) -> None:
        self._check_leading()
        value = json.dumps([_told(each) for each in noted]) if noted else None
        if self.book is not None and value is not None:
            await asyncio.to_thread(self.book.keep_scaled, Scaled(line.key, uid_of(found), value))
            self._booked.add(line.key)
            self._check_leading()
        patch = {"metadata": {"annotations": {SCALED: value}, "resourceVersion": version_of(found)}}
        await self.kube.merge_patch(line, patch)
        if noted:
            self._known[line.key] = noted

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
        """Scale a workload of the line, noted before. Raises KubeError, StoreError, `SwapFailed`."""
        for _ in range(ATTEMPTS):
            found = await self.kube.get(line)
            noted = noted_on(found)
            mine = next((each for each in noted if (each.kind, each.name) == (ref.kind.kind, ref.name)), None)
            if mine is None:
                raise SwapFailed(f"{line}: what {ref} had before is not written down")
            present = (await self.scale(ref)).replicas
            if not mine.asked_for(present):
                raise SwapFailed(f"{ref} was scaled to {present} by somebody else")
            more = replace(mine, ours=(*mine.ours, replicas))
            with suppress(Conflict):
                if not mine.asked_for(replicas):
                    await self._write(line, found, tuple(more if each is mine else each for each in noted))
                return await self._scaled(ref, replicas)
        raise SwapFailed(f"{line}: to what {ref} is scaled could not be written down, somebody else changes the line")

    async def _scaled(self, ref: Ref, replicas: int) -> None:
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

    async def put_back(self, line: Ref, keep: Collection[Ref] = ()) -> None:
        """Put back what stands written of a line, and forget it; nothing where it is of the workloads to keep alone.

        One that cannot be put back keeps no other from it. Raises KubeError, StoreError, `SwapFailed`, `NotLeading`.
        """
        found = await self._listed(line)
        noted = self._noted(line, found)
        refs = {each: Ref(KINDS[each.kind], each.name, line.namespace) for each in noted if each.kind in KINDS}
        if keep and set(refs.values()) <= set(keep):
            return
        if noted:
            self._known[line.key] = noted  # the line may be deleted while this fails
        if found is None and noted:
            logger().warning("scaled_line_gone", line=line.key, message="its workloads get back what they had")
        failed: list[KubeError] = []
        for rising in (False, True):  # first whoever is to make room
            for each, ref in refs.items():
                try:
                    await self._one_back(ref, each, rising)
                except KubeError as error:
                    failed.append(error)
        if failed:
            raise failed[0]
        await self._forget(line)

    async def _one_back(self, ref: Ref, noted: Noted, rising: bool) -> None:
        present = await self._still_ours(ref, noted)
        if present is None or present == noted.before or (present < noted.before) is not rising:
            return
        await self._scaled(ref, noted.before)
        if not rising:
            with suppress(SwapFailed):  # production comes first
                await self.until_gone(ref, noted.before, PUT_BACK_SECONDS)

    async def _still_ours(self, ref: Ref, noted: Noted) -> int | None:
        """The present replicas where they are what we set; None where they are another's, or the workload is gone."""
        try:
            present = (await self.scale(ref)).replicas
        except NotFound:
            return None
        except Forbidden:
            if await self._listed(ref) is None:  # it went with its namespace, and so did our right
                return None
            raise
        return present if noted.asked_for(present) else None

    async def _forget(self, line: Ref) -> None:
        for _ in range(ATTEMPTS):
            found = await self._listed(line)
            if found is None or annotation(found, SCALED) is None:
                break
            with suppress(Conflict, NotFound):
                await self._write(line, found, ())
                break
        else:
            raise SwapFailed(f"{line}: that all is back could not be written down, somebody else changes the line")
        self._known.pop(line.key, None)
        await self._unbook(line)

    async def _unbook(self, line: Ref) -> None:
        if self.book is not None and line.key in self._booked:
            await asyncio.to_thread(self.book.end_scaled, line.key)
            self._booked.discard(line.key)


def line_ref(line: Mapping[str, Any]) -> Ref:
    """The ServingLine itself."""
    found = metadata(dict(line))
    return Ref(SERVING_LINES, str(found.get("name", "")), str(found.get("namespace", "")))


def noted_on(line: Mapping[str, Any]) -> tuple[Noted, ...]:
    """What stands written on a line; nothing where that cannot be read."""
    return _read(annotation(line, SCALED) or "[]")


def _read(text: str) -> tuple[Noted, ...]:
    try:
        rows = json.loads(text)
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
