"""A plan carried out on a fake API server and a real book: in order, once, and by nobody who leads no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.api.kinds.line_status import ServingLineStatus
from prefillgate.api.kinds.names import LINE_LABEL
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.app.carry_out import NOTICES_KEPT_SECONDS, Hand, Means, NotOurs, TermLost
from prefillgate.app.logs import set_up_logs
from prefillgate.app.seams import Leading, Observed, StatusWanted
from prefillgate.core.journal import Overridden
from prefillgate.evidence.book import Book, open_book
from prefillgate.evidence.book_rows import Fate, Floor, HandledOverride, Notice, Outcome, Watch
from prefillgate.evidence.errors import StoreFenced
from prefillgate.evidence.fence import Fence
from prefillgate.kube.access import Where
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import SystemClock
from prefillgate.kube.elector import Term
from prefillgate.kube.errors import Conflict, Unreachable
from prefillgate.kube.events import Recorder
from prefillgate.kube.objects import EVENTS, PROFILE_ROLLOUTS, SERVING_LINES, owner_of
from prefillgate.kube.status import StatusWriter
from prefillgate.reconcile import effects as do
from prefillgate.reconcile.effects import Plan
from prefillgate.reconcile.snapshot import LineSnapshot, RolloutSeen, WorkKind
from tests.support.controllers import Shelf, ends, line
from tests.support.fake_api import FakeApi, Fault
from tests.support.fake_api.store import Object, Write
from tests.support.manual_clock import ManualClock

USER = Write("somebody")
FATE = Fate("default/chat", "sha256:new", Outcome.REJECTED, "chat-1", "RegressionConfirmed", 200.0)
FLOOR = Floor("default/chat", "sha256:old", "f" * 64, "floor-1", 300.0, True, "sound")
WATCH = Watch("default/chat", 400.0)
OVERRIDE = HandledOverride("uid/1", "default/chat", "chat-1", "promote", "ann", True, "seen it", 50.0)
NOTICE = Notice("uid/told", "default/chat", None, "Held", "12 of 20 bad", 100.0, 100.0)
STATUS = ServingLineStatus(observedGeneration=1)
TELL = do.Tell("Held", "Not enough evidence.", "held/1")


@dataclass
class Bench:
    """A hand with all it works on."""

    fake: FakeApi
    kube: Kube
    book: Book
    term: Term
    clock: ManualClock
    shelf: Shelf
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        recorder = Recorder(self.kube, "me", self.clock)
        leading = Leading(self.book, Fence(self.term.token))
        statuses = StatusWriter(self.kube)
        self.hand = Hand(
            Means(self.kube, statuses, recorder, self.shelf, leading, self.term, self.clock, self.reasons.append)
        )

    def put(self, name: str, kind: Any = SERVING_LINES, **more: Any) -> Object:
        thing = {**line(name), **more}
        thing["metadata"] |= more.get("metadata", {})
        return self.fake.store.create(self.fake._of(kind), "default", thing, USER)

    def body(self, name: str, owner: Object, **spec: Any) -> Object:
        """A rollout of that line."""
        owners = [owner_of(SERVING_LINES, owner)]
        labels = {LINE_LABEL: owner["metadata"]["name"]}
        metadata = {"name": name, "namespace": "default", "labels": labels, "ownerReferences": owners}
        return {"metadata": metadata, "spec": {"lineRef": {"name": owner["metadata"]["name"]}, **spec}}

    def seen(self, thing: Object, *rollouts: Object) -> Observed:
        return Observed(LineSnapshot(1.0, thing, None, rollouts=tuple(RolloutSeen(each, None) for each in rollouts)))

    def stored(self, plural: str, name: str) -> Object | None:
        return self.fake.store.objects.get((plural, "default", name))

    def events(self) -> list[Object]:
        return [obj for (plural, _, _), obj in self.fake.store.objects.items() if plural == EVENTS.plural]


@pytest.fixture
async def bench(fake: FakeApi, tmp_path: Path) -> AsyncIterator[Bench]:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(fake.kubeconfig()), encoding="utf-8")
    clock = ManualClock()
    with open_book(tmp_path / "book.db", Fence(3)) as book:
        async with await Kube.connect(Where(str(path))) as kube:
            leading = Leading(book, Fence(3))
            yield Bench(fake, kube, book, Term(3, 10.0, clock), clock, Shelf(leading, lambda key: None))


async def test_it_goes_in_the_order_of_the_plan(bench: Bench) -> None:
    thing = bench.put("chat")
    rollout = bench.put("chat-1", PROFILE_ROLLOUTS)
    plan = Plan(
        STATUS,
        {"chat-1": ProfileRolloutStatus(observedGeneration=1)},
        before=(do.KeepFate(FATE), do.CreateRollout(bench.body("chat-2", thing))),
        after=(TELL, do.DeleteRollout("chat-1", rollout["metadata"]["uid"])),
    )
    bench.fake.calls.clear()
    await bench.hand.carry_out(bench.seen(thing, rollout), plan)
    assert bench.fake.calls == [
        ("create", "profilerollouts"),
        ("apply", "profilerollouts"),
        ("apply", "servinglines"),
        ("create", "events"),
        ("delete", "profilerollouts"),
    ]
    assert bench.stored("profilerollouts", "chat-1") is None
    assert (bench.stored("servinglines", "chat") or {})["status"] == {"observedGeneration": 1}
    assert bench.book.fates("default/chat") == (FATE,)


async def test_what_is_not_kept_is_told_to_nobody(bench: Bench, tmp_path: Path) -> None:
    thing = bench.put("chat")
    with open_book(tmp_path / "book.db", Fence(4)):
        pass
    bench.fake.calls.clear()
    with pytest.raises(StoreFenced):
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, before=(do.KeepFate(FATE),), after=(TELL,)))
    assert bench.fake.calls == []


async def test_a_plan_comes_twice_and_nothing_is_there_twice(bench: Bench) -> None:
    thing = bench.put("chat")
    plan = Plan(
        STATUS,
        {"chat-2": ProfileRolloutStatus(observedGeneration=1)},
        before=(
            do.TakeOverride(OVERRIDE),
            do.KeepNotice(NOTICE),
            do.KeepFate(FATE),
            do.KeepFloor(FLOOR),
            do.KeepWatch(WATCH),
            do.CreateRollout(bench.body("chat-2", thing)),
        ),
        after=(TELL, do.NoticeTold(NOTICE.key), do.OverrideDone(OVERRIDE.key, "promoted")),
    )
    await bench.hand.carry_out(bench.seen(thing), plan)
    await bench.hand.carry_out(bench.seen(bench.stored("servinglines", "chat") or {}), plan)
    assert len(bench.events()) == 1 and bench.reasons == ["Held"]
    assert bench.book.fates("default/chat") == (FATE,)
    assert bench.book.floor("default/chat", "sha256:old", "f" * 64) == FLOOR
    assert bench.book.watches() == (WATCH,)
    assert bench.book.notices_due(1e10) == ()
    taken = bench.book.override(OVERRIDE.key)
    assert taken is not None and taken.answer == "promoted" and taken.done_at == bench.clock.wall
    assert bench.fake.calls.count(("apply", "servinglines")) == 1
    assert bench.fake.calls.count(("apply", "profilerollouts")) == 1
    made = bench.stored("profilerollouts", "chat-2")
    assert made is not None and made["status"] == {"observedGeneration": 1}
    await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, before=(do.EndWatch("default/chat"),)))
    assert bench.book.watches() == ()


async def test_a_look_that_has_not_heard_of_our_own_writes_leads_to_nothing(bench: Bench) -> None:
    thing = bench.put("chat")
    assert not bench.hand.is_behind(bench.seen(thing))
    await bench.hand.carry_out(bench.seen(thing), Plan(STATUS))
    assert bench.hand.is_behind(bench.seen(thing))
    thing = bench.stored("servinglines", "chat") or {}
    assert not bench.hand.is_behind(bench.seen(thing))
    plan = Plan(
        STATUS,
        {"chat-2": ProfileRolloutStatus(observedGeneration=1)},
        before=(do.CreateRollout(bench.body("chat-2", thing)),),
    )
    await bench.hand.carry_out(bench.seen(thing), plan)
    assert bench.hand.is_behind(bench.seen(thing))  # the rollout is not seen
    made = bench.stored("profilerollouts", "chat-2") or {}
    older = {**made, "metadata": {**made["metadata"], "resourceVersion": str(bench.fake.store.version - 1)}}
    assert bench.hand.is_behind(bench.seen(thing, older))  # its status is not
    assert not bench.hand.is_behind(bench.seen(thing, made))


async def test_a_rollout_that_somebody_removed_before_it_was_seen_is_not_waited_for(bench: Bench) -> None:
    thing = bench.put("chat")
    plan = Plan(ServingLineStatus(), before=(do.CreateRollout(bench.body("chat-2", thing)),))
    await bench.hand.carry_out(bench.seen(thing), plan)
    bench.fake.store.delete(bench.fake._of(PROFILE_ROLLOUTS), "default", "chat-2", None)
    assert bench.hand.is_behind(bench.seen(thing))
    await bench.clock.advance(9.0)
    bench.term.extend(1e9)
    assert bench.hand.is_behind(bench.seen(thing))
    await bench.clock.advance(1.0)
    assert not bench.hand.is_behind(bench.seen(thing))


async def test_replays_are_begun_ended_and_told_a_persons_word(bench: Bench) -> None:
    seen = bench.seen(bench.put("chat"))
    start = do.StartWork("uid-1", WorkKind.JUDGE, "sha256:old", "sha256:new", "chat-1")
    word = do.RecordOverride("uid-1", Overridden("promote", "seen it", "ann", 1.0))
    await bench.hand.carry_out(seen, Plan(STATUS, before=(do.StopWork("floor/x", "because"),), after=(start, word)))
    assert (bench.shelf.started, bench.shelf.stopped) == ([start], [("floor/x", "because")])
    assert bench.shelf.stopped_of == [seen.snapshot.line["metadata"]["uid"]]
    assert bench.shelf.recorded == [word]


@pytest.mark.parametrize("change", ["owner", "label", "spec"])
async def test_a_rollout_of_that_name_that_is_not_ours_is_left_alone(change: str, bench: Bench) -> None:
    thing = bench.put("chat")
    body = bench.body("chat-2", thing, seed=1)
    other = bench.body("chat-2", thing, seed=2 if change == "spec" else 1)
    if change == "owner":
        other["metadata"]["ownerReferences"][0]["uid"] = "another"
    if change == "label":
        other["metadata"]["labels"][LINE_LABEL] = "another"
    bench.fake.store.create(bench.fake._of(PROFILE_ROLLOUTS), "default", other, USER)
    with pytest.raises(NotOurs, match="default/chat-2 is there already"):
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, before=(do.CreateRollout(body),)))
    assert "status" not in (bench.stored("servinglines", "chat") or {})


async def test_a_rollout_that_is_there_with_defaults_filled_in_is_ours(bench: Bench) -> None:
    thing = bench.put("chat")
    there = bench.body("chat-2", thing, policy={"name": "few", "filled": True})
    bench.fake.store.create(bench.fake._of(PROFILE_ROLLOUTS), "default", there, USER)
    body = bench.body("chat-2", thing, policy={"name": "few"})
    await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, before=(do.CreateRollout(body),)))


async def test_a_rollout_that_took_the_name_since_is_not_deleted(bench: Bench) -> None:
    thing = bench.put("chat")
    bench.put("chat-1", PROFILE_ROLLOUTS)
    with pytest.raises(Conflict):
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, after=(do.DeleteRollout("chat-1", "older"),)))
    assert bench.stored("profilerollouts", "chat-1") is not None


async def test_a_line_that_was_deleted_meanwhile_is_no_failure(bench: Bench) -> None:
    thing = bench.put("chat")
    bench.fake.store.delete(bench.fake._of(SERVING_LINES), "default", "chat", None)
    await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, {"gone": ProfileRolloutStatus(observedGeneration=1)}))


async def test_a_line_that_changed_meanwhile_gets_no_status_for_what_it_was(bench: Bench) -> None:
    thing = bench.put("chat")
    bench.fake.store.update(bench.fake._of(SERVING_LINES), "default", "chat", {**thing, "spec": {"n": 2}}, USER)
    with pytest.raises(Conflict):
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS))
    assert "status" not in (bench.stored("servinglines", "chat") or {})


async def test_events_are_about_the_object_they_name_and_in_the_log(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs("info", "json")
    thing = bench.put("chat")
    rollout = bench.put("chat-1", PROFILE_ROLLOUTS)
    tells = (
        do.Tell("CandidateChanged", "Another.", "a/1"),
        do.Tell("Alarm", "Bad.", "b/1", rollout="chat-1", warning=True),
        do.Tell("Alarm", "Bad.", "b/1", rollout="nowhere", warning=True),
    )
    await bench.hand.carry_out(bench.seen(thing, rollout), Plan(STATUS, after=tells))
    about = {each["regarding"]["name"]: each for each in bench.events()}
    assert set(about) == {"chat", "chat-1"}
    assert (about["chat"]["reason"], about["chat"]["type"], about["chat"]["note"]) == (
        *("CandidateChanged", "Normal", "Another."),
    )
    assert (about["chat-1"]["reason"], about["chat-1"]["type"]) == ("Alarm", "Warning")
    assert about["chat-1"]["regarding"]["kind"] == "ProfileRollout"
    rows = [json.loads(row) for row in capsys.readouterr().err.splitlines()]
    assert [(row["event"], row["level"], row.get("rollout"), row["reason"], row["message"]) for row in rows] == [
        ("told", "info", None, "CandidateChanged", "Another."),
        ("told", "warning", "chat-1", "Alarm", "Bad."),
    ]


async def test_a_notice_whose_event_could_not_be_written_is_not_taken_for_told(bench: Bench) -> None:
    thing = bench.put("chat")
    bench.fake.fail(Fault("status", "create", "events", times=1, code=503))
    plan = Plan(STATUS, before=(do.KeepNotice(NOTICE),), after=(TELL, do.NoticeTold(NOTICE.key)))
    await bench.hand.carry_out(bench.seen(thing), plan)
    assert len(bench.events()) == 1  # at the end of the plan it was tried again
    assert [each.key for each in bench.book.notices_due(1e10)] == [NOTICE.key]
    await bench.hand.carry_out(bench.seen(thing), plan)
    assert bench.book.notices_due(1e10) == () and len(bench.events()) == 1


async def test_an_event_that_is_refused_holds_up_no_other_and_is_logged_once(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs("info", "json")
    things = [bench.put(name) for name in ("dying", "chat-1", "chat-2")]
    bench.fake.fail(Fault("status", "create", "events", times=1, code=403))
    for thing in things:
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, after=(TELL,)))
    assert [event["regarding"]["name"] for event in bench.events()] == ["chat-1", "chat-2"]
    assert bench.hand.untold == 0
    rows = [json.loads(row) for row in capsys.readouterr().err.splitlines()]
    assert [row["object"] for row in rows if row["event"] == "event_refused"] == ["default/dying"]


async def test_what_is_told_of_a_rollout_without_a_line_is_told_once_beside_its_status(bench: Bench) -> None:
    thing = bench.put("chat-1", PROFILE_ROLLOUTS)
    status = {"observedGeneration": 1}
    for _ in range(2):
        await bench.hand.write_status(StatusWanted(PROFILE_ROLLOUTS, thing, status, events=(TELL,)))
        thing = bench.stored("profilerollouts", "chat-1") or {}
    assert thing["status"] == status
    (event,) = bench.events()
    assert (event["reason"], event["type"], event["regarding"]["kind"]) == ("Held", "Normal", "ProfileRollout")


async def test_a_namespace_that_ends_is_no_error(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info", "json")
    thing = bench.put("chat")
    ends(bench.fake)
    await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, after=(TELL,)))
    assert bench.events() == [] and bench.hand.untold == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("code", [401, 429, 500])
async def test_an_event_that_nobody_may_write_now_is_kept(code: int, bench: Bench) -> None:
    thing = bench.put("chat")
    bench.fake.fail(Fault("status", "create", "events", times=1000, code=code))
    await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, after=(TELL,)))
    assert bench.hand.untold == 1
    bench.fake.faults.clear()
    await bench.hand.tell_rest()
    assert bench.hand.untold == 0 and len(bench.events()) == 1


async def test_a_notice_was_told_though_an_event_of_another_line_waits(bench: Bench) -> None:
    other, thing = bench.put("other"), bench.put("chat")
    bench.fake.fail(Fault("status", "create", "events", times=1000, code=503))
    await bench.hand.carry_out(bench.seen(other), Plan(STATUS, after=(TELL,)))
    plan = Plan(STATUS, before=(do.KeepNotice(NOTICE),), after=(do.NoticeTold(NOTICE.key),))
    await bench.hand.carry_out(bench.seen(thing), plan)
    assert bench.hand.untold == 1 and bench.book.notices_due(1e10) == ()


async def test_a_notice_of_a_rollout_whose_event_waits_is_not_taken_for_told(bench: Bench) -> None:
    thing, rollout = bench.put("chat"), bench.put("chat-1", PROFILE_ROLLOUTS)
    bench.fake.fail(Fault("status", "create", "events", times=1000, code=503))
    tell = replace(TELL, rollout="chat-1")
    plan = Plan(STATUS, before=(do.KeepNotice(NOTICE),), after=(tell, do.NoticeTold(NOTICE.key)))
    await bench.hand.carry_out(bench.seen(thing, rollout), plan)
    assert [each.key for each in bench.book.notices_due(1e10)] == [NOTICE.key]


async def test_notices_that_were_told_a_month_ago_go_with_the_next_one(bench: Bench) -> None:
    thing, now = bench.put("chat"), bench.clock.now()
    for key, sent in (("uid/old", now - NOTICES_KEPT_SECONDS - 1), ("uid/young", now - NOTICES_KEPT_SECONDS + 1)):
        bench.book.add_notice(replace(NOTICE, key=key))
        bench.book.notice_sent(key, sent)
    plan = Plan(STATUS, before=(do.KeepNotice(NOTICE),), after=(TELL, do.NoticeTold(NOTICE.key)))
    await bench.hand.carry_out(bench.seen(thing), plan)
    assert {each.key for each in bench.book.latest_notices(NOTICE.line)} == {"uid/young", NOTICE.key}


ALL = (
    *(do.KeepFate(FATE), do.KeepFloor(FLOOR), do.KeepWatch(WATCH), do.EndWatch("default/chat"), TELL),
    *(do.KeepNotice(NOTICE), do.NoticeTold(NOTICE.key), do.TakeOverride(OVERRIDE), do.OverrideDone("uid/1", "x")),
    do.StartWork("uid-1", WorkKind.JUDGE, "sha256:old"),
    do.RecordOverride("uid-1", Overridden("promote", "seen it", "ann", 1.0)),
    do.DeleteRollout("chat-1", "x"),
    do.CreateRollout({"metadata": {"name": "chat-1", "namespace": "default"}}),
)


@pytest.mark.parametrize("effect", ALL, ids=lambda effect: type(effect).__name__)
@pytest.mark.parametrize("how", ["ended", "overdue"])
async def test_who_leads_no_more_does_nothing(effect: do.Effect, how: str, bench: Bench) -> None:
    thing = bench.put("chat")
    if how == "ended":
        bench.term.end()
    else:
        await bench.clock.advance(10.0)
    before = dict(bench.fake.store.objects)
    with pytest.raises(TermLost):
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, before=(effect,)))
    with pytest.raises(TermLost):
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS))
    assert bench.fake.store.objects == before
    assert (bench.shelf.started, bench.shelf.recorded) == ([], [])
    assert bench.book.fates("default/chat") == () == bench.book.watches()
    assert bench.book.overrides_begun() == () == bench.book.notices_due(1e10)


def test_every_effect_is_tried_above() -> None:
    kinds = set(do.Effect.__args__)  # type: ignore[attr-defined]
    assert {type(effect) for effect in ALL} == kinds - {do.StopWork}  # who leads no more may still end a replay


async def test_a_write_that_hangs_is_given_up_when_the_term_ends(fake: FakeApi, bench: Bench) -> None:
    thing = bench.put("chat")
    fake.fail(Fault("hang", "apply", "servinglines"))
    term = Term(3, SystemClock().monotonic() + 0.2, SystemClock())
    bench.term = term
    bench.__post_init__()
    with pytest.raises(TermLost):
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS))


async def test_a_connection_that_breaks_is_the_failure_that_it_is(fake: FakeApi, bench: Bench) -> None:
    thing = bench.put("chat")
    fake.fail(Fault("reset", "apply", "servinglines", times=3))
    with pytest.raises(Unreachable):
        await bench.hand.carry_out(bench.seen(thing), Plan(STATUS))


async def test_an_event_is_written_by_the_look_that_tells_it_and_by_no_other_at_the_same_time(
    fake: FakeApi, bench: Bench
) -> None:
    things = [bench.put(f"chat-{number}") for number in range(4)]
    plan = Plan(STATUS, after=(do.Tell("Held", "No.", "held"),))
    await asyncio.gather(*(bench.hand.carry_out(bench.seen(thing), plan) for thing in things))
    assert bench.fake.calls.count(("create", "events")) == len(things) == len(bench.events())
    assert bench.hand.untold == 0


async def test_events_that_cannot_be_written_are_bounded(
    fake: FakeApi, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefillgate.app.carry_out.MOST_UNTOLD", 3)
    thing = bench.put("chat")
    fake.fail(Fault("status", "create", "events", times=1000, code=503))
    tells = tuple(do.Tell("Held", f"No {number}.", f"held/{number}") for number in range(9))
    await bench.hand.carry_out(bench.seen(thing), Plan(STATUS, after=tells))
    assert bench.hand.untold == 3
    fake.faults.clear()
    await bench.hand.tell_rest()
    assert bench.hand.untold == 0
    assert sorted(event["note"] for event in bench.events()) == ["No 6.", "No 7.", "No 8."]
