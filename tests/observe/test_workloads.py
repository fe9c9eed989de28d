"""Profiles from workloads of every kind, and what is told of servers that will never serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prefillgate.kube.access import Where
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.objects import Object
from prefillgate.kube.reflector import Pace
from prefillgate.reconcile.snapshot import LineSnapshot
from tests.observe.test_deployments import promoted_status, serving
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.users import BOB
from tests.support.cluster.workloads import container, deployment, simulated
from tests.support.looking import Eyes, config_map, line, looking, replay_set

LWS = ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
KSERVE = ("serving.kserve.io", "v1beta1", "inferenceservices", "InferenceService")
FLEET = ("fleet.example.com", "v1", "fleets", "Fleet")


def crd(group: str, version: str, plural: str, kind: str) -> Object:
    """A definition that takes anything."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def of_kind(named: tuple[str, str, str, str], name: str = "engine", **more: Any) -> Object:
    """The usual line of another workload."""
    ref = {"apiVersion": f"{named[0]}/{named[1]}", "kind": named[3], "name": name, **more}
    return line(baseline={"workloadRef": ref, "endpoint": {"pods": {"port": 8080}}})


def install(namespace: Namespace, named: tuple[str, str, str, str]) -> None:
    namespace.apply(crd(*named))
    done = namespace.kubectl("wait", "--for=condition=Established", f"crd/{named[2]}.{named[0]}")
    assert done.returncode == 0, done.stderr


def owner(namespace: Namespace, resource: str, name: str) -> list[Object]:
    """What makes an object the property of another one."""
    done = namespace.kubectl("get", resource, name, "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    kind, uid = found["kind"], found["metadata"]["uid"]
    return [{"apiVersion": found["apiVersion"], "kind": kind, "name": name, "uid": uid, "controller": True}]


def stateful_set(name: str, *args: str) -> Object:
    made = deployment(name, simulated(*args))
    made["kind"] = "StatefulSet"
    made["spec"].pop("strategy")
    made["spec"]["serviceName"] = name
    return made


async def promote(namespace: Namespace, seen: LineSnapshot) -> None:
    status = json.dumps({"status": promoted_status(seen)})
    done = namespace.kubectl("patch", "sl", "chat", "--subresource=status", "--type=merge", "-p", status)
    assert done.returncode == 0, done.stderr


async def test_the_revisions_of_a_stateful_set_tell_its_pods_apart(eyes: Eyes, namespace: Namespace) -> None:
    key = f"{namespace.name}/chat"
    given = ("apps", "v1", "statefulsets", "StatefulSet")
    made = stateful_set("engine", "--model", "m")
    made["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}  # no pod is replaced
    namespace.apply(made)
    namespace.apply(of_kind(given))
    first = await eyes.until(key, lambda seen: serving(seen, 1))
    assert first.slots[0].template is not None
    assert first.slots[0].template.kind == "ControllerRevision"
    await promote(namespace, first)
    made["spec"]["template"]["spec"]["containers"][0]["args"] += ["--seed", "7"]
    namespace.apply(made)
    seen = await eyes.until(key, lambda seen: seen if seen.candidate is not None else None)
    assert seen.baseline is not None
    assert [each.name for each in seen.baseline.ready] == ["engine-0"]
    assert seen.candidate is not None
    assert seen.candidate.servers == ()


async def test_the_leader_of_a_group_serves_and_both_templates_are_the_profile(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    install(namespace, LWS)
    templates = {
        "leaderTemplate": {"spec": {"containers": [simulated("--model", "m")]}},
        "workerTemplate": {"spec": {"containers": [simulated("--seed", "3")]}},
    }
    group = {"apiVersion": f"{LWS[0]}/{LWS[1]}", "kind": LWS[3], "metadata": {"name": "engine"}}
    namespace.apply({**group, "spec": {"leaderWorkerTemplate": {**templates, "size": 2}}})
    own_group(namespace, 0, "--seed", "3")
    namespace.apply(of_kind(LWS))
    seen = await eyes.until(key, lambda seen: serving(seen, 1))
    assert [each.name for each in seen.baseline.servers if seen.baseline] == ["engine-0-leader-0"]
    assert [part.role for part in seen.slots[0].profile.parts] == ["leader", "worker"]
    assert seen.slots[0].profile.resolved
    assert seen.baseline is not None
    assert seen.baseline.notes == ()

    await promote(namespace, seen)
    templates["workerTemplate"]["spec"]["containers"] = [simulated("--seed", "4")]
    namespace.apply({**group, "spec": {"leaderWorkerTemplate": {**templates, "size": 2}}})
    own_group(namespace, 1, "--seed", "4")  # its leader is as the other one's

    def both(seen: LineSnapshot) -> LineSnapshot | None:
        arms = (seen.baseline, seen.candidate)
        return seen if all(arm is not None and len(arm.ready) == 1 for arm in arms) else None

    changed = await eyes.until(key, both)
    assert changed.baseline is not None
    assert changed.candidate is not None
    assert changed.baseline.digest == seen.baseline.digest
    assert [each.name for each in changed.baseline.ready] == ["engine-0-leader-0"]
    assert [each.name for each in changed.candidate.ready] == ["engine-1-leader-0"]


def own_group(namespace: Namespace, number: int, *worker: str) -> None:
    """A leader and a worker, as the controller of LeaderWorkerSets makes them."""
    marks = "leaderworkerset.sigs.k8s.io"
    for role, index, args in (("leader", "0", ("--model", "m")), ("worker", "1", worker)):
        made = stateful_set(f"engine-{number}-{role}", *args)
        made["metadata"]["ownerReferences"] = owner(namespace, LWS[2], "engine")
        labels = {f"{marks}/name": "engine", f"{marks}/group-index": str(number), f"{marks}/worker-index": index}
        made["spec"]["template"]["metadata"]["labels"] = {"app": made["metadata"]["name"], **labels}
        namespace.apply(made)


async def test_of_an_inference_service_the_deployment_that_it_makes_tells_the_profile(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    install(namespace, KSERVE)
    head = {"apiVersion": f"{KSERVE[0]}/{KSERVE[1]}", "kind": KSERVE[3], "metadata": {"name": "engine"}}
    namespace.apply({**head, "spec": {"predictor": {"model": {"modelFormat": {"name": "huggingface"}}}}})
    namespace.apply(of_kind(KSERVE))
    seen = await eyes.until(key, lambda seen: seen if seen.troubles else None)
    (trouble,) = seen.troubles
    assert (trouble.reason, trouble.field) == ("TemplateNotFound", "spec.baseline.workloadRef")
    made = deployment("engine-predictor", simulated("--model", "m"))
    made["metadata"]["ownerReferences"] = owner(namespace, KSERVE[2], "engine")
    namespace.apply(made)
    seen = await eyes.until(key, lambda seen: serving(seen, 1))
    assert seen.troubles == ()
    assert "m" in [each.value for each in seen.slots[0].profile.settings if each.name == "model"]


async def test_any_kind_with_a_pod_template_is_read_once_its_definition_is_there(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(of_kind(FLEET, podTemplatePath="spec.pools[0].template"))
    reasons = await eyes.until(key, lambda seen: {each.reason for each in seen.troubles})
    assert reasons == {"WorkloadNotFound"}
    install(namespace, FLEET)
    template = {"metadata": {"labels": {"app": "engine"}}, "spec": {"containers": [simulated("--model", "m")]}}
    head = {"apiVersion": f"{FLEET[0]}/{FLEET[1]}", "kind": FLEET[3], "metadata": {"name": "engine"}}
    namespace.apply({**head, "spec": {"pools": [{"template": template}]}})
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {
        **template["metadata"],
        "name": "engine-a",
        "ownerReferences": owner(namespace, "fleets", "engine"),
    }
    namespace.apply(pod)
    seen = await eyes.until(key, lambda seen: serving(seen, 1))
    assert seen.troubles == ()
    assert [each.name for each in seen.baseline.servers if seen.baseline] == ["engine-a"]


async def test_a_candidate_that_crashes_again_and_again_is_unavailable_in_its_own_words(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated()))
    namespace.apply(line())
    first = await eyes.until(key, lambda seen: serving(seen, 1))
    await promote(namespace, first)
    namespace.apply(deployment("engine", simulated("--no-such-option")))
    said = await eyes.until(key, lambda seen: seen.candidate and seen.candidate.unavailable)
    assert said.startswith("pod engine-")
    assert "container server: CrashLoopBackOff" in said or "container server: ended with" in said
    seen = await eyes.seen(key)
    assert seen.baseline is not None
    assert (len(seen.baseline.ready), seen.baseline.unavailable) == (1, None)


async def test_an_image_that_cannot_be_pulled_is_unavailable(eyes: Eyes, namespace: Namespace) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", container("registry.example/not-there:1", ["serve"])))
    namespace.apply(line())
    said = await eyes.until(key, lambda seen: seen.baseline and seen.baseline.unavailable)
    assert "ImagePullBackOff" in said


async def test_what_may_not_be_read_is_told_with_the_rule_that_allows_it(namespace: Namespace, tmp_path: Path) -> None:
    """With the rights of somebody who may read our own kinds and ConfigMaps alone."""
    key = f"{namespace.name}/chat"
    read = ["get", "list", "watch"]
    ours = {"apiGroups": ["prefillgate.io"], "resources": ["*"], "verbs": read}
    namespace_rules = [ours, {"apiGroups": [""], "resources": ["configmaps"], "verbs": read}]
    namespace.grant(BOB, *namespace_rules)
    namespace.apply(config_map())
    namespace.apply(replay_set())
    namespace.apply(deployment("engine", simulated()))
    namespace.apply(line(baseline={**line()["spec"]["baseline"], "apiKeySecretRef": {"name": "key", "key": "k"}}))
    bobs = Where(str(namespace.cluster.plane.kubeconfig(BOB)))
    often = Pace(backoff=Backoff(0.1, 0.5))
    async with (
        await Kube.connect(bobs) as kube,
        looking(kube, tmp_path, namespaces=(namespace.name,), pace=often) as eyes,
    ):
        seen = await eyes.until(key, lambda seen: seen if len(seen.troubles) >= 4 else None)
        told = {(each.reason, each.field): each.detail for each in seen.troubles}
        assert {reason for reason, _ in told} == {"WorkloadForbidden", "SecretNotUsable"}
        words = " ".join(each.detail for each in seen.troubles)
        for rule in (
            '{apiGroups: ["apps"], resources: [deployments, replicasets], verbs: [get, list, watch]}',
            '{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}',
            '{apiGroups: [""], resources: [secrets], resourceNames: [key], verbs: [get]}',
        ):
            assert rule in words
        assert {kind for kind, _ in eyes.refused} >= {"Pod", "Deployment", "ReplicaSet"}
        rules = [
            {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": read},
            {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": read},
        ]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "for-bob"}}
        namespace.apply({**role, "rules": [*namespace_rules, *rules]})
        seen = await eyes.until(key, lambda seen: seen if len(seen.troubles) == 1 else None)
        assert [each.reason for each in seen.troubles] == ["SecretNotFound"]
        assert seen.slots
