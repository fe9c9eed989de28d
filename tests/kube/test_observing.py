"""What is held of a cluster, on a fake API server: little, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.app.observe import ClusterObserver, ObserveSettings
from prefillgate.app.observe.held import Keeping, Kin
from prefillgate.app.observe.kinds import Kinds
from prefillgate.app.observe.trims import is_stub
from prefillgate.app.seams import Leading
from prefillgate.evidence.book import open_book
from prefillgate.evidence.fence import Fence
from prefillgate.kube.access import Where
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from prefillgate.kube.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    PROFILE_ROLLOUTS,
    PROMOTION_POLICIES,
    REPLAY_SETS,
    SECRETS,
    SERVING_LINES,
    Kind,
    Object,
)
from prefillgate.kube.reflector import Pace
from tests.support.fake_api import FakeApi, Fault, Resource
from tests.support.fake_api.store import Write
from tests.support.gadgets import GADGETS
from tests.support.looking import Eyes, Noted, config_map, line, looking
from tests.support.manual_clock import ManualClock, until

OFTEN = Pace(backoff=Backoff(0.01, 0.02))


def put(fake: FakeApi, kind: Kind, namespace: str, obj: Object) -> Object:
    return fake.store.create(fake._of(kind), namespace, obj, Write("somebody"))


def pod(name: str, **more: Any) -> Object:
    ports = [{"name": "http", "containerPort": 8080}]
    spec = {"containers": [{"name": "server", "image": "llama-server:1", "args": ["--port", "8080"], "ports": ports}]}
    return {"metadata": {"name": name, "labels": {"app": name}, **more}, "spec": spec, "status": {"phase": "Running"}}


@pytest.fixture
def served(fake: FakeApi) -> FakeApi:
    for kind in (SERVING_LINES, PROFILE_ROLLOUTS, PROMOTION_POLICIES, REPLAY_SETS):
        fake.serve(Resource(kind))
    for name in ("team", "other"):
        put(fake, NAMESPACES, "", {"metadata": {"name": name}})
    return fake


@pytest.fixture
async def eyes(served: FakeApi, kube: Kube, tmp_path: Path) -> AsyncIterator[Eyes]:
    async with looking(kube, tmp_path, pace=OFTEN) as found:
        yield found


def kinds_of(eyes: Eyes) -> Kinds:
    return eyes.observer._kinds


async def test_of_a_namespace_without_lines_names_alone_are_held_and_its_first_line_brings_the_rest(
    served: FakeApi, eyes: Eyes
) -> None:
    pods = kinds_of(eyes)["Pod"]
    put(served, PODS, "other", pod("early"))
    await until(lambda: pods.at("other/early"))
    stub = pods.at("other/early")
    assert stub is not None
    assert is_stub(stub)
    assert set(stub) == {"metadata"}
    assert set(stub["metadata"]) <= {"name", "namespace", "uid", "resourceVersion"}
    put(served, CONFIG_MAPS, "other", config_map())
    put(served, SERVING_LINES, "other", line(baseline=_by_selector("early"), candidate=_by_selector("early")))
    seen = await eyes.until("other/chat", lambda seen: seen if seen.baseline and seen.baseline.servers else None)
    assert [each.name for each in seen.baseline.servers if seen.baseline] == ["early"]
    lists = served.count("list")
    put(served, PODS, "other", pod("late"))
    await until(lambda: pods.at("other/late"))
    late = pods.at("other/late")
    assert late is not None
    assert not is_stub(late)
    await eyes.seen("other/chat")
    assert served.count("list") == lists  # nothing is listed twice


def _by_selector(name: str) -> Object:
    endpoint = {"pods": {"port": 8080, "selector": {"app": name}}}
    return {"profile": {"image": "llama-server:1", "args": ["--port", "8080"]}, "endpoint": endpoint}


async def test_a_line_that_is_there_from_the_start_needs_no_second_list(
    served: FakeApi, kube: Kube, tmp_path: Path
) -> None:
    put(served, PODS, "team", pod("engine"))
    put(served, SERVING_LINES, "team", line(baseline=_by_selector("engine"), candidate=_by_selector("engine")))
    async with looking(kube, tmp_path, pace=OFTEN) as eyes:
        lists = served.count("list")
        seen = await eyes.seen("team/chat")
        assert seen.baseline is not None
        assert [each.name for each in seen.baseline.servers] == ["engine"]
        assert served.count("list") == lists


async def test_a_namespace_whose_last_line_is_gone_is_let_go_of(served: FakeApi, eyes: Eyes) -> None:
    put(served, SERVING_LINES, "team", line(baseline=_by_selector("engine"), candidate=_by_selector("engine")))
    put(served, PODS, "team", pod("engine"))
    await eyes.until("team/chat", lambda seen: seen.baseline and seen.baseline.servers)
    served.store.delete(served._of(SERVING_LINES), "team", "chat", None)
    await until(lambda: eyes.observer.keys("ServingLine") == ())
    put(served, PODS, "team", pod("next"))
    await until(lambda: kinds_of(eyes)["Pod"].at("team/next"))
    assert is_stub(kinds_of(eyes)["Pod"].at("team/next") or {"kind": "Pod"})
    assert await eyes.look("team/chat") is None


async def test_a_kind_that_lines_name_is_watched_while_one_names_it(served: FakeApi, eyes: Eyes) -> None:
    ref = {"apiVersion": GADGETS.api_version, "kind": GADGETS.kind, "name": "engine"}
    arm = {"workloadRef": ref, "endpoint": {"pods": {"port": 8080}}}
    put(served, SERVING_LINES, "team", line(baseline=arm))
    reasons = await eyes.until("team/chat", lambda seen: {each.reason for each in seen.troubles})
    assert "WorkloadNotFound" in reasons
    assert [held.kind for held in kinds_of(eyes).named("Gadget")] == [GADGETS]
    served.store.delete(served._of(SERVING_LINES), "team", "chat", None)
    await until(lambda: not list(kinds_of(eyes).named("Gadget")))
    assert ("discover", "apiresources") in served.calls


@pytest.mark.parametrize("what", ["reset", "html", "status"])
async def test_a_question_that_fails_while_a_kind_is_looked_for_is_asked_again(
    what: str, served: FakeApi, kube: Kube
) -> None:
    fault = served.fail(Fault(what, verb="discover", code=503, times=1_000))
    clock, synced = ManualClock(), []
    kinds = Kinds(Keeping(kube, (), OFTEN, clock, lambda *_: None), synced.append)
    task = asyncio.create_task(kinds.run())
    kinds.want({(GADGETS.api_version, GADGETS.kind)})
    found = kinds.find((GADGETS.api_version, GADGETS.kind))
    assert found is not None
    await until(clock.sleeping)
    with pytest.raises(Unreachable):
        await found.first(0.01)
    fault.times = 0
    await clock.advance(2.0)
    await until(lambda: list(kinds.named("Gadget")))
    assert await found.first(5.0) is None
    task.cancel()
    await asyncio.wait({task})


async def test_a_definition_that_is_not_there_yet_is_found_when_it_comes(served: FakeApi, kube: Kube) -> None:
    clock, synced = ManualClock(), []
    kinds = Kinds(Keeping(kube, (), OFTEN, clock, lambda *_: None), synced.append)
    task = asyncio.create_task(kinds.run())
    fleets = Kind("fleet.example.com", "v1", "fleets", "Fleet")
    kinds.want({(fleets.api_version, fleets.kind)})
    found = kinds.find((fleets.api_version, fleets.kind))
    assert found is not None
    assert isinstance(await found.first(5.0), NotFound)
    served.serve(Resource(fleets))
    await clock.advance(1.0)
    await until(lambda: "Fleet" in synced)
    assert await found.first(5.0) is None
    task.cancel()
    await asyncio.wait({task})


async def test_a_kind_that_may_not_be_listed_is_refused_and_told_and_comes_once_it_may(
    served: FakeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    kubeconfig.write_text(yaml.safe_dump(served.kubeconfig(token="restricted")), encoding="utf-8")
    served.denied.add(("list", "deployments"))
    put(served, SERVING_LINES, "team", line())
    async with await Kube.connect(Where(str(kubeconfig))) as kube, looking(kube, tmp_path, pace=OFTEN) as eyes:
        seen = await eyes.until("team/chat", lambda seen: seen if seen.troubles else None)
        assert "WorkloadForbidden" in [each.reason for each in seen.troubles]
        assert {kind for kind, _ in eyes.refused} == {"Deployment"}
        assert all(isinstance(error, Forbidden) for _, error in eyes.refused)
        put(served, DEPLOYMENTS, "team", {"metadata": {"name": "engine"}, "spec": {"template": pod("x")}})
        served.denied.clear()
        await eyes.until("team/chat", lambda seen: seen.slots)


async def test_an_api_server_that_answers_nobody_makes_a_look_fail_in_time_and_nothing_else(
    served: FakeApi, kube: Kube, tmp_path: Path
) -> None:
    served.fail(Fault("status", verb="list", plural="pods", code=500, times=10_000))
    put(served, SERVING_LINES, "team", line())
    told: list[KubeError] = []
    settings = ObserveSettings(b"key", pace=OFTEN, sync_seconds=0.1)
    observer = ClusterObserver(kube, settings, trouble=lambda _, error: told.append(error))
    task = asyncio.create_task(observer.run(lambda *_: None))
    await until(lambda: told and observer.keys("ServingLine"))
    assert not observer.synced()
    with open_book(tmp_path / "book.db", Fence(1)) as book, pytest.raises(Unreachable, match="list pods"):
        await observer.look("team/chat", Noted(), Leading(book, Fence(1)))
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})


async def test_a_store_that_cannot_be_read_is_told_and_the_look_goes_on(served: FakeApi, eyes: Eyes) -> None:
    put(served, SERVING_LINES, "team", line())
    await until(lambda: eyes.observer.keys("ServingLine"))
    eyes.book.close()
    seen = await eyes.seen("team/chat")
    assert seen.book.trouble


def test_who_owns_whom_is_forgotten_with_the_object() -> None:
    kin = Kin()
    owner = [{"kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}]
    obj = {"kind": "Pod", "metadata": {"name": "a", "namespace": "n", "ownerReferences": owner}}
    kin.told("Pod", "n/a", None, obj)
    assert (kin.below("u"), kin.pods_in("n")) == ({("Pod", "n/a")}, {"n/a"})
    kin.told("Pod", "n/a", obj, {**obj, "metadata": {"name": "a", "namespace": "n"}})
    assert (kin.below("u"), kin.pods_in("n")) == (set(), {"n/a"})
    kin.told("Pod", "n/a", {**obj, "metadata": {"name": "a", "namespace": "n"}}, None)
    assert (kin.below("u"), kin.pods_in("n")) == (set(), set())
    assert kin == Kin()


async def test_lines_of_other_namespaces_are_not_looked_at_where_some_are_named(
    served: FakeApi, kube: Kube, tmp_path: Path
) -> None:
    for space in ("team", "other"):
        put(served, SERVING_LINES, space, line())
    async with looking(kube, tmp_path, pace=OFTEN, namespaces=("team",)) as eyes:
        assert eyes.observer.keys("ServingLine") == ("team/chat",)
        assert await eyes.look("other/chat") is None


async def test_what_a_line_says_of_how_its_template_is_read_is_heeded(served: FakeApi, eyes: Eyes) -> None:
    hidden = "0123-not-to-be-seen"
    containers = [
        {"name": "proxy", "image": "proxy:1"},
        {
            "name": "model",
            "image": "own/server:1",
            "args": ["--team-pass", hidden, "--max-model-len", "8192"],
            "env": [{"name": "INJECTED_BY", "value": "admission"}],
        },
    ]
    put(
        served,
        DEPLOYMENTS,
        "team",
        {"metadata": {"name": "engine"}, "spec": {"template": {"spec": {"containers": containers}}}},
    )
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "engine"}
    arm = {"workloadRef": ref, "endpoint": {"pods": {"port": 8080}}}
    put(served, SERVING_LINES, "team", line(baseline=arm))
    seen = await eyes.until("team/chat", lambda seen: seen if seen.slots else None)
    plain = seen.slots[0].profile
    assert plain.parts[0].container == "proxy"
    told = {"redactedNames": ["--team-pass"], "ignoredNames": ["INJECTED_*", "proxy"], "engine": "vllm"}
    named = line("named", baseline={**arm, "workloadRef": {**ref, "container": "model"}}, **told)
    put(served, SERVING_LINES, "team", named)
    seen = await eyes.until("team/named", lambda seen: seen if seen.slots else None)
    profile = seen.slots[0].profile
    assert (profile.parts[0].container, profile.engine) == ("model", "vllm")
    assert hidden not in repr(profile)
    assert "admission" not in repr(profile)
    assert "proxy:1" not in repr(profile)
    assert "8192" in [each.value for each in profile.settings]


async def test_a_secret_that_comes_later_is_found_though_nobody_tells_of_it(
    served: FakeApi, kube: Kube, tmp_path: Path
) -> None:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "engine"}
    arm = {"workloadRef": ref, "endpoint": {"pods": {"port": 8080}}, "apiKeySecretRef": {"name": "key", "key": "token"}}
    put(served, SERVING_LINES, "team", line(baseline=arm))
    async with looking(kube, tmp_path, pace=OFTEN, again_seconds=0.05) as eyes:
        assert await eyes.until("team/chat", lambda seen: "SecretNotFound" in [each.reason for each in seen.troubles])
        labels = {"prefillgate.io/usable-by": "gate"}
        put(served, SECRETS, "team", {"metadata": {"name": "key", "labels": labels}, "data": {"token": "a2V5"}})
        await eyes.until("team/chat", lambda seen: "SecretNotFound" not in [each.reason for each in seen.troubles])
