"""A Service as an arm's server: the one pod behind it at its own address, or all of them through the Service's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.api.kinds.arms import ServiceEndpoint
from prefillgate.app.observe.kinds import ENDPOINT_SLICES, Kinds
from prefillgate.app.observe.pods import epoch_of, url_of
from prefillgate.app.observe.trims import FAMILY
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock
from prefillgate.kube.objects import SERVICES, Object, Ref, label, name_of, namespace_of
from prefillgate.reconcile.snapshot import ArmSeen, ServerSeen, Slot, Trouble

SERVICE_LABEL = "kubernetes.io/service-name"
KEPT_SECONDS = 30.0
RULE = '{apiGroups: ["discovery.k8s.io"], resources: [endpointslices], verbs: [get, list, watch]}'


@dataclass(frozen=True, slots=True)
class _Behind:
    """One ready endpoint: its address, the ports of its slice, the pod that it is."""

    address: str
    ports: tuple[Mapping[str, Any], ...]
    pod: str


@dataclass(slots=True)
class Services:
    """Reads Services; what was read is kept for half a minute."""

    kube: Kube
    kinds: Kinds
    clock: Clock
    seconds: float
    _kept: dict[str, tuple[float, Object | None]] = field(default_factory=dict)

    async def seen(
        self, arm: ArmSeen, namespace: str, endpoint: ServiceEndpoint, pods: tuple[Object, ...] | None
    ) -> ArmSeen:
        """The arm with its server. `pods` are the arm's, None where they are not told apart. Raises KubeError."""
        service = await self._service(namespace, endpoint.name)
        lacks = _lacks(service, namespace, endpoint)
        if service is None or lacks is not None:
            return replace(arm, unreachable="" if lacks is None else lacks.said)
        port = None if _only_a_name(service, endpoint) else _port(service, endpoint)
        if port is None:
            asked = _Asked(endpoint, {"port": endpoint.port}, namespace)  # nothing but its name leads there
            return replace(arm, servers=(ServerSeen(f"Service {endpoint.name}", asked.url, True),))
        wanted = self.kinds.find(ENDPOINT_SLICES)
        refused = await wanted.first(self.seconds) if wanted is not None else None
        if refused is not None:
            said = f"the controller may not read EndpointSlices. Add to its ClusterRole: {RULE}."
            return replace(arm, unreachable=said)
        return _seen(
            arm, _Asked(endpoint, port, namespace), self._behind(namespace, endpoint.name, _family(service)), pods
        )

    async def trouble(self, slot: Slot, namespace: str, endpoint: ServiceEndpoint) -> Trouble | None:
        """What the endpoint names and is not there: the Service, or a port of it. Raises KubeError."""
        lacks = _lacks(await self._service(namespace, endpoint.name), namespace, endpoint)
        if lacks is None:
            return None
        return Trouble(lacks.reason, f"spec.{slot}.endpoint.service.{lacks.field}", f"{_capital(lacks.said)}.")

    async def _service(self, namespace: str, name: str) -> Object | None:
        key, now = f"{namespace}/{name}", self.clock.monotonic()
        at, found = self._kept.get(key, (0.0, None))
        if found is None or now - at > KEPT_SECONDS:
            found = await self.kube.find(Ref(SERVICES, name, namespace))
            self._kept[key] = (now, found)
        return found

    def _behind(self, namespace: str, service: str, family: str | None) -> list[_Behind]:
        """Each pod once, though it has an address of each family: its one of `family` where it has that.

        Of addresses that nobody says a pod of those of the family are taken, all where it has none.
        """
        pods: dict[str, _Behind] = {}
        bare: dict[bool, dict[str, _Behind]] = {True: {}, False: {}}
        for each in _slices(self.kinds, namespace, service):
            of_family = each.get(FAMILY) == family
            for endpoint in each.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready") is False:
                    continue
                target = endpoint.get("targetRef") or {}
                pod, which = str(target.get("name") or ""), str(target.get("uid") or target.get("name") or "")
                for address in (endpoint.get("addresses") or ())[:1]:
                    one = _Behind(str(address), tuple(each.get("ports") or ()), pod)
                    if not which:
                        bare[of_family][one.address] = one
                    elif of_family or which not in pods:
                        pods[which] = one
        found = [*pods.values(), *(bare[True] or bare[False]).values()]
        return sorted(found, key=lambda one: one.address)


@dataclass(frozen=True, slots=True)
class _Lacks:
    """What an endpoint names and is not there."""

    reason: str
    field: str
    said: str


def _lacks(service: Object | None, namespace: str, endpoint: ServiceEndpoint) -> _Lacks | None:
    if service is None:
        return _Lacks("ServiceNotFound", "name", f"there is no Service {endpoint.name} in {namespace}")
    if _only_a_name(service, endpoint) or _port(service, endpoint) is not None:
        return None
    there = ", ".join(f"{each.get('name') or 'unnamed'} {each.get('port')}" for each in _ports(service)) or "none"
    field = "port" if endpoint.port_name is None else "portName"
    wished = endpoint.port_name or endpoint.port
    return _Lacks("PortNotFound", field, f"Service {endpoint.name} has no port {wished} (there: {there})")


def _only_a_name(service: Object, endpoint: ServiceEndpoint) -> bool:
    return (service.get("spec") or {}).get("type") == "ExternalName" and endpoint.port is not None


def _capital(said: str) -> str:
    return said[:1].upper() + said[1:]


@dataclass(frozen=True, slots=True)
class _Asked:
    endpoint: ServiceEndpoint
    port: Mapping[str, Any]
    namespace: str

    @property
    def host(self) -> str:
        return f"{self.endpoint.name}.{self.namespace}.svc"

    @property
    def url(self) -> str:
        """The Service's own."""
        return f"{self.endpoint.scheme.lower()}://{self.host}:{self.port.get('port')}{self.endpoint.path or ''}"


def _seen(arm: ArmSeen, asked: _Asked, behind: Sequence[_Behind], pods: tuple[Object, ...] | None) -> ArmSeen:
    name = f"Service {asked.endpoint.name}"
    if not behind:
        return replace(arm, servers=(ServerSeen(name, asked.url, False, None, "no ready endpoint is behind it"),))
    by_name = None if pods is None else {name_of(pod): pod for pod in pods}
    others = [] if by_name is None else [each.pod or each.address for each in behind if each.pod not in by_name]
    if others:
        why = (
            f"{name} stands before pods of another profile too ({', '.join(others[:3])}): what it answers is of no one "
            "profile. Take endpoint.pods, or a Service that selects the pods of one workload alone"
        )
        return replace(arm, unreachable=why)
    if len(behind) > 1:
        note = f"{name} stands before {len(behind)} pods: lives of several servers mix; endpoint.pods keeps them apart"
        return replace(arm, servers=(ServerSeen(name, asked.url, True),), notes=(*arm.notes, note))
    (one,) = behind
    number = _target(one, asked.port)
    pod = None if by_name is None else by_name.get(one.pod)
    url = asked.url if number is None else url_of(one.address, number, asked.endpoint.scheme, asked.endpoint.path)
    epoch = None if pod is None else epoch_of(pod, "")
    return replace(arm, servers=(ServerSeen(name, url, True, epoch),))


def _target(one: _Behind, port: Mapping[str, Any]) -> int | None:
    """The pod's own port, by the name that the Service gives it."""
    named = (each for each in one.ports if (each.get("name") or "") == (port.get("name") or ""))
    found = next(named, {}).get("port")
    return found if isinstance(found, int) else None


def _port(service: Object, endpoint: ServiceEndpoint) -> Mapping[str, Any] | None:
    for each in _ports(service):
        if endpoint.port is not None and each.get("port") == endpoint.port:
            return each
        if endpoint.port_name is not None and each.get("name") == endpoint.port_name:
            return each
    return None


def _ports(service: Object) -> list[Mapping[str, Any]]:
    return [each for each in (service.get("spec") or {}).get("ports") or () if isinstance(each, Mapping)]


def _family(service: Object) -> str | None:
    """The family of the Service's own address, which clients of its name ask."""
    families = (service.get("spec") or {}).get("ipFamilies") or ()
    return str(families[0]) if families else None


def _slices(kinds: Kinds, namespace: str, service: str) -> Iterable[Object]:
    for held in kinds.named("EndpointSlice"):
        yield from (e for e in held if namespace_of(e) == namespace and label(e, SERVICE_LABEL) == service)
