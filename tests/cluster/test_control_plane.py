"""The control plane of the tests is a real one: RBAC, admission, an audit log, and data that outlives a crash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster.api import Refused, path_of
from tests.support.cluster.control_plane import ControlPlane, running_control_plane
from tests.support.cluster.fixtures import Cluster, Namespace
from tests.support.cluster.node_agent import NodeAgent
from tests.support.cluster.users import ALICE, BOB
from tests.support.cluster.workloads import deployment, simulated


def test_rbac_refuses_whoever_was_granted_nothing(namespace: Namespace) -> None:
    path = namespace.path("configmaps")
    with pytest.raises(Refused) as refused:
        namespace.cluster.api(ALICE).create(path, {"metadata": {"name": "hers"}})
    assert (refused.value.code, "alice" in refused.value.told) == (403, True)
    namespace.grant(ALICE, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]})
    namespace.cluster.api(ALICE).create(path, {"metadata": {"name": "hers"}})
    with pytest.raises(Refused):
        namespace.cluster.api(BOB).create(path, {"metadata": {"name": "his"}})


def test_the_audit_log_names_who_wrote_what_and_who_was_refused(namespace: Namespace) -> None:
    namespace.grant(ALICE, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]})
    made = namespace.kubectl("create", "configmap", "hers", user=ALICE)
    assert made.returncode == 0, made.stderr
    assert namespace.kubectl("create", "configmap", "his", user=BOB).returncode == 1
    audit = namespace.cluster.audit
    audit.wait(lambda entry: entry.user == "bob" and entry.code == 403, namespace=namespace.name)
    writes = audit.writes(namespace=namespace.name, resource="configmaps")
    by_people = [(entry.user, entry.verb, entry.name, entry.code) for entry in writes if entry.user in ("alice", "bob")]
    assert by_people == [("alice", "create", "hers", 201), ("bob", "create", "", 403)]  # a refused body is not read
    assert {entry.request for entry in writes} == {None}


def test_the_audit_log_keeps_bodies_of_our_own_group(namespace: Namespace) -> None:
    api, name = namespace.cluster.api(), "samples.prefillgate.io"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "samples", "singular": "sample", "kind": "Sample"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crds = path_of("customresourcedefinitions", group="apiextensions.k8s.io")
    spec = {"group": "prefillgate.io", "scope": "Namespaced", "names": names, "versions": [version]}
    api.create(crds, {"metadata": {"name": name}, "spec": spec})
    path = namespace.path("samples", group="prefillgate.io")
    api.wait(path, bool)
    sample = {"apiVersion": "prefillgate.io/v1", "kind": "Sample", "metadata": {"name": "one"}, "spec": {"weight": 7}}
    api.create(path, sample)
    entry = namespace.cluster.audit.wait(
        lambda entry: entry.verb == "create", namespace=namespace.name, resource="samples"
    )
    assert (entry.user, entry.request["spec"], entry.response["spec"]) == ("admin", {"weight": 7}, {"weight": 7})
    api.delete(f"{crds}/{name}")


def test_admission_is_on(namespace: Namespace) -> None:
    pod = {
        "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "c", "image": "busybox"}], "serviceAccountName": "x"},
    }
    with pytest.raises(Refused) as refused:
        namespace.cluster.api().create(namespace.path("pods"), pod)
    assert 'serviceaccount "x" not found' in refused.value.told


@pytest.fixture
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that this test alone may kill."""
    with running_control_plane(tmp_path_factory.mktemp("durable"), durable=True) as plane:
        yield plane.recorded()


def test_etcd_and_the_api_server_come_back_after_a_crash_with_all_that_they_were_told(
    own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> None:
    api, place = own_plane.api(), path_of("configmaps", namespace="default")
    api.wait(path_of("serviceaccounts", "default", "default"), bool)
    with NodeAgent(own_plane, tmp_path_factory.mktemp("node")) as node:
        namespace = Namespace("default", Cluster(own_plane, node))
        namespace.apply(deployment("engine", simulated()))
        namespace.rolled_out("engine")
        (before,) = namespace.pods(app="engine")
        api.create(place, {"metadata": {"name": "kept"}, "data": {"k": "v"}})
        for name in ("etcd", "kube-apiserver"):
            own_plane.kill(name)
        assert not own_plane.answers("kube-apiserver")
        for name in ("etcd", "kube-apiserver"):
            own_plane.start(name)
        assert api.get(f"{place}/kept")["data"] == {"k": "v"}
        (after,) = namespace.pods(app="engine")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        namespace.apply(deployment("engine", simulated("--model", "another")))
        namespace.rolled_out("engine")
        api.wait_gone(namespace.path("pods", before["metadata"]["name"]))
        (new,) = namespace.pods(app="engine")
        assert new["metadata"]["uid"] != before["metadata"]["uid"]
