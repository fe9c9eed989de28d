"""The floor: measured before anything is judged, again when it must be, and never for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.evidence.book_rows import Floor
from prefillgate.reconcile.effects import KeepFloor, StartWork
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import ArmSeen, Standstill, WorkKind, WorkState
from tests.support.line_world import PROMOTES, SOUND, SPEC, TWELVE, A, B, C, World

WEEK = 604_800
BROKEN = replace(SOUND, sound=False, sentence="The two passes differ.")


def floors(world: World) -> list[str]:
    """The baselines that were measured, in order."""
    return [each.baseline for each in world.started if each.kind is WorkKind.FLOOR]


def judged(world: World) -> int:
    return len([each for each in world.started if each.kind is WorkKind.JUDGE])


def test_what_was_measured_stands_in_status_and_in_the_book() -> None:
    world = World().ready()
    measured = world.now
    assert world.status["floor"] == {
        "baselineDigest": A.digest,
        "replaySetSha256": "c" * 64,
        "at": world.status["floor"]["at"],
        "instrument": "Sound",
        "prefills": 24,
        "badPrefills": 0,
        "throughputCvBasisPoints": 310,
        "identicalBasisPoints": 10_000,
        "message": "Both passes agree.",
    }
    (row,) = world.floors.values()
    assert row == Floor(
        line="team/chat/line-uid",
        baseline=A.digest,
        replay_set_sha256="c" * 64,
        run=world.started[0].key,
        measured_at=row.measured_at,
        sound=True,
        sentence="Both passes agree.",
        identical=12,
        compared=12,
        noise_cv=0.031,
    )
    assert row.measured_at < measured


def test_it_is_kept_once() -> None:
    world = World().ready()
    assert len([each for each in world.done if isinstance(each, KeepFloor)]) == 1


def test_an_old_one_is_measured_anew_only_for_a_candidate_and_before_it_is_judged() -> None:
    world = World().ready()
    world.now += WEEK
    assert world.settle().look_again_seconds is None
    assert floors(world) == [A.digest]
    assert world.condition("InstrumentChecked") == ("True", "InstrumentSound")
    world.propose(B)
    assert floors(world) == [A.digest] * 2 and judged(world) == 0
    assert world.condition("Screened", world.newest) == ("False", "WaitingForFloor")
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert judged(world) == 1


def test_one_that_is_young_enough_serves_to_the_last_second() -> None:
    world = World().ready()
    (row,) = world.floors.values()
    world.slots[list(world.slots)[1]] = B
    for at, wanted in ((row.measured_at + WEEK - 1, WorkKind.JUDGE), (row.measured_at + WEEK, WorkKind.FLOOR)):
        other = world.copy()
        other.now = at
        other.step()
        other.step()
        assert other.started[-1].kind is wanted


def test_a_rollout_that_has_begun_goes_on_by_the_floor_it_began_with() -> None:
    world = World().ready().propose(B)
    world.now += WEEK
    world.settle()
    world.restart()
    world.settle()
    assert floors(world) == [A.digest]
    assert world.condition("Screened", world.newest)[1] in ("Starting", "Screening")


def test_other_cases_or_another_baseline_take_another_measurement() -> None:
    world = World().ready()
    world.cases = replace(TWELVE, sha256="e" * 64)
    world.settle()
    assert floors(world) == [A.digest] * 2
    assert len({each.key for each in world.started}) == 2
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.propose(B).judge(PROMOTES)
    assert floors(world) == [A.digest, A.digest, B.digest]


def test_a_broken_instrument_judges_nothing_and_says_so() -> None:
    world = World()
    world.floor = BROKEN
    world.propose(B)
    name = world.newest
    world.ends(WorkKind.FLOOR, floor=BROKEN)
    world.settle()
    assert judged(world) == 0
    assert world.condition("InstrumentChecked") == ("False", "InstrumentBroken")
    assert world.condition("InstrumentChecked", name) == ("False", "InstrumentBroken")
    assert world.condition("Succeeded", name) == ("False", "NotMeasured")
    assert world.of(name)["decision"]["reason"] == "InstrumentBroken"
    assert world.of(name)["decision"]["measured"] is False
    assert "The two passes differ." in world.of(name)["decision"]["sentences"]
    assert world.condition("Gating") == ("False", "Waiting")
    assert "rejectedProfiles" not in world.status
    assert floors(world) == [A.digest]
    assert "InstrumentBroken" in world.told_reasons()


def test_each_new_candidate_has_a_broken_instrument_looked_at_once_more() -> None:
    world = World()
    world.floor = BROKEN
    world.ready()
    world.propose(B)
    assert floors(world) == [A.digest] * 2
    world.ends(WorkKind.FLOOR, floor=BROKEN)
    world.settle()
    assert floors(world) == [A.digest] * 2 and judged(world) == 0
    world.propose(C)
    assert floors(world) == [A.digest] * 3
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert judged(world) == 1


def test_one_that_could_not_tell_is_told_and_judged_by() -> None:
    world = World()
    world.floor = replace(SOUND, sound=None, sentence="Too few pairs.")
    world.ready().propose(B)
    assert world.condition("InstrumentChecked") == ("Unknown", "InstrumentUnclear")
    assert judged(world) == 1
    assert "InstrumentUnclear" in world.told_reasons()


def test_it_waits_for_a_baseline_that_takes_requests() -> None:
    world = World()
    world.down = {A.digest: ArmSeen(A.digest)}
    world.settle()
    assert world.started == []
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorDue")
    world.down = {}
    world.settle()
    assert floors(world) == [A.digest]


def test_one_that_broke_off_is_tried_again_at_its_time_and_says_why_it_is_due() -> None:
    world = World()
    world.settle()
    key, work = next(iter(world.works.items()))
    world.works[key] = replace(work, state=WorkState.BROKEN, trouble="The disk is full.", retry_at=world.now + 60)
    wanted = world.settle()
    assert wanted.look_again_seconds == 60 - 1
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorDue")
    assert "The disk is full." in str(world.status["conditions"])
    world.now = world.works[key].retry_at or 0.0
    assert [each.key for each in plan(world.look()).after if isinstance(each, StartWork)] == [key]


def test_one_that_is_refused_is_a_warning_at_once_and_not_well_until_it_ends() -> None:
    world = World()
    world.settle()
    for _ in range(2):
        key, work = next(iter(world.works.items()))
        still = Standstill(since=world.now, last=world.now, tries=1, trouble="No model chat-70b.")
        refused: dict[str, Any] = {"state": WorkState.REFUSED, "trouble": "No model chat-70b.", "standstill": still}
        world.works[key] = replace(work, **refused, retry_at=world.now + 60)
        world.settle()
        assert world.condition("InstrumentChecked") == ("Unknown", "FloorInterrupted")
        assert world.status["notWell"] == "FloorInterrupted"
        world.now += 60
        world.settle()
        assert world.works[key].state is WorkState.RUNNING
        assert world.condition("InstrumentChecked") == ("Unknown", "FloorInterrupted")
    warned = [each for each in world.events if each.reason == "FloorInterrupted"]
    assert [(each.warning, "No model chat-70b." in each.note) for each in warned] == [(True, True)]
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert world.condition("InstrumentChecked") == ("True", "InstrumentSound")
    assert "notWell" not in world.status


def test_another_one_after_what_was_wrong_was_put_right_is_running() -> None:
    world = World()
    world.settle()
    key, work = next(iter(world.works.items()))
    world.works[key] = replace(work, state=WorkState.REFUSED, trouble="No model chat-70b.", retry_at=None)
    world.settle()
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorInterrupted")
    world.change(model="chat-7b")
    world.settle()
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorRunning")
    assert "notWell" not in world.status


def test_the_status_stands_where_the_book_was_lost() -> None:
    world = World().ready()
    world.floors.clear()
    world.propose(B)
    assert floors(world) == [A.digest] and judged(world) == 1


def test_the_book_stands_where_the_status_was_lost() -> None:
    world = World().ready()
    del world.line["status"]
    world.propose(B)
    assert floors(world) == [A.digest] and judged(world) == 1
    assert world.status["floor"]["instrument"] == "Sound"
    assert "prefills" not in world.status["floor"]


def test_nobody_asks_for_one_while_the_line_is_suspended() -> None:
    world = World()
    world.spec["suspend"] = True
    world.settle()
    assert world.started == []
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorDue")


def _another_policy(world: World) -> None:
    assert world.policy is not None
    world.policy = replace(world.policy, sha256="e" * 64)


EDITS: dict[str, Callable[[World], Any]] = {
    "policy": _another_policy,
    "name of the cases": lambda world: setattr(world, "cases", replace(TWELVE, name="others")),
    "isolation": lambda world: world.change(baseline={**SPEC["baseline"], "isolation": {"mode": "Shared"}}),
    "model": lambda world: world.change(model="another"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_begun_measurement_cannot_go_on_as_begins_as_another_one(edit: str) -> None:
    world = World().propose(B)
    EDITS[edit](world)
    world.settle()
    first, second = [each.key for each in world.started if each.kind is WorkKind.FLOOR]
    assert first != second
    assert list(world.works) == [second]  # what cannot go on is stopped
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert world.condition("InstrumentChecked") == ("True", "InstrumentSound")
    world.restart()
    world.settle()
    assert floors(world) == [A.digest] * 2  # a floor that is known is measured for no edit


def test_an_isolation_that_leaves_a_server_as_alone_as_before_goes_on_with_what_was_begun() -> None:
    world = World()
    world.settle()
    world.change(baseline={**SPEC["baseline"], "isolation": {"mode": "Drain"}})
    world.settle()
    assert floors(world) == [A.digest]
