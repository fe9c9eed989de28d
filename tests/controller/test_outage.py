"""The API server and etcd are lost in the middle of a run: it goes on at the next missing cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.control_plane import ControlPlane, running_control_plane
from tests.support.cluster.fixtures import Cluster, Namespace
from tests.support.cluster.gate import Gate, install_rights
from tests.support.cluster.gated import GatedLine, answer, assert_nothing_twice
from tests.support.cluster.node_agent import NodeAgent
from tests.support.cluster_crds import install_crds


@pytest.fixture
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that this test alone may kill, with our kinds."""
    with running_control_plane(tmp_path_factory.mktemp("durable"), durable=True) as plane:
        install_crds(plane)
        install_rights(plane)
        yield plane.recorded()


def test_etcd_and_the_api_server_are_killed_and_come_back_and_no_cell_is_run_twice(
    own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    gate = Gate(own_plane, tmp_path_factory.mktemp("gate"))
    with NodeAgent(own_plane, tmp_path_factory.mktemp("node")) as node:
        try:
            line = GatedLine(Namespace("default", Cluster(own_plane, node)), gate.start(), tmp_path)
            line.set_up()
            line.apply()
            line.ready()
            line.serve("green", "--seed", "2", "--time-scale", "0.2")
            line.until(lambda: len(line.truth("green")) >= 3)
            for name in ("etcd", "kube-apiserver"):
                own_plane.kill(name)
            gate.wait(lambda: not gate.total("prefillgate_leading"))  # it leads no more, and its replay stands still
            asked = len(line.truth("green"))
            for name in ("etcd", "kube-apiserver"):
                own_plane.start(name)
            rollout = line.decided()
            assert asked < len(line.truth("green"))
            assert answer(rollout) == ("Promote", "Allowed", "Refused")
            assert rollout["status"]["counts"]["candidate"]["decisionPrefills"] == 16
            assert_nothing_twice(line, rollout, struck=1)
            assert gate.stop() == 0
        finally:
            gate.close()
