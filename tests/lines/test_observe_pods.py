"""What a pod says of the server in it."""

from __future__ import annotations

from typing import Any

import pytest

from prefillgate.api.kinds.arms import Arm, PodsEndpoint
from prefillgate.app.observe.arms import available
from prefillgate.app.observe.pods import (
    epoch_of,
    is_ready,
    pod_url,
    refused_pods,
    server_of,
    started_at,
    stuck,
    trouble_of,
    unavailable,
    wants_none,
)
from prefillgate.app.observe.slots import SlotFound
from prefillgate.reconcile.snapshot import ArmSeen, Slot

BY_NAME = PodsEndpoint.model_validate({"portName": "http"})
RUNNING = {"running": {"startedAt": "2026-11-30T10:00:00Z"}}


def container(state: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = {"name": "server", "containerID": "containerd://1", "restartCount": 0, "state": state or RUNNING}
    return {**given, **more}


def pod(*containers: dict[str, Any], ready: bool = False, **status: Any) -> dict[str, Any]:
    ports = [{"name": "http", "containerPort": 8080}]
    return {
        "metadata": {"name": "engine-1", "uid": "u1"},
        "spec": {
            "containers": [
                {"name": "proxy", "ports": [{"name": "http", "containerPort": 1}]},
                {"name": "server", "ports": ports},
            ]
        },
        "status": {
            "podIP": "10.1.2.3",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": list(containers or (container(),)),
            **status,
        },
    }


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return container({"waiting": {"reason": reason, "message": message}}, **more)


CRASHED = {"terminated": {"reason": "Error", "exitCode": 1, "message": "no such\nmodel \x1b[31m"}}


def test_a_ready_pod_is_asked_at_its_address_and_its_life_is_its_uid_and_its_container() -> None:
    server = server_of(pod(ready=True), BY_NAME, "server")
    assert (server.name, server.url, server.ready, server.trouble) == ("engine-1", "http://10.1.2.3:8080", True, "")
    assert server.epoch == "u1/containerd://1"
    assert started_at(pod(), "server") == "2026-11-30T10:00:00Z"


def test_a_port_by_name_is_the_serving_containers_own_first_and_a_number_is_taken_as_it_is() -> None:
    assert pod_url(pod(), BY_NAME, "proxy") == "http://10.1.2.3:1"
    by_number = PodsEndpoint.model_validate({"port": 9000, "scheme": "HTTPS", "path": "/llm"})
    assert pod_url(pod(), by_number, "server") == "https://10.1.2.3:9000/llm"
    six = pod(podIP="fd00::7")
    assert pod_url(six, by_number, "server") == "https://[fd00::7]:9000/llm"


def test_a_port_that_no_container_names_is_told_and_the_pod_is_not_asked() -> None:
    server = server_of(pod(ready=True), PodsEndpoint.model_validate({"portName": "api"}), "server")
    assert (server.url, server.ready) == (None, False)
    assert server.trouble == "no container of it has a port named api"
    assert server_of(pod(podIP=""), BY_NAME, "server").trouble == ""


@pytest.mark.parametrize(
    "changes",
    [{"metadata": {"name": "engine-1", "uid": "u1", "deletionTimestamp": "now"}}, {"status": {"phase": "Failed"}}],
)
def test_a_pod_on_its_way_out_is_neither_ready_nor_alive(changes: dict[str, Any]) -> None:
    leaving = pod(ready=True)
    for key, value in changes.items():
        leaving[key] = {**leaving[key], **value}
    assert not is_ready(leaving)
    assert epoch_of(leaving, "server") is None


def test_a_container_that_does_not_run_has_no_life_though_its_id_is_still_told() -> None:
    assert epoch_of(pod(waiting("CrashLoopBackOff")), "server") is None
    assert epoch_of(pod(container(RUNNING, containerID="")), "server") is None
    assert epoch_of(pod(), "another") is None


@pytest.mark.parametrize(
    ("status", "lasting", "words"),
    [
        (
            waiting("CrashLoopBackOff", "back-off 10s", restartCount=2, lastState=CRASHED),
            True,
            "container server: CrashLoopBackOff: back-off 10s (2 restarts; the last time it ended with Error, exit "
            "code 1: no such model \\u001b[31m)",
        ),
        (waiting("ImagePullBackOff", "not found"), True, "container server: ImagePullBackOff: not found"),
        (waiting("ErrImagePull", "not found"), False, "container server: ErrImagePull: not found"),
        (waiting("CreateContainerConfigError"), True, "container server: CreateContainerConfigError"),
        (
            container(restartCount=3, lastState={"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
            True,
            "container server: restarted 3 times; the last time it ended with OOMKilled, exit code 137",
        ),
        (
            container(restartCount=2, lastState={"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
            False,
            "container server: restarted 2 times; the last time it ended with OOMKilled, exit code 137",
        ),
        (container(CRASHED), False, "container server: ended with Error, exit code 1: no such model \\u001b[31m"),
        (
            container(CRASHED, restartCount=3),
            True,
            "container server: ended with Error, exit code 1: no such model \\u001b[31m",
        ),
    ],
)
def test_what_keeps_a_container_from_serving_is_told_and_whether_waiting_helps(
    status: dict[str, Any], lasting: bool, words: str
) -> None:
    found = trouble_of(pod(status), "server")
    assert found is not None
    assert (found.lasting, found.said) == (lasting, words)


@pytest.mark.parametrize(("until", "lasting"), [("10:09:59", True), ("10:10:00", False)])
def test_restarts_after_long_lives_are_no_crash_loop(until: str, lasting: bool) -> None:
    ended = {"reason": "Error", "exitCode": 1}
    ended |= {"startedAt": "2026-11-30T10:00:00Z", "finishedAt": f"2026-11-30T{until}Z"}
    for status in (
        container(restartCount=7, lastState={"terminated": ended}),
        container({"terminated": ended}, restartCount=7),
    ):
        found = trouble_of(pod(status), "server")
        assert found is not None
        assert found.lasting is lasting


def test_starting_in_the_usual_way_is_no_trouble() -> None:
    for state in ("ContainerCreating", "PodInitializing"):
        assert trouble_of(pod(waiting(state)), "server") is None
    assert trouble_of(pod(), "server") is None
    crashed_before = container(restartCount=5, lastState=CRASHED)
    assert trouble_of(pod(crashed_before, ready=True), "server") is None


def test_an_init_container_that_fails_keeps_the_pod_from_serving_and_one_that_has_ended_well_does_not() -> None:
    failing = [{**waiting("CrashLoopBackOff"), "name": "fetch"}]
    found = trouble_of(pod(waiting("PodInitializing"), initContainerStatuses=failing), "server")
    assert found is not None
    assert (found.lasting, found.said) == (True, "container fetch: CrashLoopBackOff")
    ended = [{"name": "fetch", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]
    assert trouble_of(pod(initContainerStatuses=ended), "server") is None


def test_a_pod_that_fits_nowhere_is_told_but_may_yet_be_placed() -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPU is free"}]
    unplaced = pod(conditions=conditions, containerStatuses=[])
    found = trouble_of(unplaced, "server")
    assert found is not None
    assert (found.lasting, found.said) == (False, "Unschedulable: no GPU is free")
    assert unavailable([unplaced], "server") is None


def test_an_evicted_pod_is_told_with_the_kubelets_words() -> None:
    found = trouble_of(pod(phase="Failed", reason="Evicted", message="low on memory"), "server")
    assert found is not None
    assert (found.lasting, found.said) == (True, "Failed: Evicted: low on memory")


def test_an_arm_is_unavailable_once_every_pod_of_it_is_in_lasting_trouble() -> None:
    crashing, starting = pod(waiting("CrashLoopBackOff")), pod(waiting("ContainerCreating"))
    assert unavailable([], "server") is None
    assert unavailable([crashing, starting], "server") is None
    assert unavailable([crashing], "server") == "pod engine-1: container server: CrashLoopBackOff"
    both = unavailable([crashing, crashing], "server")
    assert both == "pod engine-1, and 1 more like it: container server: CrashLoopBackOff"
    leaving = {**starting, "metadata": {**starting["metadata"], "deletionTimestamp": "now"}}
    assert unavailable([crashing, leaving], "server") is not None


OWNED = [{"kind": "ReplicaSet", "name": "engine", "uid": "r1", "controller": True}]


@pytest.mark.parametrize(
    "reason", ["Evicted", "NodeShutdown", "Preempted", "OutOfcpu", "UnexpectedAdmissionError", None]
)
def test_what_is_left_of_a_pod_that_the_cluster_ended_says_nothing_of_the_profile(reason: str | None) -> None:
    ended = pod(phase="Failed", reason=reason, containerStatuses=[])
    ended["metadata"]["ownerReferences"] = OWNED
    crashing = pod(waiting("CrashLoopBackOff"))
    assert unavailable([ended], "server") is None
    assert unavailable([ended, pod(waiting("ContainerCreating"))], "server") is None
    assert unavailable([crashing, ended], "server") == "pod engine-1: container server: CrashLoopBackOff"
    crashing["metadata"]["ownerReferences"] = OWNED
    assert unavailable([crashing], "server") is not None


@pytest.mark.parametrize(
    ("policy", "owners", "lasting"),
    [("Always", OWNED, False), ("Never", OWNED, True), ("OnFailure", OWNED, True), ("Always", [], True)],
)
def test_a_pod_that_nobody_starts_again_has_failed_for_good(policy: str, owners: list[Any], lasting: bool) -> None:
    ended = pod(phase="Failed", reason="Error")
    ended["spec"]["restartPolicy"] = policy
    ended["metadata"]["ownerReferences"] = owners
    assert (unavailable([ended], "server") is not None) is lasting


def test_no_pod_is_missing_of_a_workload_that_wants_none() -> None:
    assert wants_none({"spec": {"replicas": 0}})
    assert not wants_none({"spec": {"replicas": 1}})
    assert not wants_none({"spec": {}})
    assert not wants_none(None)


@pytest.mark.parametrize(("replicas", "lost"), [(0, False), (1, True)])
def test_an_arm_that_was_scaled_to_nothing_is_never_unavailable(replicas: int, lost: bool) -> None:
    crashing = pod(waiting("CrashLoopBackOff"))
    owner = {
        "spec": {"replicas": replicas},
        **workload("Progressing", "False", "ProgressDeadlineExceeded"),
    }
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "engine"}
    arm = Arm.model_validate({"workloadRef": ref, "endpoint": {"url": "http://a"}})
    slot = SlotFound(Slot.CANDIDATE, arm, "ns", workload=owner)
    found = available(ArmSeen("sha256:a"), slot, [crashing], newest=True)
    assert (found.unavailable is not None) is lost


def test_a_message_is_one_line_and_bounded() -> None:
    found = trouble_of(pod(waiting("CrashLoopBackOff", "x" * 1000)), "server")
    assert found is not None
    assert len(found.said) == len("container server: ") + 300
    assert found.said.endswith("…")


def workload(kind: str, status: str, reason: str) -> dict[str, Any]:
    told = {"type": kind, "status": status, "reason": reason, "message": "as it says"}
    return {"status": {"conditions": [told]}}


def test_a_deployment_past_its_progress_deadline_is_stuck() -> None:
    past = workload("Progressing", "False", "ProgressDeadlineExceeded")
    assert stuck(past) == "ProgressDeadlineExceeded: as it says"
    assert stuck(workload("Progressing", "True", "ProgressDeadlineExceeded")) is None
    assert stuck(workload("Progressing", "False", "Paused")) is None
    assert stuck({}) is None
    assert stuck(None) is None


def test_pods_that_may_not_be_made_are_told() -> None:
    assert refused_pods([{}, workload("ReplicaFailure", "True", "FailedCreate")]) == "FailedCreate: as it says"
    assert refused_pods([workload("ReplicaFailure", "False", "FailedCreate")]) is None
