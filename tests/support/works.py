"""Replays of a controller for tests: orders and looks at a line made by hand, its servers real ones over sockets."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prefillgate.api.access import Access
from prefillgate.api.kinds.profile_rollout import ProfileRolloutSpec
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.api.policy import load_policy
from prefillgate.api.store_address import StoreAddress
from prefillgate.app.carrying import WorkSettings
from prefillgate.app.seams import Leading, Observed, Way
from prefillgate.app.work import ThreadWorks
from prefillgate.evidence import Fence
from prefillgate.evidence.book import open_book
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import (
    ArmSeen,
    BookSeen,
    LineSnapshot,
    RolloutSeen,
    ServerSeen,
    Slot,
    WorkKind,
    WorkSeen,
)
from prefillgate.replay.clock import Clock, SystemClock
from prefillgate.replay.replay_set import load_replay_set
from tests.support.runs import HASTY, Bench, bench
from tests.support.simulated import SimulatedServer

OLD, NEW = "sha256:" + "0" * 64, "sha256:" + "1" * 64
LINE_UID, ROLLOUT_UID = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"
LINE: dict[str, Any] = {
    "baseline": {
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "endpoint": {"pods": {"port": 8080}},
    },
    "replaySetRef": {"name": "prompts"},
}
PROMOTED = "promote"
WAIT_SECONDS = 60
LOOK_SECONDS = 0.01


def server(url: str, epoch: str | None = "uid/containerd://c", ready: bool = True, name: str = "pod") -> ServerSeen:
    """A server as a look at its pod tells of it."""
    return ServerSeen(name, url, ready, epoch)


@dataclass
class Looks:
    """What is seen of one line. Change a field, then `observed` tells of it."""

    work: Bench
    baseline: tuple[ServerSeen, ...] = ()
    candidate: tuple[ServerSeen, ...] = ()
    spec: dict[str, Any] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    rollout: dict[str, Any] = field(default_factory=dict)
    rollouts: tuple[str, ...] = (ROLLOUT_UID,)
    status: dict[str, Any] = field(default_factory=dict)
    book: BookSeen = field(default_factory=BookSeen)
    name: str = "llm"
    uid: str = LINE_UID

    def observed(self) -> Observed:
        spec = ServingLineSpec.model_validate(copy.deepcopy(LINE) | self.spec)
        rollout = ProfileRolloutSpec.model_validate({"lineRef": {"name": self.name}, **self.rollout})
        snapshot = LineSnapshot(
            now=0.0,
            line={"metadata": {"namespace": "prod", "name": self.name, "uid": self.uid}, "status": self.status},
            spec=spec,
            baseline=ArmSeen(OLD, self.baseline),
            candidate=ArmSeen(NEW, self.candidate),
            book=self.book,
            rollouts=tuple(
                RolloutSeen({"metadata": {"uid": uid, "name": f"r{uid}"}}, rollout) for uid in self.rollouts
            ),
        )
        ways = {OLD: Way(Slot.BASELINE, self.access), NEW: Way(Slot.CANDIDATE, self.access)}
        return Observed(snapshot, load_policy(self.work.policy_path), load_replay_set(str(self.work.set_path)), ways)


def looks_of(folder: Path, baseline: SimulatedServer, candidate: SimulatedServer, **policy: Any) -> Looks:
    """A line of these two servers, its set and its policy in `folder`."""
    return Looks(bench(folder, **policy), (server(baseline.url, "b/c"),), (server(candidate.url, "n/c"),))


def order(key: str = ROLLOUT_UID, seed: int | None = 5, **more: Any) -> StartWork:
    """The order to replay a rollout."""
    return StartWork(key, WorkKind.JUDGE, OLD, NEW, rollout=key, seed=seed, **more)


class Ahead(SystemClock):
    """The machine's clock, put forward when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return super().now() + self.seconds


@dataclass
class Room:
    """Works of one term, and the lines that they told of."""

    works: ThreadWorks
    leading: Leading
    told: list[str]

    def one(self, key: str = ROLLOUT_UID, line: str = LINE_UID) -> WorkSeen:
        """The work of that key."""
        (found,) = [seen for seen in self.works.seen(line) if seen.key == key]
        return found

    async def until(self, true: Callable[[WorkSeen], bool], key: str = ROLLOUT_UID, line: str = LINE_UID) -> WorkSeen:
        """The work once it is so. It is looked at now and then: not every step is told."""
        for _ in range(int(WAIT_SECONDS / LOOK_SECONDS)):
            if true(seen := self.one(key, line)):
                return seen
            await asyncio.sleep(LOOK_SECONDS)
        raise AssertionError(f"it never came to that: {self.one(key, line)}")


@asynccontextmanager
async def room(store: StoreAddress, token: int = 1, clock: Clock | None = None, **more: Any) -> AsyncIterator[Room]:
    """A term of leadership that ends with the block, its book beside the stores."""
    book = open_book(store / "book.db" if isinstance(store, Path) else store, Fence(token))
    try:
        leading, told = Leading(book, Fence(token)), list[str]()
        settings = WorkSettings(store, times=replace(HASTY, **more.pop("times", {})), **more)
        works = ThreadWorks(leading, settings, told.append, clock)
        yield Room(works, leading, told)
        assert await works.close(WAIT_SECONDS)
    finally:
        book.close()
