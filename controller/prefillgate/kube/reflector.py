"""A local copy of the objects of a query, kept by list and watch, and a call for every object that changed.

The copy may be old, never wrong: what is decided from it is written with the resourceVersion or uid that was read.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field

from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import PAGE, Kube
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.errors import Gone, KubeError
from prefillgate.kube.objects import Change, Object, Query, key_of, lean, version_of

RELIST_AFTER = 3  # failures in a row: an API server restored from a backup knows our resourceVersion only in the future


@dataclass(frozen=True, slots=True)
class Pace:
    """How a reflector asks: seconds a watch lasts (a random one to two times that), below how many it counts as broken
    off, objects a page, and the wait after a failure."""

    watch_seconds: int = 240
    short_seconds: float = 5.0
    page: int = PAGE
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True)
class Handlers:
    """What a reflector calls. `changed(key, old, new)`: None is absent, both trimmed; it must not wait.

    `trim` makes what is kept of an object, at least its name, namespace and resourceVersion; `trouble` is told of every
    failure.
    """

    changed: Callable[[str, Object | None, Object | None], None] = lambda *_: None
    trim: Callable[[Object], Object] = lean
    trouble: Callable[[KubeError], None] = lambda _: None


class Reflector:
    """The objects of `query` by key. Run `run` as a task; `synced` is set once the first list is in."""

    def __init__(
        self,
        kube: Kube,
        query: Query,
        handlers: Handlers | None = None,
        pace: Pace | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.query = query
        self.synced = asyncio.Event()
        self.trouble: KubeError | None = None  # the last failure, None once a call has succeeded since
        self._kube = kube
        self._handlers = handlers or Handlers()
        self._pace = pace or Pace()
        self._clock = clock or SystemClock()
        self._rng = random.Random()
        self._objects: dict[str, Object] = {}
        self._since: str | None = None
        self._heard_at: float | None = None

    def get(self, key: str) -> Object | None:
        """The object as last seen, trimmed; None where there is none. Shared: do not change it."""
        return self._objects.get(key)

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def seconds_since_heard(self) -> float | None:
        """Since the API server last answered: None before it ever did."""
        return None if self._heard_at is None else self._clock.monotonic() - self._heard_at

    async def run(self) -> None:
        """List, watch, and begin again, until cancelled. Only a bug raises."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            failed: KubeError | None = None
            try:
                if self._since is None:
                    await self._list()
                await self._watch(self._since or "")
            except Gone as error:
                self._since = None
                failed = error
            except KubeError as error:
                failed = error
            self._note(failed)
            # a watch that was broken off soon is a failure, whatever it gave before: no server makes us ask in a loop
            lasted = self._clock.monotonic() - began >= self._pace.short_seconds
            if failed is None and lasted:
                failures = 0
                continue
            failures = 1 if lasted else failures + 1
            if failures >= RELIST_AFTER:
                self._since = None
            asked = 0.0 if failed is None else failed.retry_after_seconds or 0.0
            await self._clock.sleep(max(asked, self._pace.backoff.seconds(failures, self._rng)))

    async def _list(self) -> None:
        found = await self._kube.list(self.query, self._pace.page, self._handlers.trim)
        fresh = {key_of(each): each for each in found.items}
        before = self._objects
        self._objects = fresh
        self._since = found.resource_version
        self._heard()
        self.synced.set()
        for key in before.keys() - fresh.keys():
            self._handlers.changed(key, before[key], None)
        for key, obj in fresh.items():
            old = before.get(key)
            if old is None or version_of(old) != version_of(obj):
                self._handlers.changed(key, old, obj)

    async def _watch(self, since: str) -> None:
        seconds = round(self._pace.watch_seconds * (1 + self._rng.random()))
        async with aclosing(self._kube.watch(self.query, since, seconds)) as changes:
            async for change in changes:
                self._heard()
                self._take(change)
        self._heard()

    def _take(self, change: Change) -> None:
        self._since = version_of(change.object)
        if change.type == "BOOKMARK":
            return
        key = key_of(change.object)
        old = self._objects.get(key)
        if change.type == "DELETED":
            self._objects.pop(key, None)
            if old is not None:
                self._handlers.changed(key, old, None)
            return
        new = self._handlers.trim(change.object)
        self._objects[key] = new
        if old is None or version_of(old) != version_of(new):
            self._handlers.changed(key, old, new)

    def _heard(self) -> None:
        self._heard_at = self._clock.monotonic()
        self.trouble = None

    def _note(self, failed: KubeError | None) -> None:
        if failed is not None:
            self.trouble = failed
            self._handlers.trouble(failed)
