"""Whether servers take requests, and whether what is written can be used: what is said, and what it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.line_status import ServingLineStatus
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import ArmSeen, Slot, Trouble, WorkKind
from tests.support.line_world import PROMOTES, SOUND, A, B, World, verdict


def message(world: World, kind: str, rollout: str | None = None) -> str:
    thing = world.line if rollout is None else world.rollouts[rollout]
    return str(next(each["message"] for each in thing["status"]["conditions"] if each["type"] == kind))


def judged(world: World) -> int:
    return len([each for each in world.started if each.kind is WorkKind.JUDGE])


def test_a_rollout_whose_spec_cannot_be_read_says_which_field_and_waits() -> None:
    world = World().ready().propose(B)
    name = world.newest
    broken = world.copy()
    spec = {**broken.rollouts[name]["spec"], "seed": -1, "differences": "none"}
    broken.rollouts[name]["spec"] = spec
    broken.settle()
    assert broken.condition("Accepted", name) == ("False", "SpecInvalid")
    assert "spec.seed" in message(broken, "Accepted", name) and "spec.differences" in message(broken, "Accepted", name)
    assert broken.of(name)["decision"]["reason"] == "SpecInvalid"
    assert "endedAt" not in broken.of(name)


def test_a_trouble_of_the_way_to_the_servers_is_said_under_their_condition() -> None:
    world = World().ready()
    field, why = "spec.candidate.endpoint", "The certificate bears another name."
    world.troubles = (Trouble("EndpointUnreachable", field, why, ConditionType.ENDPOINTS_READY),)
    world.propose(B)
    assert world.condition("Accepted") == ("True", "Accepted")
    assert world.condition("EndpointsReady") == ("False", "EndpointUnreachable")
    assert f"{field}: {why}" in message(world, "EndpointsReady")
    assert judged(world) == 0
    assert world.condition("Screened", world.newest) == ("False", "WaitingForEndpoints")


def test_problems_are_named_by_field_the_first_five_and_how_many_more() -> None:
    world = World()
    world.troubles = tuple(Trouble("SecretNotFound", f"spec.field{number}", "gone") for number in range(7))
    world.settle()
    told = message(world, "Accepted")
    assert "spec.field0: gone; " in told and "spec.field4: gone; and 2 more" in told and "spec.field5" not in told


def test_an_arm_that_was_not_looked_at_yet_is_being_asked() -> None:
    world = World().ready()
    look = replace(world.look(), baseline=None)
    told = {each.type: each.reason for each in plan(look).line.conditions or ()}
    assert told["EndpointsReady"] == "ServersUnknown"


def test_a_slot_that_no_profile_is_asked_by_is_told_as_it_is_written() -> None:
    world = World().ready()
    assert world.condition("EndpointsReady") == ("True", "Reachable")
    answers = ArmSeen(A.digest, world.arm(A.digest).servers)
    for arm, told in (
        (answers, ("True", "Reachable")),
        (ArmSeen(A.digest), ("True", "Reachable")),  # it rests: there is nobody to ask
        (replace(answers, asked=False), ("Unknown", "Probing")),
        (replace(answers, unreachable="the connection is refused"), ("False", "EndpointUnreachable")),
    ):
        world.resting = ((Slot.CANDIDATE, arm),)
        world.settle()
        assert world.condition("EndpointsReady") == told
    (said,) = (each["message"] for each in world.status["conditions"] if each["type"] == "EndpointsReady")
    assert said.endswith(" spec.candidate.endpoint: the connection is refused")
    world.propose(B)  # then it is asked for what it runs
    assert world.condition("EndpointsReady") == ("True", "Reachable") and judged(world) == 1


SEQUENTIAL = {"arms": "Sequential", "sequential": {"windows": [{"startTime": "22:00", "durationSeconds": 3600}]}}


@pytest.mark.parametrize("down", [A, B])
def test_where_profiles_take_turns_one_that_is_down_stops_nothing(down: Any) -> None:
    world = World()
    world.spec |= SEQUENTIAL
    world.ready()
    world.down = {down.digest: ArmSeen(down.digest)}
    world.propose(B)
    assert world.condition("EndpointsReady") == ("True", "Reachable")
    assert judged(world) == 1


def test_where_profiles_take_turns_both_down_or_a_crash_loop_are_told() -> None:
    world = World()
    world.spec |= SEQUENTIAL
    world.ready()
    world.down = {A.digest: ArmSeen(A.digest), B.digest: ArmSeen(B.digest)}
    world.propose(B)
    assert world.condition("EndpointsReady") == ("False", "NoReadyPods") and judged(world) == 0
    world.down = {B.digest: ArmSeen(B.digest, unavailable="CrashLoopBackOff")}
    world.settle()
    assert world.condition("EndpointsReady") == ("False", "CandidateUnavailable")


def test_a_dry_run_allows_no_rollback_of_a_candidate_that_takes_no_requests() -> None:
    world = World()
    world.spec["dryRun"] = True
    world.ready()
    world.down = {B.digest: ArmSeen(B.digest, unavailable="CrashLoopBackOff")}
    world.propose(B)
    decision = world.of(world.newest)["decision"]
    assert (decision["verdict"], decision["rollback"], decision["reason"]) == ("Rollback", "Refused", "DryRun")


def kept_waiting() -> World:
    """A line with a rollout that could not begin yet, a minute before its deadline."""
    world = World()
    world.spec["deadlineSeconds"] = 60
    world.ready()
    world.down = {B.digest: ArmSeen(B.digest)}
    world.propose(B)
    world.down = {}
    return world


def without_floor(world: World) -> None:
    for known in (world.floors, world.works, world.journals):
        known.clear()
    world.line["status"] = {key: each for key, each in world.status.items() if key != "floor"}


@pytest.mark.parametrize(
    ("way", "why"),
    [
        (lambda world: world.change(suspend=True), "The line is suspended."),
        (without_floor, "The baseline is compared with itself first."),
    ],
)
def test_what_kept_it_from_beginning_is_told_at_the_deadline(way: Any, why: str) -> None:
    world = kept_waiting()
    name = world.newest
    way(world)
    world.now += 60
    world.step()
    assert world.condition("Succeeded", name) == ("False", "Held")
    assert why in message(world, "Succeeded", name)


def test_nothing_is_ended_for_what_was_only_not_read_yet() -> None:
    world = kept_waiting()
    world.policy = None
    world.now += 60
    world.step()
    assert "endedAt" not in world.of(world.newest)


def test_a_spec_that_cannot_be_used_is_told_at_the_deadline() -> None:
    world = World()
    world.spec["deadlineSeconds"] = 60
    world.ready().propose(B)
    name = world.newest
    world.restart()
    world.rollouts[name]["status"] = {}
    world.troubles = (Trouble("CasesNotFound", "spec.replaySetRef", "gone"),)
    world.now += 60
    world.settle()
    assert world.condition("Succeeded", name) == ("False", "Held")
    assert "The ConfigMap, file or URL with the cases is not there." in message(world, "Succeeded", name)


def test_a_rollout_that_is_going_away_is_no_bar_to_the_next_one() -> None:
    world = World().ready().propose(B)
    name = world.newest
    thing = world.rollouts[name]
    thing["metadata"] = {**thing["metadata"], "deletionTimestamp": thing["metadata"]["creationTimestamp"]}
    world.settle()
    assert world.condition("PromotionAllowed", name) == ("False", "Deleting")
    assert list(world.rollouts) == [name, f"{name}-2"]
    assert judged(world) == 2


def test_a_promotion_keeps_the_settings_that_its_rollout_has_where_no_workload_says_them_any_more() -> None:
    world = World().ready().propose(B)
    world.ends(WorkKind.JUDGE, verdict=PROMOTES)
    wanted = plan(world.look())
    world.carry_out(replace(wanted, line=world_line(world)))  # killed before the line's status
    world.slots = {Slot.BASELINE: A}
    world.settle()
    promoted = world.status["promotedProfile"]
    assert promoted["digest"] == B.digest
    assert {each["name"]: each["value"] for each in promoted["settings"]}["tensor split"] == "2,2"


def world_line(world: World) -> Any:
    """The line's status as it stands."""
    return ServingLineStatus.model_validate(world.status)


def test_what_differs_is_unknown_where_nothing_tells_what_the_promoted_profile_was() -> None:
    world = World()
    del world.spec["candidate"]
    world.slots = {Slot.BASELINE: A}
    world.ready()
    promoted = {key: each for key, each in world.status["promotedProfile"].items() if key != "settings"}
    world.line["status"] = {**world.status, "promotedProfile": promoted}
    world.propose(B, Slot.BASELINE)
    assert world.rollouts[world.newest]["spec"].get("differences", []) == []
    created = next(each.note for each in world.events if each.reason == "RolloutCreated")
    assert created.endswith("what differs is not known.")


def test_a_watch_is_left_as_it_is_while_the_store_is_away() -> None:
    world = World()
    world.spec["watch"] = {"everySeconds": 60}
    world.ready().propose(B).judge(PROMOTES)
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    before = world.status["watch"]
    world.store_trouble = "away"
    world.now += 3600
    world.settle()
    assert world.status["watch"] == before
    assert [each for each in world.started if each.kind is WorkKind.WATCH] == []


def test_running_numbers_are_told_with_where_their_evidence_is() -> None:
    world = World().ready().propose(B)
    world.comes_to(verdict(prefills=4))
    world.settle()
    told = world.of(world.newest)["evidence"]
    assert told == {"store": "file", "run": "uid-1", "rows": 11, "head": "h1"}
