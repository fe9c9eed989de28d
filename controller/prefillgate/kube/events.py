"""Events for people (`kubectl describe`, `kubectl events`): events.k8s.io/v1, one a transition, repeats as a series."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import OrderedDict
from dataclasses import dataclass

from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock, SystemClock, micro_time
from prefillgate.kube.errors import AlreadyExists, NotFound
from prefillgate.kube.objects import EVENTS, Kind, Object, Ref, name_of, namespace_of, uid_of, version_of

CONTROLLER = "prefillgate.io/controller"
SERIES_SECONDS = 360.0  # without a repeat for this long it is a new event, as the API's own convention has it
REMEMBERED = 1024
LONGEST_NOTE_BYTES = 1024
LONGEST_WORD = 128
NORMAL = "Normal"
WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Happening:
    """What happened to an object: `reason` and `action` CamelCase words, `note` the sentence.

    `once` is a key of the transition: an object gets one event of that key, whoever emits it and however often. Without
    it every call is a happening of its own, and equal ones soon after each other become a series.
    """

    kind: Kind
    obj: Object
    type: str
    reason: str
    action: str
    note: str
    once: str = ""


@dataclass(slots=True)
class _Series:
    ref: Ref
    count: int
    last: float


class Recorder:
    """Writes events. `instance` names this process. Raises KubeError: events are worth a retry, not a failure."""

    def __init__(self, kube: Kube, instance: str, clock: Clock | None = None) -> None:
        self._kube = kube
        self._instance = instance[:LONGEST_WORD]
        self._clock = clock or SystemClock()
        self._series: OrderedDict[str, _Series] = OrderedDict()

    async def emit(self, happened: Happening) -> bool:
        """Whether something was written: False for one told before, and for repeats that the series tells later.

        A series is written at its 2nd, 4th, 8th ... time, so that what repeats for ever costs ever less.
        """
        if happened.once:
            return await self._create(happened, _digest(uid_of(happened.obj), happened.once))
        what = _digest(uid_of(happened.obj), happened.type, happened.reason, happened.action, happened.note)
        known = self._series.get(what)
        now = self._clock.monotonic()
        if known is not None and now - known.last < SERIES_SECONDS:
            known.last = now
            known.count += 1
            if known.count & (known.count - 1):
                return False
            if await self._repeat(known):
                return True
        digest = _digest(what, self._instance, uuid.uuid4().hex)
        await self._create(happened, digest)
        self._series[what] = _Series(_ref(happened, digest), 1, now)
        self._series.move_to_end(what)
        while len(self._series) > REMEMBERED:
            self._series.popitem(last=False)
        return True

    async def _create(self, happened: Happening, digest: str) -> bool:
        ref = _ref(happened, digest)
        body: Object = {
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "eventTime": micro_time(self._clock.now()),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "type": happened.type,
            "reason": happened.reason[:LONGEST_WORD],
            "action": happened.action[:LONGEST_WORD],
            "note": _cut(happened.note),
            "regarding": _regarding(happened),
        }
        try:
            await self._kube.create(EVENTS, body)
        except AlreadyExists:
            return False
        return True

    async def _repeat(self, known: _Series) -> bool:
        """Whether the series was written: not where its event has expired meanwhile."""
        series = {"count": known.count, "lastObservedTime": micro_time(self._clock.now())}
        try:
            await self._kube.merge_patch(known.ref, {"series": series})
        except NotFound:
            return False
        return True


def _regarding(happened: Happening) -> Object:
    found = {
        "apiVersion": happened.kind.api_version,
        "kind": happened.kind.kind,
        "namespace": namespace_of(happened.obj),
        "name": name_of(happened.obj),
        "uid": uid_of(happened.obj),
        "resourceVersion": version_of(happened.obj),
    }
    return {key: value for key, value in found.items() if value}


def _ref(happened: Happening, digest: str) -> Ref:
    """The name is the object's and 80 bits of what makes it this event: two of them are never the same."""
    name = name_of(happened.obj)[:200].rstrip(".-")
    return Ref(EVENTS, f"{name}.{digest[:20]}", namespace_of(happened.obj) or "default")


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode("utf-8")).hexdigest()


def _cut(note: str) -> str:
    """At most what the API server takes, cut between characters."""
    raw = note.encode("utf-8", "replace")
    if len(raw) <= LONGEST_NOTE_BYTES:
        return raw.decode("utf-8")
    return raw[: LONGEST_NOTE_BYTES - 3].decode("utf-8", "ignore") + "…"
