"""An observer of a cluster for tests: it runs, a test looks through it, and what it told can be asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from prefillgate.app.observe import ClusterObserver, ObserveSettings
from prefillgate.app.seams import Leading, Observed
from prefillgate.evidence.book import Book, open_book
from prefillgate.evidence.fence import Fence
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import KubeError
from prefillgate.kube.objects import Object
from prefillgate.reconcile.effects import RecordOverride, StartWork
from prefillgate.reconcile.snapshot import LineSnapshot, WorkSeen
from tests.support.manual_clock import until

T = TypeVar("T")
SEAL_KEY = b"the key of these tests"
PATIENCE_SECONDS = 30.0


@dataclass
class Noted:
    """Works that nothing is asked of but to hear of lives."""

    lives: list[tuple[str, str | None]] = field(default_factory=list)

    def seen(self, line_uid: str) -> tuple[WorkSeen, ...]:
        return ()

    def start(self, order: StartWork, observed: Observed) -> None:
        raise AssertionError("a look starts nothing")

    def stop(self, line_uid: str, key: str, why: str) -> None:
        raise AssertionError("a look stops nothing")

    def record(self, order: RecordOverride, observed: Observed) -> None:
        raise AssertionError("a look records nothing")

    def present_epoch(self, url: str, epoch: str | None) -> None:
        self.lives.append((url, epoch))

    async def close(self, seconds: float) -> bool:
        return True

    def life(self, url: str) -> str | None:
        """The last life told of a server."""
        return dict(self.lives)[url]


@dataclass
class Eyes:
    """An observer that runs."""

    observer: ClusterObserver
    book: Book
    works: Noted = field(default_factory=Noted)
    touched: list[tuple[str, str]] = field(default_factory=list)
    unseen: list[tuple[str, str]] = field(default_factory=list)
    refused: list[tuple[str, KubeError]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    async def look(self, key: str) -> Observed | None:
        return await self.observer.look(key, self.works, Leading(self.book, Fence(1)))

    async def seen(self, key: str) -> LineSnapshot:
        """A line that is there."""
        observed = await self.look(key)
        assert observed is not None
        return observed.snapshot

    async def until(self, key: str, is_so: Callable[[LineSnapshot], T | None]) -> T:
        """Look whenever the observer asks for it, until something is so, and return what that was.

        The first look is asked for too: a change that nobody tells of makes this fail.
        """
        self.unseen = [*self.touched]
        last: object = "no look"
        until_at = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while asyncio.get_running_loop().time() < until_at:
            if self.task is not None and self.task.done():
                self.task.result()
            asked, self.unseen = self.unseen, []
            if ("ServingLine", key) not in asked:
                await asyncio.sleep(0.01)
                continue
            try:
                observed = await self.look(key)
            except KubeError as error:  # the queue would try again
                last = error
                await asyncio.sleep(0.1)
                self.unseen += asked
                continue
            last = None if observed is None else observed.snapshot
            if observed is not None and (found := is_so(observed.snapshot)):
                return found
        raise AssertionError(f"{key}: it never came to that, or nobody told of it; the last look: {last}")

    def told(self, kind: str, key: str) -> None:
        """The observer says that something changed."""
        self.touched.append((kind, key))
        self.unseen.append((kind, key))


@contextlib.asynccontextmanager
async def looking(kube: Kube, folder: Path, **settings: Any) -> AsyncIterator[Eyes]:
    """An observer of that cluster, with a book of its own."""
    with open_book(folder / "book.db", Fence(1)) as book:
        refused: list[tuple[str, KubeError]] = []
        given = ObserveSettings(**{"seal_key": SEAL_KEY, **settings})
        observer = ClusterObserver(kube, given, trouble=lambda kind, error: refused.append((kind, error)))
        eyes = Eyes(observer, book, refused=refused)
        task = eyes.task = asyncio.create_task(observer.run(eyes.told))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await until(lambda: observer.synced() or task.done())
            yield eyes
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled() and task.exception() is not None:
                task.result()


def line(name: str = "chat", **spec: Any) -> Object:
    """A ServingLine of the Deployment `engine`, each pod asked at its own address."""
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "engine"}
    endpoint = {"pods": {"portName": "http"}}
    given = {"baseline": {"workloadRef": ref, "endpoint": endpoint}, "replaySetRef": {"name": "cases"}, **spec}
    return {
        "apiVersion": "prefillgate.io/v1alpha1",
        "kind": "ServingLine",
        "metadata": {"name": name},
        "spec": {key: value for key, value in given.items() if value is not None},
    }


CASE = '{"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", '
CASE += '"content": "Say hello."}], "temperature": 0}}\n'


def replay_set(name: str = "cases", **spec: Any) -> Object:
    """A ReplaySet of the ConfigMap `cases`."""
    return {
        "apiVersion": "prefillgate.io/v1alpha1",
        "kind": "ReplaySet",
        "metadata": {"name": name},
        "spec": spec or {"configMap": {"name": "cases"}},
    }


def config_map(name: str = "cases", **data: str) -> Object:
    """A ConfigMap, with one case where nothing is said."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": data or {"cases.jsonl": CASE},
    }
