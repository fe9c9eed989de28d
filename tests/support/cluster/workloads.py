"""Workloads of these tests, as a person would write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

GATE = "prefillgate.io/promoted"


def container(image: str, args: Sequence[str], port: int = 8080, path: str = "/health", **more: Any) -> dict[str, Any]:
    """A server with a readiness probe."""
    probe = {"httpGet": {"path": path, "port": "http"}, "periodSeconds": 1}
    ports = [{"name": "http", "containerPort": port}]
    return {"name": "server", "image": image, "args": list(args), "ports": ports, "readinessProbe": probe, **more}


def simulated(*args: str, image: str = "registry.example/prefillgate:1", **more: Any) -> dict[str, Any]:
    """The simulated engine on port 8080."""
    return container(image, ["simulate", "--port", "8080", "--time-scale", "0", *args], **more)


def deployment(name: str, server: dict[str, Any], replicas: int = 1, gate: bool = False, **spec: Any) -> dict[str, Any]:
    """A Deployment of one container, that brings a new pod up before it takes an old one away."""
    labels = {"app": name}
    gates = {"readinessGates": [{"conditionType": GATE}]} if gate else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [server], **gates, **spec}},
        },
    }


def service(name: str) -> dict[str, Any]:
    """A Service in front of it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": "http"}]},
    }
