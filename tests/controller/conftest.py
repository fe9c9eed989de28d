"""The cluster of these tests: a control plane that has our kinds and the controller's rights, a node, a controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.fixtures import Namespace, cluster, cluster_node, cluster_plane, namespace
from tests.support.cluster.gate import Gate, install_rights
from tests.support.cluster.gated import GatedLine
from tests.support.cluster_crds import install_crds

__all__ = ["cluster", "cluster_node", "cluster_plane", "namespace"]


@pytest.fixture(scope="package")
def gated_plane(cluster_plane: ControlPlane) -> ControlPlane:
    """The control plane of this folder, as it is once a person has installed the gate."""
    install_crds(cluster_plane)
    install_rights(cluster_plane)
    return cluster_plane


@pytest.fixture(scope="module")
def gate(gated_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """One controller for the tests of a file."""
    install_rights(gated_plane)  # other files give them to the account of a controller in a pod
    one = Gate(gated_plane, tmp_path_factory.mktemp("gate"))
    try:
        yield one.start()
        assert one.stop() == 0
    finally:
        one.close()


@pytest.fixture
def line(namespace: Namespace, gate: Gate, tmp_path: Path) -> GatedLine:
    """A line in a namespace of this test's own; nothing of it is there yet."""
    return GatedLine(namespace, gate, tmp_path)
