"""A Job is made like the controller's own pod, and runs one replay under one token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from prefillgate.app.job_manifest import JobSeen, JobWanted, NoTemplate, is_of, job_of, job_seen, order_of
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import WorkKind
from tests.support.kinds import ROOT

ORDER = StartWork("5f2c1e9a-0000-4000-8000-000000000000", WorkKind.JUDGE, "sha256:a", "sha256:b", "chat-1", 7, 12.5)
WANTED = JobWanted(ORDER, "prod/chat", 3)


def own_pod() -> dict[str, Any]:
    """A pod of manifests/controller.yaml, as admission leaves it."""
    things = yaml.safe_load_all((ROOT / "manifests" / "controller.yaml").read_text(encoding="utf-8"))
    template = next(thing for thing in things if thing["kind"] == "Deployment")["spec"]["template"]
    spec = template["spec"]
    token = {"name": "kube-api-access-x7k2p", "projected": {}}
    own = {**spec["containers"][0], "args": ["controller", "--log-level=debug"], "livenessProbe": {"httpGet": {}}}
    own["volumeMounts"] = [*own.get("volumeMounts", ()), {"name": token["name"], "mountPath": "/var/run/x"}]
    sidecar = {"name": "proxy", "image": "proxy:1"}
    spec = {**spec, "containers": [sidecar, own], "volumes": [*spec.get("volumes", ()), token], "nodeName": "n1"}
    return {"metadata": {"name": "controller-1", "namespace": "prefillgate"}, "spec": spec}


def test_it_has_the_controllers_image_environment_and_volumes_and_an_account_of_its_own() -> None:
    pod = own_pod()
    job = job_of(pod, WANTED)
    spec, own = job["spec"]["template"]["spec"], pod["spec"]["containers"][1]
    (container,) = spec["containers"]
    for name in ("image", "env", "securityContext"):
        assert container[name] == own[name]
    assert spec["securityContext"] == pod["spec"]["securityContext"]
    mounted = [each["name"] for each in own["volumeMounts"] if not each["name"].startswith("kube-api-access")]
    assert "evidence" in mounted
    assert [each["name"] for each in container["volumeMounts"]] == mounted
    assert {each["name"] for each in spec["volumes"]} == set(mounted)
    assert (spec["serviceAccountName"], spec["restartPolicy"]) == ("replay", "Never")
    assert not {"livenessProbe", "readinessProbe", "ports"} & set(container) and "nodeName" not in spec
    assert job["spec"]["backoffLimit"] == 0
    assert (job["metadata"]["namespace"], job["metadata"]["name"]) == ("prefillgate", f"replay-{ORDER.key}-3")


def test_its_command_is_the_controllers_with_the_errand() -> None:
    args = job_of(own_pod(), WANTED)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[:6] == ["replay-job", "--log-level=debug", "--line", "prod/chat", "--token", "3"]
    assert args[6] == "--order" and order_of(args[7]) == ORDER
    assert order_of(args[7]).kind is WorkKind.JUDGE


def test_another_term_has_another_job_of_the_same_replay() -> None:
    first, second = (job_of(own_pod(), replace(WANTED, token=token)) for token in (3, 4))
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert is_of(first, ORDER.key) and is_of(second, ORDER.key) and not is_of(first, "another")
    assert first["spec"]["template"]["metadata"]["labels"] == first["metadata"]["labels"]


def test_a_pod_without_the_controller_in_it_is_no_template() -> None:
    with pytest.raises(NoTemplate, match="no container of the pod has the argument controller"):
        job_of({"spec": {"containers": [{"name": "x", "args": ["simulate"]}]}}, WANTED)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "7", '{"key": "a", "kind": "no", "baseline": "b"}', '{"kind": "judge"}']
)
def test_what_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="this is no order"):
        order_of(text)


def ended_pod(code: int) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": code}}}]}}


def job(*conditions: str, **metadata: str) -> dict[str, Any]:
    return {"metadata": metadata, "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]}}


@pytest.mark.parametrize(
    ("thing", "pods", "seen"),
    [
        (None, [], JobSeen(False, True, False)),
        (job("Complete", deletionTimestamp="now"), [], JobSeen(False, True, False)),
        (job(), [], JobSeen(True, False, False)),
        (job("SuccessCriteriaMet"), [ended_pod(0)], JobSeen(True, False, False, 0)),
        (job("Complete"), [ended_pod(0)], JobSeen(True, True, True, 0)),
        (job("Failed"), [{}, ended_pod(2)], JobSeen(True, True, False, 2)),
        (job("Failed"), [], JobSeen(True, True, False)),
    ],
)
def test_a_job_tells_whether_it_ended_and_how(thing: Any, pods: Any, seen: JobSeen) -> None:
    assert job_seen(thing, pods) == seen
