"""The loop of a leader: what asks for a look, what comes of it, and what goes wrong without stopping anything else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.app import logs, loop
from prefillgate.evidence.book import open_book
from prefillgate.evidence.fence import Fence
from prefillgate.kube.objects import EVENTS, PROFILE_ROLLOUTS, PROMOTION_POLICIES, REPLAY_SETS, SERVING_LINES
from prefillgate.reconcile.effects import CreateRollout, Plan, Tell
from prefillgate.reconcile.snapshot import BookSeen, LineSnapshot, WorkKind, WorkSeen, WorkState
from tests.support.controllers import Controller, a_fate, ends, generation_seen, line
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Object, Write
from tests.support.manual_clock import until

Make = Callable[..., Controller]
USER = Write("somebody")
ERRORS = ("Conflict", "Terminal", "Transient")


def put(fake: FakeApi, *names: str) -> None:
    for name in names:
        fake.store.create(fake._of(SERVING_LINES), "default", line(name), USER)


def found(fake: FakeApi, name: str, plural: str = "servinglines") -> Object:
    return fake.store.objects[plural, "default", name]


def written(fake: FakeApi, name: str) -> bool:
    thing = found(fake, name)
    return bool(thing.get("status", {}).get("observedGeneration") == thing["metadata"]["generation"])


def touch(fake: FakeApi, name: str) -> None:
    thing = found(fake, name)
    fake.store.update(
        fake._of(SERVING_LINES), "default", name, {**thing, "spec": {"n": thing["metadata"]["generation"]}}, USER
    )


def events(fake: FakeApi) -> list[Object]:
    return [obj for (plural, _, _), obj in fake.store.objects.items() if plural == EVENTS.plural]


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(row) for row in capsys.readouterr().err.splitlines()]


def value(controller: Controller, name: str, **labels: str) -> float:
    return controller.process._metrics.registry.get_sample_value(f"prefillgate_{name}", labels) or 0.0


async def renewals(fake: FakeApi, times: int) -> None:
    """Until the Lease was renewed so often: time goes by, and the controller lives."""
    before = fake.calls.count(("update", "leases"))
    await until(lambda: fake.calls.count(("update", "leases")) >= before + times)


async def test_every_change_of_a_line_is_looked_at(fake: FakeApi, controller: Make) -> None:
    put(fake, "a", "b")
    one = controller().start()
    await until(lambda: written(fake, "a") and written(fake, "b"))
    touch(fake, "a")
    await until(lambda: written(fake, "a"))
    assert found(fake, "a")["status"]["observedGeneration"] == 2
    assert one.sights[0].looks.count("default/b") < one.sights[0].looks.count("default/a")


async def test_statuses_of_policies_and_replay_sets_are_written(fake: FakeApi, controller: Make) -> None:
    for kind in (PROMOTION_POLICIES, REPLAY_SETS):
        fake.store.create(fake._of(kind), "default", line("x"), USER)
    controller().start()
    await until(
        lambda: found(fake, "x", "replaysets").get("status") and found(fake, "x", "promotionpolicies").get("status")
    )
    assert found(fake, "x", "replaysets")["status"] == {"cases": 3}
    assert found(fake, "x", "promotionpolicies")["status"] == {"observedGeneration": 1}


async def test_nothing_is_asked_of_the_api_server_while_nothing_changes(fake: FakeApi, controller: Make) -> None:
    put(fake, "a", "b", "c")
    one = controller().start()
    await until(lambda: all(written(fake, name) for name in "abc"))
    await renewals(fake, 3)  # the looks that our own writes asked for
    fake.calls.clear()
    looks = len(one.sights[0].looks)
    await renewals(fake, 10)
    assert {call for call in fake.calls if call[1] != "leases"} == set()
    assert [value(one, "queue_depth", state=state) for state in ("ready", "busy", "later")] == [0, 0, 0]
    assert len(one.sights[0].looks) == looks


async def test_a_replay_that_went_on_is_looked_at_also_from_another_thread(fake: FakeApi, controller: Make) -> None:
    put(fake, "a", "b")
    one = controller().start()
    await until(lambda: written(fake, "a") and written(fake, "b"))
    await renewals(fake, 2)
    one.sights[0].looks.clear()
    await asyncio.to_thread(one.shelves[0].changed, "default/a")
    await until(lambda: one.sights[0].looks)
    assert one.sights[0].looks == ["default/a"]


async def test_a_plan_says_when_to_look_again(fake: FakeApi, controller: Make) -> None:
    put(fake, "a")
    one = controller()
    one.plan = lambda seen: replace(generation_seen(seen), look_again_seconds=0.01)
    one.start()
    await until(lambda: written(fake, "a"))
    await until(lambda: len(one.sights[0].looks) > 10)
    assert fake.calls.count(("apply", "servinglines")) == 1


async def test_a_bug_with_one_line_leaves_the_others_and_is_told_once(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "bad", "good")
    one = controller()
    broken = [True]

    def plan(seen: LineSnapshot) -> Plan:
        if broken[0] and seen.line["metadata"]["name"] == "bad":
            raise ZeroDivisionError("never thought of")
        return generation_seen(seen)

    one.plan = plan
    one.start()
    await until(lambda: one.sights and one.sights[0].looks.count("default/bad") >= 3)
    touch(fake, "good")
    await until(lambda: written(fake, "good"))
    bugs = [row for row in logged(capsys) if row["event"] == "bug"]
    assert len(bugs) == 1
    assert bugs[0]["level"] == "error" and bugs[0]["object"] == "ServingLine/default/bad" and bugs[0]["term"] == 1
    assert "never thought of" in bugs[0]["traceback"] and "in plan" in bugs[0]["traceback"]
    assert value(one, "reconcile_errors_total", kind="ServingLine", error="Bug") >= 3
    await until(lambda: events(fake))
    (event,) = events(fake)
    assert (event["reason"], event["type"], event["regarding"]["name"]) == ("InternalError", "Warning", "bad")
    assert "never thought of" not in event["note"]
    broken[0] = False
    touch(fake, "bad")
    await until(lambda: written(fake, "bad"))
    assert [row["about"] for row in logged(capsys) if row["event"] == "trouble_over"] == ["ServingLine/default/bad"]


async def test_a_conflict_is_looked_at_again_at_once_and_is_no_trouble(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "a")
    fake.fail(Fault("status", "apply", "servinglines", times=3, code=409, reason="Conflict"))
    one = controller(log_level="info").start()
    await until(lambda: written(fake, "a"))
    assert value(one, "reconcile_errors_total", kind="ServingLine", error="Conflict") == 3
    assert value(one, "queue_retries_total") == 0
    assert [row["level"] for row in logged(capsys) if row["event"] not in ("conflict",)].count("warning") == 0


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", "apply", "servinglines", times=3, code=503, reason="ServiceUnavailable"),
        Fault("html", "apply", "servinglines", times=3, code=200),
        Fault("reset", "apply", "servinglines", times=3),
        Fault("status", "apply", "servinglines", times=1, code=500, reason="InternalError", applied=True),
    ],
    ids=["503", "a page of a proxy", "reset", "carried out and 500"],
)
async def test_a_transient_failure_is_tried_again_and_told_once(
    fault: Fault, fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "a")
    fake.fail(fault)
    one = controller().start()
    failed = ("reconcile_errors_total", {"kind": "ServingLine", "error": "Transient"})
    await until(lambda: (value(one, failed[0], **failed[1]) or 0) >= 1)  # told of before it is over
    await until(lambda: fault.times == 0 and written(fake, "a") and not one.process._troubles.standing)
    rows = logged(capsys)
    told = [row["event"] for row in rows if row["event"] in ("api_server_trouble", "trouble_over")]
    assert told[0] == "api_server_trouble"
    assert fault.what == "reset" or told == ["api_server_trouble", "trouble_over"]  # a reset is nobody's alone
    assert value(one, "reconcile_errors_total", kind="ServingLine", error="Transient") >= 1
    assert events(fake) == []


async def test_what_the_api_server_refuses_is_told_with_its_words_and_tried_again(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "a", "b")
    message = 'User "gate" cannot patch resource "servinglines/status"'
    fake.fail(Fault("status", "apply", "servinglines", times=1, code=403, reason="Forbidden", message=message))
    one = controller().start()
    await until(lambda: written(fake, "a") and written(fake, "b"))
    (told,) = [row for row in logged(capsys) if row["event"] == "api_server_refuses"]
    assert message in told["message"] and told["level"] == "error"
    assert value(one, "reconcile_errors_total", kind="ServingLine", error="Terminal") == 1
    await until(lambda: events(fake))
    (event,) = events(fake)
    assert (event["reason"], event["type"]) == ("CannotGoOn", "Warning") and message in event["note"]


async def test_while_a_line_cannot_go_on_there_is_a_new_event_of_it_before_the_last_one_is_gone(
    fake: FakeApi, controller: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (loop, logs):
        monkeypatch.setattr(module, "TELL_AGAIN_SECONDS", 0.01)
    put(fake, "a")
    fake.fail(Fault("status", "apply", "servinglines", times=1000, code=422, reason="Invalid"))
    controller().start()
    await until(lambda: len(events(fake)) >= 2)
    assert {event["reason"] for event in events(fake)} == {"CannotGoOn"}
    assert len({event["note"] for event in events(fake)}) == 1


async def test_a_line_whose_namespace_ends_cannot_get_a_rollout_and_that_is_no_error(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "a")
    one = controller()
    wanted = CreateRollout({"metadata": {"name": "a-1", "namespace": "default"}, "spec": {"lineRef": {"name": "a"}}})
    going = [False]
    one.plan = lambda seen: replace(generation_seen(seen), before=(wanted,) if going[0] else ())
    one.start()
    await until(lambda: written(fake, "a"))  # it leads
    ends(fake)
    going[0] = True
    touch(fake, "a")
    await until(lambda: ("create", "profilerollouts") in fake.calls)
    await until(lambda: value(one, "reconcile_errors_total", kind="ServingLine", error="Transient") >= 1)
    assert {row["level"] for row in logged(capsys)} <= {"debug", "info"}
    assert ("create", "events") not in fake.calls


async def test_a_store_that_is_away_is_told_once_and_over_once(
    fake: FakeApi, controller: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    put(fake, "a")
    one = controller()
    away = [True]
    one.snapshot = lambda seen: replace(seen, book=BookSeen(trouble="db is away" if away[0] else None))
    one.start()
    await until(lambda: written(fake, "a"))
    touch(fake, "a")
    await until(lambda: written(fake, "a"))
    away[0] = False
    touch(fake, "a")
    await until(lambda: written(fake, "a"))
    told = [(row["event"], row["about"]) for row in logged(capsys) if "about" in row]
    assert told == [("store_trouble", "evidence store"), ("trouble_over", "evidence store")]


@pytest.mark.parametrize(("code", "tells"), [(403, True), (500, True), (409, False)])
async def test_what_was_left_scaled_is_put_back_though_the_line_cannot_go_on(
    code: int, tells: bool, fake: FakeApi, controller: Make
) -> None:
    put(fake, "a")
    fake.fail(Fault("status", "apply", "servinglines", times=1000, code=code))
    one = controller()
    one.start()
    await until(
        lambda: sum(value(one, "reconcile_errors_total", kind="ServingLine", error=each) for each in ERRORS) >= 2
    )
    assert bool(one.shelves[0].lines) == tells


async def test_a_line_that_is_deleted_ends_its_replays(fake: FakeApi, controller: Make) -> None:
    put(fake, "a")
    one = controller().start()
    await until(lambda: written(fake, "a"))
    uid = found(fake, "a")["metadata"]["uid"]
    one.shelves[0].works[uid] = [WorkSeen("floor/x", WorkKind.FLOOR, WorkState.RUNNING, 1.0)]
    touch(fake, "a")
    await until(lambda: value(one, "works", kind="floor", state="running") == 1)
    fake.store.delete(fake._of(SERVING_LINES), "default", "a", None)
    await until(lambda: one.shelves[0].stopped)
    assert one.shelves[0].stopped == [("floor/x", "the ServingLine was deleted")]
    assert one.shelves[0].stopped_of == [uid]
    assert one.shelves[0].forgotten == [uid]
    await until(lambda: value(one, "lines") == 0)
    assert value(one, "works", kind="floor", state="running") == 0


async def test_another_line_of_the_same_name_does_not_inherit_replays(fake: FakeApi, controller: Make) -> None:
    put(fake, "a")
    one = controller()
    one.start()
    await until(lambda: written(fake, "a"))
    uid = found(fake, "a")["metadata"]["uid"]
    one.shelves[0].works[uid] = [WorkSeen("floor/x", WorkKind.FLOOR, WorkState.RUNNING, 1.0)]
    fake.store.delete(fake._of(SERVING_LINES), "default", "a", None)
    put(fake, "a")
    await until(lambda: written(fake, "a"))
    assert found(fake, "a")["metadata"]["uid"] != uid
    assert one.shelves[0].stopped == [("floor/x", "the ServingLine was deleted")]


async def test_a_store_that_another_leader_has_written_ends_the_term_and_the_next_has_a_higher_token(
    fake: FakeApi, controller: Make
) -> None:
    put(fake, "a")
    one = controller().start()
    await until(lambda: written(fake, "a"))
    with open_book(one.settings.book, Fence(41)):
        pass
    one.plan = lambda seen: replace(generation_seen(seen), before=(a_fate(seen),))
    touch(fake, "a")
    await until(lambda: len(one.shelves) == 2)
    assert one.shelves[0].closed and one.shelves[1].leading.fence.token == 42
    await until(lambda: written(fake, "a"))
    with open_book(one.settings.book) as book:
        assert [fate.line for fate in book.fates("default/a")] == ["default/a"]


async def test_an_event_that_cannot_be_written_is_written_later(fake: FakeApi, controller: Make) -> None:
    put(fake, "a")
    fake.fail(Fault("status", "create", "events", times=1, code=503))
    one = controller()
    said = [False]

    def plan(seen: LineSnapshot) -> Plan:
        if said[0]:
            return generation_seen(seen)
        said[0] = True
        return replace(generation_seen(seen), after=(Tell("Accepted", "It can be used.", "accepted/1"),))

    one.plan = plan
    one.start()
    await until(lambda: written(fake, "a"))
    touch(fake, "a")
    await until(lambda: events(fake))
    assert [event["reason"] for event in events(fake)] == ["Accepted"]
    await until(lambda: value(one, "notices_total", reason="Accepted") == 1)
    await until(lambda: value(one, "notices_waiting") == 0)


async def test_nothing_is_planned_from_a_copy_that_has_not_heard_of_our_own_writes(
    fake: FakeApi, controller: Make
) -> None:
    """Its transitions would be told twice, each with a time of its own."""
    put(fake, "a")
    one = controller()
    planned: list[str] = []

    def plan(seen: LineSnapshot) -> Plan:
        planned.append(seen.line["metadata"]["resourceVersion"])
        return generation_seen(seen)

    one.plan = plan
    fake.fail(Fault("hang", "watch", "servinglines", times=1000))  # what we write is not seen
    one.start()
    await until(lambda: written(fake, "a"))
    one.shelves[0].changed("default/a")
    await until(lambda: len(one.sights[0].looks) >= 5)
    assert len(planned) == 1


async def test_a_rollout_that_ends_is_counted_once_with_its_decision(fake: FakeApi, controller: Make) -> None:
    put(fake, "a")
    fake.store.create(fake._of(PROFILE_ROLLOUTS), "default", line("a-1"), USER)
    fake.store.create(fake._of(PROFILE_ROLLOUTS), "default", line("a-2"), USER)
    decision = {
        "verdict": "Hold",
        "promotion": "Blocked",
        "rollback": "Refused",
        "reason": "Deadline",
        "sentences": [],
        "cause": "Unverified",
        "measured": True,
    }
    ended = {"endedAt": "2026-12-01T08:00:00Z", "observedGeneration": 1}
    statuses = {
        "a-1": ProfileRolloutStatus.model_validate({**ended, "decision": decision}),
        "a-2": ProfileRolloutStatus.model_validate(ended),
    }
    one = controller()
    one.plan = lambda seen: replace(generation_seen(seen), rollouts=statuses)
    one.start()
    await until(lambda: found(fake, "a-2", "profilerollouts").get("status"))
    await until(lambda: value(one, "decisions_total", line="default/a", verdict="Hold", reason="Deadline"))
    for _ in range(3):
        touch(fake, "a")
        await until(lambda: written(fake, "a"))
    await renewals(fake, 2)
    assert value(one, "decisions_total", line="default/a", verdict="Hold", reason="Deadline") == 1
    assert value(one, "decisions_total", line="default/a", verdict="None", reason="None") == 1
