"""A fake API server with our kinds for each test, and controllers over it; servers that replays share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import yaml

from prefillgate.app.logs import set_up_logs
from tests.support.controllers import Controller, serve_ours, settings
from tests.support.fake_api import FakeApi
from tests.support.simulated import SimulatedServer, start_simulated


@pytest.fixture
async def fake() -> AsyncIterator[FakeApi]:
    server = FakeApi()
    serve_ours(server)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def controller(fake: FakeApi, tmp_path: Path) -> AsyncIterator[Callable[..., Controller]]:
    """Makes a controller that is not started yet; all are stopped in the end."""
    made: list[Controller] = []
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(fake.kubeconfig()), encoding="utf-8")
    set_up_logs("debug", "json")

    def make(folder: str = "one", real: bool = False, **flags: str) -> Controller:
        made.append(Controller(settings(tmp_path / folder, **{"kubeconfig": str(path), **flags}), real=real))
        return made[-1]

    yield make
    for each in made:
        if each.task is not None and not each.task.done():
            await each.stop()


@pytest.fixture(scope="module")
def healthy() -> Iterator[SimulatedServer]:
    """A baseline without faults."""
    with start_simulated(seed=1, text_seed=9) as running:
        yield running


@pytest.fixture(scope="module")
def candidate() -> Iterator[SimulatedServer]:
    """A candidate without faults."""
    with start_simulated(seed=2, text_seed=9) as running:
        yield running
