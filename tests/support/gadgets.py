"""A kind of our own for tests of the Kubernetes parts: as a CRD for the real API server, and as the fake serves it."""

from __future__ import annotations

from typing import Any

from prefillgate.kube.objects import Kind
from tests.support.fake_api import Resource

GADGETS = Kind("test.prefillgate.io", "v1", "gadgets", "Gadget")
LARGEST = 10
FIELDS = {"spec": {"size", "note"}, "status": {"conditions", "decision", "counts"}}

CONDITION = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        **{name: {"type": "string"} for name in ("type", "status", "reason", "message")},
        "observedGeneration": {"type": "integer"},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"size": {"type": "integer", "maximum": LARGEST}, "note": {"type": "string"}},
        },
        "status": {
            "type": "object",
            "properties": {
                "decision": {"type": "string"},
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
                "conditions": {
                    "type": "array",
                    "items": CONDITION,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
            },
        },
    },
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{GADGETS.plural}.{GADGETS.group}"},
    "spec": {
        "group": GADGETS.group,
        "scope": "Namespaced",
        "names": {"plural": GADGETS.plural, "singular": "gadget", "kind": GADGETS.kind},
        "versions": [
            {
                "name": GADGETS.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {"status": {}},
            }
        ],
    },
}


def _check(obj: dict[str, Any]) -> list[tuple[str, str]]:
    size = obj.get("spec", {}).get("size", 0)
    return [("spec.size", f"should be less than or equal to {LARGEST}")] if size > LARGEST else []


def _unknown(obj: dict[str, Any]) -> list[str]:
    return [f"{part}.{name}" for part, known in FIELDS.items() for name in obj.get(part) or {} if name not in known]


SERVED = Resource(GADGETS, check=_check, unknown=_unknown)


def gadget(name: str, space: str, size: int = 1, **labels: str) -> dict[str, Any]:
    """A Gadget as somebody would create it."""
    metadata: dict[str, Any] = {"name": name, "namespace": space}
    return {"metadata": {**metadata, "labels": labels} if labels else metadata, "spec": {"size": size}}
