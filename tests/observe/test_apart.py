"""A server of the profile in production that serves nobody else while a replay asks it: a pod made for it, or one
that is taken out of its Services."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.app.carrying import WorkSettings
from prefillgate.app.scratch import scratch_name
from prefillgate.app.seams import Leading, Observed
from prefillgate.app.work import ThreadWorks
from prefillgate.evidence import Fence
from prefillgate.evidence.book import open_book
from prefillgate.kube.access import Where
from prefillgate.kube.client import Kube
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import LineSnapshot, Slot, WorkKind, WorkSeen, WorkState
from tests.observe.test_deployments import serving
from tests.support.cluster.api import STRATEGIC_PATCH, Object, wait_for
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.users import GATE as GATE_USER
from tests.support.cluster.workloads import GATE, deployment, service, simulated
from tests.support.kinds import ROOT
from tests.support.looking import Eyes, config_map, line
from tests.support.runs import HASTY, QUALITY, stored

FLOOR = "floor-000000000000-aaaaaaaa"
SLOW = ("--time-scale", "0.3", "--text-seed", "9")
APART = "prefillgate.io/apart"
WATCH = "watch-000000000000-bbbbbbbb-1"
POLICY = {"apiVersion": "prefillgate.io/v1alpha1", "kind": "PromotionPolicy"}


@pytest.fixture
async def gate(cluster_plane: ControlPlane, namespace: Namespace) -> AsyncIterator[Kube]:
    """The API server as the controller speaks to it: with the rights of its manifests alone."""
    things = yaml.safe_load_all((ROOT / "manifests" / "rbac" / "controller.yaml").read_text(encoding="utf-8"))
    namespace.grant(GATE_USER, *next(each for each in things if each["kind"] == "ClusterRole")["rules"])
    async with await Kube.connect(Where(str(cluster_plane.kubeconfig(GATE_USER)))) as client:
        yield client


def cases() -> Object:
    lines = []
    for number in range(4):
        text = f"case-{number} " + " ".join(f"w{number}x{word}" for word in range(40))
        body = {"model": "m", "prompt": text, "max_tokens": 200, "temperature": 0}
        lines.append({"custom_id": f"c{number}", "method": "POST", "url": "/v1/completions", "body": body})
    return config_map(**{"cases.jsonl": "".join(json.dumps(each) + "\n" for each in lines)})


def isolated(mode: str, **more: Any) -> Object:
    return line(baseline={**line()["spec"]["baseline"], "isolation": {"mode": mode, **more}})


@asynccontextmanager
async def working(kube: Kube, folder: Path, namespace: Namespace, token: int = 2) -> AsyncIterator[ThreadWorks]:
    with open_book(folder / f"works-{token}.db", Fence(token)) as book:
        settings = WorkSettings(folder / "stores", namespaces=(namespace.name,), times=HASTY)
        works = ThreadWorks(Leading(book, Fence(token)), settings, lambda line: None, kube=kube)
        yield works
        assert await works.close(60)


def start(works: ThreadWorks, observed: Observed) -> str:
    """The floor of what is in production; the line's uid."""
    assert observed.snapshot.roles.promoted is not None
    works.start(StartWork(FLOOR, WorkKind.FLOOR, observed.snapshot.roles.promoted, seed=5), observed)
    return str(observed.snapshot.line["metadata"]["uid"])


async def until(works: ThreadWorks, uid: str, true: Callable[[WorkSeen], bool]) -> WorkSeen:
    for _ in range(6000):
        (seen,) = works.seen(uid)
        if true(seen):
            return seen
        await asyncio.sleep(0.01)
    raise AssertionError(f"it never came to that: {seen}")


def ended(seen: WorkSeen) -> bool:
    return seen.state is not WorkState.RUNNING


async def observed_line(eyes: Eyes, namespace: Namespace, wanted: Object, pods: int) -> Observed:
    namespace.apply(cases())
    namespace.apply(wanted)
    key = f"{namespace.name}/chat"
    await eyes.until(key, lambda seen: serving(seen, pods) if seen.replay_set is not None else None)
    observed = await eyes.look(key)
    assert observed is not None
    return observed


def epochs(folder: Path, namespace: Namespace) -> list[str]:
    gate, _ = stored(folder / "stores" / namespace.name / "chat" / f"{FLOOR}.db")
    return [seen.server_epoch for seen in gate.epochs["baseline"]]


async def test_a_scratch_pod_of_the_recorded_template_is_asked_outside_every_service_and_is_gone_afterwards(
    eyes: Eyes, gate: Kube, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.apply(deployment("engine", simulated(*SLOW)))
    namespace.apply(service("engine"))
    observed = await observed_line(eyes, namespace, isolated("Scratch"), 1)
    (serves,) = namespace.pods(app="engine")
    async with working(gate, tmp_path, namespace) as works:
        uid = start(works, observed)
        await until(works, uid, lambda seen: seen.rows > 2 or ended(seen))
        (made,) = namespace.pods(**{APART: "scratch"})
        assert made["spec"]["containers"][0]["args"] == serves["spec"]["containers"][0]["args"]
        assert set(made["metadata"]["labels"]) == {APART, "prefillgate.io/line"}
        assert made["metadata"]["ownerReferences"][0]["uid"] == uid
        assert set(namespace.slices("engine")) == {serves["status"]["podIP"]}
        assert namespace.rolled_out("engine")["status"]["replicas"] == 1
        seen = await until(works, uid, ended)
        assert seen.state is WorkState.ENDED and seen.floor is not None, seen.trouble
        assert seen.floor.sound is True
        wait_for(lambda: not namespace.pods(**{APART: "scratch"}))
    assert all(epoch.startswith(made["metadata"]["uid"]) for epoch in epochs(tmp_path, namespace))
    assert [pod["metadata"]["name"] for pod in namespace.pods(app="engine")] == [serves["metadata"]["name"]]


async def test_a_pod_is_drained_by_its_gate_while_another_serves_and_serves_again_afterwards(
    eyes: Eyes, gate: Kube, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.apply(deployment("engine", simulated(*SLOW), replicas=2, gate=True))
    namespace.apply(service("engine"))
    wait_for(lambda: len(namespace.pods(app="engine")) == 2)
    for pod in namespace.pods(app="engine"):
        opened(namespace, pod["metadata"]["name"])
    observed = await observed_line(eyes, namespace, isolated("Drain", minServing=1), 2)
    wait_for(lambda: in_service(namespace) == 2)
    async with working(gate, tmp_path, namespace) as works:
        uid = start(works, observed)
        await until(works, uid, lambda seen: seen.rows > 2 or ended(seen))
        (drained,) = namespace.pods(**{APART: "drained"})
        wait_for(lambda: in_service(namespace) == 1)
        assert namespace.slices("engine")[drained["status"]["podIP"]]["ready"] is False
        again = await eyes.look(f"{namespace.name}/chat")
        assert again is not None
        start(works, again)  # one that is out of its Services is no reason to move on
        seen = await until(works, uid, ended)
        assert seen.state is WorkState.ENDED and seen.floor is not None, seen.trouble
        wait_for(lambda: in_service(namespace) == 2)
        assert namespace.pods(**{APART: "drained"}) == []
    told = epochs(tmp_path, namespace)
    assert len(told) == 1 and told[0].startswith(drained["metadata"]["uid"])


async def test_a_pod_is_not_drained_without_its_gate_nor_below_what_must_serve(
    eyes: Eyes, gate: Kube, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.apply(deployment("engine", simulated(), replicas=2))
    observed = await observed_line(eyes, namespace, isolated("Drain", minServing=2), 2)
    async with working(gate, tmp_path, namespace) as works:
        uid = start(works, observed)
        seen = await until(works, uid, ended)
        assert seen.state is WorkState.BROKEN and seen.retry_at is not None
        assert "1 others are Ready, and spec.baseline.isolation.minServing is 2" in seen.trouble
    observed = await observed_line(eyes, namespace, isolated("Drain"), 2)
    async with working(gate, tmp_path, namespace, token=3) as works:
        uid = start(works, observed)
        seen = await until(works, uid, ended)
        assert seen.state is WorkState.REFUSED
        assert "has no readiness gate prefillgate.io/promoted" in seen.trouble
    assert namespace.pods(**{APART: "drained"}) == []


async def test_what_a_killed_controller_left_is_put_back_by_who_leads_next(
    eyes: Eyes, gate: Kube, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.apply(deployment("engine", simulated(), gate=True))
    namespace.apply(service("engine"))
    (pod,) = wait_for(lambda: namespace.pods(app="engine"))
    name = pod["metadata"]["name"]
    opened(namespace, name, "False")
    namespace.kubectl("label", "pod", name, f"{APART}=drained")
    left = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left", "labels": {APART: "scratch"}}}
    namespace.apply({**left, "spec": {"containers": [simulated()]}})
    async with working(gate, tmp_path, namespace):
        await asyncio.to_thread(wait_for, lambda: not namespace.pods(**{APART: "scratch"}))
        await asyncio.to_thread(wait_for, lambda: in_service(namespace) == 1)
        assert namespace.pods(**{APART: "drained"}) == []


async def test_a_pod_of_somebody_else_that_has_the_name_is_left_alone(
    eyes: Eyes, gate: Kube, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.apply(deployment("engine", simulated()))
    observed = await observed_line(eyes, namespace, isolated("Scratch"), 1)
    assert observed.snapshot.roles.promoted is not None
    name = scratch_name("chat", FLOOR, observed.snapshot.roles.promoted)
    theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [simulated()]}}
    namespace.apply(theirs)
    async with working(gate, tmp_path, namespace) as works:
        uid = start(works, observed)
        seen = await until(works, uid, ended)
        assert seen.state is WorkState.BROKEN and "it is none of the gate's" in seen.trouble
    pod = namespace.cluster.api().get(namespace.path("pods", name))
    assert "deletionTimestamp" not in pod["metadata"]


async def test_a_template_that_is_not_kept_any_more_is_told(
    eyes: Eyes, gate: Kube, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.apply(deployment("engine", simulated()))
    observed = await observed_line(eyes, namespace, isolated("Scratch"), 1)
    slots = tuple(
        replace(each, template=each.template.model_copy(update={"name": "gone"}))
        for each in observed.snapshot.slots
        if each.template is not None
    )
    async with working(gate, tmp_path, namespace) as works:
        uid = start(works, replace(observed, snapshot=replace(observed.snapshot, slots=slots)))
        seen = await until(works, uid, ended)
        assert seen.state is WorkState.REFUSED and "ReplicaSet gone, which kept its template, is gone" in seen.trouble


def in_service(namespace: Namespace) -> int:
    return sum(told["ready"] for told in namespace.slices("engine").values())


def opened(namespace: Namespace, pod: str, status: str = "True") -> None:
    """Set the pod's gate, as an action of a later day will."""
    body = {"status": {"conditions": [{"type": GATE, "status": status}]}}
    namespace.cluster.api().ask("PATCH", f"{namespace.path('pods', pod)}/status", body, STRATEGIC_PATCH)


async def test_the_alarm_after_a_promotion_is_answered_on_a_pod_of_the_previous_profile_made_for_it(
    eyes: Eyes, gate: Kube, namespace: Namespace, tmp_path: Path
) -> None:
    quick = {**QUALITY, "replicate": {"gapSeconds": 0}}
    namespace.apply({**POLICY, "metadata": {"name": "quick"}, "spec": quick})
    watched = line(policyRef={"name": "quick"}, watch={"everySeconds": 60, "prefills": 4, "previous": "Scratch"})
    namespace.apply(deployment("engine", simulated("--text-seed", "9")))
    before = await observed_line(eyes, namespace, watched, 1)
    (slot,) = [each for each in before.snapshot.slots if each.slot is Slot.BASELINE]
    assert slot.template is not None
    previous = {"digest": slot.profile.digest, "template": slot.template.model_dump(by_alias=True, exclude_none=True)}
    namespace.apply(deployment("engine", simulated("--text-seed", "9", "--fault", "bad-rate=1")))
    key = f"{namespace.name}/chat"
    await eyes.until(key, lambda seen: serving(seen, 1) if promoted_anew(seen, slot.profile.digest) else None)
    looked = await eyes.look(key)
    assert looked is not None and looked.snapshot.roles.promoted is not None
    thing = {**looked.snapshot.line, "status": {"previousProfile": previous}}
    observed = replace(looked, snapshot=replace(looked.snapshot, line=thing))
    async with working(gate, tmp_path, namespace) as works:
        uid, digest = str(thing["metadata"]["uid"]), looked.snapshot.roles.promoted
        order = StartWork(WATCH, WorkKind.WATCH, digest, seed=5, prefills=4, previous=slot.profile.digest)
        works.start(order, observed)
        seen = await until(works, uid, ended)
        assert seen.state is WorkState.ENDED and seen.watch is not None, seen.trouble
        assert (seen.watch.reason, seen.watch.rollback) == ("RegressionConfirmed", True)
        wait_for(lambda: not namespace.pods(**{APART: "scratch"}))
    folder = tmp_path / "stores" / namespace.name / "chat"
    replicate, _ = stored(folder / f"{seen.watch.replicate_run}.db")
    serves = {pod["metadata"]["uid"] for pod in namespace.pods(app="engine")}
    lives = {arm: {seen.server_epoch[:36] for seen in replicate.epochs[arm]} for arm in ("baseline", "candidate")}
    assert lives["candidate"] <= serves and len(lives["baseline"]) == 1 and not lives["baseline"] & serves


def promoted_anew(seen: LineSnapshot, before: str) -> bool:
    return seen.roles.promoted not in (None, before)
