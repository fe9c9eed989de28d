"""Replays of rollouts in threads: their answers, their stores, and what is seen of them meanwhile."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from prefillgate.api.access import Access, Held, HeldAccess
from prefillgate.app import replay_thread, work
from prefillgate.app.orders import Asked
from prefillgate.app.watching_run import RunWatcher
from prefillgate.core.cells import CANDIDATE, Status
from prefillgate.core.journal import CellMeasured, EpochSeen, Overridden, OverrideEnded
from prefillgate.core.judge import judge
from prefillgate.evidence import Fence, KeptJournal, SqliteJournal, open_store
from prefillgate.evidence.book_rows import Replicates
from prefillgate.reconcile.effects import RecordOverride
from prefillgate.reconcile.snapshot import WorkSeen, WorkState
from prefillgate.replay.clock import SystemClock
from tests.support.manual_clock import until
from tests.support.runs import measured, stored
from tests.support.simulated import SimulatedServer, free_port, start_simulated
from tests.support.works import LINE_UID, NEW, OLD, PROMOTED, ROLLOUT_UID, Ahead, looks_of, order, room, server

OVER = Overridden(1.0, "rollback", "anna", "the answers look wrong to us")


OVERRIDE = "Override"


def ended(seen: WorkSeen) -> bool:
    return seen.state is not WorkState.RUNNING


def store_of(folder: Path, key: str = ROLLOUT_UID) -> Path:
    return folder / "prod" / "llm" / f"{key}.db"


async def at_work(running: SimulatedServer) -> None:
    """Until a cell is in flight there."""
    for _ in range(2000):
        if running.busy():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("no cell came")


def outcome(seen: WorkSeen) -> str:
    assert seen.state is WorkState.ENDED, seen.trouble
    assert seen.verdict is not None
    return seen.verdict.decision.decision


def test_a_rollout_is_replayed_to_its_verdict_in_a_store_of_its_own(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            seen = await here.until(ended)
            assert outcome(seen) == PROMOTED
            path = store_of(tmp_path / "stores")
            assert (seen.run, seen.store) == (ROLLOUT_UID, str(path))
            gate, _ = stored(path)
            assert seen.verdict == replace(judge(gate), cells=()) and len(gate.measured) == 18
            assert (gate.plan.seed, gate.plan.first_replicate) == (5, 1)
            assert gate.plan.candidate_url == "llm sha256:111111111111"
            with SqliteJournal.open_readonly(path) as journal:
                assert f"{seen.rows}:{seen.head}" == journal.tail
            assert seen.ended_at == gate.measured[17].cell.ended_at
            await asyncio.sleep(0)
            assert set(here.told) == {"prod/llm"}
            assert len(here.works.seen(LINE_UID)) == 1 and here.works.seen("another") == ()

    asyncio.run(story())


def test_cells_are_told_nobody_and_turns_are(healthy: SimulatedServer, tmp_path: Path) -> None:
    async def story() -> None:
        with start_simulated(seed=3, text_seed=9, fault=["bad-prefill=1"]) as bad:
            looks = looks_of(tmp_path, healthy, bad, replicate={"gapSeconds": 0, "maxPairs": 30})
            async with room(tmp_path / "stores") as here:
                here.works.start(order(), looks.observed())
                seen = await here.until(ended)
                assert outcome(seen) == "rollback"
                await asyncio.sleep(0)
                told = len(here.told)
        gate, _ = stored(store_of(tmp_path / "stores"))
        assert len(gate.replicates) == 1 and len(gate.measured) == 14
        assert 3 <= told <= 9

    asyncio.run(story())


@pytest.mark.parametrize("match", [None, "case-"], ids=["its probe", "its cells"])
def test_a_server_that_asks_to_be_left_alone_is_told_as_what_is_waited_for_until_it_takes_requests(
    healthy: SimulatedServer, tmp_path: Path, match: str | None
) -> None:
    async def story() -> None:
        with start_simulated(seed=3, text_seed=9, fault=["http-429=#1-2"], count_match=match) as busy:
            looks = looks_of(tmp_path, healthy, busy)
            async with room(tmp_path / "stores") as here:
                here.works.start(order(), looks.observed())
                waits = await here.until(lambda seen: bool(seen.waiting))
                assert (waits.state, waits.waiting) == (WorkState.RUNNING, "WaitingForServer")
                assert waits.waiting_since is not None
                again = await here.until(lambda seen: len(busy.truth()) > 1)
                assert again.waiting_since == waits.waiting_since
                seen = await here.until(ended)
                assert outcome(seen) == PROMOTED and seen.waiting == ""

    asyncio.run(story())


def test_ended_and_begun_again_at_any_instant_it_comes_to_the_verdict_of_an_uninterrupted_run(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    rng = random.Random(20261130)

    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "alone") as here:
            here.works.start(order(), looks.observed())
            alone = await here.until(ended)
        seen = replace(alone, rows=0)
        for term in range(2, 100):
            async with room(tmp_path / "stores", token=term) as here:
                here.works.start(order(), looks.observed())
                until = rng.randrange(0, 8) + seen.rows
                seen = await here.until(lambda now, until=until: now.rows >= until or ended(now))
                await asyncio.sleep(rng.random() * 0.02)
                if ended(seen):
                    break
        assert term > 5
        assert alone.verdict is not None and seen.verdict is not None
        assert seen.verdict.decision == alone.verdict.decision
        assert (seen.verdict.candidate, seen.verdict.prefills_used) == (
            alone.verdict.candidate,
            alone.verdict.prefills_used,
        )

    asyncio.run(story())
    gate, _ = stored(store_of(tmp_path / "stores"))
    assert list(gate.measured) == list(range(18))
    asked = [event.cell.request_id for event in measured(gate)]
    assert len(set(asked)) == 18


def test_a_store_that_is_over_is_answered_from_and_no_server_is_asked(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            first = await here.until(ended)
        before = len(healthy.truth()) + len(candidate.truth())
        looks.baseline, looks.candidate = (), ()
        async with room(tmp_path / "stores", token=2) as here:
            here.works.start(order(), looks.observed())
            again = await here.until(ended)
        assert (again.verdict, again.rows, again.head) == (first.verdict, first.rows, first.head)
        assert (again.state, again.ended_at) == (first.state, first.ended_at)
        assert len(healthy.truth()) + len(candidate.truth()) == before

    asyncio.run(story())


def test_a_run_that_ended_for_want_of_a_server_is_not_begun_again_by_a_restart(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=2, text_seed=9) as dying:
            looks = looks_of(tmp_path, healthy, dying)
            async with room(tmp_path / "stores") as here:
                here.works.start(order(), looks.observed())
                await here.until(lambda seen: seen.rows > 8)
                dying.kill()
                first = await here.until(ended)
        assert first.verdict is not None and first.verdict.decision.reason == "CandidateUnavailable"
        async with room(tmp_path / "stores", token=2) as here:
            here.works.start(order(), looks.observed())
            again = await here.until(ended)
        assert (again.verdict, again.rows) == (first.verdict, first.rows)

    asyncio.run(story())


def test_the_order_says_until_when(healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(must_end_at=1.0), looks.observed())
            seen = await here.until(ended)
        assert outcome(seen) == "hold" and seen.verdict is not None
        assert seen.verdict.decision.reason == "Deadline"

    asyncio.run(story())


def test_without_a_seed_the_key_gives_one(healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path) -> None:
    async def story() -> list[int]:
        looks, seeds = looks_of(tmp_path, healthy, candidate), []
        for number, key in enumerate(("a", "a", "b")):
            async with room(tmp_path / f"stores-{number}") as here:
                here.works.start(order(key, seed=None), looks.observed())
                await here.until(ended, key)
            seeds.append(stored(store_of(tmp_path / f"stores-{number}", key))[0].plan.seed)
        return seeds

    first, again, other = asyncio.run(story())
    assert first == again != other


def test_replicates_of_a_pair_are_numbered_on_through_its_rollouts(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.leading.book.reserve_replicates(Replicates(OLD, NEW, "an earlier one", 1, 2, 0.0))
            here.works.start(order(), looks.observed())
            await here.until(ended)
            mine = here.leading.book.replicates(OLD, NEW)[-1]
            assert (mine.rollout, mine.first, mine.count) == (ROLLOUT_UID, 3, 2)

    asyncio.run(story())
    assert stored(store_of(tmp_path / "stores"))[0].plan.first_replicate == 3


def test_what_the_rollout_records_and_the_line_declares_are_its_differences(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        looks.rollout = {
            arm: {"digest": digest, "settings": [{"area": "KvCache", "name": "context size", "value": value}]}
            for arm, digest, value in (("baseline", OLD, "4096"), ("candidate", NEW, "8192"))
        }
        looks.spec = {"declaredDifferences": [{"area": "Other", "name": "rack", "baseline": "a", "candidate": "b"}]}
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 5)
        looks.spec = {}  # what is declared by now is no reason to refuse the store
        async with room(tmp_path / "stores", token=2) as here:
            here.works.start(order(), looks.observed())
            assert outcome(await here.until(ended)) == PROMOTED

    asyncio.run(story())
    told = stored(store_of(tmp_path / "stores"))[0].plan.differences
    assert [(each.area, each.name, each.baseline, each.candidate) for each in told] == [
        ("KV cache", "context size", "4096", "8192"),
        ("other", "rack", "a", "b"),
    ]


# -- servers that come and go


def test_a_pod_that_is_replaced_voids_its_cell_and_the_run_goes_on_at_the_new_address(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        slow = {"text_seed": 9, "time_scale": 0.2}
        with start_simulated(seed=2, **slow) as first, start_simulated(seed=2, text_seed=9) as second:
            looks = looks_of(tmp_path, healthy, first)
            async with room(tmp_path / "stores") as here:
                here.works.start(order(), looks.observed())
                await here.until(lambda seen: seen.rows > 8)
                await at_work(first)
                here.works.present_epoch(first.url, None)
                first.kill()
                looks.candidate = ()
                here.works.start(order(), looks.observed())
                parked = await here.until(ended)
                assert (parked.state, parked.retry_at) == (WorkState.BROKEN, None)
                assert parked.trouble == "the candidate sha256:111111111111 has no server that takes requests now"
                here.works.start(order(), looks.observed())
                assert here.one() == parked
                looks.candidate = (server(second.url, "n2/c"),)
                here.works.start(order(), looks.observed())
                seen = await here.until(ended)
                assert outcome(seen) == PROMOTED and seen.waiting == ""

    asyncio.run(story())
    gate, _ = stored(store_of(tmp_path / "stores"))
    assert [seen.server_epoch.partition("-")[0] for seen in gate.epochs[CANDIDATE]] == ["n", "n2"]
    assert not measured(gate, status=Status.FAILED)
    assert {event.reason for event in measured(gate, status=Status.INVALID)} <= {"EpochChanged"}
    assert gate.plan.candidate_url == "llm sha256:111111111111"


def test_a_server_that_dies_under_a_cell_by_itself_has_made_a_bad_one(healthy: SimulatedServer, tmp_path: Path) -> None:
    async def story() -> None:
        with start_simulated(seed=2, text_seed=9, time_scale=0.2) as dying:
            looks = looks_of(tmp_path, healthy, dying)
            async with room(tmp_path / "stores") as here:
                here.works.start(order(), looks.observed())
                await here.until(lambda seen: seen.rows > 8)
                await at_work(dying)
                dying.kill()
                await here.until(ended)

    asyncio.run(story())
    gate, _ = stored(store_of(tmp_path / "stores"))
    assert [event.cell.arm for event in measured(gate, status=Status.FAILED)] == [CANDIDATE]


def test_a_server_that_is_not_ready_for_a_moment_is_left_only_for_one_that_is(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=3, text_seed=9) as other:
            looks = looks_of(tmp_path, healthy, candidate)
            here_now, spare = looks.candidate[0], server(other.url, "spare/c")
            async with room(tmp_path / "stores") as here:
                here.works.start(order(), looks.observed())
                await here.until(lambda seen: seen.rows > 6)
                for seen in ((here_now, spare), (replace(here_now, ready=False),)):
                    looks.candidate = seen
                    here.works.start(order(), looks.observed())
                await here.until(lambda seen: seen.rows > 12)
                looks.candidate = (replace(here_now, ready=False), spare)
                here.works.start(order(), looks.observed())
                assert outcome(await here.until(ended)) == PROMOTED

    asyncio.run(story())
    with SqliteJournal.open_readonly(store_of(tmp_path / "stores")) as journal:
        met = [each for each in journal.events() if isinstance(each, EpochSeen) and each.arm == CANDIDATE]
        cells = [each for each in journal.events() if isinstance(each, CellMeasured)]
    assert [each.server_epoch.partition("-")[0] for each in met] == ["n", "spare"]
    assert not [each for each in cells if each.cell.status is not Status.OK]


def test_a_secret_that_changed_is_used_from_the_next_cell_on(healthy: SimulatedServer, tmp_path: Path) -> None:
    def key(value: str) -> Access:
        return Access(held=HeldAccess(api_key=Held("Secret llm, key token", value.encode())))

    async def story() -> None:
        with start_simulated({"THE_KEY": "sk-right-0123456789"}, seed=2, text_seed=9, api_key_env="THE_KEY") as guarded:
            looks = looks_of(tmp_path, healthy, guarded)
            looks.access = key("sk-wrong-0123456789")
            async with room(tmp_path / "stores", wait_ready_seconds=0.0) as here:
                here.works.start(order(), looks.observed())
                seen = await here.until(ended)
                assert seen.state is WorkState.BROKEN and "401" in seen.trouble
                assert "sk-wrong" not in repr(seen)
                here.works.start(order(), looks.observed())
                assert here.one().state is WorkState.BROKEN  # it is not time yet
                looks.access = key("sk-right-0123456789")
                here.works.start(order(), looks.observed())
                assert outcome(await here.until(ended)) == PROMOTED

    asyncio.run(story())


# -- how many at once


@pytest.mark.parametrize("waited", [False, True])
def test_that_a_turn_has_come_is_told_where_it_was_waited_for(
    healthy: SimulatedServer, tmp_path: Path, waited: bool
) -> None:
    go, over, told = threading.Event(), threading.Event(), list[str]()

    async def carry(turn: replay_thread.Turn) -> replay_thread.Answer:
        await asyncio.to_thread(go.wait)
        return replay_thread.Answer()

    asked = Asked(order(), looks_of(tmp_path, healthy, healthy).observed())
    replay = replay_thread.Replay(asked, carry, SystemClock(), lambda: told.append("changed"))
    if waited:
        replay.waits_for_turn()
    assert replay.begin(over.set)
    try:
        assert told == ["changed"] * waited and replay.seen().waiting == ""
    finally:
        go.set()
        assert over.wait(20)


def test_no_more_replays_run_at_once_than_may_and_the_others_say_that_they_wait(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=2, text_seed=9, time_scale=0.05) as slow:
            looks = looks_of(tmp_path, healthy, slow)
            looks.rollouts = ("one", "two", "three")
            async with room(tmp_path / "stores", most_at_once=1) as here:
                for key in looks.rollouts:
                    here.works.start(order(key), looks.observed())
                assert [here.one(key).waiting for key in looks.rollouts] == ["", "WaitingForTurn", "WaitingForTurn"]
                here.works.stop(LINE_UID, "two", "superseded")
                first = await here.until(ended, "one")
                third = await here.until(ended, "three")
                two = here.one("two")
                assert (two.state, two.trouble, two.rows) == (WorkState.BROKEN, "superseded", 0)
                assert outcome(first) == outcome(third) == PROMOTED
                assert first.ended_at is not None and third.verdict is not None and third.verdict.started_at is not None
                assert first.ended_at <= third.verdict.started_at

    asyncio.run(story())


def test_a_replay_that_no_thread_can_be_had_for_is_tried_again_and_keeps_no_other_waiting(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, refused = threading.Thread.start, list[str]()

    def start(thread: threading.Thread) -> None:
        if thread.name in ("replay two", "replay three") and thread.name not in refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        begin(thread)

    async def story() -> None:
        looks, clock = looks_of(tmp_path, healthy, candidate), Ahead()
        looks.rollouts = ("one", "two", "three", "four")
        async with room(tmp_path / "stores", clock=clock, most_at_once=1) as here:
            monkeypatch.setattr(threading.Thread, "start", start)
            for key in looks.rollouts:
                here.works.start(order(key), looks.observed())
            assert outcome(await here.until(ended, "four")) == PROMOTED
            for key in ("two", "three"):
                seen = here.one(key)
                assert (seen.state, seen.waiting) == (WorkState.BROKEN, "") and seen.retry_at is not None
                assert "can't start new thread" in seen.trouble
            clock.seconds += 6
            here.works.start(order("two"), looks.observed())
            assert outcome(await here.until(ended, "two")) == PROMOTED
        assert refused == ["replay two", "replay three"]

    asyncio.run(story())


def test_two_lines_may_have_work_of_the_same_key(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        with start_simulated(seed=3, text_seed=9) as old, start_simulated(seed=4, text_seed=9) as new:
            others = replace(looks, name="other", uid="two", baseline=(server(old.url),), candidate=(server(new.url),))
            async with room(tmp_path / "stores") as here:
                here.works.start(order(), looks.observed())
                here.works.start(order(), others.observed())
                first, second = await here.until(ended), await here.until(ended, line="two")
        assert outcome(first) == outcome(second) == PROMOTED
        assert first.store != second.store

    asyncio.run(story())


def test_what_is_asked_of_one_line_leaves_the_work_of_the_same_key_of_another(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        others = replace(looks, name="other", uid="two")
        async with room(tmp_path / "stores", most_at_once=0) as here:
            for each in (looks, others):
                here.works.start(order(), each.observed())
            here.works.stop(LINE_UID, ROLLOUT_UID, "the line is suspended")
            assert here.one().trouble == "the line is suspended"
            assert (here.one(line="two").state, here.one(line="two").waiting) == (WorkState.RUNNING, "WaitingForTurn")

    asyncio.run(story())


def test_a_word_about_one_line_is_written_into_no_journal_of_another(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        others = replace(looks, name="other", uid="two")
        async with room(tmp_path / "stores", most_at_once=1) as here:
            for each in (looks, others):
                here.works.start(order(), each.observed())
                await here.until(ended, line=each.uid)
            here.works.record(RecordOverride(ROLLOUT_UID, OVER), others.observed())
            before = here.one().rows
            await here.until(lambda seen: seen.verdict is not None and seen.rows > before, line="two")
            await asyncio.sleep(0.2)
            assert here.one().rows == before

    asyncio.run(story())


@pytest.mark.parametrize("how", ["ended", "stopped"])
def test_the_journal_of_a_run_that_is_carried_out_no_more_is_not_kept_in_memory(
    how: str, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    def watchers() -> list[RunWatcher]:
        gc.collect()
        return [each for each in gc.get_objects() if isinstance(each, RunWatcher)]

    async def story() -> None:
        looks, others = looks_of(tmp_path, healthy, candidate), watchers()
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 5)
            if how == "stopped":
                here.works.stop(LINE_UID, ROLLOUT_UID, "for a while")
            await here.until(ended)
            (own,) = [each for each in watchers() if each not in others]
            await until(lambda: not any(isinstance(held, KeptJournal) for held in vars(own).values()))

    asyncio.run(story())


def test_a_replay_that_was_stopped_goes_on_when_it_is_ordered_again(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 5)
            here.works.stop(LINE_UID, ROLLOUT_UID, "the line is suspended")
            seen = await here.until(ended)
            assert (seen.state, seen.trouble) == (WorkState.BROKEN, "the line is suspended")
            here.works.stop(LINE_UID, "nobody's", "")
            here.works.start(order(), looks.observed())
            assert outcome(await here.until(ended)) == PROMOTED
            assert here.one().trouble == ""

    asyncio.run(story())
    assert stored(store_of(tmp_path / "stores"))[0].session == 1


def test_nothing_starts_after_the_end_of_a_term(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 5)
            assert await here.works.close(60)
            rows = here.one().rows
            here.works.start(order(), looks.observed())
            here.works.start(order("another"), looks.observed())
            assert [(seen.key, seen.state, seen.rows) for seen in here.works.seen(LINE_UID)] == [
                (ROLLOUT_UID, WorkState.BROKEN, rows)
            ]
        open_store(store_of(tmp_path / "stores")).close()  # nobody holds it any more

    asyncio.run(story())


def test_ended_work_of_rollouts_that_are_gone_is_known_no_more(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        looks.rollouts = ("one", "two")
        async with room(tmp_path / "stores") as here:
            here.works.start(order("one"), looks.observed())
            await here.until(ended, "one")
            here.works.start(order("two"), looks.observed())
            await here.until(ended, "two")
            assert len(here.works.seen(LINE_UID)) == 2
            looks.rollouts = ("two", "three")
            here.works.start(order("three"), looks.observed())
            assert {seen.key for seen in here.works.seen(LINE_UID)} == {"two", "three"}

    asyncio.run(story())


def test_what_is_known_of_ended_work_does_not_grow_with_the_pods_that_go(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores", most_at_once=1) as here:
            here.works.start(order(), looks.observed())
            await here.until(ended)
            with start_simulated(seed=1, text_seed=9, fault=["always-busy=1"]) as busy:
                others = replace(looks, uid="two", name="two", baseline=(server(busy.url),))
                here.works.start(order(), others.observed())
                here.works.start(order(), replace(looks, uid="three", name="three").observed())
                replays = [*here.works._replays.values()]
                for number in range(1000):
                    here.works.present_epoch(f"http://10.0.{number // 250}.{number % 250}:8080", None)
                assert [len(each._gone) for each in replays] == [0, 0, 0]
                here.works.present_epoch(candidate.url, None)
                assert [len(each._gone) for each in replays] == [0, 1, 1]
                here.works.gone("three")
                assert here.works.seen("three") == () and len(here.works.seen(LINE_UID)) == 1

    asyncio.run(story())


def test_so_many_are_known_and_no_more_those_that_run_before_those_that_ended(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MOST_KNOWN", 1)

    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            for looks.uid in ("one", "two"):
                here.works.start(order(), looks.observed())
                await here.until(ended, line=looks.uid)
            looks.uid = "three"
            here.works.start(order(), looks.observed())
            assert [bool(here.works.seen(uid)) for uid in ("one", "two", "three")] == [False, True, True]
            looks.uid = "four"
            here.works.start(order(), looks.observed())
            assert [bool(here.works.seen(uid)) for uid in ("two", "three", "four")] == [False, True, True]

    asyncio.run(story())


# -- stores that cannot be written


def test_a_run_that_another_leader_took_over_ends_quietly_and_is_not_begun_again(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        with start_simulated(seed=2, text_seed=9, time_scale=0.2) as slow:
            looks, path = looks_of(tmp_path, healthy, slow), store_of(tmp_path / "stores")
            async with room(tmp_path / "stores", token=7) as here:
                here.works.start(order(), looks.observed())
                await here.until(lambda seen: seen.rows > 5)
                await asyncio.to_thread(lambda: open_store(path, Fence(8)).close())
                seen = await here.until(ended)
                assert (seen.state, seen.retry_at) == (WorkState.BROKEN, None) and seen.trouble.startswith("taken over")
                rows = stored(path)[0].measured
                here.works.start(order(), looks.observed())
                assert here.one() == seen
            async with room(tmp_path / "stores", token=9) as here:
                here.works.start(order(), looks.observed())
                assert outcome(await here.until(ended)) == PROMOTED
        after = stored(path)[0].measured
        assert all(after[cell] == event for cell, event in rows.items())

    asyncio.run(story())


def test_a_store_that_somebody_holds_is_tried_again_at_growing_intervals(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks, clock = looks_of(tmp_path, healthy, candidate), Ahead()
        async with room(tmp_path / "stores", clock=clock) as here:
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 5)
            here.works.stop(LINE_UID, ROLLOUT_UID, "for a while")
            await here.until(ended)
            with open_store(store_of(tmp_path / "stores")):
                waits = []
                for _ in range(3):
                    here.works.start(order(), looks.observed())
                    seen = await here.until(ended)
                    assert seen.state is WorkState.BROKEN and "is writing it" in seen.trouble
                    assert seen.retry_at is not None
                    waits.append(round(seen.retry_at - clock.now()))
                    here.works.start(order(), looks.observed())
                    assert here.one() == seen
                    clock.seconds += waits[-1] + 1
            assert waits == [5, 10, 20]
            here.works.start(order(), looks.observed())
            assert outcome(await here.until(ended)) == PROMOTED

    asyncio.run(story())


def test_a_damaged_store_is_refused_and_left_as_it_is(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks, clock, path = looks_of(tmp_path, healthy, candidate), Ahead(), store_of(tmp_path / "stores")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"no store at all")
        async with room(tmp_path / "stores", clock=clock) as here:
            here.works.start(order(), looks.observed())
            seen = await here.until(ended)
            assert seen.state is WorkState.REFUSED and "not an" in seen.trouble
            assert path.read_bytes() == b"no store at all"
            path.unlink()  # a person saw to it
            clock.seconds = replay_thread.LONGEST_RETRY_SECONDS + 1
            here.works.start(order(), looks.observed())
            assert outcome(await here.until(ended)) == PROMOTED

    asyncio.run(story())


def test_a_server_that_never_answered_is_no_measurement_and_is_tried_again(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, healthy)
        looks.candidate = (server(f"http://127.0.0.1:{free_port()}", "n/c"),)
        async with room(tmp_path / "stores", wait_ready_seconds=0.2) as here:
            here.works.start(order(), looks.observed())
            seen = await here.until(ended)
            assert seen.state is WorkState.BROKEN and seen.retry_at is not None
            assert "not ready within the 0.2 s of the controller's patience" in seen.trouble
        assert not store_of(tmp_path / "stores").exists()

    asyncio.run(story())


@pytest.mark.parametrize("fault", ["html=1", "malformed=1"])
def test_a_candidate_that_answers_what_nobody_can_measure_stands_still_and_is_tried_ever_later(
    healthy: SimulatedServer, tmp_path: Path, fault: str
) -> None:
    """Each try meets the baseline and writes rows into the journal, which are no cells."""

    async def story() -> None:
        with start_simulated(seed=2, text_seed=9, fault=[fault]) as strange:
            looks, clock, waits = looks_of(tmp_path, healthy, strange), Ahead(), []
            async with room(tmp_path / "stores", clock=clock, wait_ready_seconds=0.2) as here:
                for tries in (1, 2, 3):
                    here.works.start(order(), looks.observed())
                    seen = await here.until(ended)
                    assert seen.state is WorkState.BROKEN and seen.standstill is not None
                    assert (seen.standstill.tries, seen.standstill.arm) == (tries, CANDIDATE)
                    assert seen.standstill.trouble == seen.trouble and "candidate: " in seen.trouble
                    assert seen.retry_at is not None
                    waits.append(round(seen.retry_at - clock.now()))
                    clock.seconds += waits[-1] + 1
                since = seen.standstill.since
                with start_simulated(seed=2, text_seed=9) as mended:
                    looks.candidate = (server(mended.url, "n/d"),)
                    here.works.start(order(), looks.observed())
                    seen = await here.until(ended)
                    assert outcome(seen) == PROMOTED and seen.standstill is None
            assert waits == [5, 10, 20] and since < clock.now() - 15

    asyncio.run(story())


@pytest.mark.parametrize(("failures", "seconds"), [(1, 5), (2, 10), (6, 160), (7, 300), (5000, 300)])
def test_the_interval_between_tries_grows_to_five_minutes(failures: int, seconds: float) -> None:
    assert replay_thread.retry_seconds(failures) == seconds
    assert replay_thread.retry_seconds(failures, refused=True) == 300


# -- a person's word


def test_a_person_s_word_ends_a_run_and_stands_in_its_journal_once(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.record(RecordOverride("nobody's", OVER), looks.observed())
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 5)
            for _ in range(2):
                here.works.record(RecordOverride(ROLLOUT_UID, OVER), looks.observed())
                seen = await here.until(ended)
            assert outcome(seen) == "rollback" and seen.verdict is not None
            assert seen.verdict.decision.reason == "Override"
            cells = len(stored(store_of(tmp_path / "stores"))[0].measured)
            assert cells < 18
            here.works.record(RecordOverride(ROLLOUT_UID, OverrideEnded(2.0, "taken away")), looks.observed())
            taken_back = await here.until(lambda seen: seen.state is WorkState.BROKEN)
            assert taken_back.verdict is not None and taken_back.verdict.decision.reason == "MoreEvidenceNeeded"
            assert taken_back.verdict.decision.decision == "continue"
            here.works.start(order(), looks.observed())
            assert outcome(await here.until(ended)) == PROMOTED

    asyncio.run(story())
    with SqliteJournal.open_readonly(store_of(tmp_path / "stores")) as journal:
        words = [each for each in journal.events() if isinstance(each, Overridden | OverrideEnded)]
    assert words == [OVER, OverrideEnded(2.0, "taken away")]
    bundle = tmp_path / "bundle"
    for command in (["export", str(store_of(tmp_path / "stores")), "-o", str(bundle)], ["verify", str(bundle)]):
        words = [sys.executable, "-m", "prefillgate", *command]
        done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def cells_of(*servers: SimulatedServer) -> int:
    """How many cells they had, probes left out."""
    return sum(each["output_tokens"] != 2 for running in servers for each in running.truth())


def test_a_word_that_comes_again_at_every_look_disturbs_no_further_cell(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    over = OverrideEnded(2.0, "taken away")

    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            before = cells_of(healthy, candidate)
            here.works.start(order(), looks.observed())
            await here.until(lambda seen: seen.rows > 5)
            while not ended(here.works.seen(LINE_UID)[0]):
                here.works.record(RecordOverride(ROLLOUT_UID, over), looks.observed())
                await asyncio.sleep(0.001)
            assert outcome(await here.until(ended)) == PROMOTED
        assert 18 <= cells_of(healthy, candidate) - before <= 18 + 1  # the one that the word interrupted

    asyncio.run(story())


def test_a_word_about_a_run_that_ended_changes_its_verdict_and_asks_nobody(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            assert outcome(await here.until(ended)) == PROMOTED
            before = len(healthy.truth()) + len(candidate.truth())
            here.works.record(RecordOverride(ROLLOUT_UID, OVER), looks.observed())
            seen = await here.until(
                lambda seen: seen.verdict is not None and seen.verdict.decision.reason == "Override"
            )
            assert outcome(seen) == "rollback"
            assert len(healthy.truth()) + len(candidate.truth()) == before

    asyncio.run(story())


def test_a_word_about_a_run_that_has_no_store_yet_waits_for_it(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        looks.candidate = ()
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            await here.until(ended)
            here.works.record(RecordOverride(ROLLOUT_UID, OVER), looks.observed())
            await here.until(lambda seen: seen.rows == 0)
            looks.candidate = (server(candidate.url, "n/c"),)

            def overridden(seen: WorkSeen) -> bool:
                """Ordered at every look, as the loop does: while the word is looked to there is no beginning."""
                here.works.start(order(), looks.observed())
                return seen.verdict is not None and seen.verdict.decision.reason == OVERRIDE

            assert outcome(await here.until(overridden)) == "rollback"

    asyncio.run(story())


def test_a_word_about_a_run_that_ended_in_an_earlier_term_stands_in_its_journal_and_asks_nobody(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            here.works.start(order(), looks.observed())
            await here.until(ended)
        before = len(healthy.truth()) + len(candidate.truth())
        async with room(tmp_path / "stores", token=2) as here:
            assert here.works.seen(LINE_UID) == ()
            for word in (OVER, OVER, OverrideEnded(2.0, "taken away"), OVER):
                here.works.record(RecordOverride(ROLLOUT_UID, word), looks.observed())
                reason = "Override" if word == OVER else "AcceptanceReached"
                seen = await here.until(partial(decided, reason=reason))
            assert outcome(seen) == "rollback"
        assert len(healthy.truth()) + len(candidate.truth()) == before

    asyncio.run(story())
    with SqliteJournal.open_readonly(store_of(tmp_path / "stores")) as journal:
        words = [each for each in journal.events() if isinstance(each, Overridden | OverrideEnded)]
    assert words == [OVER, OverrideEnded(2.0, "taken away"), OVER]


def decided(seen: WorkSeen, reason: str) -> bool:
    return seen.verdict is not None and seen.verdict.decision.reason == reason


def test_a_word_about_a_run_whose_store_is_gone_is_tried_again_now_and_then(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks, clock = looks_of(tmp_path, healthy, candidate), Ahead()
        async with room(tmp_path / "stores", clock=clock) as here:
            here.works.record(RecordOverride(ROLLOUT_UID, OVER), looks.observed())
            await until(lambda: here.told)
            for _ in range(3):  # each look at the line asks for it again, and each end of a try for a look
                here.works.record(RecordOverride(ROLLOUT_UID, OVER), looks.observed())
            await asyncio.sleep(0.05)
            assert len(here.told) == 1
            clock.seconds = replay_thread.WORDS_AGAIN_SECONDS + 1
            here.works.record(RecordOverride(ROLLOUT_UID, OVER), looks.observed())
            await until(lambda: len(here.told) == 2)
        assert not store_of(tmp_path / "stores").exists()

    asyncio.run(story())


def test_a_set_and_a_policy_that_cannot_be_read_are_refused(
    healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async def story() -> None:
        looks = looks_of(tmp_path, healthy, candidate)
        async with room(tmp_path / "stores") as here:
            unread = {"snapshot": replace(looks.observed().snapshot, spec=None)}
            for key, lacking in (
                ("a", {"policy": None}),
                ("b", {"replay_set": None}),
                ("c", {"ways": {}}),
                ("d", unread),
            ):
                here.works.start(order(key), replace(looks.observed(), **lacking))
                seen = await here.until(ended, key)
                assert seen.state is WorkState.REFUSED and seen.trouble
                here.works.start(order(key), replace(looks.observed(), **lacking))
                assert here.one(key) == seen

    asyncio.run(story())
