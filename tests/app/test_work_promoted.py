"""Replays of the promoted profile alone: its floor, and the small ones after its promotion."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefillgate.evidence.book_rows import Floor, Replicates
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.snapshot import BookSeen, WorkKind, WorkSeen, WorkState
from tests.support.runs import stored, write_policy, write_set
from tests.support.simulated import SimulatedServer, start_simulated
from tests.support.works import LINE_UID, NEW, OLD, PROMOTED, ROLLOUT_UID, looks_of, order, room, server

FLOOR, FIRST, SECOND = "floor-000000000000-aaaaaaaa", "watch-000000000000-bbbbbbbb-1", "watch-000000000000-bbbbbbbb-2"
NOW: dict[str, Any] = {"gapSeconds": 0}


def ended(seen: WorkSeen) -> bool:
    return seen.state is not WorkState.RUNNING


def store_of(folder: Path, key: str) -> Path:
    return folder / "stores" / "prod" / "llm" / f"{key}.db"


def floor(key: str = FLOOR) -> StartWork:
    return StartWork(key, WorkKind.FLOOR, OLD, seed=5)


def watch(key: str, **more: Any) -> StartWork:
    return StartWork(key, WorkKind.WATCH, OLD, seed=5, prefills=4, **more)


def test_a_floor_is_measured_on_the_promoted_profile_alone_and_a_rollout_goes_by_it(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        before = len(candidate.truth())
        async with room(tmp_path / "stores") as here:
            here.works.start(floor(), looks.observed())
            seen = await here.until(ended, FLOOR)
            assert (seen.state, seen.run) == (WorkState.ENDED, FLOOR) and seen.floor is not None
            found = seen.floor
            assert (found.sound, found.prefills, found.bad_prefills) == (True, 10, 0)
            assert (found.identical, found.compared) == (5, 5)
            assert found.sentence.startswith("The instrument is sound")
            assert len(candidate.truth()) == before
        async with room(tmp_path / "stores", token=2) as here:
            here.works.start(floor(), looks.observed())
            again = await here.until(ended, FLOOR)
            assert (again.floor, again.ended_at, again.rows) == (found, seen.ended_at, seen.rows)
            assert seen.ended_at is not None
            kept = Floor("a", OLD, "0" * 64, FLOOR, seen.ended_at, True, "")
            looks.book = BookSeen(floor=kept)
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 6)
            here.works.stop(LINE_UID, ROLLOUT_UID, "for a moment")
            await here.until(ended)
            looks.book = BookSeen()  # what it was begun by stays
            here.works.start(order(), looks.observed())
            assert (await here.until(ended)).state is WorkState.ENDED
        plan = stored(store_of(tmp_path, ROLLOUT_UID))[0].plan
        assert plan.floor is not None and plan.floor.store == f"{FLOOR}.db"

    asyncio.run(story())


def test_a_floor_of_other_checks_or_another_profile_is_left_out_and_hinders_nothing(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(floor(), looks.observed())
            await here.until(ended, FLOOR)
            write_policy(looks.work.policy_path, checks=[{"name": "cut", "type": "Cut"}])
            looks.rollouts = ("one", "two")
            for key, digest in (("one", OLD), ("two", NEW)):
                looks.book = BookSeen(floor=Floor("a", digest, "0" * 64, FLOOR, 0.0, True, ""))
                here.works.start(order(key), looks.observed())
                seen = await here.until(ended, key)
                assert seen.verdict is not None and seen.verdict.decision.decision == PROMOTED, seen.trouble
                assert stored(store_of(tmp_path, key))[0].plan.floor is None

    asyncio.run(story())


def test_a_floor_that_a_lost_server_ended_says_nothing_and_is_gone_on_with(
    candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=1, text_seed=9, time_scale=0.1) as dying:
            looks = looks_of(tmp_path, dying, candidate)
            async with room(tmp_path / "stores") as here:
                here.works.start(floor(), looks.observed())
                await here.until(lambda seen: seen.rows > 4, FLOOR)
                dying.kill()
                seen = await here.until(ended, FLOOR)
                assert seen.state is WorkState.BROKEN and seen.floor is None and seen.retry_at is not None
            with start_simulated(seed=1, text_seed=9) as back:
                looks.baseline = (server(back.url, "b2/c"),)
                async with room(tmp_path / "stores", token=2) as here:
                    here.works.start(floor(), looks.observed())
                    seen = await here.until(ended, FLOOR)
                    assert seen.state is WorkState.ENDED and seen.floor is not None

    asyncio.run(story())


def test_small_replays_after_a_promotion_add_up_and_their_alarm_without_a_previous_server_stands(
    candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=2, text_seed=9, fault=["bad-rate=1"]) as degraded:
            looks = looks_of(tmp_path, degraded, candidate, replicate=NOW)
            async with room(tmp_path / "stores") as here:
                here.works.start(watch(FIRST), looks.observed())
                first = await here.until(ended, FIRST)
                assert first.watch is not None and (first.watch.prefills, first.watch.alarm) == (3, True)
                assert (first.watch.reason, first.watch.rollback) == ("AlarmWithoutBaseline", False)
        with start_simulated(seed=1, text_seed=9) as healed:
            looks.baseline = (server(healed.url, "b3/c"),)
            looks.status = {"watch": {"lastRun": FIRST, "alarm": True, "reason": "AlarmWithoutBaseline"}}
            async with room(tmp_path / "stores", token=2) as here:
                here.works.start(watch(SECOND, after=FIRST), looks.observed())
                second = await here.until(ended, SECOND)
            assert second.watch is not None and (second.watch.prefills, second.watch.bad_prefills) == (7, 3)
            assert (second.watch.alarm, second.watch.reason) == (True, "AlarmWithoutBaseline")

    asyncio.run(story())


def test_a_profile_that_is_read_otherwise_goes_on_from_its_last_replay_and_what_cannot_be_gone_on_from_is_begun_anew(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    heard: list[str] = []
    of_another = "watch-222222222222-bbbbbbbb-1"

    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores", said=lambda asked: lambda line, *_, **__: heard.append(line)) as here:
            for key, digest, after in (
                (FIRST, OLD, None),
                ("watch-111111111111-bbbbbbbb-2", NEW, FIRST),
                (of_another, OLD, None),  # its key tells of a profile that its store is not of
                ("watch-111111111111-bbbbbbbb-3", NEW, of_another),
            ):
                here.works.start(replace(watch(key, after=after), baseline=digest), looks.observed())
                seen = await here.until(ended, key)
                assert seen.watch is not None, seen.trouble
                found.append(seen.watch.prefills)

    found: list[int] = []
    asyncio.run(story())
    assert found == [4, 8, 4, 4]
    (told,) = (line for line in heard if "the level begins at 1 again" in line)
    assert "it is of llm sha256:000000000000, now llm sha256:111111111111 is asked for" in told


def test_answers_that_the_floor_saw_cut_raise_no_alarm_after_the_promotion(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        lines = looks.work.set_path.read_text(encoding="utf-8").replace('"max_tokens": 200', '"max_tokens": 4')
        looks.work.set_path.write_text(lines, encoding="utf-8")
        async with room(tmp_path / "stores") as here:
            here.works.start(floor(), looks.observed())
            seen = await here.until(ended, FLOOR)
            assert seen.floor is not None and seen.floor.sound is True
            here.works.start(watch("watch-000000000000-cccccccc-1"), looks.observed())
            blind = await here.until(ended, "watch-000000000000-cccccccc-1")
            looks.book = BookSeen(floor=Floor("a", OLD, "0" * 64, FLOOR, 0.0, True, ""))
            here.works.start(watch(FIRST), looks.observed())
            seeing = await here.until(ended, FIRST)
        assert blind.watch is not None and seeing.watch is not None
        assert (blind.watch.alarm, seeing.watch.alarm, seeing.watch.prefills) == (True, False, 4)

    asyncio.run(story())


def test_an_answer_that_the_floor_shows_cut_is_nothing_bad_of_the_promoted_profile(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        write_set(looks.work.set_path, max_tokens=5)
        async with room(tmp_path / "stores") as here:
            here.works.start(floor(), looks.observed())
            assert (await here.until(ended, FLOOR)).state is WorkState.ENDED
            here.works.start(watch(FIRST), looks.observed())
            without = await here.until(ended, FIRST)
            looks.book = BookSeen(floor=Floor("a", OLD, "0" * 64, FLOOR, 0.0, True, ""))
            here.works.start(watch(SECOND), looks.observed())
            by_it = await here.until(ended, SECOND)
        assert without.watch is not None and without.watch.alarm
        assert by_it.watch is not None and not by_it.watch.alarm, by_it.watch.sentence
        assert (by_it.watch.prefills, by_it.watch.bad_prefills) == (4, 0)

    asyncio.run(story())


def test_an_alarm_after_a_promotion_is_answered_on_the_previous_workload_that_was_kept(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=2, text_seed=9, fault=["bad-rate=1"], build_info="b2") as degraded:
            looks = looks_of(tmp_path, degraded, healthy, replicate=NOW)
            looks.rollout = {
                arm: {"digest": digest, "settings": [{"area": "Build", "name": "build", "value": value}]}
                for arm, digest, value in (("baseline", NEW, "b1"), ("candidate", OLD, "b2"))
            }
            async with room(tmp_path / "stores") as here:
                here.leading.book.reserve_replicates(Replicates(NEW, OLD, "the rollout", 1, 2, 0.0))
                here.works.start(watch(FIRST, previous=NEW), looks.observed())
                seen = await here.until(ended, FIRST)
                assert seen.watch is not None and seen.watch.rollback, seen
                assert (seen.watch.alarm, seen.watch.reason) == (False, "RegressionConfirmed")
                assert seen.watch.replicate_run == f"{FIRST}-replicate"
            gate, _ = stored(store_of(tmp_path, f"{FIRST}-replicate"))
            assert gate.plan.first_replicate == 3
            assert gate.plan.baseline_url == "llm sha256:111111111111"
            before = len(healthy.truth()) + len(degraded.truth())
            async with room(tmp_path / "stores", token=2) as here:
                here.works.start(watch(FIRST, previous=NEW), looks.observed())
                again = await here.until(ended, FIRST)
            assert again.watch == seen.watch
            assert len(healthy.truth()) + len(degraded.truth()) == before

    asyncio.run(story())
