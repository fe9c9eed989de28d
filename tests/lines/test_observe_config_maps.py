"""Pods are told by the ConfigMaps that they started with: what is known of what stood there, and what nobody knows."""

from __future__ import annotations

from typing import Any, cast

import pytest

from prefillgate.api.kinds.arms import Arm
from prefillgate.api.kinds.line_status import MOST_CONFIG_MAPS
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.app.observe import trims
from prefillgate.app.observe.arms import Arms, Sorting
from prefillgate.app.observe.config import ConfigMaps
from prefillgate.app.observe.contents import MOST_GONE, MOST_STATES, Contents
from prefillgate.app.observe.services import Services
from prefillgate.app.observe.slots import PodFound, SlotFound
from prefillgate.kube.client import Kube
from prefillgate.kube.objects import Object, Ref
from prefillgate.profiles import Profile, Seal, Sources, image_ids_of, profile_of
from prefillgate.reconcile.roles import roles_of
from prefillgate.reconcile.snapshot import Slot, SlotProfile
from tests.support.manual_clock import ManualClock

PLACE, KEY = "prod/tuning", b"the key of these tests"
MADE, STARTED, BEFORE, LATER = (f"2026-11-0{day}T00:00:00Z" for day in (1, 5, 4, 8))
JUST_BEFORE, JUST_AFTER = "2026-11-04T23:59:59Z", "2026-11-05T00:00:01Z"
NOW = "2026-11-20T12:00:00Z"
NOW_SECONDS = cast(float, seconds_of(NOW))
OLD, NEW = {"LLAMA_ARG_CTX_SIZE": "4096", "X": "1"}, {"LLAMA_ARG_CTX_SIZE": "131072", "X": "1"}
DIGEST = "sha256:" + "a" * 64


def config_map(data: dict[str, str], made: str, wrote: str | None = None, version: str = "1") -> Object:
    """As an API server has it: who wrote its data, and when as far as it is told."""
    fields = [{"manager": "kubectl", "time": wrote or made, "fieldsV1": {"f:data": {}}}]
    meta = {"name": "tuning", "namespace": "prod", "uid": f"uid-{made}", "resourceVersion": f"{made}/{wrote}/{version}"}
    meta |= {"creationTimestamp": made, "managedFields": fields}
    return {"kind": "ConfigMap", "metadata": meta, "data": data}


class World:
    """An API server with one ConfigMap, what a reflector holds of it, and a clock that stands still."""

    def __init__(self, obj: Object | None = None, key: bytes = KEY, now: float = NOW_SECONDS) -> None:
        self.obj: Object | None = None
        self.asked = 0
        self.clock = ManualClock(now)
        self.maps = ConfigMaps(cast(Kube, self), cast(Any, self), key, self.clock)
        self.is_told = True
        self.put(obj)

    async def find(self, ref: Ref) -> Object | None:
        self.asked += 1
        return self.obj

    def at(self, key: str) -> Object | None:
        return None if self.obj is None else trims.config_map(self.obj)

    def put(self, obj: Object | None) -> None:
        """It is this now; the reflector tells of it."""
        old, self.obj = self.at(PLACE), obj
        if self.is_told and old != self.at(PLACE):
            self.maps.told(PLACE, self.at(PLACE))

    async def is_another(self, at: str, needed: bool = True) -> bool:
        await self.maps.read("prod", ["tuning"])
        return self.maps.another_than("prod", ["tuning"], ["tuning"] if needed else [], at) is not None


async def test_contents_that_were_written_after_a_moment_are_others_whatever_way_they_came_there() -> None:
    ways = {
        "written in place": config_map(NEW, MADE, LATER),
        "made anew": config_map(NEW, LATER),
        "made anew, then written": config_map(NEW, BEFORE, LATER),
        "gone": None,
    }
    for what, obj in ways.items():
        for known in (True, False):  # whether the one before was seen
            world = World(config_map(OLD, MADE) if known else None)
            world.put(obj)
            assert await world.is_another(STARTED), (what, known)


async def test_what_was_there_before_a_pod_started_is_what_it_started_with() -> None:
    for wrote in (None, BEFORE, STARTED):
        assert not await World(config_map(OLD, MADE, wrote)).is_another(STARTED)
    for made, other in ((JUST_BEFORE, False), (STARTED, False), (JUST_AFTER, True)):
        assert await World(config_map(OLD, made)).is_another(STARTED) is other


@pytest.mark.parametrize("told", [True, False])
async def test_a_write_that_the_api_server_gives_no_time_to_is_of_when_it_was_seen(told: bool) -> None:
    world = World(config_map(OLD, MADE))
    assert not await world.is_another(STARTED)
    world.is_told = told  # else a look finds it out by itself
    world.put(config_map({"X": "1"}, MADE, version="2"))  # a key was taken away
    for at, other in ((STARTED, True), (moment(NOW_SECONDS - 1), True), (NOW, False), (moment(NOW_SECONDS + 1), False)):
        assert await world.is_another(at) is other
    world.clock.wall += 60
    told_at = moment(NOW_SECONDS + 30)
    world.put(config_map(NEW, MADE, told_at, "3"))
    assert not await world.is_another(told_at)
    assert await world.is_another(moment(NOW_SECONDS + 29))
    world.put(config_map({}, MADE, told_at, "4"))
    assert await world.is_another(moment(NOW_SECONDS + 59))
    assert not await world.is_another(moment(NOW_SECONDS + 60))


async def test_the_second_of_two_writes_within_a_second_counts() -> None:
    world = World(config_map(OLD, MADE))
    world.put(config_map(NEW, MADE, NOW, "2"))
    world.put(config_map({}, MADE, NOW, "3"))
    assert await world.is_another(moment(NOW_SECONDS - 1))
    assert not await world.is_another(NOW)
    assert await world.maps.read("prod", ["tuning"]) == {"tuning": {}}


async def test_a_key_that_is_taken_away_after_others_wrote_the_same_again_is_of_when_it_was_seen() -> None:
    world = World(config_map(OLD, MADE))
    world.put(config_map(OLD, MADE, LATER, "2"))
    assert not await world.is_another(STARTED)
    world.put(config_map({"X": "1"}, MADE, LATER, "3"))
    assert await world.is_another("2026-11-10T00:00:00Z")


async def test_the_same_contents_made_anew_are_what_a_pod_started_with() -> None:
    world = World(config_map(OLD, MADE))
    world.put(None)
    assert await world.is_another(STARTED)
    world.put(config_map(OLD, LATER))
    assert not await world.is_another(STARTED)
    world.put(config_map(NEW, LATER, "2026-11-09T00:00:00Z"))
    assert await world.is_another(STARTED)
    world.put(config_map(OLD, LATER, "2026-11-10T00:00:00Z"))
    assert not await world.is_another(STARTED)
    assert await world.is_another("2026-11-09T00:00:00Z")  # it started with those in between


async def test_a_pod_that_may_do_without_is_told_by_whether_there_was_one() -> None:
    world = World()
    assert not await world.is_another(STARTED, needed=False)
    assert await world.is_another(STARTED, needed=True)
    world.put(config_map(OLD, LATER))
    assert await world.is_another(STARTED, needed=False)
    world.put(None)
    assert await world.is_another(LATER, needed=False)
    assert not await world.is_another(NOW, needed=False)


async def test_contents_are_read_again_where_they_changed_alone() -> None:
    world = World(config_map(OLD, MADE))
    assert await world.maps.read("prod", ["tuning"]) == {"tuning": OLD}
    before = world.maps.versions("prod", ["tuning"])
    world.put(config_map(OLD, MADE, LATER, "2"))
    assert await world.maps.read("prod", ["tuning"]) == {"tuning": OLD}
    assert (world.asked, world.maps.versions("prod", ["tuning"])) == (1, before)
    world.put(config_map(NEW, MADE, LATER, "3"))
    assert await world.maps.read("prod", ["tuning"]) == {"tuning": NEW}
    assert world.asked == 2
    assert world.maps.versions("prod", ["tuning"]) != before
    world.put(None)
    assert await world.maps.read("prod", ["tuning"]) == {}
    assert world.maps.versions("prod", ["tuning"]) == ("",)


def test_of_many_versions_and_of_many_that_are_gone_the_oldest_are_forgotten() -> None:
    clock = ManualClock(NOW_SECONDS)
    contents = Contents(clock, KEY)
    seen = [trims.config_map(config_map({"n": str(n)}, MADE, moment(NOW_SECONDS + n))) for n in range(MOST_STATES + 1)]
    for each in seen:
        contents.seen("n/one", each)
    assert contents.another("n/one", seen[0]["dataDigest"], NOW) is True
    assert contents.another("n/one", seen[1]["dataDigest"], moment(NOW_SECONDS + 1)) is False
    for n in range(MOST_GONE + 1):
        contents.seen(f"n/{n}", seen[0])
        contents.seen(f"n/{n}", None)
    contents.seen("n/2", seen[0])  # it is there again
    contents.recall("n/1", None, MADE)
    assert contents.another("n/0", None, NOW) is None
    assert contents.another("n/1", seen[0]["dataDigest"], moment(NOW_SECONDS - 1)) is True
    for n in range(MOST_GONE):
        contents.seen(f"m/{n}", seen[0])
        contents.seen(f"m/{n}", None)
    assert contents.last("n/1") is None
    contents.recall("n/1", None, MADE)
    assert contents.last("n/1") == (None, MADE)
    assert contents.another("n/2", seen[0]["dataDigest"], NOW) is False
    contents.seen("n/2", trims.stub(config_map(NEW, LATER)))  # of its namespace nothing is kept any more
    assert contents.another("n/2", seen[0]["dataDigest"], NOW) is False


# -- a controller that is started anew


def told_by(world: World) -> list[dict[str, Any]]:
    """What stands in the status of a line."""
    return [each.model_dump(by_alias=True, exclude_none=True) for each in world.maps.seen("prod", ["tuning"])]


async def after_restart(before: World, obj: Object | None) -> World:
    """Another controller an hour later, that has the status of the one before."""
    await before.maps.read("prod", ["tuning"])
    world = World(obj, now=before.clock.wall + 3600)
    world.maps.recall("prod", told_by(before))
    world.maps.recall("prod", [{"name": "tuning", "since": MADE}])  # another line, that has not heard of it
    return world


async def test_a_change_without_a_time_is_known_after_a_restart() -> None:
    world = World(config_map(OLD, MADE))
    world.put(config_map({"X": "1"}, MADE, version="2"))
    again = await after_restart(world, config_map({"X": "1"}, MADE, version="2"))
    for at, other in ((STARTED, True), (moment(NOW_SECONDS - 1), True), (NOW, False)):
        assert await again.is_another(at) is other
    again = await after_restart(again, config_map({}, MADE, version="3"))  # and one that nobody saw
    for at, other in ((NOW, True), (moment(NOW_SECONDS + 7199), True), (moment(NOW_SECONDS + 7200), False)):
        assert await again.is_another(at) is other
    again = await after_restart(again, config_map(NEW, MADE, moment(NOW_SECONDS + 9000), "4"))
    assert await again.is_another(moment(NOW_SECONDS + 8999))
    assert not await again.is_another(moment(NOW_SECONDS + 9000))  # as it is told


async def test_the_same_made_anew_and_what_is_gone_are_known_after_a_restart() -> None:
    world = World(config_map(OLD, MADE))
    assert not await (await after_restart(world, config_map(OLD, LATER))).is_another(STARTED)
    assert await (await after_restart(world, config_map(NEW, LATER))).is_another(STARTED)
    gone = await after_restart(world, None)
    assert await gone.is_another(STARTED, needed=False)
    gone = await after_restart(gone, None)
    assert await gone.is_another(STARTED, needed=False)
    assert not await gone.is_another(moment(NOW_SECONDS + 3600), needed=False)
    back = await after_restart(gone, config_map(OLD, moment(NOW_SECONDS + 9000)))
    assert await back.is_another(moment(NOW_SECONDS + 8000), needed=False)
    assert not await back.is_another(moment(NOW_SECONDS + 9000), needed=False)


async def test_who_saw_it_all_believes_itself() -> None:
    leader, standby = World(config_map(OLD, MADE)), World(config_map(OLD, MADE))
    for each in (leader, standby):
        each.put(config_map({"X": "1"}, MADE, version="2"))
    standby.maps.recall("prod", told_by(leader))
    assert await standby.is_another(STARTED)
    standby.put(config_map(OLD, MADE, moment(NOW_SECONDS + 60), "3"))
    assert not await standby.is_another(STARTED)


async def test_what_was_told_under_another_key_or_is_no_record_tells_nothing() -> None:
    world = World(config_map(OLD, MADE))
    again = World(config_map({"X": "1"}, MADE, version="2"), b"another key")
    again.maps.recall("prod", told_by(world))
    assert not await again.is_another(STARTED)  # nobody can know
    again = World(config_map(OLD, MADE))
    for told in (None, "x", ["x", {"name": "tuning"}, {"name": "tuning", "mark": "x", "since": MADE}]):
        again.maps.recall("prod", told)
    assert not await again.is_another(STARTED)


async def test_what_a_status_says_of_contents_tells_nobody_what_they_are() -> None:
    world = World(config_map(OLD, MADE))
    (told,) = world.maps.seen("prod", ["tuning", "other"])
    assert (told.name, told.since) == ("tuning", MADE)
    assert trims.config_map(config_map(OLD, MADE))["dataDigest"][:32] not in str(told.mark)
    (other,) = World(config_map(OLD, MADE), b"another key").maps.seen("prod", ["tuning"])
    assert str(told.mark)[:8] != str(other.mark)[:8]
    assert str(told.mark)[9:] != str(other.mark)[9:]
    many = [f"c{n:03}" for n in range(MOST_CONFIG_MAPS + 1)]
    for name in many:
        world.maps.told(f"prod/{name}", trims.config_map(config_map(OLD, MADE)))
    assert [each.name for each in world.maps.seen("prod", reversed(many))] == many[:-1]


# -- the arms of two workloads, each with a ConfigMap


TEMPLATE: Object = {
    "metadata": {"labels": {"app": "e"}},
    "spec": {
        "containers": [
            {
                "name": "s",
                "image": "ghcr.io/ggml-org/llama.cpp:server",
                "args": ["-m", "m.gguf"],
                "envFrom": [{"configMapRef": {"name": "tuning"}}],
            }
        ]
    },
}


def arm(name: str) -> Arm:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return Arm.model_validate({"workloadRef": ref, "endpoint": {"pods": {"port": 8080}}})


def pod(name: str, made: str = STARTED, started: str = STARTED) -> Object:
    meta = {"name": name, "namespace": "prod", "uid": name, "creationTimestamp": made}
    state = {"name": "s", "containerID": "c1", "imageID": f"x@{DIGEST}", "state": {"running": {"startedAt": started}}}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": ready, "containerStatuses": [state]}
    return {"kind": "Pod", "metadata": meta, "spec": TEMPLATE["spec"], "status": status}


async def slot(world: World, made: Object, which: Slot = Slot.BASELINE) -> SlotFound:
    """What a workload of that name comes to now, with that one pod."""
    read = await world.maps.read("prod", ["tuning"])
    sources = Sources(Seal(b"k" * 32), config_maps=read, image_ids=image_ids_of(made))
    workload = {"kind": "Deployment", "metadata": {"name": "a", "uid": "a"}, "spec": {"template": TEMPLATE}}
    profile = profile_of(workload, sources)
    mark = ("a", world.maps.versions("prod", ["tuning"]))
    found = PodFound(made, TEMPLATE, sources, ("tuning",), mark, ("tuning",))
    return SlotFound(which, arm("a"), "prod", profile, None, workload, (found,))


async def arms(world: World, promoted: Profile, found: SlotFound) -> Arms:
    status = {"promotedProfile": {"digest": promoted.digest, "writtenDigest": promoted.written_digest}}
    assert found.profile is not None
    roles = roles_of(status, (SlotProfile(found.slot, found.profile, None),))
    return await Sorting(world.maps, cast(Services, None)).arms(status, roles, (found,))


async def test_a_pod_of_a_config_map_that_was_made_anew_is_of_neither_arm() -> None:
    world = World(config_map(OLD, MADE))
    first = await slot(world, pod("old"))
    assert first.profile is not None
    world.put(None)
    world.put(config_map(NEW, LATER))
    now = await slot(world, pod("old"))
    assert now.profile is not None
    assert now.profile.digest != first.profile.digest
    found = await arms(world, first.profile, now)
    assert found.candidate is not None
    assert found.candidate.servers == ()
    (note,) = found.candidate.notes
    assert note.startswith("pod old is of neither arm: ConfigMap tuning was changed after it started (restart it, or")
    found = await arms(world, first.profile, await slot(world, pod("new", LATER, LATER)))
    assert found.candidate is not None
    assert [each.name for each in found.candidate.ready] == ["new"]

    world.put(None)
    found = await arms(world, first.profile, await slot(world, pod("old")))
    assert found.candidate is not None
    assert found.candidate.servers == ()
    assert "ConfigMap tuning is not there any more (put it back, and restart the pod" in found.candidate.notes[0]


async def test_a_kubelet_whose_clock_is_behind_starts_no_pod_before_it_was_made() -> None:
    world = World(config_map(OLD, STARTED))
    made = await slot(world, pod("one", STARTED, JUST_BEFORE))
    assert made.profile is not None
    found = await arms(world, made.profile, made)
    assert found.baseline is not None
    assert [each.name for each in found.baseline.ready] == ["one"]
