"""A replay has one runner at a time, a Job or a thread; its Job is the one that was ordered, and both take turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prefillgate.app import job_cluster, turns
from prefillgate.app.job_process import Errand, _Replaying
from prefillgate.app.metrics import Metrics
from prefillgate.evidence.book_rows import Wait
from prefillgate.kube.clock import SystemClock
from prefillgate.kube.objects import JOBS
from prefillgate.reconcile.snapshot import WorkSeen, WorkState
from tests.support.fake_api import FakeApi, Fault
from tests.support.jobs import TOKEN, USER, Here, begun, jobs_of, put
from tests.support.manual_clock import until
from tests.support.simulated import SimulatedServer, start_simulated
from tests.support.works import LINE, LINE_UID, PROMOTED, ROLLOUT_UID, looks_of, order

NAME = f"replay-{ROLLOUT_UID}-7"


@pytest.fixture
async def here(
    fake: FakeApi, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> AsyncIterator[Here]:
    async with jobs_of(fake, looks_of(tmp_path, healthy, candidate), tmp_path) as found:
        yield found


def job(here: Here, name: str = NAME) -> dict[str, Any]:
    return here.fake.store.get(here.fake._of(JOBS), "default", name)


def ordered(here: Here) -> Any:
    """The deadline of the order that the Job has."""
    arguments = job(here)["spec"]["template"]["spec"]["containers"][0]["args"]
    return json.loads(arguments[arguments.index("--order") + 1])["must_end_at"]


def fails(here: Here) -> None:
    status = {"conditions": [{"type": "Failed", "status": "True"}]}
    resource, write = here.fake._of(JOBS), replace(USER, subresource="status")
    here.fake.store.update(resource, "default", NAME, {**job(here), "status": status}, write)


def keep_while_deleted(here: Here, kept: bool = True) -> None:
    thing = job(here)
    thing["metadata"]["finalizers"] = ["foregroundDeletion"] if kept else []
    here.fake.store.update(here.fake._of(JOBS), "default", NAME, thing, USER)


# -- one runner at a time


@pytest.mark.parametrize("failed", [False, True])
async def test_a_replay_goes_on_in_the_controller_once_its_line_asks_for_no_job(failed: bool, here: Here) -> None:
    await begun(here)
    rows = here.one().rows
    if failed:
        fails(here)
        await until(lambda: here.one().state is WorkState.BROKEN)
    keep_while_deleted(here)
    here.looks.spec = {"runner": "Controller"}
    for _ in range(3):
        here.start()
        await asyncio.sleep(0.1)
    assert here.room.one().state is not WorkState.RUNNING  # its Job is not gone yet
    keep_while_deleted(here, kept=False)
    await until(lambda: here.works.seen(LINE_UID)[0] == here.room.one())
    here.start()
    await until(lambda: here.one().state is WorkState.ENDED)
    verdict = here.one().verdict
    assert verdict is not None and verdict.decision.decision == PROMOTED and here.one().rows > rows
    assert here.jobs() == [] and here.asked


async def test_isolation_that_a_job_cannot_have_moves_its_replay_into_the_controller(here: Here) -> None:
    here.start()
    await until(here.jobs)
    here.looks.spec = {"runner": "Job", "baseline": LINE["baseline"] | {"isolation": {"mode": "Scratch"}}}
    here.start()
    await until(lambda: here.works.seen(LINE_UID) == ())
    here.start()
    await until(lambda: here.one().state is WorkState.REFUSED)
    assert "isolation Scratch takes a cluster" in here.one().trouble and here.jobs() == []


async def test_a_replay_goes_on_in_a_job_once_its_thread_has_ended(
    fake: FakeApi, candidate: SimulatedServer, tmp_path: Path
) -> None:
    with start_simulated(seed=1, text_seed=9, fault=["always-busy=1"]) as busy:
        times = {"idle_timeout_seconds": 600.0, "notice_after_seconds": 0.05}
        async with jobs_of(fake, looks_of(tmp_path, busy, candidate), tmp_path, most_at_once=1, times=times) as here:
            here.looks.spec = {"runner": "Controller"}
            here.start()
            await until(lambda: here.one().waiting == "WaitingForIdle")
            here.looks.spec = {"runner": "Job"}
            here.start()
            assert here.jobs() == []
            await until(here.jobs)
            assert here.room.one().state is WorkState.BROKEN
            assert here.one().state is WorkState.RUNNING


async def test_a_line_that_changes_its_mind_while_its_job_ends_has_a_job_again(here: Here) -> None:
    here.start()
    await until(here.jobs)
    before = job(here)["metadata"]["uid"]
    keep_while_deleted(here)
    here.looks.spec = {"runner": "Controller"}
    here.start()
    await until(lambda: "deletionTimestamp" in job(here)["metadata"])
    here.looks.spec = {"runner": "Job"}
    here.start()
    await asyncio.sleep(0.2)
    keep_while_deleted(here, kept=False)
    await until(lambda: here.jobs() and job(here)["metadata"]["uid"] != before)
    assert (here.one().state, here.one().trouble) == (WorkState.RUNNING, "")


# -- the Job that was ordered


async def test_another_order_makes_another_job(here: Here) -> None:
    here.works.start(order(must_end_at=3600.0), here.looks.observed())
    await until(here.jobs)
    here.works.start(order(must_end_at=28_800.0), here.looks.observed())
    await until(lambda: here.jobs() and ordered(here) == 28_800.0)
    uid = job(here)["metadata"]["uid"]
    here.works.start(order(must_end_at=28_800.0), here.looks.observed())
    await asyncio.sleep(0.3)
    assert job(here)["metadata"]["uid"] == uid


async def test_a_line_that_is_suspended_for_a_moment_blames_nobody_for_the_job_that_ended(here: Here) -> None:
    here.start()
    await until(here.jobs)
    before = job(here)["metadata"]["uid"]
    keep_while_deleted(here)
    here.works.stop(LINE_UID, ROLLOUT_UID, "The line is suspended.")
    await until(lambda: "deletionTimestamp" in job(here)["metadata"])
    here.start()
    await asyncio.sleep(0.3)
    assert (here.one().state, here.one().trouble) == (WorkState.RUNNING, "")
    keep_while_deleted(here, kept=False)
    await until(lambda: here.jobs() and job(here)["metadata"]["uid"] != before)
    assert (here.one().state, here.one().trouble) == (WorkState.RUNNING, "")


async def test_a_job_of_this_term_from_before_an_outage_is_kept(here: Here) -> None:
    here.fake.fail(Fault("reset", "create", "jobs", applied=True))
    here.start()
    await until(here.jobs)
    uid = job(here)["metadata"]["uid"]
    await asyncio.sleep(1.5)
    assert job(here)["metadata"]["uid"] == uid and here.one().state is WorkState.RUNNING


async def test_a_job_of_another_origin_that_has_the_name_is_told(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_cluster, "STUCK_SECONDS", 0.2)
    put(here.fake, JOBS, NAME)
    here.start()
    await until(lambda: here.one().state is WorkState.BROKEN)
    assert f"kubectl delete job -n default {NAME}" in here.one().trouble


# -- what ends it


async def test_traffic_that_voids_cell_after_cell_ends_no_rollout_that_runs_in_a_job(
    fake: FakeApi, candidate: SimulatedServer, tmp_path: Path
) -> None:
    with start_simulated(seed=1, text_seed=9, fault=["other-traffic=@case"]) as serving:
        async with jobs_of(fake, looks_of(tmp_path, serving, candidate), tmp_path) as here:
            here.room.works.start(order(), here.looks.observed())
            await here.room.until(lambda seen: seen.waiting == "WaitingForIdle")
            here.room.works.stop(LINE_UID, ROLLOUT_UID, "for a Job")
            await here.room.until(lambda seen: seen.state is WorkState.BROKEN)
            here.start()
            await until(lambda: here.jobs() and here.one().waiting == "WaitingForIdle")
            assert here.one().state is WorkState.RUNNING and here.one().ended_at is None
            assert here.one().waiting_since is not None
            serving.restart(fault=None)
            here.looks.spec = {"runner": "Controller"}  # whoever goes on with it comes to an answer
            here.start()
            await until(lambda: here.jobs() == [] and here.works.seen(LINE_UID)[0] == here.room.one())
            here.start()
            await until(lambda: here.one().state is WorkState.ENDED)
            assert here.one().waiting == ""


async def test_a_run_that_is_over_in_its_store_needs_no_job(here: Here) -> None:
    here.room.works.start(order(), here.looks.observed())
    await here.room.until(lambda seen: seen.state is WorkState.ENDED)
    here.start()
    await until(lambda: here.one().state is WorkState.ENDED)
    assert here.jobs() == [] and here.one().verdict is not None


@pytest.mark.parametrize("most", [1, 2])
async def test_what_a_job_waits_for_is_told_and_leaves_its_turn_to_others_once_that_takes_long(
    most: int, fake: FakeApi, candidate: SimulatedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "QUEUE_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(turns, "WAITS_LONG_SECONDS", 1.0)
    times = {"idle_timeout_seconds": 600.0, "notice_after_seconds": 0.05}
    with start_simulated(seed=1, text_seed=9, fault=["always-busy=1"]) as busy:
        looks = looks_of(tmp_path, busy, candidate)
        async with jobs_of(fake, looks, tmp_path, most_at_once=most, times=times) as here:
            here.start()
            await until(lambda: ("get", "jobs") in fake.calls)  # it is made, and looked at
            errand, threads = Errand(order(), "prod/llm", TOKEN), here.room.works  # what runs in the Job
            in_the_job = _Replaying(None, here.room.leading, threads, errand, asyncio.Event())  # type: ignore[arg-type]
            if most == 1:
                here.room.leading.book.keep_wait(Wait(ROLLOUT_UID, "LoadLimitReached", SystemClock().now()))
                await until(lambda: here.one().waiting == "LoadLimitReached")
                other = replace(looks, name="other", uid="two", rollouts=("second",))
                here.works.start(order("second"), other.observed())
                await until(lambda: here.jobs() == [NAME, "replay-second-7"])
                here.works.stop(LINE_UID, ROLLOUT_UID, "The line is suspended.")
                await until(lambda: here.jobs() == ["replay-second-7"])
                await until(lambda: here.room.leading.book.wait(ROLLOUT_UID) is None)
                return
            threads.start(order(), looks.observed())
            for waiting in ("WaitingForIdle", ""):
                if not waiting:
                    threads.stop(LINE_UID, ROLLOUT_UID, "to end its wait")
                await here.room.until(lambda seen, waiting=waiting: seen.waiting == waiting)  # type: ignore[misc]
                await in_the_job._say(here.room.one())
                await until(lambda waiting=waiting: here.one().waiting == waiting)  # type: ignore[misc]
                assert here.one().waiting_since == here.room.one().waiting_since
            assert here.asked


# -- turns


async def test_jobs_and_threads_take_turns_together(
    fake: FakeApi, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async with jobs_of(fake, looks_of(tmp_path, healthy, candidate), tmp_path, most_at_once=1) as here:
        here.start()
        await until(here.jobs)
        other = replace(here.looks, name="other", uid="two", rollouts=("second",))
        third = replace(here.looks, name="third", uid="three", rollouts=("third",), spec={"runner": "Controller"})
        here.works.start(order("second"), other.observed())
        here.works.start(order("third"), third.observed())
        await asyncio.sleep(0.3)
        (second,), (thread,) = here.works.seen("two"), here.works.seen("three")
        assert (second.state, second.waiting, thread.waiting) == (
            WorkState.RUNNING,
            "WaitingForTurn",
            "WaitingForTurn",
        )
        assert here.jobs() == [NAME]
        here.works.stop(LINE_UID, ROLLOUT_UID, "The line is suspended.")
        await until(lambda: here.jobs() == ["replay-second-7"])
        assert here.asked.count("prod/other") == 1  # that its turn has come
        assert here.works.seen("two")[0].waiting == "" and here.works.seen("three")[0].waiting == "WaitingForTurn"
        here.works.gone("two")
        await until(lambda: here.works.seen("three")[0].state is WorkState.ENDED)
        assert here.works.seen("two") == () and here.jobs() == []


async def test_a_job_that_waits_for_its_turn_is_ended_without_one(
    fake: FakeApi, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async with jobs_of(fake, looks_of(tmp_path, healthy, candidate), tmp_path, most_at_once=1) as here:
        here.start()
        other = replace(here.looks, name="other", uid="two", rollouts=("second",))
        here.works.start(order("second"), other.observed())
        await until(here.jobs)
        here.works.stop("two", "second", "The line is suspended.")
        here.works.stop(LINE_UID, ROLLOUT_UID, "The line is suspended.")
        await until(lambda: here.jobs() == [])
        await asyncio.sleep(0.3)
        assert here.jobs() == [] and here.works.seen("two")[0].trouble == "The line is suspended."
        here.works.start(order("second"), other.observed())
        await until(lambda: here.jobs() == ["replay-second-7"])


async def test_a_fault_of_the_gate_itself_is_told_and_gives_its_turn_to_others(
    fake: FakeApi, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    async with jobs_of(fake, looks_of(tmp_path, healthy, candidate), tmp_path, most_at_once=1) as here:
        here.works.start(order("a/b"), replace(here.looks, rollouts=("a/b",)).observed())  # no store can be called so
        await until(lambda: here.one().state is WorkState.BROKEN)
        assert "fault of the gate" in here.one().trouble and here.one().retry_at is not None
        here.start()
        await until(here.jobs)


# -- figures and memory


async def test_what_stood_in_the_store_before_its_job_is_in_no_counter(here: Here) -> None:
    metrics = Metrics()
    await begun(here)
    metrics.saw("prod/llm", here.works.seen(LINE_UID))
    (job_work,) = here.works.seen(LINE_UID)
    before = cells(replace(job_work, before=None))
    assert before > 0 and counted(metrics) == 0
    here.looks.spec = {"runner": "Controller"}
    here.start()
    await until(lambda: here.works.seen(LINE_UID)[0] == here.room.one())
    here.start()
    await until(lambda: here.one().state is WorkState.ENDED)
    metrics.saw("prod/llm", here.works.seen(LINE_UID))
    assert counted(metrics) == cells(here.one()) - before > 0


def cells(work: WorkSeen) -> float:
    """All cells of its verdict."""
    metrics = Metrics()
    metrics.saw("prod/llm", [work])
    return counted(metrics)


def counted(metrics: Metrics) -> float:
    found = next(each for each in metrics.registry.collect() if each.name == "prefillgate_cells")
    return sum(sample.value for sample in found.samples if sample.name.endswith("_total"))
