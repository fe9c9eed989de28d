"""A server of the profile in production that serves nobody else meanwhile (`baseline.isolation`).

Drain    one of its pods is taken out of its Services by its own gate condition, while others stay Ready
Scratch  a pod of its recorded template, outside every Service, gone afterwards

Both bear a label, so that whoever leads next puts back what a killed controller left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from prefillgate.api.kinds.arms import PodsEndpoint
from prefillgate.api.kinds.names import APART_LABEL, PROMOTED_CONDITION, SCRATCH
from prefillgate.app.apart_pods import ApartPods, translated
from prefillgate.app.leftovers import Leftovers
from prefillgate.app.observe.pods import epoch_of, is_leaving, is_ready, pod_url, unavailable
from prefillgate.app.orders import Asked, Chosen, Unusable, short
from prefillgate.app.scratch import owner_of, recorded_template, scratch_pod, template_in
from prefillgate.core.cells import BASELINE
from prefillgate.kube.errors import KubeError
from prefillgate.kube.objects import PODS, Object, Ref, label, name_of, namespace_of, uid_of
from prefillgate.runs.errors import CouldNotMeasure

PresentEpoch = Callable[[str, "str | None"], None]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what, in seconds."""

    ready: float = 1800.0  # for a model to be loaded
    gone: float = 300.0  # for a pod that was deleted
    swept: float = 60.0  # for the first look at what an earlier controller left
    look: float = 1.0  # between two looks


@dataclass(frozen=True, slots=True)
class Apart:
    """Works in the loop of the client of its `pods`."""

    pods: ApartPods
    told: PresentEpoch
    left: Leftovers
    patience: Patience = Patience()
    _draining: asyncio.Lock = field(default_factory=asyncio.Lock)  # two lines may have one workload

    @asynccontextmanager
    async def server(self, asked: Asked, digest: str, chosen: Chosen) -> AsyncIterator[Chosen]:
        """The server to ask in the place of `chosen`. Raises `Unusable`, `CouldNotMeasure`."""
        mode = asked.spec.baseline.isolation.mode
        made = self.scratch(asked, digest) if mode == "Scratch" else self.drained(asked, digest, chosen)
        async with made as server:
            yield server

    async def _swept(self) -> None:
        try:
            async with asyncio.timeout(self.patience.swept):
                await self.left.swept.wait()
        except TimeoutError:
            why = self.left.cause or "the API server has not answered yet"
            raise CouldNotMeasure(f"what an earlier controller put aside is not looked for to the end: {why}") from None

    @contextmanager
    def _held(self, ref: Ref) -> Iterator[None]:
        """It is no leftover meanwhile; afterwards it is, if it is there still."""
        if ref.key in self.left.held:
            raise CouldNotMeasure(f"pod {ref.key} is put aside for another replay")
        self.left.held.add(ref.key)
        try:
            yield
        finally:
            self.left.held.discard(ref.key)
            self.left.due.set()

    # -- Scratch

    @asynccontextmanager
    async def scratch(self, asked: Asked, digest: str) -> AsyncIterator[Chosen]:
        """A pod of the profile while it is asked; deleted afterwards. Raises `Unusable`, `CouldNotMeasure`."""
        await self._swept()
        with translated():
            body = scratch_pod(asked, digest, template_in(await self._kept(asked, digest)), self.pods.token)
        ref = Ref(PODS, name_of(body), namespace_of(body))
        way, uid = _way(asked, digest), None
        with self._held(ref):
            try:
                with translated():
                    await self._gone(ref)
                    uid = uid_of(await self.pods.create(body))
                    server = await self._ready(ref, uid, way)
                async with self._followed(server, lambda: self._alive(ref, server, way)):
                    yield server
            finally:
                await self.pods.at_last(ref.key, lambda: self.pods.end(ref, uid, owner_of(asked)))

    async def _kept(self, asked: Asked, digest: str) -> Object:
        """The object that keeps the template."""
        recorded, namespace = recorded_template(asked, digest), asked.snapshot.line["metadata"]["namespace"]
        found = (await self.pods.kube.list(recorded.query(namespace))).items
        if not found or (recorded.uid is not None and uid_of(found[0]) != recorded.uid):
            raise Unusable(
                f"no pod of {short(digest)} can be made: {recorded.kind.kind} {recorded.name}, which kept its "
                "template, is gone (allowed for Scratch: a revisionHistoryLimit that keeps it)"
            )
        return found[0]

    async def _gone(self, ref: Ref) -> None:
        """What an earlier controller left under that name is ended."""
        until = asyncio.get_running_loop().time() + self.patience.gone
        while (pod := await self.pods.pod(ref)) is not None:
            if label(pod, APART_LABEL) != SCRATCH:
                raise CouldNotMeasure(f"there is a pod {ref.key} already, and it is none of the gate's")
            if asyncio.get_running_loop().time() > until:
                raise CouldNotMeasure(
                    f"pod {ref.key}, which an earlier replay left, is Terminating for more than "
                    f"{self.patience.gone:g} s: is its node lost, or has it a finalizer?"
                )
            if not is_leaving(pod) or "deletionTimestamp" not in pod["metadata"]:
                self.pods.check_leading()
                await self.pods.kube.delete(ref, uid_of(pod))
            await asyncio.sleep(self.patience.look)

    async def _ready(self, ref: Ref, uid: str, way: Way) -> Chosen:
        until = asyncio.get_running_loop().time() + self.patience.ready
        while True:
            pod = await self.pods.pod(ref)
            if pod is None or uid_of(pod) != uid or is_leaving(pod):
                raise CouldNotMeasure(f"pod {ref.key} was deleted by somebody else")
            url, epoch = pod_url(pod, way.endpoint, way.container), epoch_of(pod, way.container)
            if is_ready(pod) and url is not None and epoch is not None:
                return Chosen(url, ref.name, epoch)
            why = unavailable([pod], way.container)
            if why is not None or asyncio.get_running_loop().time() > until:
                raise CouldNotMeasure(why or f"pod {ref.key} was not Ready within {self.patience.ready:g} s")
            await asyncio.sleep(self.patience.look)

    # -- Drain

    @asynccontextmanager
    async def drained(self, asked: Asked, digest: str, chosen: Chosen) -> AsyncIterator[Chosen]:
        """One of the arm's pods, out of its Services while it is asked. Raises `Unusable`, `CouldNotMeasure`."""
        await self._swept()
        arm, namespace = asked.snapshot.baseline, str(asked.snapshot.line["metadata"]["namespace"])
        names = frozenset(() if arm is None else (each.name for each in arm.servers))
        least = asked.spec.baseline.isolation.min_serving or 1
        ref, way = Ref(PODS, chosen.name, namespace), _way(asked, digest)
        drain = Drain(ref, names, least)
        with self._held(ref):
            try:
                with translated():
                    async with self._draining:
                        await self._take_out(drain)
                    server = await self._out(drain, way)
                async with self._followed(server, lambda: self._served_beside(drain, server, way)):
                    yield server
            finally:
                await self.pods.at_last(ref.key, lambda: self.pods.put_back(ref, mine=True))

    async def _take_out(self, drain: Drain) -> None:
        """Only while enough others serve; `_out` counts again, for another one may have gone at the same moment."""
        ref = drain.ref
        pod = await self._serving(drain)
        gates = [each.get("conditionType") for each in (pod.get("spec") or {}).get("readinessGates") or ()]
        if PROMOTED_CONDITION not in gates:
            raise Unusable(
                f"pod {ref.key} has no readiness gate {PROMOTED_CONDITION}, so it cannot be taken out of its Services "
                "(allowed for Drain: pods with that gate in spec.readinessGates; or isolation Scratch, Quiet, Shared)"
            )
        if label(pod, APART_LABEL) is not None:
            raise CouldNotMeasure(f"pod {ref.key} is put aside for another replay")
        await self.pods.take_out(ref, uid_of(pod))

    async def _serving(self, drain: Drain) -> Object:
        """The pod, while enough others serve. Raises `CouldNotMeasure` where they do not."""
        pod, others = await self.pods.beside(drain.ref, drain.names)
        if pod is None:
            raise CouldNotMeasure(f"pod {drain.ref.key} is gone")
        if others < drain.least:
            raise CouldNotMeasure(
                f"pod {drain.ref.name} is not taken out of its Services: {others} others are Ready, and "
                f"spec.baseline.isolation.minServing is {drain.least}"
            )
        return pod

    async def _out(self, drain: Drain, way: Way) -> Chosen:
        """Once no Service sends anything there any more."""
        until, ref = asyncio.get_running_loop().time() + self.patience.ready, drain.ref
        while True:
            pod = await self._serving(drain)
            url, epoch = pod_url(pod, way.endpoint, way.container), epoch_of(pod, way.container)
            if url is None or epoch is None:
                raise CouldNotMeasure(f"pod {ref.key} went away while it was taken out of its Services")
            if not is_ready(pod):
                return Chosen(url, ref.name, epoch)
            if asyncio.get_running_loop().time() > until:
                raise CouldNotMeasure(f"pod {ref.key} stayed Ready though its gate condition is False")
            await asyncio.sleep(self.patience.look)

    async def _served_beside(self, drain: Drain, server: Chosen, way: Way) -> bool:
        """Where too few others serve the traffic has the pod back at once: the replay goes on elsewhere, or waits."""
        pod, others = await self.pods.beside(drain.ref, drain.names)
        if not self._lives(pod, server, way):
            return False
        if others >= drain.least:
            return True
        self.told(server.url, None)
        await self.pods.at_last(drain.ref.key, lambda: self.pods.put_back(drain.ref, mine=True))
        return False

    # -- both

    @asynccontextmanager
    async def _followed(self, server: Chosen, look: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
        """Looks at the pod meanwhile, for as long as it may be asked."""
        self.told(server.url, server.epoch)
        task = asyncio.create_task(self._follow(look))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _follow(self, look: Callable[[], Awaitable[bool]]) -> None:
        goes_on = True
        while goes_on:
            await asyncio.sleep(self.patience.look)
            with suppress(KubeError):
                goes_on = await look()

    async def _alive(self, ref: Ref, server: Chosen, way: Way) -> bool:
        return self._lives(await self.pods.pod(ref), server, way)

    def _lives(self, pod: Object | None, server: Chosen, way: Way) -> bool:
        """Whether it is the same pod still; tells of its life."""
        if pod is None or is_leaving(pod) or uid_of(pod) != str(server.epoch).partition("/")[0]:
            self.told(server.url, None)
            return False
        epoch = epoch_of(pod, way.container)
        if epoch is not None:
            self.told(server.url, epoch)
        return True


@dataclass(frozen=True, slots=True)
class Drain:
    """Which pod is taken out, of which arm, and how many others must serve."""

    ref: Ref
    names: frozenset[str]
    least: int


@dataclass(frozen=True, slots=True)
class Way:
    """How a pod of the profile is asked."""

    endpoint: PodsEndpoint
    container: str


def _way(asked: Asked, digest: str) -> Way:
    slot = asked.way(digest).slot
    arm = asked.spec.baseline if slot == BASELINE else asked.spec.candidate_arm
    if arm.endpoint.pods is None:
        raise Unusable(f"spec.{slot}.endpoint is not pods, so none of them can be asked alone")
    profile = next((each.profile for each in asked.snapshot.slots if each.slot == slot), None)
    named = None if arm.workload_ref is None else arm.workload_ref.container
    return Way(arm.endpoint.pods, named or (profile.parts[0].container if profile is not None else ""))
