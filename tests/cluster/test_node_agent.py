"""Pods on the node of the tests are real processes, and their status is what a kubelet would tell."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.support.cluster.api import JSON_PATCH, Object, condition, wait_for
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.images import digest_of
from tests.support.cluster.users import GATE as GATE_USER
from tests.support.cluster.workloads import GATE, deployment, service, simulated


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_deployment_of_the_simulated_engine_rolls_out_and_its_slice_has_the_address_of_its_pod(
    namespace: Namespace,
) -> None:
    namespace.apply(deployment("engine", simulated()))
    namespace.apply(service("engine"))
    namespace.rolled_out("engine")
    (pod,) = namespace.pods(app="engine")
    address = pod["status"]["podIP"]
    assert address.startswith("10.88.")
    assert httpx.get(f"http://{address}:8080/health", trust_env=False).json() == {"status": "ok"}
    slices = wait_for(lambda: namespace.slices("engine"))
    assert {ip: conditions["ready"] for ip, conditions in slices.items()} == {address: True}
    (told,) = pod["status"]["containerStatuses"]
    assert (told["ready"], told["restartCount"], list(told["state"])) == (True, 0, ["running"])
    assert told["containerID"].startswith("containerd://")
    assert told["imageID"] == f"registry.example/prefillgate@{digest_of('registry.example/prefillgate:1')}"
    shown = namespace.kubectl("get", "pods", "--no-headers").stdout.split()
    assert shown[1:4] == ["1/1", "Running", "0"]


def test_two_pods_serve_on_the_same_port_each_on_its_own_address(namespace: Namespace) -> None:
    namespace.apply(deployment("engine", simulated(), replicas=2))
    namespace.rolled_out("engine")
    addresses = {pod["status"]["podIP"] for pod in namespace.pods(app="engine")}
    assert len(addresses) == 2
    for address in addresses:
        assert httpx.get(f"http://{address}:8080/health", trust_env=False).status_code == 200


def test_a_new_pod_template_rolls_over_to_a_process_with_the_new_arguments(namespace: Namespace) -> None:
    namespace.apply(deployment("engine", simulated("--model", "old-model")))
    namespace.rolled_out("engine")
    (before,) = namespace.pods(app="engine")
    old_process = namespace.cluster.node.container(namespace.name, before["metadata"]["name"]).pid
    assert old_process is not None
    assert alive(old_process)
    namespace.apply(deployment("engine", simulated("--model", "new-model")))
    namespace.rolled_out("engine")
    namespace.cluster.api().wait_gone(namespace.path("pods", before["metadata"]["name"]))
    (after,) = namespace.pods(app="engine")
    served = httpx.get(f"http://{after['status']['podIP']}:8080/v1/models", trust_env=False).json()
    assert [model["id"] for model in served["data"]] == ["new-model"]
    assert not alive(old_process)


def test_a_readiness_gate_holds_a_pod_out_of_its_service_until_the_condition_is_set(namespace: Namespace) -> None:
    namespace.apply(service("engine"))
    namespace.apply(deployment("engine", simulated(), gate=True))
    api = namespace.cluster.api()
    name = wait_for(lambda: namespace.pods(app="engine"))[0]["metadata"]["name"]
    pod = api.wait(namespace.path("pods", name), lambda found: condition(found, "ContainersReady") == "True")
    address = pod["status"]["podIP"]
    assert condition(pod, "Ready") == "False"
    held = wait_for(lambda: namespace.slices("engine").get(address))
    assert held["ready"] is False
    assert namespace.kubectl("get", "pods", "-o", "wide").stdout.splitlines()[1].rstrip().endswith("0/1")

    namespace.grant(GATE_USER, {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch"]})
    told = {"status": {"conditions": [{"type": GATE, "status": "True"}]}}
    patched = namespace.kubectl(
        *("patch", "pod", name, "--subresource=status", "--type=strategic", "-p", json.dumps(told)), user=GATE_USER
    )
    assert patched.returncode == 0, patched.stderr
    namespace.rolled_out("engine")
    assert wait_for(lambda: namespace.slices("engine")[address]["ready"]) is True
    written = namespace.cluster.audit.wait(
        lambda entry: entry.subresource == "status", verb="patch", resource="pods", name=name, user="prefillgate"
    )
    assert written.code == 200


def test_a_container_that_crashes_is_restarted_later_and_later_and_is_never_ready(namespace: Namespace) -> None:
    server = simulated("--model", "") | {"command": ["sh", "-c", "echo no such device >&2; exit 3"]}
    namespace.apply(deployment("engine", server))
    name = wait_for(lambda: namespace.pods(app="engine"))[0]["metadata"]["name"]

    def loops(found: Object) -> bool:
        states = found["status"].get("containerStatuses", [])
        return bool(states) and states[0]["restartCount"] >= 2 and "waiting" in states[0]["state"]

    pod = namespace.cluster.api().wait(namespace.path("pods", name), loops)
    (told,) = pod["status"]["containerStatuses"]
    assert told["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    ended = told["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], told["ready"]) == (3, "Error", False)
    assert ended["containerID"] == told["containerID"]
    assert condition(pod, "Ready") == "False"
    assert namespace.cluster.node.log(namespace.name, name) == "no such device\n"
    assert "CrashLoopBackOff" in namespace.kubectl("get", "pods").stdout


def test_each_life_of_a_container_has_an_id_of_its_own(namespace: Namespace) -> None:
    namespace.apply(deployment("engine", simulated()))
    namespace.rolled_out("engine")
    (pod,) = namespace.pods(app="engine")
    first, name = pod["status"]["containerStatuses"][0]["containerID"], pod["metadata"]["name"]
    namespace.cluster.node.container(namespace.name, name).kill()
    after = namespace.cluster.api().wait(
        namespace.path("pods", name),
        lambda found: (
            found["status"]["containerStatuses"][0]["restartCount"] == 1 and condition(found, "Ready") == "True"
        ),
    )
    (told,) = after["status"]["containerStatuses"]
    assert told["containerID"] != first
    assert told["lastState"]["terminated"]["exitCode"] == 137
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert httpx.get(f"http://{after['status']['podIP']}:8080/health", trust_env=False).status_code == 200


def test_deleting_a_deployment_ends_its_processes(namespace: Namespace) -> None:
    namespace.apply(deployment("engine", simulated(), replicas=2))
    namespace.rolled_out("engine")
    names = [pod["metadata"]["name"] for pod in namespace.pods(app="engine")]
    processes = [namespace.cluster.node.container(namespace.name, name).pid for name in names]
    assert all(pid is not None and alive(pid) for pid in processes)
    assert namespace.kubectl("delete", "deployment", "engine", "--wait=false").returncode == 0
    for name in names:
        namespace.cluster.api().wait_gone(namespace.path("pods", name))
    assert [pid for pid in processes if pid is not None and alive(pid)] == []


def test_a_pod_deleted_by_force_leaves_no_process(namespace: Namespace) -> None:
    namespace.apply(
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "one"}, "spec": {"containers": [simulated()]}}
    )
    namespace.cluster.api().wait(namespace.path("pods", "one"), lambda found: condition(found, "Ready") == "True")
    pid = namespace.cluster.node.container(namespace.name, "one").pid
    assert pid is not None
    assert namespace.kubectl("delete", "pod", "one", "--grace-period=0", "--force").returncode == 0
    wait_for(lambda: not alive(pid))


def test_a_container_gets_its_environment_and_volumes_from_config_maps_secrets_and_its_pod(
    namespace: Namespace,
) -> None:
    script = "env; cat /etc/engine/layers.ini /run/keys/token $ACCOUNT/namespace; test -s $ACCOUNT/token"
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "engine"},
                    "data": {"split": "3,1", "ini": "n=9\n"},
                },
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "keys"},
                    "stringData": {"token": "s3cret\n"},
                },
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "one", "labels": {"line": "chat"}},
                    "spec": {
                        "volumes": [
                            {
                                "name": "config",
                                "configMap": {"name": "engine", "items": [{"key": "ini", "path": "layers.ini"}]},
                            },
                            {"name": "keys", "secret": {"secretName": "keys"}},
                        ],
                        "containers": [
                            {
                                "name": "shell",
                                "image": "busybox:1",
                                "args": ["-c", script + " && echo '$(ONE)-$(NONE)-$$(ONE)'; sleep 60"],
                                "envFrom": [{"configMapRef": {"name": "engine"}, "prefix": "CONF_"}],
                                "env": [
                                    {"name": "ONE", "value": "1"},
                                    {"name": "BOTH", "value": "$(ONE)+$(CONF_split)"},
                                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
                                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                                    {
                                        "name": "LINE",
                                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['line']"}},
                                    },
                                    {"name": "ACCOUNT", "value": "/var/run/secrets/kubernetes.io/serviceaccount"},
                                ],
                                "volumeMounts": [
                                    {"name": "config", "mountPath": "/etc/engine"},
                                    {"name": "keys", "mountPath": "/run/keys"},
                                ],
                            }
                        ],
                    },
                },
            ],
        }
    )
    pod = namespace.cluster.api().wait(namespace.path("pods", "one"), lambda found: condition(found, "Ready") == "True")
    printed = wait_for(lambda: log if "NONE" in (log := namespace.cluster.node.log(namespace.name, "one")) else "")
    seen = dict(line.partition("=")[::2] for line in printed.splitlines())
    assert {name: seen[name] for name in ("ONE", "BOTH", "KEY", "CONF_split", "LINE")} == {
        "ONE": "1",
        "BOTH": "1+3,1",
        "KEY": "s3cret",
        "CONF_split": "3,1",
        "LINE": "chat",
    }
    assert seen["IP"] == pod["status"]["podIP"]
    assert f"n=9\ns3cret\n{namespace.name}" in printed
    assert printed.endswith("1-$(NONE)-$(ONE)\n")
    assert not Path("/etc/engine").exists()


def test_a_pod_waits_for_a_secret_that_is_not_there_and_says_so(namespace: Namespace) -> None:
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]
    namespace.apply(deployment("engine", simulated(env=env)))
    api, name = namespace.cluster.api(), wait_for(lambda: namespace.pods(app="engine"))[0]["metadata"]["name"]

    def waits(found: Object) -> Any:
        return any("message" in s["state"].get("waiting", {}) for s in found["status"].get("containerStatuses", []))

    told = api.wait(namespace.path("pods", name), waits)["status"]["containerStatuses"][0]["state"]["waiting"]
    assert told == {"reason": "CreateContainerConfigError", "message": 'secret "late" not found'}
    api.create(namespace.path("secrets"), {"metadata": {"name": "late"}, "stringData": {"k": "v"}})
    namespace.rolled_out("engine")


def test_a_container_is_its_service_account_to_the_api_server(namespace: Namespace) -> None:
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = (
        f'curl -s --cacert {place}/ca.crt -H "Authorization: Bearer $(cat {place}/token)" '
        f"https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$(cat {place}/namespace)/pods"
    )
    one = {"name": "shell", "image": "busybox", "args": ["-c", script]}
    spec = {"restartPolicy": "Never", "containers": [one]}
    namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec})
    namespace.wait_pod("one", lambda found: found["status"]["phase"] == "Succeeded")
    told = json.loads(namespace.cluster.node.log(namespace.name, "one"))
    assert told["code"] == 403
    assert f'User "system:serviceaccount:{namespace.name}:default" cannot list resource "pods"' in told["message"]


def test_first_containers_run_before_the_others_and_a_gated_pod_waits_for_its_node(namespace: Namespace) -> None:
    shared = [{"name": "shared", "mountPath": "/models"}]
    first = {"name": "first", "image": "busybox", "args": ["-c", "echo weights > /models/w"], "volumeMounts": shared}
    then = {"name": "then", "image": "busybox", "args": ["-c", "cat /models/w"], "volumeMounts": shared}
    spec = {"volumes": [{"name": "shared", "emptyDir": {}}], "initContainers": [first], "containers": [then]}
    spec |= {"restartPolicy": "Never", "schedulingGates": [{"name": "example.com/wait"}]}
    namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec})
    namespace.apply(deployment("other", simulated()))
    namespace.rolled_out("other")  # the node is at work, and has seen both
    waits = namespace.wait_pod("one", bool)
    assert "nodeName" not in waits["spec"]
    namespace.cluster.api().ask(
        "PATCH", namespace.path("pods", "one"), [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH
    )
    namespace.wait_pod("one", lambda found: found["status"]["phase"] == "Succeeded")
    assert namespace.cluster.node.log(namespace.name, "one") == "weights\n"
    assert not Path("/models").exists()


def test_a_volume_hides_no_program_of_the_image_wherever_this_checkout_stands(namespace: Namespace) -> None:
    above = str(Path(sys.prefix).parent)
    container = {"name": "one", "image": "prefillgate", "args": ["--version"]}
    container["volumeMounts"] = [{"name": "tmp", "mountPath": above}]
    spec = {"volumes": [{"name": "tmp", "emptyDir": {}}], "containers": [container], "restartPolicy": "Never"}
    namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec})
    namespace.wait_pod("one", lambda found: found["status"]["phase"] == "Succeeded")
    assert "prefillgate" in namespace.cluster.node.log(namespace.name, "one")


def test_a_server_that_stops_answering_its_liveness_probe_is_restarted(namespace: Namespace) -> None:
    probes = {
        "startupProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 1, "failureThreshold": 2},
    }
    namespace.apply(deployment("engine", simulated(**probes)))
    namespace.rolled_out("engine")
    (pod,) = namespace.pods(app="engine")
    name = pod["metadata"]["name"]
    assert pod["status"]["containerStatuses"][0]["started"] is True
    pid = namespace.cluster.node.container(namespace.name, name).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: condition(namespace.wait_pod(name, bool), "Ready") == "False")
    os.kill(pid, signal.SIGCONT)
    namespace.wait_pod(name, lambda found: found["status"]["containerStatuses"][0]["restartCount"] == 1)
    namespace.wait_pod(name, lambda found: condition(found, "Ready") == "True")


def test_an_image_that_nobody_has_is_told_and_holds_the_rollout(namespace: Namespace) -> None:
    namespace.apply(deployment("engine", simulated(image="registry.example/unheard-of:1")))
    name = wait_for(lambda: namespace.pods(app="engine"))[0]["metadata"]["name"]

    def told(found: Object) -> bool:
        states = found["status"].get("containerStatuses", [])
        return any(s["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for s in states)

    pod = namespace.cluster.api().wait(namespace.path("pods", name), told)
    assert pod["status"]["phase"] == "Pending"


def test_a_job_ends_as_its_container_does(namespace: Namespace) -> None:
    for name, code in (("good", 0), ("bad", 4)):
        one = {"name": "shell", "image": "busybox", "args": ["-c", f"exit {code}"]}
        template = {"spec": {"restartPolicy": "Never", "containers": [one]}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
        namespace.apply({**job, "spec": {"backoffLimit": 0, "template": template}})
    api = namespace.cluster.api()
    for name, ending in (("good", "Complete"), ("bad", "Failed")):
        api.wait(
            namespace.path("jobs", name, "batch"),
            lambda found, ending=ending: any(
                c["type"] == ending and c["status"] == "True" for c in found.get("status", {}).get("conditions", [])
            ),
        )
