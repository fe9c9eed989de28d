"""What the endpoint of each arm names is looked for as it is written, whatever profile its workload says."""

from __future__ import annotations

from typing import Any, cast

import pytest

from prefillgate.api.kinds.arms import Arm
from prefillgate.app.observe.arms import Sorting
from prefillgate.app.observe.config import ConfigMaps
from prefillgate.app.observe.endpoints import port_trouble
from prefillgate.app.observe.kinds import Kinds
from prefillgate.app.observe.services import Services
from prefillgate.app.observe.slots import PodFound, SlotFound
from prefillgate.kube.client import Kube
from prefillgate.kube.objects import Object
from prefillgate.reconcile.snapshot import ServerSeen, Slot, Trouble
from tests.lines.test_observe_services import IPV4, Cluster, Held, endpoint, endpoint_slice, pod
from tests.support.manual_clock import ManualClock

REF = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "new"}


def containers(*named: tuple[str, int]) -> Object:
    ports = [{"name": name, "containerPort": number} for name, number in named]
    return {"containers": [{"name": "s", "ports": ports}, {"name": "bare"}]}


def deployment(*named: tuple[str, int]) -> Object:
    spec = {"template": {"spec": containers(*named)}}
    return {"kind": "Deployment", "metadata": {"name": "new", "namespace": "p"}, "spec": spec}


def slot(way: dict[str, Any], workload: Object | None, *pods: Object) -> SlotFound:
    arm = Arm.model_validate({"workloadRef": REF, "endpoint": way})
    return SlotFound(Slot.CANDIDATE, arm, "p", workload=workload, pods=tuple(map(PodFound, pods)))


def named(name: str) -> dict[str, Any]:
    return {"pods": {"portName": name}}


def running(*ports: tuple[str, int], **more: Any) -> Object:
    found = pod("new-1", "u")
    return {**found, "spec": containers(*ports), "status": {**found["status"], "podIP": "10.0.0.9"}, **more}


def sorting(*slices: Object) -> Sorting:
    cluster = Cluster((IPV4,), *slices)
    services = Services(cast(Kube, cluster), cast(Kinds, Held(cluster.slices)), ManualClock(), 1.0)
    return Sorting(cast(ConfigMaps, None), services)


def test_a_name_that_no_container_gives_a_port_is_told_with_those_that_are_there() -> None:
    found = port_trouble(slot(named("htpp"), deployment(("metrics", 9090), ("http", 8080))))
    assert found == Trouble(
        "PortNotFound",
        "spec.candidate.endpoint.pods.portName",
        "No container of Deployment new has a port named htpp (there: http 8080, metrics 9090).",
    )
    found = port_trouble(slot(named("htpp"), deployment()))
    assert found is not None and found.detail.endswith("has a port named htpp (there: none).")
    found = port_trouble(slot(named("htpp"), None, running(("http", 8080))))
    assert found is not None and found.detail.startswith("No container of the pods selected has")


@pytest.mark.parametrize(
    "there",
    [
        slot(named("http"), deployment(("http", 8080))),
        slot(named("http"), deployment(), running(("http", 8080))),  # what an admission webhook put beside it
        slot(named("http"), deployment(("http", 8080)), running()),
        slot(named("htpp"), None),  # nothing tells
        slot({"pods": {"port": 9}}, deployment()),
        slot({"url": "http://chat.example"}, deployment()),
    ],
)
def test_a_port_that_is_there_or_that_nothing_tells_of_is_no_trouble(there: SlotFound) -> None:
    assert port_trouble(there) is None


@pytest.mark.parametrize(
    ("way", "reason", "field", "said"),
    [
        ({"name": "nosvc", "port": 80}, "ServiceNotFound", "name", "There is no Service nosvc in p."),
        ({"name": "chat", "port": 81}, "PortNotFound", "port", "Service chat has no port 81 (there: http 80)."),
        (
            {"name": "chat", "portName": "htpp"},
            "PortNotFound",
            "portName",
            "Service chat has no port htpp (there: http 80).",
        ),
    ],
)
async def test_a_service_or_a_port_of_it_that_is_not_there_is_told(
    way: Object, reason: str, field: str, said: str
) -> None:
    found = await sorting().trouble(slot({"service": way}, deployment()))
    assert found == Trouble(reason, f"spec.candidate.endpoint.service.{field}", said)


async def test_what_is_there_is_no_trouble_by_any_way() -> None:
    for way in ({"name": "chat", "port": 80}, {"name": "chat", "portName": "http"}, {"name": "away", "port": 7}):
        assert await sorting().trouble(slot({"service": way}, deployment())) is None
    found = await sorting().trouble(slot(named("htpp"), deployment(("http", 8080))))
    assert found is not None and found.reason == "PortNotFound"


async def test_the_servers_of_a_slot_are_those_that_its_own_endpoint_leads_to() -> None:
    ready = running(("http", 8080))
    arm = await sorting().as_written(slot({"pods": {"port": 9999}}, deployment(), ready))
    assert [(each.url, each.ready) for each in arm.servers] == [("http://10.0.0.9:9999", True)]
    gone = {**ready, "metadata": {**ready["metadata"], "deletionTimestamp": "2026-11-30T10:00:00Z"}}
    assert (await sorting().as_written(slot({"pods": {"port": 9999}}, deployment(), gone))).servers == ()
    worker = {**ready, "metadata": {**ready["metadata"], "labels": {"leaderworkerset.sigs.k8s.io/worker-index": "1"}}}
    assert (await sorting().as_written(slot({"pods": {"port": 9999}}, deployment(), worker))).servers == ()
    four = endpoint_slice(IPV4, endpoint("10.0.0.5", "of-another-workload"))
    arm = await sorting(four).as_written(slot({"service": {"name": "chat", "port": 80}}, deployment(), ready))
    assert arm.servers == (ServerSeen("Service chat", "http://10.0.0.5:8080", True),)
    arm = await sorting().as_written(slot({"url": "http://chat.example"}, deployment(), ready))
    assert [(each.url, each.ready) for each in arm.servers] == [("http://chat.example", True)]
    arm = await sorting().as_written(slot({"url": "http://chat.example"}, deployment()))
    assert [each.ready for each in arm.servers] == [False]
