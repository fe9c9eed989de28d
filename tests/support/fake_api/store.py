"""The objects of the fake API server: versions, history, conflicts, generations, finalizers, field owners."""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from prefillgate.kube.objects import Kind
from tests.support.fake_api import ownership
from tests.support.fake_api.faults import status

Object = dict[str, Any]
CONDITIONS = {("status", "conditions"): ("type",)}


@dataclass(frozen=True)
class Resource:
    """One kind as the fake serves it. `check(obj)` gives (field, message) of what is invalid, `unknown(obj)` the paths
    of fields that do not exist."""

    kind: Kind
    status: bool = True
    map_lists: ownership.MapLists = field(default_factory=lambda: dict(CONDITIONS))
    check: Callable[[Object], list[tuple[str, str]]] = lambda _: []
    unknown: Callable[[Object], list[str]] = lambda _: []


@dataclass(frozen=True)
class Happened:
    """One change, with the object before and after."""

    version: int
    resource: Resource
    type: str
    obj: Object
    old: Object | None


@dataclass(frozen=True)
class Write:
    """Who writes, how, and to which subresource."""

    manager: str
    operation: str = "Update"
    subresource: str = ""
    force: bool = False
    strict: bool = False


class Refused(Exception):
    """An answer that is not 2xx, as a Status."""

    def __init__(self, code: int, reason: str, message: str, **details: object) -> None:
        self.code = code
        self.body = status(code, reason, message, **details)
        super().__init__(message)


class Store:
    """Objects by (plural, namespace, name), and everything that happened to them since `compacted`."""

    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.history: list[Happened] = []
        self.watchers: set[asyncio.Queue[Happened | None]] = set()

    def compact(self) -> None:
        """Forget what happened up to now: watches from before it are told 410."""
        self.compacted = self.version
        self.history.clear()

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        found = self.objects.get((resource.kind.plural, namespace, name))
        if found is None:
            plural = resource.kind.plural
            raise Refused(404, "NotFound", f'{plural} "{name}" not found', name=name, kind=plural)
        return copy.deepcopy(found)

    def select(self, resource: Resource, namespace: str) -> list[Object]:
        keys = sorted(key for key in self.objects if key[0] == resource.kind.plural and namespace in {"", key[1]})
        return [copy.deepcopy(self.objects[key]) for key in keys]

    def create(self, resource: Resource, namespace: str, obj: Object, write: Write) -> Object:
        name = str(obj.get("metadata", {}).get("name", ""))
        if not name:
            raise Refused(422, "Invalid", "metadata.name: Required value: name or generateName is required")
        if namespace and ("namespaces", "", namespace) not in self.objects:
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found')
        if namespace and self.objects["namespaces", "", namespace]["metadata"].get("deletionTimestamp"):
            told = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": told, "field": "metadata.namespace"}
            message = f'{resource.kind.plural} "{name}" is forbidden: unable to create new content since {told}'
            raise Refused(403, "Forbidden", message, causes=[cause])
        if (resource.kind.plural, namespace, name) in self.objects:
            plural = resource.kind.plural
            raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists', name=name, kind=plural)
        new = copy.deepcopy(obj)
        if obj["metadata"].get("resourceVersion"):
            raise Refused(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        if resource.status and not write.subresource:
            new.pop("status", None)
        self._valid(resource, new, write)
        new["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now(), "generation": 1}
        new["metadata"] |= {"namespace": namespace} if namespace else {}
        new["metadata"].pop("managedFields", None)
        self._own(resource, {}, new, write)
        return self._commit(resource, namespace, name, "ADDED", new, None)

    def update(self, resource: Resource, namespace: str, name: str, new: Object, write: Write) -> Object:
        """Put `new` in place of what is there: its resourceVersion and uid, where given, must be the present ones."""
        old = self.get(resource, namespace, name)
        meta = new.setdefault("metadata", {})
        self._still(resource, old, name, meta, write)
        merged = self._part(resource, old, new, write)
        self._valid(resource, merged, write)
        return self._replace(resource, namespace, name, old, merged, write)

    def apply(self, resource: Resource, namespace: str, name: str, applied: Object, write: Write) -> Object:
        key = (resource.kind.plural, namespace, name)
        meta = applied.get("metadata", {})
        if meta.get("managedFields"):
            raise Refused(400, "BadRequest", "metadata.managedFields must be nil")
        if key not in self.objects:
            if write.subresource:
                self.get(resource, namespace, name)
            if meta.get("uid"):  # ditto for what is no longer there
                raise Refused(409, "Conflict", f'{key[0]} "{name}": uid mismatch: the object does not exist')
            return self.create(resource, namespace, applied, write)
        old = self.get(resource, namespace, name)
        self._still(resource, old, name, meta, write)
        part = {key: value for key, value in applied.items() if key != "status" or write.subresource == "status"}
        if write.subresource == "status":
            part = {key: value for key, value in part.items() if key == "status"}
        elif not resource.status and "status" in applied:
            part["status"] = applied["status"]
        new = self._applied(resource, old, part, write)
        self._valid(resource, new, write)
        return self._replace(resource, namespace, name, old, new, write, part)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str | None) -> Object:
        old = self.get(resource, namespace, name)
        if uid and uid != old["metadata"]["uid"]:
            raise Refused(409, "Conflict", f'Precondition failed: UID in precondition: {uid}, not "{name}"\'s')
        if old["metadata"].get("finalizers"):
            old["metadata"].setdefault("deletionTimestamp", _now())
            return self._commit(resource, namespace, name, "MODIFIED", old, self.get(resource, namespace, name))
        del self.objects[resource.kind.plural, namespace, name]
        return self._commit(resource, namespace, name, "DELETED", old, copy.deepcopy(old))

    def _still(self, resource: Resource, old: Object, name: str, meta: Object, write: Write) -> None:
        plural = resource.kind.plural
        # as the real one: the uid is no precondition of a status, the resourceVersion is
        if not write.subresource and meta.get("uid") not in {None, "", old["metadata"]["uid"]}:
            raise Refused(409, "Conflict", f'{plural} "{name}": Precondition failed: UID in precondition', name=name)
        if meta.get("resourceVersion") not in {None, "", old["metadata"]["resourceVersion"]}:
            message = (
                f'{plural} "{name}": the object has been modified; please apply your changes to the latest version'
            )
            raise Refused(409, "Conflict", message, name=name, kind=plural)

    def _part(self, resource: Resource, old: Object, new: Object, write: Write) -> Object:
        """What a write may change: the status alone through its subresource, all but the status otherwise."""
        if write.subresource == "status":
            return {**old, "status": new.get("status", {})}
        kept = {key: old["metadata"][key] for key in ("uid", "creationTimestamp", "generation")}
        for key in ("namespace", "deletionTimestamp", "managedFields"):
            if key in old["metadata"]:
                kept[key] = old["metadata"][key]
        merged = {**new, "metadata": {**new["metadata"], **kept, "name": old["metadata"]["name"]}}
        if resource.status:
            merged.pop("status", None)
            merged |= {"status": old["status"]} if "status" in old else {}
        return merged

    def _applied(self, resource: Resource, old: Object, part: Object, write: Write) -> Object:
        wanted = ownership.leaves(part, resource.map_lists)
        present = ownership.leaves(old, resource.map_lists)
        mine, others = self._owners(old, write)
        clashes = [
            (entry["manager"], path)
            for entry, paths in others
            for path in sorted(paths & wanted.keys())
            if path in present and present[path] != wanted[path]
        ]
        if clashes and not write.force:
            causes = [
                {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}"', "field": _dotted(path)}
                for manager, path in clashes
            ]
            raise Refused(409, "Conflict", f"Apply failed with {len(clashes)} conflict(s)", causes=causes)
        new = copy.deepcopy(old)
        theirs: set[ownership.Path] = set().union(*(paths for _, paths in others)) if others else set()
        for path in sorted(mine - wanted.keys() - theirs, key=lambda each: (each[-1] == ownership.ITEM, each)):
            ownership.remove(new, path)
        for path, value in wanted.items():
            ownership.put(new, path, value)
        return new

    def _owners(
        self, old: Object, write: Write
    ) -> tuple[set[ownership.Path], list[tuple[Object, set[ownership.Path]]]]:
        mine: set[ownership.Path] = set()
        others = []
        for entry in old["metadata"].get("managedFields", ()):
            paths = ownership.decode(entry["fieldsV1"])
            if _same(entry, write):
                mine = paths
            else:
                others.append((entry, paths))
        return mine, others

    def _own(self, resource: Resource, old: Object, new: Object, write: Write, part: Object | None = None) -> None:
        """Write down who owns what now: the writer what it changed (or applied), the others what is left of theirs."""
        before = ownership.leaves(old, resource.map_lists)
        now = ownership.leaves(new, resource.map_lists)
        changed = {path for path, value in now.items() if path not in before or before[path] != value}
        entries = []
        own: set[ownership.Path] = set()
        for entry in old.get("metadata", {}).get("managedFields", ()):
            paths = ownership.decode(entry["fieldsV1"]) & now.keys()
            if _same(entry, write):
                own = paths
            elif paths - changed:
                entries.append({**entry, "fieldsV1": ownership.encode(paths - changed)})
        own = ownership.leaves(part, resource.map_lists).keys() if part is not None else own | changed  # type: ignore[assignment]
        if own:
            entry = {"manager": write.manager, "operation": write.operation, "time": _now(), "fieldsType": "FieldsV1"}
            entry |= {"apiVersion": resource.kind.api_version, "fieldsV1": ownership.encode(set(own))}
            entries.append({**entry, "subresource": write.subresource} if write.subresource else entry)
        new["metadata"]["managedFields"] = entries

    def _replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        old: Object,
        new: Object,
        write: Write,
        part: Object | None = None,
    ) -> Object:
        self._own(resource, old, new, write, part)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if _content(new) == _content(old):
            return self.get(resource, namespace, name)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        if old["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            del self.objects[resource.kind.plural, namespace, name]
            return self._commit(resource, namespace, name, "DELETED", new, old)
        return self._commit(resource, namespace, name, "MODIFIED", new, old)

    def _commit(
        self, resource: Resource, namespace: str, name: str, type_: str, obj: Object, old: Object | None
    ) -> Object:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        obj.setdefault("apiVersion", resource.kind.api_version)
        obj.setdefault("kind", resource.kind.kind)
        if type_ != "DELETED":
            self.objects[resource.kind.plural, namespace, name] = copy.deepcopy(obj)
        happened = Happened(self.version, resource, type_, copy.deepcopy(obj), old)
        self.history.append(happened)
        for watcher in self.watchers:
            watcher.put_nowait(happened)
        return obj

    def _valid(self, resource: Resource, obj: Object, write: Write) -> None:
        unknown = resource.unknown(obj) if write.strict else []
        if unknown:
            message = "strict decoding error: " + ", ".join(f'unknown field "{path}"' for path in unknown)
            raise Refused(400, "BadRequest", message)
        wrong = resource.check(obj)
        if wrong:
            name = obj.get("metadata", {}).get("name")
            said = ", ".join(f"{path}: Invalid value: {message}" for path, message in wrong)
            causes = [{"reason": "FieldValueInvalid", "message": message, "field": path} for path, message in wrong]
            raise Refused(422, "Invalid", f'{resource.kind.kind} "{name}" is invalid: {said}', causes=causes)


def _same(entry: Object, write: Write) -> bool:
    mine = (write.manager, write.operation, write.subresource)
    return (entry["manager"], entry["operation"], entry.get("subresource", "")) == mine


def _content(obj: Object) -> str:
    """All that a change is judged by: times of owners are none."""
    meta = obj["metadata"]
    owners = [{key: value for key, value in each.items() if key != "time"} for each in meta.get("managedFields", ())]
    owners.sort(key=lambda each: (each["manager"], each["operation"], each.get("subresource", "")))
    return json.dumps({**obj, "metadata": {**meta, "managedFields": owners}}, sort_keys=True)


def _dotted(path: ownership.Path) -> str:
    return "".join(f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]" for step in path)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
