"""A fake API server for each test, and a client of it with short time limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from prefillgate.kube.access import Where
from prefillgate.kube.client import Kube
from prefillgate.kube.transport import CallMade, Limits
from tests.support.fake_api import FakeApi
from tests.support.gadgets import SERVED
from tests.support.manual_clock import ManualClock

HASTY = Limits(connect_seconds=5, request_seconds=0.3, silence_seconds=0.3)  # for tests in which a server hangs


@pytest.fixture
async def fake() -> AsyncIterator[FakeApi]:
    server = FakeApi()
    server.serve(SERVED)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def kubeconfig(fake: FakeApi, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(fake.kubeconfig()), encoding="utf-8")
    return path


@pytest.fixture
def made() -> list[CallMade]:
    """Every call that the client of the test ended, as metrics would see it."""
    return []


@pytest.fixture
async def kube(kubeconfig: Path, made: list[CallMade]) -> AsyncIterator[Kube]:
    async with await Kube.connect(Where(str(kubeconfig)), on_call=made.append) as client:
        yield client


@pytest.fixture
async def hasty(kubeconfig: Path) -> AsyncIterator[Kube]:
    """A client that soon gives up."""
    async with await Kube.connect(Where(str(kubeconfig)), HASTY) as client:
        yield client


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
