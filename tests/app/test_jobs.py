"""Replays in Jobs, on a fake API server and a real store: what is made, what is left behind, what a person says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from prefillgate.api.kinds.names import REPLAY_LABEL
from prefillgate.app import job_cluster
from prefillgate.app.job_process import NOT_NOW, Errand, _Replaying
from prefillgate.app.seams import Leading, Observed, Works
from prefillgate.core.journal import Overridden, OverrideEnded
from prefillgate.evidence.book import open_book
from prefillgate.evidence.fence import Fence
from prefillgate.kube.objects import JOBS, PODS
from prefillgate.reconcile.effects import RecordOverride
from prefillgate.reconcile.snapshot import WorkState
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Object
from tests.support.jobs import TOKEN, Here, begun, jobs_of, put
from tests.support.manual_clock import until
from tests.support.simulated import SimulatedServer
from tests.support.works import LINE_UID, ROLLOUT_UID, looks_of, order, room

HELD = Overridden(1.0, "hold", "ann", "not tonight")
TAKEN_AWAY = OverrideEnded(2.0, "taken away")


@pytest.fixture
async def here(
    fake: FakeApi, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> AsyncIterator[Here]:
    async with jobs_of(fake, looks_of(tmp_path, healthy, candidate), tmp_path) as found:
        yield found


async def test_a_replay_goes_on_after_a_hold_was_taken_away(here: Here) -> None:
    await begun(here)
    here.asked.clear()
    here.works.record(RecordOverride(ROLLOUT_UID, HELD), here.looks.observed())
    await until(lambda: here.one().state is WorkState.ENDED)
    assert here.one().ended_at is not None and here.jobs() == []
    await until(lambda: here.asked)
    here.works.record(RecordOverride(ROLLOUT_UID, TAKEN_AWAY), here.looks.observed())
    await until(lambda: here.one().state is WorkState.BROKEN)
    assert (here.one().ended_at, here.one().retry_at) == (None, None)
    await until(lambda: len(here.asked) > 1)
    here.start()
    assert here.one().state is WorkState.RUNNING
    await until(here.jobs)


async def test_the_look_that_a_written_word_asks_for_begins_the_replay_again(here: Here) -> None:
    await begun(here)
    begins: list[WorkState] = []

    def changed(line: str) -> None:
        here.start()
        begins.append(here.one().state)

    here.works.record(RecordOverride(ROLLOUT_UID, TAKEN_AWAY), here.looks.observed())
    here.works.changed = changed
    here.start()
    assert here.one().state is WorkState.BROKEN  # the word comes first
    await until(lambda: begins)
    assert begins == [WorkState.RUNNING]
    await until(here.jobs)


async def test_a_word_that_is_being_written_is_not_written_twice_however_long_its_job_takes_to_end(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(here)
    pod = put(here.fake, PODS, "stays", metadata={"labels": {REPLAY_LABEL: ROLLOUT_UID}}, status={"phase": "Running"})
    for _ in range(3):
        here.works.record(RecordOverride(ROLLOUT_UID, HELD), here.looks.observed())
        here.start()
        await asyncio.sleep(0.1)
    assert here.one().state is WorkState.BROKEN and here.room.one().verdict.decision.reason != "Override"  # type: ignore[union-attr]
    here.fake.store.delete(here.fake._of(PODS), "default", pod["metadata"]["name"], None)
    await until(lambda: here.one().state is WorkState.ENDED)


async def test_jobs_of_earlier_terms_are_deleted_also_those_that_nobody_orders(
    fake: FakeApi, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    for name in ("replay-gone-6", "replay-other-10", "replay-mine-7", "backup-1"):
        put(fake, JOBS, name, metadata={"labels": {} if name == "backup-1" else {REPLAY_LABEL: "x"}})
    fake.fail(Fault("status", "list", "jobs", times=1, code=503))
    async with jobs_of(fake, looks_of(tmp_path, healthy, candidate), tmp_path) as here:
        await until(lambda: "replay-gone-6" not in here.jobs())
        assert here.jobs() == ["backup-1", "replay-mine-7", "replay-other-10"]


async def test_where_jobs_may_not_be_listed_that_is_told_once_one_is_wanted(here: Here) -> None:
    here.fake.fail(Fault("status", "list", "jobs", times=1000, code=403))
    here.start()
    await until(lambda: here.one().state is WorkState.BROKEN)
    assert here.one().retry_at is not None


async def test_a_pod_of_an_earlier_job_that_does_not_end_is_told(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_cluster, "STUCK_SECONDS", 0.2)
    put(here.fake, PODS, "stays", metadata={"labels": {REPLAY_LABEL: ROLLOUT_UID}}, status={"phase": "Running"})
    here.start()
    await until(lambda: here.one().state is WorkState.BROKEN)
    assert "pod default/stays of an earlier Job has not ended" in here.one().trouble
    assert "kubectl delete pod -n default stays --force" in here.one().trouble
    assert here.one().retry_at is not None and here.jobs() == []


async def test_an_end_that_is_refused_is_told_and_tried_again(here: Here) -> None:
    here.start()
    await until(here.jobs)
    here.fake.fail(Fault("status", "list", "jobs", times=1, code=403, message="not you"))
    here.works.stop(LINE_UID, ROLLOUT_UID, "The line is suspended.")
    await until(lambda: "not you" in here.one().trouble)
    assert here.asked
    await until(lambda: here.jobs() == [])


async def test_a_replay_that_was_ended_is_begun_again_while_its_job_still_ends(here: Here) -> None:
    here.start()
    await until(here.jobs)
    here.works.stop(LINE_UID, ROLLOUT_UID, "The line is suspended.")
    here.start()
    assert here.one().state is WorkState.RUNNING


@dataclass
class Sight:
    """An observer that sees this."""

    seen: Observed

    async def look(self, key: str, works: Works, leading: Leading) -> Observed:
        return self.seen


STATUSES: dict[str, Object] = {
    "goes on": {},
    "rollout over": {"endedAt": "2026-11-30T12:00:00Z"},
    "superseded": {"conditions": [{"type": "Superseded", "status": "True"}]},
}


@pytest.mark.parametrize("case", [*STATUSES, "suspended", "being deleted", "taken over"])
async def test_a_job_ends_by_itself_once_nothing_asks_for_it(
    case: str, healthy: SimulatedServer, candidate: SimulatedServer, tmp_path: Path
) -> None:
    looks = looks_of(tmp_path, healthy, candidate)
    looks.spec = {"runner": "Job", "suspend": case == "suspended"}
    seen = looks.observed()
    (rollout,) = seen.snapshot.rollouts
    thing = {**rollout.thing, "status": STATUSES.get(case, {})}
    line = {**seen.snapshot.line}
    if case == "being deleted":
        line["metadata"] = {**line["metadata"], "deletionTimestamp": "2026-11-30T12:00:00Z"}
    seen = replace(seen, snapshot=replace(seen.snapshot, line=line, rollouts=(replace(rollout, thing=thing),)))
    async with room(tmp_path / "stores", token=TOKEN) as made:
        if case == "taken over":
            open_book(tmp_path / "stores" / "book.db", Fence(TOKEN + 1)).close()
        errand = Errand(order(), "prod/llm", TOKEN)
        replaying = _Replaying(None, made.leading, made.works, errand, asyncio.Event())  # type: ignore[arg-type]
        code = await replaying._look(Sight(seen))  # type: ignore[arg-type]
        assert code == (None if case == "goes on" else NOT_NOW)
        assert bool(made.works.seen(LINE_UID)) == (case == "goes on")
