"""The controller as manifests/controller.yaml runs it: in a pod, by its ServiceAccount, with its rights."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

from tests.support.cluster.api import path_of, wait_for
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.fixtures import Namespace
from tests.support.kinds import ROOT

KEY = "0123456789abcdef"
HOME = "prefillgate"
ACCOUNT = f"system:serviceaccount:{HOME}:controller"
OURS = {"group": "prefillgate.io", "version": "v1alpha1"}


def commands() -> list[list[str]]:
    """The five of the README, each as words."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("gated in five commands")[2]
    block = text.partition("```console\n")[2].partition("```")[0]
    return [shlex.split(line.replace("manifests/", f"{ROOT}/manifests/")) for line in block.splitlines()]


def deployment_of(path: str) -> str:
    """The file, but for the volume: nothing here provides one."""
    things = list(yaml.safe_load_all(Path(path).read_text(encoding="utf-8")))
    for thing in things:
        if thing["kind"] == "Deployment":
            thing["spec"]["template"]["spec"]["volumes"][0] = {"name": "evidence", "emptyDir": {}}
    return yaml.safe_dump_all(each for each in things if each["kind"] != "PersistentVolumeClaim")


def install(plane: ControlPlane, space: str) -> None:
    """As a person does it; the samples go into a namespace of their own."""
    crds, rights, secret, controller, samples = commands()
    for words in (crds, rights, secret):
        assert words[0] == "kubectl"
        given = [word.replace("$(openssl rand -hex 32)", KEY) for word in words[1:]]
        done = plane.kubectl(*given)
        assert done.returncode == 0, done.stderr
    assert controller[1:3] == ["apply", "-f"]
    done = plane.kubectl("apply", "-f", "-", text=deployment_of(controller[3]))
    assert done.returncode == 0, done.stderr
    done = plane.kubectl(f"--namespace={space}", *samples[1:])
    assert done.returncode == 0, done.stderr


def test_five_commands_gate_a_cluster_from_a_pod_with_the_rights_of_its_account(namespace: Namespace) -> None:
    cluster, api = namespace.cluster, namespace.cluster.api()
    try:
        install(cluster.plane, namespace.name)
        deployment = path_of("deployments", "controller", HOME, "apps")
        api.wait(deployment, lambda found: found.get("status", {}).get("availableReplicas") == 1)
        for kind, name in (("servinglines", "review-bot"), ("replaysets", "review-bot")):
            found = api.wait(namespace.path(kind, name, **OURS), lambda found: found.get("status"))
            assert found["status"]["observedGeneration"] == 1
            wrote = cluster.audit.wait(lambda entry, kind=kind: entry.resource == kind, user=ACCOUNT, verb="patch")
            assert (wrote.subresource, wrote.code) == ("status", 200)
        (pod,) = api.items(path_of("pods", namespace=HOME))
        log = cluster.node.log(HOME, pod["metadata"]["name"])
        assert "service account of the pod" in log and '"namespace": "prefillgate"' in log
        assert KEY not in log
    finally:
        api.delete(path_of("deployments", "controller", HOME, "apps"), propagationPolicy="Foreground")
    wait_for(lambda: not api.items(path_of("pods", namespace=HOME)))
    lease = api.get(path_of("leases", "prefillgate-controller", HOME, "coordination.k8s.io"))
    assert lease["spec"]["holderIdentity"] == ""
    assert [entry for entry in cluster.audit.entries(user=ACCOUNT) if entry.code in (401, 403)] == []
