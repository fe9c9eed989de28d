"""What stands behind a Service: each pod once, whatever addresses it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from prefillgate.api.kinds.arms import ServiceEndpoint
from prefillgate.app.observe import trims
from prefillgate.app.observe.kinds import Kinds
from prefillgate.app.observe.services import Services
from prefillgate.kube.client import Kube
from prefillgate.kube.objects import Object, Ref
from prefillgate.reconcile.snapshot import ArmSeen
from tests.support.manual_clock import ManualClock

IPV4, IPV6 = "IPv4", "IPv6"
AWAY = {"type": "ExternalName", "externalName": "llm.example"}


def endpoint(address: str, pod: str | None = "chat-0", ready: bool | None = True, uid: str | None = "u") -> Object:
    made: Object = {"addresses": [address], "conditions": {} if ready is None else {"ready": ready}}
    if pod is not None:
        made["targetRef"] = {"kind": "Pod", "name": pod, **({} if uid is None else {"uid": uid})}
    return made


def endpoint_slice(family: str, *endpoints: Object, port: int = 8080) -> Object:
    meta = {"name": f"chat-{family}", "namespace": "p", "labels": {"kubernetes.io/service-name": "chat"}}
    ports = [{"name": "http", "port": port}]
    return {"kind": "EndpointSlice", "metadata": meta, "addressType": family, "ports": ports, "endpoints": endpoints}


def pod(name: str, uid: str) -> Object:
    running = {"name": "s", "containerID": f"c-{uid}", "state": {"running": {"startedAt": "2026-11-01T00:00:00Z"}}}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [running]}
    meta = {"name": name, "namespace": "p", "uid": uid}
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "s"}]}, "status": status}


class Cluster:
    """A Service and its EndpointSlices as they are held."""

    def __init__(self, families: Sequence[str], *slices: Object) -> None:
        self.spec = {"ports": [{"name": "http", "port": 80}], **({"ipFamilies": families} if families else {})}
        self.slices = [trims.endpoint_slice({**each, "endpoints": list(each["endpoints"])}) for each in slices]

    async def find(self, ref: Ref | Any) -> Object | None:
        if ref.name == "nosvc":
            return None
        if ref.name == "away":
            return {"kind": "Service", "metadata": {"name": ref.name, "namespace": "p"}, "spec": AWAY}
        return {"kind": "Service", "metadata": {"name": ref.name, "namespace": "p"}, "spec": self.spec}

    async def seen(self, *pods: Object) -> ArmSeen:
        kinds = cast(Kinds, Held(self.slices))
        services = Services(cast(Kube, self), kinds, ManualClock(), 1.0)
        asked = ServiceEndpoint.model_validate({"name": "chat", "port": 80})
        return await services.seen(ArmSeen("d"), "p", asked, pods or None)


class Held:
    def __init__(self, slices: list[Object]) -> None:
        self.slices = slices

    def find(self, named: tuple[str, str]) -> None:
        return None

    def named(self, kind: str) -> list[list[Object]]:
        return [self.slices]


async def test_a_pod_with_an_address_of_each_family_is_one_pod_at_that_of_the_services_own() -> None:
    four, six = endpoint_slice(IPV4, endpoint("10.0.0.5")), endpoint_slice(IPV6, endpoint("fd00::5"))
    for families, url in (
        ((IPV4, IPV6), "http://10.0.0.5:8080"),
        ((IPV6, IPV4), "http://[fd00::5]:8080"),
        ((IPV6,), "http://[fd00::5]:8080"),
    ):
        for slices in ((four, six), (six, four)):
            arm = await Cluster(families, *slices).seen(pod("chat-0", "u"))
            (server,) = arm.servers
            assert (server.url, server.epoch, arm.notes) == (url, "u/c-u", ())
    arm = await Cluster((IPV6, IPV4), four).seen(pod("chat-0", "u"))
    assert [each.url for each in arm.servers] == ["http://10.0.0.5:8080"]  # all that it has
    by_name = [endpoint_slice(f, endpoint(a, uid=None)) for f, a in ((IPV4, "10.0.0.5"), (IPV6, "fd00::5"))]
    arm = await Cluster((IPV4,), *by_name).seen(pod("chat-0", "u"))
    assert [each.url for each in arm.servers] == ["http://10.0.0.5:8080"]


async def test_two_pods_with_two_addresses_each_are_two_and_one_that_is_not_ready_is_none() -> None:
    def both(ready: bool) -> tuple[Object, Object]:
        return (
            endpoint_slice(IPV4, endpoint("10.0.0.5"), endpoint("10.0.0.6", "chat-1", ready, "v")),
            endpoint_slice(IPV6, endpoint("fd00::5"), endpoint("fd00::6", "chat-1", ready, "v")),
        )

    pods = (pod("chat-0", "u"), pod("chat-1", "v"))
    arm = await Cluster((IPV4, IPV6), *both(True)).seen(*pods)
    (note,) = arm.notes
    assert note.startswith("Service chat stands before 2 pods")
    assert [(each.url, each.epoch) for each in arm.servers] == [("http://chat.p.svc:80", None)]
    arm = await Cluster((IPV4, IPV6), *both(False)).seen(*pods)
    assert [each.epoch for each in arm.servers] == ["u/c-u"]
    replaced = (  # of one name, one after the other
        endpoint_slice(IPV4, endpoint("10.0.0.5"), endpoint("10.0.0.6", uid="v")),
        endpoint_slice(IPV6, endpoint("fd00::5")),
    )
    arm = await Cluster((IPV4, IPV6), *replaced).seen(pod("chat-0", "u"))
    assert arm.notes[0].startswith("Service chat stands before 2 pods")


async def test_addresses_that_are_no_pods_are_those_of_the_services_family() -> None:
    four, six = (
        endpoint_slice(IPV4, endpoint("192.0.2.5", None, None)),
        endpoint_slice(IPV6, endpoint("2001:db8::5", None)),
    )
    for families, slices, url in (
        ((IPV6, IPV4), (four, six), "http://[2001:db8::5]:8080"),
        ((IPV4,), (four, six), "http://192.0.2.5:8080"),
        ((IPV6,), (four,), "http://192.0.2.5:8080"),
        ((), (four,), "http://192.0.2.5:8080"),
    ):
        arm = await Cluster(families, *slices).seen()
        assert [(each.url, each.epoch) for each in arm.servers] == [(url, None)]
    two = endpoint_slice(IPV4, endpoint("192.0.2.5", None), endpoint("192.0.2.6", None))
    assert (await Cluster((IPV4,), two).seen()).notes[0].startswith("Service chat stands before 2 pods")


async def test_the_port_is_that_of_the_address_that_is_asked() -> None:
    four, six = endpoint_slice(IPV4, endpoint("10.0.0.5"), port=1), endpoint_slice(IPV6, endpoint("fd00::5"), port=2)
    arm = await Cluster((IPV6, IPV4), four, six).seen(pod("chat-0", "u"))
    assert [each.url for each in arm.servers] == ["http://[fd00::5]:2"]
