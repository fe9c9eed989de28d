"""Whether what the endpoint of an arm names is there, whatever profile its workload says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.api.kinds.arms import Endpoint
from prefillgate.app.observe.slots import SlotFound
from prefillgate.app.observe.workloads import pod_specs
from prefillgate.kube.objects import name_of
from prefillgate.reconcile.snapshot import Slot, Trouble

MOST_PORTS = 8  # named where another one is asked for


def way_of(endpoint: Endpoint) -> str:
    """The field of an endpoint that says how it is asked."""
    return "url" if endpoint.url is not None else "service" if endpoint.service is not None else "pods"


def forbidden_trouble(slot: Slot, endpoint: Endpoint, said: str) -> Trouble:
    """An address that the controller's settings forbid."""
    return Trouble("EndpointForbidden", f"spec.{slot}.endpoint.{way_of(endpoint)}", said)


def port_trouble(found: SlotFound) -> Trouble | None:
    """A port's name that no container of the workload has, in its template and in its pods; None where one has it, or
    nothing is there to tell."""
    endpoint = found.arm.endpoint.pods
    specs = [*pod_specs(found.workload), *(spec for pod in found.pods for spec in pod_specs(pod.obj))]
    if endpoint is None or endpoint.port_name is None or not specs:
        return None
    names = {name: number for spec in specs for name, number in _named_ports(spec)}
    if endpoint.port_name in names:
        return None
    there = ", ".join(f"{name} {number}" for name, number in sorted(names.items())[:MOST_PORTS]) or "none"
    of = "the pods selected" if found.workload is None else f"{found.workload.get('kind')} {name_of(found.workload)}"
    said = f"No container of {of} has a port named {endpoint.port_name} (there: {there})."
    return Trouble("PortNotFound", f"spec.{found.slot}.endpoint.pods.portName", said)


def _named_ports(spec: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for each in spec["containers"]:
        for port in (each.get("ports") or ()) if isinstance(each, Mapping) else ():
            if isinstance(port, Mapping) and port.get("name") and isinstance(port.get("containerPort"), int):
                yield str(port["name"]), int(port["containerPort"])
