"""Each test twice: against the real API server and against the fake one that fault injection rests on."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from prefillgate.kube.access import Where
from prefillgate.kube.client import Kube
from prefillgate.kube.objects import NAMESPACES, Kind
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.fixtures import cluster_plane
from tests.support.cluster.users import ADMIN, BOB
from tests.support.fake_api import FakeApi
from tests.support.gadgets import CRD, GADGETS, SERVED

__all__ = ["cluster_plane"]

_numbers = itertools.count(1)


@dataclass
class Side:
    """One of the two servers: a client, a namespace of this test's own, and a client that may do nothing."""

    name: str
    kube: Kube
    stranger: Kube
    kubeconfig: Path
    space: str
    fake: FakeApi | None
    plane: ControlPlane | None

    async def go_away(self) -> None:
        """End the API server at once."""
        if self.fake is not None:
            await self.fake.stop()
        if self.plane is not None:
            self.plane.kill("kube-apiserver")

    async def come_back(self) -> None:
        """Start it again, where it was, with what it knew."""
        if self.fake is not None:
            await self.fake.start()
        if self.plane is not None:
            self.plane.start("kube-apiserver")


@pytest.fixture(scope="package")
def real_plane(cluster_plane: ControlPlane) -> ControlPlane:
    """The real control plane, with the tests' own kind."""
    done = cluster_plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(CRD))
    assert done.returncode == 0, done.stderr
    established = cluster_plane.kubectl("wait", "--for=condition=Established", f"crd/{CRD['metadata']['name']}")  # type: ignore[index]
    assert established.returncode == 0, established.stderr
    return cluster_plane


@pytest.fixture(params=["real", "fake"])
async def side(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Side]:
    fake: FakeApi | None = None
    plane: ControlPlane | None = None
    if request.param == "fake":
        fake = FakeApi()
        fake.serve(SERVED)
        fake.denied.add(("list", "secrets"))
        await fake.start()
        mine, other = tmp_path / "mine", tmp_path / "other"
        mine.write_text(yaml.safe_dump(fake.kubeconfig()), encoding="utf-8")
        other.write_text(yaml.safe_dump(fake.kubeconfig(token="restricted")), encoding="utf-8")
    else:
        plane = request.getfixturevalue("real_plane")
        assert plane is not None
        plane.recorded()
        mine, other = plane.kubeconfig(ADMIN), plane.kubeconfig(BOB)
    async with await Kube.connect(Where(str(mine))) as kube, await Kube.connect(Where(str(other))) as stranger:
        space = f"contract-{next(_numbers)}"
        await kube.create(NAMESPACES, {"metadata": {"name": space}})
        yield Side(request.param, kube, stranger, mine, space, fake, plane)
    if fake is not None:
        await fake.stop()


@pytest.fixture
def gadgets() -> Kind:
    return GADGETS
