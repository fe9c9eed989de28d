"""What kinds of objects there are, how one is named, and how a dict of the API is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from prefillgate.api.kinds import names

Object = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object: API group (empty for core), version, plural in paths, name, whether it is namespaced."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of a collection, an object or a subresource. Without a namespace it is the collection of all.

        Raises ValueError for the name of a namespaced object without a namespace, and for a part that is no name.
        """
        if self.namespaced and name is not None and namespace is None:
            raise ValueError(f"{self.kind} {name}: an object of this kind stands in a namespace")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = ["namespaces", namespace] if self.namespaced and namespace is not None else []
        parts += [self.plural, *([name] if name is not None else []), *([subresource] if subresource else [])]
        if any(part in {"", ".", ".."} for part in parts):
            raise ValueError(f"{self.kind}: {parts!r} holds an empty name or one that is a path")
        return "/".join([root, *(quote(str(part), safe="") for part in parts)])


@dataclass(frozen=True, slots=True)
class Ref:
    """One object: its kind, name and, where the kind is namespaced, its namespace."""

    kind: Kind
    name: str
    namespace: str | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone: the key of caches and queues."""
        return f"{self.namespace}/{self.name}" if self.kind.namespaced else self.name

    def path(self, subresource: str | None = None) -> str:
        return self.kind.path(self.namespace, self.name, subresource)

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Query:
    """Which objects of a kind: those of a namespace (None: of all), with these labels and fields (as in kubectl)."""

    kind: Kind
    namespace: str | None = None
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a watch: `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`, and the object as it then was."""

    type: str
    object: Object


def _ours(of: names.KindNames) -> Kind:
    return Kind(names.GROUP, names.VERSION, of.plural, of.kind)


PODS = Kind("", "v1", "pods", "Pod")
SERVICES = Kind("", "v1", "services", "Service")
SECRETS = Kind("", "v1", "secrets", "Secret")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet")
CONTROLLER_REVISIONS = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
JOBS = Kind("batch", "v1", "jobs", "Job")
ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Kind("events.k8s.io", "v1", "events", "Event")
SERVING_LINES = _ours(names.SERVING_LINE)
PROFILE_ROLLOUTS = _ours(names.PROFILE_ROLLOUT)
PROMOTION_POLICIES = _ours(names.PROMOTION_POLICY)
REPLAY_SETS = _ours(names.REPLAY_SET)
ACCESS_REVIEWS = Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)


def metadata(obj: Mapping[str, Any]) -> Object:
    """The metadata of an object, empty where it has none."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(obj: Mapping[str, Any]) -> str:
    return str(metadata(obj).get("name", ""))


def namespace_of(obj: Mapping[str, Any]) -> str | None:
    found = metadata(obj).get("namespace")
    return str(found) if found else None


def key_of(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or the name alone where the object stands in no namespace."""
    namespace = namespace_of(obj)
    return f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)


def uid_of(obj: Mapping[str, Any]) -> str:
    return str(metadata(obj).get("uid", ""))


def version_of(obj: Mapping[str, Any]) -> str:
    """The resourceVersion: equal or not equal, nothing else may be read from it. Empty where there is none."""
    return str(metadata(obj).get("resourceVersion", ""))


def generation_of(obj: Mapping[str, Any]) -> int | None:
    found = metadata(obj).get("generation")
    return found if isinstance(found, int) else None


def annotation(obj: Mapping[str, Any], key: str) -> str | None:
    found = (metadata(obj).get("annotations") or {}).get(key)
    return None if found is None else str(found)


def label(obj: Mapping[str, Any], key: str) -> str | None:
    found = (metadata(obj).get("labels") or {}).get(key)
    return None if found is None else str(found)


def ref_of(kind: Kind, obj: Mapping[str, Any]) -> Ref:
    return Ref(kind, name_of(obj), namespace_of(obj) if kind.namespaced else None)


def condition(obj: Mapping[str, Any], type_: str) -> Object | None:
    """The condition of that type in the object's status, None where it was never set."""
    status = obj.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    return next((each for each in found or () if isinstance(each, dict) and each.get("type") == type_), None)


def owner_of(kind: Kind, obj: Mapping[str, Any]) -> Object:
    """The entry of `metadata.ownerReferences` that makes `obj` the controlling owner of another object."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name_of(obj),
        "uid": uid_of(obj),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def lean(obj: Object) -> Object:
    """The object without what a cache need not keep: managedFields and what kubectl applied last. The usual trim."""
    kept = {key: value for key, value in metadata(obj).items() if key != "managedFields"}
    annotations = kept.get("annotations")
    if isinstance(annotations, dict) and LAST_APPLIED in annotations:
        kept["annotations"] = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return {**obj, "metadata": kept}
