"""The policy that a line is judged by, as its object says or as it comes with the package."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import cache

from prefillgate.api.errors import InputError, PolicyError, Problem
from prefillgate.api.kinds.reading import read_policy_object, read_spec
from prefillgate.api.policy import DEFAULT_POLICY, PolicyDocument, load_policy
from prefillgate.api.policy_model import PolicySpec
from prefillgate.kube.objects import Object, uid_of, version_of
from prefillgate.reconcile.snapshot import PolicySeen
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.replay_set import ReplaySet

Found = tuple[Problem, ...]
_Mark = tuple[str, str]  # digests of a policy and of a replay set


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
    _with_sets: dict[str, dict[str, tuple[_Mark, Found]]] = field(default_factory=dict)  # by policy and line

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
        self._with_sets.pop(key, None)

    def judging(self, line: str) -> set[str]:
        """Keys of the policies that were seen beside the replay set of a line."""
        return {key for key, lines in self._with_sets.items() if line in lines}

    def leave(self, key: str, line: str) -> None:
        """A line is gone, or names another policy."""
        self._with_sets.get(key, {}).pop(line, None)

    async def beside(self, key: str, line: str, document: PolicyDocument, replay_set: ReplaySet) -> tuple[Found, bool]:
        """What is wrong with a policy beside the replay set of a line; whether that was not known before.

        It is built as a run builds it, once for each policy and replay set of a line.
        """
        known, mark = self._with_sets.setdefault(key, {}), (document.digest, replay_set.sha256)
        before = known.get(line)
        if before is not None and before[0] == mark:
            return before[1], False
        found = await asyncio.to_thread(problems_of, document, replay_set)
        known[line] = (mark, found)
        return found, before is None or before[1] != found

    def by_itself(self, key: str, read: PolicyRead) -> Found:
        """What is wrong with a policy: what no line that names it can judge by. A flag may name a check that only
        cases of one of their replay sets bring."""
        if read.error is not None or read.document is None:
            return () if read.error is None else read.error.problems
        beside = self._with_sets.get(key, {}).values()
        found = [told for (digest, _), told in beside if digest == read.document.digest]
        return found[0] if found and all(found) else ()


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
    except PolicyError as error:
        return PolicyRead(error=error)
    if wrong := problems_of(document):
        return PolicyRead(error=PolicyError(*wrong))
    spec, _ = read_spec(PolicySpec, thing)
    assert spec is not None  # it was just read
    return PolicyRead(document, _seen(document, spec))


def problems_of(document: PolicyDocument, replay_set: ReplaySet | None = None) -> Found:
    """Whether its patterns, schemas and expressions can be used, and with a replay set whether its flags name checks
    that there are: no schema of the API tells."""
    try:
        CheckSuite.from_policy(document, replay_set)
    except InputError as error:
        places = {f"check {spec.name}": f"spec.checks[{place}]" for place, spec in enumerate(document.checks or ())}
        return tuple(replace(each, where="", field=places.get(each.field, each.field)) for each in error.problems)
    return ()


def _seen(document: PolicyDocument, spec: PolicySpec) -> PolicySeen:
    policy = document.policy
    return PolicySeen(
        document.name, document.digest, spec, tuple(policy.acceptance), policy.budget, policy.deadline_seconds
    )
