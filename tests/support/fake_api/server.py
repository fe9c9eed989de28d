"""The fake API server's HTTP side."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import ssl
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from prefillgate.kube import objects
from prefillgate.kube.objects import Kind
from tests.support.fake_api.bodies import read_body
from tests.support.fake_api.faults import PAGE, Fault, cut, in_pieces, reset, status
from tests.support.fake_api.patches import json_patch, merge_patch
from tests.support.fake_api.selection import chosen
from tests.support.fake_api.store import Happened, Object, Refused, Resource, Store, Write

BUILT_IN = (
    *(Resource(kind) for kind in (objects.PODS, objects.SERVICES, objects.NAMESPACES, objects.DEPLOYMENTS)),
    *(Resource(kind) for kind in (objects.STATEFUL_SETS, objects.REPLICA_SETS, objects.JOBS)),
    *(Resource(kind, status=False) for kind in (objects.LEASES, objects.EVENTS, objects.CONFIG_MAPS, objects.SECRETS)),
    Resource(objects.ENDPOINT_SLICES, status=False),
    Resource(objects.CONTROLLER_REVISIONS, status=False),
)
APPLY = "application/apply-patch+yaml"
VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete", "GET": "get"}


@dataclass(frozen=True)
class Asked:
    """One request, taken apart."""

    resource: Resource
    verb: str
    namespace: str
    name: str
    subresource: str


class FakeApi:
    """Serves on loopback between `start` and `stop`. Faults are added with `fail`; `calls` lists (verb, plural)."""

    def __init__(self, tls: ssl.SSLContext | None = None, token: str | None = None) -> None:
        self.store = Store()
        self.faults: list[Fault] = []
        self.calls: list[tuple[str, str]] = []
        self.denied: set[tuple[str, str]] = set()
        self.token = token
        self.host = ""
        self._tls = tls
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._snapshots: dict[str, tuple[str, list[Object]]] = {}
        self._stopping = asyncio.Event()
        self._released = asyncio.Event()
        self._runner: web.ServerRunner | None = None
        self.port = 0
        for resource in BUILT_IN:
            self.serve(resource)
        for name in ("default", "kube-system"):
            self.store.create(self._of(objects.NAMESPACES), "", {"metadata": {"name": name}}, Write("fake"))

    def serve(self, resource: Resource) -> None:
        """As a CRD does: from now on this kind exists."""
        self._resources[resource.kind.group, resource.kind.version, resource.kind.plural] = resource

    def fail(self, fault: Fault) -> Fault:
        """Let the next calls that meet it fail."""
        self.faults.append(fault)
        return fault

    def expire(self) -> None:
        """Let all continue tokens and all resourceVersions given until now be too old."""
        self._snapshots.clear()
        self.store.compact()

    def end_watches(self) -> None:
        """As an API server that restarts does."""
        for watcher in self.store.watchers:
            watcher.put_nowait(None)

    def release(self) -> None:
        """Let the answers come that are held."""
        self._released.set()

    def bookmark(self) -> None:
        """Send a bookmark on every watch now; a real server does it once a minute."""
        for watcher in self.store.watchers:
            watcher.put_nowait(Happened(self.store.version, self._of(objects.PODS), "BOOKMARK", {}, None))

    def count(self, *verbs: str) -> int:
        return sum(verb in verbs for verb, _ in self.calls)

    async def start(self) -> None:
        """On the same port again after a `stop`."""
        self._stopping = asyncio.Event()
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.host = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        self._stopping.set()
        self._released.set()
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, **user: str) -> dict[str, Any]:
        """A kubeconfig with one context, `fake`."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.host}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
            "users": [{"name": "me", "user": user}],
        }

    def _of(self, kind: Kind) -> Resource:
        return self._resources[kind.group, kind.version, kind.plural]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.token and request.headers.get("Authorization", "").lower() != f"bearer {self.token}".lower():
            return web.json_response(status(401, "Unauthorized", "Unauthorized"), status=401)
        if request.path == "/version":
            asked = None
            verb, plural = "version", "version"
        elif self._kinds_at(request.path):
            asked = None
            verb, plural = "discover", "apiresources"
        else:
            try:
                asked = self._take_apart(request)
            except (KeyError, IndexError):
                return web.Response(status=404, text="404 page not found\n")
            verb, plural = asked.verb, asked.resource.kind.plural
        self.calls.append((verb, plural))
        if (verb, plural) in self.denied and request.headers.get("Authorization"):
            denied = status(403, "Forbidden", f'{plural} is forbidden: User "restricted" cannot {verb} resource')
            return web.json_response(denied, status=403)
        fault = next((each for each in self.faults if each.meets(verb, plural)), None)
        if fault is not None:
            fault.take()
            return await self._failing(request, asked, fault)
        return await self._answer(request, asked)

    async def _failing(self, request: Any, asked: Asked | None, fault: Fault) -> web.StreamResponse:
        answer: web.StreamResponse | None = None
        if fault.applied or fault.what in {"truncate", "slow"}:
            answer = await self._answer(request, asked) if asked is None or asked.verb != "watch" else None
        body = (
            answer.body if isinstance(answer, web.Response) and isinstance(answer.body, bytes) else b'{"type":"ADDED",'
        )
        headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after is not None else {}
        if fault.what == "hold":
            self._released.clear()
            await self._released.wait()
            return await self._answer(request, asked)
        if fault.what == "hang":
            await self._stopping.wait()
            return await reset(request)
        if fault.what == "reset":
            return await reset(request)
        if fault.what == "truncate":
            return await cut(request, body, len(body))
        if fault.what == "slow":
            return await in_pieces(request, body)
        if fault.what == "close":
            return web.Response(headers={"Content-Type": "application/json"})
        if fault.what == "html":
            return web.Response(status=fault.code, text=PAGE, content_type="text/html", headers=headers)
        if fault.what == "text":
            return web.Response(status=fault.code, text=fault.body, headers=headers)
        assert fault.what == "status", fault.what
        body_ = status(fault.code, fault.reason, fault.message)
        return web.json_response(body_, status=fault.code, headers=headers)

    def _kinds_at(self, path: str) -> list[Kind]:
        """The kinds of a group and version whose own path this is."""
        kinds = [resource.kind for resource in self._resources.values()]
        return [kind for kind in kinds if path == f"/api{'s' if kind.group else ''}/{kind.api_version}"]

    def _discovered(self, path: str) -> Object:
        rows = [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced} for each in self._kinds_at(path)
        ]
        below = [{**row, "name": f"{row['name']}/status"} for row in rows]
        found = {"kind": "APIResourceList", "groupVersion": path.rpartition("api")[2]}
        return {**found, "resources": [*below, *rows]}

    def _take_apart(self, request: web.BaseRequest) -> Asked:
        """Raises KeyError for a path that is not served."""
        parts = request.path.strip("/").split("/")
        group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and (group, version, rest[2]) in self._resources:
            namespace, rest = rest[1], rest[2:]
        if rest[0] == "selfsubjectaccessreviews":
            return Asked(Resource(objects.ACCESS_REVIEWS), "create", "", "", "")
        resource = self._resources[group, version, rest[0]]
        name, subresource = (*rest[1:], "", "")[:2]
        verb = VERBS.get(request.method, "patch")
        if request.method == "GET" and not name:
            verb = "watch" if request.query.get("watch") == "true" else "list"
        if request.content_type == APPLY:
            verb = "apply"
        return Asked(resource, verb, namespace, name, subresource)

    async def _answer(self, request: Any, asked: Asked | None) -> web.StreamResponse:
        if asked is None and request.path != "/version":
            return web.json_response(self._discovered(request.path))
        if asked is None:
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
        try:
            if asked.verb == "watch":
                return await self._watch(request, asked)
            body = read_body(await request.read(), asked.verb == "apply") if request.can_read_body else {}
            code, found = self._do(request, asked, body)
        except Refused as refused:
            return web.json_response(refused.body, status=refused.code)
        return web.json_response(found, status=code)

    def _do(self, request: Any, asked: Asked, body: Any) -> tuple[int, Object]:
        manager = request.query.get("fieldManager", "unknown")
        write = Write(manager, subresource=asked.subresource, strict=request.query.get("fieldValidation") == "Strict")
        where = (asked.resource, asked.namespace, asked.name)
        if asked.resource.kind == objects.ACCESS_REVIEWS:
            return 201, self._review(body, bool(request.headers.get("Authorization")))
        if asked.verb == "list":
            return 200, self._list(request, asked)
        if asked.subresource == "scale":
            return 200, self._scale(asked, body, write)
        if asked.verb == "get":
            return 200, self.store.get(*where)
        if asked.verb == "create":
            return 201, self.store.create(asked.resource, asked.namespace, body, write)
        if asked.verb == "delete":
            self.store.delete(*where, (body.get("preconditions") or {}).get("uid"))
            return 200, status(200, "", "deleted")
        if asked.verb == "update":
            return 200, self.store.update(*where, body, write)
        if asked.verb == "apply":
            force = request.query.get("force") == "true"
            new = (asked.resource.kind.plural, asked.namespace, asked.name) not in self.store.objects
            write = Write(manager, "Apply", asked.subresource, force, write.strict)
            return 201 if new else 200, self.store.apply(*where, body, write)
        present = self.store.get(*where)
        patch = json_patch if isinstance(body, list) else merge_patch
        meta = body.get("metadata", {}) if isinstance(body, dict) else {}
        patched = patch(present, body)
        if "resourceVersion" not in meta:
            patched["metadata"].pop("resourceVersion", None)
        return 200, self.store.update(*where, patched, write)

    def _scale(self, asked: Asked, body: Object, write: Write) -> Object:
        """The scale of a workload: read, or changed by a merge patch of its replicas."""
        where = (asked.resource, asked.namespace, asked.name)
        found = self.store.get(*where)
        if asked.verb == "patch":
            version = (body.get("metadata") or {}).get("resourceVersion")
            changed = {**found, "spec": merge_patch(found["spec"], {"replicas": body["spec"]["replicas"]})}
            changed["metadata"] = {**found["metadata"], "resourceVersion": version or ""}
            found = self.store.update(*where, changed, Write(write.manager, subresource="", strict=write.strict))
        labels = (found["spec"].get("selector") or {}).get("matchLabels") or {}
        status: Object = {"replicas": (found.get("status") or {}).get("replicas", 0)}
        status |= {"selector": ",".join(f"{key}={value}" for key, value in labels.items())}
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        meta = {key: found["metadata"][key] for key in kept}
        spec = {"replicas": replicas} if (replicas := found["spec"].get("replicas", 1)) else {}
        return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}

    def _review(self, body: Object, restricted: bool) -> Object:
        asked = body["spec"]["resourceAttributes"]
        what = asked["resource"] + ("/" + asked["subresource"] if asked.get("subresource") else "")
        allowed = not restricted or (asked["verb"], what) not in self.denied
        reason = "" if allowed else "made to be denied"
        return {**body, "metadata": {}, "status": {"allowed": allowed, "reason": reason}}

    def _list(self, request: Any, asked: Asked) -> Object:
        token = request.query.get("continue")
        if token:
            key, start = json.loads(base64.urlsafe_b64decode(token))
            if key not in self._snapshots:
                raise Refused(410, "Expired", "The provided continue parameter is too old to display a consistent list")
            version, rows = self._snapshots[key]
        else:
            key, start, version = str(len(self._snapshots) + self.store.version * 1000), 0, str(self.store.version)
            rows = [row for row in self.store.select(asked.resource, asked.namespace) if chosen(request.query, row)]
        limit = int(request.query.get("limit", "0"))
        page = rows[start : start + limit] if limit else rows[start:]
        meta: Object = {"resourceVersion": version}
        if limit and start + limit < len(rows):
            self._snapshots[key] = (version, rows)
            meta["continue"] = base64.urlsafe_b64encode(json.dumps([key, start + limit]).encode()).decode()
            meta["remainingItemCount"] = len(rows) - start - limit
        kind = asked.resource.kind
        items = [{key: value for key, value in row.items() if key not in {"kind", "apiVersion"}} for row in page]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}

    async def _watch(self, request: Any, asked: Asked) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        since = int(request.query.get("resourceVersion") or "0")
        news: asyncio.Queue[Happened | None] = asyncio.Queue()
        for happened in self.store.history:
            if happened.version > since:
                news.put_nowait(happened)
        self.store.watchers.add(news)
        try:
            await response.prepare(request)
            if since < self.store.compacted:
                gone = status(410, "Expired", f"too old resource version: {since} ({self.store.compacted})")
                await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                return response
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", "300"))):
                while (happened := await news.get()) is not None:
                    line = self._line(request, asked, happened)
                    if line is not None:
                        await response.write(json.dumps(line).encode() + b"\n")
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self.store.watchers.discard(news)
        return response

    def _line(self, request: Any, asked: Asked, happened: Happened) -> Object | None:
        kind = asked.resource.kind
        if happened.type == "BOOKMARK":
            obj: Object = {"kind": kind.kind, "apiVersion": kind.api_version}
            return {"type": "BOOKMARK", "object": {**obj, "metadata": {"resourceVersion": str(happened.version)}}}
        inside = happened.obj["metadata"].get("namespace", "")
        if happened.resource.kind != kind or asked.namespace not in {"", inside}:
            return None
        was = happened.old is not None and chosen(request.query, happened.old)
        now = happened.type != "DELETED" and chosen(request.query, happened.obj)
        if not was and not now:
            return None
        type_ = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
        return {"type": type_, "object": copy.deepcopy(happened.obj)}
