"""How much load replays put on servers in production, and how they keep apart from the traffic there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prefillgate.core.cells import BASELINE
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import WorkKind, WorkSeen, WorkState
from tests.support.runs import measured, stored
from tests.support.simulated import SimulatedServer
from tests.support.works import OLD, PROMOTED, ROLLOUT_UID, Ahead, looks_of, order, room

FLOOR = "floor-000000000000-aaaaaaaa"


def ended(seen: WorkSeen) -> bool:
    return seen.state is not WorkState.RUNNING


def limited(seen: WorkSeen) -> bool:
    return seen.waiting == "LoadLimitReached"


def on_production(folder: Path, key: str) -> list[float]:
    gate, _ = stored(folder / "stores" / "prod" / "llm" / f"{key}.db")
    return [event.cell.started_at or 0.0 for event in measured(gate, BASELINE)]


def test_production_has_no_more_prefills_in_an_hour_than_it_may_over_floors_rollouts_and_restarts(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks, clock = looks_of(tmp_path, healthy, candidate), Ahead()
        looks.spec = {"maxProductionPrefillsPerHour": 6}
        floor = StartWork(FLOOR, WorkKind.FLOOR, OLD, seed=5)
        async with room(tmp_path / "stores", clock=clock) as here:
            here.works.start(floor, looks.observed())
            seen = await here.until(limited, FLOOR)
            assert seen.state is WorkState.RUNNING and len(on_production(tmp_path, FLOOR)) == 6
            assert seen.waiting_since is not None
        async with room(tmp_path / "stores", token=2, clock=clock) as here:
            here.works.start(floor, looks.observed())
            await here.until(limited, FLOOR)
            assert len(on_production(tmp_path, FLOOR)) == 6
            clock.seconds += 3601
            assert (await here.until(ended, FLOOR)).floor is not None
            assert here.one(FLOOR).waiting == ""
            assert len(on_production(tmp_path, FLOOR)) == 10
            here.works.start(order(), looks.observed())
            assert (await here.until(ended)).state is WorkState.ENDED  # two more, of six
            looks.rollouts = (ROLLOUT_UID, "next")
            here.works.start(order("next", seed=6), looks.observed())
            await here.until(limited, "next")
            assert on_production(tmp_path, "next") == []
            clock.seconds += 3601
            seen = await here.until(ended, "next")
            assert seen.verdict is not None and seen.verdict.decision.decision == PROMOTED

    asyncio.run(story())


def test_a_deadline_ends_the_wait_for_room_on_production(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks, clock = looks_of(tmp_path, healthy, candidate), Ahead()
        looks.spec = {"maxProductionPrefillsPerHour": 1}
        async with room(tmp_path / "stores", clock=clock) as here:
            here.works.start(order(must_end_at=clock.now() + 600), looks.observed())
            await here.until(limited)
            clock.seconds += 601
            seen = await here.until(ended)
            assert seen.verdict is not None and seen.verdict.decision.reason == "Deadline"
        assert len(on_production(tmp_path, ROLLOUT_UID)) == 1

    asyncio.run(story())
