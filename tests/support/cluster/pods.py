"""One pod on the node of the tests: its containers, and the status that the API server is told."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Protocol

from tests.support.cluster.api import STRATEGIC_PATCH, Object, path_of
from tests.support.cluster.images import write_commands
from tests.support.cluster.inputs import Inputs
from tests.support.cluster.lives import Container, Settings, now


class Node(Protocol):
    """What a pod needs of its node."""

    settings: Settings
    address: str

    async def get(self, path: str) -> Object | None:
        """The object at a path, or None."""

    async def send(self, method: str, path: str, body: Object, content_type: str = "application/json") -> bool:
        """Send until the server took it; False when it has no such object (any more)."""

    async def token(self, namespace: str, account: str, told: Object) -> str:
        """A token of a ServiceAccount."""


class Pod:
    """One pod from its binding to its end."""

    def __init__(self, pod: Object, node: Node, address: str, folder: Path) -> None:
        self.object, self._node, self.address = pod, node, address
        meta = pod["metadata"]
        self.uid, self._path = meta["uid"], path_of("pods", meta["name"], meta["namespace"])
        folder.mkdir(parents=True)
        write_commands(folder / "bin", address)
        self._inputs = Inputs(pod, address, folder, node.get, node.token)
        place = (address, self._inputs, folder / "bin")
        settings = node.settings
        made = [
            [Container(c, folder / c["name"], settings, place, self._changed) for c in pod["spec"].get(kind, [])]
            for kind in ("initContainers", "containers")
        ]
        self._first, self.containers = made
        self._wake, self._started = asyncio.Event(), now()
        self._sent: Object = {}
        self._conditions: dict[str, Object] = {}
        self._ending = False

    def _changed(self) -> None:
        self._wake.set()

    def seen(self, pod: Object) -> None:
        """The API server has a new version of it."""
        self.object = pod
        self._wake.set()

    async def run(self) -> None:
        """Live until the pod is deleted; what it started is ended however this ends."""
        lives = asyncio.ensure_future(self._live())
        lives.add_done_callback(lambda _: self._wake.set())
        try:
            while "deletionTimestamp" not in self.object["metadata"]:
                self._wake.clear()
                if not await self._publish():
                    return
                await self._wake.wait()
                if lives.done():
                    lives.result()  # raises what broke the agent itself
            lives.cancel()
            await self._end()
        finally:
            lives.cancel()
            self.kill()

    async def _live(self) -> None:
        policy = self.object["spec"].get("restartPolicy", "Always")
        for container in self._first:
            await container.live("OnFailure" if policy == "Always" else policy)
            if container.exit_code:
                return  # the pod failed
        await asyncio.gather(*(container.live(policy) for container in self.containers))

    async def _end(self) -> None:
        self._ending = True
        seconds = self.object["metadata"].get("deletionGracePeriodSeconds", 30)
        ended = asyncio.gather(*(c.end(seconds) for c in (*self._first, *self.containers)))
        await self._publish()  # not ready from now on
        await ended
        await self._publish()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        await self._node.send("DELETE", self._path, body)

    def kill(self) -> None:
        """End all processes at once."""
        for container in (*self._first, *self.containers):
            container.kill()

    async def _publish(self) -> bool:
        """Tell the status where it is another than the one told last; False when there is no such pod any more."""
        status = self._status()
        if status == self._sent:
            return True
        taken = await self._node.send("PATCH", f"{self._path}/status", {"status": status}, STRATEGIC_PATCH)
        self._sent = status
        return taken

    def _status(self) -> Object:
        phase = self._phase()
        ready = phase == "Running" and all(container.ready for container in self.containers)
        done = phase in ("Succeeded", "Failed")
        initialized = all(container.exit_code == 0 for container in self._first)
        waits = [gate["conditionType"] for gate in self.object["spec"].get("readinessGates", [])]
        given = {each["type"]: each["status"] for each in self.object.get("status", {}).get("conditions", [])}
        shut = [name for name in waits if given.get(name) != "True"]
        not_ready = "PodCompleted" if done else "ContainersNotReady"
        self._condition("PodReadyToStartContainers", not done)
        self._condition("Initialized", initialized, "ContainersNotInitialized")
        self._condition("ContainersReady", ready, not_ready)
        self._condition(
            "Ready",
            ready and not shut and not self._ending,
            "ReadinessGatesNotReady" if ready else not_ready,
            f"corresponding condition of pod readiness gate {', '.join(shut)} is not true" if ready and shut else "",
        )
        return {
            "phase": phase,
            "startTime": self._started,
            "hostIP": self._node.address,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": list(self._conditions.values()),
            "containerStatuses": [container.status() for container in self.containers],
            "initContainerStatuses": [container.status() for container in self._first],
        }

    def _condition(self, name: str, holds: bool, reason: str = "", message: str = "") -> None:
        """Note it; the time of the last transition is that of the last change of its status."""
        status = "True" if holds else "False"
        before = self._conditions.get(name)
        at = before["lastTransitionTime"] if before and before["status"] == status else now()
        told = {"type": name, "status": status, "lastTransitionTime": at}
        self._conditions[name] = told | {"reason": "" if holds else reason, "message": "" if holds else message}

    def _phase(self) -> str:
        if any(container.exit_code for container in self._first):
            return "Failed"
        codes = [container.exit_code for container in self.containers]
        if all(code is not None for code in codes) and (
            self._ending or self.object["spec"].get("restartPolicy") != "Always"
        ):
            return "Failed" if any(codes) else "Succeeded"
        if any(container.id for container in self.containers):
            return "Running"
        return "Pending"


async def run_to_its_end(pod: Pod) -> None:
    """`Pod.run`, ended by its task's cancellation without a word."""
    with contextlib.suppress(asyncio.CancelledError):
        await pod.run()
