"""A rollout that names a line which is not there says so, and forgets nothing."""

from __future__ import annotations

from typing import Any

from prefillgate.api.kinds.names import PROFILE_ROLLOUT
from prefillgate.api.kinds.profile_rollout import ProfileRolloutSpec
from prefillgate.api.kinds.reading import read_spec
from prefillgate.api.kinds.reasons import CONDITIONS_OF
from prefillgate.reconcile.orphans import orphaned
from prefillgate.reconcile.snapshot import RolloutSeen
from tests.support.line_world import HOLDS, START, B, World, verdict


def seen(thing: dict[str, Any]) -> RolloutSeen:
    return RolloutSeen(thing, *read_spec(ProfileRolloutSpec, thing))


def told(thing: dict[str, Any], at: float = START) -> dict[str, Any]:
    status = orphaned(seen(thing), at)
    assert status is not None
    return status.model_dump(by_alias=True, exclude_none=True)


def test_it_names_the_line_that_is_missing_and_the_field() -> None:
    thing = World().by_hand("mine")
    status = told(thing)
    assert [each["type"] for each in status["conditions"]] == list(CONDITIONS_OF[PROFILE_ROLLOUT.kind])
    accepted = status["conditions"][0]
    assert (accepted["status"], accepted["reason"]) == ("False", "LineNotFound")
    assert "spec.lineRef.name: there is no ServingLine chat in this namespace." in accepted["message"]
    assert (status["decision"]["verdict"], status["decision"]["reason"]) == ("Hold", "NotAccepted")
    assert (status["decision"]["promotion"], status["decision"]["rollback"]) == ("Blocked", "Refused")
    assert "endedAt" not in status


def test_nothing_of_it_runs_once_its_line_is_gone() -> None:
    world = World().ready().propose(B)
    world.comes_to(verdict())
    world.settle()
    assert world.condition("Screened", world.newest) == ("False", "Screening")
    found = {each["type"]: each["reason"] for each in told(world.rollouts[world.newest])["conditions"]}
    assert found["Screened"] == "ScreenInterrupted"
    assert found["EndpointsReady"] == "ServersUnknown"
    assert found["InstrumentChecked"] == "InstrumentSound"


def test_a_later_look_changes_nothing() -> None:
    thing = World().by_hand("mine")
    thing["status"] = told(thing)
    assert told(thing, START + 3600) == thing["status"]


def test_what_was_measured_of_it_stands_and_what_has_ended_is_left_alone() -> None:
    world = World().ready().propose(B)
    world.comes_to(verdict(prefills=5))
    world.settle()
    status = told(world.rollouts[world.newest])
    assert status["prefills"] == "0 bad of 5"
    assert status["evidenceDecision"]["reason"] == "MoreEvidenceNeeded"
    world.judge(HOLDS)
    assert orphaned(seen(world.rollouts[world.newest]), START) is None


def test_one_whose_spec_cannot_be_read_says_so_all_the_same() -> None:
    thing = World().by_hand("mine")
    thing["spec"] = {"lineRef": {"name": "chat"}, "seed": -1}
    assert told(thing)["conditions"][0]["reason"] == "LineNotFound"
