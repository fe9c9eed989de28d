"""A pod of a profile outside every Service: its body, made of the recorded template. Pure."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefillgate.api.kinds.names import APART_LABEL, APART_TERM, API_VERSION, LINE_LABEL, LONGEST_LINE_NAME, SCRATCH
from prefillgate.app.orders import Asked, Unusable, short
from prefillgate.kube.objects import REPLICA_SETS, Kind, Object, Query

CONTROLLER_REVISIONS = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
_KEPT = {each.kind: each for each in (REPLICA_SETS, CONTROLLER_REVISIONS)}
_OURS_ALONE = ("nodeName", "readinessGates", "schedulingGates", "hostname", "subdomain")
# A gate is set by whoever owns it for pods of his workload: this one would never be Ready.


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where the template of a profile is kept."""

    kind: Kind
    name: str
    uid: str | None

    def query(self, namespace: str) -> Query:
        """What asks for it with the rights that the controller has anyway."""
        return Query(self.kind, namespace, fields=f"metadata.name={self.name}")


def recorded_template(asked: Asked, digest: str) -> Recorded:
    """Where a profile's template is kept. Raises `Unusable` where nothing that keeps it is known."""
    found = [each.template for each in asked.snapshot.slots if each.profile.digest == digest]
    told = [each for each in found if each is not None]
    refs: list[Mapping[str, Any]] = [each.model_dump(by_alias=True) for each in told]
    status = asked.snapshot.line.get("status") or {}
    for name in ("promotedProfile", "previousProfile"):
        profile = status.get(name) or {}
        if profile.get("digest") == digest and profile.get("template"):
            refs.append(profile["template"])
    for ref in refs:
        kind = _KEPT.get(str(ref.get("kind")))
        if kind is not None:
            return Recorded(kind, str(ref.get("name")), ref.get("uid"))
    raise Unusable(
        f"no pod of {short(digest)} can be made: no ReplicaSet or ControllerRevision is known that keeps its template "
        "(allowed for Scratch: a Deployment or a StatefulSet)"
    )


def template_in(kept: Object) -> Mapping[str, Any]:
    """The pod template in the object that keeps it. Raises `Unusable`."""
    held: Any = kept.get("data") if kept.get("kind") == "ControllerRevision" else kept
    spec = held.get("spec") if isinstance(held, dict) else None
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise Unusable(f"{kept.get('kind')} {kept.get('metadata', {}).get('name')} holds no pod template")
    return template


def scratch_name(line: str, work: str, digest: str) -> str:
    """The name of the pod of a piece of work: the same after a kill."""
    known = hashlib.sha256(f"{work}\0{digest}".encode()).hexdigest()[:8]
    return f"{line[:LONGEST_LINE_NAME].rstrip('.-')}-scratch-{known}"


def scratch_pod(asked: Asked, digest: str, template: Mapping[str, Any], token: int) -> Object:
    """The pod, made in the term of `token`.

    It has no label of the template, so no Service selects it and no ReplicaSet takes it for its own.
    """
    metadata = asked.snapshot.line["metadata"]
    spec = copy.deepcopy({key: value for key, value in template["spec"].items() if key not in _OURS_ALONE})
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": scratch_name(metadata["name"], asked.order.key, digest),
            "namespace": metadata["namespace"],
            "labels": {APART_LABEL: SCRATCH, LINE_LABEL: metadata["name"][:63].rstrip(".-")},
            "annotations": {**annotations, APART_TERM: str(token)},
            "ownerReferences": [owner_of(asked)],
        },
        "spec": spec,
    }


def owner_of(asked: Asked) -> Object:
    """Who goes, goes with his pod: the rollout; of a floor and a watch the line."""
    things = {str(each.thing["metadata"]["uid"]): each.thing["metadata"] for each in asked.snapshot.rollouts}
    mine = things.get(asked.order.key)
    kind, owner = ("ProfileRollout", mine) if mine is not None else ("ServingLine", asked.snapshot.line["metadata"])
    return {"apiVersion": API_VERSION, "kind": kind, "name": owner["name"], "uid": owner["uid"]}
