"""What is mounted into a pod is of its profile, by where it stands and what it comes from: weights are files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefillgate.core.journal import Difference
from prefillgate.profiles import Profile, ProfileError, arm_of, differences, in_words, profile_of
from tests.support.manifests import LLAMA_IMAGE, VLLM_IMAGE, container, deployment, pod_spec, sources, values

CLAIM = {"name": "w", "persistentVolumeClaim": {"claimName": "models-v1"}}
MAPS = {
    "one": {"fetch.sh": "wget v1", "other": "x"},
    "two": {"fetch.sh": "wget v2", "other": "x"},
}


def spec(**given: Any) -> dict[str, Any]:
    """A llama-server whose weights lie on a volume."""
    mounts = [{"name": "w", "mountPath": "/models"}]
    own = {"volumeMounts": mounts, **given.pop("container", {})}
    return pod_spec(
        container(LLAMA_IMAGE, "-m", "/models/m.gguf", "--fit", "off", **own), **{"volumes": [CLAIM], **given}
    )


def read(found: dict[str, Any], **given: Any) -> Profile:
    return profile_of(deployment(found), sources(**{"config_maps": MAPS, **given}))


def source(kind: str, **held: Any) -> dict[str, Any]:
    return spec(volumes=[{"name": "w", kind: held}])


def under(sub_path: str, kind: str = "subPath", **given: Any) -> dict[str, Any]:
    return spec(container={"volumeMounts": [{"name": "w", "mountPath": "/models", kind: sub_path}]}, **given)


OTHER_SOURCES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "claim": (
        source("persistentVolumeClaim", claimName="models-v1"),
        source("persistentVolumeClaim", claimName="models-v2"),
        "volume /models claim models-v1 -> claim models-v2",
    ),
    "image": (
        source("image", reference="own/models:1"),
        source("image", reference="own/models:2"),
        "volume /models image own/models:1 -> image own/models:2",
    ),
    "folder of the host": (
        source("hostPath", path="/mnt/q8"),
        source("hostPath", path="/mnt/q4", type="Directory"),
        "volume /models host path /mnt/q8 -> host path /mnt/q4",
    ),
    "network": (
        source("nfs", server="a", path="/v1"),
        source("nfs", server="a", path="/v2"),
        'volume /models nfs, {"path": "/v1", "server": "a"} -> nfs, {"path": "/v2", "server": "a"}',
    ),
    "driver": (
        source("csi", driver="d", volumeAttributes={"bucket": "b1"}),
        source("csi", driver="d", volumeAttributes={"bucket": "b2"}),
        'volume /models csi, {"driver": "d", "volumeAttributes": {"bucket": "b1"}} -> '
        'csi, {"driver": "d", "volumeAttributes": {"bucket": "b2"}}',
    ),
    "snapshot": (
        source("ephemeral", volumeClaimTemplate={"spec": {"dataSource": {"name": "s1"}}}),
        source("ephemeral", volumeClaimTemplate={"spec": {"dataSource": {"name": "s2"}}}),
        'volume /models a claim of the pod\'s own, {"dataSource": {"name": "s1"}} -> '
        'a claim of the pod\'s own, {"dataSource": {"name": "s2"}}',
    ),
    "kind": (
        source("persistentVolumeClaim", claimName="models-v1"),
        source("hostPath", path="/mnt"),
        "volume /models claim models-v1 -> host path /mnt",
    ),
    "sub-path": (
        under("q8"),
        under("q4"),
        "volume /models claim models-v1, sub-path q8 -> claim models-v1, sub-path q4",
    ),
    "sub-path of variables": (
        under("$(HOSTNAME)/q8", "subPathExpr"),
        under("$(HOSTNAME)/q4", "subPathExpr"),
        "volume /models claim models-v1, sub-path $(HOSTNAME)/q8 -> claim models-v1, sub-path $(HOSTNAME)/q4",
    ),
    "block device": (
        spec(container={"volumeDevices": [{"name": "w", "devicePath": "/dev/w"}]}),
        spec(
            container={"volumeDevices": [{"name": "x", "devicePath": "/dev/w"}]},
            volumes=[CLAIM, {"name": "x", "persistentVolumeClaim": {"claimName": "x"}}],
        ),
        "volume /dev/w claim models-v1 -> claim x",
    ),
    "working directory": (
        spec(container={"workingDir": "/q8"}),
        spec(container={"workingDir": "/q4"}),
        "working directory /q8 -> /q4",
    ),
    "hook after start": (
        spec(container={"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "a"]}}}}),
        spec(container={"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "b"]}}}}),
        "hook after start exec sh -c a -> exec sh -c b",
    ),
}


@pytest.mark.parametrize("change", OTHER_SOURCES)
def test_what_is_mounted_from_elsewhere_is_another_profile_and_is_told(change: str) -> None:
    one, other, told = OTHER_SOURCES[change]
    before, after = read(one), read(other)
    assert before.digest != after.digest and before.written_digest != after.written_digest
    assert in_words(before, after) == told
    assert arm_of({"kind": "Pod", "spec": one}, (before, after), sources()).arm == "baseline"
    assert arm_of({"kind": "Pod", "spec": other}, (before, after), sources()).arm == "candidate"


def test_a_volume_that_holds_the_weights_is_declared_as_changed_weights() -> None:
    one, other = (read(source("persistentVolumeClaim", claimName=name)) for name in ("v1", "v2"))
    assert differences(one, other) == (Difference("weights", "weights", "claim v1", "claim v2"),)
    relative = {"workingDir": "/models", "args": ["-m", "m.gguf", "-md", "/drafts/d.gguf"]}
    mounts = [{"name": name, "mountPath": path} for name, path in (("w", "/models"), ("d", "/drafts"), ("c", "/cache"))]
    volumes = [CLAIM, *({"name": name, "hostPath": {"path": name}} for name in "dc")]
    found = read(spec(container={**relative, "volumeMounts": mounts}, volumes=volumes))
    areas = {each.name: each.area for each in found.settings if each.name.startswith("volume ")}
    assert areas == {"volume /models": "weights", "volume /drafts": "draft head", "volume /cache": "other"}
    nested = [{"name": "w", "mountPath": "/models"}, {"name": "d", "mountPath": "/models/inner"}]
    found = read(spec(container={"args": ["-m", "/models/inner/m.gguf"], "volumeMounts": nested}, volumes=volumes))
    areas = {each.name: each.area for each in found.settings if each.name.startswith("volume ")}
    assert areas == {"volume /models": "other", "volume /models/inner": "weights"}


SAME: dict[str, dict[str, Any]] = {
    "name of the volume": spec(
        container={"volumeMounts": [{"name": "x", "mountPath": "/models"}]}, volumes=[{**CLAIM, "name": "x"}]
    ),
    "slash at the end": spec(container={"volumeMounts": [{"name": "w", "mountPath": "/models/"}]}),
    "the whole of it": under("./"),
    "read only": spec(container={"volumeMounts": [{"name": "w", "mountPath": "/models", "readOnly": True}]}),
    "a volume that is not mounted": spec(volumes=[CLAIM, {"name": "x", "hostPath": {"path": "/x"}}]),
    "before the end": spec(container={"lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}}}),
    **{
        f"mounted {kind}": spec(
            container={"volumeMounts": [{"name": "w", "mountPath": "/models"}, {"name": "x", "mountPath": "/x"}]},
            volumes=[CLAIM, {"name": "x", **given}],
        )
        for kind, given in {
            "emptyDir": {"emptyDir": {"medium": "Memory"}},
            "nothing": {},
            "token": {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            "labels": {"downwardAPI": {"items": []}},
        }.items()
    },
}


@pytest.mark.parametrize("change", SAME)
def test_a_mount_that_brings_nothing_of_its_own_is_no_change(change: str) -> None:
    assert SAME[change] != spec()
    assert read(SAME[change]).digest == read(spec()).digest
    assert read(SAME[change]).notes == ()


def test_volumes_that_admission_adds_are_ignored_by_name() -> None:
    added = spec(
        container={"volumeMounts": [{"name": "w", "mountPath": "/models"}, {"name": "house-x", "mountPath": "/x"}]},
        volumes=[CLAIM, {"name": "house-x", "csi": {"driver": "house"}}],
    )
    assert read(added).digest != read(spec()).digest
    assert read(added, ignored=("house-*",)).digest == read(spec()).digest


def test_a_claim_that_a_stateful_set_makes_for_each_pod_is_the_same_in_all_of_them_and_in_the_template() -> None:
    template = spec(volumes=[])
    workload = deployment(template, "StatefulSet")
    workload["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "w"}}]
    found = profile_of(workload, sources())
    assert values(found)["volume /models"] == "a claim of the pod's own"
    for ordinal in ("0", "17"):
        made = spec(volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": f"w-line-{ordinal}"}}])
        pod = {"kind": "Pod", "metadata": {"name": f"line-{ordinal}"}, "spec": made}
        assert arm_of(pod, (found, None), sources()).arm == "baseline"
        assert arm_of(pod, (found, None), sources(), {"spec": template}).arm == "baseline"
        other = {**pod, "spec": spec(volumes=[{"name": "w", "persistentVolumeClaim": {"claimName": "models-v2"}}])}
        match = arm_of(other, (found, None), sources())
        assert match.arm is None
        assert match.why_not == "volume /models a claim of the pod's own -> claim models-v2"
    shared = [read(source("persistentVolumeClaim", claimName=f"w-line-{number}")) for number in (0, 1)]
    assert shared[0].digest != shared[1].digest, "a template that names a claim means that very claim"


# ConfigMaps and Secrets.


def from_map(name: str, sub_path: str, kind: str = "subPath", **given: Any) -> Profile:
    held = {"name": name, "items": [{"key": "fetch.sh", "path": "bin/deep/fetch.sh"}, {"key": "other", "path": "o"}]}
    return read(under(sub_path, kind, volumes=[{"name": "w", "configMap": held}], **given))


@pytest.mark.parametrize("folder", ["bin", "bin/", "./bin", "bin/deep"])
def test_a_sub_path_may_name_a_folder_of_a_config_map(folder: str) -> None:
    one, two = from_map("one", folder), from_map("two", folder)
    rest = "deep/fetch.sh" if "deep" not in folder else "fetch.sh"
    assert one.digest != two.digest
    assert [each for each in values(one) if each.startswith("file ")] == [f"file /models/{rest}"]


@pytest.mark.parametrize(("sub_path", "files"), [("bin/deep/fetch.sh", ["/models"]), ("bi", []), ("o", ["/models"])])
def test_a_sub_path_is_no_beginning_of_a_name(sub_path: str, files: list[str]) -> None:
    assert [each[5:] for each in values(from_map("one", sub_path)) if each.startswith("file ")] == files


def test_a_sub_path_of_variables_is_followed_and_one_that_cannot_be_may_be_any_file() -> None:
    def named(name: str, written: str) -> Profile:
        held = {"name": name}
        env = [{"name": "FILE", "value": "fetch.sh"}]
        mounts = [{"name": "w", "mountPath": "/models", "subPathExpr": written}]
        own = {"volumeMounts": mounts, "env": env}
        return read(spec(container=own, volumes=[{"name": "w", "configMap": held}]))

    assert named("one", "$(FILE)").digest != named("two", "$(FILE)").digest
    assert named("one", "other").digest == named("two", "other").digest
    assert named("one", "$(POD_NAME)").digest != named("two", "$(POD_NAME)").digest


def test_which_key_of_a_secret_is_mounted_is_of_the_profile() -> None:
    for volume in (
        {"name": "w", "secret": {"secretName": "s"}},
        {"name": "w", "projected": {"sources": [{"secret": {"name": "s"}}]}},
    ):
        one, two = (read(under(key, volumes=[volume])) for key in ("a.key", "b.key"))
        assert in_words(one, two) == "volume /models Secret, sub-path a.key -> Secret, sub-path b.key"


# Init containers and sidecars.


@pytest.mark.parametrize(("kind", "words"), [("initContainers", "init container"), ("containers", "sidecar")])
def test_what_is_mounted_beside_the_server_is_of_the_profile(kind: str, words: str) -> None:
    def beside(volume: dict[str, Any], **more: Any) -> Profile:
        found = spec(volumes=[CLAIM, {"name": "i", **volume}])
        fetch = {"name": "fetch", "image": "busybox", "command": ["sh", "/s/fetch.sh"]}
        fetch["volumeMounts"] = [{"name": "i", "mountPath": "/s"}]
        found.setdefault(kind, []).append({**fetch, **more})
        return read(found)

    one, two = (beside({"configMap": {"name": name}}) for name in ("one", "two"))
    assert one.digest != two.digest and f"{words} fetch file /s/fetch.sh digest" in in_words(one, two)
    claims = [beside({"persistentVolumeClaim": {"claimName": name}}) for name in ("v1", "v2")]
    assert in_words(*claims) == f"{words} fetch volume /s claim v1 -> claim v2"
    secrets = [beside({"secret": {"secretName": name}}) for name in ("v1", "v2")]
    assert in_words(*secrets) == f"{words} fetch secret at /s Secret v1, all keys -> Secret v2, all keys"
    folders = [beside({"emptyDir": {}}, workingDir=path) for path in ("/a", "/b")]
    assert in_words(*folders) == f"{words} fetch working directory /a -> /b"
    hooks = [beside({"emptyDir": {}}, lifecycle={"postStart": {"httpGet": {"path": path}}}) for path in ("/a", "/b")]
    assert in_words(*hooks).startswith(f"{words} fetch hook after start httpGet digest ")
    missing = [beside({"configMap": {"name": name}}) for name in ("three", "four")]
    assert "ConfigMap three has no key that is known, or was not read" in missing[0].notes
    assert in_words(*missing) == f"{words} fetch file /s/ ConfigMap three, not read -> ConfigMap four, not read"


def test_sidecars_that_differ_in_their_mounts_alone_may_stand_in_any_order() -> None:
    volumes = [{"name": name, "hostPath": {"path": f"/{name}"}} for name in "ab"]
    cars = [{"name": name, "image": "car", "volumeMounts": [{"name": name, "mountPath": "/x"}]} for name in ("a", "b")]
    orders = [spec(volumes=[CLAIM, *volumes]) for _ in range(2)]
    orders[0]["containers"] += cars
    orders[1]["containers"] += cars[::-1]
    assert read(orders[0]).digest == read(orders[1]).digest


# KServe.


def test_weights_that_kserve_puts_into_its_pods_are_of_the_deployment_that_it_makes() -> None:
    def made(uri: str) -> Profile:
        key = "internal.serving.kserve.io/storage-initializer-sourceuri"
        found = pod_spec(container(VLLM_IMAGE, "--model", "/mnt/models"))
        return profile_of(deployment(found, metadata={"annotations": {key: uri, "note": uri}}), sources())

    one, two = made("pvc://models/v1"), made("pvc://models/v2")
    assert one.digest != two.digest and in_words(one, two) == "storage URI pvc://models/v1 -> pvc://models/v2"
    assert differences(one, two) == (Difference("weights", "weights", "pvc://models/v1", "pvc://models/v2"),)


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_an_inference_services_own_volumes_are_read(name: str) -> None:
    predictor = {
        "model": {"modelFormat": {"name": "vllm"}, "volumeMounts": [{"name": "w", "mountPath": "/mnt/models"}]},
        "volumes": [{"name": "w", "persistentVolumeClaim": {"claimName": name}}],
    }
    found = profile_of({"kind": "InferenceService", "spec": {"predictor": predictor}}, sources())
    assert values(found)["volume /mnt/models"] == f"claim {name}"


# Credentials, and what cannot be read.

PLANTED = "Zq7planted0123"


@pytest.mark.parametrize(
    "found",
    [
        source("csi", driver="d", volumeAttributes={"password": PLANTED}),
        source("csi", driver="d", volumeAttributes={"url": f"https://me:{PLANTED}@host/x"}),
        source("nfs", server=f"h?token={PLANTED}", path="/"),
        spec(container={"lifecycle": {"postStart": {"exec": {"command": ["load", "--api-key", PLANTED]}}}}),
        spec(container={"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", f"load --token={PLANTED}"]}}}}),
        spec(
            container={
                "lifecycle": {
                    "postStart": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": f"B {PLANTED}"}]}}
                }
            }
        ),
    ],
)
def test_credentials_of_volumes_and_hooks_are_sealed(found: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(found).replace(PLANTED, "Zq7planted9999"))
    assert PLANTED not in str(read(found).document())
    assert read(found).digest != read(changed).digest


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (source("persistentVolumeClaim"), "spec.template.spec.volumes[0].persistentVolumeClaim.claimName: nothing"),
        (source("hostPath", path=1), "spec.template.spec.volumes[0].hostPath.path: a number stands"),
        (spec(volumes=[{"name": "w", "nfs": "x"}]), "spec.template.spec.volumes[0].nfs: text stands"),
        (under(1), "spec.template.spec.containers[0].volumeMounts[0].subPath: a number stands"),  # type: ignore[arg-type]
        (spec(container={"workingDir": 1}), "spec.template.spec.containers[0].workingDir: a number stands"),
        (
            spec(container={"lifecycle": {"postStart": {"exec": {"command": "x"}}}}),
            "spec.template.spec.containers[0].lifecycle.postStart.exec.command: text stands where a list",
        ),
        (
            spec(container={"volumeDevices": [{"name": "w"}]}),
            "spec.template.spec.containers[0].volumeDevices[0].devicePath: nothing",
        ),
    ],
)
def test_mounts_that_cannot_be_read_are_named_by_their_path(found: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError) as error:
        read(found)
    assert str(error.value).startswith(said), str(error.value)
