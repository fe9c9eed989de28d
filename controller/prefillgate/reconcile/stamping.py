"""Whether admission stamps who overrides: the policies of manifests/admission and what binds them, as an API server has
them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prefillgate.api.kinds.names import OVERRIDE_POLICY, OVERRIDE_STAMP_POLICY
from prefillgate.reconcile.snapshot import Object

Things = Iterable[Object]


def stamping_in_force(mutating: tuple[Things, Things], validating: tuple[Things, Things]) -> bool:
    """Whether a stamp can be believed. Each is (policies, their bindings).

    Both policies must be there under their names, failing closed, bound everywhere and to a denial: where one is
    missing or holds in some namespaces alone, anybody may have written the name.
    """
    return _bound(OVERRIDE_STAMP_POLICY, *mutating) and any(
        "Deny" in _list(_spec(each), "validationActions") for each in _bindings(OVERRIDE_POLICY, *validating)
    )


def _bound(name: str, policies: Things, bindings: Things) -> bool:
    return any(True for _ in _bindings(name, policies, bindings))


def _bindings(name: str, policies: Things, bindings: Things) -> Iterable[Object]:
    """Bindings that put a policy in force everywhere; none where the policy is not there or lets pass what it cannot
    judge."""
    policy = next((each for each in policies if _metadata(each).get("name") == name), None)
    if policy is None or _going(policy) or _spec(policy).get("failurePolicy", "Fail") != "Fail":
        return ()
    return tuple(
        each
        for each in bindings
        if _spec(each).get("policyName") == name and not _going(each) and not _narrowed(_spec(each))
    )


def _narrowed(spec: Mapping[str, Any]) -> bool:
    """Whether a binding holds in some places alone."""
    matched = spec.get("matchResources")
    told = matched if isinstance(matched, Mapping) else {}
    return any(
        told.get(part) for part in ("namespaceSelector", "objectSelector", "resourceRules", "excludeResourceRules")
    )


def _going(thing: Object) -> bool:
    return "deletionTimestamp" in _metadata(thing)


def _metadata(thing: Object) -> Mapping[str, Any]:
    told = thing.get("metadata")
    return told if isinstance(told, Mapping) else {}


def _spec(thing: Object) -> Mapping[str, Any]:
    told = thing.get("spec")
    return told if isinstance(told, Mapping) else {}


def _list(spec: Mapping[str, Any], name: str) -> list[Any]:
    told = spec.get(name)
    return told if isinstance(told, list) else []
