"""Lists in pages, and watches: what they give, from where they go on, how they end."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from prefillgate.kube.errors import Gone
from prefillgate.kube.objects import Query, Ref, name_of, version_of
from tests.contract_kube.conftest import Side
from tests.support.gadgets import GADGETS, gadget


async def several(side: Side, count: int) -> None:
    for number in range(count):
        await side.kube.create(GADGETS, gadget(f"g{number}", side.space, number, odd=str(number % 2)))


@pytest.mark.parametrize("page", [2, 5, 500])
async def test_a_list_is_whole_however_long_its_pages(side: Side, page: int) -> None:
    await several(side, 5)
    found = await side.kube.list(Query(GADGETS, side.space), page)
    assert [name_of(each) for each in found.items] == ["g0", "g1", "g2", "g3", "g4"]
    assert {each["kind"] for each in found.items} == {"Gadget"}


async def test_a_list_holds_what_was_selected(side: Side) -> None:
    await several(side, 4)
    odd = await side.kube.list(Query(GADGETS, side.space, labels="odd=1"))
    assert [name_of(each) for each in odd.items] == ["g1", "g3"]
    one = await side.kube.list(Query(GADGETS, side.space, fields="metadata.name=g2"))
    assert [name_of(each) for each in one.items] == ["g2"]
    assert (await side.kube.list(Query(GADGETS, side.space, labels="odd=2"))).items == []


async def test_a_watch_gives_what_came_after_the_list_and_ends_by_itself(side: Side) -> None:
    await several(side, 1)
    query = Query(GADGETS, side.space)
    listed = await side.kube.list(query)
    ref = Ref(GADGETS, "new", side.space)
    await side.kube.create(GADGETS, gadget("new", side.space))
    await side.kube.merge_patch(ref, {"spec": {"size": 5}})
    await side.kube.delete(ref)
    changes = [each async for each in side.kube.watch(query, listed.resource_version, 1) if each.type != "BOOKMARK"]
    assert [each.type for each in changes] == ["ADDED", "MODIFIED", "DELETED"]
    assert [each.object["spec"]["size"] for each in changes] == [1, 5, 5]
    assert len({version_of(each.object) for each in changes}) == 3
    later = [each async for each in side.kube.watch(query, version_of(changes[1].object), 1) if each.type != "BOOKMARK"]
    assert [each.type for each in later] == ["DELETED"]


async def test_an_object_that_is_selected_no_more_is_deleted_for_the_watch(side: Side) -> None:
    await several(side, 2)
    query = Query(GADGETS, side.space, labels="odd=1")
    listed = await side.kube.list(query)
    await side.kube.merge_patch(Ref(GADGETS, "g1", side.space), {"metadata": {"labels": {"odd": "0"}}})
    await side.kube.merge_patch(Ref(GADGETS, "g0", side.space), {"metadata": {"labels": {"odd": "1"}}})
    async with aclosing(side.kube.watch(query, listed.resource_version, 1)) as watch:
        changes = [(each.type, name_of(each.object)) async for each in watch if each.type != "BOOKMARK"]
    assert changes == [("DELETED", "g1"), ("ADDED", "g0")]


async def test_a_watch_from_too_long_ago_is_gone(side: Side) -> None:
    if side.fake is not None:
        side.fake.expire()
    with pytest.raises(Gone):
        async for _ in side.kube.watch(Query(GADGETS, side.space), "1", 1):
            pass
