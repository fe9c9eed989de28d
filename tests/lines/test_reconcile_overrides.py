"""A line's life with a person in it: what an override does to a rollout, to its replay and to the line, and leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.journal import Overridden
from prefillgate.core.sentences import REASON_SENTENCES
from prefillgate.core.verdict import Outcome, Verdict
from prefillgate.reconcile.effects import Effect, RecordOverride, StartWork
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.snapshot import Slot, WorkKind, WorkSeen, WorkState
from tests.support.line_world import HOLDS, PROMOTES, ROLLS_BACK, SPEC, A, B, C, Killed, World, verdict

WORDS = {"override": "promote", "override-reason": "looked at every answer", "override-actor": "alice"}


class Peopled(World):
    """A line whose replays have journals that a person's words are written into."""

    def _do(self, effect: Effect) -> None:
        super()._do(effect)
        if isinstance(effect, RecordOverride):
            work = self.works.get(effect.work) or self.journals.get(effect.work)
            if work is not None:
                self.works[effect.work] = self.journals[effect.work] = self._told(work, effect)

    def _told(self, work: WorkSeen, effect: RecordOverride) -> WorkSeen:
        assert work.verdict is not None
        before = getattr(self, "_evidence", {}).setdefault(work.key, work.verdict)
        if isinstance(effect.event, Overridden):
            word = f"{effect.event.actor}: {effect.event.reason}"
            outcome = Outcome(effect.event.verdict)
            decision = verdict(outcome, "Override").decision
            said = (f"{REASON_SENTENCES['Override']} {word}",)  # type: ignore[index]
            told = replace(before, decision=replace(decision, sentences=said))
            return replace(work, verdict=told, state=WorkState.ENDED, ended_at=self.now)
        return replace(work, verdict=before, state=WorkState.BROKEN, ended_at=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._evidence: dict[str, Any] = {}

    def comes_to(self, so_far: Verdict, **more: Any) -> None:
        super().comes_to(so_far, **more)
        self.journals |= {key: each for key, each in self.works.items() if each.kind is WorkKind.JUDGE}

    def _start(self, order: StartWork) -> None:
        super()._start(order)
        work = self.works[order.key]
        if work.state is WorkState.BROKEN:
            self.works[order.key] = replace(work, state=WorkState.RUNNING)

    def says(self, name: str | None = None, **words: str | None) -> None:
        """A person annotates a rollout, or the line; None takes a word away."""
        thing = self.line if name is None else self.rollouts[name]
        told = thing["metadata"].setdefault("annotations", {})
        for key, word in {**WORDS, **{each.replace("_", "-"): word for each, word in words.items()}}.items():
            told.pop(f"prefillgate.io/{key}", None)
            if word is not None:
                told[f"prefillgate.io/{key}"] = word
        self.settle()

    def unsays(self, name: str | None = None) -> None:
        """The annotations are taken away."""
        self.says(name, override=None, override_reason=None, override_expires=None)


def judging(**spec: Any) -> Peopled:
    """A line whose candidate is being replayed, 5 clean prefills so far."""
    world = Peopled(spec={**SPEC, **spec})
    world.ready()
    world.propose(B)
    world.comes_to(verdict(prefills=5))
    world.settle()
    return world


def decision(world: World, name: str | None = None) -> tuple[str, str, str, str]:
    """Verdict, permissions and reason of a rollout."""
    told = world.of(name or world.newest)["decision"]
    return told["verdict"], told["promotion"], told["rollback"], told["reason"]


@pytest.mark.parametrize("on_line", [False, True])
def test_a_promotion_by_a_person_flips_the_roles_and_ends_the_rollout(on_line: bool) -> None:
    world = judging()
    name = world.newest
    world.says(None if on_line else name)
    assert decision(world) == ("Promote", "Allowed", "Refused", "Override")
    assert world.condition("Succeeded", name) == ("True", "Promoted")
    assert world.condition("Overridden", name) == ("True", "OverrideObeyed")
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["how"], promoted["rollout"]) == (B.digest, "Overridden", name)
    assert world.status["previousProfile"]["digest"] == A.digest
    assert world.of(name)["evidenceDecision"]["verdict"] == "Continue"
    assert world.of(name)["prefills"] == "0 bad of 5"
    world.unsays(None if on_line else name)
    assert world.status["promotedProfile"]["digest"] == B.digest
    assert decision(world) == ("Promote", "Allowed", "Refused", "Override")


def test_a_hold_stops_the_replay_and_its_end_lets_it_go_on_where_it_was() -> None:
    world = judging()
    name = world.newest
    world.says(override="hold")
    assert decision(world) == ("Hold", "Blocked", "Refused", "Override")
    assert world.condition("PromotionAllowed") == ("False", "Override")
    assert "endedAt" not in world.of(name)
    assert world.status["promotedProfile"]["digest"] == A.digest
    started = len(world.started)
    world.unsays()
    assert decision(world) == ("Continue", "Blocked", "Refused", "MoreEvidenceNeeded")
    assert world.condition("Overridden", name) == world.condition("Overridden") == ("False", "OverrideEnded")
    assert "override" not in world.of(name) and "endedAt" not in world.of(name)
    assert [each.kind for each in world.started[started:]] == [WorkKind.JUDGE]
    assert world.of(name)["prefills"] == "0 bad of 5"


def test_a_rollback_by_a_person_is_allowed_and_nobody_is_rejected_for_it() -> None:
    world = judging()
    world.says(world.newest, override="rollback")
    assert decision(world) == ("Rollback", "Blocked", "Allowed", "Override")
    assert world.status["rollback"] == "Allowed"
    assert "rejectedProfiles" not in world.status
    world.unsays(world.newest)
    assert decision(world)[2] == "Refused"


def test_an_expiry_asks_for_a_look_and_gives_the_word_back_to_the_evidence() -> None:
    world = judging()
    world.says(world.newest, override="hold", override_expires="2026-12-01T00:00:00Z")
    again = plan(world.look()).look_again_seconds
    ends = 1_796_083_200.0  # 2026-12-01T00:00:00Z
    assert again is not None and 0 < again <= ends - world.now
    world.now = ends - 1
    world.step()
    assert decision(world)[0] == "Hold"
    world.now = ends
    world.settle()
    assert decision(world)[0] == "Continue"
    assert world.of(world.newest)["lastHandledOverride"]["outcome"] == "Expired"


def test_the_next_candidate_inherits_nothing_of_the_lines_word() -> None:
    world = judging()
    world.says(override="rollback")
    first = world.newest
    world.propose(C)
    assert world.newest != first
    assert decision(world)[3] in ("NotStarted", "MoreEvidenceNeeded")
    assert "override" not in world.of(world.newest)
    assert world.condition("Overridden", world.newest) == ("False", "NoOverride")
    assert world.status["rollback"] == "Refused"
    assert world.told_reasons().count("OverrideNotPassedOn") == 1
    assert decision(world, first) == ("Hold", "Blocked", "Refused", "Superseded")
    assert "override" not in world.of(first)
    assert world.condition("Overridden", first) == ("False", "OverrideEnded")
    assert world.told_reasons(first).count("OverrideEnded") == 1


@pytest.mark.parametrize("final", [HOLDS, ROLLS_BACK])
def test_a_person_may_promote_what_the_evidence_held_or_rejected(final: Any) -> None:
    world = judging()
    name = world.newest
    world.judge(final)
    assert [each["digest"] for each in world.status["rejectedProfiles"]] == [B.digest]
    world.says(name)
    assert decision(world) == ("Promote", "Allowed", "Refused", "Override")
    assert world.status["promotedProfile"]["digest"] == B.digest
    assert "rejectedProfiles" not in world.status
    assert world.condition("Succeeded", name) == ("True", "Promoted")


def test_a_person_may_hold_what_was_promoted_and_nothing_is_taken_back() -> None:
    world = judging()
    name = world.newest
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["digest"] == B.digest
    world.says(name, override="rollback")
    assert decision(world) == ("Rollback", "Blocked", "Allowed", "Override")
    assert world.status["promotedProfile"]["digest"] == B.digest
    world.unsays(name)
    assert decision(world) == ("Promote", "Allowed", "Refused", "AcceptanceReached")


def test_a_line_that_tries_out_says_what_a_person_says_and_allows_nothing() -> None:
    world = judging(dryRun=True)
    world.says()
    assert decision(world) == ("Promote", "Blocked", "Refused", "DryRun")
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert world.condition("Succeeded", world.newest) == ("True", "PassedDryRun")


def test_while_the_store_is_away_a_person_is_obeyed_and_written_down_later() -> None:
    world = judging()
    world.store_trouble = "no route to host"
    world.settle()
    world.says(override="rollback")
    assert decision(world) == ("Rollback", "Blocked", "Allowed", "Override")
    assert world.overrides == {}
    world.store_trouble = None
    world.settle()
    (row,) = world.overrides.values()
    assert (row.value, row.actor, row.answer is not None) == ("rollback", "alice", True)


def test_what_is_refused_changes_nothing_but_what_is_told() -> None:
    world = judging()
    before = world.of(world.newest)["decision"]
    world.says(world.newest, override_reason=None)
    assert world.of(world.newest)["decision"] == before
    assert world.condition("Overridden", world.newest) == ("False", "OverrideWithoutReason")
    assert world.told_reasons(world.newest).count("OverrideWithoutReason") == 1
    assert [each.state for each in world.works.values() if each.kind is WorkKind.JUDGE] == [WorkState.RUNNING]


@pytest.mark.parametrize("value", ["promote", "hold", "rollback"])
@pytest.mark.parametrize("on_line", [False, True])
def test_a_kill_between_any_two_steps_comes_to_the_same_end(value: str, on_line: bool) -> None:
    ends = []
    for killed_at in range(12):
        world = judging()
        name = world.newest
        world.now += 100
        at = world.now
        thing = world.line if on_line else world.rollouts[name]
        thing["metadata"]["annotations"] = {f"prefillgate.io/{key}": word for key, word in WORDS.items()}
        thing["metadata"]["annotations"]["prefillgate.io/override"] = value
        try:
            world.carry_out(plan(world.look()), killed_at)
        except Killed:
            world.restart()
        world.settle()
        (row,) = world.overrides.values()
        told = [each for each in world.events if each.reason == "OverrideObeyed"]
        ends.append((decision(world, name), row.value, row.taken_at >= at, row.done_at is not None, len(told)))
        assert world.of(name)["override"]["verdict"] == value.capitalize()
    assert set(ends) == {ends[0]} and ends[0][1:] == (value, True, True, 1)


def test_after_a_restart_a_word_still_stands_and_is_not_told_again() -> None:
    world = judging()
    world.says(override="hold")
    told = list(world.events)
    world.restart()
    world.settle()
    assert decision(world) == ("Hold", "Blocked", "Refused", "Override")
    assert world.events == told
    assert not any(isinstance(each, StartWork) for each in plan(world.look()).after)


def test_a_hold_that_is_given_again_after_another_word_keeps_what_would_be_promoted() -> None:
    world = judging()
    for value in ("hold", "rollback", "hold"):
        world.says(world.newest, override=value)
    assert decision(world) == ("Hold", "Blocked", "Refused", "Override")
    assert [each.state for each in world.works.values() if each.kind is WorkKind.JUDGE] == [WorkState.ENDED]
    assert world.status["promotedProfile"]["digest"] == A.digest


def floor_ends(world: World) -> None:
    world.ends(WorkKind.FLOOR, floor=world.floor)
    world.settle()


def test_what_was_held_before_another_promotion_is_promoted_by_a_person_and_not_replayed_unasked() -> None:
    world = Peopled(spec=SPEC).ready().propose(B).judge(HOLDS)
    assert isinstance(world, Peopled)
    held = world.newest
    world.now += 100
    world.propose(C).judge(PROMOTES)
    floor_ends(world)
    world.now += 1000
    world.slots = {Slot.BASELINE: A, Slot.CANDIDATE: A}
    world.settle()
    world.judge(PROMOTES)
    assert world.status["promotedProfile"]["digest"] == A.digest
    world.now += 1000
    world.propose(B)
    assert world.status["currentRollout"] == held
    made, started = len(world.rollouts), len(world.started)
    world.says(held)
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["how"], promoted["rollout"]) == (B.digest, "Overridden", held)
    assert promoted["since"] == world.of(held)["override"]["since"] > world.of(held)["endedAt"]
    assert world.status["previousProfile"]["digest"] == A.digest
    assert len(world.rollouts) == made
    assert all(each.kind is WorkKind.FLOOR for each in world.started[started:])
    assert "rejectedProfiles" not in world.status
    world.restart()
    del world.line["status"]
    world.settle()
    assert world.status["promotedProfile"]["digest"] == B.digest


@pytest.mark.parametrize("on_line", [False, True])
def test_a_promotion_of_what_the_line_has_no_more_is_refused_and_a_hold_is_not(on_line: bool) -> None:
    world = judging()
    name = world.newest
    world.judge(HOLDS).propose(A)
    assert world.status["currentRollout"] == name
    world.says(None if on_line else name)
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert world.condition("Overridden", None if on_line else name) == ("False", "OverrideWithoutRollout")
    assert world.condition("Succeeded", name) == ("False", "Held")
    note = next(each.note for each in world.events if each.reason == "OverrideWithoutRollout")
    assert "its candidate is not what the line has now" in note
    world.says(None if on_line else name, override="hold")
    assert world.condition("Overridden", name) == ("True", "OverrideObeyed")
    world.unsays(None if on_line else name)
    world.propose(B)
    world.says(None if on_line else name)
    assert world.status["promotedProfile"]["digest"] == B.digest


def test_while_no_workload_can_be_read_a_word_about_what_ended_waits() -> None:
    world = judging()
    name = world.newest
    world.judge(HOLDS)
    slots, world.slots = world.slots, {}
    world.settle()
    world.says(name)
    assert "lastHandledOverride" not in world.of(name)
    world.says(name, override="hold")
    assert world.condition("Overridden", name) == ("True", "OverrideObeyed")
    world.says(name)
    assert world.of(name)["lastHandledOverride"]["value"] == "hold"
    world.slots = slots
    world.settle()
    assert world.status["promotedProfile"]["digest"] == B.digest


@pytest.mark.parametrize("before_its_end", [False, True])
@pytest.mark.parametrize("taken_back", [False, True])
def test_a_word_of_a_dry_run_never_becomes_a_real_promotion_later(before_its_end: bool, taken_back: bool) -> None:
    world = judging(dryRun=True)
    name = world.newest
    if not before_its_end:
        world.judge(PROMOTES)
    world.says(name)
    world.change(dryRun=False)
    world.settle()
    if taken_back:
        world.unsays(name)
    assert world.condition("Succeeded", name)[1] != "Promoted"
    assert world.condition("PromotionAllowed", name)[0] == "False"
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert world.newest != name  # a rollout that counts


def test_a_word_of_a_dry_run_allows_nothing_later_and_one_that_is_given_then_does() -> None:
    world = judging(dryRun=True)
    name = world.newest
    world.judge(HOLDS)
    world.says(name, override="rollback")
    world.store_trouble = "no route to host"  # so that no other rollout takes its place
    world.change(dryRun=False)
    world.settle()
    assert decision(world, name) == ("Rollback", "Blocked", "Refused", "DryRun")
    world.says(name, override="rollback", override_reason="and now for production")
    world.settle()
    assert decision(world, name) == ("Rollback", "Blocked", "Allowed", "Override")
    world.says(name, override_reason="it was mended")
    assert world.status["promotedProfile"]["digest"] == B.digest


# No pair yet


def test_a_word_about_one_made_by_hand_without_a_candidate_promotes_nobody_that_comes_later() -> None:
    world = Peopled(spec=SPEC)
    world.ready()
    world.by_hand("mine")
    world.settle()
    world.says("mine")
    assert world.condition("Overridden", "mine") == ("False", "OverrideWithoutRollout")
    assert world.told_reasons("mine") == ["OverrideWithoutRollout"]
    world.now += 3 * 86_400
    world.propose(C)
    assert world.of("mine")["candidate"]["digest"] == C.digest
    assert "override" not in world.of("mine")
    assert world.status["promotedProfile"]["digest"] == A.digest
    world.says("mine", override_reason="looked at C")
    assert world.status["promotedProfile"]["digest"] == C.digest


def test_a_word_that_one_is_made_with_is_about_the_pair_that_it_finds() -> None:
    for slots, promoted, condition in (
        ({Slot.BASELINE: A, Slot.CANDIDATE: B}, B, ("True", "OverrideObeyed")),
        ({Slot.BASELINE: A, Slot.CANDIDATE: A}, A, ("False", "OverrideWithoutRollout")),
    ):
        world = Peopled(spec=SPEC)
        world.ready()
        world.slots = slots
        world.by_hand("mine")
        world.says("mine")
        assert world.status["promotedProfile"]["digest"] == promoted.digest
        assert world.condition("Overridden", "mine") == condition


# The way back


def rolled_back(on_line: bool = False) -> Peopled:
    """B was promoted, and by a person's word may be rolled back; A stands in its workload still."""
    world = judging()
    world.judge(PROMOTES)
    floor_ends(world)
    world.says(None if on_line else world.newest, override="rollback", override_reason="users see bare verdicts")
    assert world.status["promotedProfile"]["digest"] == B.digest and world.status["rollback"] == "Allowed"
    return world


def back(world: Peopled, rerun: str = "back") -> None:
    """The one command that `explain` gives."""
    world.annotate(rerun=rerun)
    world.says(override="promote", override_reason="the previous one serves again")


@pytest.mark.parametrize("on_line", [False, True])
def test_one_command_makes_the_previous_profile_the_promoted_one_again(on_line: bool) -> None:
    world = rolled_back(on_line)
    first, started = world.newest, len(world.started)
    back(world)
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["how"], promoted["rollout"]) == (A.digest, "Overridden", world.newest)
    assert world.newest != first and world.of(world.newest)["baseline"]["digest"] == B.digest
    assert world.status["previousProfile"]["digest"] == B.digest
    assert world.condition("Gating") == ("False", "NoCandidate")
    assert all(each.kind is not WorkKind.JUDGE for each in world.started[started:])
    assert (
        "override" in world.of(first)
    ) is not on_line  # a word on that rollout stands, on the line it is another now
    world.propose(C)
    assert world.of(world.newest)["baseline"]["digest"] == A.digest
    assert world.condition("Overridden", world.newest) == ("False", "NoOverride")


def test_a_promotion_beside_a_rerun_that_is_refused_promotes_nobody() -> None:
    world = judging()
    back(world)
    assert "RerunRefused" in world.told_reasons()
    assert world.condition("Overridden")[1] == "OverrideWithoutRollout"
    assert f"{world.newest} is not decided yet" in str(world.status["conditions"])
    assert world.status["promotedProfile"]["digest"] == A.digest
    away = judging()
    away.store_trouble = "no route to host"
    back(away)
    assert away.status["promotedProfile"]["digest"] == A.digest
    assert "the line cannot be used now, or its store not be reached" in str(away.status["conditions"])


@pytest.mark.parametrize("killed_at", range(10))
def test_a_kill_on_the_way_back_leads_back_all_the_same(killed_at: int) -> None:
    world = rolled_back()
    world.annotate(rerun="back", override="promote", override_reason="A serves", override_actor="alice")
    try:
        world.carry_out(plan(world.look()), killed_at)
    except Killed:
        world.restart()
    world.settle()
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert len(world.rollouts) == 2 and len(world.overrides) == 2


def test_what_is_changed_in_place_is_back_by_its_template_and_a_word() -> None:
    spec = {key: each for key, each in SPEC.items() if key != "candidate"}
    world = Peopled(spec=spec)
    world.slots = {Slot.BASELINE: A}
    world.ready().propose(B, Slot.BASELINE).judge(PROMOTES)
    floor_ends(world)
    back(world)
    assert world.status["promotedProfile"]["digest"] == B.digest  # no workload says A
    assert "no workload says another profile than the one in production" in str(world.status["conditions"])
    world.propose(A, Slot.BASELINE)
    world.says(override="promote", override_reason="it is back")
    assert world.status["promotedProfile"]["digest"] == A.digest


@pytest.mark.parametrize("word", ["promote", "hold", "rollback"])
@pytest.mark.parametrize("on_line", [True, False])
def test_a_word_that_stands_outlives_the_store_that_knew_it_and_is_not_obeyed_again(word: str, on_line: bool) -> None:
    world = judging()
    name = None if on_line else world.newest
    world.says(name, override=word)
    promoted, kept = world.status["promotedProfile"], list(world.overrides)
    told = [each for each in world.told_reasons(name) if each.startswith("Override")]
    assert told[0] == "OverrideObeyed"
    world.overrides.clear()
    world.fates.clear()
    world.settle()
    assert [each for each in world.told_reasons(name) if each.startswith("Override")] == told
    assert list(world.overrides) == kept
    assert world.status["promotedProfile"] == promoted
    assert world.condition("Overridden", name)[0] == "True"
