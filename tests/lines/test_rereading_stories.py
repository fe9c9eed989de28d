"""A line that has promoted, rejected and watched, under a newer controller or another seal key: nothing is forgotten
and nothing is replayed unasked. The profiles are read from real templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from prefillgate.profiles import Profile, Seal, Sources, model, profile_of, reading, reading_of
from prefillgate.reconcile.snapshot import ArmSeen, Slot, WatchFound, WorkKind
from tests.lines.test_rereading import kept
from tests.support.line_world import HOLDS, PROMOTES, SOUND, START, World

KEY, OTHER_KEY = b"k1" * 16, b"k2" * 16
CHAT = {"chat.jinja": "{{ messages }}"}
HOUR = 3600.0


@dataclass(frozen=True)
class Reader:
    """One way to read the templates of the line, each of which mounts its chat template and has a credential."""

    key: bytes = KEY
    chat: str = CHAT["chat.jinja"]
    ignored: tuple[str, ...] = ()

    @property
    def sources(self) -> Sources:
        return Sources(
            Seal(self.key),
            config_maps={"chat": {"chat.jinja": self.chat}},
            image_ids={"engine": f"registry.example/llama@sha256:{'a' * 64}"},
            ignored=self.ignored,
        )

    @property
    def mark(self) -> str:
        return reading_of(self.sources)

    def profile(self, split: str) -> Profile:
        words = ["llama-server", "-m", "/m/a.gguf", "-ts", split, "--jinja"]
        container = {
            "name": "engine",
            "image": "registry.example/llama:server",
            "args": words,
            "env": [{"name": "API_KEY", "value": "secret-value-123456"}, {"name": "BUILD_NOTE", "value": "x"}],
            "volumeMounts": [{"name": "chat", "mountPath": "/chat"}],
        }
        spec = {"containers": [container], "volumes": [{"name": "chat", "configMap": {"name": "chat"}}]}
        made: dict[str, Any] = {"kind": "Deployment", "spec": {"template": {"spec": spec}}}
        return profile_of(made, self.sources)


A, B, C = "3,1", "2,2", "1,3"


def read_by(world: World, reader: Reader, slots: dict[Slot, str]) -> None:
    world.reading = reader.mark
    world.slots = {slot: reader.profile(split) for slot, split in slots.items()}
    world.templates = {slot: kept(split.replace(",", "-")) for slot, split in slots.items()}


def lived() -> World:
    """B was promoted over A and is watched, C was rejected; the baseline's workload still has A."""
    world, reader = World(), Reader()
    world.change(watch={"everySeconds": int(HOUR), "previous": "Retain"})
    read_by(world, reader, {Slot.BASELINE: A, Slot.CANDIDATE: A})
    world.ready()
    for split, final in ((B, PROMOTES), (C, HOLDS)):
        read_by(world, reader, {Slot.BASELINE: A if split == B else B, Slot.CANDIDATE: split})
        world.settle()
        world.judge(final)
        if split == B:
            world.ends(WorkKind.FLOOR, floor=SOUND)
            world.settle()
    for number in (1, 2):
        world.now += HOUR + 10
        world.settle()
        world.ends(WorkKind.WATCH, watch=WatchFound(4 * number, 0, False, "No alarm."))
        world.settle()
    return world


def what_stands(world: World) -> dict[str, Any]:
    """What a line's status says, digests and the words that name them left out."""
    status = world.status
    promoted, previous = status["promotedProfile"], status["previousProfile"]
    names = ("decision", "promotion", "rollback", "reason", "prefills", "currentRollout")
    return {
        **{name: status.get(name) for name in names},
        "differences": status["differences"],
        "promoted": [promoted[name] for name in ("since", "how", "rollout", "template")],
        "previous": [previous[name] for name in ("since", "how", "template")],
        "rejected": [(each["rollout"], each["reason"], each["at"]) for each in status["rejectedProfiles"]],
        "watch": {key: value for key, value in status["watch"].items() if key != "nextAt"},
        "rollouts": {name: without_profiles(each["status"]) for name, each in world.rollouts.items()},
        "gating": world.condition("Gating"),
        "allowed": (world.condition("PromotionAllowed"), world.condition("RollbackAllowed")),
    }


def without_profiles(status: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key not in ("baseline", "candidate")}


@pytest.mark.parametrize("what", ["a newer controller", "an ignored name", "the volume with the store and the key"])
def test_nothing_is_forgotten_and_nothing_is_replayed_unasked(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = lived()
    digests = [Reader().profile(split).digest for split in (A, B, C)]
    before, events, started = what_stands(world), len(world.events), len(world.started)
    world.restart()
    reader = Reader()
    if what == "a newer controller":
        monkeypatch.setattr(model, "DIGEST_VERSION", 1_000)
        monkeypatch.setattr(reading, "READER", 1_000)
    elif what == "an ignored name":
        reader = Reader(ignored=("BUILD_NOTE",))
    else:
        reader = Reader(OTHER_KEY)
        for each in (world.fates, world.floors, world.watches, world.notices, world.journals, world.overrides):
            each.clear()
    world.down = {digest: ArmSeen(digest, ()) for digest in digests}
    world.now += 60
    read_by(world, reader, {Slot.BASELINE: B, Slot.CANDIDATE: C})
    world.settle()

    now = [reader.profile(split).digest for split in (A, B, C)]
    assert not set(now) & set(digests)
    assert what_stands(world) == before
    status = world.status
    assert (status["promotedProfile"]["digest"], status["candidate"]["digest"]) == (now[1], now[2])
    assert [each["digest"] for each in status["rejectedProfiles"]] == [now[2]]
    assert world.condition("EndpointsReady") == ("True", "Reachable")
    # the floor alone is measured anew: its store is of servers that were called by the digest of then
    assert [(each.kind, each.baseline) for each in world.started[started:]] == [(WorkKind.FLOOR, now[1])]
    lost = {"StoreBehind"} if "volume" in what else set()
    assert {each.reason for each in world.events[events:]} == {"FloorDue", *lost}

    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    read_by(world, reader, {Slot.BASELINE: B, Slot.CANDIDATE: A})  # a rollback, by whoever does it
    world.settle()
    assert world.status["previousProfile"]["digest"] == now[0]
    assert world.status["currentRollout"] == before["currentRollout"] and list(world.rollouts) == [*before["rollouts"]]
    read_by(world, reader, {Slot.BASELINE: B, Slot.CANDIDATE: C})
    world.settle()
    assert list(world.rollouts) == [*before["rollouts"]]

    world.now = START + 10 * HOUR
    started = len(world.started)
    world.settle()
    (watch,) = world.started[started:]
    assert (watch.kind, watch.baseline, watch.after) == (WorkKind.WATCH, now[1], before["watch"]["lastRun"])


@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
def test_a_chat_template_that_changed_meanwhile_is_told_where_the_key_is_the_same(key: bytes) -> None:
    world, promoted = lived(), Reader().profile(B).digest
    reader = Reader(key, chat="{{ other }}", ignored=("BUILD_NOTE",))
    world.down = {promoted: ArmSeen(promoted, ())}
    read_by(world, reader, {Slot.BASELINE: B, Slot.CANDIDATE: B})
    world.settle()
    assert (world.status["promotedProfile"]["digest"] == promoted) is (key == KEY)
