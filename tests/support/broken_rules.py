"""Objects that break a rule over several fields, one each: what is at fault, and the words that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.kinds import FieldPath, Object, changed, sample

_DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Broken:
    """A sample with these changes, the field that is named for it, a part of what is said."""

    kind: str
    name: str
    changes: tuple[tuple[FieldPath, Any], ...]
    field: str
    says: str

    @property
    def thing(self) -> Object:
        """The object."""
        result = sample(self.kind, self.name)
        for path, value in self.changes:
            result = changed(result, path, value)
        return result

    def __str__(self) -> str:
        return f"{self.field}: {self.says}"


def _line(name: str, field: str, says: str, **changes: Any) -> Broken:
    return Broken("ServingLine", name, _paths(changes), field, says)


def _policy(field: str, says: str, **changes: Any) -> Broken:
    return Broken("PromotionPolicy", "review-bot", _paths(changes), field, says)


def _set(name: str, field: str, says: str, **changes: Any) -> Broken:
    return Broken("ReplaySet", name, _paths(changes), field, says)


def _paths(changes: dict[str, Any]) -> tuple[tuple[FieldPath, Any], ...]:
    return tuple(
        (("spec", *(int(p) if p.isdigit() else p for p in path.split("__"))), v) for path, v in changes.items()
    )


def _check(says: str, **check: Any) -> Broken:
    return _policy("spec.checks[0]", says, checks=[check])


_PROFILE = {"image": "x"}
_PODS = {"port": 80}
_SERVICE = {"service": {"name": "x", "port": 80}}
_WINDOW = {"startTime": "22:00", "durationSeconds": 600}
_OWN = "parameters of another check stand"
_KEPT = "kept for the gate's own use"
_NEEDED = "needs its parameters under its own key"

BROKEN = (
    _line("chat", "spec.baseline", "one of workloadRef and profile", baseline__profile=_PROFILE),
    _line("chat", "spec.candidate", "one of workloadRef and profile", candidate__workloadRef=None),
    _line("outside", "spec.candidate", "endpoint.pods.selector is wanted", candidate__endpoint__pods__selector=None),
    _line("outside", "spec.baseline", "endpoint.pods.selector is wanted", baseline__endpoint={"pods": _PODS}),
    _line("chat", "spec.baseline.endpoint", "one of pods, service and url", baseline__endpoint={}),
    _line("chat", "spec.candidate.endpoint", "one of pods, service and url", candidate__endpoint__url="http://x:1"),
    _line("chat", "spec.baseline.endpoint.pods", "one of port and portName", baseline__endpoint__pods__portName="x"),
    _line("chat", "spec.baseline.endpoint.pods", "one of port and portName", baseline__endpoint__pods__port=None),
    _line(
        "summaries",
        "spec.candidate.endpoint.service",
        "one of port and portName",
        candidate__endpoint__service__portName=None,
    ),
    _line("chat", "spec.baseline.isolation", "minServing is for mode Drain", baseline__isolation__mode="Quiet"),
    _line("chat", "spec.baseline.isolation", "minServing is for mode Drain", baseline__isolation__mode=None),
    _line("chat", "spec", "sequential is wanted with arms", arms="Sequential"),
    _line("summaries", "spec", "sequential is wanted with arms", arms="Parallel"),
    _line("summaries", "spec", "sequential is wanted with arms", arms=None),
    _line("outside", "spec", "candidate is wanted where the baseline has no", candidate=None),
    _line("chat", "spec", "the watch alone would exceed", watch__everySeconds=119, maxProductionPrefillsPerHour=241),
    _line("review-bot", "spec", "the watch alone would exceed", watch={"everySeconds": 60}),
    _line("summaries", "spec.sequential", "one of windows and stored", sequential__storedBaselineMaxAgeSeconds=600),
    _line("outside", "spec.sequential", "one of windows and stored", sequential={}),
    _line("outside", "spec.sequential", "allowDowntime is for windows", sequential__allowDowntime=False),
    _line("chat", "spec", "a pod is asked past every Service", baseline__endpoint=_SERVICE),
    _line("chat", "spec", "a pod is asked past every Service", candidate__endpoint=_SERVICE),
    _line("every-way", "spec", "a pod is asked past every Service", baseline__isolation={"mode": "Scratch"}),
    _line("summaries", "spec", "one is scaled down for the other", candidate=None),
    _line("summaries", "spec", "one is scaled down for the other", candidate__workloadRef__name="summaries"),
    _line("outside", "spec", "one is scaled down for the other", sequential={"windows": [_WINDOW]}),
    _line("summaries", "spec", "to a Deployment or StatefulSet", baseline__workloadRef__kind="LeaderWorkerSet"),
    _line(
        "summaries", "spec", "to a Deployment or StatefulSet", candidate__workloadRef__apiVersion="apps.kruise.io/v1"
    ),
    _line("review-bot", "spec", "keeps nothing of before", watch__previous="Retain"),
    _line("every-way", "spec", "made from a recorded template", watch={"everySeconds": 600, "previous": "Scratch"}),
    Broken(
        "ProfileRollout",
        "chat-5f2c1e9a",
        ((("spec", "baseline", "digest"), _DIGEST), (("spec", "candidate", "digest"), _DIGEST)),
        "spec",
        "the same profile",
    ),
    _policy("spec", "one of marginPercent", marginPercent=None),
    _policy("spec", "one of marginPercent", marginBasisPoints=1000),
    _policy(
        "spec", "give each a name of its own", checks=[{"type": "Cut", "name": "cut"}, {"type": "Cut", "name": "cut"}]
    ),
    _policy("spec.acceptance", "must be rising whole numbers", acceptance=[10, 5]),
    _policy("spec.acceptance", "must be rising whole numbers", acceptance=[40, 70, 70]),
    _policy("spec.alarm", "must be above healthyRateBasisPoints", alarm={"badRateBasisPoints": 500}),
    _policy("spec.alarm", "must be above healthyRateBasisPoints", alarm={"healthyRateBasisPoints": 3000}),
    _policy("spec.throughput", "must be at least minPairs", throughput={"minPairs": 41}),
    _policy("spec.throughput", "must be at least minPairs", throughput={"minPairs": 9, "maxPairs": 8}),
    _policy("spec.checks[0].regex", "mustMatch or mustNotMatch", checks=[{"type": "Regex", "regex": {}}]),
    _policy("spec.checks", "for policy files alone", checks=[{"type": "Exec", "exec": {"arguments": ["true"]}}]),
    _policy(
        "spec.checks",
        "for policy files alone",
        checks=[{"type": "Judge", "judge": {"rubric": "r", "url": "http://j:1", "model": "m"}}],
    ),
    _check("Expect is not declared", type="Expect"),
    _check(_OWN, type="Loop", minWords={"words": 3}),
    *(_check(_NEEDED, type=kind) for kind in ("Regex", "JsonSchema", "Cel", "Plugin", "Exec", "Judge")),
    _check("keeps its", type="Cut", name="short"),
    _check("keeps its", type="ForeignText", name="mine"),
    _check(_KEPT, type="Loop", name="cut"),
    _check(_KEPT, type="Loop", name="slow"),
    _set("review-bot", "spec", "one of configMap, volume and url", configMap=None),
    _set("review-bot", "spec", "one of configMap, volume and url", volume={"path": "x"}),
    _set("summaries", "spec", "sha256 is wanted with url", sha256=None),
)
"""Everything that a rule refuses and a validator of the same type refuses in the same words."""

LONG_KEYS = (
    _line(
        "outside",
        "spec.candidate.endpoint.pods.selector",
        "1 to 316",
        candidate__endpoint__pods__selector={"a" * 317: "x"},
    ),
    _policy(
        "spec.checks[0].plugin.parameters",
        "1 to 64",
        checks=[{"type": "Plugin", "plugin": {"entryPoint": "x", "parameters": {"k" * 65: "v"}}}],
    ),
)
"""Maps with a key that is too long: a structural schema has a rule for it."""
