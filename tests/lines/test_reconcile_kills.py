"""A controller killed between any two of its effects: the next one comes to the same world, and tells nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import WatchFound, WorkKind
from tests.support.line_world import HOLDS, PROMOTES, ROLLS_BACK, SOUND, A, B, C, Killed, World, replicate, verdict

ALARMED = verdict(reason="ReplicateRunning", prefills=9, bad=3, alarm=True, replicates=(replicate(),))
Step = Callable[[World], None]


def floor_ends(world: World) -> None:
    world.ends(WorkKind.FLOOR, floor=SOUND)


def ends_with(final: Any) -> Step:
    return lambda world: (world.ends(WorkKind.JUDGE, verdict=final), None)[1]


def proposed(wanted: Any) -> Step:
    return lambda world: (world.slots.update({list(world.slots)[-1]: wanted}), None)[1]


def alarms(world: World) -> None:
    world.comes_to(ALARMED)


def rerun(world: World) -> None:
    world.annotate(rerun="again")


def store_lost(world: World) -> None:
    world.fates.clear()
    world.floors.clear()
    world.notices.clear()


def watched(world: World) -> None:
    world.change(watch={"everySeconds": 86_400, "previous": "Retain"})


def watch_due(world: World) -> None:
    world.now += 90_000


def watch_ends(**found: Any) -> Step:
    told = WatchFound(**{"prefills": 8, "bad_prefills": 5, "alarm": True, "sentence": "5 bad of 8.", **found})
    return lambda world: (world.ends(WorkKind.WATCH, watch=told), None)[1]


PROMOTED_AND_WATCHED = [floor_ends, watched, proposed(B), ends_with(PROMOTES), floor_ends, watch_due]
LIVES: dict[str, list[Step]] = {
    "promoted": [floor_ends, proposed(B), ends_with(PROMOTES), floor_ends],
    "rolled back after an alarm": [floor_ends, proposed(B), alarms, ends_with(ROLLS_BACK)],
    "rejected and asked again": [floor_ends, proposed(B), ends_with(HOLDS), rerun, ends_with(PROMOTES), floor_ends],
    "superseded": [floor_ends, proposed(B), proposed(C), ends_with(PROMOTES), floor_ends],
    "withdrawn and back": [floor_ends, proposed(B), proposed(A), proposed(B), ends_with(HOLDS)],
    "a watch raises an alarm": [*PROMOTED_AND_WATCHED, watch_ends(reason="AlarmWithoutBaseline"), proposed(C)],
    "a watch confirms a regression": [
        *PROMOTED_AND_WATCHED,
        watch_ends(alarm=False, reason="RegressionConfirmed", rollback=True),
        watch_due,
    ],
    "the store lost": [floor_ends, proposed(B), ends_with(HOLDS), store_lost, proposed(C), ends_with(PROMOTES)],
}


OF_A_WATCH = ("lastAt", "lastRun", "nextAt")  # a run is named by the time of the promotion


def outcome(world: World) -> Any:
    """What is to be the same: times are left out, and the counts of a floor, which the book does not keep."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            if "instrument" in value:
                value = {key: each for key, each in value.items() if key not in ("prefills", "badPrefills")}
            if "notices" in value:  # those of one second stand in no order of time
                value = value | {"notices": sorted(value["notices"], key=lambda each: each["message"])}
            skipped = (
                "at",
                "since",
                "lastTransitionTime",
                "startedAt",
                "endedAt",
                "creationTimestamp",
                "key",
                *OF_A_WATCH,
            )
            return {key: timeless(each) for key, each in value.items() if key not in skipped}
        return [timeless(each) for each in value] if isinstance(value, list) else value

    events = [(each.rollout, each.reason) for each in world.events]
    works = sorted((each.key, each.state) for each in world.works.values())
    return timeless([world.line, world.rollouts, sorted(world.fates)]), sorted(events, key=str), len(works)


def lived(world: World, steps: list[Step]) -> World:
    """A world after some more steps, each looked at until nothing changes."""
    for step in steps:
        step(world)
        world.settle()
    return world


def killed(world: World, step: Step, after: int) -> World | None:
    """The world after a step, the controller killed after so many effects and another one come; None: it was done."""
    step(world)
    try:
        world.carry_out(plan(world.look()), at_most=after)
    except Killed:
        world.restart()
        world.now += 1
        world.settle()
        return world
    return None


@pytest.mark.parametrize("name", LIVES)
def test_a_controller_killed_at_any_instant_comes_to_the_same_end(name: str) -> None:
    steps = LIVES[name]
    world = World()
    world.settle()
    wanted = outcome(lived(world.copy(), steps))
    for number, step in enumerate(steps):
        after = 0
        while (found := killed(world.copy(), step, after)) is not None:
            compare(outcome(lived(found, steps[number + 1 :])), wanted, f"step {number}, {after} effects")
            after += 1
        assert after > 1
        lived(world, [step])


def compare(found: Any, wanted: Any, where: str) -> None:
    """The same world, no event twice, and none lost that is worth keeping."""
    assert found[0] == wanted[0], where
    assert len(found[1]) <= len(wanted[1]) + 1, where
    lost = {reason for rollout, reason in wanted[1] if (rollout, reason) not in found[1]}
    assert lost <= WORTH_LOSING, where


# small news, which a kill between the status and its event may swallow; the weighty ones are kept until they were told
WORTH_LOSING = {
    *("FloorRunning", "FloorDue", "InstrumentSound", "RolloutRunning", "Decided", "NoCandidate", "Waiting"),
    *("Screening", "ScreenEnded", "NewerCandidate", "CandidateWithdrawn", "Superseded", "RolloutCreated"),
    *("CandidateChanged", "RerunStarted", "AcceptanceReached", "RegressionConfirmed"),
    *("ReplicateRunning", "AlarmAnswered", "StoreCurrent", "NothingPromoted", "WatchScheduled", "WatchWaiting"),
}


@pytest.mark.parametrize("name", LIVES)
def test_a_look_that_is_taken_twice_gives_the_same_plan(name: str) -> None:
    world = World()
    for step in [lambda world: None, *LIVES[name]]:
        world.settle()
        step(world)
        look = world.look()
        first = plan(look)
        assert plan(look) == first == plan(world.look())
