"""What is written and told: few statuses, one event a transition, notices that are kept until they were told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.api.kinds.line_status import ContentsSeen
from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.reasons import EVENTS, ROWS
from prefillgate.core.decision import Reason
from prefillgate.reconcile.effects import KeepNotice, NoticeTold, Tell
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import ArmSeen, Slot, WorkKind
from prefillgate.reconcile.waits import FIRST_CELL_SECONDS, PATIENCE_SECONDS
from tests.support.line_world import HOLDS, PROMOTES, ROLLS_BACK, SOUND, A, B, C, Killed, World, replicate, verdict

GOAL = 15  # writes of ServingLine and ProfileRollout for a whole rollout


def replayed(world: World, cells: int = 100) -> None:
    """A replay of so many prefills on each arm: a look after every one of them."""
    for prefills in range(1, cells + 1):
        world.comes_to(verdict(prefills=prefills))
        world.now += 40
        world.step()


def test_a_whole_rollout_takes_few_writes_however_many_cells_it_has() -> None:
    world = World().ready()
    before = len(world.writes)
    world.propose(B)
    replayed(world)
    world.judge(PROMOTES)
    assert len(world.writes) - before <= GOAL


def test_so_does_one_with_an_alarm_and_two_replicates() -> None:
    world = World().ready()
    before = len(world.writes)
    world.propose(B)
    for reason, views in (
        (Reason.MORE_EVIDENCE_NEEDED, ()),
        (Reason.REPLICATE_DUE, ()),
        (Reason.REPLICATE_RUNNING, (replicate(),)),
        (Reason.MORE_EVIDENCE_NEEDED, (replicate(1, "clean"),)),
    ):
        for prefills in (3, 4, 5):
            told = verdict(reason=reason, prefills=prefills, alarm="Replicate" in reason, replicates=views)
            world.comes_to(told)
            world.settle()
    world.judge(HOLDS)
    assert len(world.writes) - before <= GOAL + 1


def test_no_cell_makes_a_status_but_each_quarter_of_the_budget_does() -> None:
    world = World().ready().propose(B)
    replayed(world, 20)
    before = len(world.writes)
    told = []
    for prefills in range(21, 101):
        world.comes_to(verdict(prefills=prefills))
        world.settle()
        told.append(world.of(world.newest)["prefills"])
    assert list(dict.fromkeys(told)) == ["0 bad of 1", "0 bad of 25", "0 bad of 50", "0 bad of 75", "0 bad of 100"]
    assert len(world.writes) - before == 2 * 4


def test_what_stands_in_config_maps_is_told_and_kept_while_nobody_knows() -> None:
    world = World().ready()
    seen = ContentsSeen(name="tuning", mark=f"{'0' * 8}-{'a' * 32}", since="2026-11-20T00:00:00Z")
    gone = ContentsSeen(name="tuning", since="2026-11-21T00:00:00Z")
    wire = {"name": "tuning", "mark": seen.mark, "since": seen.since}
    for known, told in (
        ((seen,), [wire]),
        (None, [wire]),
        ((gone,), [{"name": "tuning", "since": gone.since}]),
        ((), None),
    ):
        world.carry_out(plan(replace(world.look(), config_maps=known)))
        assert world.status.get("configMaps") == told


def test_time_that_passes_changes_no_status() -> None:
    world = World().ready().propose(B)
    world.comes_to(verdict())
    world.settle()
    for day in range(1, 40):
        world.now += 3600 * day
        assert plan(world.look()).rollouts == {}
        before = len(world.writes)
        world.step()
        assert len(world.writes) == before


def test_an_idle_line_need_not_be_looked_at_again() -> None:
    world = World()
    assert world.ready().settle().look_again_seconds is None
    world.propose(B).judge(HOLDS)
    assert world.settle().look_again_seconds is None


def test_a_wait_is_told_once_it_has_lasted_and_a_short_one_never() -> None:
    world = World().ready().propose(B)
    name, since = world.newest, world.now
    world.comes_to(verdict(), waiting="WaitingForIdle", waiting_since=since)
    wanted = world.settle()
    assert world.condition("Screened", name) == ("False", "Screening")
    assert wanted.look_again_seconds == since + PATIENCE_SECONDS - (world.now - 1)
    world.now = since + PATIENCE_SECONDS - 1
    world.step()
    assert world.condition("Screened", name) == ("False", "Screening")
    world.now = since + PATIENCE_SECONDS
    world.step()
    assert world.condition("Screened", name) == ("False", "WaitingForIdle")
    assert world.condition("Gating") == ("True", "RolloutRunning")


def test_that_a_replay_runs_is_told_once_it_does() -> None:
    world = World()
    world.step()
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorDue")
    (key,) = world.works
    waiting = replace(world.works[key], waiting="WaitingForTurn", waiting_since=world.now)
    running, world.works[key] = world.works[key], waiting
    world.settle()
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorDue")
    world.now += PATIENCE_SECONDS
    world.step()
    (said,) = (each["message"] for each in world.status["conditions"] if each["type"] == "InstrumentChecked")
    assert said.endswith("The controller runs as many replays as it may; its turn comes.")
    world.works[key] = running
    world.step()
    assert world.condition("InstrumentChecked") == ("Unknown", "FloorRunning")
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()

    world.propose(B)
    name = world.newest
    assert world.condition("Screened", name) == ("False", "Starting")
    *_, key = world.works
    running, since = world.works[key], world.now
    world.works[key] = replace(running, waiting="WaitingForTurn", waiting_since=since)
    wanted = world.step()
    assert wanted.look_again_seconds == PATIENCE_SECONDS
    assert world.condition("Screened", name) == ("False", "Starting")
    world.now = since + PATIENCE_SECONDS
    world.step()
    assert world.condition("Screened", name) == ("False", "WaitingForTurn")
    world.works[key] = running  # its turn has come, long after it was begun
    world.step()
    assert world.condition("Screened", name) == ("False", "Screening")


def test_a_first_prefill_that_takes_long_runs_all_the_same() -> None:
    world = World().ready().propose(B)
    name = world.newest
    begun = next(each.started_at for each in world.works.values() if each.kind is WorkKind.JUDGE)
    world.now = begun + FIRST_CELL_SECONDS - 1
    assert world.step().look_again_seconds == 1.0
    assert world.condition("Screened", name) == ("False", "Starting")
    world.now = begun + FIRST_CELL_SECONDS
    world.step()
    assert world.condition("Screened", name) == ("False", "Screening")


def test_after_a_hold_it_is_not_said_to_run_before_its_turn_nor_after_its_end() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.comes_to(verdict(prefills=3))
    world.settle()
    assert world.condition("Screened", name) == ("False", "Screening")
    world.change(suspend=True)
    world.settle()
    assert world.condition("Screened", name) == ("False", "Suspended")
    world.change(suspend=None)
    world.step()
    assert world.condition("Screened", name) == ("False", "ScreenInterrupted")
    *_, key = world.works
    world.works[key] = replace(world.works[key], waiting="WaitingForTurn", waiting_since=world.now)
    world.settle()
    assert world.condition("Screened", name) == ("False", "ScreenInterrupted")
    world.works[key] = replace(world.works[key], waiting="", waiting_since=None)
    world.settle()
    assert world.condition("Screened", name) == ("False", "Screening")
    world.propose(C)
    assert world.condition("Succeeded", name) == ("False", "Superseded")
    assert world.condition("Screened", name) == ("False", "ScreenInterrupted")


def test_a_process_that_takes_up_what_ran_writes_nothing_for_it() -> None:
    world = World().ready().propose(B)
    world.comes_to(verdict(prefills=3))
    world.settle()
    writes = len(world.writes)
    world.restart()
    world.settle()
    assert len(world.writes) == writes and world.condition("Screened", world.newest) == ("False", "Screening")


# Events


def test_every_event_has_a_reason_of_a_table_and_its_weight() -> None:
    world = World().ready().propose(B).judge(HOLDS).propose(C).propose(A).propose(B)
    world.annotate(rerun="x")
    world.settle()
    world.judge(ROLLS_BACK)
    rows = {reason: row.warning for (_, reason), row in ROWS.items()}
    assert world.events
    for each in world.events:
        wanted = EVENTS[each.reason].warning if each.reason in EVENTS else rows[each.reason]
        assert each.warning == wanted and len(each.note) <= 1000 and each.note


def test_a_first_look_at_a_sound_line_is_no_news() -> None:
    world = World()
    world.settle()
    assert world.events == []


def test_what_differs_is_told_in_words_and_the_end_with_its_numbers() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.judge(ROLLS_BACK)
    notes = {(each.reason, each.rollout): each.note for each in world.events}
    assert notes["RolloutCreated", None] == f"A rollout was made for a new candidate. {name}: tensor split 3,1 -> 2,2."
    assert "Fresh prefills of the candidate: 8 bad of 20." in notes["RollbackAllowed", name]
    assert notes["ProfileRejected", None].endswith(f"{B.digest[7:19]}, by {name}: RegressionConfirmed.")


def message(world: World, kind: str, name: str) -> str:
    """What a rollout's condition says."""
    return next(each["message"] for each in world.of(name)["conditions"] if each["type"] == kind)


def test_each_permission_is_told_with_the_sentence_that_is_about_it() -> None:
    world = World().ready().propose(B)
    name = world.newest
    told = ("Promotion is allowed: 2 bad in 35.", "Rollback is refused: 2 bad requests hang off 2 bad prefills.")
    world.judge(replace(PROMOTES, decision=replace(PROMOTES.decision, sentences=told)))
    assert message(world, "PromotionAllowed", name).endswith(told[0])
    assert message(world, "RollbackAllowed", name).endswith(told[1])


def test_a_baseline_whose_workload_was_changed_in_place_is_told_with_what_to_do() -> None:
    world = World().ready()
    world.down = {A.digest: ArmSeen(A.digest)}
    world.settle()
    missing = "An arm has no Ready pod. The baseline has none."
    assert of_line(world, "EndpointsReady") == missing
    world.propose(B, Slot.BASELINE).propose(B)
    assert of_line(world, "EndpointsReady").startswith(f"{missing} Its workload was changed in place")
    assert "isolation Scratch" in of_line(world, "EndpointsReady")


def of_line(world: World, kind: str) -> str:
    """What a condition of the line says."""
    return next(each["message"] for each in world.status["conditions"] if each["type"] == kind)


def test_the_permissions_are_told_when_they_change_and_not_with_every_reason() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.comes_to(verdict())
    world.settle()
    assert "MoreEvidenceNeeded" not in world.told_reasons(name)
    world.judge(PROMOTES)
    assert world.told_reasons(name).count("AcceptanceReached") == 1


def test_a_transition_that_comes_again_is_told_again() -> None:
    world = World().ready()
    for _ in range(2):
        world.propose(B).propose(A)
    assert world.told_reasons().count("NoCandidate") == 2
    assert world.told_reasons().count("RolloutCreated") == 2


# Notices


def test_weighty_news_is_kept_before_anything_is_written_and_told_after_it() -> None:
    world = World().ready().propose(B)
    world.ends(WorkKind.JUDGE, verdict=ROLLS_BACK)
    wanted = plan(world.look())
    kept = [each.notice for each in wanted.before if isinstance(each, KeepNotice)]
    assert {"RegressionConfirmed", "RollbackAllowed", "ProfileRejected"} <= {each.kind for each in kept}
    told = [each for each in wanted.after if isinstance(each, Tell | NoticeTold)]
    for notice in kept:
        after = [each for each in told if isinstance(each, NoticeTold) and each.key == notice.key]
        assert len(after) == 1 and notice.line == "team/chat/line-uid" and notice.made_at == world.now
    world.settle()
    assert all(row.sent_at is not None for row in world.notices.values())


def test_a_notice_whose_event_was_never_written_is_told_by_the_next_controller() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.ends(WorkKind.JUDGE, verdict=PROMOTES)
    wanted = plan(world.look())
    with pytest.raises(Killed):
        world.carry_out(wanted, at_most=len(wanted.before) + len(wanted.rollouts) + 1)
    assert "Promoted" not in world.told_reasons(name)
    world.restart()
    world.settle()
    assert world.told_reasons(name).count("Promoted") == 1
    assert world.told_reasons().count("ProfilePromoted") == 1
    assert all(row.sent_at is not None for row in world.notices.values())
    written = len(world.done)
    world.step()
    assert [each for each in world.done[written:] if isinstance(each, Tell | NoticeTold)] == []


def test_notices_are_mirrored_in_the_statuses_the_newest_last() -> None:
    world = World().ready().propose(B)
    name = world.newest
    world.comes_to(verdict(reason=Reason.REPLICATE_DUE, prefills=4, bad=3, alarm=True))
    world.settle()
    world.judge(ROLLS_BACK)
    of_rollout = world.of(name)["notices"]
    assert of_rollout[0]["message"].startswith("Bad fresh prefills raised an alarm")
    assert "The candidate may be rolled back." in of_rollout[-1]["message"]
    assert [each["at"] for each in of_rollout] == sorted(each["at"] for each in of_rollout)
    assert ["ProfileRejected" in each["key"] or "rejected" in each["key"] for each in world.status["notices"]] == [True]


def test_a_status_keeps_the_last_twenty() -> None:
    world = World().ready()
    for number in range(25):
        world.slots[list(world.slots)[1]] = replace(B, findings=(str(number),))
        world.annotate(rerun=str(number))
        world.settle()
        world.judge(HOLDS)
        world.now += 1
    told = world.status["notices"]
    assert len(told) == 20
    assert told[-1]["at"] == max(moment(row.made_at) for row in world.notices.values())


def test_without_a_store_events_are_told_and_no_notice_is_lost_or_kept() -> None:
    world = World().ready().propose(B)
    world.store_trouble = "away"
    world.settle()
    assert "StoreUnreachable" in world.told_reasons()
    wanted = plan(world.look())
    assert not [each for each in (*wanted.before, *wanted.after) if isinstance(each, KeepNotice | NoticeTold)]


def test_a_floor_that_ends_without_a_candidate_is_told_by_its_transition_alone() -> None:
    world = World()
    world.settle()
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert world.told_reasons() == ["InstrumentSound"]


def test_pods_that_start_with_every_new_candidate_are_no_news() -> None:
    world = World().ready()
    world.down = {B.digest: ArmSeen(B.digest)}
    world.propose(B)
    world.down = {B.digest: ArmSeen(B.digest, world.arm("x").servers, asked=False)}
    world.settle()
    assert world.condition("EndpointsReady") == ("Unknown", "Probing")
    assert not {"NoReadyPods", "Probing"} & set(world.told_reasons())
    world.down = {B.digest: ArmSeen(B.digest, unreachable="NetworkPolicy")}
    world.settle()
    assert "EndpointUnreachable" in world.told_reasons()
