"""Objects: made, read, replaced, patched, deleted; and how each refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from prefillgate.kube.client import Action
from prefillgate.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from prefillgate.kube.events import WARNING, Happening, Recorder
from prefillgate.kube.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    SECRETS,
    Kind,
    Query,
    Ref,
    generation_of,
    uid_of,
    version_of,
)
from tests.contract_kube.conftest import Side
from tests.support.gadgets import GADGETS, gadget


async def test_the_server_tells_its_version(side: Side) -> None:
    assert (await side.kube.version()).startswith("v1.")


async def test_an_object_is_made_once_read_and_deleted_once(side: Side) -> None:
    ref = Ref(GADGETS, "one", side.space)
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    assert generation_of(made) == 1
    with pytest.raises(AlreadyExists):
        await side.kube.create(GADGETS, gadget("one", side.space))
    assert (await side.kube.get(ref))["spec"] == {"size": 1}
    assert await side.kube.delete(ref) is True
    assert await side.kube.delete(ref) is False
    assert await side.kube.find(ref) is None
    with pytest.raises(NotFound) as caught:
        await side.kube.get(ref)
    assert caught.value.reason == "NotFound" and caught.value.code == 404


async def test_an_object_of_another_life_is_not_deleted(side: Side) -> None:
    ref = Ref(GADGETS, "one", side.space)
    first = await side.kube.create(GADGETS, gadget("one", side.space))
    await side.kube.delete(ref)
    await side.kube.create(GADGETS, gadget("one", side.space))
    with pytest.raises(Conflict):
        await side.kube.delete(ref, uid_of(first))
    assert await side.kube.find(ref) is not None


async def test_a_kind_that_is_not_served_is_not_taken_for_an_object_that_is_gone(side: Side) -> None:
    unknown = Ref(Kind("nothing.prefillgate.io", "v1", "nothings", "Nothing"), "one", side.space)
    with pytest.raises(NotFound) as caught:
        await side.kube.find(unknown)
    assert caught.value.reason == "NotServed"
    with pytest.raises(NotFound):
        await side.kube.delete(unknown)


async def test_which_resource_a_kind_is_the_server_tells(side: Side) -> None:
    assert await side.kube.discover(GADGETS.api_version, GADGETS.kind) == GADGETS
    assert await side.kube.discover("v1", "Namespace") == NAMESPACES
    assert await side.kube.discover("v1", "Gadget") is None
    with pytest.raises(NotFound) as caught:
        await side.kube.discover("nothing.prefillgate.io/v1", "Nothing")
    assert caught.value.reason == "NotServed"


async def test_nothing_is_made_in_a_namespace_that_is_not_there(side: Side) -> None:
    with pytest.raises(NotFound):
        await side.kube.create(CONFIG_MAPS, {"metadata": {"name": "one", "namespace": "not-there"}})


async def test_what_was_changed_since_it_was_read_is_not_replaced(side: Side) -> None:
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    newer = await side.kube.replace(GADGETS, {**made, "spec": {"size": 2}})
    assert generation_of(newer) == 2
    with pytest.raises(Conflict) as caught:
        await side.kube.replace(GADGETS, {**made, "spec": {"size": 3}})
    assert not isinstance(caught.value, AlreadyExists)
    assert (await side.kube.get(Ref(GADGETS, "one", side.space)))["spec"] == {"size": 2}


async def test_a_merge_patch_with_an_old_version_is_a_conflict(side: Side) -> None:
    ref = Ref(GADGETS, "one", side.space)
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    patched = await side.kube.merge_patch(ref, {"spec": {"note": "x"}})
    assert patched["spec"] == {"size": 1, "note": "x"}
    with pytest.raises(Conflict):
        await side.kube.merge_patch(ref, {"metadata": {"resourceVersion": version_of(made)}, "spec": {"size": 2}})


async def test_a_json_patch_is_done_whole_or_not_at_all(side: Side) -> None:
    ref = Ref(GADGETS, "one", side.space)
    await side.kube.create(GADGETS, gadget("one", side.space))
    size_is = {"op": "test", "path": "/spec/size", "value": 1}
    patched = await side.kube.json_patch(ref, [size_is, {"op": "replace", "path": "/spec/size", "value": 2}])
    assert patched["spec"] == {"size": 2}
    with pytest.raises(Invalid):
        await side.kube.json_patch(ref, [{"op": "add", "path": "/spec/note", "value": "x"}, size_is])
    assert (await side.kube.get(ref))["spec"] == {"size": 2}


async def test_a_field_that_does_not_exist_is_refused(side: Side) -> None:
    wrong = gadget("one", side.space)
    wrong["spec"]["sise"] = 2
    with pytest.raises(Invalid, match=r"spec\.sise"):
        await side.kube.create(GADGETS, wrong)


async def test_a_value_out_of_bounds_is_refused_with_the_path_of_its_field(side: Side) -> None:
    with pytest.raises(Invalid) as caught:
        await side.kube.create(GADGETS, gadget("one", side.space, size=11))
    assert caught.value.code == 422
    assert [cause.field for cause in caught.value.causes] == ["spec.size"]
    assert "10" in caught.value.causes[0].message


async def test_a_namespace_that_ends_takes_nothing_new_and_says_why(side: Side) -> None:
    ending = Ref(NAMESPACES, f"{side.space}-ends")
    held: dict[str, Any] = {"metadata": {"name": ending.name, "finalizers": ["test.prefillgate.io/held"]}}
    await side.kube.create(NAMESPACES, held)
    await side.kube.delete(ending)
    with pytest.raises(Forbidden) as caught:
        await side.kube.create(GADGETS, gadget("one", ending.name))
    assert caught.value.namespace_ends
    with pytest.raises(Forbidden) as other:
        await side.stranger.list(Query(SECRETS, side.space))
    assert not other.value.namespace_ends
    await side.kube.merge_patch(ending, {"metadata": {"finalizers": None}})


async def test_who_may_not_is_told_so_and_can_ask_before(side: Side) -> None:
    with pytest.raises(Forbidden):
        await side.stranger.list(Query(SECRETS, side.space))
    assert (await side.stranger.review(Action("list", SECRETS, side.space))).allowed is False
    assert (await side.kube.review(Action("list", SECRETS, side.space))).allowed is True


async def test_an_object_with_a_finalizer_stays_until_it_is_taken_off(side: Side) -> None:
    ref = Ref(GADGETS, "one", side.space)
    body = gadget("one", side.space)
    body["metadata"]["finalizers"] = ["prefillgate.io/test"]
    await side.kube.create(GADGETS, body)
    await side.kube.delete(ref)
    assert (await side.kube.get(ref))["metadata"]["deletionTimestamp"]
    await side.kube.merge_patch(ref, {"metadata": {"finalizers": None}})
    assert await side.kube.find(ref) is None


async def test_a_workload_is_scaled_through_its_scale_alone(side: Side) -> None:
    labels = {"app": "web"}
    container = {"name": "web", "image": "registry.example/web:1"}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}}
    spec["template"] = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    made = await side.kube.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": side.space}, "spec": spec})
    ref = Ref(DEPLOYMENTS, "web", side.space)
    scale = await side.kube.get(ref, "scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 2}, "app=web")
    assert uid_of(scale) == uid_of(made)
    assert (await side.kube.merge_patch(ref, {"spec": {"replicas": 3}}, "scale"))["spec"] == {"replicas": 3}
    none = await side.kube.merge_patch(ref, {"spec": {"replicas": 0}}, "scale")
    assert none["spec"] == {}
    after = await side.kube.get(ref)
    assert after["spec"]["replicas"] == 0
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == container["image"]
    old = {"metadata": {"resourceVersion": version_of(scale)}, "spec": {"replicas": 1}}
    with pytest.raises(Conflict):
        await side.kube.merge_patch(ref, old, "scale")
    with pytest.raises(NotFound):
        await side.kube.get(Ref(DEPLOYMENTS, "other", side.space), "scale")


async def test_events_are_found_by_their_reason_and_the_kind_that_they_are_about(side: Side) -> None:
    made = await side.kube.create(GADGETS, gadget("one", side.space))
    recorder = Recorder(side.kube, "me")
    for reason in ("CannotGoOn", "SomethingElse"):
        await recorder.emit(Happening(GADGETS, made, WARNING, reason, "Reconcile", "Überall 🔥", reason))
    for fields, found in (
        ("reason=CannotGoOn,regarding.kind=Gadget", ["Überall 🔥"]),
        ("reason=CannotGoOn,regarding.kind=ServingLine", []),
    ):
        listing = await side.kube.list(Query(EVENTS, side.space, fields=fields))
        assert [each["note"] for each in listing.items] == found
