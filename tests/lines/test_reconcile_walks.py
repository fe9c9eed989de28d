"""Lines that anything happens to, in any order, controllers killed among it: they settle, and keep what must hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.moments import moment
from prefillgate.core.decision import Reason
from prefillgate.core.verdict import Outcome
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import ArmSeen, Slot, Trouble, WatchFound, WorkKind, WorkState
from tests.support.line_world import (
    HOLDS,
    LOST,
    PROMOTES,
    ROLLS_BACK,
    SOUND,
    STANDARD,
    A,
    B,
    C,
    Killed,
    World,
    profile,
    replicate,
    verdict,
)

STEPS = 45
PROFILES = (A, B, C, profile("2,2", resolved=False), profile("9,9"))
FINALS = (PROMOTES, PROMOTES, ROLLS_BACK, HOLDS, LOST, verdict(Outcome.ROLLBACK, Reason.CANDIDATE_UNAVAILABLE, 3, 1))


def running(world: World, kind: WorkKind) -> bool:
    return any(each.kind is kind and each.state is WorkState.RUNNING for each in world.works.values())


def a_profile(world: World, chance: random.Random) -> None:
    world.slots[chance.choice(list(world.slots))] = chance.choice(PROFILES)


def a_floor_ends(world: World, chance: random.Random) -> None:
    if running(world, WorkKind.FLOOR):
        world.ends(WorkKind.FLOOR, floor=replace(SOUND, sound=chance.choice([True, True, True, None, False])))


def a_replay_ends(world: World, chance: random.Random) -> None:
    if running(world, WorkKind.JUDGE):
        world.ends(WorkKind.JUDGE, verdict=chance.choice(FINALS))


def a_replay_goes_on(world: World, chance: random.Random) -> None:
    if running(world, WorkKind.JUDGE):
        reason = chance.choice([Reason.MORE_EVIDENCE_NEEDED, Reason.REPLICATE_DUE, Reason.REPLICATE_RUNNING])
        views = (replicate(),) if reason is Reason.REPLICATE_RUNNING else ()
        waiting = chance.choice(["", "WaitingForIdle", "LoadLimitReached"])
        told = verdict(reason=reason, prefills=chance.randint(1, 90), alarm=bool(views), replicates=views)
        world.comes_to(told, waiting=waiting, waiting_since=world.now)


def a_replay_breaks(world: World, chance: random.Random) -> None:
    for key, work in list(world.works.items()):
        if work.state is WorkState.RUNNING and chance.random() < 0.5:
            state = chance.choice([WorkState.BROKEN, WorkState.REFUSED])
            retry = chance.choice([None, world.now + 30])
            world.works[key] = replace(work, state=state, trouble="lost", retry_at=retry)


def a_watch_ends(world: World, chance: random.Random) -> None:
    if running(world, WorkKind.WATCH):
        reason = chance.choice(["", "RegressionConfirmed", "RegressionNotConfirmed", "AlarmWithoutBaseline"])
        found = WatchFound(4, 1, chance.random() < 0.5, "for a test", reason, reason == "RegressionConfirmed")
        world.ends(WorkKind.WATCH, watch=found)


def a_server_goes_or_comes(world: World, chance: random.Random) -> None:
    digest = chance.choice(PROFILES).digest
    if digest in world.down:
        del world.down[digest]
    else:
        why: dict[str, Any] = chance.choice([{}, {"unavailable": "crash"}, {"unreachable": "mesh"}, {"asked": False}])
        world.down[digest] = ArmSeen(digest, world.arm("x").servers if "asked" in why else (), **why)


def a_person(world: World, chance: random.Random) -> None:
    name = chance.choice([None, *world.rollouts])
    what = chance.choice(["rerun", "back", "promote", "hold", "rollback", "away", "wrong"])
    if what == "rerun":
        world.annotate(name, rerun=str(chance.randint(1, 9)))
    elif what == "back":
        words = {"override": "promote", "override_reason": f"back {world.now}", "override_actor": "alice"}
        world.annotate(None, rerun=f"back {world.now}", **words)
    elif what == "away":
        world.annotate(name, override=None, override_reason=None)
    else:
        expires = chance.choice([None, moment(world.now + 40)])
        world.annotate(name, override=what, override_reason="why", override_actor="alice", override_expires=expires)


CHANGES: list[dict[str, Any]] = [
    *({"suspend": True}, {"suspend": None}, {"suspend": None}, {"dryRun": True}, {"dryRun": None}),
    *({"historyLimit": 0}, {"historyLimit": 2}, {"historyLimit": None}, {"deadlineSeconds": 60}),
    *({"deadlineSeconds": None}, {"watch": {"everySeconds": 60, "previous": "Retain"}}, {"watch": None}),
]


def a_change(world: World, chance: random.Random) -> None:
    world.change(**chance.choice(CHANGES))


def the_store(world: World, chance: random.Random) -> None:
    what = chance.randint(0, 3)
    world.store_trouble = "away" if what == 0 else None
    if what == 1:
        for each in (world.fates, world.floors, world.watches, world.notices, world.journals):
            each.clear()  # type: ignore[attr-defined]


def an_object(world: World, chance: random.Random) -> None:
    what = chance.randint(0, 3)
    if what == 0 and world.rollouts:
        del world.rollouts[chance.choice(list(world.rollouts))]
    elif what == 1:
        world.by_hand(f"mine-{chance.randint(1, 3)}")
    elif what == 2:
        world.policy = replace(STANDARD, sha256=chance.choice("de") * 64)
    else:
        world.troubles = chance.choice([(), (), (Trouble("CasesNotFound", "spec.replaySetRef", "gone"),)])


HAPPENS: list[Callable[[World, random.Random], None]] = [
    *(a_profile, a_profile, a_floor_ends, a_floor_ends, a_floor_ends, a_replay_ends, a_replay_ends, a_replay_goes_on),
    *(a_replay_goes_on, a_replay_breaks, a_watch_ends, a_server_goes_or_comes, a_person, a_change, the_store),
    an_object,
]


def holds(world: World, before: dict[str, Any] | None) -> None:
    """What must hold of a line that has settled."""
    status = world.status
    judged = [each for each in world.works.values() if each.kind is WorkKind.JUDGE and each.state is WorkState.RUNNING]
    live = {thing["metadata"]["uid"] for thing in world.rollouts.values() if "endedAt" not in thing["status"]}
    assert len(judged) <= 1 and {each.key for each in judged} <= live
    rejected = [each["digest"] for each in status.get("rejectedProfiles", [])]
    assert len(set(rejected)) == len(rejected) and status.get("promotedProfile", {}).get("digest") not in rejected
    if before is not None and "promotedProfile" in before:
        was, now = before["promotedProfile"], status["promotedProfile"]
        assert now["since"] >= was["since"]
        if now["since"] != was["since"]:
            assert now["how"] in ("Promoted", "Overridden") and status["previousProfile"]
    for name, thing in world.rollouts.items():
        told = thing["status"]
        allowed = [
            each["reason"] for each in told["conditions"] if each["status"] == "True" and "Allowed" in each["type"]
        ]
        assert len(allowed) <= 1, name
        assert ("endedAt" in told) == (world.condition("Succeeded", name)[1] != "Running"), name
        if world.line["spec"].get("dryRun") and "endedAt" not in told:
            assert not allowed


def one_step(world: World, chance: random.Random) -> None:
    """Something happens, and now and then everything in the way of a rollout is gone again."""
    chance.choice(HAPPENS)(world, chance)
    if chance.random() < 0.4:
        world.store_trouble, world.troubles, world.policy = None, (), STANDARD
        world.down.clear()
        world.change(suspend=None, historyLimit=None, deadlineSeconds=None)
    if chance.random() < 0.3:
        try:
            world.carry_out(plan(world.look()), at_most=chance.randint(0, 8))
        except Killed:
            world.restart()
    world.now += chance.choice([1, 1, 5, 61])


@pytest.mark.parametrize("seed", range(12))
def test_a_line_that_anything_happens_to_settles_and_keeps_what_must_hold(seed: int) -> None:
    chance, world = random.Random(seed), World()
    if seed % 3 == 0:
        del world.spec["candidate"]
        world.slots = {Slot.BASELINE: A}
    before = None
    for _ in range(STEPS):
        one_step(world, chance)
        wanted = world.settle(20)
        assert wanted.look_again_seconds is None or wanted.look_again_seconds > 0
        holds(world, before)
        before = world.status
