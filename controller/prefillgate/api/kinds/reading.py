"""The spec of an object as it came from an API server, or what is wrong with it, each problem with its field's path.

An API server with our CRDs refuses most of it at admission. What it cannot see is found here, and so is what was stored
before its CRDs were these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from prefillgate.api.errors import PolicyError, Problem
from prefillgate.api.kinds.promotion_policy import not_for_a_cluster
from prefillgate.api.model import WireModel, validate
from prefillgate.api.policy import PolicyDocument, policy_of
from prefillgate.api.policy_model import PolicySpec
from prefillgate.api.strict_yaml import YamlDocument

M = TypeVar("M", bound=WireModel)


def where_of(thing: Mapping[str, Any]) -> str:
    """An object as a person names it: ServingLine NAMESPACE/NAME."""
    metadata = thing.get("metadata", {})
    return f"{thing.get('kind', '')} {metadata.get('namespace', '')}/{metadata.get('name', '')}".strip()


def read_spec(model: type[M], thing: Mapping[str, Any]) -> tuple[M | None, tuple[Problem, ...]]:
    """The object's spec as `model`, or what is wrong with it: fields are named from `spec` on."""
    spec, wrong = validate(model, thing.get("spec", {}))
    where = where_of(thing)
    problems = [Problem(where, f"spec.{p.field}" if p.field else "spec", p.message, p.allowed) for _path, p in wrong]
    if isinstance(spec, PolicySpec):
        problems += [Problem(where, p.field, p.message, p.allowed) for p in not_for_a_cluster(spec)]
    return (None if problems else spec), tuple(problems)


def read_policy_object(thing: Mapping[str, Any]) -> PolicyDocument:
    """The policy that a PromotionPolicy asks for. Raises `PolicyError` with the path of each field at fault."""
    spec, problems = read_spec(PolicySpec, thing)
    if spec is None:
        raise PolicyError(*problems)
    name = str(thing.get("metadata", {}).get("name", ""))
    return policy_of(spec, name, YamlDocument(where_of(thing), dict(thing), {}))
