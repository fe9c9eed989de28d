"""Serving lines as a person's command reads them: once, or live through the outages of an API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from prefillgate.api.errors import clean
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.errors import Forbidden, Gone, KubeError, Terminal
from prefillgate.kube.objects import (
    EVENTS,
    PROFILE_ROLLOUTS,
    SERVING_LINES,
    Object,
    Query,
    Ref,
    key_of,
    lean,
    metadata,
    name_of,
    namespace_of,
    uid_of,
)
from prefillgate.kube.reflector import Handlers, Pace, Reflector
from prefillgate.report.line_view import LeaseSeen, seconds_of

PACE = Pace(backoff=Backoff(0.25, 5.0))  # a person waits
STUCK = ("CannotGoOn", "InternalError")  # reasons of events
ROLLOUT_WAIT_SECONDS = 3.0  # line and rollout come by two watches


@dataclass(frozen=True, slots=True)
class LineRead:
    """A line and the rollout that its status names; None where it names none, or none of that name is there. `line`
    None: there is only a rollout that names one."""

    line: Object | None
    rollout: Object | None = None
    stuck: str = ""  # what the controller tells of its not going on, by the line's events


async def find_line(kube: Kube, namespace: str, name: str) -> LineRead | None:
    """The line with its current rollout; None where there is no such line. Raises KubeError."""
    line = await kube.find(Ref(SERVING_LINES, name, namespace))
    if line is None:
        return None
    current = current_rollout(line)
    rollout = None if current is None else await kube.find(Ref(PROFILE_ROLLOUTS, current, namespace))
    return LineRead(line, rollout, (await find_stuck(kube, namespace, [line])).get(key_of(line), ""))


async def find_rollout(kube: Kube, namespace: str, name: str) -> LineRead | None:
    """A rollout by its own name, with its line; None where there is no such rollout. Raises KubeError."""
    rollout = await kube.find(Ref(PROFILE_ROLLOUTS, name, namespace))
    if rollout is None:
        return None
    of = _mapping(_mapping(rollout, "spec"), "lineRef").get("name")
    line = None if not of else await kube.find(Ref(SERVING_LINES, str(of), namespace))
    stuck = {} if line is None else await find_stuck(kube, namespace, [line])
    return LineRead(line, rollout, "" if line is None else stuck.get(key_of(line), ""))


async def find_stuck(kube: Kube, namespace: str | None, lines: Iterable[Object]) -> dict[str, str]:
    """By the key of a line, why its controller cannot go on: the newest event of that, where no status of the line was
    written since. Empty where these credentials may not read events. Raises KubeError.

    It stands in events alone: what is refused may be the very status that would say it.
    """
    known = {uid_of(line): line for line in lines}
    found: dict[str, tuple[float, str]] = {}
    with contextlib.suppress(Forbidden):
        for reason in STUCK:
            of = Query(EVENTS, namespace, fields=f"reason={reason},regarding.kind={SERVING_LINES.kind}")
            for each in (await kube.list(of)).items if known else ():
                line = known.get(str(_mapping(each, "regarding").get("uid")))
                at = seconds_of(metadata(each).get("creationTimestamp")) or 0.0
                if line is not None and at >= max(_written_at(line), found.get(key_of(line), (0.0, ""))[0]):
                    found[key_of(line)] = at, f"{each.get('note') or reason} {_since(each)}"
    return {key: clean(said) for key, (_, said) in found.items()}


def _written_at(line: Object) -> float:
    """When the status of a line was changed last, by the API server's clock."""
    entries = metadata(line).get("managedFields") or ()
    times = (seconds_of(each.get("time")) for each in entries if each.get("subresource") == "status")
    return max((at for at in times if at is not None), default=0.0)


def _since(event: Object) -> str:
    at = metadata(event).get("creationTimestamp") or "an unknown time"
    return f"(Told at {at}; the line's status has not changed since, so that what else stands here is from before.)"


async def list_lines(kube: Kube, namespace: str | None) -> list[Object]:
    """The lines of a namespace, or of all, by their key. Raises KubeError."""
    return sorted((await kube.list(Query(SERVING_LINES, namespace))).items, key=key_of)


async def find_lease(kube: Kube, lease: Ref) -> LeaseSeen | None:
    """The controllers' Lease; None where these credentials may not read it. Raises KubeError."""
    title = f"{lease.namespace}/{lease.name}"
    try:
        found = await kube.find(lease)
    except Forbidden:
        return None
    return LeaseSeen(title, found is not None, {} if found is None else _mapping(found, "spec"))


async def places_of(kube: Kube, name: str) -> list[str]:
    """Namespaces with a line of that name, where these credentials may list them all. Raises no KubeError."""
    with contextlib.suppress(KubeError):
        return [str(namespace_of(each)) for each in await list_lines(kube, None) if name_of(each) == name]
    return []


def current_rollout(line: Object) -> str | None:
    """The name of the rollout that a line's status tells of."""
    found = _mapping(line, "status").get("currentRollout")
    return str(found) if found else None


class LineFollower:
    """A line and its rollouts, live. Use as an async context manager.

    `outage` is told of each failure that passes, and None when the API server is heard again.
    """

    def __init__(
        self, kube: Kube, ref: Ref, outage: Callable[[KubeError | None], None], clock: Clock | None = None
    ) -> None:
        self._ref = ref
        self._outage = outage
        self._clock = clock or SystemClock()
        self._changed = asyncio.Event()
        self._broken: KubeError | None = None
        self._away = False
        self._looked = False
        handlers = Handlers(lambda *_: self._changed.set(), lean, self._trouble)
        query = Query(SERVING_LINES, ref.namespace, fields=f"metadata.name={ref.name}")
        self._lines = Reflector(kube, query, handlers, PACE, clock)
        self._rollouts = Reflector(kube, Query(PROFILE_ROLLOUTS, ref.namespace), handlers, PACE, clock)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> LineFollower:
        self._tasks = [asyncio.create_task(each.run()) for each in (self._lines, self._rollouts)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def next(self) -> LineRead | None:
        """The line once something about it may have changed; None where there is none (any more).

        Raises KubeError for what does not pass: forbidden, a kind that is not served.
        """
        while not (self._synced() and (self._changed.is_set() or not self._looked)):
            await self._wait(1.0)
        self._looked = True
        ends = self._clock.monotonic() + ROLLOUT_WAIT_SECONDS
        while True:
            self._changed.clear()
            line = self._lines.get(self._ref.key)
            current = None if line is None else current_rollout(line)
            if line is None or current is None:
                return None if line is None else LineRead(line)
            rollout = self._rollouts.get(f"{self._ref.namespace}/{current}")
            if rollout is not None or self._clock.monotonic() >= ends:
                return LineRead(line, rollout)
            await self._wait(0.2)

    def _synced(self) -> bool:
        return self._lines.synced.is_set() and self._rollouts.synced.is_set()

    async def _wait(self, seconds: float) -> None:
        """Until something changes or that time is over. Raises what does not pass."""
        lacking = [each.synced for each in (self._lines, self._rollouts) if not each.synced.is_set()]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for((lacking or [self._changed])[0].wait(), seconds)
        if self._broken is not None:
            raise self._broken
        if self._away and self._lines.trouble is None and self._rollouts.trouble is None:
            self._away = False
            self._outage(None)

    def _trouble(self, error: KubeError) -> None:
        if isinstance(error, Gone):
            return  # it lists again
        if isinstance(error, Terminal):
            self._broken = error
            self._changed.set()
        elif not self._away:
            self._away = True
            self._outage(error)


def _mapping(thing: Object, field: str) -> dict[str, Any]:
    found = thing.get(field)
    return found if isinstance(found, dict) else {}
