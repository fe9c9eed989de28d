"""Pods that a replay asks alone, one call at a time: marked, out of their Services, back in, deleted.

Every change asks first whether we lead, and is of the object that was read. A pod bears the token of the term that put
it aside: who leads no more touches none of a later term.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from prefillgate.api.kinds.names import APART_LABEL, APART_TERM, DRAINED, PROMOTED_CONDITION, SCRATCH
from prefillgate.app.logs import logger
from prefillgate.app.observe.pods import is_ready
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Conflict, Invalid, KubeError, NotFound
from prefillgate.kube.objects import (
    PODS,
    Object,
    Query,
    Ref,
    annotation,
    label,
    metadata,
    name_of,
    uid_of,
    version_of,
)
from prefillgate.runs.errors import CouldNotMeasure

TRIES = 5  # of a patch that somebody else's comes between
AT_LAST_TRIES = 40
AGAIN = Backoff(0.5, 15.0)
REVISION_LABELS = ("pod-template-hash", "controller-revision-hash")


@dataclass(frozen=True, slots=True)
class ApartPods:
    """In the loop of its `kube`, for the term of `token`; `leads` says whether that lasts."""

    kube: Kube
    token: int = 0
    leads: Callable[[], bool] = lambda: True
    again: Backoff = AGAIN

    def check_leading(self) -> None:
        """Raises `CouldNotMeasure` where another controller leads now."""
        if not self.leads():
            raise CouldNotMeasure("another controller leads now")

    async def pod(self, ref: Ref) -> Object | None:
        """As it is now. Raises KubeError."""
        found = (await self.kube.list(Query(PODS, ref.namespace, fields=f"metadata.name={ref.name}"))).items
        return found[0] if found else None

    async def beside(self, ref: Ref, names: Collection[str]) -> tuple[Object | None, int]:
        """The pod, and how many others of its arm are Ready and not put aside: those of its owner's same revision,
        else those of these names. Raises KubeError."""
        pods = (await self.kube.list(Query(PODS, ref.namespace))).items
        pod = next((each for each in pods if name_of(each) == ref.name), None)
        return pod, 0 if pod is None else sum(_serves_beside(pod, each, names) for each in pods)

    def is_ours(self, pod: Object) -> bool:
        """Whether this term put it aside."""
        return annotation(pod, APART_TERM) == str(self.token)

    def is_of_a_later_term(self, pod: Object) -> bool:
        """Whether a controller put it aside that leads after us."""
        told = annotation(pod, APART_TERM) or ""
        return told.isascii() and told.isdigit() and int(told[:19]) > self.token

    async def create(self, body: Object) -> Object:
        """Make a pod. Raises KubeError, `CouldNotMeasure`."""
        self.check_leading()
        return await self.kube.create(PODS, body)

    async def take_out(self, ref: Ref, uid: str) -> None:
        """Mark it and set its gate False. Raises KubeError, `CouldNotMeasure`."""
        await self._mark(ref, uid, DRAINED, str(self.token))
        self.check_leading()
        await self._set_gate(ref, uid, "False", "Drained", "The gate replays on this pod.")

    async def put_back(self, ref: Ref, mine: bool) -> None:
        """Into its Services again, unless a later term took it out; `mine`: this term alone. Raises KubeError,
        `CouldNotMeasure`."""
        pod = await self.pod(ref)
        if pod is None or label(pod, APART_LABEL) != DRAINED or self.is_of_a_later_term(pod):
            return
        if mine and not self.is_ours(pod):
            return
        self.check_leading()
        await self._set_gate(ref, uid_of(pod), "True", "Promoted", "It serves.")
        await self._mark(ref, uid_of(pod), None, None)

    async def end(self, ref: Ref, uid: str | None, owner: Object) -> None:
        """Delete the pod that was made in this term, and none of somebody else's; its uid is not known where the answer
        to its making was lost. Raises KubeError, `CouldNotMeasure`."""
        pod = await self.pod(ref)
        if pod is None or label(pod, APART_LABEL) != SCRATCH or not self.is_ours(pod):
            return
        if metadata(pod).get("ownerReferences") == [owner] and uid in (None, uid_of(pod)):
            self.check_leading()
            await self.kube.delete(ref, uid_of(pod))

    async def at_last(self, what: str, done: Callable[[], Awaitable[object]]) -> bool:
        """Do it, again and again while the API server is away or refuses, as long as we lead; whether it was done."""
        rng = random.Random()
        for failures in range(1, AT_LAST_TRIES + 1):
            if not self.leads():
                return False  # the next leader does it
            try:
                await done()
                return True
            except NotFound:
                return True
            except CouldNotMeasure:
                return False
            except KubeError as error:
                said = f"{type(error).__name__}: {error}"
            await asyncio.sleep(self.again.seconds(failures, rng))
        logger().error("not_put_back", pod=what, message=said)
        return False

    async def _mark(self, ref: Ref, uid: str, mark: str | None, term: str | None) -> None:
        """The label and the term, both or neither; None takes them away."""
        for left in reversed(range(TRIES)):
            pod = await self.pod(ref)
            if pod is None or uid_of(pod) != uid:
                return
            self.check_leading()
            meta = {"labels": {APART_LABEL: mark}, "annotations": {APART_TERM: term}}
            try:
                await self.kube.merge_patch(ref, {"metadata": {**meta, "resourceVersion": version_of(pod)}})
                return
            except Conflict:
                if not left:
                    raise

    async def _set_gate(self, ref: Ref, uid: str, status: str, reason: str, message: str) -> None:
        """By JSON patch with a test on what was read: the other conditions are the kubelet's."""
        for left in reversed(range(TRIES)):
            pod = await self.pod(ref)
            if pod is None or uid_of(pod) != uid:
                return
            conditions = (pod.get("status") or {}).get("conditions") or []
            at = next((n for n, each in enumerate(conditions) if each.get("type") == PROMOTED_CONDITION), None)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            value = {"type": PROMOTED_CONDITION, "status": status, "reason": reason, "message": message}
            value["lastTransitionTime"] = now
            path = "/status/conditions/-" if at is None else f"/status/conditions/{at}"
            tests = [{"op": "test", "path": "/metadata/uid", "value": uid}]
            if at is not None:
                tests.append({"op": "test", "path": f"{path}/type", "value": PROMOTED_CONDITION})
            change = {"op": "add" if at is None else "replace", "path": path, "value": value}
            self.check_leading()
            try:
                await self.kube.json_patch(ref, [*tests, change], "status")
                return
            except (Invalid, Conflict):
                if not left:
                    raise


def _serves_beside(pod: Object, other: Object, names: Collection[str]) -> bool:
    if name_of(other) == name_of(pod) or label(other, APART_LABEL) is not None or not is_ready(other):
        return False
    owner = _owner(pod)
    if owner is not None:
        return _owner(other) == owner and all(label(other, each) == label(pod, each) for each in REVISION_LABELS)
    return name_of(other) in names


def _owner(pod: Object) -> str | None:
    """The uid of the workload that made it."""
    owners = metadata(pod).get("ownerReferences") or ()
    return next((str(each.get("uid")) for each in owners if each.get("controller")), None)


@contextmanager
def translated() -> Iterator[None]:
    """What the API server says of a pod of ours in the words of a run."""
    try:
        yield
    except KubeError as error:
        raise CouldNotMeasure(f"the API server: {error}") from error
