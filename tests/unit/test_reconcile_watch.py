"""After a promotion: a small replay whenever it is due, and what an alarm of one comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.moments import moment
from prefillgate.evidence.book_rows import Watch
from prefillgate.reconcile.effects import EndWatch, KeepWatch, StartWork, StopWork
from prefillgate.reconcile.naming import watch_key
from prefillgate.reconcile.snapshot import ArmSeen, Slot, Trouble, WatchFound, WorkKind, WorkState
from tests.support.line_world import HOLDS, PROMOTES, SOUND, A, B, C, World

DAY = 86_400
LINE = "team/chat/line-uid"
QUIET = WatchFound(4, 0, False, "0 bad of 4 since the promotion.")


def promoted(**watch: Any) -> World:
    """A line that watches what it has promoted, its floor known."""
    world = World()
    world.spec["watch"] = {"everySeconds": DAY, **watch}
    world.ready().propose(B).judge(PROMOTES)
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    return world


def due(world: World) -> World:
    world.now = world.watches[LINE].next_at
    world.settle()
    return world


def watches(world: World) -> list[StartWork]:
    return [each for each in world.started if each.kind is WorkKind.WATCH]


def since_of(world: World) -> str:
    return str(world.status["promotedProfile"]["since"])


def test_nothing_is_watched_before_the_gate_has_promoted_anything() -> None:
    world = World()
    world.spec["watch"] = {"everySeconds": DAY}
    wanted = world.ready().settle()
    assert world.condition("Watching") == ("False", "NothingPromoted")
    assert world.watches == {} and wanted.look_again_seconds is None
    assert "watch" not in world.status


def test_the_first_replay_is_due_so_long_after_the_promotion() -> None:
    world = promoted()
    ended = world.of(world.newest)["endedAt"]
    assert world.condition("Watching") == ("True", "WatchScheduled")
    (row,) = world.watches.values()
    assert moment(row.next_at - DAY) == ended == since_of(world)
    assert row == Watch(LINE, row.next_at, None, None)
    assert world.status["watch"] == {
        "nextAt": moment(row.next_at),
        "prefills": 0,
        "badPrefills": 0,
        "alarm": False,
    }
    assert world.settle().look_again_seconds == row.next_at - (world.now - 1)
    world.now = row.next_at - 1
    world.step()
    assert watches(world) == []
    due(world)
    key = watch_key(B.digest, since_of(world), 1)
    assert watches(world) == [
        StartWork(key, WorkKind.WATCH, B.digest, seed=watches(world)[0].seed, prefills=4, after=None, previous=None)
    ]


def test_each_replay_follows_the_one_before_and_what_was_missed_is_not_made_up_for() -> None:
    world = due(promoted(prefills=2))
    ended = world.now
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    first = watch_key(B.digest, since_of(world), 1)
    assert world.watches[LINE] == Watch(LINE, ended + DAY, ended, first)
    told = world.status["watch"]
    assert (told["lastAt"], told["nextAt"], told["lastRun"]) == (moment(ended), moment(ended + DAY), first)
    assert (told["prefills"], told["badPrefills"], told["message"]) == (4, 0, "0 bad of 4 since the promotion.")
    assert world.told_reasons().count("WatchEnded") == 1
    world.now += 10 * DAY
    world.settle()
    (_, second) = watches(world)
    assert (second.key, second.after, second.prefills) == (watch_key(B.digest, since_of(world), 2), first, 2)
    assert second.seed != watches(world)[0].seed


@pytest.mark.parametrize(("previous", "digest"), [("None", None), ("Retain", A.digest), ("Scratch", A.digest)])
def test_the_previous_profile_is_named_where_a_replicate_may_have_its_servers(
    previous: str, digest: str | None
) -> None:
    assert [each.previous for each in watches(due(promoted(previous=previous)))] == [digest]


def alarmed(**found: Any) -> World:
    world = due(promoted(previous="Retain"))
    told = WatchFound(8, 5, True, "5 bad of 8: an alarm.")
    world.ends(WorkKind.WATCH, watch=replace(told, **found))
    world.settle()
    return world


def test_an_alarm_without_a_baseline_only_warns() -> None:
    world = alarmed(reason="AlarmWithoutBaseline")
    assert world.condition("AlarmRaised") == ("True", "AlarmWithoutBaseline")
    assert world.condition("RollbackAllowed") == ("False", "AcceptanceReached")
    assert (world.status["decision"], world.status["rollback"]) == ("Promote", "Refused")
    assert world.status["watch"]["alarm"] is True
    assert [each.warning for each in world.events if each.reason == "AlarmWithoutBaseline"] == [True]
    assert "AlarmWithoutBaseline" in [row.kind for row in world.notices.values()]


def test_an_alarm_that_could_not_be_answered_stands() -> None:
    assert alarmed(reason="MeasurementLost").condition("AlarmRaised") == ("True", "Alarm")


def test_an_alarm_that_a_replicate_confirmed_allows_the_rollback_of_what_was_promoted() -> None:
    world = alarmed(alarm=False, reason="RegressionConfirmed", rollback=True)
    assert world.condition("AlarmRaised") == ("False", "AlarmAnswered")
    assert world.condition("RollbackAllowed") == ("True", "RegressionConfirmed")
    assert world.condition("PromotionAllowed") == ("False", "RegressionConfirmed")
    told = [world.status[name] for name in ("decision", "promotion", "rollback", "reason")]
    assert told == ["Rollback", "Blocked", "Allowed", "RegressionConfirmed"]
    assert world.status["promotedProfile"]["digest"] == B.digest
    world.restart()
    world.settle()
    assert world.condition("RollbackAllowed") == ("True", "RegressionConfirmed")
    world.propose(C)
    assert world.status["currentRollout"] == world.newest
    assert (world.status["decision"], world.status["rollback"]) == ("Continue", "Allowed")
    assert world.condition("RollbackAllowed") == ("True", "RegressionConfirmed")
    assert world.condition("PromotionAllowed") == ("False", "NotStarted")
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["digest"] == C.digest
    assert (world.status["rollback"], world.condition("RollbackAllowed")[0]) == ("Refused", "False")


def told_of_line(world: World, kind: str) -> str:
    return str(next(each["message"] for each in world.status["conditions"] if each["type"] == kind))


CONFIRMED = WatchFound(8, 5, False, "5 bad of 8.", "RegressionConfirmed", True)


@pytest.mark.parametrize("withdrawn", [False, True])
def test_what_was_promoted_may_be_rolled_back_though_another_rollout_is_shown(withdrawn: bool) -> None:
    world = promoted(previous="Retain")
    world.propose(C).judge(HOLDS)
    held = world.newest
    if withdrawn:
        world.propose(B)
    due(world).ends(WorkKind.WATCH, watch=CONFIRMED)
    world.settle()
    assert world.status["currentRollout"] == held
    assert world.condition("RollbackAllowed") == ("True", "RegressionConfirmed")
    assert B.digest[7:19] in told_of_line(world, "RollbackAllowed")
    told = [world.status.get(name) for name in ("decision", "promotion", "rollback", "reason", "prefills")]
    assert told == (
        ["Rollback", "Blocked", "Allowed", "RegressionConfirmed", None]
        if withdrawn
        else ["Hold", "Blocked", "Allowed", "BudgetSpent", "3 bad of 80"]
    )


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (CONFIRMED, "WatchAlarmed"),
        (WatchFound(8, 5, True, "5 bad of 8.", "AlarmWithoutBaseline"), "WatchAlarmed"),
        (QUIET, "WatchEnded"),
    ],
)
def test_a_replay_that_ends_in_an_alarm_is_told_as_a_warning_and_kept_until_it_was(
    found: WatchFound, reason: str
) -> None:
    world = due(promoted(previous="Retain"))
    world.ends(WorkKind.WATCH, watch=found)
    world.settle()
    weighty = reason == "WatchAlarmed"
    (told,) = (each for each in world.events if each.reason in ("WatchAlarmed", "WatchEnded"))
    assert (told.reason, told.warning, told.rollout) == (reason, weighty, None)
    assert (reason in [row.kind for row in world.notices.values()]) is weighty
    allowed = [(each.warning, each.note) for each in world.events if each.reason == "RegressionConfirmed"]
    assert [warning for warning, _ in allowed] == ([True] if found.rollback else [])


def test_an_alarm_that_was_not_confirmed_is_answered() -> None:
    world = alarmed(reason="RegressionNotConfirmed")
    assert world.condition("AlarmRaised") == ("False", "AlarmAnswered")
    assert world.condition("RollbackAllowed") == ("False", "AcceptanceReached")


def test_nothing_is_replayed_while_a_candidate_is_judged_or_the_servers_or_the_floor_are_not_there() -> None:
    world = promoted()
    busy = world.copy()
    busy.propose(C)
    assert watches(due(busy)) == []
    away = world.copy()
    away.down = {B.digest: ArmSeen(B.digest)}
    assert watches(due(away)) == []
    away.down = {}
    away.settle()
    assert len(watches(away)) == 1
    other = world.copy()
    for known in (other.floors, other.works, other.journals):
        known.clear()
    other.line["status"] = {key: value for key, value in other.status.items() if key != "floor"}
    assert watches(due(other)) == []


def test_one_that_runs_goes_on_through_a_restart_and_one_that_broke_is_tried_again() -> None:
    world = due(promoted())
    key = watches(world)[0].key
    world.restart()
    world.settle()
    assert [each.key for each in watches(world)] == [key, key]
    world.works[key] = replace(world.works[key], state=WorkState.BROKEN, retry_at=world.now + 30, trouble="lost")
    assert world.settle().look_again_seconds == 30
    world.now += 30
    world.settle()
    assert len(watches(world)) == 3


def test_one_that_runs_is_ended_once_where_the_line_cannot_be_used_and_begun_again_where_it_can() -> None:
    world = due(promoted())
    world.troubles = (Trouble("CasesNotFound", "spec.replaySetRef", "gone"),)
    world.settle()
    assert len([each for each in world.done if isinstance(each, StopWork)]) == len(watches(world)) == 1
    assert told_of_line(world, "Watching").endswith("The line cannot be used as it is.")
    world.troubles = ()
    world.settle()
    assert len(watches(world)) == 2


def test_another_promotion_begins_another_watch() -> None:
    world = due(promoted())
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    world.propose(C, Slot.BASELINE).judge(PROMOTES)
    assert world.watches[LINE].last_run is None
    assert moment(world.watches[LINE].next_at - DAY) == since_of(world)
    assert world.status["watch"]["prefills"] == 0 and "lastRun" not in world.status["watch"]
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert watches(due(world))[-1].key == watch_key(C.digest, since_of(world), 1)


def test_another_interval_counts_from_the_last_replay() -> None:
    world = promoted()
    first = world.watches[LINE].next_at
    world.change(watch={"everySeconds": 3600})
    world.settle()
    assert world.watches[LINE].next_at == first - DAY + 3600


def test_the_schedule_is_in_the_status_where_the_book_was_lost() -> None:
    world = due(promoted())
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    row = world.watches.pop(LINE)
    world.settle()
    assert world.watches[LINE] == replace(row, next_at=float(int(row.next_at)), last_at=float(int(row.last_at or 0)))


def test_a_line_that_asks_for_no_watch_any_more_or_goes_away_ends_it() -> None:
    for end in (lambda each: each.change(watch=None), _deleted):
        world = promoted()
        end(world)
        world.settle()
        assert world.watches == {}
        assert [each for each in world.done if isinstance(each, EndWatch)] == [EndWatch(LINE)]


def _deleted(world: World) -> None:
    world.line["metadata"] = {**world.line["metadata"], "deletionTimestamp": moment(world.now)}


def test_a_suspended_line_keeps_its_schedule_and_replays_nothing() -> None:
    world = promoted()
    row = world.watches[LINE]
    world.change(suspend=True)
    world.settle()
    assert world.condition("Watching") == ("False", "Suspended")
    assert world.watches[LINE] == row
    assert watches(due(world)) == []
    assert world.settle().look_again_seconds is None
    assert len([each for each in world.done if isinstance(each, KeepWatch)]) == 1


@pytest.mark.parametrize("down", [{"unavailable": "CrashLoopBackOff"}, {}])
def test_a_candidate_that_cannot_run_holds_no_replay_of_the_promoted_profile_back(down: dict[str, str]) -> None:
    world = promoted()
    world.down[C.digest] = ArmSeen(C.digest, (), **down)
    world.slots = {Slot.BASELINE: C, Slot.CANDIDATE: B}
    world.settle()
    (started,) = watches(due(world))
    assert started.baseline == B.digest
    assert world.condition("Watching") == ("True", "WatchScheduled")


def test_a_replay_that_is_due_says_what_it_waits_for_and_begins_once_it_may() -> None:
    world = promoted()
    world.slots = {Slot.BASELINE: C, Slot.CANDIDATE: B}
    world.settle()
    assert world.condition("Watching") == ("True", "WatchScheduled")  # not due yet
    due(world)
    assert watches(world) == []
    assert world.condition("Watching") == ("False", "WatchWaiting")
    assert told_of_line(world, "Watching").endswith(f"{world.newest} is judged first.")
    away = world.copy()
    world.judge(HOLDS)
    assert len(watches(world)) == 1
    assert world.condition("Watching") == ("True", "WatchScheduled")
    away.down = {B.digest: ArmSeen(B.digest)}
    away.settle()
    assert told_of_line(away, "Watching").endswith("The promoted profile takes no requests.")
