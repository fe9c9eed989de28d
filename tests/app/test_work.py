"""Replays of rollouts in threads: their answers, their stores, and what is seen of them meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefillgate.reconcile.snapshot import WorkState
from tests.support.runs import bench, stored
from tests.support.simulated import SimulatedServer, start_simulated
from tests.support.works import LINE_UID, ROLLOUT_UID, Looks, order, room, server


@pytest.fixture(scope="module")
def healthy() -> Iterator[SimulatedServer]:
    with start_simulated(seed=1, text_seed=9) as running:
        yield running


@pytest.fixture(scope="module")
def candidate() -> Iterator[SimulatedServer]:
    with start_simulated(seed=2, text_seed=9) as running:
        yield running


def looks_of(folder: Path, baseline: SimulatedServer, candidate: SimulatedServer, **policy: object) -> Looks:
    return Looks(bench(folder, **policy), (server(baseline.url, "b/c"),), (server(candidate.url, "n/c"),))


def test_a_rollout_is_replayed_to_its_verdict_in_a_store_of_its_own(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            seen = await here.until(lambda seen: seen.state is not WorkState.RUNNING)
            assert seen.state is WorkState.ENDED, seen.trouble
            assert seen.verdict is not None and seen.verdict.decision.decision == "promote"
            path = tmp_path / "stores" / "prod" / "llm" / f"{ROLLOUT_UID}.db"
            assert (seen.run, seen.store) == (ROLLOUT_UID, str(path))
            gate, _ = stored(path)
            assert len(gate.measured) == seen.verdict.prefills_used == 18
            await asyncio.sleep(0)
            assert set(here.told) == {"prod/llm"}
            assert len(here.works.seen(LINE_UID)) == 1 and here.works.seen("another") == ()

    asyncio.run(story())
