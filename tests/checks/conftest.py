"""Servers that the tests of checks share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.llama import llama_pool
from tests.support.simulated import SimulatedServer, start_simulated
from tests.unit.test_check_command import check

__all__ = ["check", "llama_pool"]


@dataclass(frozen=True)
class Arms:
    """Two healthy servers of one model, and one whose every prefill is bad."""

    healthy: SimulatedServer
    other: SimulatedServer
    sick: SimulatedServer


@pytest.fixture(scope="module")
def arms() -> Iterator[Arms]:
    with (
        start_simulated(seed=1, text_seed=9) as healthy,
        start_simulated(seed=2, text_seed=9) as other,
        start_simulated(seed=3, text_seed=9, fault=["bad-prefill=1"]) as sick,
    ):
        yield Arms(healthy, other, sick)
