"""Every reason of the table is reached by something that can be seen of a line, and nothing else is ever written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.api.kinds.names import PROFILE_ROLLOUT, SERVING_LINE
from prefillgate.api.kinds.reasons import CONDITIONS_OF, ROWS, ConditionType
from prefillgate.core.decision import ERRORS, Reason
from prefillgate.core.verdict import Outcome, Verdict
from prefillgate.reconcile.snapshot import ArmSeen, ServerSeen, Standstill, Trouble, WatchFound, WorkKind, WorkState
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
    World,
    replicate,
    verdict,
)

Scenario = Callable[[World], Any]
DAY = 86_400
GOES_ON = (Reason.MORE_EVIDENCE_NEEDED, Reason.REPLICATE_DUE, Reason.REPLICATE_RUNNING)
OF_TROUBLE = [
    row.reason
    for row in ROWS.values()
    if row.type is ConditionType.ACCEPTED and row.reason not in ("Accepted", "Pending", "SpecInvalid", "LineNotFound")
]
SCENARIOS: dict[str, Scenario] = {}


def scenario(life: Scenario) -> Scenario:
    """A life to be lived below."""
    SCENARIOS[life.__name__] = life
    return life


def final_of(reason: Reason) -> Verdict:
    """The verdict that a run ends with for a reason."""
    if reason is Reason.ACCEPTANCE_REACHED:
        return PROMOTES
    if reason in (Reason.REGRESSION_CONFIRMED, Reason.CANDIDATE_UNAVAILABLE, Reason.ALREADY_DECIDED):
        return verdict(Outcome.ROLLBACK, reason, 9, 4)
    return verdict(Outcome.HOLD, reason, 9, 4, measured=reason not in ERRORS)


def watched(world: World, **found: Any) -> World:
    """A promotion, and then a small replay of what was promoted."""
    world.spec["watch"] = {"everySeconds": DAY, "previous": "Retain"}
    world.ready().propose(B).judge(PROMOTES)
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    world.now += DAY
    world.settle()
    told: dict[str, Any] = {"prefills": 4, "bad_prefills": 2, "alarm": True, "sentence": "2 bad of 4."}
    world.ends(WorkKind.WATCH, watch=WatchFound(**(told | found)))
    world.settle()
    return world


def down(digest: str, **more: Any) -> ArmSeen:
    return ArmSeen(digest, (ServerSeen("pod-1", "http://10.88.0.1:8080", False),), **more)


@scenario
def pending(world: World) -> None:
    world.policy = None
    world.settle()


@scenario
def spec_invalid(world: World) -> None:
    world.ready().propose(B)
    world.change(historyLimit=0)
    world.settle()


@scenario
def nothing_known(world: World) -> None:
    world.slots.clear()
    world.troubles = (Trouble("WorkloadNotFound", "spec.baseline", "for a test"),)
    world.settle()


@scenario
def referred_to_is_gone(world: World) -> None:
    world.ready().propose(B)
    world.troubles = (Trouble("PolicyNotFound", "spec.policyRef.name", "for a test"),)
    world.settle()


@scenario
def policy_edited(world: World) -> None:
    world.ready().propose(B).comes_to(verdict())
    world.settle()
    world.policy = replace(STANDARD, sha256="e" * 64)
    world.settle()


@scenario
def suspended(world: World) -> None:
    world.spec["watch"] = {"everySeconds": DAY}
    world.ready().propose(B).change(suspend=True)
    world.settle()


@scenario
def suspended_while_watching(world: World) -> None:
    watched(world).change(suspend=True)
    world.settle()


@scenario
def servers(world: World) -> None:
    world.down = {A.digest: down(A.digest), B.digest: down(B.digest, asked=False)}
    world.propose(B)
    world.down = {A.digest: ArmSeen(A.digest, world.arm("x").servers, asked=False)}
    world.settle()
    world.down = {A.digest: down(A.digest, unreachable="mesh mTLS")}
    world.settle()
    world.down = {B.digest: down(B.digest, unavailable="CrashLoopBackOff")}
    world.settle()
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    world.down = {B.digest: down(B.digest)}
    world.settle()


@scenario
def instrument_broken(world: World) -> None:
    world.floor = replace(SOUND, sound=False, sentence="They differ.")
    world.ready().propose(B)
    world.ends(WorkKind.FLOOR, floor=world.floor)
    world.settle()


@scenario
def instrument_unclear(world: World) -> None:
    world.floor = replace(SOUND, sound=None)
    world.ready()


@scenario
def floor_broken_off(world: World) -> None:
    world.settle()
    world.ends(WorkKind.FLOOR)
    key = next(iter(world.works))
    world.works[key] = replace(world.works[key], state=WorkState.BROKEN, trouble="lost", retry_at=world.now + 60)
    world.settle()


@scenario
def nothing_that_can_be_measured(world: World) -> None:
    world.settle()
    stands_still(world, WorkKind.FLOOR)
    world.ends(WorkKind.FLOOR, floor=SOUND)
    world.settle()
    world.propose(B)
    stands_still(world, WorkKind.JUDGE)


def stands_still(world: World, kind: WorkKind) -> None:
    key = next(key for key, each in world.works.items() if each.kind is kind)
    found = Standstill(world.now - 301, world.now, 3, "candidate: the probe was not answered: NotJson", "candidate")
    world.works[key] = replace(world.works[key], standstill=found)
    world.settle()


@scenario
def hand_made_without_candidate(world: World) -> None:
    world.ready()
    world.by_hand("mine")
    world.settle()


@scenario
def waits(world: World) -> None:
    world.ready().propose(B)
    for reason in (
        "WaitingForIdle",
        "WaitingForServer",
        "WaitingForWindow",
        "LoadLimitReached",
        "WaitingForTurn",
        "WaitingForEndpoints",
    ):
        world.comes_to(verdict(), waiting=reason)
        world.settle()


@scenario
def alarm_and_replicates(world: World) -> None:
    world.ready().propose(B)
    for reason, views in (
        (Reason.REPLICATE_DUE, ()),
        (Reason.REPLICATE_RUNNING, (replicate(),)),
        (Reason.MORE_EVIDENCE_NEEDED, (replicate(1, "clean"),)),
    ):
        world.comes_to(verdict(reason=reason, alarm=reason in GOES_ON[1:], replicates=views))
        world.settle()
    world.judge(ROLLS_BACK)


@scenario
def rejected_before(world: World) -> None:
    world.ready().propose(B).judge(HOLDS).propose(A).propose(B)


@scenario
def superseded(world: World) -> None:
    world.ready().propose(B).propose(C).propose(A)


@scenario
def baseline_changed(world: World) -> None:
    world.ready().propose(B)
    world.by_hand("other", baseline={"digest": C.digest}, candidate={"digest": B.digest})
    world.settle()


@scenario
def not_measured(world: World) -> None:
    world.ready().propose(B).judge(LOST)


@scenario
def tried_out(world: World) -> None:
    world.spec["dryRun"] = True
    world.ready().propose(B).judge(PROMOTES)
    world.propose(C).judge(ROLLS_BACK)


@scenario
def store_away(world: World) -> None:
    world.ready()
    world.store_trouble = "no route to host"
    world.settle()


@scenario
def store_lost(world: World) -> None:
    world.ready().propose(B).judge(HOLDS)
    world.fates.clear()
    world.settle()


@scenario
def evidence_gone(world: World) -> None:
    world.ready().propose(B).judge(HOLDS)
    world.gone.add(world.newest)
    world.settle()


@scenario
def deleting(world: World) -> None:
    world.ready().propose(B)
    world.line["metadata"] = {**world.line["metadata"], "deletionTimestamp": "2026-11-30T10:00:00Z"}
    world.settle()


@scenario
def watch_that_waits(world: World) -> None:
    watched(world, alarm=False, reason="AcceptanceReached").propose(C)
    world.now += 2 * DAY
    world.settle()


@scenario
def watch_that_is_refused(world: World) -> None:
    watched(world, alarm=False, reason="AcceptanceReached")
    world.now += DAY
    world.settle()
    (key,) = (each.key for each in world.works.values() if each.watch is None and each.kind is WorkKind.WATCH)
    retry = world.now + 300
    world.works[key] = replace(
        world.works[key], state=WorkState.REFUSED, trouble="Its store is damaged.", retry_at=retry
    )
    world.settle()


@scenario
def alarm_of_the_watch(world: World) -> None:
    watched(world, reason="AlarmWithoutBaseline")


@scenario
def promoted_by_a_person(world: World) -> None:
    world.ready().propose(B)
    world.annotate(world.newest, override="promote", override_reason="looked at it", override_actor="alice")
    world.settle()


@scenario
def held_by_a_person(world: World) -> None:
    world.ready().propose(B)
    world.annotate(world.newest, override="rollback", override_reason="looked at it", override_actor="alice")
    world.settle()
    world.annotate(world.newest, override=None, override_reason=None, override_actor=None)
    world.settle()


@scenario
def overrides_refused(world: World) -> None:
    world.ready()
    world.annotate(override="hold", override_reason="why not", override_actor="alice")
    world.settle()
    world.propose(B)
    for told in (
        {"override": "perhaps", "override_reason": "why not", "override_actor": "alice"},
        {"override": "hold", "override_reason": None, "override_actor": "alice"},
        {"override": "hold", "override_reason": "why not", "override_expires": "2020-01-01T00:00:00Z"},
        {"override": "hold", "override_reason": "why not", "override_expires": None, "override_actor": None},
    ):
        world.annotate(world.newest, **told)
        world.settle()


@pytest.fixture(scope="module")
def reached() -> set[tuple[str, str, str]]:
    """(condition, status, reason) of all that the lives above write, each of a kind that has it."""
    found: set[tuple[str, str, str]] = set()
    for life in [*SCENARIOS.values(), *more_lives()]:
        world = World()
        life(world)
        for name, status in world.writes:
            kind = SERVING_LINE.kind if name == world.name else PROFILE_ROLLOUT.kind
            types = [each["type"] for each in status["conditions"]]
            assert types == list(CONDITIONS_OF[kind]), (life, name)
            found |= {(each["type"], each["status"], each["reason"]) for each in status["conditions"]}
    return found


def more_lives() -> Iterator[Scenario]:
    """One for each trouble, and one for each reason of a verdict."""
    for reason in OF_TROUBLE:

        def troubled(world: World, reason: str = reason) -> None:
            world.troubles = (Trouble(reason, "spec.baseline", "for a test"),)
            world.settle()

        yield troubled
    for told in Reason:
        if told not in (Reason.OVERRIDE, Reason.DELETING, *GOES_ON):
            yield lambda world, told=told: world.ready().propose(B).judge(final_of(told))  # type: ignore[misc]


def test_every_reason_is_reached_with_every_status_that_it_may_have(reached: set[tuple[str, str, str]]) -> None:
    table = {(row.type.value, status, row.reason) for row in ROWS.values() for status in row.statuses}
    assert reached - table == set()
    assert table - reached == ELSEWHERE


# the status of a rollout whose line is not there: test_reconcile_orphans.py
ELSEWHERE = {("Superseded", "Unknown", "LineNotFound"), ("Accepted", "False", "LineNotFound")}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_life_settles_and_a_look_at_what_settled_changes_nothing(name: str) -> None:
    world = World()
    SCENARIOS[name](world)
    writes, events = len(world.writes), len(world.events)
    world.now += 1
    world.step()
    assert (len(world.writes), len(world.events)) == (writes, events)
