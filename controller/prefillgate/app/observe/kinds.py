"""Which kinds are held: those that every line needs, and those that a line names."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable

from prefillgate.app.observe import trims
from prefillgate.app.observe.held import Held, Interest, Keeping
from prefillgate.kube import objects
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from prefillgate.kube.objects import Kind

Named = tuple[str, str]  # apiVersion and kind

FIRST_SECONDS = 30.0  # for the first list of lines, before everything else is listed
OURS = (objects.SERVING_LINES, objects.PROFILE_ROLLOUTS, objects.PROMOTION_POLICIES, objects.REPLAY_SETS)
ALWAYS: tuple[tuple[Kind, trims.Trim], ...] = (
    *((kind, trims.own_kind) for kind in OURS),
    (objects.PODS, trims.pod),
    (objects.REPLICA_SETS, trims.replica_set),
    (objects.DEPLOYMENTS, trims.workload),
    (objects.STATEFUL_SETS, trims.workload),
    (objects.CONTROLLER_REVISIONS, trims.controller_revision),
    (objects.CONFIG_MAPS, trims.config_map),
)
ENDPOINT_SLICES: Named = (objects.ENDPOINT_SLICES.api_version, objects.ENDPOINT_SLICES.kind)


class Wanted:
    """A kind that a line names. Which resource it is the API server tells; asked again until it does."""

    def __init__(self, named: Named, keeping: Keeping, synced: Callable[[str], None]) -> None:
        self.named = named
        self.held: Held | None = None
        self.trouble: KubeError | None = None
        self.task: asyncio.Task[None] | None = None
        self._keeping = keeping
        self._synced = synced
        self._told = asyncio.Event()

    async def run(self) -> None:
        """Find out, then keep its objects; until cancelled."""
        backoff, rng, failures = Backoff(1.0, 60.0), random.Random(), 0
        while self.held is None:
            try:
                self.held = await self._find()
            except KubeError as error:
                self.trouble = error
                self._told.set()
                failures += 1
                await self._keeping.clock.sleep(backoff.seconds(failures, rng))
        self.trouble = None
        self._told.set()
        await run_held(self.held, self._synced)

    async def _find(self) -> Held:
        api_version, name = self.named
        kind = await self._keeping.kube.discover(api_version, name)
        if kind is None or not kind.namespaced:
            what = "no kind of that name" if kind is None else "a kind of that name that stands in no namespace"
            raise NotFound(f"{api_version} has {what}", reason="NotServed")
        return Held(kind, trim_of(kind), self._keeping)

    async def first(self, seconds: float) -> KubeError | None:
        """As `Held.first`, with the reason why it is not known which resource it is."""
        try:
            async with asyncio.timeout(seconds):
                await self._told.wait()
        except TimeoutError as error:
            raise Unreachable(f"{' '.join(self.named)}: no answer yet which resource that is") from error
        if self.held is None:
            if isinstance(self.trouble, Forbidden | NotFound):
                return self.trouble
            raise Unreachable(f"{' '.join(self.named)}: {self.trouble}")
        return await self.held.first(seconds)


class Kinds:
    """All that is held. `synced(kind)` is called when the first list of a kind is in."""

    def __init__(self, keeping: Keeping, synced: Callable[[str], None]) -> None:
        self.interest = Interest()
        self.always = {
            kind.kind: Held(kind, trim, keeping, None if kind in OURS else self.interest) for kind, trim in ALWAYS
        }
        self._by_version = {(kind.api_version, kind.kind): self.always[kind.kind] for kind, _ in ALWAYS}
        self._wanted: dict[Named, Wanted] = {}
        self._keeping = keeping
        self._on_synced = synced
        self._group: asyncio.TaskGroup | None = None

    def __getitem__(self, kind: str) -> Held:
        return self.always[kind]

    def all(self) -> Iterable[Held]:
        """Every kind that is held now."""
        yield from self.always.values()
        yield from (each.held for each in self._wanted.values() if each.held is not None)

    def find(self, named: Named) -> Held | Wanted | None:
        """The kind of that version and name; None where nothing has asked for it."""
        return self._by_version.get(named) or self._wanted.get(named)

    def named(self, kind: str) -> Iterable[Held]:
        """What is held under that name, of whatever group."""
        return (each for each in self.all() if each.kind.kind == kind)

    def want(self, named: set[Named]) -> None:
        """Hold these beside those that are always held, and no others."""
        for gone in self._wanted.keys() - named:
            task = self._wanted.pop(gone).task
            if task is not None:
                task.cancel()
        for new in named - self._wanted.keys() - self._by_version.keys():
            self._wanted[new] = Wanted(new, self._keeping, self._on_synced)
            self._start(self._wanted[new])

    async def whole(self, namespace: str) -> None:
        """Have everything of a namespace with lines. Raises KubeError."""
        for held in self.always.values():
            await held.whole(namespace)

    async def run(self) -> None:
        """Keep them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for kind in OURS:
                group.create_task(run_held(self.always[kind.kind], self._on_synced))
            with contextlib.suppress(Unreachable):  # then what the first lists leave out is listed again
                await self.always[objects.SERVING_LINES.kind].first(FIRST_SECONDS)
            for held in self.always.values():
                if held.kind not in OURS:
                    group.create_task(run_held(held, self._on_synced))
            for wanted in self._wanted.values():
                self._start(wanted)

    def _start(self, wanted: Wanted) -> None:
        if self._group is not None and wanted.task is None:
            wanted.task = self._group.create_task(wanted.run())


async def run_held(held: Held, synced: Callable[[str], None]) -> None:
    """Keep a kind, and tell when its first list is in."""

    async def tell() -> None:
        await held.all_in()
        synced(held.kind.kind)

    async with asyncio.TaskGroup() as group:
        group.create_task(held.run())
        group.create_task(tell())


def trim_of(kind: Kind) -> trims.Trim:
    """What is kept of a kind that a line names."""
    return trims.endpoint_slice if kind == objects.ENDPOINT_SLICES else trims.workload
