"""The Kubernetes API in a dozen verbs over plain dicts: list, watch, get, create, apply, replace, patch, delete.

No verb retries: whoever calls knows what may be repeated and when. (The connection pool asks a GET, PUT or DELETE
once more where a connection that it kept turns out to be closed.) Every write names our field manager, and the API
server refuses it if it holds a field that does not exist.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from prefillgate.kube.access import Where, find_access
from prefillgate.kube.bodies import as_yaml
from prefillgate.kube.clock import Clock
from prefillgate.kube.errors import Gone, NotFound, NotJson, from_status
from prefillgate.kube.objects import (
    ACCESS_REVIEWS,
    Change,
    Kind,
    Object,
    Query,
    Ref,
    metadata,
    name_of,
    namespace_of,
    version_of,
)
from prefillgate.kube.transport import Call, CallMade, Limits, Transport

FIELD_MANAGER = "prefillgate"
PAGE = 500
APPLY = "application/apply-patch+yaml; charset=utf-8"  # the charset lets our own bytes through the client library
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
END_OF_WATCH_SECONDS = 30.0  # on top of what was asked for: the server ends a watch by itself


@dataclass(frozen=True, slots=True)
class Listing:
    """What a list found, and the resourceVersion a watch goes on from."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """The answer to a review of access, and why, where the server says."""

    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Action:
    """What one might do: a verb (of RBAC, also a custom one) on a kind, a subresource or one named object of it."""

    verb: str
    kind: Kind
    namespace: str | None = None
    subresource: str = ""
    name: str = ""


class Kube:
    """One API server. Use as an async context manager, or call `close`. Every method raises KubeError."""

    def __init__(self, transport: Transport, field_manager: str = FIELD_MANAGER) -> None:
        self._transport = transport
        self._manager = field_manager

    @classmethod
    async def connect(
        cls,
        where: Where | None = None,
        limits: Limits | None = None,
        on_call: Callable[[CallMade], None] | None = None,
        clock: Clock | None = None,
    ) -> Kube:
        """Find the cluster and its credentials. Nothing is sent yet. Raises AccessError."""
        return cls(Transport(await find_access(where or Where()), limits, on_call, clock))

    @property
    def namespace(self) -> str:
        """The namespace of the context or of the pod."""
        return self._transport.access.namespace

    @property
    def source(self) -> str:
        """Where the credentials come from, in words."""
        return self._transport.access.source

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Kube:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def version(self) -> str:
        """What the API server calls its version, such as `v1.36.3`."""
        call = Call("version", "version", "GET", "/version")
        found = await self._transport.send(call)
        if not isinstance(found.get("gitVersion"), str):
            raise NotJson(f"{call}: an answer without gitVersion; is this an API server?")
        return str(found["gitVersion"])

    async def discover(self, api_version: str, kind: str) -> Kind | None:
        """The kind of that name as the API server serves it; None where the group and version have none of it.

        Raises NotFound where the group and version are not served at all.
        """
        group, _, version = api_version.rpartition("/")
        call = Call("discover", "apiresources", "GET", f"/apis/{group}/{version}" if group else f"/api/{version}")
        found = await self._transport.send(call)
        rows = found.get("resources")
        if not isinstance(rows, list):
            raise NotJson(f"{call}: an answer that is no list of kinds")
        for row in rows:
            if isinstance(row, dict) and row.get("kind") == kind and "/" not in str(row.get("name", "/")):
                return Kind(group, version, str(row["name"]), kind, bool(row.get("namespaced")))
        return None

    async def list(self, query: Query, page: int = PAGE, trim: Callable[[Object], Object] | None = None) -> Listing:
        """All objects of a query, read in pages, of each what `trim` leaves.

        Where the list grew too old between two pages it is read once more, in one piece.
        """
        try:
            return await self._pages(query, page, trim)
        except Gone:
            return await self._pages(query, 0, trim)

    async def _pages(self, query: Query, page: int, trim: Callable[[Object], Object] | None) -> Listing:
        items: list[Object] = []
        go_on = ""
        while True:
            params = {**_selection(query), **({"limit": str(page)} if page else {})}
            params |= {"continue": go_on} if go_on else {}
            call = Call("list", query.kind.plural, "GET", query.kind.path(query.namespace), params)
            found = await self._transport.send(call)
            rows = found.get("items", ())
            if "items" not in found or not isinstance(rows, list | None) or not version_of(found):
                raise NotJson(f"{call}: an answer that is no list of the Kubernetes API")
            typed = (_typed(query.kind, row) for row in rows or () if isinstance(row, dict))
            items += typed if trim is None else map(trim, typed)
            go_on = str(metadata(found).get("continue") or "")
            if not go_on:
                return Listing(items, version_of(found))

    async def watch(self, query: Query, since: str, timeout_seconds: int) -> AsyncGenerator[Change]:
        """The changes after `since`, as they come, until the server ends it after about `timeout_seconds`.

        Close it (`contextlib.aclosing`) when leaving early. Raises KubeError: Gone means that `since` is too old.
        """
        params = {**_selection(query), "watch": "true", "allowWatchBookmarks": "true"}
        params |= {"resourceVersion": since, "timeoutSeconds": str(timeout_seconds)}
        call = Call("watch", query.kind.plural, "GET", query.kind.path(query.namespace), params)
        async with aclosing(self._transport.lines(call, timeout_seconds + END_OF_WATCH_SECONDS)) as lines:
            async for line in lines:
                yield _change(call, query.kind, line)

    async def get(self, ref: Ref, subresource: str | None = None) -> Object:
        call = Call("get", ref.kind.plural, "GET", ref.path(subresource))
        return _object(call, await self._transport.send(call))

    async def find(self, ref: Ref) -> Object | None:
        """As `get`, with None for an object that is not there. A kind that is not served raises NotFound."""
        try:
            return await self.get(ref)
        except NotFound as error:
            if error.reason != "NotFound":
                raise
            return None

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Raises AlreadyExists where the name is taken."""
        path = kind.path(namespace_of(obj) if kind.namespaced else None)
        call = Call("create", kind.plural, "POST", path, self._writing(), _full(kind, obj))
        return _object(call, await self._transport.send(call))

    async def replace(self, kind: Kind, obj: Object, subresource: str | None = None) -> Object:
        """Put the whole object. Raises Conflict unless its resourceVersion is still the newest."""
        path = kind.path(namespace_of(obj) if kind.namespaced else None, name_of(obj), subresource)
        call = Call("update", kind.plural, "PUT", path, self._writing(), _full(kind, obj))
        return _object(call, await self._transport.send(call))

    async def apply(self, kind: Kind, obj: Object, subresource: str | None = None, *, force: bool = True) -> Object:
        """Server-side apply of exactly the fields in `obj`: fields we applied before and left out now are removed.

        Raises Conflict without `force` where another manager owns a field.
        """
        path = kind.path(namespace_of(obj) if kind.namespaced else None, name_of(obj), subresource)
        params = {**self._writing(), "force": "true" if force else "false"}
        call = Call("apply", kind.plural, "PATCH", path, params, as_yaml(_full(kind, obj)), APPLY)
        return _object(call, await self._transport.send(call))

    async def merge_patch(self, ref: Ref, patch: Object, subresource: str | None = None) -> Object:
        """With a `metadata.resourceVersion` in the patch it raises Conflict where the object has changed since."""
        call = Call("patch", ref.kind.plural, "PATCH", ref.path(subresource), self._writing(), patch, MERGE_PATCH)
        return _object(call, await self._transport.send(call))

    async def json_patch(self, ref: Ref, patch: Sequence[Object], subresource: str | None = None) -> Object:
        """Operations one after the other, all or none. A `test` that does not hold raises Invalid."""
        body = list(patch)
        call = Call("patch", ref.kind.plural, "PATCH", ref.path(subresource), self._writing(), body, JSON_PATCH)
        return _object(call, await self._transport.send(call))

    async def delete(self, ref: Ref, uid: str | None = None, *, foreground: bool = False) -> bool:
        """Whether there was one to delete. With `uid` it raises Conflict where the name has gone to another object."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        body["propagationPolicy"] = "Foreground" if foreground else "Background"
        body |= {"preconditions": {"uid": uid}} if uid else {}
        call = Call("delete", ref.kind.plural, "DELETE", ref.path(), {}, body)
        try:
            await self._transport.send(call)
        except NotFound as error:
            if error.reason != "NotFound":
                raise
            return False
        return True

    async def review(self, action: Action) -> Allowed:
        """Whether these credentials may do that (SelfSubjectAccessReview)."""
        attributes = {"verb": action.verb, "group": action.kind.group, "version": action.kind.version}
        attributes |= {"resource": action.kind.plural, "namespace": action.namespace or ""}
        attributes |= {"subresource": action.subresource, "name": action.name}
        body = {"spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}}}
        status = (await self.create(ACCESS_REVIEWS, body)).get("status") or {}
        return Allowed(bool(status.get("allowed")), str(status.get("reason") or status.get("evaluationError") or ""))

    def _writing(self) -> dict[str, str]:
        return {"fieldManager": self._manager, "fieldValidation": "Strict"}


def _selection(query: Query) -> dict[str, str]:
    params = {"labelSelector": query.labels, "fieldSelector": query.fields}
    return {key: value for key, value in params.items() if value}


def _full(kind: Kind, obj: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}


def _typed(kind: Kind, row: Object) -> Object:
    """An item of a list with its kind: the API leaves it out of the items of built-in lists."""
    return row if "kind" in row else {"apiVersion": kind.api_version, "kind": kind.kind, **row}


def _object(call: Call, found: Object) -> Object:
    if not isinstance(found.get("kind"), str) or not isinstance(found.get("metadata"), dict):
        raise NotJson(f"{call}: an answer that is no object of the Kubernetes API")
    return found


def _change(call: Call, kind: Kind, line: bytes) -> Change:
    try:
        found: Any = orjson.loads(line)
    except ValueError as error:
        page = " an HTML page" if line.lstrip()[:1] == b"<" else " what is no JSON"
        raise NotJson(f"{call}: the watch gave{page}; is there a proxy or a login before the API server?") from error
    obj = found.get("object") if isinstance(found, dict) else None
    if not isinstance(obj, dict):
        raise NotJson(f"{call}: the watch gave JSON that is no change")
    if found.get("type") == "ERROR":
        raise from_status(str(call), obj)
    if found.get("type") not in CHANGES or not version_of(obj):
        raise NotJson(f"{call}: the watch gave a change without a type or a resourceVersion")
    return Change(str(found["type"]), _typed(kind, obj))
