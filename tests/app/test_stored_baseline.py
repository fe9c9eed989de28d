"""A candidate alone, beside the baseline as its floor measured it: both profiles do not fit at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from prefillgate.evidence.book_rows import Floor
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import BookSeen, WorkKind, WorkSeen, WorkState
from tests.support.runs import stored
from tests.support.simulated import SimulatedServer
from tests.support.works import LINE_UID, OLD, PROMOTED, ROLLOUT_UID, Ahead, Looks, Room, looks_of, order, room, server

FLOOR = "floor-000000000000-aaaaaaaa"


def ended(seen: WorkSeen) -> bool:
    return seen.state is not WorkState.RUNNING


def alone(seconds: int) -> dict[str, Any]:
    """A spec that compares with a stored baseline of that age."""
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "next"}
    candidate = {"workloadRef": ref, "endpoint": {"pods": {"port": 8080}}}
    sequential = {"storedBaselineMaxAgeSeconds": seconds}
    return {"candidate": candidate, "arms": "Sequential", "sequential": sequential}


async def with_floor(here: Room, looks: Looks) -> None:
    """The baseline was measured by itself, and is gone since."""
    here.works.start(StartWork(FLOOR, WorkKind.FLOOR, OLD, seed=5), looks.observed())
    seen = await here.until(ended, FLOOR)
    assert seen.ended_at is not None and seen.state is WorkState.ENDED
    looks.book = BookSeen(floor=Floor("a", OLD, "0" * 64, FLOOR, seen.ended_at, True, ""))
    looks.baseline = ()


def test_the_candidate_alone_is_judged_beside_the_stored_baseline_and_nothing_is_claimed_of_speed(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        looks.spec = alone(3600)
        async with room(tmp_path / "stores") as here:
            await with_floor(here, looks)
            before = len(healthy.truth())
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 8)
            here.works.stop(LINE_UID, ROLLOUT_UID, "for a moment")
            await here.until(ended)
            looks.book = BookSeen()  # what it was begun beside stands in its store
            here.works.start(order(), looks.observed())
            seen = await here.until(ended)
        assert seen.state is WorkState.ENDED, seen.trouble
        assert seen.verdict is not None and seen.verdict.decision.decision == PROMOTED
        told = " ".join(seen.verdict.decision.sentences)
        assert f"Stored baseline of {FLOOR}.db" in told and "decides nothing" in told
        assert seen.verdict.throughput.state == "NotCompared"
        assert len(healthy.truth()) == before
        gate, _ = stored(tmp_path / "stores" / "prod" / "llm" / f"{ROLLOUT_UID}.db")
        assert gate.plan.shape.candidate_alone and gate.plan.floor is None

    asyncio.run(story())


def test_a_stored_baseline_that_is_too_old_or_not_there_is_told_by_the_field_that_asks_for_it(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks, clock = looks_of(tmp_path, healthy, candidate), Ahead()
        looks.spec = alone(60)
        async with room(tmp_path / "stores", clock=clock) as here:
            here.works.start(order(), looks.observed())
            none = await here.until(ended)
            assert none.state is WorkState.REFUSED
            assert "there is no stored baseline" in none.trouble
            await with_floor(here, looks)
            clock.seconds += 600
            here.works.start(order(), looks.observed())
            old = await here.until(lambda seen: ended(seen) and seen.trouble != none.trouble)
        assert old.state is WorkState.REFUSED
        assert "stored baseline" in old.trouble and "more than" in old.trouble and "--" not in old.trouble

    asyncio.run(story())


def test_without_a_server_of_the_candidate_it_waits_and_the_baseline_is_not_asked_for_one(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        looks.spec, there = alone(3600), looks.candidate
        async with room(tmp_path / "stores") as here:
            await with_floor(here, looks)
            looks.candidate = ()
            here.works.start(order(), looks.observed())
            seen = await here.until(ended)
            assert "the candidate sha256:111111111111 has no server that takes requests now" in seen.trouble
            looks.candidate = (*there, server("http://127.0.0.1:1", ready=False))
            here.works.start(order(), looks.observed())
            assert (await here.until(lambda one: one.state is WorkState.ENDED)).key == ROLLOUT_UID

    asyncio.run(story())
