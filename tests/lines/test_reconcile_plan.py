"""A line's life as a whole: first look, candidate, floor, replay, promotion or rejection, and what comes after."""

from __future__ import annotations

import pytest

from prefillgate.api.kinds.names import CANDIDATE_LABEL, LINE_LABEL
from prefillgate.reconcile.effects import CreateRollout, StartWork, StopWork
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import WorkKind
from tests.support.line_world import HOLDS, LOST, PROMOTES, ROLLS_BACK, A, B, C, World, verdict


def test_the_first_look_takes_what_serves_for_promoted_and_compares_it_with_itself() -> None:
    world = World()
    world.settle()
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert world.status["promotedProfile"]["how"] == "FirstSeen"
    assert world.status["observedGeneration"] == 1
    assert [(each.kind, each.baseline, each.candidate) for each in world.started] == [(WorkKind.FLOOR, A.digest, None)]
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorRunning")
    assert world.condition("Gating") == ("False", "NoCandidate")
    assert world.events == [] and world.rollouts == {}


def test_a_candidate_has_a_rollout_at_the_first_look_at_it() -> None:
    world = World()
    world.slots = {**world.slots, **dict.fromkeys(list(world.slots)[1:], B)}
    wanted = plan(world.look())
    (made,) = [each for each in wanted.before if isinstance(each, CreateRollout)]
    metadata, spec = made.body["metadata"], made.body["spec"]
    assert metadata["name"] == f"chat-{B.digest[7:15]}"
    assert metadata["labels"] == {LINE_LABEL: "chat", CANDIDATE_LABEL: B.digest[7:15]}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "prefillgate.io/v1alpha1",
            "kind": "ServingLine",
            "name": "chat",
            "uid": "line-uid",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    assert (spec["baseline"]["digest"], spec["candidate"]["digest"]) == (A.digest, B.digest)
    assert spec["differences"] == ["tensor split 3,1 -> 2,2"]
    assert spec["policy"] == {"name": "standard", "sha256": "d" * 64}
    assert spec["replaySet"] == {"name": "cases", "sha256": "c" * 64}
    assert wanted == plan(world.look())


def test_nothing_is_judged_before_the_floor_is_known_and_then_at_once() -> None:
    world = World()
    world.propose(B)
    assert [each.kind for each in world.started] == [WorkKind.FLOOR]
    assert world.condition("Screened", world.newest) == ("False", "WaitingForFloor")
    assert world.condition("Gating") == ("False", "Waiting")
    world.ends(WorkKind.FLOOR, floor=world.floor)
    world.step()
    (floor, judge) = world.started
    assert judge == StartWork(
        key="uid-1",
        kind=WorkKind.JUDGE,
        baseline=A.digest,
        candidate=B.digest,
        rollout=world.newest,
        seed=world.rollouts[world.newest]["spec"]["seed"],
    )
    assert floor.kind is WorkKind.FLOOR
    assert world.status["floor"]["instrument"] == "Sound"
    assert [each.baseline for each in world.floors.values()] == [A.digest]


def test_a_promotion_flips_the_roles_and_the_new_baseline_is_compared_with_itself() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.judge(PROMOTES)
    assert world.condition("Succeeded", name) == ("True", "Promoted")
    assert world.condition("PromotionAllowed", name) == ("True", "AcceptanceReached")
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["how"], promoted["rollout"]) == (B.digest, "Promoted", name)
    assert promoted["since"] == world.of(name)["endedAt"]
    assert world.status["previousProfile"]["digest"] == A.digest
    assert world.status["currentRollout"] == name
    assert (world.status["decision"], world.status["promotion"]) == ("Promote", "Allowed")
    assert world.condition("Gating") == ("False", "NoCandidate")
    assert "candidate" not in world.status
    assert [key[:2] for key in world.fates] == [(B.digest, "Promoted")]
    assert [(each.kind, each.baseline) for each in world.started][-1] == (WorkKind.FLOOR, B.digest)
    assert len(world.rollouts) == 1
    assert world.told_reasons().count("ProfilePromoted") == 1
    assert max(len(each.once) for each in world.events) <= 90  # a notice's key holds it whole beside a uid


@pytest.mark.parametrize("final", [ROLLS_BACK, HOLDS])
def test_what_is_not_promoted_is_remembered_and_not_replayed_again(final: object) -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.judge(final)  # type: ignore[arg-type]
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert [(each["digest"], each["rollout"]) for each in world.status["rejectedProfiles"]] == [(B.digest, name)]
    assert [key[:2] for key in world.fates] == [(B.digest, "Rejected")]
    assert world.condition("Gating") == ("False", "Decided")
    world.propose(A)
    assert world.condition("Gating") == ("False", "NoCandidate")
    world.propose(B)
    assert world.condition("Gating") == ("False", "RejectedBefore")
    assert list(world.rollouts) == [name]


def test_what_could_not_be_measured_says_nothing_of_the_candidate() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.judge(LOST)
    assert world.condition("Succeeded", name) == ("False", "NotMeasured")
    assert "rejectedProfiles" not in world.status and world.fates == {}
    assert world.condition("Gating") == ("False", "Waiting")
    assert list(world.rollouts) == [name]
    world.propose(C).propose(B)
    assert world.newest == f"{name}-2"
    assert world.condition("Gating") == ("True", "RolloutRunning")


def test_a_newer_candidate_takes_the_place_of_the_one_that_runs() -> None:
    world = World().ready().propose(B)
    first = world.newest
    world.comes_to(verdict(prefills=3))
    world.propose(C)
    second = world.newest
    assert second != first
    assert world.condition("Superseded", first) == ("True", "NewerCandidate")
    assert world.condition("Succeeded", first) == ("False", "Superseded")
    assert world.condition("PromotionAllowed", first) == ("False", "Superseded")
    assert world.of(first)["supersededBy"] == second
    assert world.of(first)["prefills"] == "0 bad of 3"
    assert world.rollouts[second]["spec"]["supersedes"] == first
    assert [each.key for each in world.done if isinstance(each, StopWork)] == ["uid-1"]
    assert world.status["currentRollout"] == second
    assert [work.key for work in world.works.values() if work.kind is WorkKind.JUDGE] == ["uid-2"]
    assert "rejectedProfiles" not in world.status


def test_a_candidate_that_is_taken_back_is_withdrawn_and_may_come_again() -> None:
    world = World().ready().propose(B)
    first = world.newest
    world.propose(A)
    assert world.condition("Superseded", first) == ("True", "CandidateWithdrawn")
    assert world.condition("Gating") == ("False", "NoCandidate")
    world.propose(B)
    assert list(world.rollouts) == [first, f"{first}-2"]
    assert world.condition("Gating") == ("True", "RolloutRunning")
