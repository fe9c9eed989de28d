"""After a promotion: a small replay whenever it is due, and what an alarm of one comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.moments import moment
from prefillgate.core.decision import Reason
from prefillgate.core.verdict import Outcome
from prefillgate.evidence.book_rows import Watch
from prefillgate.profiles import Profile
from prefillgate.reconcile.effects import EndWatch, KeepWatch, StartWork, StopWork
from prefillgate.reconcile.naming import digest_in, watch_key
from prefillgate.reconcile.question import question_of
from prefillgate.reconcile.snapshot import ArmSeen, Slot, Trouble, WatchFound, WorkKind, WorkState
from tests.lines.test_rereading import A2, B2, kept
from tests.support.line_world import HOLDS, PROMOTES, SOUND, SPEC, STANDARD, TWELVE, A, B, C, World, verdict

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


def key_of(world: World, of: Profile, number: int) -> str:
    return watch_key(of.digest, since_of(world), question_of(world.look()), number)


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
    key = key_of(world, B, 1)
    assert watches(world) == [
        StartWork(key, WorkKind.WATCH, B.digest, seed=watches(world)[0].seed, prefills=4, after=None, previous=None)
    ]


def test_each_replay_follows_the_one_before_and_what_was_missed_is_not_made_up_for() -> None:
    world = due(promoted(prefills=2))
    ended = world.now
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    first = key_of(world, B, 1)
    assert world.watches[LINE] == Watch(LINE, ended + DAY, ended, first)
    told = world.status["watch"]
    assert (told["lastAt"], told["nextAt"], told["lastRun"]) == (moment(ended), moment(ended + DAY), first)
    assert (told["prefills"], told["badPrefills"], told["message"]) == (4, 0, "0 bad of 4 since the promotion.")
    assert world.told_reasons().count("WatchEnded") == 1
    world.now += 10 * DAY
    world.settle()
    (_, second) = watches(world)
    assert (second.key, second.after, second.prefills) == (key_of(world, B, 2), first, 2)
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
    assert world.settle().look_again_seconds == 30 - 1
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
    assert watches(due(world))[-1].key == key_of(world, C, 1)


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


# What keeps a replay from going on

REFUSED = "policy: the store was begun with other numbers"


def refused(world: World, seconds: float = 300, state: WorkState = WorkState.REFUSED) -> World:
    """The replay that runs is refused."""
    (key,) = (each.key for each in world.works.values() if each.kind is WorkKind.WATCH and each.watch is None)
    retry = world.now + seconds
    world.works[key] = replace(world.works[key], state=state, trouble=REFUSED, retry_at=retry)
    world.settle()
    return world


@pytest.mark.parametrize("state", [WorkState.REFUSED, WorkState.BROKEN])
def test_a_replay_that_broke_off_is_told_until_one_comes_to_its_end(state: WorkState) -> None:
    world = refused(due(promoted()), state=state)
    assert world.condition("Watching") == ("False", "WatchInterrupted")
    assert told_of_line(world, "Watching").endswith(REFUSED)
    told = [(each.warning, REFUSED in each.note) for each in world.events if each.reason == "WatchInterrupted"]
    assert told == [(True, True)]
    for _ in range(10):  # not told anew with each try
        world.now += 300
        world.settle()
        assert world.works[watches(world)[-1].key].state is WorkState.RUNNING
        assert world.condition("Watching") == ("False", "WatchInterrupted")
        refused(world, state=state)
    assert [each.reason for each in world.events].count("WatchInterrupted") == 1
    world.now += 300
    world.settle()
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    assert world.condition("Watching") == ("True", "WatchScheduled")


def test_one_that_broke_off_though_a_line_was_only_suspended_is_no_news() -> None:
    world = due(promoted()).change(suspend=True)
    (key,) = (each.key for each in world.works.values() if each.kind is WorkKind.WATCH)
    stopped = replace(world.works[key], state=WorkState.BROKEN, trouble="The line is suspended.")
    world.settle()
    world.works[key] = stopped
    world.change(suspend=False)
    world.settle()
    assert world.condition("Watching") == ("True", "WatchScheduled")
    assert "WatchInterrupted" not in world.told_reasons()


def _another_policy(world: World) -> None:
    assert world.policy is not None
    world.policy = replace(world.policy, sha256="e" * 64)


EDITS: dict[str, Callable[[World], Any]] = {
    "policy": _another_policy,
    "cases": lambda world: setattr(world, "cases", replace(TWELVE, sha256="e" * 64)),
    "name of the cases": lambda world: setattr(world, "cases", replace(TWELVE, name="others")),
    "isolation": lambda world: world.change(baseline={**SPEC["baseline"], "isolation": {"mode": "Shared"}}),
    "model": lambda world: world.change(model="another"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_begun_replay_cannot_go_on_as_begins_as_another_one_after_the_last_that_ended(edit: str) -> None:
    world = due(promoted())
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    before = watches(due(world))[-1]
    EDITS[edit](world)
    world.settle()
    if any(each.kind is WorkKind.FLOOR and each.state is WorkState.RUNNING for each in world.works.values()):
        world.ends(WorkKind.FLOOR, floor=SOUND)
        world.settle()
    after = watches(world)[-1]
    assert after.key == key_of(world, B, 2) != before.key
    assert (after.after, after.seed != before.seed) == (before.after, True)
    assert [key for key, each in world.works.items() if each.watch is None and each.kind is WorkKind.WATCH] == [
        after.key
    ]
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    assert watches(due(world))[-1].after == after.key
    assert watches(world)[-1].key == key_of(world, B, 3)


def test_what_a_replay_came_to_is_told_though_another_question_is_asked_by_then() -> None:
    world = due(promoted(previous="Retain"))
    world.ends(WorkKind.WATCH, watch=CONFIRMED)
    _another_policy(world)
    world.settle()
    assert world.condition("RollbackAllowed") == ("True", "RegressionConfirmed")
    assert len(watches(world)) == 1


def test_an_old_question_asked_again_takes_no_replay_that_was_counted_once_more() -> None:
    world = due(promoted())
    policies = (world.policy, replace(STANDARD, sha256="e" * 64)) * 3
    for number, policy in enumerate(policies, start=1):
        world.policy = policy
        world.settle()
        assert watches(world)[-1].key == key_of(world, B, number)
        world.ends(WorkKind.WATCH, watch=replace(QUIET, prefills=4 * number))
        world.settle()
        due(world)
    assert world.told_reasons().count("WatchEnded") == len(policies)
    assert world.status["watch"]["prefills"] == 4 * len(policies)


def test_a_profile_that_is_read_otherwise_goes_on_with_its_replays() -> None:
    world = World()
    world.spec["watch"] = {"everySeconds": DAY}
    world.reading, world.templates = "0" * 16, {Slot.BASELINE: kept("old-1"), Slot.CANDIDATE: kept("new-1")}
    world.ready().propose(B).judge(PROMOTES)
    world.ends(WorkKind.FLOOR, floor=SOUND)
    due(world).ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    last = watches(world)[-1].key
    world.reading, world.slots = "1" * 16, {Slot.BASELINE: A2, Slot.CANDIDATE: B2}
    world.settle()
    world.ends(WorkKind.FLOOR, floor=SOUND)
    again = watches(due(world))[-1]
    assert (again.baseline, again.after, again.key) == (B2.digest, last, key_of(world, B2, 2))
    assert digest_in(last)[7:] == B.digest[7:19]
    assert world.status["watch"]["prefills"] == 4


def test_a_spec_that_cannot_be_read_leaves_what_is_told_of_the_watch() -> None:
    world = due(promoted())
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    told = world.status["watch"]
    world.change(watch={"everySeconds": "often"})
    world.settle()
    assert world.condition("Accepted") == ("False", "SpecInvalid")
    assert (world.condition("Watching"), world.status["watch"]) == (("True", "WatchScheduled"), told)


@pytest.mark.parametrize("word", ["hold", "rollback"])
def test_a_rollout_that_a_person_stopped_holds_no_replay_of_the_promoted_profile_back(word: str) -> None:
    world = promoted()
    world.propose(C)
    world.annotate(world.newest, override=word, override_reason="until Monday", override_actor="alice")
    world.settle()
    assert watches(due(world)) == []  # its replay has not come to its end yet
    outcome = Outcome.HOLD if word == "hold" else Outcome.ROLLBACK
    world.ends(WorkKind.JUDGE, verdict=verdict(outcome, Reason.OVERRIDE, 9))
    world.settle()
    assert len(watches(world)) == 1
    assert world.condition("Watching") == ("True", "WatchScheduled")
    world.ends(WorkKind.WATCH, watch=QUIET)
    world.settle()
    world.annotate(world.newest, override=None, override_reason=None, override_actor=None)
    world.settle()
    assert len(watches(due(world))) == 1
    assert told_of_line(world, "Watching").endswith(f"{world.newest} is judged first.")


def test_a_rollout_whose_replay_is_refused_holds_no_replay_of_the_promoted_profile_back() -> None:
    world = promoted()
    world.propose(C)
    world.comes_to(verdict(), state=WorkState.REFUSED, trouble="No such model.", retry_at=world.now + 9 * DAY)
    assert len(watches(due(world))) == 1


BROKEN_FLOOR = replace(SOUND, sound=False, sentence="One pass was slower.")


def test_a_broken_floor_is_measured_again_for_the_watch_once_it_is_old() -> None:
    world = World()
    world.spec |= {"watch": {"everySeconds": 3600}, "floor": {"maxAgeSeconds": DAY}}
    world.ready().propose(B).judge(PROMOTES)
    world.ends(WorkKind.FLOOR, floor=BROKEN_FLOOR)
    world.settle()
    (row,) = (each for each in world.floors.values() if each.baseline == B.digest)
    again = row.measured_at + DAY
    wanted = world.settle()
    assert wanted.look_again_seconds == world.watches[LINE].next_at - (world.now - 1)
    assert due(world).settle().look_again_seconds == again - (world.now - 1)
    assert world.condition("Watching") == ("False", "WatchWaiting")
    assert told_of_line(world, "Watching").endswith(
        f"The promoted profile differs from itself. It is compared with itself again at {moment(again)}."
    )
    floors = [each for each in world.started if each.kind is WorkKind.FLOOR]
    early = world.copy()
    early.now = again - 1
    early.step()
    assert [each for each in early.started if each.kind is WorkKind.FLOOR] == floors
    world.now = again
    world.settle()
    assert len([each for each in world.started if each.kind is WorkKind.FLOOR]) == len(floors) + 1
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    assert len(watches(world)) == 1


def test_a_broken_floor_is_not_measured_for_a_watch_that_is_off_or_not_due() -> None:
    for spec in ({}, {"watch": {"everySeconds": 30 * DAY}}):
        world = World()
        world.spec |= {"floor": {"maxAgeSeconds": DAY}, **spec}
        world.ready().propose(B).judge(PROMOTES)
        world.ends(WorkKind.FLOOR, floor=BROKEN_FLOOR)
        world.settle()
        world.now += 2 * DAY
        left = world.settle().look_again_seconds
        assert world.condition("InstrumentChecked") == ("False", "InstrumentBroken")
        assert left == (world.watches[LINE].next_at - (world.now - 1) if spec else None)
