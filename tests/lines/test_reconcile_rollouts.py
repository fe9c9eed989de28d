"""Rollouts: by hand, asked again, out of time, suspended, tried out, unavailable, pruned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.common import TemplateSeen
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.reconcile.effects import DeleteRollout, StartWork, StopWork, Tell
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import ArmSeen, Slot, Trouble, WorkKind, WorkState
from tests.support.line_world import (
    HOLDS,
    LOST,
    PROMOTES,
    ROLLS_BACK,
    SOUND,
    STANDARD,
    A,
    B,
    C,
    World,
    profile,
    verdict,
)


def judges(world: World) -> list[StartWork]:
    return [each for each in world.started if each.kind is WorkKind.JUDGE]


def messages(world: World, rollout: str | None, kind: str) -> str:
    thing = world.line if rollout is None else world.rollouts[rollout]
    return str(next(each["message"] for each in thing["status"]["conditions"] if each["type"] == kind))


# By hand


def test_one_made_by_hand_is_about_what_the_line_has_when_it_is_first_seen() -> None:
    world = World().ready()
    world.by_hand("mine", seed=7)
    world.settle()
    assert world.condition("Screened", "mine") == ("Unknown", "NotStarted")
    assert "candidate" not in world.of("mine") and "baseline" not in world.of("mine")
    world.propose(B)
    assert list(world.rollouts) == ["mine"]
    assert world.of("mine")["baseline"]["digest"] == A.digest
    assert world.of("mine")["candidate"]["digest"] == B.digest
    assert world.of("mine")["summary"] == "tensor split 3,1 -> 2,2"
    assert [(each.rollout, each.seed) for each in judges(world)] == [("mine", 7)]
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["rollout"] == "mine"


def test_one_made_by_hand_for_a_rejected_candidate_is_judged() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    world.by_hand("mine")
    world.settle()
    assert world.condition("Screened", "mine") == ("False", "Starting")
    assert world.status["currentRollout"] == "mine"
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["digest"] == B.digest
    assert "rejectedProfiles" not in world.status


def test_the_newer_of_two_about_the_same_candidate_takes_the_place_of_the_other() -> None:
    world = World().ready().propose(B)
    first = world.newest
    world.by_hand("mine")
    world.settle()
    assert world.condition("Superseded", first) == ("True", "NewerCandidate")
    assert world.of(first)["supersededBy"] == "mine"
    assert [each.rollout for each in judges(world)] == [first, "mine"]


def test_one_about_another_baseline_is_over() -> None:
    world = World().ready()
    world.by_hand("other", baseline={"digest": C.digest}, candidate={"digest": B.digest})
    world.settle()
    assert world.condition("Superseded", "other") == ("True", "BaselineChanged")
    assert world.of("other")["candidate"]["digest"] == B.digest


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"policy": {"name": "standard", "sha256": "f" * 64}}, "DigestMismatch", "spec.policy"),
        ({"replaySet": {"name": "cases", "sha256": "f" * 64}}, "DigestMismatch", "spec.replaySet"),
        (
            {"policy": {"name": "strict"}},
            "SpecInvalid",
            "spec.policy.name: strict is not the line's",
        ),
    ],
)
def test_one_made_for_other_numbers_or_cases_holds(spec: dict[str, Any], reason: str, field: str) -> None:
    world = World().ready()
    world.slots[Slot.CANDIDATE] = B
    world.by_hand("mine", **spec)
    world.settle()
    assert world.condition("Accepted", "mine") == ("False", reason)
    assert field in messages(world, "mine", "Accepted")
    assert world.of("mine")["decision"]["verdict"] == "Hold"
    decision = world.of("mine")["decision"]
    assert decision["reason"] == (reason if reason == "DigestMismatch" else "NotAccepted")  # a spec that can be read
    ways = {"DigestMismatch": "What was changed put back, or a rerun", "SpecInvalid": "What is named made anew or put"}
    assert decision["whatWouldChange"][0].startswith(ways[reason])
    assert decision["whatWouldChange"][1].startswith("An override by a person")
    assert judges(world) == [] and list(world.rollouts) == ["mine"]
    assert world.condition("Gating") == ("False", "Waiting")


def test_a_policy_that_changes_under_a_running_rollout_holds_it_until_it_is_as_before_or_a_rerun_is_asked() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.comes_to(verdict(prefills=4))
    world.settle()
    world.policy = replace(STANDARD, sha256="e" * 64)
    world.settle()
    assert world.condition("Accepted", name) == ("False", "DigestMismatch")
    assert world.of(name)["evidenceDecision"]["reason"] == "MoreEvidenceNeeded"
    assert [work.key for work in world.works.values() if work.state is WorkState.RUNNING] == []
    again = world.copy()
    again.policy = STANDARD
    again.settle()
    assert again.condition("Accepted", name) == ("True", "Accepted")
    assert again.of(name)["decision"]["reason"] == "MoreEvidenceNeeded"
    assert "evidenceDecision" not in again.of(name)
    world.annotate(rerun="with the new policy")
    world.settle()
    assert world.rollouts[world.newest]["spec"]["rerunOf"] == name
    assert world.rollouts[world.newest]["spec"]["policy"]["sha256"] == "e" * 64
    assert world.condition("Superseded", name) == ("True", "NewerCandidate")


# The same candidate


def test_a_candidate_whose_image_is_resolved_later_is_the_same_one() -> None:
    world = World().ready()
    world.down = {profile("2,2", resolved=False).digest: ArmSeen("x")}
    world.propose(profile("2,2", resolved=False))
    (name,) = world.rollouts
    assert name == f"chat-{profile('2,2', resolved=False).digest[7:15]}"
    world.propose(B)
    assert list(world.rollouts) == [name]
    assert world.of(name)["candidate"]["digest"] == B.digest
    assert judges(world)[0].candidate == B.digest
    world.judge(HOLDS)
    assert world.status["rejectedProfiles"][0]["digest"] == B.digest
    world.propose(A).propose(profile("2,2", resolved=False))
    assert world.condition("Gating") == ("False", "RejectedBefore")
    world.propose(profile("2,2", image="2"))  # the tag has moved
    assert len(world.rollouts) == 2


def test_a_promoted_profile_first_seen_unresolved_is_the_same_once_it_is() -> None:
    world = World()
    unresolved = profile("3,1", resolved=False)
    world.slots = {Slot.BASELINE: unresolved, Slot.CANDIDATE: unresolved}
    world.down = {unresolved.digest: ArmSeen(unresolved.digest)}
    world.settle()
    since = world.status["promotedProfile"]["since"]
    world.slots = {Slot.BASELINE: A, Slot.CANDIDATE: A}
    world.settle()
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["since"], promoted["how"]) == (A.digest, since, "FirstSeen")
    assert [each.baseline for each in world.started] == [A.digest]
    assert world.rollouts == {}


def kept_by(kind: str, name: str) -> TemplateSeen:
    return TemplateSeen.model_validate({"apiVersion": "apps/v1", "kind": kind, "name": name})


def test_where_a_template_is_kept_is_told_anew_once_more_than_the_workload_keeps_it() -> None:
    world = World().ready()
    world.templates[Slot.CANDIDATE] = kept_by("Deployment", "new")
    world.down = {B.digest: ArmSeen(B.digest)}
    world.propose(B)
    name = world.newest
    assert world.of(name)["candidate"]["template"]["kind"] == "Deployment"
    world.templates[Slot.CANDIDATE] = kept_by("ReplicaSet", "new-1")
    world.settle()
    assert world.of(name)["candidate"]["template"] == {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "new-1"}
    world.templates[Slot.CANDIDATE] = kept_by("ReplicaSet", "new-2")
    world.down = {}
    world.settle()
    assert world.of(name)["candidate"]["template"]["name"] == "new-1"
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["template"]["name"] == "new-1"


# One workload for both


def in_place() -> World:
    world = World()
    del world.spec["candidate"]
    world.slots = {Slot.BASELINE: A}
    return world.ready()


def test_a_workload_changed_in_place_is_the_candidate_and_what_differs_is_told() -> None:
    world = in_place().propose(B, Slot.BASELINE)
    spec = world.rollouts[world.newest]["spec"]
    assert spec["differences"] == ["tensor split 3,1 -> 2,2"]
    assert {each["name"]: each["value"] for each in spec["baseline"]["settings"]}["tensor split"] == "3,1"
    assert world.status["promotedProfile"]["digest"] == A.digest
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["digest"] == B.digest
    assert world.condition("Gating") == ("False", "NoCandidate")


def test_a_workload_that_is_rolled_back_in_place_after_a_promotion_is_a_candidate_again() -> None:
    world = in_place().propose(B, Slot.BASELINE).judge(PROMOTES)
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.propose(A, Slot.BASELINE)
    assert len(world.rollouts) == 2
    assert world.rollouts[world.newest]["spec"]["candidate"]["digest"] == A.digest


def test_the_previous_profile_in_a_slot_of_its_own_is_no_new_candidate() -> None:
    world = World().ready().propose(B).judge(PROMOTES)
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert len(world.rollouts) == 1
    assert world.condition("Gating") == ("False", "NoCandidate")
    world.propose(C, Slot.BASELINE)
    assert len(world.rollouts) == 2
    assert world.rollouts[world.newest]["spec"]["baseline"]["digest"] == B.digest


def promoted_b() -> World:
    """B was promoted and A, the previous profile, stands in its workload still."""
    world = World().ready().propose(B).judge(PROMOTES)
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert world.condition("Gating") == ("False", "NoCandidate")
    return world


def ask(world: World, how: str) -> World:
    if how == "rerun":
        world.annotate(rerun="1")
    elif how == "by hand":
        world.by_hand("mine")
    else:
        world.by_hand("mine", candidate={"digest": A.digest})
    world.settle()
    return world


@pytest.mark.parametrize("how", ["rerun", "by hand", "by hand and named"])
def test_the_previous_profile_is_judged_and_promoted_again_where_a_person_asks(how: str) -> None:
    world = ask(promoted_b(), how)
    assert len(world.rollouts) == 2
    asked = world.newest
    assert (world.status["candidate"]["digest"], world.status["currentRollout"]) == (A.digest, asked)
    assert world.condition("Gating") == ("True", "RolloutRunning")
    assert [(each.baseline, each.candidate) for each in judges(world)][-1] == (B.digest, A.digest)
    held = world.copy()
    world.judge(PROMOTES)
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["how"], promoted["rollout"]) == (A.digest, "Promoted", asked)
    assert world.status["previousProfile"]["digest"] == B.digest
    assert world.condition("Gating") == ("False", "NoCandidate") and len(world.rollouts) == 2
    held.judge(HOLDS)
    assert held.condition("Gating") == ("False", "Decided")
    assert held.status["decision"] == "Hold" and len(held.rollouts) == 2
    held.restart()
    held.settle()
    assert held.status["candidate"]["digest"] == A.digest and len(held.rollouts) == 2
    held.annotate(asked, rerun="once more")
    held.settle()
    assert len(held.rollouts) == 3 and held.rollouts[held.newest]["spec"]["rerunOf"] == asked


def test_what_was_asked_of_the_previous_profile_is_asked_no_more_once_another_candidate_took_its_place() -> None:
    world = ask(promoted_b(), "rerun")
    asked = world.newest
    world.propose(C, Slot.BASELINE)
    assert world.condition("Superseded", asked) == ("True", "NewerCandidate")
    world.judge(HOLDS)
    world.propose(A, Slot.BASELINE)
    assert world.condition("Gating") == ("False", "NoCandidate")
    made = len(world.rollouts)
    world.annotate(asked, rerun="2")
    world.settle()
    assert len(world.rollouts) == made + 1
    assert world.rollouts[world.newest]["spec"]["candidate"]["digest"] == A.digest


def test_the_previous_profile_is_no_candidate_by_a_rollout_of_before_the_promotion_or_of_another_baseline() -> None:
    world = ask(promoted_b(), "rerun").judge(PROMOTES)
    world.now += 100
    world.annotate(rerun="and forth")
    world.settle()
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["digest"] == B.digest
    assert world.condition("Gating") == ("False", "NoCandidate")  # B -> A was promoted before A -> B
    world.by_hand("other", baseline={"digest": C.digest}, candidate={"digest": A.digest})
    world.settle()
    assert world.condition("Gating") == ("False", "NoCandidate")
    assert world.condition("Superseded", "other") == ("True", "BaselineChanged")


def test_a_rerun_on_the_rollout_that_promoted_says_where_to_ask() -> None:
    world = promoted_b()
    world.annotate(world.newest, rerun="1")
    world.settle()
    (refused,) = (each for each in world.events if each.reason == "RerunRefused")
    assert refused.note.endswith(
        "it is about other profiles than the line has now; a rerun on the line is about those."
    )
    assert world.condition("Gating") == ("False", "NoCandidate") and len(world.rollouts) == 1
    alone = promoted_b()
    alone.slots = {Slot.BASELINE: B, Slot.CANDIDATE: B}
    alone.annotate(rerun="1")
    alone.settle()
    (refused,) = (each for each in alone.events if each.reason == "RerunRefused")
    assert refused.note.endswith("1: no workload says another profile than the one in production.")


def test_what_was_promoted_once_and_comes_back_is_judged_anew() -> None:
    world = World().ready()
    for slot, wanted in ((Slot.CANDIDATE, B), (Slot.BASELINE, C), (Slot.CANDIDATE, A), (Slot.BASELINE, B)):
        world.propose(wanted, slot).judge(PROMOTES)
        assert world.status["promotedProfile"]["digest"] == wanted.digest
        if any(each.state is WorkState.RUNNING for each in world.works.values()):
            world.ends(WorkKind.FLOOR, floor=SOUND)
            world.settle()
    assert len(world.rollouts) == 4
    assert [each.baseline for each in world.started if each.kind is WorkKind.FLOOR] == [A.digest, B.digest, C.digest]


# Asked again


def test_a_rerun_of_a_rejected_candidate_is_a_new_rollout_once() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    first = world.newest
    world.annotate(rerun="2026-11-30")
    world.settle()
    second = world.newest
    assert second.startswith(f"{first}-r") and world.rollouts[second]["spec"]["rerunOf"] == first
    assert world.status["lastHandledRerun"] == "2026-11-30"
    assert "RerunStarted" in world.told_reasons()
    world.judge(HOLDS)
    assert list(world.rollouts) == [first, second]
    world.annotate(rerun="2026-12-01")
    world.settle()
    assert len(world.rollouts) == 3
    assert len({each.seed for each in judges(world)}) == 3


def test_a_rerun_may_be_asked_on_the_rollout_itself() -> None:
    world = World().ready().propose(B).judge(LOST)
    first = world.newest
    world.annotate(first, rerun="please")
    world.settle()
    assert world.rollouts[world.newest]["spec"]["rerunOf"] == first
    assert world.of(first)["lastHandledRerun"] == "please"
    world.judge(PROMOTES)
    assert len(world.rollouts) == 2


@pytest.mark.parametrize("on", ["line", "rollout"])
def test_a_rerun_of_what_is_not_there_or_runs_is_refused_with_an_event(on: str) -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.annotate(None if on == "line" else name, rerun="now")
    world.settle()
    assert list(world.rollouts) == [name]
    (refused,) = [each for each in world.events if each.reason == "RerunRefused"]
    assert refused.warning and refused.rollout == (None if on == "line" else name)
    assert f"{name} is not decided yet" in refused.note
    world.judge(HOLDS).propose(A)
    world.annotate(None if on == "line" else name, rerun="later")
    world.settle()
    assert list(world.rollouts) == [name]
    assert world.told_reasons(None if on == "line" else name).count("RerunRefused") == 2


def test_a_rerun_on_a_rollout_of_other_profiles_is_refused() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    first = world.newest
    world.propose(C).judge(HOLDS)
    world.annotate(first, rerun="now")
    world.settle()
    (refused,) = [each for each in world.events if each.reason == "RerunRefused"]
    assert "it is about other profiles than the line has now" in refused.note


# Suspended, tried out, deleted


def test_a_suspended_line_ends_what_runs_and_goes_on_where_it_was() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.comes_to(verdict(prefills=5))
    world.settle()
    world.change(suspend=True)
    world.settle()
    assert world.condition("Gating") == ("False", "Suspended")
    assert world.condition("Screened", name) == ("False", "Suspended")
    assert [each.why for each in world.done if isinstance(each, StopWork)] == ["The line is suspended."]
    assert world.of(name)["prefills"] == "0 bad of 5"
    world.propose(C)
    assert len(world.rollouts) == 2 and len(judges(world)) == 1
    world.change(suspend=None)
    world.settle()
    assert len(judges(world)) == 2


def test_a_dry_run_tells_all_and_allows_promotes_and_remembers_nothing() -> None:
    world = World()
    world.spec["dryRun"] = True
    world.ready().propose(B).judge(PROMOTES)
    first = world.newest
    assert world.condition("Succeeded", first) == ("True", "PassedDryRun")
    assert world.condition("PromotionAllowed", first) == ("False", "DryRun")
    decision = world.of(first)["decision"]
    assert (decision["verdict"], decision["promotion"], decision["rollback"]) == ("Promote", "Blocked", "Refused")
    assert world.status["promotedProfile"]["digest"] == A.digest
    world.propose(C).judge(ROLLS_BACK)
    assert world.condition("Succeeded", world.newest) == ("False", "FailedDryRun")
    assert world.condition("RollbackAllowed") == ("False", "DryRun")
    assert world.fates == {} and "rejectedProfiles" not in world.status
    assert world.condition("Gating") == ("False", "Decided")
    world.change(dryRun=None)
    world.settle()
    assert len(world.rollouts) == 3
    world.judge(ROLLS_BACK)
    assert world.condition("RollbackAllowed") == ("True", "RegressionConfirmed")


def test_a_line_that_goes_away_ends_what_runs_and_decides_nothing() -> None:
    world = World().ready().propose(B)
    world.line["metadata"] = {**world.line["metadata"], "deletionTimestamp": moment(world.now)}
    world.settle()
    assert [each.why for each in world.done if isinstance(each, StopWork)] == ["The line is being deleted."]
    assert world.condition("PromotionAllowed", world.newest) == ("False", "Deleting")
    assert world.works == {key: each for key, each in world.works.items() if each.state is not WorkState.RUNNING}
    world.propose(C)
    assert len(world.rollouts) == 1


def test_a_rollout_that_is_deleted_while_it_runs_gives_way_to_another_and_its_replay_ends() -> None:
    world = World().ready().propose(B)
    first = world.newest
    del world.rollouts[first]
    world.settle()
    assert list(world.rollouts) == [first]  # the name is free again, the object another one
    assert [each.key for each in world.done if isinstance(each, StopWork)] == ["uid-1"]
    assert [each.key for each in judges(world)] == ["uid-1", "uid-2"]


def test_a_rejected_one_that_is_deleted_is_remembered() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    world.rollouts.clear()
    world.settle()
    assert world.rollouts == {}
    assert world.condition("Gating") == ("False", "RejectedBefore")


# Time


def deadlined(world: World | None = None) -> World:
    world = world or World()
    world.spec["deadlineSeconds"] = 3600
    return world


def test_one_that_never_could_begin_holds_at_its_deadline_and_is_not_rejected() -> None:
    world = deadlined()
    world.down = {B.digest: ArmSeen(B.digest)}
    world.ready()
    wanted = world.propose(B).settle()
    name = world.newest
    created = seconds_of(world.rollouts[name]["metadata"]["creationTimestamp"])
    assert created is not None and wanted.look_again_seconds == created + 3600 - (world.now - 1)
    assert world.of(name)["deadlineAt"] == moment(created + 3600)
    world.now = created + 3599
    assert plan(world.look()).rollouts == {}
    world.now = created + 3600
    world.settle()
    assert world.condition("Succeeded", name) == ("False", "Held")
    assert world.of(name)["decision"]["reason"] == "Deadline"
    assert "An arm has no Ready pod." in messages(world, name, "Succeeded")
    assert world.fates == {} and "rejectedProfiles" not in world.status
    world.down = {}
    world.settle()
    assert list(world.rollouts) == [name] and judges(world) == []
    world.propose(A).propose(B)
    assert list(world.rollouts) == [name, f"{name}-2"] and len(judges(world)) == 1


def test_a_replay_that_runs_ends_itself_at_the_deadline_it_was_given() -> None:
    world = deadlined().ready().propose(B)
    name = world.newest
    created = seconds_of(world.rollouts[name]["metadata"]["creationTimestamp"])
    assert created is not None and judges(world)[0].must_end_at == created + 3600
    world.now += 3600
    world.settle()
    assert "endedAt" not in world.of(name)
    world.restart()
    world.settle()
    assert "endedAt" not in world.of(name) and len(judges(world)) == 2


def test_a_replay_that_broke_off_and_cannot_go_on_ends_at_the_deadline_with_what_it_has() -> None:
    world = deadlined().ready().propose(B)
    name = world.newest
    world.comes_to(verdict(prefills=6), state=WorkState.BROKEN, trouble="no route", retry_at=world.now + 9000)
    world.now += 3600
    world.settle()
    assert world.condition("Succeeded", name) == ("False", "Held")
    assert world.of(name)["prefills"] == "0 bad of 6"
    assert world.of(name)["decision"]["reason"] == "Deadline"


def test_a_broken_replay_is_tried_again_at_its_time_and_a_refused_one_says_why() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.comes_to(verdict(), state=WorkState.BROKEN, trouble="Connection reset.", retry_at=world.now + 90)
    wanted = world.settle()
    assert wanted.look_again_seconds == 90 - 1
    assert "Connection reset." in messages(world, name, "Screened")
    world.now += 90
    world.settle()
    assert len(judges(world)) == 2
    world.restart()
    world.settle()
    world.comes_to(verdict(), state=WorkState.REFUSED, trouble="The store is damaged.", retry_at=None)
    world.settle()
    assert world.condition("Succeeded", name) == ("False", "NotMeasured")
    assert "The store is damaged." in messages(world, name, "Succeeded")


def test_a_refused_replay_that_may_be_mended_holds_and_goes_on() -> None:
    world = World().ready().propose(B)
    name = world.newest
    retry = world.now + 600
    world.comes_to(verdict(), state=WorkState.REFUSED, trouble="No such model.", retry_at=retry)
    world.settle()
    assert world.of(name)["decision"]["reason"] == "MeasurementLost"
    assert world.of(name)["decision"]["measured"] is False
    assert "endedAt" not in world.of(name)
    world.works["uid-1"] = replace(world.works["uid-1"], state=WorkState.RUNNING, retry_at=None, trouble="")
    world.settle()
    assert world.of(name)["decision"]["reason"] == "MoreEvidenceNeeded"


def test_a_rollout_whose_replay_is_refused_says_what_mends_it_and_gives_way_to_a_rerun() -> None:
    world = World().ready().propose(B)
    name = world.newest
    trouble = "isolation: the store was begun with exclusive, now shared is asked for"
    for _ in range(3):
        retry = world.now + 300
        world.comes_to(verdict(), state=WorkState.REFUSED, trouble=trouble, retry_at=retry)
        world.settle()
        assert trouble in world.of(name)["decision"]["sentences"]
        assert "prefillgate.io/rerun" in world.of(name)["decision"]["whatWouldChange"][0]
        world.now = retry
        world.settle()
        assert len(world.rollouts) == 1
    (told,) = (each for each in world.events if each.reason == "ReplayRefused")
    assert told.warning and told.rollout == name
    tries = [each for each in world.done if isinstance(each, Tell) and each.reason == "ReplayRefused"]
    assert len(tries) == 1  # not at each look
    assert trouble in told.note and "prefillgate.io/rerun" in told.note
    world.comes_to(verdict(), state=WorkState.REFUSED, trouble=trouble, retry_at=world.now + 300)
    world.annotate(rerun="now")
    world.settle()
    assert world.newest != name and world.rollouts[world.newest]["spec"]["rerunOf"] == name
    assert world.condition("Superseded", name) == ("True", "NewerCandidate")
    assert judges(world)[-1].key == "uid-2"
    assert "RerunRefused" not in world.told_reasons()
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["digest"] == B.digest


# Availability


def test_a_candidate_that_takes_no_requests_may_be_rolled_back_at_once_and_is_judged_when_it_is_back() -> None:
    world = World().ready()
    world.down = {B.digest: ArmSeen(B.digest, unavailable="CrashLoopBackOff: exit code 1")}
    world.propose(B)
    name = world.newest
    assert world.condition("RollbackAllowed", name) == ("True", "CandidateUnavailable")
    assert world.condition("RollbackAllowed") == ("True", "CandidateUnavailable")
    assert world.condition("EndpointsReady") == ("False", "CandidateUnavailable")
    assert world.of(name)["decision"]["verdict"] == "Rollback"
    assert "CrashLoopBackOff: exit code 1" in str(world.of(name)["decision"]["sentences"])
    assert "rejectedProfiles" not in world.status and "endedAt" not in world.of(name)
    assert "CandidateUnavailable" in world.told_reasons(name)
    world.down = {}
    world.settle()
    assert world.condition("RollbackAllowed", name) == ("False", "NotStarted")
    assert len(judges(world)) == 1


def test_a_candidate_that_became_unavailable_while_it_was_replayed_is_not_rejected_for_ever() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.judge(replace(ROLLS_BACK, decision=replace(ROLLS_BACK.decision, reason="CandidateUnavailable")))
    assert world.condition("Succeeded", name) == ("False", "RollbackAllowed")
    assert "rejectedProfiles" not in world.status and world.fates == {}
    assert list(world.rollouts) == [name]


# History


def test_ended_rollouts_beyond_the_limit_are_removed_the_oldest_first() -> None:
    world = World()
    world.spec["historyLimit"] = 2
    world.ready()
    for number in range(4):
        world.propose(profile(f"{number},9")).judge(HOLDS)
    names = [each.name for each in world.done if isinstance(each, DeleteRollout)]
    assert len(world.rollouts) == 2 and len(names) == 2
    assert world.told_reasons().count("RolloutPruned") == 2
    assert world.status["currentRollout"] == world.newest
    assert len(world.status["rejectedProfiles"]) == 4


def test_the_one_that_the_line_tells_of_and_those_that_run_are_kept() -> None:
    world = World()
    world.spec["historyLimit"] = 1
    world.ready().propose(B).judge(PROMOTES)
    kept = world.newest
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.propose(C, Slot.BASELINE)
    running = world.newest
    assert list(world.rollouts) == [kept, running]
    world.propose(A, Slot.BASELINE)
    assert world.status["currentRollout"] == running
    assert list(world.rollouts) == [running]


def test_the_deadline_of_the_policy_counts_from_the_first_cell_and_the_earlier_one_is_told() -> None:
    world = World()
    world.policy = replace(STANDARD, deadline_seconds=600.0)
    world.ready().propose(B)
    name = world.newest
    assert "deadlineAt" not in world.of(name)
    world.comes_to(verdict())
    world.settle()
    started = seconds_of(world.of(name)["startedAt"])
    assert started is not None and world.of(name)["deadlineAt"] == moment(started + 600)
    world.change(deadlineSeconds=60)
    world.settle()
    created = seconds_of(world.rollouts[name]["metadata"]["creationTimestamp"])
    assert created is not None and world.of(name)["deadlineAt"] == moment(created + 60)


def test_a_line_that_was_not_read_whole_yet_ends_nothing_and_begins_nothing() -> None:
    world = World().ready().propose(B)
    world.comes_to(verdict(prefills=3))
    world.settle()
    world.cases = None
    world.settle()
    assert world.condition("Accepted") == ("Unknown", "Pending")
    assert [each.key for each in world.works.values() if each.state is WorkState.RUNNING] == ["uid-1"]
    assert world.of(world.newest)["prefills"] == "0 bad of 3"
    world.restart()
    world.settle()
    assert world.works == {}


SOUND_TOLD = ("True", "InstrumentSound")


def test_what_was_edited_or_deleted_under_a_rollout_is_named_with_what_makes_it_go_on() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.comes_to(verdict())
    world.settle()
    policy = world.policy
    assert policy is not None
    for there, troubles, reason in (
        (replace(policy, sha256="e" * 64), (), "DigestMismatch"),
        (None, (Trouble("PolicyNotFound", "spec.policyRef.name", "There is no PromotionPolicy p."),), "NotAccepted"),
    ):
        world.policy, world.troubles = there, troubles
        world.settle()
        decision = world.of(name)["decision"]
        assert (decision["verdict"], decision["reason"]) == ("Hold", reason)
        assert not decision["sentences"][0].startswith("The specification")
        assert world.condition("Screened", name) == ("False", "ScreenInterrupted")
        assert world.condition("InstrumentChecked", name) == world.condition("InstrumentChecked") == SOUND_TOLD
        assert not any(each.state is WorkState.RUNNING for each in world.works.values())
        world.policy, world.troubles = policy, ()
        world.settle()
        world.comes_to(verdict(prefills=60))
        world.settle()
        assert world.of(name)["decision"]["reason"] == "MoreEvidenceNeeded"
        assert world.condition("Screened", name) == ("False", "Screening")


def test_a_workload_that_cannot_be_read_takes_back_no_candidate() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.troubles = (Trouble("WorkloadNotFound", "spec.candidate.workloadRef", "There is no Deployment new."),)
    del world.slots[Slot.CANDIDATE]
    world.settle()
    assert world.condition("Accepted") == ("False", "WorkloadNotFound")
    assert world.condition("Superseded", name) == ("False", "Current")
    assert "spec.candidate.workloadRef: There is no Deployment new." in messages(world, None, "Accepted")
    assert world.condition("PromotionAllowed", name) == ("False", "NotAccepted")
    assert world.of(name)["decision"]["whatWouldChange"][0].startswith("What is named made anew or put right")
    assert world.condition("InstrumentChecked", name) == world.condition("InstrumentChecked") == SOUND_TOLD
    world.troubles = ()
    world.propose(B)
    assert world.condition("Screened", name) == ("False", "Starting")
    assert list(world.rollouts) == [name]


def test_an_answer_by_a_clock_that_is_behind_promotes_all_the_same() -> None:
    world = World().ready().propose(B)
    work = world.ends(WorkKind.JUDGE, verdict=PROMOTES)
    world.works[work.key] = replace(work, ended_at=world.now - 900)
    world.settle()
    assert world.status["promotedProfile"]["digest"] == B.digest


def test_what_another_version_of_the_controller_wrote_stands_and_stops_nothing() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    name = world.newest
    strange = {**world.of(name)["conditions"][0], "type": "Blessed", "reason": "ByTheNextVersion"}
    for thing in (world.line, world.rollouts[name]):
        thing["status"] = {**thing["status"], "conditions": [*thing["status"]["conditions"], strange], "aura": "good"}
    succeeded = next(each for each in world.of(name)["conditions"] if each["type"] == "PromotionAllowed")
    succeeded["reason"] = "ForAReasonOfLater"
    world.annotate(name, override="rollback", override_reason="why", override_actor="alice")
    world.settle()
    assert world.condition("RollbackAllowed", name) == ("True", "Override")
    assert "Blessed" in [each["type"] for each in world.of(name)["conditions"]]
    assert "Blessed" not in [each["type"] for each in world.status["conditions"]]


def test_a_running_replay_is_told_of_the_servers_at_every_look_while_they_take_requests() -> None:
    world = World().ready().propose(B)
    wanted = plan(world.look())
    assert [each.key for each in wanted.after if isinstance(each, StartWork)] == ["uid-1"]
    world.down = {B.digest: ArmSeen(B.digest)}
    wanted = plan(world.look())
    assert [each for each in wanted.after if isinstance(each, StartWork)] == []
    world.settle()
    assert [each.state for each in world.works.values() if each.kind is WorkKind.JUDGE] == [WorkState.RUNNING]


def test_a_line_that_was_not_read_whole_ends_what_runs_where_it_is_suspended() -> None:
    world = World().ready().propose(B)
    world.cases = None
    world.change(suspend=True)
    world.settle()
    assert [each for each in world.works.values() if each.state is WorkState.RUNNING] == []


def test_settings_that_a_status_lacks_are_told_while_a_workload_says_the_promoted_profile() -> None:
    world = World().ready()
    told = world.status["promotedProfile"]
    world.line["status"] = {
        **world.status,
        "promotedProfile": {key: each for key, each in told.items() if key != "settings"},
    }
    world.settle()
    assert world.status["promotedProfile"] == told
    other = [{"area": "Other", "name": "kept", "value": "as it was"}]
    world.line["status"] = {**world.status, "promotedProfile": {**told, "settings": other}}
    world.settle()
    assert world.status["promotedProfile"]["settings"] == other


def test_what_a_rollout_allowed_is_not_allowed_by_the_line_once_its_candidate_is_gone() -> None:
    world = World().ready().propose(B).judge(ROLLS_BACK)
    assert world.condition("RollbackAllowed") == ("True", "RegressionConfirmed")
    world.propose(A)
    assert world.condition("Gating") == ("False", "NoCandidate")
    for kind in ("PromotionAllowed", "RollbackAllowed"):
        assert world.condition(kind) == ("False", "NoRollout")
    told = [world.status.get(name) for name in ("decision", "promotion", "rollback", "reason", "prefills")]
    assert told == [None, "Blocked", "Refused", "NoRollout", None]
    world.propose(B)
    assert (world.status["decision"], world.status["rollback"]) == ("Rollback", "Allowed")


def test_what_takes_no_requests_is_not_promoted_by_its_numbers_until_it_comes_back() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.ends(WorkKind.JUDGE, verdict=PROMOTES)
    world.down[B.digest] = ArmSeen(B.digest, (), unavailable="CrashLoopBackOff")
    world.settle()
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert world.condition("RollbackAllowed") == ("True", "CandidateUnavailable")
    assert "endedAt" not in world.of(name)
    other = world.copy()
    world.down.clear()
    world.settle()
    assert world.status["promotedProfile"]["digest"] == B.digest
    other.change(deadlineSeconds=60)
    other.now += 3600
    other.settle()
    assert other.condition("Succeeded", name) == ("False", "Held")


def test_an_answer_against_what_takes_no_requests_stands() -> None:
    world = World().ready().propose(B)
    world.down[B.digest] = ArmSeen(B.digest, (), unavailable="CrashLoopBackOff")
    world.judge(HOLDS)
    assert world.condition("Succeeded", world.newest) == ("False", "Held")


def test_a_rejection_is_remembered_though_the_status_has_no_room_for_it() -> None:
    world = World().ready()
    for number in range(52):
        world.now += 50
        world.propose(profile(f"9,{number}")).judge(HOLDS)
    assert len(world.status["rejectedProfiles"]) == 50
    told = world.told_reasons().count("ProfileRejected")
    assert told == 52
    started = len(world.started)
    world.propose(profile("9,0"))
    assert world.condition("Gating") == ("False", "RejectedBefore")
    assert len(world.started) == started
    assert world.told_reasons().count("ProfileRejected") == told
