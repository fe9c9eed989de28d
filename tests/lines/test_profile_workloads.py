"""Profiles of every kind of workload: what changes them, which pods are of which, and what must be allowed."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.journal import Difference
from prefillgate.profiles import (
    RBAC,
    Profile,
    ProfileError,
    Recorded,
    Rule,
    SecretFacts,
    arm_of,
    config_map_data,
    differences,
    image_ids_of,
    in_words,
    inline_profile,
    needed_config_maps,
    profile_of,
    recorded,
    rules_for,
    shown_profile,
    used_config_maps,
    used_secrets,
)
from prefillgate.profiles.compare import MOST_DIFFERENCES
from prefillgate.profiles.fields import MOST_ITEMS
from tests.support.manifests import (
    LLAMA_IMAGE,
    SGLANG_IMAGE,
    VLLM_IMAGE,
    container,
    deployment,
    llama,
    pod_spec,
    profile,
    sources,
    values,
)

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def whole() -> dict[str, Any]:
    """A Deployment with everything that a profile looks at."""
    spec = pod_spec(
        container(
            VLLM_IMAGE,
            *("org/m", "-tp", "2"),
            env=[{"name": "A", "value": "1"}, {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            envFrom=[{"configMapRef": {"name": "vars"}}, {"secretRef": {"name": "all"}, "prefix": "P_"}],
            resources={"limits": {"nvidia.com/gpu": 2, "cpu": "4", "memory": "64Gi"}, "requests": {"cpu": "1"}},
            volumeMounts=[
                {"name": "c", "mountPath": "/etc/e"},
                {"name": "t", "mountPath": "/t.jinja", "subPath": "t.jinja"},
                {"name": "k", "mountPath": "/keys"},
                {"name": "kube-api-access", "mountPath": "/run/secrets/kubernetes.io/serviceaccount"},
            ],
            livenessProbe={"httpGet": {"path": "/health", "port": 8000}},
            ports=[{"containerPort": 8000}],
        ),
        {"name": "proxy", "image": "proxy:1", "args": ["--listen", "1"]},
        initContainers=[{"name": "fetch", "image": "fetch:1", "command": ["get", "org/m"]}],
        nodeSelector={"nvidia.com/gpu.product": "H100"},
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        volumes=[
            {"name": "c", "configMap": {"name": "cfg", "items": [{"key": "a", "path": "b"}]}},
            {"name": "t", "projected": {"sources": [{"configMap": {"name": "tpl"}}, {"secret": {"name": "proj"}}]}},
            {"name": "k", "secret": {"secretName": "keys"}},
            {"name": "kube-api-access", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
        ],
    )
    return deployment(spec, metadata={"labels": {"a": "b"}, "annotations": {"checksum/secret": "c1", "note": "n"}})


def around(**given: Any) -> Any:
    maps = {"vars": {"FROM_MAP": "1"}, "cfg": {"a": "text", "other": "x"}, "tpl": {"t.jinja": "tpl", "u": "y"}}
    secrets = {"all": SecretFacts(("X",)), "keys": SecretFacts(("one", "two"))}
    return sources(**{"config_maps": maps, "secrets": secrets, **given})


def test_everything_that_matters_is_a_setting() -> None:
    found = profile_of(whole(), around())
    told = values(found)
    digests = {name: value for name, value in told.items() if name.startswith(("file ", "annotation "))}
    assert {name: re.sub(r"[0-9a-f]{10,16}", "#", value) for name, value in digests.items()} == {
        "file /etc/e/b": "digest #",
        "file /t.jinja": "digest #",
        "annotation checksum/secret": "[sealed-#]",
    }
    assert {name: value for name, value in told.items() if name not in digests} == {
        "weights": "org/m",
        "tp_size": "2",
        "env A": "1",
        "env S": "Secret s key k",
        "env FROM_MAP": "1",
        "env P_X": "Secret all key X",
        "nvidia.com/gpu": "2",
        "node selector nvidia.com/gpu.product": "H100",
        "node affinity": '{"nodeSelectorTerms": []}',
        "secret /keys": "Secret keys, keys one, two",
        "secret /t.jinja": "Secret proj, all keys",
        "volume /t.jinja": "Secret, sub-path t.jinja",
        "init container 1": "fetch:1 get org/m",
        "sidecar 1": "proxy:1 --listen 1",
    }
    assert found.notes == () and not found.resolved
    assert found.parts[0].why_container == "its image or command is a known engine's"


def engine(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def spec_of(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


CHANGES_THAT_MATTER: dict[str, Any] = {
    "image": lambda w: engine(w).update(image="vllm/vllm-openai:v0.34.0"),
    "argument": lambda w: engine(w)["args"].append("--enforce-eager"),
    "command": lambda w: engine(w).update(command=["/own/vllm", "serve"]),
    "variable": lambda w: engine(w)["env"][0].update(value="2"),
    "new variable": lambda w: engine(w)["env"].append({"name": "B", "value": ""}),
    "secret of a variable": lambda w: engine(w)["env"][1]["valueFrom"]["secretKeyRef"].update(name="t"),
    "key of a variable": lambda w: engine(w)["env"][1]["valueFrom"]["secretKeyRef"].update(key="l"),
    "prefix": lambda w: engine(w)["envFrom"][1].update(prefix="Q_"),
    "GPUs": lambda w: engine(w)["resources"]["limits"].update({"nvidia.com/gpu": 4}),
    "kind of GPU": lambda w: engine(w)["resources"].update(limits={"amd.com/gpu": 2}),
    "node selector": lambda w: spec_of(w)["nodeSelector"].update({"nvidia.com/gpu.product": "A100"}),
    "node affinity": lambda w: spec_of(w).update(affinity={}),
    "runtime class": lambda w: spec_of(w).update(runtimeClassName="nvidia"),
    "mount path": lambda w: engine(w)["volumeMounts"][0].update(mountPath="/etc/f"),
    "other secret mounted": lambda w: spec_of(w)["volumes"][2]["secret"].update(secretName="keys2"),
    "secret checksum": lambda w: w["spec"]["template"]["metadata"]["annotations"].update({"checksum/secret": "c2"}),
    "init container": lambda w: spec_of(w)["initContainers"][0].update(command=["get", "org/n"]),
    "image of an init container": lambda w: spec_of(w)["initContainers"][0].update(image="fetch:2"),
    "sidecar": lambda w: spec_of(w)["containers"][1].update(args=["--listen", "2"]),
    "resource claim": lambda w: spec_of(w).update(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]),
}
CHANGES_THAT_DO_NOT: dict[str, Any] = {
    "replicas": lambda w: w["spec"].update(replicas=9),
    "strategy": lambda w: w["spec"].update(strategy={"type": "Recreate"}),
    "labels": lambda w: w["spec"]["template"]["metadata"].update(labels={"c": "d"}),
    "annotation": lambda w: w["spec"]["template"]["metadata"]["annotations"].update(note="m"),
    "checksum of a ConfigMap": lambda w: w["spec"]["template"]["metadata"]["annotations"].update(
        {"checksum/config": "c"}
    ),
    "name": lambda w: w["metadata"].update(name="other"),
    "name of the container": lambda w: engine(w).update(name="other"),
    "name of a sidecar": lambda w: spec_of(w)["containers"][1].update(name="other"),
    "name of a volume": lambda w: (
        spec_of(w)["volumes"][0].update(name="d"),
        engine(w)["volumeMounts"][0].update(name="d"),
    ),
    "probes": lambda w: engine(w).update(livenessProbe=None, readinessProbe={"exec": {}}),
    "ports": lambda w: engine(w).update(ports=[]),
    "CPU and memory": lambda w: engine(w)["resources"]["limits"].update(cpu="8", memory="1Gi"),
    "requests": lambda w: engine(w)["resources"].update(requests={"cpu": "9"}),
    "order of variables": lambda w: engine(w)["env"].reverse(),
    "order of flags": lambda w: engine(w).update(args=["--tensor-parallel-size=2", "--model", "org/m"]),
    "image pull policy": lambda w: engine(w).update(imagePullPolicy="Always"),
    "injected sidecar": lambda w: spec_of(w)["containers"].append({"name": "istio-proxy", "image": "i"}),
    "injected variable": lambda w: engine(w)["env"].append({"name": "AWS_ROLE_ARN", "value": "x"}),
    "termination": lambda w: spec_of(w).update(terminationGracePeriodSeconds=5),
}


@pytest.mark.parametrize("change", CHANGES_THAT_MATTER)
def test_a_change_that_matters_is_another_digest(change: str) -> None:
    workload = whole()
    CHANGES_THAT_MATTER[change](workload)
    before, after = profile_of(whole(), around()), profile_of(workload, around())
    assert before.digest != after.digest and before.written_digest != after.written_digest
    assert in_words(before, after) != ""


@pytest.mark.parametrize("change", CHANGES_THAT_DO_NOT)
def test_a_change_that_does_not_matter_is_none(change: str) -> None:
    workload = whole()
    CHANGES_THAT_DO_NOT[change](workload)
    assert workload != whole()
    before, after = profile_of(whole(), around()), profile_of(workload, around())
    assert (before.digest, before.written_digest) == (after.digest, after.written_digest)
    assert in_words(before, after) == "" and differences(before, after) == ()


def test_a_mounted_config_map_that_changes_is_another_digest_and_its_other_keys_are_not() -> None:
    maps = {"vars": {"FROM_MAP": "1"}, "cfg": {"a": "text", "other": "x"}, "tpl": {"t.jinja": "tpl", "u": "y"}}
    before = profile_of(whole(), around(config_maps=maps)).digest
    for name, key, same in (("cfg", "a", False), ("vars", "FROM_MAP", False), ("tpl", "t.jinja", False)):
        changed = {**maps, name: {**maps[name], key: "other"}}
        assert (profile_of(whole(), around(config_maps=changed)).digest == before) is same
    for name, key in (("cfg", "other"), ("tpl", "u")):
        changed = {**maps, name: {**maps[name], key: "other"}}
        assert profile_of(whole(), around(config_maps=changed)).digest == before


def test_what_was_not_read_is_said() -> None:
    notes = profile_of(whole(), sources()).notes
    assert notes == (
        "ConfigMap vars, which gives variables, was not there or not read",
        "Secret all gives variables whose names are not known",
        "ConfigMap cfg has no key a, or was not read",
        "ConfigMap tpl has no key t.jinja, or was not read",
    )


def test_a_reader_knows_beforehand_what_to_read() -> None:
    spec = spec_of(whole())
    assert used_config_maps(spec) == ("cfg", "tpl", "vars")
    assert needed_config_maps(spec) == ("cfg", "tpl", "vars")
    spec["volumes"] += [{"name": "d", "configMap": {"name": "may", "optional": True}}]
    spec["containers"][0]["envFrom"] += [{"configMapRef": {"name": "tpl", "optional": True}}]
    assert used_config_maps(spec) == ("cfg", "may", "tpl", "vars")
    assert needed_config_maps(spec) == ("cfg", "tpl", "vars")
    assert used_secrets(spec) == ("all", "keys", "proj", "s")
    binary = f"binary, sha256 {hashlib.sha256(b'ZA==').hexdigest()}"
    assert config_map_data({"data": {"a": "b"}, "binaryData": {"c": "ZA=="}}) == {"a": "b", "c": binary}


# The container that serves.


def test_the_container_is_the_named_one_else_a_known_engine_else_the_first() -> None:
    both = deployment(
        pod_spec({"name": "a", "image": "nginx"}, container(VLLM_IMAGE, "m"), {"name": "z", "image": "own/z"})
    )
    part = profile_of(both, sources()).parts[0]
    assert (part.container, part.why_container) == ("engine", "its image or command is a known engine's")
    part = profile_of(both, sources(container="z")).parts[0]
    assert (part.container, part.why_container, part.engine) == ("z", "named", None)
    none = deployment(pod_spec({"name": "a", "image": "nginx"}, {"name": "b", "image": "own/x"}))
    part = profile_of(none, sources()).parts[0]
    assert (part.container, part.why_container) == ("a", "the first one; none is a known engine's")
    by_command = deployment(
        pod_spec({"name": "a", "image": "x"}, {"name": "b", "image": "y", "command": ["llama-server"]})
    )
    assert profile_of(by_command, sources()).parts[0].container == "b"
    with pytest.raises(ProfileError, match=r"container: no container is called q \(allowed: a, engine, z\)"):
        profile_of(both, sources(container="q"))


@pytest.mark.parametrize("hint", ["vllm", "llama.cpp", "sglang"])
def test_a_person_names_the_engine_where_nothing_tells_it(hint: str) -> None:
    workload = deployment(pod_spec(container("own/engine", "-tp", "2", "--tp", "3", "-c", "4")))
    found = profile_of(workload, sources(engine=hint))
    assert found.engine == {"llama.cpp": "llama-server"}.get(hint, hint)
    assert profile_of(workload, sources()).engine is None
    known = profile_of(deployment(pod_spec(container(VLLM_IMAGE, "m"))), sources(engine="sglang"))
    assert known.engine == "vllm", "the image counts more"


# Kinds.


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "Rollout"])
def test_a_workload_with_its_template_in_the_usual_place_is_read(kind: str) -> None:
    spec = pod_spec(container(LLAMA_IMAGE, "-c", "1"))
    assert profile_of(deployment(spec, kind), sources()).digest == llama("-c", "1").digest


@pytest.mark.parametrize("path", ["spec.pools[1].template", "spec.pools[1].template.spec"])
def test_any_object_is_read_whose_template_stands_at_a_named_path(path: str) -> None:
    template = {"spec": pod_spec(container(LLAMA_IMAGE, "-c", "1"))}
    workload = {"kind": "Engine", "spec": {"pools": [{}, {"template": template}]}}
    assert profile_of(workload, sources(), path).digest == llama("-c", "1").digest


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("spec.pools[2].template", "spec.pools[2]: not there"),
        ("spec.other.template", "spec.other: not there"),
        ("spec.pools.template", "spec.pools.template: not there"),
        ("spec..x[", "podTemplatePath: not a path of fields"),
        ("spec.pools", "spec.pools: a list stands where fields are expected"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str, said: str) -> None:
    with pytest.raises(ProfileError) as error:
        profile_of({"kind": "Engine", "spec": {"pools": [{}]}}, sources(), path)
    assert str(error.value).startswith(said)


def group(leader: dict[str, Any] | None, worker: dict[str, Any], size: Any = 2) -> dict[str, Any]:
    held: dict[str, Any] = {"size": size, "workerTemplate": {"spec": pod_spec(worker)}}
    if leader is not None:
        held["leaderTemplate"] = {"spec": pod_spec(leader)}
    return {"kind": "LeaderWorkerSet", "spec": {"replicas": 1, "leaderWorkerTemplate": held}}


def test_a_leader_worker_set_is_its_leader_its_worker_and_its_size() -> None:
    leader, worker = container(SGLANG_IMAGE, "--tp", "16"), container(SGLANG_IMAGE, "--tp", "16", "--node-rank", "1")
    found = profile_of(group(leader, worker), sources())
    assert [part.role for part in found.parts] == ["leader", "worker"] and found.engine == "sglang"
    assert values(found) == {
        "group size": "2",
        "tp_size": "16",
        "worker/tp_size": "16",
        "worker/node-rank": "1",
        "worker/build": SGLANG_IMAGE,
    }
    other = container(SGLANG_IMAGE, "--tp", "8", "--node-rank", "1")
    changed = profile_of(group(leader, other), sources())
    assert changed.digest != found.digest and in_words(found, changed) == "worker tensor parallel size 16 -> 8"
    both = profile_of(group(container(SGLANG_IMAGE, "--tp", "8"), other), sources())
    assert in_words(found, both) == "tensor parallel size 16 -> 8"
    assert in_words(found, profile_of(group(leader, worker, 4), sources())) == "group size 2 -> 4"
    alone = profile_of(group(None, worker), sources())
    assert [part.role for part in alone.parts] == ["worker"]


def test_an_inference_service_is_its_model_or_its_containers() -> None:
    model = {
        "modelFormat": {"name": "huggingface"},
        "runtime": "kserve-huggingfaceserver",
        "storageUri": "hf://org/m",
        "args": ["--model_name=line", "--model_id=org/m", "--max_model_len=4096"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    found = profile_of({"kind": "InferenceService", "spec": {"predictor": {"model": model}}}, sources())
    assert values(found) == {
        "storage URI": "hf://org/m",
        "serving runtime": "kserve-huggingfaceserver",
        "model format": "huggingface",
        "model-name": "line",
        "weights": "org/m",
        "max-model-len": "4096",
        "nvidia.com/gpu": "1",
    }
    assert "the image is not told here" in found.notes and any(note.startswith("KServe adds") for note in found.notes)
    own = {"kind": "InferenceService", "spec": {"predictor": {"containers": [container(VLLM_IMAGE, "m", "-tp", "2")]}}}
    assert values(profile_of(own, sources())) == {"weights": "m", "tp_size": "2"}
    several = copy.deepcopy(own)
    several["spec"]["predictor"]["workerSpec"] = {"pipelineParallelSize": 2, "containers": [container(VLLM_IMAGE)]}  # type: ignore[index]
    told = values(profile_of(several, sources()))
    assert told["worker pipeline parallel size"] == "2" and "worker/build" in told


def test_an_llm_inference_service_is_its_model_its_templates_and_its_parallelism() -> None:
    workload = {
        "kind": "LLMInferenceService",
        "spec": {
            "model": {"uri": "hf://org/m", "name": "org/m"},
            "parallelism": {"tensor": 4},
            "baseRefs": [{"name": "base"}],
            "template": pod_spec(container(VLLM_IMAGE, "--max-model-len", "1")),
            "worker": pod_spec(container(VLLM_IMAGE, "--max-model-len", "1")),
        },
    }
    found = profile_of(workload, sources())
    assert [part.role for part in found.parts] == ["leader", "worker"]
    told = values(found)
    assert (told["model URI"], told["tensor parallelism"], told["base config 0"]) == ("hf://org/m", "4", "base")
    assert told["max-model-len"] == told["worker/max-model-len"] == "1"


def test_an_inline_profile_is_read_as_a_container_is() -> None:
    given = {"image": LLAMA_IMAGE, "args": ["-c", "1"], "env": {"A": "b"}, "configDigest": "sha256:x"}
    found = inline_profile(given, sources())
    assert values(found) == {"n_ctx": "1", "env A": "b", "config digest": "sha256:x"}
    listed = inline_profile({**given, "env": [{"name": "A", "value": "b"}]}, sources())
    assert listed.digest == found.digest != inline_profile({**given, "configDigest": "y"}, sources()).digest
    with pytest.raises(ProfileError, match=r"profile.arg: not a field of an inline profile \(allowed: image"):
        inline_profile({"arg": []}, sources())


# What must be allowed.


def test_every_kind_says_what_must_be_allowed_and_the_readme_does_too() -> None:
    for kind in RBAC:
        rules = rules_for(kind, "", "")
        assert {rule.resources for rule in rules} >= {("pods",), ("configmaps",)}
        assert all(rule.verbs == ("get", "list", "watch") and rule.why for rule in rules)
        assert not any("secrets" in rule.resources for rule in rules)
    own = Rule("example.io", ("engines",), ("get", "list", "watch"), "the object that holds the pod template")
    assert rules_for("Engine", "example.io", "engines")[-1] == own
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (`[a-z`, ./0-9-]+) \|", readme, re.MULTILINE))
    assert {kind: rows.get(kind) for kind in RBAC} == {
        kind: ", ".join(f"`{resource}.{rule.group}`" for rule in rules for resource in rule.resources)
        for kind, rules in RBAC.items()
    }


# Which pods are of which arm.


def pod(spec: dict[str, Any], image_id: str | None, **metadata: Any) -> dict[str, Any]:
    status = (
        {} if image_id is None else {"containerStatuses": [{"name": "engine", "imageID": f"docker.io/x@{image_id}"}]}
    )
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def resolved(spec: dict[str, Any], image_id: str) -> Profile:
    return profile_of(deployment(spec), sources(image_ids={"engine": image_id}))


OLD, NEW, THIRD = (pod_spec(container(VLLM_IMAGE, "m", "-tp", tp)) for tp in ("1", "2", "4"))


def test_a_pod_is_of_the_arm_whose_profile_is_its_own() -> None:
    arms = (resolved(OLD, ONE), resolved(NEW, ONE))
    assert arm_of(pod(OLD, ONE), arms, sources()).arm == "baseline"
    assert arm_of(pod(NEW, ONE), arms, sources()).arm == "candidate"
    neither = arm_of(pod(THIRD, ONE), arms, sources())
    assert neither.arm is None and neither.why_not == "tensor parallel size 1 -> 4"
    assert arm_of(pod(NEW, ONE), (arms[0], None), sources()).arm is None
    assert arm_of(pod(OLD, ONE), (arms[0], arms[0]), sources()).arm == "baseline"
    assert arm_of(pod(OLD, ONE), arms, sources()).digest == arms[0].digest


def test_a_pod_with_another_image_behind_the_same_tag_is_of_neither() -> None:
    arms = (resolved(OLD, ONE), resolved(NEW, ONE))
    moved = arm_of(pod(OLD, TWO), arms, sources())
    assert moved.arm is None and "image" in moved.why_not
    assert arm_of(pod(OLD, None), arms, sources()).arm is None, "an image that is not resolved yet proves nothing"
    unresolved = profile_of(deployment(NEW), sources())
    assert arm_of(pod(NEW, TWO), (arms[0], unresolved), sources()).arm == "candidate"


def test_an_image_pinned_by_its_digest_is_resolved_by_itself() -> None:
    pinned = pod_spec(container(f"vllm/vllm-openai@{ONE}", "m"))
    found = profile_of(deployment(pinned), sources())
    assert found.resolved and found.digest == found.written_digest
    assert arm_of(pod(pinned, TWO), (found, None), sources()).arm == "baseline"


def test_the_same_image_under_another_tag_is_the_same_profile() -> None:
    other = pod_spec(container("mirror.example/vllm:stable", "m", "-tp", "1"))
    assert resolved(other, ONE).digest == resolved(OLD, ONE).digest
    assert resolved(other, ONE).written_digest != resolved(OLD, ONE).written_digest
    assert in_words(resolved(OLD, ONE), resolved(other, ONE)) == ""
    assert in_words(resolved(OLD, ONE), resolved(OLD, TWO)) == (
        f"image {VLLM_IMAGE} (sha256 111111111111) -> {VLLM_IMAGE} (sha256 222222222222)"
    )


def test_a_config_map_at_the_start_of_a_pod_decides_its_arm() -> None:
    spec = pod_spec(
        container(VLLM_IMAGE, "m", volumeMounts=[{"name": "c", "mountPath": "/c"}]),
        volumes=[{"name": "c", "configMap": {"name": "cfg"}}],
    )
    before, after = ({"cfg": {"a": text}} for text in ("old", "new"))
    arms = tuple(
        profile_of(deployment(spec), sources(config_maps=maps, image_ids={"engine": ONE})) for maps in (before, after)
    )
    assert arm_of(pod(spec, ONE), (arms[0], arms[1]), sources(config_maps=before)).arm == "baseline"
    assert arm_of(pod(spec, ONE), (arms[0], arms[1]), sources(config_maps=after)).arm == "candidate"


def test_what_admission_adds_to_a_pod_is_left_out_by_its_owners_template_or_by_name() -> None:
    arms = (resolved(OLD, ONE), None)
    added = copy.deepcopy(OLD)
    added["containers"][0]["env"] = [{"name": "HOUSE_AGENT", "value": "x"}]
    added["containers"].append({"name": "house-agent", "image": "agent"})
    assert arm_of(pod(added, ONE), arms, sources()).arm is None
    assert "HOUSE_AGENT absent -> x" in arm_of(pod(added, ONE), arms, sources()).why_not
    assert arm_of(pod(added, ONE), arms, sources(ignored=("HOUSE_*", "house-*"))).arm == "baseline"
    assert arm_of(pod(added, ONE), arms, sources(), {"spec": OLD}).arm == "baseline"


def test_a_pod_of_a_group_is_its_leader_or_a_worker() -> None:
    leader, worker = container(SGLANG_IMAGE, "--tp", "2"), container(SGLANG_IMAGE, "--tp", "2", "--node-rank", "1")
    found = profile_of(group(leader, worker), sources(image_ids={"engine": ONE}))
    label = "leaderworkerset.sigs.k8s.io/worker-index"
    for spec, index, expected in ((leader, "0", "leader"), (worker, "1", "worker"), (worker, "0", None)):
        match = arm_of(pod(pod_spec(spec), ONE, labels={label: index}), (found, None), sources())
        assert (match.arm, match.role) == (("baseline", expected) if expected else (None, None))


def test_a_profile_that_was_written_down_tells_pods_apart_and_compares_as_it_did() -> None:
    old, new = resolved(OLD, ONE), resolved(NEW, ONE)
    kept = recorded(json.loads(json.dumps(old.document())))
    assert (kept.engine, kept.digest, kept.written_digest) == ("vllm", old.digest, old.written_digest)
    assert kept.resolved and kept.settings == old.settings
    assert in_words(kept, new) == in_words(old, new) and differences(kept, new) == differences(old, new)
    assert arm_of(pod(OLD, ONE), (kept, new), sources()).arm == "baseline"
    assert arm_of(pod(NEW, ONE), (kept, new), sources()).arm == "candidate"
    assert arm_of(pod(OLD, TWO), (kept, None), sources()).arm is None
    unresolved = recorded(profile_of(deployment(OLD), sources()).document())
    assert not unresolved.resolved and arm_of(pod(OLD, TWO), (unresolved, None), sources()).arm == "baseline"
    drafted = llama("-md", "d-Q4_K_M.gguf"), llama("-md", "d-Q8_0.gguf")
    assert in_words(*(recorded(each.document()) for each in drafted)) == "draft head Q4_K_M -> Q8_0"
    for broken, said in (({"digest": 1}, "digest: a number"), ({"settings": [{"area": "x"}]}, r"settings\[0\].name")):
        with pytest.raises(ProfileError, match=said):
            recorded({**old.document(), **broken})
    with pytest.raises(ProfileError, match=r"settings\[0\].area: not an area"):
        recorded({**old.document(), "settings": [{**old.document()["settings"][0], "area": "x"}]})


def shown(profile: Profile) -> Recorded:
    """What is left of a profile where only what people are shown was kept."""
    return shown_profile(((each.area, each.words, each.value) for each in profile.settings), profile.digest)


def test_a_profile_of_which_only_words_are_kept_compares_as_it_did_whether_its_image_was_resolved_or_not() -> None:
    old, new, unresolved = resolved(OLD, ONE), resolved(NEW, ONE), profile_of(deployment(NEW), sources())
    assert (shown(old).digest, shown(old).resolved, shown(unresolved).resolved) == (old.digest, True, False)
    assert in_words(shown(old), shown(new)) == in_words(old, new) != ""
    assert in_words(shown(old), shown(unresolved)) == in_words(old, unresolved) == in_words(old, new)
    assert in_words(shown(new), shown(unresolved)) == ""
    assert in_words(shown(new), shown(resolved(NEW, TWO))) == in_words(new, resolved(NEW, TWO)) != ""
    pinned = shown_profile([("build", "image", f"x@{ONE}")])
    assert pinned.resolved and in_words(pinned, shown_profile([("build", "image", f"x@{ONE}")])) == ""
    assert in_words(pinned, shown_profile([("build", "image", f"x@{TWO}")])) != ""


def test_images_are_read_from_a_pods_status() -> None:
    status = {
        "containerStatuses": [{"name": "a", "imageID": f"x@{ONE}"}, {"name": "b", "imageID": ""}],
        "initContainerStatuses": [{"name": "c", "imageID": f"docker-pullable://x@{TWO}"}],
    }
    assert image_ids_of({"status": status}) == {"a": f"x@{ONE}", "c": f"docker-pullable://x@{TWO}"}
    assert image_ids_of({}) == {}


# Differences.


def test_two_profiles_differ_in_a_short_list_in_words() -> None:
    old = llama("-m", "a-Q4_K_M.gguf", "-ts", "3,1", "-md", "/m/d-Q4_K_M.gguf")
    new = llama("-m", "a-Q4_K_M.gguf", "-ts", "2,2", "-md", "/m/d-Q8_0.gguf")
    assert in_words(old, new) == "tensor split 3,1 -> 2,2; draft head Q4_K_M -> Q8_0"
    assert differences(old, new) == (
        Difference("layer placement", "tensor split", "3,1", "2,2"),
        Difference("draft head", "draft head", "Q4_K_M", "Q8_0"),
    )
    other_file = llama("-m", "a-Q4_K_M.gguf", "-ts", "3,1", "-md", "/m/e-Q8_0.gguf")
    assert in_words(old, other_file) == "draft head Q4_K_M -> Q8_0; draft model /m/d-Q4_K_M.gguf -> /m/e-Q8_0.gguf"


def test_an_absent_flag_is_unknown_and_a_difference_in_words() -> None:
    old, new = llama("-c", "1"), llama("-c", "1", "-ts", "2,2")
    assert in_words(old, new) == "tensor split absent -> 2,2" and in_words(new, old) == "tensor split 2,2 -> absent"
    assert differences(old, new) == (Difference("layer placement", "tensor split", None, "2,2"),)
    assert in_words(llama("-sm", "none"), llama("-ts", "100,0,0")) == (
        "split mode none -> absent; tensor split absent -> 100,0,0"
    )


def test_names_of_differences_are_those_that_servers_tell() -> None:
    assert differences(llama("-c", "1", "-np", "2"), llama("-c", "2", "-np", "4")) == (
        Difference("KV cache", "n_ctx", "1", "2"),
        Difference("KV cache", "total_slots", "2", "4"),
    )
    assert differences(profile(SGLANG_IMAGE, "--tp", "1"), profile(SGLANG_IMAGE, "--tp", "2")) == (
        Difference("layer placement", "tp_size", "1", "2"),
    )


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (llama("-m", "a"), llama("-m", "b"), ["weights"]),
        (llama("-hf", "a"), llama("-hf", "b"), ["weights"]),
        (llama("-m", "a"), llama("-hf", "b"), ["weights", "weights repository"]),
        (profile(VLLM_IMAGE, "m", "--revision", "1"), profile(VLLM_IMAGE, "m", "--revision", "2"), ["weights"]),
        (llama(), profile("own/llama.cpp:2"), ["build"]),
        (llama(command=["/a/llama-server"]), llama(command=["/b/llama-server"]), ["build"]),
        (llama("-c", "1"), profile(VLLM_IMAGE, "m"), ["n_ctx", "weights", "build", "engine"]),
    ],
)
def test_changed_weights_and_builds_are_declared_as_such(one: Profile, other: Profile, names: list[str]) -> None:
    assert [each.name for each in differences(one, other)] == names
    assert all(each.declared for each in differences(one, other))


def test_differences_are_bounded_and_clean() -> None:
    many = llama(*(f"--f{number}=\x1b[31m{'x' * 500}" for number in range(200)), "-m", "b")
    found = differences(llama("-m", "a"), many)
    assert len(found) == MOST_DIFFERENCES and found[-1] == Difference("other", "138 more settings", None, None)
    assert any(each.name == "weights" for each in found)
    assert all(len(each.candidate or "") <= 80 and (each.candidate or "").isprintable() for each in found)
    told = in_words(llama("-m", "a"), many)
    assert told.endswith("; and 193 more") and told.count(";") == 8 and told.isprintable() and len(told) < 1_600
    assert in_words(llama("-m", "a"), many, 2).endswith("; and 199 more")


def test_long_values_are_shown_where_they_differ() -> None:
    same = "x" * 300
    found = in_words(llama("--grammar", same + "one"), llama("--grammar", same + "two"))
    assert found == f"grammar …{'x' * 20}one -> …{'x' * 20}two"


def test_a_variable_that_is_put_into_an_argument_is_told_once() -> None:
    one, two = (llama("-c", "$(CTX)", env=[{"name": "CTX", "value": value}]) for value in ("1", "2"))
    assert in_words(one, two) == "context size 1 -> 2"
    same = (llama("-c", "1", env=[{"name": "CTX", "value": value}]) for value in ("1", "2"))
    assert in_words(*same) == "CTX 1 -> 2"


PUT = "$(CTX)"


@pytest.mark.parametrize(
    "given",
    [
        {"args": ["-c", PUT]},
        {"args": [f"--ctx-size={PUT}"]},
        {"args": [f"--unheard-of={PUT}"]},
        {"command": ["sh", "-c", "exec llama-server -c $CTX"]},
        {"command": ["sh", "-c", 'exec llama-server -c "${CTX}"']},
        {"command": ["sh", "-c", "SIZE=$CTX; exec llama-server -c $SIZE"]},
        {"command": ["sh", "-c", "export OWN=x; exec llama-server -c $CTX"]},
        {"command": ["sh", "-c", 'exec llama-server "$@"', "-"], "args": ["-c", PUT]},
        {"command": ["sh", "-c", "exec llama-server $@", "-"], "args": ["-c", PUT]},
        {"command": ["sh", "-c", "exec llama-server -c $1", "-"], "args": [PUT]},
    ],
)
def test_whichever_way_a_variable_is_put_into_an_argument_it_is_told_once(given: dict[str, Any]) -> None:
    one, two = (llama(**given, env=[{"name": "CTX", "value": value}]) for value in ("1", "2"))
    assert in_words(one, two).endswith(" 1 -> 2") and ";" not in in_words(one, two)
    assert len(differences(one, two)) == 1
    assert {type(text) for each in one.settings for text in (each.name, each.value, each.origin)} == {str}
    kept = [recorded(json.loads(json.dumps(each.document()))) for each in (one, two)]
    assert in_words(*kept) == in_words(one, two) and differences(*kept) == differences(one, two)


def test_a_variable_that_changes_as_an_argument_does_by_chance_is_told() -> None:
    def numbered(value: str, **more: str) -> Profile:
        env = [{"name": name, "value": text} for name, text in {"GGML_CUDA_FORCE_CUBLAS": value, **more}.items()]
        return llama("-mg", value, env=env)

    assert in_words(numbered("0"), numbered("1")) == "main GPU 0 -> 1; GGML_CUDA_FORCE_CUBLAS 0 -> 1"
    assert [each.name for each in differences(numbered("0"), numbered("1"))] == ["main GPU", "GGML_CUDA_FORCE_CUBLAS"]
    more = {"CUDA_VISIBLE_DEVICES": "1", "GGML_CUDA_FORCE_MMQ": "1"}
    one, two = llama(), llama("-np", "1", env=[{"name": name, "value": value} for name, value in more.items()])
    assert in_words(one, two) == (
        "CUDA_VISIBLE_DEVICES absent -> 1; slots absent -> 1; GGML_CUDA_FORCE_MMQ absent -> 1"
    )


def test_a_variable_is_told_where_it_is_put_in_on_one_side_only_or_into_another_argument() -> None:
    def with_context(value: str, *args: str) -> Profile:
        return llama(*args, env=[{"name": "CTX", "value": value}])

    literal, put = with_context("1", "-c", "1"), with_context("2", "-c", PUT)
    assert in_words(literal, put) == "context size 1 -> 2; CTX 1 -> 2"
    assert in_words(put, literal) == "context size 2 -> 1; CTX 2 -> 1"
    one, two = with_context("1", "-np", "1", f"--x={PUT}0"), with_context("2", "-np", "2", f"--x={PUT}0")
    assert in_words(one, two) == "slots 1 -> 2; CTX 1 -> 2; x 10 -> 20"


def test_a_variable_of_a_worker_is_told_by_its_own_arguments_alone() -> None:
    def of(leader: list[str], worker: list[str], value: str) -> Profile:
        env = [{"name": "CTX", "value": value}]
        return profile_of(group(container(LLAMA_IMAGE, *leader), container(LLAMA_IMAGE, *worker, env=env)), sources())

    assert in_words(of([], ["-c", PUT], "1"), of([], ["-c", PUT], "2")) == "worker context size 1 -> 2"
    told = in_words(of(["-c", "1"], ["-np", "3"], "1"), of(["-c", "2"], ["-np", "3"], "2"))
    assert told == "context size 1 -> 2; worker CTX 1 -> 2"


# Hostile input.


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({}, "spec.template: no kind, and no pod template (allowed: a workload with one, or a podTemplatePath)"),
        ({"kind": "Service", "spec": {}}, "spec.template: Service has no pod template at spec.template"),
        ({"kind": "Deployment", "spec": []}, "spec: a list stands where fields are expected"),
        ({"kind": "Deployment", "spec": {"template": "x"}}, "spec.template: Deployment has no pod template"),
        (deployment({}), "spec.template.spec.containers: no container"),
        (deployment({"containers": []}), "spec.template.spec.containers: no container"),
        (deployment({"containers": {"a": 1}}), "spec.template.spec.containers: a mapping stands where a list is"),
        (deployment({"containers": ["x"]}), "spec.template.spec.containers[0]: text stands where fields are"),
        (deployment(pod_spec(container(args=["-c", 1]))), "spec.template.spec.containers[0].args[1]: a number stands"),
        (
            deployment(pod_spec(container(args=[True]))),
            "spec.template.spec.containers[0].args[0]: true or false stands",
        ),
        (deployment(pod_spec(container(args=[None]))), "spec.template.spec.containers[0].args[0]: nothing stands"),
        (deployment(pod_spec(container(command="x"))), "spec.template.spec.containers[0].command: text stands where a"),
        (
            deployment(pod_spec(container(env=[{"value": "x"}]))),
            "spec.template.spec.containers[0].env[0].name: nothing",
        ),
        (
            deployment(pod_spec(container(env=[{"name": "A", "value": 1}]))),
            "spec.template.spec.containers[0].env[0].value",
        ),
        (deployment(pod_spec(container(), volumes=3)), "spec.template.spec.volumes: a number stands where a list"),
        (
            deployment(pod_spec(container(), nodeSelector={"a": 1})),
            "spec.template.spec.nodeSelector.a: a number stands",
        ),
        (group(None, container(), "2"), "spec.leaderWorkerTemplate.size: text stands where a number is expected"),
        ({"kind": "LeaderWorkerSet", "spec": {}}, "spec.leaderWorkerTemplate: not there"),
        (
            {"kind": "InferenceService", "spec": {"predictor": {"x": 1}}},
            "spec.predictor.containers: neither a model nor",
        ),
        ({"kind": "LLMInferenceService", "spec": {}}, "spec.template: no container is told here"),
        ({"kind": "Pod", "spec": {}}, "spec.containers: no container"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_path(workload: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError) as error:
        profile_of(workload, sources())
    assert str(error.value).startswith(said), str(error.value)


def test_more_arguments_than_anybody_gives_are_refused_and_as_many_as_allowed_are_read() -> None:
    assert len(values(llama(*(f"--f{number}" for number in range(MOST_ITEMS))))) == MOST_ITEMS
    with pytest.raises(ProfileError, match=r"containers\[0\]\.args: 10000 items \(allowed: up to 4096\)"):
        llama(*["-c"] * 10_000)


def test_huge_json_is_kept_as_text() -> None:
    deep = "[" * 5_000 + "]" * 5_000
    wide = "{" + ",".join(f'"k{number}":1' for number in range(300)) + "}"
    nested = '{"a":' * 40 + "1" + "}" * 40
    for text in (deep, wide, nested, '{"a": 1' + "0" * 5_000 + "}", "{" * 100_000):
        told = values(profile(VLLM_IMAGE, "m", "-sc", text))
        assert set(told) == {"speculative-config", "weights"}
        assert told["speculative-config"] == text or "characters, sha256" in told["speculative-config"]


def test_variables_that_multiply_are_not_put_in_without_end() -> None:
    env = [{"name": "V0", "value": "x" * 1_000}]
    env += [{"name": f"V{number}", "value": f"$(V{number - 1})" * 10} for number in range(1, 30)]
    found = llama("--fit", "off", *["$(V29)"] * 100, env=env)
    assert "variables longer than 1048576 characters together were not all put in" in found.notes
    assert values(found)["env V2"].startswith("x" * 80) and "$(V" in values(found)["env V9"]


def test_hostile_workloads_are_read_in_a_time_that_grows_with_them() -> None:
    env = [{"name": f"V{number}", "value": f"$(V{number - 1})"} for number in range(1_000)]
    one, two = (llama(*(f"--f{number}={each * 50}" for number in range(1_000)), env=env) for each in "[{")
    assert in_words(one, two).endswith("; and 992 more") and len(differences(one, two)) == MOST_DIFFERENCES
    hostile = ("a;", "://", "cookie:", "?a=", "$x", "token=", "\n", "'' ")
    for piece in hostile:
        script = profile("own/e", piece * 4_000, command=["sh", "-c"])
        assert len(values(script).get("start-script", "")) < 200
    unknown = profile("own/e", " ".join(f"$x{number}" for number in range(30_000)), command=["sh", "-c"])
    assert len(unknown.notes) == 41 and unknown.notes[-1] == "and more findings"
