"""A cluster with our kinds, a node, and an observer of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from prefillgate.kube.access import Where
from prefillgate.kube.client import Kube
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.fixtures import Namespace, cluster, cluster_node, cluster_plane, namespace
from tests.support.cluster.users import ADMIN
from tests.support.cluster_crds import install_crds
from tests.support.looking import Eyes, config_map, looking, replay_set

__all__ = ["cluster", "cluster_node", "cluster_plane", "namespace"]


@pytest.fixture(scope="package", autouse=True)
def our_kinds(cluster_plane: ControlPlane) -> None:
    install_crds(cluster_plane)


@pytest.fixture
async def kube(cluster_plane: ControlPlane) -> AsyncIterator[Kube]:
    async with await Kube.connect(Where(str(cluster_plane.kubeconfig(ADMIN)))) as client:
        yield client


@pytest.fixture
async def eyes(kube: Kube, namespace: Namespace, tmp_path: Path) -> AsyncIterator[Eyes]:
    """An observer of this test's namespace alone, in which there are cases."""
    namespace.apply(config_map())
    namespace.apply(replay_set())
    async with looking(kube, tmp_path, namespaces=(namespace.name,)) as found:
        yield found
