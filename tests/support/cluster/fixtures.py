"""Fixtures for tests on a real cluster; a folder's conftest imports them. The folder stands in `namespace.FOLDERS`."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.support.cluster.api import Api, Object, path_of
from tests.support.cluster.audit import AuditLog
from tests.support.cluster.control_plane import ControlPlane, running_control_plane
from tests.support.cluster.node_agent import NodeAgent
from tests.support.cluster.users import ADMIN, User

_numbers = itertools.count(1)
_MAKERS = (("deployments", "apps"), ("statefulsets", "apps"), ("replicasets", "apps"), ("jobs", "batch"))


@dataclass(frozen=True)
class Cluster:
    """A control plane with a node."""

    plane: ControlPlane
    node: NodeAgent

    @property
    def audit(self) -> AuditLog:
        """Who wrote what."""
        return self.plane.audit

    def api(self, user: User = ADMIN) -> Api:
        """Objects as this user sees them."""
        return self.plane.api(user)


@dataclass(frozen=True)
class Namespace:
    """A namespace of one test."""

    name: str
    cluster: Cluster

    def path(self, resource: str, name: str = "", group: str = "", version: str = "v1") -> str:
        """Path of a resource in here."""
        return path_of(resource, name, self.name, group, version)

    def apply(self, text: str | Object, user: User = ADMIN) -> None:
        """kubectl apply. Raises AssertionError with what kubectl said."""
        done = self.kubectl("apply", "-f", "-", user=user, text=text if isinstance(text, str) else yaml.safe_dump(text))
        assert done.returncode == 0, done.stderr

    def kubectl(self, *words: str, user: User = ADMIN, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """The real kubectl, in here."""
        return self.cluster.plane.kubectl(f"--namespace={self.name}", *words, user=user, text=text)

    def pods(self, **labels: str) -> list[Object]:
        """Pods with these labels, oldest first."""
        query = {"labelSelector": ",".join(f"{name}={value}" for name, value in labels.items())}
        found = self.cluster.api().items(self.path("pods"), **query)
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def rolled_out(self, name: str, resource: str = "deployments") -> Object:
        """The workload once its controller says that it is rolled out as it is written now."""

        def complete(found: Object) -> bool:
            wanted, status = found["spec"]["replicas"], found.get("status", {})
            counts = [status.get(each, 0) for each in ("updatedReplicas", "availableReplicas", "replicas")]
            return status.get("observedGeneration") == found["metadata"]["generation"] and counts == [wanted] * 3

        return self.cluster.api().wait(self.path(resource, name, "apps"), complete)

    def wait_pod(self, name: str, until: Callable[[Object], Any]) -> Object:
        """A pod once `until` says yes to it."""
        return self.cluster.api().wait(self.path("pods", name), until)

    def slices(self, service: str) -> dict[str, Any]:
        """Address -> conditions of every endpoint of a Service."""
        query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        found = self.cluster.api().items(self.path("endpointslices", group="discovery.k8s.io"), **query)
        return {end["addresses"][0]: end["conditions"] for each in found for end in each["endpoints"] or []}

    def grant(self, user: User, *rules: Object) -> None:
        """Give a user these RBAC rules in here."""
        name = f"for-{user.name.replace(':', '-')}"
        rbac = "rbac.authorization.k8s.io"
        role = {"metadata": {"name": name}, "rules": list(rules)}
        subject = {"kind": "User", "name": user.name, "apiGroup": rbac}
        ref = {"kind": "Role", "name": name, "apiGroup": rbac}
        self.cluster.api().create(self.path("roles", group=rbac), role)
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": ref}
        self.cluster.api().create(self.path("rolebindings", group=rbac), binding)
        for rule in rules:
            self._in_force(user, rule)

    def _in_force(self, user: User, rule: Object) -> None:
        """Wait until the API server goes by a rule: it hears of roles a moment after they were written."""
        resource, _, subresource = rule["resources"][-1].partition("/")
        asked = {"namespace": self.name, "verb": rule["verbs"][-1], "group": rule["apiGroups"][-1]}
        named = rule.get("resourceNames", [""])[0]
        asked |= {"resource": resource, "subresource": subresource, "name": named}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        until = time.monotonic() + 60
        review = {"spec": {"resourceAttributes": asked}}
        while not self.cluster.api(user).create(path, review)["status"]["allowed"]:
            assert time.monotonic() < until, f"{user.name} is not allowed {asked}"
            time.sleep(0.02)


@pytest.fixture(scope="package")
def cluster_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane of this folder."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="package")
def cluster_node(cluster_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeAgent]:
    """Its node."""
    with NodeAgent(cluster_plane, tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def cluster(cluster_plane: ControlPlane, cluster_node: NodeAgent) -> Cluster:
    """Control plane and node, noted as spoken to by this test."""
    return Cluster(cluster_plane.recorded(), cluster_node)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace of this test's own, with its `default` ServiceAccount; gone, with its pods, when the test is over."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40].strip("-")
    with made_namespace(cluster, f"{words}-{next(_numbers)}") as made:
        yield made


@contextlib.contextmanager
def made_namespace(cluster: Cluster, name: str) -> Iterator[Namespace]:
    """A namespace for the body."""
    admin = cluster.api()
    admin.create(path_of("namespaces"), {"metadata": {"name": name}})
    admin.wait(path_of("serviceaccounts", "default", name), bool)
    admin.wait(path_of("configmaps", "kube-root-ca.crt", name), bool)
    yield Namespace(name, cluster)
    _end_pods(admin, name)
    if any(each["metadata"]["name"] == name for each in admin.items(path_of("namespaces"))):
        admin.delete(path_of("namespaces", name))  # what is left of it goes by itself, some seconds later


def _end_pods(admin: Api, namespace: str) -> None:
    """Delete what makes pods, then the pods, and wait for their end: quicker than by deleting the namespace."""
    for resource, group in _MAKERS:
        admin.delete(path_of(resource, "", namespace, group), propagationPolicy="Background")
    until = time.monotonic() + 120
    while admin.items(path_of("pods", namespace=namespace)):
        admin.delete(path_of("pods", namespace=namespace), gracePeriodSeconds=1)
        assert time.monotonic() < until, f"pods of {namespace} do not end"
        time.sleep(0.1)
