"""How much load replays put on servers in production, and how they keep apart from the traffic there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from prefillgate.app import turns
from prefillgate.core.cells import BASELINE, Status
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import WorkKind, WorkSeen, WorkState
from tests.support.runs import measured, stored
from tests.support.simulated import SimulatedServer, start_simulated
from tests.support.traffic import other_traffic
from tests.support.works import LINE, OLD, PROMOTED, ROLLOUT_UID, Ahead, looks_of, order, room

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


def test_under_steady_traffic_a_shared_line_comes_to_a_verdict_and_claims_nothing_of_speed(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate, throughput={"mode": "Require"})
        looks.spec = {"baseline": LINE["baseline"] | {"isolation": {"mode": "Shared"}}}
        with other_traffic(healthy.url, 2) as traffic:
            async with room(tmp_path / "stores") as here:
                here.works.start(order(), looks.observed())
                before = traffic.answered
                seen = await here.until(ended)
                assert traffic.answered > before
        assert seen.verdict is not None and seen.verdict.decision.decision == PROMOTED
        assert seen.verdict.throughput.state == "NotCompared"

    asyncio.run(story())


def test_under_steady_traffic_with_pauses_cells_wait_for_one_and_come_to_a_verdict(
    candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=1, text_seed=9, time_scale=0.02) as serving:
            looks = looks_of(tmp_path, serving, candidate, throughput={"mode": "Require", "minOutputTokens": 8})
            with other_traffic(serving.url, pause_seconds=0.5):
                async with room(tmp_path / "stores", in_use_pause_seconds=0.1) as here:
                    here.works.start(order(), looks.observed())
                    seen = await here.until(ended)
        assert seen.state is WorkState.ENDED and seen.verdict is not None
        assert seen.verdict.decision.decision == PROMOTED
        assert seen.verdict.throughput.state == "NotWorse"

    asyncio.run(story())


def test_a_server_that_is_never_idle_is_waited_for_and_the_wait_is_told(
    candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=1, text_seed=9, fault=["always-busy=1"]) as serving:
            looks = looks_of(tmp_path, serving, candidate)
            times = {"idle_timeout_seconds": 60.0, "notice_after_seconds": 0.05}
            clock = Ahead()
            async with room(tmp_path / "stores", clock=clock, times=times) as here:
                here.works.start(order(), looks.observed())
                seen = await here.until(lambda seen: seen.waiting == "WaitingForIdle")
                assert seen.state is WorkState.RUNNING and seen.waiting_since is not None
                assert serving.truth() == []
                serving.restart(fault=None)
                if (await here.until(ended)).state is WorkState.BROKEN:  # it looked while nobody was there
                    clock.seconds += 60
                    here.works.start(order(), looks.observed())
                seen = await here.until(ended)
        assert seen.verdict is not None and seen.verdict.decision.decision == PROMOTED

    asyncio.run(story())


def test_traffic_that_voids_cell_after_cell_is_waited_out_and_ends_no_rollout(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=1, text_seed=9, fault=["other-traffic=@case"]) as serving:
            looks = looks_of(tmp_path, serving, candidate)
            async with room(tmp_path / "stores", in_use_pause_seconds=0.2) as here:
                here.works.start(order(), looks.observed())
                await here.until(lambda seen: seen.waiting == "WaitingForIdle")
            async with room(tmp_path / "stores", token=2, in_use_pause_seconds=0.2) as here:
                here.works.start(order(), looks.observed())  # nor does a restart end it
                await here.until(lambda seen: seen.waiting == "WaitingForIdle")
                serving.restart(fault=None)
                seen = await here.until(ended)
        assert seen.verdict is not None and seen.verdict.decision.decision == PROMOTED
        gate, _ = stored(tmp_path / "stores" / "prod" / "llm" / f"{ROLLOUT_UID}.db")
        assert len(measured(gate, BASELINE, Status.INVALID)) >= 6

    asyncio.run(story())


@pytest.mark.parametrize("most", [0, 1])
def test_replays_that_only_wait_leave_their_turn_to_others_within_bounds(
    most: int, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "QUEUE_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(turns, "MOST_THAT_WAIT", most)

    async def story() -> None:
        with start_simulated(seed=1, text_seed=9, fault=["always-busy=1"]) as busy:
            looks, clock = looks_of(tmp_path, busy, candidate), Ahead()
            others = replace(looks_of(tmp_path, healthy, candidate), name="other", uid="two")
            times = {"idle_timeout_seconds": 600.0, "notice_after_seconds": 0.05}
            async with room(tmp_path / "stores", clock=clock, most_at_once=1, times=times) as here:
                here.works.start(order(), looks.observed())
                here.works.start(order(), others.observed())
                await here.until(lambda seen: seen.waiting == "WaitingForIdle")
                await asyncio.sleep(0.3)
                assert here.one(line="two").waiting == "WaitingForTurn"  # it has not waited long
                clock.seconds += turns.WAITS_LONG_SECONDS
                if most:
                    seen = await here.until(lambda seen: seen.state is WorkState.ENDED, line="two")
                    assert seen.verdict is not None and seen.verdict.decision.decision == PROMOTED
                else:
                    await asyncio.sleep(0.3)
                    assert here.one(line="two").waiting == "WaitingForTurn"
                assert (here.one().state, here.one().waiting) == (WorkState.RUNNING, "WaitingForIdle")

    asyncio.run(story())
