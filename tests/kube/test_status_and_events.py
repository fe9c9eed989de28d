"""What is written for people to see: a status only when it changes, an event once a transition."""

from __future__ import annotations

import pytest

from prefillgate.kube.client import Kube
from prefillgate.kube.errors import Forbidden, Unreachable
from prefillgate.kube.events import NORMAL, WARNING, Happening, Recorder
from prefillgate.kube.objects import EVENTS, NAMESPACES, Object, Ref
from prefillgate.kube.status import StatusWriter, holds, same
from tests.support.fake_api import FakeApi, Fault
from tests.support.gadgets import GADGETS, gadget
from tests.support.manual_clock import ManualClock


async def test_a_status_that_is_the_same_sends_nothing(fake: FakeApi, kube: Kube) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    writer = StatusWriter(kube)
    status = {"decision": "Hold", "counts": {"baseline": 1}}
    written = await writer.write(GADGETS, made, status)
    assert written is not None
    for _ in range(5):
        assert await writer.write(GADGETS, written, dict(status)) is None
    assert fake.count("apply") == 1
    managers = {(each["manager"], each.get("subresource")) for each in written["metadata"]["managedFields"]}
    assert ("prefillgate", "status") in managers


async def test_what_was_read_before_our_last_write_does_not_hide_a_change_back(fake: FakeApi, kube: Kube) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    writer = StatusWriter(kube)
    first = await writer.write(GADGETS, made, {"decision": "Hold"})
    assert first is not None
    await writer.write(GADGETS, first, {"decision": "Promote"})
    back = await writer.write(GADGETS, first, {"decision": "Hold"})  # `first` says Hold, the server Promote
    assert back is not None and back["status"] == {"decision": "Hold"}


async def test_a_status_that_others_add_to_is_not_written_again_and_again(fake: FakeApi, kube: Kube) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    writer = StatusWriter(kube)
    await writer.write(GADGETS, made, {"decision": "Hold"})
    seen = await kube.merge_patch(Ref(GADGETS, "one", "default"), {"status": {"counts": {"theirs": 1}}}, "status")
    assert await writer.write(GADGETS, seen, {"decision": "Hold"}) is None


async def test_an_object_that_is_gone_is_forgotten(fake: FakeApi, kube: Kube) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    writer = StatusWriter(kube)
    await writer.write(GADGETS, made, {"decision": "Hold"})
    writer.forget(made["metadata"]["uid"])
    assert writer._written == {}


async def test_a_write_that_failed_is_written_the_next_time(fake: FakeApi, kube: Kube) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    writer = StatusWriter(kube)
    fake.fail(Fault("reset", "apply"))
    with pytest.raises(Unreachable):
        await writer.write(GADGETS, made, {"decision": "Hold"})
    written = await writer.write(GADGETS, made, {"decision": "Hold"})
    assert written is not None and written["status"] == {"decision": "Hold"}


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({}, {}, True),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, {}, False),
        ({}, {"a": 1}, False),
        ({"a": None}, {}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": []}, {"a": [{"type": "X"}]}, False),
        ({"a": "x"}, {"a": ["x"]}, False),
        ({"a": "x"}, {"a": {"x": 1}}, False),
        ({"a": [{"type": "X", "v": 1}, {"type": "Y"}]}, {"a": [{"type": "Y"}, {"type": "X", "v": 1}]}, True),
        ({"a": [{"type": "X", "v": 1}]}, {"a": [{"type": "X", "v": 2}]}, False),
        ({"a": [{"type": "X"}, {"type": "Y"}]}, {"a": [{"type": "X"}]}, False),
        ({"a": [{"type": "X"}]}, {"a": [{"type": "X"}, {"type": "Y"}]}, False),
    ],
)
def test_statuses_are_the_same_when_they_say_the_same(one: Object, other: Object, equal: bool) -> None:
    assert same(one, other) is equal and same(other, one) is equal


def test_a_part_may_be_held_by_more() -> None:
    whole = {"a": 1, "b": {"c": 2}, "conditions": [{"type": "X", "v": 1}, {"type": "Y"}]}
    assert holds(whole, {"b": {}, "conditions": [{"type": "X"}]})
    assert not holds({"b": {}}, whole)


def happening(obj: Object, once: str = "", note: str = "a sentence", kind: str = NORMAL) -> Happening:
    return Happening(GADGETS, obj, kind, "PromotionAllowed", "Decide", note, once)


def events(fake: FakeApi) -> list[Object]:
    return [obj for (plural, _, _), obj in fake.store.objects.items() if plural == "events"]


async def test_a_transition_is_told_once_by_whomever_and_however_often(
    fake: FakeApi, kube: Kube, clock: ManualClock
) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    first, second = Recorder(kube, "pod-1", clock), Recorder(kube, "pod-2", clock)
    assert await first.emit(happening(made, "t1")) is True
    assert await first.emit(happening(made, "t1")) is False
    assert await second.emit(happening(made, "t1", "other words")) is False
    assert await second.emit(happening(made, "t2")) is True
    assert len(events(fake)) == 2
    told = events(fake)[0]
    assert told["reportingController"] == "prefillgate.io/controller" and told["reportingInstance"] == "pod-1"
    assert told["regarding"] == {
        "apiVersion": "test.prefillgate.io/v1", "kind": "Gadget", "namespace": "default", "name": "one",
        "uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"],
    }  # fmt: skip
    assert told["eventTime"] == "2027-01-15T08:00:00.000000Z" and told["metadata"]["namespace"] == "default"


async def test_an_object_of_the_same_name_has_events_of_its_own(fake: FakeApi, kube: Kube, clock: ManualClock) -> None:
    recorder = Recorder(kube, "pod-1", clock)
    for _ in range(2):
        made = await kube.create(GADGETS, gadget("one", "default"))
        assert await recorder.emit(happening(made, "t1")) is True
        await kube.delete(Ref(GADGETS, "one", "default"))
    assert len(events(fake)) == 2


async def test_an_event_that_could_not_be_written_is_written_by_the_next_call(
    fake: FakeApi, kube: Kube, clock: ManualClock
) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    recorder = Recorder(kube, "pod-1", clock)
    fake.fail(Fault("status", "create", "events", code=403, reason="Forbidden"))
    with pytest.raises(Forbidden):
        await recorder.emit(happening(made, "t1"))
    fake.fail(Fault("reset", "create", "events", applied=True))
    with pytest.raises(Unreachable):
        await recorder.emit(happening(made, "t1"))
    assert await recorder.emit(happening(made, "t1")) is False  # it was: only the answer was lost
    assert len(events(fake)) == 1


async def test_repeats_become_a_series_that_is_written_ever_less(fake: FakeApi, kube: Kube, clock: ManualClock) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    recorder = Recorder(kube, "pod-1", clock)
    wrote = []
    for _ in range(100):
        wrote.append(await recorder.emit(happening(made, kind=WARNING)))
        clock.ran += 10
        clock.wall += 10
    assert [number for number, each in enumerate(wrote, 1) if each] == [1, 2, 4, 8, 16, 32, 64]
    assert [each["series"]["count"] for each in events(fake)] == [64]
    assert events(fake)[0]["series"]["lastObservedTime"] == "2027-01-15T08:10:30.000000Z"


async def test_what_comes_again_much_later_is_a_new_event(fake: FakeApi, kube: Kube, clock: ManualClock) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    recorder = Recorder(kube, "pod-1", clock)
    await recorder.emit(happening(made))
    clock.ran += 359.9
    await recorder.emit(happening(made))
    assert len(events(fake)) == 1
    clock.ran += 360
    await recorder.emit(happening(made))
    assert len(events(fake)) == 2 and len({each["metadata"]["name"] for each in events(fake)}) == 2


async def test_a_series_whose_event_has_expired_begins_anew(fake: FakeApi, kube: Kube, clock: ManualClock) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    recorder = Recorder(kube, "pod-1", clock)
    await recorder.emit(happening(made))
    await kube.delete(Ref(EVENTS, events(fake)[0]["metadata"]["name"], "default"))
    assert await recorder.emit(happening(made)) is True
    assert len(events(fake)) == 1 and "series" not in events(fake)[0]


async def test_other_words_are_another_event(fake: FakeApi, kube: Kube, clock: ManualClock) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    recorder = Recorder(kube, "pod-1", clock)
    await recorder.emit(happening(made, note="6 of 8"))
    await recorder.emit(happening(made, note="7 of 9"))
    assert sorted(each["note"] for each in events(fake)) == ["6 of 8", "7 of 9"]


async def test_what_is_remembered_of_series_is_bounded(fake: FakeApi, kube: Kube, clock: ManualClock) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    recorder = Recorder(kube, "pod-1", clock)
    for number in range(1_030):
        await recorder.emit(happening(made, note=str(number)))
    assert len(recorder._series) == 1_024


async def test_a_note_too_long_is_cut_between_characters(fake: FakeApi, kube: Kube, clock: ManualClock) -> None:
    made = await kube.create(GADGETS, gadget("one", "default"))
    recorder = Recorder(kube, "pod-1" * 100, clock)
    await recorder.emit(happening(made, note="é" * 512))
    await recorder.emit(happening(made, note="é" * 513))
    notes = sorted((each["note"] for each in events(fake)), key=len)
    assert notes[1] == "é" * 512 and notes[0] == "é" * 510 + "…"
    assert len(events(fake)[0]["reportingInstance"]) == 128


async def test_an_object_without_a_namespace_has_its_events_in_default(
    fake: FakeApi, kube: Kube, clock: ManualClock
) -> None:
    made = await kube.create(NAMESPACES, {"metadata": {"name": "x" * 63}})
    await Recorder(kube, "pod-1", clock).emit(Happening(NAMESPACES, made, NORMAL, "Seen", "Look", "a sentence", "t"))
    assert events(fake)[0]["metadata"]["namespace"] == "default"
    assert len(events(fake)[0]["metadata"]["name"]) <= 253
