"""The controller as manifests/controller.yaml runs it: in a pod, by its ServiceAccount, with its rights."""

from __future__ import annotations

import yaml

from prefillgate.api.kinds.names import API_VERSION
from tests.support.cluster.api import Object, path_of, wait_for
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster_crds import install_crds
from tests.support.kinds import ROOT

HOME = "prefillgate"
ACCOUNT = f"system:serviceaccount:{HOME}:controller"
OURS = {"group": "prefillgate.io", "version": "v1alpha1"}


def manifests() -> list[Object]:
    """Namespace, rights and Deployment as they are, but for the volume: nothing here provides one."""
    texts = [ROOT / "manifests" / "rbac" / "controller.yaml", ROOT / "manifests" / "controller.yaml"]
    things = [thing for path in texts for thing in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    for thing in things:
        if thing["kind"] == "Deployment":
            thing["spec"]["template"]["spec"]["volumes"][0] = {"name": "evidence", "emptyDir": {}}
    return [thing for thing in things if thing["kind"] != "PersistentVolumeClaim"]


def test_it_leads_in_a_pod_with_the_rights_of_its_account_and_gives_the_lease_back(namespace: Namespace) -> None:
    cluster, api = namespace.cluster, namespace.cluster.api()
    install_crds(cluster.plane)
    space, *others = manifests()
    for thing in (space, *others):
        done = cluster.plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(thing))
        assert done.returncode == 0, done.stderr
    words = ("create", "secret", "generic", "seal-key", "--from-literal=key=0123456789abcdef")
    assert cluster.plane.kubectl(f"--namespace={HOME}", *words).returncode == 0
    try:
        deployment = path_of("deployments", "controller", HOME, "apps")
        api.wait(deployment, lambda found: found.get("status", {}).get("availableReplicas") == 1)
        namespace.apply(
            {"apiVersion": API_VERSION, "kind": "ReplaySet", "metadata": {"name": "none"}}
            | {"spec": {"configMap": {"name": "not-there"}}}
        )
        path = namespace.path("replaysets", "none", **OURS)
        found = api.wait(path, lambda found: found.get("status"))
        assert [each["reason"] for each in found["status"]["conditions"]] == ["CasesNotFound"]
        wrote = cluster.audit.wait(lambda entry: entry.resource == "replaysets", user=ACCOUNT, verb="patch")
        assert (wrote.subresource, wrote.code) == ("status", 200)
        (pod,) = api.items(path_of("pods", namespace=HOME))
        log = cluster.node.log(HOME, pod["metadata"]["name"])
        assert "service account of the pod" in log and '"namespace": "prefillgate"' in log
        assert "0123456789abcdef" not in log
    finally:
        api.delete(path_of("deployments", "controller", HOME, "apps"), propagationPolicy="Foreground")
    wait_for(lambda: not api.items(path_of("pods", namespace=HOME)))
    lease = api.get(path_of("leases", "prefillgate-controller", HOME, "coordination.k8s.io"))
    assert lease["spec"]["holderIdentity"] == ""
    assert [entry for entry in cluster.audit.entries(user=ACCOUNT) if entry.code in (401, 403)] == []
