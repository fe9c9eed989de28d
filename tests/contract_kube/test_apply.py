"""Server-side apply, on the object and on its status."""

from __future__ import annotations

import pytest

from prefillgate.kube.access import Where, find_access
from prefillgate.kube.client import APPLY, Kube
from prefillgate.kube.errors import Conflict, Invalid, NotFound
from prefillgate.kube.objects import Object, Ref, condition, generation_of, uid_of, version_of
from prefillgate.kube.status import StatusWriter
from prefillgate.kube.transport import Call, Transport
from tests.contract_kube.conftest import Side
from tests.support.gadgets import GADGETS, gadget


async def other_manager(side: Side) -> Kube:
    return Kube(Transport(await find_access(Where(str(side.kubeconfig)))), "somebody-else")


def ready(status: str, **more: object) -> Object:
    return {"type": "Ready", "status": status, "reason": "AsItIs", "message": "", **more}


async def test_what_is_applied_is_made_then_changed_and_what_is_left_out_goes(side: Side) -> None:
    body = gadget("one", side.space)
    await side.kube.apply(GADGETS, {**body, "spec": {"size": 1, "note": "x"}})
    changed = await side.kube.apply(GADGETS, {**body, "spec": {"size": 2}})
    assert changed["spec"] == {"size": 2} and generation_of(changed) == 2


async def test_the_same_again_changes_nothing(side: Side) -> None:
    first = await side.kube.apply(GADGETS, gadget("one", side.space))
    again = await side.kube.apply(GADGETS, gadget("one", side.space))
    assert version_of(first) == version_of(again)


async def test_fields_of_others_stay_and_are_taken_only_by_force(side: Side) -> None:
    async with await other_manager(side) as other:
        body = gadget("one", side.space)
        await other.apply(GADGETS, {**body, "spec": {"note": "theirs"}})
        ours = await side.kube.apply(GADGETS, {**body, "spec": {"size": 3}})
        assert ours["spec"] == {"size": 3, "note": "theirs"}
        with pytest.raises(Conflict) as caught:
            await side.kube.apply(GADGETS, {**body, "spec": {"size": 3, "note": "ours"}}, force=False)
        assert [cause.field for cause in caught.value.causes] == [".spec.note"]
        taken = await side.kube.apply(GADGETS, {**body, "spec": {"size": 3, "note": "ours"}})
        assert taken["spec"] == {"size": 3, "note": "ours"}


async def test_a_status_is_written_alone_and_a_spec_without_it(side: Side) -> None:
    made = await side.kube.create(GADGETS, {**gadget("one", side.space), "status": {"decision": "Promote"}})
    assert "status" not in made
    body = {**gadget("one", side.space, size=9), "status": {"decision": "Hold"}}
    written = await side.kube.apply(GADGETS, body, "status")
    assert written["status"] == {"decision": "Hold"} and written["spec"] == {"size": 1}
    assert generation_of(written) == 1
    await side.kube.apply(GADGETS, {**gadget("one", side.space), "status": {"decision": "Rollback"}})
    assert (await side.kube.get(Ref(GADGETS, "one", side.space)))["status"] == {"decision": "Hold"}


async def test_conditions_of_others_stay_and_ours_go_when_left_out(side: Side) -> None:
    await side.kube.create(GADGETS, gadget("one", side.space))
    writer = StatusWriter(side.kube)
    async with await other_manager(side) as other:
        theirs = {**gadget("one", side.space), "status": {"conditions": [{"type": "Theirs", "status": "True"}]}}
        made = await other.apply(GADGETS, theirs, "status")
    status = {"conditions": [ready("True"), {**ready("False"), "type": "Screened"}], "counts": {"baseline": 1}}
    both = await writer.write(GADGETS, made, status)
    assert both is not None
    assert [each["type"] for each in both["status"]["conditions"]] == ["Theirs", "Ready", "Screened"]
    fewer = await writer.write(GADGETS, both, {"conditions": [ready("False", observedGeneration=2)]})
    assert fewer is not None
    assert {each["type"] for each in fewer["status"]["conditions"]} == {"Theirs", "Ready"}
    assert condition(fewer, "Ready") == ready("False", observedGeneration=2)
    assert "counts" not in fewer["status"]


async def test_a_status_that_is_the_same_is_not_written(side: Side) -> None:
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    writer = StatusWriter(side.kube)
    status = {"conditions": [ready("True")], "decision": "Hold"}
    written = await writer.write(GADGETS, made, status)
    assert written is not None
    assert await writer.write(GADGETS, written, status) is None
    assert await StatusWriter(side.kube).write(GADGETS, written, status) is None
    assert version_of(await side.kube.get(Ref(GADGETS, "one", side.space))) == version_of(written)


async def test_a_status_never_lands_on_another_object_of_the_same_name(side: Side) -> None:
    ref = Ref(GADGETS, "one", side.space)
    first = await side.kube.create(GADGETS, gadget("one", side.space))
    await side.kube.delete(ref)
    second = await side.kube.create(GADGETS, gadget("one", side.space))
    assert uid_of(first) != uid_of(second)
    with pytest.raises(Conflict):
        await StatusWriter(side.kube).write(GADGETS, first, {"decision": "Promote"})
    assert "status" not in await side.kube.get(ref)


async def test_a_status_is_not_written_for_what_somebody_has_changed_meanwhile(side: Side) -> None:
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    writer = StatusWriter(side.kube)
    first = await writer.write(GADGETS, made, {"decision": "Hold"})
    second = await writer.write(GADGETS, made, {"decision": "Promote"})  # our own write is not somebody's
    assert first is not None and second is not None and second["status"] == {"decision": "Promote"}
    await side.kube.merge_patch(Ref(GADGETS, "one", side.space), {"spec": {"size": 2}})
    with pytest.raises(Conflict):
        await writer.write(GADGETS, second, {"decision": "Hold"})


async def test_a_status_of_an_object_that_is_gone_makes_no_object(side: Side) -> None:
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    await side.kube.delete(Ref(GADGETS, "one", side.space))
    with pytest.raises((NotFound, Conflict)):
        await StatusWriter(side.kube).write(GADGETS, made, {"decision": "Promote"})
    assert await side.kube.find(Ref(GADGETS, "one", side.space)) is None


PIECE = 0x110000 // 5 + 1  # of Unicode: an object of etcd holds 1.5 MB
PIECES = [range(first, min(first + PIECE, 0x110000)) for first in range(0, 0x110000, PIECE)]


@pytest.mark.parametrize("codes", PIECES, ids=lambda codes: f"U+{codes[0]:04X}")
async def test_a_status_may_hold_every_character_there_is(side: Side, codes: range) -> None:
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    said = "".join(map(chr, codes))
    writer = StatusWriter(side.kube)
    written = await writer.write(GADGETS, made, {"decision": said})
    assert written is not None
    halves = dict.fromkeys(range(55296, 57344), "�")  # of a pair: no encoding has them
    assert written["status"]["decision"] == said.translate(halves)
    assert await writer.write(GADGETS, written, {"decision": said}) is None


@pytest.mark.parametrize("said", ["Überprüfung 🔥 世界", "\ud83d alone", "a\x7fb\x85c\u2028d\ufeff"])
async def test_every_write_takes_text_as_strangers_write_it(side: Side, said: str) -> None:
    meant = said.replace("\ud83d", "\ufffd")
    thing = gadget("one", side.space)
    thing["metadata"]["annotations"] = {"a": said}
    made = await side.kube.create(GADGETS, thing)
    assert made["metadata"]["annotations"] == {"a": meant}
    ref = Ref(GADGETS, "one", side.space)
    patched = await side.kube.merge_patch(ref, {"spec": {"note": said}})
    assert patched["spec"]["note"] == meant
    replaced = await side.kube.replace(GADGETS, {**patched, "spec": {"note": said + said}})
    assert replaced["spec"]["note"] == meant + meant
    changed = await side.kube.json_patch(ref, [{"op": "replace", "path": "/spec/note", "value": said}])
    assert changed["spec"]["note"] == meant


async def test_what_a_person_applies_with_escapes_in_pairs_is_refused(side: Side) -> None:
    """What the fake refuses must be what the real one refuses, or the tests that rest on it prove nothing."""
    kind = f"/apis/{GADGETS.api_version}/namespaces/{side.space}/{GADGETS.plural}/one"
    for raw in (b'"\\ud83d\\udd25"', b'"a\x7fb"'):
        body = b'{"apiVersion":"test.prefillgate.io/v1","kind":"Gadget","metadata":{"name":"one"},"spec":{"note":%s}}'
        params = {"fieldManager": "x", "force": "true"}
        call = Call("apply", "gadgets", "PATCH", kind, params, body % raw, APPLY)
        with pytest.raises(Invalid, match="error decoding YAML"):
            await side.kube._transport.send(call)
