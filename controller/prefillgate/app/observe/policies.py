"""The policy that a line is judged by, as its object says or as it comes with the package."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

from prefillgate.api.errors import PolicyError
from prefillgate.api.kinds.reading import read_policy_object, read_spec
from prefillgate.api.policy import DEFAULT_POLICY, PolicyDocument, load_policy
from prefillgate.api.policy_model import PolicySpec
from prefillgate.kube.objects import Object, uid_of, version_of
from prefillgate.reconcile.snapshot import PolicySeen
from prefillgate.replay.checks import CheckSuite


@dataclass(frozen=True, slots=True)
class PolicyRead:
    """A policy, or what is wrong with it."""

    document: PolicyDocument | None = None
    seen: PolicySeen | None = None
    error: PolicyError | None = None


@dataclass(slots=True)
class Policies:
    """Reads policies; each version once."""

    _kept: dict[str, tuple[tuple[str, str], PolicyRead]] = field(default_factory=dict)

    def read(self, key: str, thing: Object) -> PolicyRead:
        """What an object says."""
        mark = (uid_of(thing), version_of(thing))
        at, kept = self._kept.get(key, (None, None))
        if kept is None or at != mark:
            kept = _read(thing)
            self._kept[key] = (mark, kept)
        return kept

    def forget(self, key: str) -> None:
        """It is gone."""
        self._kept.pop(key, None)


@cache
def standard() -> PolicyRead:
    """The policy of a line that names none."""
    document = load_policy(DEFAULT_POLICY)
    spec = PolicySpec.model_validate(
        {
            "marginBasisPoints": round(document.policy.margin * 10_000),
            "alphaBasisPoints": round(document.policy.alpha * 10_000),
            "acceptance": list(document.policy.acceptance),
            "budgetPrefills": document.policy.budget,
        }
    )
    return PolicyRead(document, _seen(document, spec))


def _read(thing: Object) -> PolicyRead:
    try:
        document = read_policy_object(thing)
        _check_checks(document)
    except PolicyError as error:
        return PolicyRead(error=error)
    spec, _ = read_spec(PolicySpec, thing)
    assert spec is not None  # it was just read
    return PolicyRead(document, _seen(document, spec))


def _check_checks(document: PolicyDocument) -> None:
    """Whether its patterns, schemas and expressions can be used: no schema of the API tells. Raises `PolicyError`."""
    try:
        CheckSuite.from_policy(document)
    except PolicyError as error:
        places = {f"check {spec.name}": f"spec.checks[{place}]" for place, spec in enumerate(document.checks or ())}
        found = (replace(each, where="", field=places.get(each.field, each.field)) for each in error.problems)
        raise PolicyError(*found) from error


def _seen(document: PolicyDocument, spec: PolicySpec) -> PolicySeen:
    policy = document.policy
    return PolicySeen(
        document.name, document.digest, spec, tuple(policy.acceptance), policy.budget, policy.deadline_seconds
    )
