"""How servers are found behind a Service or a URL, and by a selector for a profile that is written out."""

from __future__ import annotations

import json
from typing import Any

from prefillgate.kube.objects import Object
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.seen import view_of
from prefillgate.reconcile.snapshot import ArmSeen, LineSnapshot, Slot
from tests.observe.test_deployments import promoted_status, serving
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.workloads import deployment, service, simulated
from tests.support.looking import Eyes, line


def by(endpoint: Object, **more: Any) -> Object:
    """The usual line, its baseline asked that way."""
    return line(baseline={**line()["spec"]["baseline"], "endpoint": endpoint, **more})


def baseline(seen: LineSnapshot) -> ArmSeen:
    assert seen.baseline is not None
    return seen.baseline


async def test_the_one_pod_behind_a_service_is_asked_at_its_own_address_and_two_through_the_service(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated()))
    namespace.apply(service("engine"))
    namespace.apply(by({"service": {"name": "engine", "port": 80}}))
    seen = await eyes.until(key, lambda seen: serving(seen, 1))
    (pod,) = namespace.pods(app="engine")
    (server,) = baseline(seen).servers
    (status,) = pod["status"]["containerStatuses"]
    assert server.url == f"http://{pod['status']['podIP']}:8080"
    assert server.epoch == f"{pod['metadata']['uid']}/{status['containerID']}"
    assert (server.name, baseline(seen).notes) == ("Service engine", ())
    observed = await eyes.look(key)
    assert observed is not None
    rules = [way.access.addresses for way in observed.ways.values()]
    assert [each.tenant for each in rules if each is not None] == [namespace.name]

    namespace.kubectl("scale", "deployment/engine", "--replicas=2")
    seen = await eyes.until(key, lambda seen: seen if seen.baseline is not None and seen.baseline.notes else None)
    (server,) = baseline(seen).servers
    assert (server.url, server.epoch) == (f"http://engine.{namespace.name}.svc:80", None)
    (note,) = baseline(seen).notes
    assert note.startswith("Service engine stands before 2 pods: lives of several servers mix")


async def test_what_is_wrong_with_a_service_is_told(eyes: Eyes, namespace: Namespace) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated(), replicas=0))
    namespace.apply(by({"service": {"name": "lost", "port": 80}}))
    said = await eyes.until(key, lambda seen: seen.baseline and seen.baseline.unreachable)
    assert said == f"there is no Service lost in {namespace.name}"
    namespace.apply(service("engine"))
    namespace.apply(by({"service": {"name": "engine", "portName": "api"}}))
    said = await eyes.until(key, lambda seen: seen.baseline and "port" in (seen.baseline.unreachable or "") and seen)
    assert baseline(said).unreachable == "Service engine has no port api (there: unnamed 80)"
    namespace.apply(by({"service": {"name": "engine", "port": 80}}))
    seen = await eyes.until(key, lambda seen: seen if seen.baseline and seen.baseline.servers else None)
    (server,) = baseline(seen).servers
    assert (server.ready, server.trouble) == (False, "no ready endpoint is behind it")
    away = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "away"}}
    namespace.apply({**away, "spec": {"type": "ExternalName", "externalName": "llm.example"}})
    namespace.apply(by({"service": {"name": "away", "port": 8080, "path": "/llm"}}))
    seen = await eyes.until(key, lambda seen: seen if baseline(seen).servers[0].name == "Service away" else None)
    assert baseline(seen).servers[0].url == f"http://away.{namespace.name}.svc:8080/llm"


def _answers(seen: ArmSeen) -> bool:
    """Not as it was written before: that one was asked, too."""
    return seen.asked and seen.unreachable is None and len(seen.ready) == 1


async def test_the_arm_that_no_profile_is_asked_by_is_looked_at_as_it_is_written(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    for name in ("engine", "other"):
        namespace.apply(deployment(name, simulated()))
    namespace.rolled_out("engine")
    namespace.rolled_out("other")

    def other(endpoint: Object) -> Object:
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
        return line(candidate={"workloadRef": ref, "endpoint": endpoint})

    namespace.apply(other({"pods": {"port": 9}}))
    seen = await eyes.until(key, lambda seen: seen if seen.resting and seen.resting[0][1].unreachable else None)
    assert seen.roles.candidate is None and baseline(seen).unreachable is None
    told = next(each for each in plan(seen).line.conditions or () if each.type == "EndpointsReady")
    assert (told.status, told.reason) == ("False", "EndpointUnreachable")
    assert "spec.candidate.endpoint: http://" in told.message and "the connection is refused" in told.message
    for endpoint, reason, field in (
        ({"pods": {"portName": "htpp"}}, "PortNotFound", "spec.candidate.endpoint.pods.portName"),
        ({"service": {"name": "nosvc", "port": 80}}, "ServiceNotFound", "spec.candidate.endpoint.service.name"),
    ):
        namespace.apply(other(endpoint))
        wanted = (reason, field)
        await eyes.until(key, lambda seen, wanted=wanted: wanted in {(e.reason, e.field) for e in seen.troubles})
    namespace.apply(other({"pods": {"portName": "http"}}))
    good = await eyes.until(key, lambda seen: seen if seen.resting and _answers(seen.resting[0][1]) else None)
    assert not {"PortNotFound", "ServiceNotFound"} & {each.reason for each in good.troubles}


async def test_a_service_before_pods_of_another_workload_is_no_server_of_one_profile(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    other, engine = deployment("other", simulated("--model", "other")), deployment("engine", simulated())
    both = service("engine")
    both["spec"]["selector"] = {"tier": "llm"}
    for each in (other, engine):
        each["spec"]["template"]["metadata"]["labels"] = {"app": each["metadata"]["name"], "tier": "llm"}
    namespace.apply(other)
    namespace.apply(engine)
    namespace.apply(both)
    namespace.rolled_out("other")
    namespace.rolled_out("engine")
    namespace.apply(by({"service": {"name": "engine", "port": 80}}))
    said = await eyes.until(key, lambda seen: seen.baseline and seen.baseline.unreachable)
    assert said.startswith("Service engine stands before pods of another profile too (other-")
    assert "Take endpoint.pods" in said


async def test_a_url_of_a_workloads_one_pod_has_its_life_and_one_changed_in_place_cannot_tell_profiles_apart(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated()))
    namespace.rolled_out("engine")
    (pod,) = namespace.pods(app="engine")
    url = f"http://{pod['status']['podIP']}:8080"
    namespace.apply(by({"url": url}))
    seen = await eyes.until(key, lambda seen: serving(seen, 1))
    assert baseline(seen).servers[0].epoch == eyes.works.life(url)
    assert str(baseline(seen).servers[0].epoch).startswith(pod["metadata"]["uid"])

    status = json.dumps({"status": promoted_status(seen)})
    namespace.kubectl("patch", "sl", "chat", "--subresource=status", "--type=merge", "-p", status)
    namespace.apply(deployment("engine", simulated("--seed", "7"), gate=True))
    said = await eyes.until(key, lambda seen: seen.baseline and seen.baseline.unreachable)
    assert said.startswith(f"{url} cannot tell servers of this profile from those of the next one")


async def test_a_profile_that_is_written_out_is_served_by_the_pods_that_its_selector_means(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated()))
    arm = {
        "profile": {"image": "registry.example/prefillgate:1", "args": ["simulate", "--port", "8080"]},
        "endpoint": {"pods": {"port": 8080, "selector": {"app": "engine"}}},
    }
    namespace.apply(line(baseline=arm, candidate=arm))
    seen = await eyes.until(key, lambda seen: serving(seen, 1))
    assert seen.slots[0].profile.engine is None or seen.slots[0].slot is Slot.BASELINE
    (pod,) = namespace.pods(app="engine")
    assert [each.name for each in baseline(seen).servers] == [pod["metadata"]["name"]]
    namespace.apply(deployment("bystander", simulated()))
    namespace.rolled_out("bystander")
    seen = await eyes.seen(key)
    assert [each.name for each in baseline(seen).servers] == [pod["metadata"]["name"]]


async def test_every_change_of_a_pod_is_told_as_the_life_of_its_server_at_once(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated()))
    namespace.apply(line())
    await eyes.until(key, lambda seen: serving(seen, 1))
    (pod,) = namespace.pods(app="engine")
    url, uid = f"http://{pod['status']['podIP']}:8080", pod["metadata"]["uid"]
    assert str(eyes.works.life(url)).startswith(uid)
    told = len(eyes.works.lives)
    namespace.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    await eyes.until(key, lambda _: (url, None) in eyes.works.lives[told:])


async def test_names_that_are_ignored_from_now_on_leave_the_promoted_profile_what_it_was(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated(env=[{"name": "BUILD_NOTE", "value": "x"}])))
    namespace.apply(line())
    seen = await eyes.until(key, lambda seen: serving(seen, 1))
    (slot,) = seen.slots
    told: Any = promoted_status(seen)
    assert slot.template is not None
    kept = slot.template.model_dump(by_alias=True, exclude_none=True)
    own = {"reading": seen.reading, "marks": [*slot.profile.marks], "template": kept}
    patch = json.dumps({"status": {"promotedProfile": {**dict(told["promotedProfile"]), **own}}})
    namespace.kubectl("patch", "sl", "chat", "--subresource=status", "--type=merge", "-p", patch)
    namespace.apply(line(ignoredNames=["BUILD_NOTE"]))
    anew = await eyes.until(key, lambda now: now if now.reading != seen.reading and serving(now, 1) else None)
    assert anew.slots[0].profile.digest != slot.profile.digest
    assert (anew.roles.promoted, anew.roles.candidate) == (anew.slots[0].profile.digest, None)
    promoted = view_of(anew).promoted
    assert promoted is not None
    assert promoted.digest == anew.slots[0].profile.digest
    assert anew.line["status"]["promotedProfile"]["digest"] == slot.profile.digest  # as read: it is yet to be written
