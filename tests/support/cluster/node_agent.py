"""Plays scheduler and kubelet for the tests: one node, whose pods are processes of this machine.

It binds every pod that no scheduling gate holds, gives it an address of its own in 10.88.0.0/16, starts the real
process of each container (`images.py`), probes it, restarts it when it crashes, and ends it when the pod is deleted. It
rides out an API server that is away. Not played: exec probes, lifecycle hooks, volumes of other kinds than `inputs.py`
knows, kubectl's logs and exec (`NodeAgent.log` has what a container printed).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.support.cluster.api import Object, path_of
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.images import standard_images
from tests.support.cluster.lives import Container, Settings, now
from tests.support.cluster.pods import Pod, run_to_its_end
from tests.support.cluster.users import NODE

NODE_NAME = "node-1"
_RESOURCES = {"cpu": "64", "memory": "256Gi", "pods": "1000", "nvidia.com/gpu": "64", "ephemeral-storage": "1Ti"}
_AGAIN_SECONDS = 0.1


class NodeAgent:
    """One node, in a thread of its own. `settings` may be changed while it runs; a context manager."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        host, port = plane.url.removeprefix("https://").rsplit(":", 1)
        served = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        self.settings = Settings(standard_images(), served)
        self.address = host
        self._plane, self._folder = plane, folder
        self._pods: dict[str, Pod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._addresses = (f"10.88.{high}.{low}" for high in itertools.count(1) for low in range(1, 255))
        self._count = itertools.count()
        self._thread = threading.Thread(target=self._run, name="node-agent", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], Any] = lambda: None
        self._up = threading.Event()
        self._why_ended: BaseException | None = None

    def __enter__(self) -> NodeAgent:
        self._thread.start()
        self._up.wait(60)
        assert self._why_ended is None, f"the node agent did not start: {self._why_ended!r}"
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(60)
        for pod in self._pods.values():
            pod.kill()
        if self._why_ended is not None:
            raise AssertionError("the node agent broke down") from self._why_ended

    def container(self, namespace: str, pod: str, container: str = "") -> Container:
        """A container that runs or ran on this node; the first one of the pod where none is named."""
        for each in self._pods.values():
            meta = each.object["metadata"]
            if (meta["namespace"], meta["name"]) == (namespace, pod):
                return next(c for c in each.containers if container in ("", c.name))
        raise KeyError(f"no pod {namespace}/{pod} on this node")

    def log(self, namespace: str, pod: str, container: str = "") -> str:
        """What the last life of a container printed."""
        return self.container(namespace, pod, container).log()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._why_ended = error
        finally:
            self._up.set()

    async def _main(self) -> None:
        self._loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = stopped.set
        headers = {"Authorization": f"Bearer {NODE.token}"}
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(
            base_url=self._plane.url,
            headers=headers,
            verify=self._plane.context,
            timeout=30,
            trust_env=False,
            limits=limits,
        )
        async with self._http:
            await self._join()
            follow = asyncio.ensure_future(self._follow())
            self._up.set()
            waiting = asyncio.ensure_future(stopped.wait())
            await asyncio.wait({follow, waiting}, return_when=asyncio.FIRST_COMPLETED)
            rest = [follow, waiting, *self._tasks.values()]
            for task in rest:
                task.cancel()
            ended = await asyncio.gather(*rest, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):
                    raise error

    async def _join(self) -> None:
        """Create the node, ready."""
        await self.send("POST", path_of("nodes"), {"metadata": {"name": NODE_NAME}, "spec": {"taints": []}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now()}
        status = {
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": self.address}],
            "capacity": _RESOURCES,
            "allocatable": _RESOURCES,
        }
        merge = "application/merge-patch+json"
        await self.send("PATCH", path_of("nodes", f"{NODE_NAME}/status"), {"status": status}, merge)
        await self.send("PATCH", path_of("nodes", NODE_NAME), {"spec": {"taints": None}}, merge)

    async def _follow(self) -> None:
        """List and watch all pods, again and again."""
        while True:
            with contextlib.suppress(httpx.HTTPError, json.JSONDecodeError):
                listed = await self._http.get(path_of("pods"))
                if listed.status_code == 200:
                    found = listed.json()
                    await self._all(found["items"])
                    await self._watch(found["metadata"]["resourceVersion"])
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _all(self, pods: list[Object]) -> None:
        """What a list says: also which pods are gone."""
        for uid in set(self._pods) - {pod["metadata"]["uid"] for pod in pods}:
            self._gone(uid)
        for pod in pods:
            await self._seen(pod)

    async def _watch(self, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
        async with self._http.stream(
            "GET", path_of("pods"), params=query, timeout=httpx.Timeout(30, read=None)
        ) as stream:
            async for line in stream.aiter_lines():
                change = json.loads(line)
                if change["type"] == "ERROR":
                    return  # too old: list again
                if change["type"] == "DELETED":
                    self._gone(change["object"]["metadata"]["uid"])
                elif change["type"] != "BOOKMARK":
                    await self._seen(change["object"])

    async def _seen(self, pod: Object) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        if known := self._pods.get(meta["uid"]):
            known.seen(pod)
        elif spec.get("nodeName") == NODE_NAME:
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                return
            made = Pod(pod, self, next(self._addresses), self._folder / str(next(self._count)))
            self._pods[meta["uid"]] = made
            self._tasks[meta["uid"]] = asyncio.ensure_future(run_to_its_end(made))
        elif not spec.get("nodeName") and not spec.get("schedulingGates") and "deletionTimestamp" not in meta:
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE_NAME}
            body = {"metadata": {"name": meta["name"], "uid": meta["uid"]}, "target": target}
            await self.send("POST", path_of("pods", f"{meta['name']}/binding", meta["namespace"]), body)

    def _gone(self, uid: str) -> None:
        """No such pod any more: what still runs of it is ended at once."""
        if task := self._tasks.get(uid):
            task.cancel()

    async def get(self, path: str) -> Object | None:
        """The object at a path, or None."""
        response = await self._http.get(path)
        if response.status_code == 404:
            return None
        found: Object = response.raise_for_status().json()
        return found

    async def send(self, method: str, path: str, body: Object, content_type: str = "application/json") -> bool:
        """Send until the server took it; False when it has no such object (any more), another, or an ending one."""
        headers = {"Content-Type": content_type}
        while True:
            try:
                response = await self._http.request(method, path, content=json.dumps(body), headers=headers)
            except httpx.TransportError:
                response = None
            if response is not None and response.status_code in (403, 404, 409):
                return False
            if response is not None and response.status_code < 400:
                return True
            if response is not None and response.status_code not in (429, 500, 502, 503, 504):
                raise RuntimeError(f"{method} {path}: {response.status_code} {response.text[:500]}")
            await asyncio.sleep(_AGAIN_SECONDS)

    async def token(self, namespace: str, account: str, told: Object) -> str:
        """A token of a ServiceAccount, from the API server."""
        spec = {"expirationSeconds": told.get("expirationSeconds", 3600)}
        spec |= {"audiences": [told["audience"]]} if "audience" in told else {}
        path = path_of("serviceaccounts", f"{account}/token", namespace)
        response = await self._http.post(path, json={"spec": spec})
        return str(response.raise_for_status().json()["status"]["token"])
