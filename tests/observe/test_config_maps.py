"""Profiles that take settings from ConfigMaps: each pod is of the contents that it started with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefillgate.kube.client import Kube
from prefillgate.kube.objects import Object
from prefillgate.reconcile.snapshot import LineSnapshot
from tests.observe.test_deployments import promoted_status, serving
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.workloads import deployment, simulated
from tests.support.looking import Eyes, config_map, line, looking
from tests.support.manual_clock import until


def configured(name: str, *args: str, **more: Any) -> Object:
    """A Deployment of one server that has a ConfigMap's variables."""
    return deployment("engine", simulated(*args, envFrom=[{"configMapRef": {"name": name}}]), **more)


async def test_pods_of_a_config_map_by_another_name_stay_the_promoted_profile(eyes: Eyes, namespace: Namespace) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(config_map("tuning-1", LLAMA_ARG_CTX_SIZE="4096"))
    namespace.apply(config_map("tuning-2", LLAMA_ARG_CTX_SIZE="8192"))
    namespace.apply(configured("tuning-1"))
    namespace.apply(line())
    first = await eyes.until(key, lambda seen: serving(seen, 1))
    _promote(namespace, promoted_status(first))
    namespace.apply(configured("tuning-2", gate=True))

    def both(seen: LineSnapshot) -> LineSnapshot | None:
        arms = (seen.baseline, seen.candidate)
        return seen if all(arm is not None and len(arm.servers) == 1 for arm in arms) else None

    seen = await eyes.until(key, both)
    assert seen.baseline is not None
    assert seen.candidate is not None
    assert (len(seen.baseline.ready), len(seen.candidate.ready)) == (1, 0)
    assert seen.baseline.notes == seen.candidate.notes == ()
    assert "8192" in repr(seen.slots[0].profile.settings)


async def test_a_config_map_that_is_changed_under_a_pod_makes_it_a_pod_of_neither_arm(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(config_map("tuning", LLAMA_ARG_CTX_SIZE="4096"))
    namespace.apply(configured("tuning"))
    namespace.apply(line())
    first = await eyes.until(key, lambda seen: serving(seen, 1))
    (pod,) = namespace.pods(app="engine")
    _promote(namespace, promoted_status(first))
    namespace.kubectl("label", "configmap", "tuning", "team=chat")  # no change of what it says
    namespace.apply(config_map("other"))
    seen = await eyes.until(key, lambda seen: seen)
    assert seen.baseline is not None
    assert [each.name for each in seen.baseline.servers] == [pod["metadata"]["name"]]

    await _next_second(pod)
    namespace.apply(config_map("tuning", LLAMA_ARG_CTX_SIZE="8192"))
    seen = await eyes.until(key, lambda seen: seen if seen.roles.candidate is not None else None)
    assert seen.roles.promoted == first.roles.promoted
    assert seen.baseline is not None
    assert seen.candidate is not None
    assert seen.baseline.servers == seen.candidate.servers == ()
    (note,) = seen.baseline.notes
    assert note.startswith(f"pod {pod['metadata']['name']} is of neither arm: ConfigMap tuning was changed after it st")

    namespace.kubectl("rollout", "restart", "deployment/engine")
    seen = await eyes.until(key, lambda seen: seen if seen.candidate is not None and seen.candidate.ready else None)
    assert [each.name for each in seen.candidate.ready if seen.candidate] != [pod["metadata"]["name"]]


async def test_a_key_that_is_taken_away_and_contents_made_anew_are_changes_and_the_same_made_anew_is_none(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    told = {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_ARG_UBATCH": "512"}
    first, pod = await _tuned(eyes, namespace, **told)
    _promote(namespace, promoted_status(first))
    await _next_second(pod)

    _take_away(namespace, "LLAMA_ARG_UBATCH")
    await eyes.until(key, _of_neither("ConfigMap tuning was changed after it started"))
    namespace.kubectl("delete", "configmap", "tuning")
    await eyes.until(key, _of_neither("ConfigMap tuning is not there any more"))
    namespace.apply(config_map("tuning", LLAMA_ARG_CTX_SIZE="8192"))
    await eyes.until(key, _of_neither("ConfigMap tuning was changed after it started"))
    namespace.kubectl("delete", "configmap", "tuning")
    namespace.apply(config_map("tuning", **told))
    seen = await eyes.until(key, lambda seen: serving(seen, 1))
    assert (seen.roles.promoted, seen.roles.candidate) == (first.roles.promoted, None)
    assert seen.baseline is not None
    assert ([each.name for each in seen.baseline.servers], seen.baseline.notes) == ([pod["metadata"]["name"]], ())


async def test_another_controller_knows_by_the_status_what_a_pod_started_with(
    eyes: Eyes, kube: Kube, namespace: Namespace, tmp_path: Path
) -> None:
    key = f"{namespace.name}/chat"
    first, pod = await _tuned(eyes, namespace, A="1", LLAMA_ARG_CTX_SIZE="4096")
    await _next_second(pod)
    _take_away(namespace, "LLAMA_ARG_CTX_SIZE")
    assert first.config_maps is not None
    told = [each.model_dump(by_alias=True, exclude_none=True) for each in first.config_maps]
    assert [each["name"] for each in told] == ["tuning"]
    _promote(namespace, {**promoted_status(first), "configMaps": told})
    (tmp_path / "other").mkdir()
    async with looking(kube, tmp_path / "other", namespaces=(namespace.name,)) as other:
        await other.until(key, _of_neither("was changed after"))


async def test_a_key_was_taken_away_when_that_was_seen_though_nobody_looked_then(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    first, pod = await _tuned(eyes, namespace, A="1", LLAMA_ARG_CTX_SIZE="4096")
    _promote(namespace, promoted_status(first))
    told = len(eyes.touched)
    _take_away(namespace, "LLAMA_ARG_CTX_SIZE")
    await until(lambda: ("ServingLine", key) in eyes.touched[told:])
    namespace.kubectl("rollout", "restart", "deployment/engine")
    namespace.rolled_out("engine")
    old = pod["metadata"]["uid"]  # which may still be ending
    await _next_second(next(each for each in namespace.pods(app="engine") if each["metadata"]["uid"] != old))
    seen = await eyes.until(key, lambda seen: seen if seen.candidate is not None and seen.candidate.ready else None)
    assert seen.candidate is not None
    assert [each.name for each in seen.candidate.ready] != [pod["metadata"]["name"]]


async def _tuned(eyes: Eyes, namespace: Namespace, **values: str) -> tuple[LineSnapshot, Object]:
    """A line whose one pod has these values of a ConfigMap, which nobody has applied: as first seen, and its pod."""
    given = (f"--from-literal={name}={value}" for name, value in values.items())
    namespace.kubectl("create", "configmap", "tuning", *given)
    namespace.apply(configured("tuning"))
    namespace.apply(line())
    first = await eyes.until(f"{namespace.name}/chat", lambda seen: serving(seen, 1))
    (pod,) = namespace.pods(app="engine")
    return first, pod


def _promote(namespace: Namespace, status: Object) -> None:
    text = json.dumps({"status": status})
    namespace.kubectl("patch", "sl", "chat", "--subresource=status", "--type=merge", "-p", text)


def _take_away(namespace: Namespace, name: str) -> None:
    """Remove a key, for which the server stamps no time."""
    taken = json.dumps([{"op": "remove", "path": f"/data/{name}"}])
    namespace.kubectl("patch", "configmap", "tuning", "--type=json", "-p", taken)


def _of_neither(words: str) -> Callable[[LineSnapshot], bool]:
    """Whether no arm has a pod, and the note says why."""

    def is_so(seen: LineSnapshot) -> bool:
        arms = (seen.baseline, seen.candidate)
        return all(arm is not None and not arm.servers and words in " ".join(arm.notes) for arm in arms)

    return is_so


async def _next_second(pod: Object) -> None:
    """Wait until the cluster's times, which have whole seconds, are beyond the start of a pod."""
    import asyncio
    from datetime import UTC, datetime

    started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    while datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") <= started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.05)
