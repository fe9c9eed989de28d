"""Servers and folders that the tests of the runner share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.llama import llama_pool
from tests.support.simulated import SimulatedServer, start_simulated

__all__ = ["llama_pool"]


@pytest.fixture(scope="module")
def healthy() -> Iterator[SimulatedServer]:
    """A baseline without faults. Its truth grows from test to test: look at its end only."""
    with start_simulated(seed=1, text_seed=9) as server:
        yield server
