"""What manifests/rbac grants is what the controller needs on a real API server: nothing refused, nothing spare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.api.kinds.names import API_VERSION
from tests.support.cluster.api import path_of, wait_for
from tests.support.cluster.fixtures import Cluster, Namespace
from tests.support.cluster.gate import HOME, Gate, install_rights
from tests.support.cluster.users import GATE
from tests.support.cluster.workloads import deployment, service, simulated
from tests.support.cluster_crds import install_crds
from tests.support.kinds import ROOT
from tests.support.runs import QUALITY, write_set

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""

NOT_SEEN_HERE: dict[str, set[Right]] = {
    "of a rollout of that name that another look made, which this one did not see yet": {
        ("prefillgate.io", "profilerollouts", "get")
    },
    "asked for by an admission plugin that is off by default": {
        ("prefillgate.io", "servinglines/finalizers", "update")
    },
    "of isolation Drain and Scratch, used with these rights in tests/observe/test_apart.py": {
        ("", "pods", "create"),
        ("", "pods", "delete"),
        ("", "pods", "patch"),
        ("", "pods/status", "patch"),
    },
    "of runner: Job, used with these rights in tests/controller/test_jobs.py": {
        ("batch", "jobs", verb) for verb in ("get", "list", "create", "delete")
    },
    "kinds that this cluster does not have": {
        (group, resource, verb)
        for group, resource in (
            ("leaderworkerset.x-k8s.io", "leaderworkersets"),
            ("serving.kserve.io", "inferenceservices"),
            ("serving.kserve.io", "llminferenceservices"),
        )
        for verb in ("list", "watch")
    },
}
EVERYBODYS = {"selfsubjectaccessreviews"}  # granted to whoever is authenticated


def granted() -> set[Right]:
    """All rights that the manifests bind: what a person binds for a namespace (scaler.yaml) is not among them."""
    things = [
        thing
        for path in sorted((ROOT / "manifests" / "rbac").glob("*.yaml"))
        for thing in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if thing
    ]
    bound = {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in things if each["kind"].endswith("Binding")}
    return {
        (group, resource, verb)
        for thing in things
        if (thing["kind"], thing["metadata"]["name"]) in bound
        for rule in thing["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def job_rights() -> set[tuple[str, str]]:
    """Name and kind of the roles that grant anything about Jobs."""
    path = ROOT / "manifests" / "rbac" / "jobs.yaml"
    things = [thing for thing in yaml.safe_load_all(path.read_text(encoding="utf-8")) if thing]
    roles = [thing for thing in things if any("jobs" in rule["resources"] for rule in thing.get("rules", ()))]
    return {(role["metadata"]["name"], role["kind"]) for role in roles}


def used(cluster: Cluster, earlier: int) -> set[Right]:
    """All that the controller did, as the API server saw it, after so many requests of other tests in its name."""
    found = set()
    for entry in cluster.audit.entries(user=GATE.name)[earlier:]:
        if not entry.resource or entry.resource in EVERYBODYS:
            continue  # what is served, the version
        path = entry.uri.partition("?")[0].split("/")
        group = path[2] if path[1] == "apis" else ""
        resource = f"{entry.resource}/{entry.subresource}" if entry.subresource else entry.resource
        found.add((group, resource, entry.verb))
    return found


@pytest.fixture
def earlier(cluster: Cluster) -> int:
    """How many requests other tests have made in the controller's name."""
    return len(cluster.audit.entries(user=GATE.name))


@pytest.fixture
def gate(cluster: Cluster, tmp_path: Path, earlier: int) -> Iterator[Gate]:
    install_crds(cluster.plane)
    install_rights(cluster.plane)
    cluster.api().delete(path_of("leases", "", HOME, "coordination.k8s.io"))  # of other tests: it is made anew
    running = Gate(cluster.plane, tmp_path / "gate").start()
    yield running
    running.close()


def put(namespace: Namespace, kind: str, name: str, spec: dict[str, Any]) -> None:
    namespace.apply({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})


def stateful(name: str, server: dict[str, Any]) -> dict[str, Any]:
    thing = deployment(name, server)
    spec = {key: value for key, value in thing["spec"].items() if key != "strategy"}
    return {**thing, "kind": "StatefulSet", "spec": {**spec, "serviceName": name}}


def arm(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"workloadRef": {"apiVersion": "apps/v1", "kind": kind, "name": name}, **more}


def set_up(namespace: Namespace, folder: Path) -> None:
    """A line with whatever a line may refer to, of the kinds that this cluster has."""
    text = write_set(folder / "set.jsonl", 3, 20).read_text(encoding="utf-8")
    cases = {"kind": "ConfigMap", "metadata": {"name": "cases"}, "data": {"cases.jsonl": text}}
    namespace.apply({"apiVersion": "v1", **cases})
    secret = {"kind": "Secret", "metadata": {"name": "key", "labels": {"prefillgate.io/usable-by": "gate"}}}
    namespace.apply({"apiVersion": "v1", **secret, "stringData": {"token": "a-key"}})
    put(namespace, "ReplaySet", "cases", {"configMap": {"name": "cases"}})
    put(namespace, "PromotionPolicy", "few", dict(QUALITY))
    namespace.apply(deployment("blue", simulated("--seed", "1")))
    namespace.apply(stateful("green", simulated("--seed", "2")))
    namespace.apply(service("green"))
    key = {"apiKeySecretRef": {"name": "key", "key": "token"}}
    spec = {
        "baseline": arm("Deployment", "blue", endpoint={"pods": {"portName": "http"}}),
        "candidate": arm("StatefulSet", "green", endpoint={"service": {"name": "green", "port": 80}}, **key),
        "policyRef": {"name": "few"},
        "replaySetRef": {"name": "cases"},
        "historyLimit": 1,
    }
    put(namespace, "ServingLine", "chat", spec)


def test_nothing_that_the_controller_does_is_refused_and_it_may_do_nothing_that_it_does_not(
    namespace: Namespace, gate: Gate, tmp_path: Path, earlier: int
) -> None:
    set_up(namespace, tmp_path)
    api, cluster = namespace.cluster.api(), namespace.cluster
    rollouts = namespace.path("profilerollouts", group="prefillgate.io", version="v1alpha1")
    wait_for(lambda: api.items(rollouts))
    (first,) = api.items(rollouts)
    words = ("prefillgate.io/override=hold", "prefillgate.io/override-reason=a look at rights")
    assert namespace.kubectl("annotate", "profilerollout", first["metadata"]["name"], *words).returncode == 0
    for seed in ("3", "4", "5"):  # of rollouts that another one took the place of, one is kept
        before = {each["metadata"]["uid"] for each in api.items(rollouts)}
        namespace.apply(stateful("green", simulated("--seed", seed)))
        wait_for(lambda before=before: {each["metadata"]["uid"] for each in api.items(rollouts)} - before)
    cluster.audit.wait(lambda entry: entry.verb == "delete", user=GATE.name)
    assert gate.stop() == 0  # its watches are in the log once they have ended
    cluster.audit.wait(lambda entry: entry.resource == "endpointslices", user=GATE.name, verb="watch")
    refused = [each for each in cluster.audit.entries(user=GATE.name)[earlier:] if each.code in (401, 403)]
    assert refused == []
    spare = granted() - used(cluster, earlier)
    assert spare == set().union(*NOT_SEEN_HERE.values())
    assert used(cluster, earlier) <= granted()


def test_what_is_granted_changes_pods_alone_of_what_is_others_and_lists_no_secret() -> None:
    rights = granted()
    assert not {right for right in rights if "*" in right}
    written = {(group, resource) for group, resource, verb in rights if verb not in ("get", "list", "watch")}
    others = {pair for pair in written if pair[0] not in ("prefillgate.io", "events.k8s.io", "coordination.k8s.io")}
    assert others == {("", "pods"), ("", "pods/status"), ("batch", "jobs")}
    assert {scope for _, scope in job_rights()} == {"Role"}  # in the controller's own namespace alone
    assert {verb for _, resource, verb in rights if resource == "secrets"} == {"get"}
    assert ("prefillgate.io", "servinglines", "patch") not in rights  # the spec is a person's
