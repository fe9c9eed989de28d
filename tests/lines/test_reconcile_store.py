"""A store that is away or was lost: nothing is begun, nothing lowered, nothing forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.api.kinds.line_status import MOST_REJECTED
from prefillgate.evidence.book_rows import Fate, Outcome
from prefillgate.reconcile.effects import CreateRollout, KeepFate, StartWork
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import WorkKind
from tests.support.line_world import HOLDS, PROMOTES, ROLLS_BACK, SOUND, A, B, C, World, profile, verdict

AWAY = "no route to host"


def test_while_the_store_is_away_nothing_begins_and_nothing_is_lowered() -> None:
    world = World().ready().propose(B)
    world.comes_to(verdict(prefills=7))
    world.settle()
    name, status = world.newest, world.status
    world.store_trouble = AWAY
    world.propose(C)
    assert list(world.rollouts) == [name]
    assert world.condition("StoreBehind") == ("Unknown", "StoreUnreachable")
    assert world.condition("Gating") == ("False", "Waiting")
    assert AWAY in str(world.status["conditions"])
    for kept in ("promotedProfile", "floor"):
        assert world.status[kept] == status[kept]
    assert world.of(name)["prefills"] == "0 bad of 7"
    world.restart()
    wanted = plan(world.look())
    assert not [
        each for each in (*wanted.before, *wanted.after) if isinstance(each, StartWork | CreateRollout | KeepFate)
    ]
    world.store_trouble = None
    world.settle()
    assert len(world.rollouts) == 2
    assert world.condition("StoreBehind") == ("False", "StoreCurrent")
    assert {"StoreUnreachable", "StoreCurrent"} <= set(world.told_reasons())


def test_an_answer_that_comes_while_the_store_is_away_waits_for_it() -> None:
    world = World().ready().propose(B)
    world.store_trouble = AWAY
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert "endedAt" not in world.of(world.newest)
    world.store_trouble = None
    world.settle()
    assert world.status["promotedProfile"]["digest"] == B.digest


def test_a_replay_that_runs_is_not_stopped_for_a_store_that_is_away() -> None:
    for kind, world in ((WorkKind.JUDGE, World().ready().propose(B)), (WorkKind.FLOOR, World())):
        world.settle()
        world.store_trouble = AWAY
        world.settle()
        assert [each.kind for each in world.works.values() if each.state == "running"] == [kind]


@pytest.mark.parametrize("final", [PROMOTES, ROLLS_BACK])
def test_a_store_that_was_lost_takes_nothing_back_and_is_given_what_the_status_knows(final: object) -> None:
    world = World().ready().propose(B).judge(final)  # type: ignore[arg-type]
    before, fates = world.status, dict(world.fates)
    world.fates.clear()
    world.settle()
    for kept in ("promotedProfile", "previousProfile", "rejectedProfiles"):
        assert world.status.get(kept) == before.get(kept)
    assert {key: each.outcome for key, each in world.fates.items()} == {
        key: each.outcome for key, each in fates.items()
    }
    assert world.condition("StoreBehind") == ("True", "StoreBehind")
    assert world.told_reasons().count("StoreBehind") == 1
    assert [row.kind for row in world.notices.values()].count("StoreBehind") == 1


def test_that_it_was_lost_stays_told_until_a_later_rollout_has_evidence() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    world.fates.clear()
    world.settle()
    world.now += 3600
    world.settle()
    assert world.condition("StoreBehind") == ("True", "StoreBehind")
    world.propose(C)
    world.comes_to(verdict(prefills=2))
    world.settle()
    assert world.condition("StoreBehind") == ("False", "StoreCurrent")


def test_a_rejection_that_only_the_status_knows_still_counts() -> None:
    world = World().ready().propose(B).judge(HOLDS).propose(A)
    world.fates.clear()
    world.rollouts.clear()
    world.slots[list(world.slots)[1]] = B
    assert not [each for each in plan(world.look()).before if isinstance(each, CreateRollout)]
    world.settle()
    assert world.condition("Gating") == ("False", "RejectedBefore")


def test_a_rejection_that_only_the_store_knows_still_counts() -> None:
    world = World().ready().propose(B).judge(HOLDS).propose(A)
    world.rollouts.clear()
    del world.line["status"]
    world.propose(B)
    assert world.rollouts == {}
    assert world.condition("Gating") == ("False", "RejectedBefore")
    assert [each["digest"] for each in world.status["rejectedProfiles"]] == [B.digest]
    assert world.condition("StoreBehind") == ("False", "StoreCurrent")


def test_the_last_word_about_a_profile_counts() -> None:
    world = World().ready()
    line = "team/chat/line-uid"
    for at, outcome in ((1.0, Outcome.REJECTED), (2.0, Outcome.PROMOTED)):
        fate = Fate(line, B.digest, outcome, f"r-{at}", "for a test", at)
        world.fates[fate.digest, str(outcome), fate.rollout] = fate
    world.settle()
    assert "rejectedProfiles" not in world.status
    again = Fate(line, B.digest, Outcome.REJECTED, "r-3", "for a test", 3.0)
    world.fates[again.digest, str(again.outcome), again.rollout] = again
    world.settle()
    assert [each["rollout"] for each in world.status["rejectedProfiles"]] == ["r-3"]


def test_the_status_holds_so_many_rejections_and_the_store_them_all() -> None:
    world = World().ready()
    for number in range(MOST_REJECTED + 2):
        fate = Fate(
            "team/chat/line-uid", profile(str(number)).digest, Outcome.REJECTED, f"r-{number}", "x", float(number)
        )
        world.fates[fate.digest, "Rejected", fate.rollout] = fate
    world.settle()
    told = [each["rollout"] for each in world.status["rejectedProfiles"]]
    assert told == [f"r-{number}" for number in range(2, MOST_REJECTED + 2)]


def test_a_run_that_has_fewer_rows_than_were_told_is_behind_until_it_has_them_again() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.comes_to(verdict(prefills=7))
    world.settle()
    rows = world.of(name)["evidence"]["rows"]
    world.works["uid-1"] = replace(world.works["uid-1"], rows=rows - 1, head="h-new", verdict=verdict(prefills=1))
    world.settle()
    assert world.condition("StoreBehind", name) == ("True", "StoreBehind")
    assert world.condition("StoreBehind") == ("True", "StoreBehind")
    world.works["uid-1"] = replace(world.works["uid-1"], rows=0, head=None, verdict=None)
    world.settle()
    assert world.condition("StoreBehind", name) == ("True", "StoreBehind")
    world.works["uid-1"] = replace(world.works["uid-1"], rows=rows, head="h-2", verdict=verdict(prefills=7))
    world.settle()
    assert world.condition("StoreBehind", name) == ("False", "StoreCurrent")


def test_a_status_that_nobody_can_read_loses_only_what_is_wrong_in_it() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    world.line["status"]["currentRollout"] = "NOT A NAME"
    world.line["status"]["watch"] = "never"
    world.settle()
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert [each["digest"] for each in world.status["rejectedProfiles"]] == [B.digest]
    assert world.status["currentRollout"] == world.newest


def test_a_status_that_was_lost_takes_the_promoted_profile_from_the_store() -> None:
    world = World().ready().propose(B).judge(PROMOTES)
    promoted = world.status["promotedProfile"]
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    world.rollouts.clear()
    del world.line["status"]
    world.settle()
    for kept in ("digest", "since", "how", "rollout"):
        assert world.status["promotedProfile"][kept] == promoted[kept]


def test_a_first_look_waits_for_a_store_that_is_away() -> None:
    world = World()
    world.store_trouble = AWAY
    world.settle()
    assert "promotedProfile" not in world.status
    assert world.condition("Accepted") == ("Unknown", "Pending")
    world.store_trouble = None
    world.settle()
    assert world.status["promotedProfile"]["how"] == "FirstSeen"


def test_a_rollout_whose_evidence_is_gone_says_so_ended_or_not_until_it_is_back() -> None:
    world = World().ready().propose(B)
    for final in (verdict(prefills=7), HOLDS):
        world.comes_to(final) if final is not HOLDS else world.judge(final)
        world.settle()
        name, decided = world.newest, world.of(world.newest)["decision"]
        world.gone.add(name)
        world.settle()
        assert world.condition("StoreBehind", name) == ("True", "EvidenceGone")
        assert world.condition("StoreBehind") == ("True", "EvidenceGone")
        (told,) = [each["message"] for each in world.of(name)["conditions"] if each["type"] == "StoreBehind"]
        assert "Restore its store from a backup" in told
        assert told.endswith(f"It was in {world.of(name)['evidence']['store']}.")
        assert world.of(name)["decision"] == decided
        world.gone.clear()
        world.settle()
        assert world.condition("StoreBehind", name) == ("False", "StoreCurrent")
        assert world.condition("StoreBehind") == ("False", "StoreCurrent")
    assert "endedAt" in world.of(name)


def test_a_store_that_is_away_changes_nothing_that_is_told_of_evidence_that_is_gone() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    world.gone.add(world.newest)
    world.settle()
    world.store_trouble = AWAY
    world.settle()
    assert world.condition("StoreBehind", world.newest) == ("True", "EvidenceGone")
    assert world.condition("StoreBehind") == ("Unknown", "StoreUnreachable")


def test_a_line_whose_store_was_lost_names_the_rollouts_without_evidence_and_the_next_step() -> None:
    world = World().ready().propose(B).judge(HOLDS)
    world.fates.clear()
    world.gone.update({world.newest, *(f"r-{number}" for number in range(6))})
    world.settle()
    (told,) = [each["message"] for each in world.status["conditions"] if each["type"] == "StoreBehind"]
    assert "Restore it from a backup with the controller stopped" in told
    assert told.endswith(f"Without evidence now: {world.newest}, r-0, r-1, r-2, r-3 and 2 more.")
    assert world.condition("StoreBehind") == ("True", "StoreBehind")
    world.gone.clear()
    world.settle()
    (told,) = [each["message"] for each in world.status["conditions"] if each["type"] == "StoreBehind"]
    assert told.endswith("it goes on with what it has.")
