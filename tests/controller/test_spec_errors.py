"""What a spec asks for and cannot be had is told in Accepted=False, by the path of the field."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.support.cluster.api import condition
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine, arm, message, reason
from tests.support.cluster.workloads import deployment, simulated

POD = {"pods": {"portName": "http"}}


def blue(**more: Any) -> dict[str, Any]:
    """An arm of the Deployment `blue`."""
    return arm("blue", **more)


def of(kind: str, name: str, api_version: str = "apps/v1", **more: Any) -> dict[str, Any]:
    """An arm of another workload."""
    return {"workloadRef": {"apiVersion": api_version, "kind": kind, "name": name, **more}, "endpoint": POD}


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "policy": ({"policyRef": {"name": "none"}}, "PolicyNotFound", "spec.policyRef"),
    "bad-policy": (
        {"policyRef": {"name": "bad"}},
        "PolicyNotAccepted",
        "spec.policyRef.name: PromotionPolicy bad: spec.checks[0]",
    ),
    "set": ({"replaySetRef": {"name": "none"}}, "ReplaySetNotFound", "spec.replaySetRef"),
    "bad-set": (
        {"replaySetRef": {"name": "not-there"}},
        "CasesNotFound",
        "spec.replaySetRef.name: ReplaySet not-there, spec.configMap.name",
    ),
    "workload": ({"candidate": of("Deployment", "none")}, "WorkloadNotFound", "spec.candidate.workloadRef"),
    "kind": ({"candidate": of("Engine", "x", "unheard.example/v1")}, "WorkloadNotFound", "spec.candidate.workloadRef"),
    "template": (
        {"candidate": of("Deployment", "blue", podTemplatePath="spec.pools[0].template")},
        "TemplateNotFound",
        "spec.candidate.workloadRef",
    ),
    "container": (
        {"candidate": of("Deployment", "blue", container="sidecar")},
        "ContainerNotFound",
        "spec.candidate.workloadRef.container",
    ),
    "port": (
        {"candidate": {**blue(), "endpoint": {"pods": {"portName": "htpp"}}}},
        "PortNotFound",
        "spec.candidate.endpoint.pods.portName: No container of Deployment blue",
    ),
    "service": (
        {"candidate": {**blue(), "endpoint": {"service": {"name": "nosvc", "port": 80}}}},
        "ServiceNotFound",
        "spec.candidate.endpoint.service.name",
    ),
    "secret": (
        {"baseline": blue(apiKeySecretRef={"name": "none", "key": "k"})},
        "SecretNotFound",
        "spec.baseline.apiKeySecretRef",
    ),
    "secret-key": (
        {"baseline": blue(apiKeySecretRef={"name": "usable", "key": "none"})},
        "SecretNotFound",
        "spec.baseline.apiKeySecretRef",
    ),
    "unlabelled": (
        {"baseline": blue(apiKeySecretRef={"name": "unlabelled", "key": "k"})},
        "SecretNotUsable",
        "spec.baseline.apiKeySecretRef",
    ),
    "address": (
        {"baseline": {"profile": {"image": "x"}, "endpoint": {"url": "http://169.254.169.254/latest"}}},
        "EndpointForbidden",
        "spec.baseline.endpoint.url",
    ),
    "store": ({"runner": "Job"}, "StoreUnsuitable", "spec.runner"),
}
"""Name of a line -> what its spec changes, the reason it is refused for, the field that is named."""


def test_each_line_says_what_it_lacks_by_the_fields_path(line: GatedLine, namespace: Namespace, gate: Gate) -> None:
    line.judge_by()
    line.replay()
    prepare(namespace, line)
    lines = {name: GatedLine(namespace, gate, line.folder, name=name) for name in WRONG}
    for name, each in lines.items():
        each.apply(**WRONG[name][0])
    for each in lines.values():
        each.wait_line(lambda found: condition(found, "Accepted") == "False")
    found = {name: each.line() for name, each in lines.items()}
    told = {name: reason(each, "Accepted") for name, each in found.items()}
    assert told == {name: wrong[1] for name, wrong in WRONG.items()}
    unnamed = {name: message(each, "Accepted") for name, each in found.items()}
    assert {name: text for name, text in unnamed.items() if WRONG[name][2] not in text} == {}
    assert {reason(each, "Gating") for each in found.values()} == {"NotAccepted"}
    assert {line.truth("blue") == [], line.truth("green") == []} == {True}


def prepare(namespace: Namespace, line: GatedLine) -> None:
    """Two workloads, two Secrets, a policy and a replay set that cannot be used."""
    for name in ("blue", "green"):
        namespace.apply(deployment(name, simulated("--seed", name), replicas=0))
    secret = {"apiVersion": "v1", "kind": "Secret", "stringData": {"k": "v"}}
    labels = {"prefillgate.io/usable-by": "gate"}
    namespace.apply({**secret, "metadata": {"name": "usable", "labels": labels}})
    namespace.apply({**secret, "metadata": {"name": "unlabelled"}})
    line.put(
        "PromotionPolicy", "bad", {"marginPercent": 20, "checks": [{"type": "Regex", "regex": {"mustMatch": "("}}]}
    )
    line.put("ReplaySet", "not-there", {"configMap": {"name": "none"}})


def test_each_replay_set_says_what_is_wrong_with_its_cases(line: GatedLine, namespace: Namespace) -> None:
    line.put_map("broken", '{"custom_id": "x"')
    other = hashlib.sha256(b"another file").hexdigest()
    line.replay()
    case = {"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"prompt": "p", "max_tokens": 1}}
    line.put_map("checked", json.dumps({**case, "checks": [{"type": "Regex", "regex": {"mustMatch": "("}}]}))
    wrong = {
        "checks": ({"configMap": {"name": "checked"}}, "CasesInvalid"),
        "no-map": ({"configMap": {"name": "none"}}, "CasesNotFound"),
        "no-key": ({"configMap": {"name": "cases", "key": "none"}}, "CasesNotFound"),
        "broken": ({"configMap": {"name": "broken"}}, "CasesInvalid"),
        "another": ({"configMap": {"name": "cases"}, "sha256": other}, "DigestMismatch"),
    }
    for name, (spec, _) in wrong.items():
        line.put("ReplaySet", name, spec)
        line.name = name
        line.apply(replaySetRef={"name": name})
    api = namespace.cluster.api()
    paths = {name: namespace.path("replaysets", name, group="prefillgate.io", version="v1alpha1") for name in wrong}
    for path in paths.values():
        line.until(lambda path=path: condition(api.get(path), "Accepted") == "False")
    assert {name: reason(api.get(path), "Accepted") for name, path in paths.items()} == {
        name: told for name, (_, told) in wrong.items()
    }


def test_a_rollout_of_no_line_says_so(line: GatedLine, namespace: Namespace) -> None:
    line.judge_by()
    line.replay()
    line.apply()
    lost = GatedLine(namespace, line.gate, line.folder, name="nobody")
    lost.compare("of-nobody")
    path = lost.rollout_path("of-nobody")
    line.until(lambda: reason(namespace.cluster.api().get(path), "Accepted") == "LineNotFound")
    line.until(lambda: lost.reasons("of-nobody") == ["LineNotFound"])
    words = ("prefillgate.io/override=promote", "prefillgate.io/override-reason=why not")
    assert namespace.kubectl("annotate", "pro", "of-nobody", *words).returncode == 0
    line.until(lambda: reason(namespace.cluster.api().get(path), "Overridden") == "OverrideWithoutRollout")
    line.until(lambda: sorted(lost.reasons("of-nobody")) == ["LineNotFound", "OverrideWithoutRollout"])
