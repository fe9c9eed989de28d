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
from datetime import UTC, datetime

from prefillgate.api.kinds.arms import PodsEndpoint
from prefillgate.api.kinds.names import APART_LABEL, DRAINED, PROMOTED_CONDITION, SCRATCH
from prefillgate.app.observe.pods import epoch_of, is_leaving, is_ready, pod_url, unavailable
from prefillgate.app.orders import Asked, Chosen, Unusable, short
from prefillgate.app.scratch import owner_of, recorded_template, scratch_pod, template_in
from prefillgate.core.cells import BASELINE
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Invalid, KubeError, Terminal
from prefillgate.kube.objects import PODS, Object, Query, Ref, label, metadata, name_of, namespace_of, uid_of
from prefillgate.runs.errors import CouldNotMeasure

LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 1800.0  # for a model to be loaded
AT_LAST_TRIES = 120
TRIES = 5  # of a patch that somebody else's comes between

PresentEpoch = Callable[[str, "str | None"], None]


@dataclass(frozen=True, slots=True)
class Apart:
    """Works in the loop of its `kube`."""

    kube: Kube
    told: PresentEpoch
    patience_seconds: float = PATIENCE_SECONDS
    swept: asyncio.Event = field(default_factory=asyncio.Event)  # what a killed controller left is put back

    @asynccontextmanager
    async def server(self, asked: Asked, digest: str, chosen: Chosen) -> AsyncIterator[Chosen]:
        """The server to ask in the place of `chosen`. Raises `Unusable`, `CouldNotMeasure`."""
        await self.swept.wait()
        mode = asked.spec.baseline.isolation.mode
        made = self.scratch(asked, digest) if mode == "Scratch" else self.drained(asked, digest, chosen)
        async with made as server:
            yield server

    # -- Scratch

    @asynccontextmanager
    async def scratch(self, asked: Asked, digest: str) -> AsyncIterator[Chosen]:
        """A pod of the profile while it is asked; deleted afterwards. Raises `Unusable`, `CouldNotMeasure`."""
        with translated():
            body = scratch_pod(asked, digest, template_in(await self._kept(asked, digest)))
        ref = Ref(PODS, name_of(body), namespace_of(body))
        way = _way(asked, digest)
        try:
            with translated():
                await self._gone(ref)
                pod = await self.kube.create(PODS, body)
                server = await self._ready(ref, uid_of(pod), way)
            async with self._followed(ref, server, way):
                yield server
        finally:
            await at_last(lambda: self._end(ref, asked))

    async def _kept(self, asked: Asked, digest: str) -> Object:
        """The object that keeps the template."""
        recorded, namespace = recorded_template(asked, digest), asked.snapshot.line["metadata"]["namespace"]
        found = (await self.kube.list(recorded.query(namespace))).items
        if not found or (recorded.uid is not None and uid_of(found[0]) != recorded.uid):
            raise Unusable(
                f"no pod of {short(digest)} can be made: {recorded.kind.kind} {recorded.name}, which kept its "
                "template, is gone (allowed for Scratch: a revisionHistoryLimit that keeps it)"
            )
        return found[0]

    async def _gone(self, ref: Ref) -> None:
        """What an earlier controller left under that name is ended."""
        while (pod := await self._pod(ref)) is not None:
            if label(pod, APART_LABEL) != SCRATCH:
                raise CouldNotMeasure(f"there is a pod {ref.key} already, and it is none of the gate's")
            if not is_leaving(pod):
                await self.kube.delete(ref, uid_of(pod))
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self, ref: Ref, asked: Asked) -> None:
        """Delete the pod that was made for this work, and none of somebody else's. Raises KubeError."""
        pod = await self._pod(ref)
        mine = pod is not None and label(pod, APART_LABEL) == SCRATCH
        if pod is not None and mine and metadata(pod).get("ownerReferences") == [owner_of(asked)]:
            await self.kube.delete(ref, uid_of(pod))

    async def _ready(self, ref: Ref, uid: str, way: Way) -> Chosen:
        until = asyncio.get_running_loop().time() + self.patience_seconds
        while True:
            pod = await self._pod(ref)
            if pod is None or uid_of(pod) != uid or is_leaving(pod):
                raise CouldNotMeasure(f"pod {ref.key} was deleted by somebody else")
            url, epoch = pod_url(pod, way.endpoint, way.container), epoch_of(pod, way.container)
            if is_ready(pod) and url is not None and epoch is not None:
                return Chosen(url, ref.name, epoch)
            why = unavailable([pod], way.container)
            if why is not None or asyncio.get_running_loop().time() > until:
                raise CouldNotMeasure(why or f"pod {ref.key} was not Ready within {self.patience_seconds:g} s")
            await asyncio.sleep(LOOK_SECONDS)

    # -- Drain

    @asynccontextmanager
    async def drained(self, asked: Asked, digest: str, chosen: Chosen) -> AsyncIterator[Chosen]:
        """One of the arm's pods, out of its Services while it is asked. Raises `Unusable`, `CouldNotMeasure`."""
        least = asked.spec.baseline.isolation.min_serving or 1
        arm, namespace = asked.snapshot.baseline, str(asked.snapshot.line["metadata"]["namespace"])
        others = [] if arm is None else [each for each in arm.ready if each.name != chosen.name]
        if len(others) < least:
            raise CouldNotMeasure(
                f"pod {chosen.name} is not taken out of its Services: {len(others)} others are Ready, and "
                f"spec.baseline.isolation.minServing is {least}"
            )
        ref, way = Ref(PODS, chosen.name, namespace), _way(asked, digest)
        try:
            with translated():
                await self._take_out(ref)
                server = await self._out(ref, way)
            async with self._followed(ref, server, way):
                yield server
        finally:
            await at_last(lambda: self.put_back(ref))

    async def _take_out(self, ref: Ref) -> None:
        pod = await self._pod(ref)
        if pod is None:
            raise CouldNotMeasure(f"pod {ref.key} is gone")
        gates = [each.get("conditionType") for each in (pod.get("spec") or {}).get("readinessGates") or ()]
        if PROMOTED_CONDITION not in gates:
            raise Unusable(
                f"pod {ref.key} has no readiness gate {PROMOTED_CONDITION}, so it cannot be taken out of its Services "
                "(allowed for Drain: pods with that gate in spec.readinessGates; or isolation Scratch, Quiet, Shared)"
            )
        await self.kube.merge_patch(ref, {"metadata": {"labels": {APART_LABEL: DRAINED}}})
        await self._set_gate(ref, "False", "Drained", "The gate replays on this pod.")

    async def _out(self, ref: Ref, way: Way) -> Chosen:
        """Once no Service sends anything there any more."""
        until = asyncio.get_running_loop().time() + self.patience_seconds
        while True:
            pod = await self._pod(ref)
            url = None if pod is None else pod_url(pod, way.endpoint, way.container)
            epoch = None if pod is None else epoch_of(pod, way.container)
            if pod is None or url is None or epoch is None:
                raise CouldNotMeasure(f"pod {ref.key} went away while it was taken out of its Services")
            if not is_ready(pod):
                return Chosen(url, ref.name, epoch)
            if asyncio.get_running_loop().time() > until:
                raise CouldNotMeasure(f"pod {ref.key} stayed Ready though its gate condition is False")
            await asyncio.sleep(LOOK_SECONDS)

    async def put_back(self, ref: Ref) -> None:
        """Into its Services again. Raises KubeError."""
        pod = await self._pod(ref)
        if pod is not None and label(pod, APART_LABEL) == DRAINED:
            await self._set_gate(ref, "True", "Promoted", "It serves.")
            await self.kube.merge_patch(ref, {"metadata": {"labels": {APART_LABEL: None}}})

    async def _set_gate(self, ref: Ref, status: str, reason: str, message: str) -> None:
        """By JSON patch with a test on what was read: the other conditions are the kubelet's."""
        for left in reversed(range(TRIES)):
            pod = await self._pod(ref)
            if pod is None:
                return
            conditions = (pod.get("status") or {}).get("conditions") or []
            at = next((n for n, each in enumerate(conditions) if each.get("type") == PROMOTED_CONDITION), None)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            value = {"type": PROMOTED_CONDITION, "status": status, "reason": reason, "message": message}
            value["lastTransitionTime"] = now
            path = "/status/conditions/-" if at is None else f"/status/conditions/{at}"
            test = [] if at is None else [{"op": "test", "path": f"{path}/type", "value": PROMOTED_CONDITION}]
            try:
                await self.kube.json_patch(
                    ref, [*test, {"op": "add" if at is None else "replace", "path": path, "value": value}], "status"
                )
                return
            except Invalid:
                if not left:
                    raise

    # -- both

    async def sweep(self, namespaces: tuple[str, ...] = ()) -> None:
        """Put back what a killed controller left, until the API server lets us."""
        while not self.swept.is_set():
            try:
                await self._sweep(namespaces)
                self.swept.set()
            except KubeError:
                await asyncio.sleep(LOOK_SECONDS)

    async def _sweep(self, namespaces: tuple[str, ...]) -> None:
        for namespace in namespaces or (None,):
            for pod in (await self.kube.list(Query(PODS, namespace, labels=APART_LABEL))).items:
                ref = Ref(PODS, name_of(pod), namespace_of(pod))
                if label(pod, APART_LABEL) == SCRATCH:
                    await self.kube.delete(ref, uid_of(pod))
                else:
                    await self.put_back(ref)

    async def _pod(self, ref: Ref) -> Object | None:
        found = (await self.kube.list(Query(PODS, ref.namespace, fields=f"metadata.name={ref.name}"))).items
        return found[0] if found else None

    @asynccontextmanager
    async def _followed(self, ref: Ref, server: Chosen, way: Way) -> AsyncIterator[None]:
        """Tells of the pod's lives meanwhile."""
        self.told(server.url, server.epoch)
        task = asyncio.create_task(self._follow(ref, server, way))
        try:
            yield
        finally:
            task.cancel()

    async def _follow(self, ref: Ref, server: Chosen, way: Way) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(KubeError):
                pod = await self._pod(ref)
                if pod is None or is_leaving(pod) or uid_of(pod) != str(server.epoch).partition("/")[0]:
                    self.told(server.url, None)
                    return
                epoch = epoch_of(pod, way.container)
                if epoch is not None:
                    self.told(server.url, epoch)


@contextmanager
def translated() -> Iterator[None]:
    """What the API server says of a pod of ours in the words of a run."""
    try:
        yield
    except KubeError as error:
        raise CouldNotMeasure(f"the API server: {error}") from error


async def at_last(done: Callable[[], Awaitable[object]]) -> None:
    """Do it, again and again while the API server is away: what stays undone the next leader does."""
    for _ in range(AT_LAST_TRIES):
        try:
            await done()
            return
        except Terminal:
            return
        except KubeError:
            await asyncio.sleep(LOOK_SECONDS)


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
