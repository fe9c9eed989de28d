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
    said = orphaned(seen(thing), at)
    assert said is not None
    return said.status.model_dump(by_alias=True, exclude_none=True)


def events(thing: dict[str, Any]) -> list[tuple[str, str | None, bool]]:
    said = orphaned(seen(thing), START)
    return [] if said is None else [(each.reason, each.rollout, each.warning) for each in said.events]


def bear(thing: dict[str, Any], **words: str) -> None:
    thing["metadata"]["annotations"] = {
        f"prefillgate.io/{name.replace('_', '-')}": word for name, word in words.items()
    }


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


def test_its_missing_line_is_told_once() -> None:
    thing = World().by_hand("mine")
    assert events(thing) == [("LineNotFound", "mine", True)]
    thing["status"] = told(thing)
    assert events(thing) == []


def test_nothing_is_recommended_that_is_not_obeyed_and_nothing_said_of_a_candidate_that_no_line_has() -> None:
    status = told(World().by_hand("mine"))
    (what,) = status["decision"]["whatWouldChange"]
    assert what.startswith("A ServingLine of the name that spec.lineRef says.")
    assert (condition(status, "Superseded")["status"], condition(status, "Superseded")["reason"]) == (
        "Unknown",
        "LineNotFound",
    )


def test_an_override_on_it_is_refused_once_and_says_what_is_to_be_mended_and_said_again() -> None:
    thing = World().by_hand("mine")
    thing["status"] = told(thing)
    bear(thing, override="promote", override_reason="why not 🔥")
    assert events(thing) == [("OverrideWithoutRollout", "mine", True)]
    status = told(thing)
    handled, overridden = status["lastHandledOverride"], condition(status, "Overridden")
    assert (handled["outcome"], handled["value"], handled["reason"]) == ("Refused", "promote", "why not 🔥")
    assert (overridden["status"], overridden["reason"]) == ("False", "OverrideWithoutRollout")
    for text in (handled["message"], overridden["message"]):
        assert "there is no ServingLine chat in this namespace. Once there is one, say it again: kubectl" in text
        assert "annotate --overwrite -n team profilerollout mine prefillgate.io/override=promote" in text
    thing["status"] = status
    assert (events(thing), told(thing, START + 60)) == ([], status)
    bear(thing, override="promote", override_reason="now do it")
    assert events(thing) == [("OverrideWithoutRollout", "mine", True)]


def test_an_override_on_one_that_has_ended_is_refused_too_and_all_else_of_it_stands() -> None:
    world = World().ready().propose(B)
    world.comes_to(verdict(prefills=5))
    world.settle()
    world.judge(HOLDS)
    thing = world.rollouts[world.newest]
    assert thing["status"]["endedAt"]
    bear(thing, override="promote", override_reason="why not")
    status = told(thing)
    assert condition(status, "Overridden")["reason"] == "OverrideWithoutRollout"
    others = [each for each in thing["status"]["conditions"] if each["type"] != "Overridden"]
    assert [each for each in status["conditions"] if each["type"] != "Overridden"] == others
    assert status["decision"] == thing["status"]["decision"]


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [each for each in status["conditions"] if each["type"] == kind]
    return dict(found)
