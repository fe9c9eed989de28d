"""A replay that breaks off again and again without one new cell: told as a warning, and after an hour the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.moments import moment
from prefillgate.app.job_process import _code
from prefillgate.app.jobs import STANDSTILL_CODES
from prefillgate.app.replay_thread import arm_at_fault, standing
from prefillgate.core.verdict import Outcome
from prefillgate.reconcile.snapshot import Standstill, WorkKind, WorkSeen, WorkState
from prefillgate.reconcile.standstill import has_ended_it, standstill_of_a_job, told
from prefillgate.runs.errors import BadInput, CouldNotMeasure, RunBroken
from tests.support.line_world import B, World, verdict

HTML = "candidate: the probe was not answered: NotJson: <!doctype html>"
CONTINUES = verdict(Outcome.HOLD, "MoreEvidenceNeeded", 0)


def judging() -> World:
    return World().ready().propose(B)


def still(world: World, found: Standstill | None, state: WorkState = WorkState.BROKEN, kind: Any = "judge") -> None:
    key = next(key for key, each in world.works.items() if each.kind == kind)
    retry = world.now + 300 if state is WorkState.BROKEN else None
    trouble = "" if found is None else found.trouble
    world.works[key] = replace(world.works[key], state=state, retry_at=retry, trouble=trouble, standstill=found)
    world.step()


def screened(world: World) -> tuple[str, str]:
    thing = world.rollouts[world.newest]
    (found,) = (each for each in thing["status"]["conditions"] if each["type"] == "Screened")
    return found["reason"], found["message"]


def warnings(world: World) -> list[str]:
    return [each.reason for each in world.events if each.warning]


def test_it_is_told_once_as_a_warning_with_what_the_server_answered_and_what_to_look_at() -> None:
    world = judging()
    since = world.now
    still(world, Standstill(since, world.now, 1, HTML, "candidate"))
    assert (screened(world)[0], warnings(world)) == ("ScreenInterrupted", [])
    world.now = since + 301
    for tries in (4, 5, 6):
        still(
            world,
            Standstill(since, world.now, tries, HTML, "candidate"),
            WorkState.RUNNING if tries == 5 else WorkState.BROKEN,
        )
        world.now += 300
    reason, message = screened(world)
    assert reason == "ReplayInterrupted"
    assert f"Since {moment(since)} not one cell could be measured: {HTML}" in message
    assert "Look at the log of the candidate's server" in message
    assert f"From {moment(since + 3600)} on it ends as not measured." in message
    assert warnings(world) == ["ReplayInterrupted"]
    decision = world.of(world.newest)["decision"]
    assert decision["whatWouldChange"][0].startswith("Look at the log of the candidate's server")
    assert (decision["promotion"], decision["rollback"]) == ("Blocked", "Refused")
    assert world.condition("Gating") == ("True", "RolloutRunning")


@pytest.mark.parametrize("arm", ["candidate", "baseline", "both"])
def test_after_an_hour_it_ends_as_not_measured_and_a_rerun_asks_again(arm: str) -> None:
    world = judging()
    name, since = world.newest, world.now
    world.now = since + 3600
    still(world, Standstill(since, world.now, 10, f"{arm}: no", arm))
    assert world.condition("Succeeded", name) == ("False", "NotMeasured")
    decision = world.of(name)["decision"]
    assert (decision["verdict"], decision["promotion"], decision["rollback"]) == ("Hold", "Blocked", "Refused")
    assert decision["reason"] == "MeasurementLost"
    assert decision["measured"] is False
    said = " ".join(decision["sentences"])
    whose = {"candidate": "the candidate's server", "baseline": "the baseline's server", "both": "both arms"}
    assert whose[arm] in said
    assert ("candidate" in said) is (arm == "candidate")
    assert world.fates == {}
    world.settle()
    world.annotate(rerun="again")
    world.settle()
    assert world.newest != name
    assert world.condition("Screened", world.newest) == ("False", "Starting")


def test_what_is_no_server_s_fault_is_waited_out_and_told() -> None:
    world = judging()
    since = world.now
    world.now = since + 100_000
    still(world, Standstill(since, world.now, 500, "pod a/b is put aside for another replay"))
    assert world.condition("Succeeded", world.newest) == ("Unknown", "Running")
    reason, message = screened(world)
    assert reason == "ReplayInterrupted"
    assert "put aside for another replay What is named put right; the replay then goes on by itself." in message
    assert "not measured" not in message


def test_a_replay_that_comes_on_again_is_told_as_that() -> None:
    world = judging()
    world.now += 400
    still(world, Standstill(world.now - 301, world.now, 3, HTML, "candidate"))
    assert screened(world)[0] == "ReplayInterrupted"
    still(world, None, WorkState.RUNNING)
    assert screened(world)[0] == "Screening"
    assert "whatWouldChange" not in world.of(world.newest)["decision"]


def test_a_floor_that_stands_still_is_a_warning_too() -> None:
    world = World()
    world.settle()
    world.now += 400
    still(
        world, Standstill(world.now - 301, world.now, 3, "baseline: no", "baseline"), WorkState.RUNNING, WorkKind.FLOOR
    )
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorInterrupted")
    assert "FloorInterrupted" in warnings(world)


@pytest.mark.parametrize(
    ("tries", "after", "is_told", "ends"),
    [
        (2, 300, False, False),
        (3, 299.9, False, False),
        (3, 300, True, False),
        (9, 3600, True, False),
        (10, 3599.9, True, False),
        (10, 3600, True, True),
    ],
)
def test_both_bounds_must_be_reached(tries: int, after: float, is_told: bool, ends: bool) -> None:
    world = judging()
    work = next(each for each in world.works.values() if each.kind is WorkKind.JUDGE)
    work = replace(work, standstill=Standstill(1000.0, 1000.0 + after, tries, "", "candidate"))
    assert (told(work) is not None, has_ended_it(work)) == (is_told, ends)
    assert told(replace(work, standstill=None)) is told(None) is None


def test_a_standstill_of_servers_and_one_of_something_else_are_two() -> None:
    one = standing(None, "a", "candidate", 1.0)
    assert one == Standstill(1.0, 1.0, 1, "a", "candidate")
    two = standing(one, "b", "candidate", 2.0)
    assert two == Standstill(1.0, 2.0, 2, "b", "candidate")
    assert standing(two, "c", "baseline", 3.0) == Standstill(1.0, 3.0, 3, "c", "both")
    assert standing(two, "store away", "", 3.0) == Standstill(3.0, 3.0, 1, "store away", "")
    assert standing(standing(None, "d", "", 1.0), "e", "", 2.0) == Standstill(1.0, 2.0, 2, "e", "")
    assert standing(two, "f", "candidate", 1802.0).tries == 3
    assert standing(two, "f", "candidate", 1802.1) == Standstill(1802.1, 1802.1, 1, "f", "candidate")


def test_whose_server_it_was_stands_in_the_error_or_in_its_cause() -> None:
    silent = CouldNotMeasure("candidate: no", "candidate")
    broken = RunBroken("candidate: no")
    broken.__cause__ = silent
    assert [arm_at_fault(each) for each in (silent, broken, CouldNotMeasure("the API server"), BadInput("x"))] == [
        "candidate",
        "candidate",
        "",
        "",
    ]


@pytest.mark.parametrize(("code", "arm"), [(3, "candidate"), (4, "baseline"), (5, "both")])
def test_a_job_gives_up_by_the_same_bounds_and_says_whose_server_it_was(code: int, arm: str) -> None:
    found = Standstill(1000.0, 4599.9, 10, HTML, arm)
    work = WorkSeen("k", WorkKind.JUDGE, WorkState.BROKEN, 0.0, standstill=found)
    assert _code(work) is None
    assert _code(replace(work, standstill=replace(found, last=4600.0))) == code
    assert STANDSTILL_CODES[code] == arm
    assert has_ended_it(replace(work, standstill=standstill_of_a_job(arm, HTML, 9000.0)))
