"""Stand-ins for what looks at lines and for what replays, where a test is about the process around them.

`Sight` keeps real reflectors of lines and rollouts; what a look finds and what is planned is the test's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.kinds.line_status import ServingLineStatus
from prefillgate.app.make import makers
from prefillgate.app.process import Makers, Process, Surroundings
from prefillgate.app.seams import Changed, Leading, Observed, StatusWanted, Touched, Works
from prefillgate.app.settings import Settings, read_settings
from prefillgate.evidence.book_rows import Fate, Outcome
from prefillgate.kube.errors import KubeError
from prefillgate.kube.objects import (
    CONTROLLER_REVISIONS,
    PROFILE_ROLLOUTS,
    PROMOTION_POLICIES,
    REPLAY_SETS,
    SERVING_LINES,
    Kind,
    Object,
    Query,
    name_of,
    namespace_of,
)
from prefillgate.kube.reflector import Handlers, Pace, Reflector
from prefillgate.reconcile.effects import KeepFate, Plan, RecordOverride, StartWork
from prefillgate.reconcile.snapshot import LineSnapshot, RolloutSeen, WorkSeen
from tests.support.fake_api import FakeApi, Resource

OURS = (SERVING_LINES, PROFILE_ROLLOUTS, PROMOTION_POLICIES, REPLAY_SETS)
EAGER = {"lease_retry_seconds": "0.1"}  # the rest as usual: a machine that is busy must not lose its Lease


def serve_ours(fake: FakeApi) -> None:
    """Let the fake API server have our kinds."""
    for kind in (*OURS, CONTROLLER_REVISIONS):
        fake.serve(Resource(kind))


def line(name: str, space: str = "default", **spec: Any) -> Object:
    """A ServingLine as somebody would create it."""
    return {"metadata": {"name": name, "namespace": space}, "spec": spec}


def ends(fake: FakeApi, space: str = "default") -> None:
    """Let a namespace be on its way out."""
    fake.store.objects["namespaces", "", space]["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"


def settings(folder: Any, **flags: str) -> Settings:
    """As the command reads them, with a Lease that is soon asked for again, and any free port."""
    usual = {"namespace": "default", "store": str(folder / "store"), "listen": "127.0.0.1:0", **EAGER}
    secret = {"PREFILLGATE_SEAL_KEY": flags.pop("seal_key")} if "seal_key" in flags else {}
    return read_settings({**usual, **flags}, secret)


@dataclass
class Sight:
    """An observer of lines and rollouts alone. `hook(key)` is awaited in each look."""

    around: Surroundings
    looks: list[str] = field(default_factory=list)
    hook: Callable[[str], Any] | None = None
    changes: Callable[[LineSnapshot], LineSnapshot] = lambda seen: seen
    instead: Callable[[Touched], Any] | None = None

    def __post_init__(self) -> None:
        self._touched: Touched = lambda kind, key: None
        self._kept = {kind.kind: self._reflector(kind) for kind in OURS}

    def _reflector(self, kind: Kind) -> Reflector:
        def changed(key: str, old: Object | None, new: Object | None) -> None:
            self._touched(kind.kind, key)

        pace = Pace(watch_seconds=30)
        return Reflector(self.around.kube, Query(kind), Handlers(changed, trouble=self._trouble), pace)

    def _trouble(self, error: KubeError) -> None:
        self.around.troubles.note("API server", str(error))

    async def run(self, touched: Touched) -> None:
        if self.instead is not None:
            await self.instead(touched)
        self._touched = touched
        await asyncio.gather(*(each.run() for each in self._kept.values()))

    def synced(self) -> bool:
        return all(each.synced.is_set() for each in self._kept.values())

    def keys(self, kind: str) -> tuple[str, ...]:
        return tuple(f"{namespace_of(each)}/{name_of(each)}" for each in self._kept[kind])

    async def look(self, key: str, works: Works, leading: Leading) -> Observed | None:
        self.looks.append(key)
        if self.hook is not None:
            await self.hook(key)
        found = self._kept["ServingLine"].get(key)
        if found is None:
            return None
        own = [each for each in self._kept["ProfileRollout"] if namespace_of(each) == namespace_of(found)]
        seen = works.seen(str(found["metadata"]["uid"]))
        rollouts = tuple(RolloutSeen(each, None) for each in own)
        snapshot = LineSnapshot(self.around.clock.now(), found, None, rollouts=rollouts, works=seen)
        return Observed(self.changes(snapshot))

    async def look_policy(self, key: str) -> StatusWanted | None:
        self.looks.append(f"PromotionPolicy {key}")
        found = self._kept["PromotionPolicy"].get(key)
        return None if found is None else StatusWanted(PROMOTION_POLICIES, found, {"observedGeneration": 1})

    async def look_replay_set(self, key: str) -> StatusWanted | None:
        self.looks.append(f"ReplaySet {key}")
        found = self._kept["ReplaySet"].get(key)
        return None if found is None else StatusWanted(REPLAY_SETS, found, {"cases": 3})

    async def look_orphans(self, key: str) -> tuple[StatusWanted, ...]:
        return ()

    def lines_of(self, kind: str, key: str) -> tuple[str, ...]:
        return self.keys("ServingLine") if kind == "ProfileRollout" else ()


@dataclass
class Shelf:
    """Works that replay nothing: what a test puts here is what is seen."""

    leading: Leading
    changed: Changed
    works: dict[str, list[WorkSeen]] = field(default_factory=dict)
    started: list[StartWork] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    stopped: list[tuple[str, str]] = field(default_factory=list)
    stopped_of: list[str] = field(default_factory=list)  # uids of the lines
    recorded: list[RecordOverride] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    closing: bool = False
    closed: bool = False
    ends: bool = True
    seconds: float | None = None
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_end.set()

    def seen(self, line_uid: str) -> tuple[WorkSeen, ...]:
        return tuple(self.works.get(line_uid, ()))

    def start(self, order: StartWork, observed: Observed) -> None:
        self.started.append(order)

    def stop(self, line_uid: str, key: str, why: str) -> None:
        self.stopped.append((key, why))
        self.stopped_of.append(line_uid)

    def record(self, order: RecordOverride, observed: Observed) -> None:
        self.recorded.append(order)

    def looked(self, observed: Observed) -> None:
        self.lines.append(str(observed.snapshot.line["metadata"]["name"]))

    def present_epoch(self, url: str, epoch: str | None) -> None:
        pass

    def gone(self, line_uid: str) -> None:
        self.forgotten.append(line_uid)

    async def close(self, seconds: float) -> bool:
        self.closing, self.seconds = True, seconds
        await self.may_end.wait()
        self.closed = True
        return self.ends


def a_fate(snapshot: LineSnapshot) -> KeepFate:
    """Something to be kept in the book, of that line."""
    name = f"{snapshot.line['metadata']['namespace']}/{snapshot.line['metadata']['name']}"
    return KeepFate(Fate(name, "sha256:x", Outcome.REJECTED, "chat-1", "RegressionConfirmed", 1.0))


def generation_seen(snapshot: LineSnapshot) -> Plan:
    """The simplest plan: the status says which generation was looked at."""
    return Plan(ServingLineStatus(observedGeneration=snapshot.line["metadata"].get("generation")))


@dataclass
class Controller:
    """A process in this one, with stand-ins, over a real socket to an API server."""

    settings: Settings
    plan: Callable[[LineSnapshot], Plan] = generation_seen
    sights: list[Sight] = field(default_factory=list)
    shelves: list[Shelf] = field(default_factory=list)
    hook: Callable[[str], Any] | None = None
    snapshot: Callable[[LineSnapshot], LineSnapshot] = lambda seen: seen
    observing: Callable[[Touched], Any] | None = None
    real: bool = False  # made as the command does it, without stand-ins

    def __post_init__(self) -> None:
        parts = makers() if self.real else Makers(self._observer, self._works, self._plan)
        self.process = Process(self.settings, parts)
        self.task: asyncio.Task[bool] | None = None

    def _plan(self, snapshot: LineSnapshot) -> Plan:
        return self.plan(snapshot)

    def _changed(self, seen: LineSnapshot) -> LineSnapshot:
        return self.snapshot(seen)

    def _observer(self, around: Surroundings) -> Sight:
        self.sights.append(Sight(around, [], self.hook, self._changed, self.observing))
        return self.sights[-1]

    def _works(self, around: Surroundings, leading: Leading, changed: Changed) -> Shelf:
        self.shelves.append(Shelf(leading, changed))
        return self.shelves[-1]

    def start(self) -> Controller:
        self.task = asyncio.create_task(self.process.run())
        return self

    async def stop(self) -> bool:
        """As SIGTERM does; whether everything ended."""
        assert self.task is not None
        self.process.stop.set()
        return await self.task
