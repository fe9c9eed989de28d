"""What is kept of an object that a reflector sees: what a look reads of it, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from prefillgate.kube.objects import Object, lean, metadata
from prefillgate.reconcile.override_words import owners_of

Trim = Callable[[Object], Object]

TEMPLATE_DIGEST = "templateDigest"  # beside a ReplicaSet's metadata: which template it was made of
DATA_DIGEST = "dataDigest"  # beside a ConfigMap's metadata, in place of its data
CHANGED_AT = "changedAt"  # when that was written last, as far as it is told
FAMILY = "addressType"  # of an EndpointSlice, as it is written there
HASH_LABEL = "pod-template-hash"
_META = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
_POD_STATUS: tuple[str, ...] = ("phase", "podIP", "startTime", "reason", "message")
TEMPLATED = ("ReplicaSet", "StatefulSet")  # owners whose template is kept, so that the pod's own spec need not be


def own_kind(obj: Object) -> Object:
    """Of our own kinds: everything but what the API server keeps for itself, and of that who wrote an override."""
    kept, owners = lean(obj), owners_of(obj)
    return {**kept, "metadata": {**metadata(kept), "managedFields": owners}} if owners else kept


def stub(obj: Object) -> Object:
    """Name, namespace, uid and version alone: of what is of no line."""
    found = metadata(obj)
    return {"metadata": {key: found[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in found}}


def is_stub(obj: Mapping[str, Any]) -> bool:
    """Whether nothing but the name was kept."""
    return "kind" not in obj


def config_map(obj: Object) -> Object:
    """Which version it is, the digest of its data and when that was written last; never the data."""
    kept: Object = {"kind": "ConfigMap", "metadata": _meta(obj), CHANGED_AT: data_changed_at(obj)}
    return {**kept, DATA_DIGEST: _sha256([_of(obj, "data"), _of(obj, "binaryData")])}


def pod(obj: Object) -> Object:
    """Whose it is, its ports, its conditions and the states of its containers; the whole spec where no ReplicaSet or
    StatefulSet has its template."""
    meta = _meta(obj, "labels", "ownerReferences")
    owner = controller(obj)
    spec = _of(obj, "spec")
    if owner is not None and owner.get("kind") in TEMPLATED:
        containers = [
            {"name": each.get("name"), "ports": each.get("ports") or []} for each in _each(spec, "containers")
        ]
        spec = {"containers": containers}
    if owner is None or owner.get("kind") not in TEMPLATED:
        meta = _meta(obj, "labels", "ownerReferences", "annotations")
    status = _of(obj, "status")
    kept: Object = {key: status[key] for key in _POD_STATUS if key in status}
    for key in ("conditions", "containerStatuses", "initContainerStatuses"):
        kept[key] = list(_each(status, key))
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": kept}


def replica_set(obj: Object) -> Object:
    """Its template while it has pods or nobody else has it; always the template's digest."""
    spec = _of(obj, "spec")
    kept: Object = {"kind": "ReplicaSet", "metadata": _meta(obj, "ownerReferences")}
    kept[TEMPLATE_DIGEST] = template_digest(_of(spec, "template"))
    if spec.get("replicas") or _of(obj, "status").get("replicas") or controller(obj) is None:
        kept["spec"] = {"template": spec.get("template")}
    return kept


def workload(obj: Object) -> Object:
    """Spec and status, annotations that may hold checksums, labels and owners."""
    kept = lean(obj)
    return {**kept, "metadata": _meta(kept, "ownerReferences", "labels", "annotations")}


def controller_revision(obj: Object) -> Object:
    """Its data where a StatefulSet owns it; DaemonSets have revisions too."""
    owner = controller(obj)
    kept: Object = {"kind": "ControllerRevision", "metadata": _meta(obj, "ownerReferences")}
    if owner is not None and owner.get("kind") == "StatefulSet":
        kept["data"] = obj.get("data")
    return kept


def endpoint_slice(obj: Object) -> Object:
    """Addresses and their family, ports, and which Service they are of."""
    kept: Object = {"kind": "EndpointSlice", "metadata": _meta(obj, "labels"), FAMILY: obj.get(FAMILY)}
    return {**kept, "ports": list(_each(obj, "ports")), "endpoints": list(_each(obj, "endpoints"))}


def controller(obj: Mapping[str, Any]) -> Object | None:
    """The controlling owner of an object; None where it has none."""
    owners = metadata(obj).get("ownerReferences")
    return next((each for each in owners or () if isinstance(each, dict) and each.get("controller")), None)


def template_digest(template: Mapping[str, Any]) -> str:
    """Of a pod template without the label that a Deployment's controller adds, in hex."""
    meta = _of(template, "metadata")
    labels = {key: value for key, value in _of(meta, "labels").items() if key != HASH_LABEL}
    plain = {**template, "metadata": {**meta, "labels": labels}}
    plain["metadata"].pop("creationTimestamp", None)
    return _sha256(plain)


def data_changed_at(config_map: Mapping[str, Any]) -> str | None:
    """When the data of a ConfigMap was last written, as its managers tell it; None where it is as it was created."""
    fields = metadata(config_map).get("managedFields")
    times = [
        str(each.get("time"))
        for each in fields or ()
        if isinstance(each, dict) and {"f:data", "f:binaryData"} & set(_of(each, "fieldsV1")) and each.get("time")
    ]
    last = max(times, default=None)
    return None if last is None or last <= str(metadata(config_map).get("creationTimestamp")) else last


def same(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether nothing that is kept has changed but the version."""
    return old is not None and new is not None and _plain(old) == _plain(new)


def _plain(obj: Mapping[str, Any]) -> Object:
    meta = {key: value for key, value in metadata(obj).items() if key not in ("resourceVersion", "generation")}
    return {**obj, "metadata": meta}


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _meta(obj: Mapping[str, Any], *more: str) -> Object:
    found = metadata(obj)
    return {key: found[key] for key in (*_META, *more) if key in found}


def _of(obj: Mapping[str, Any], key: str) -> Object:
    found = obj.get(key)
    return found if isinstance(found, dict) else {}


def _each(obj: Mapping[str, Any], key: str) -> list[Object]:
    found = obj.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
