"""The watch rule: many small replays are one sequence, and an alarm of it is answered by a fresh replicate alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.alarm import cusum, increments
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.decision import Reason, decide
from prefillgate.core.earlier import Trigger, Watching
from prefillgate.core.fitted_plan import fitted_plan
from prefillgate.core.flight import Flight
from prefillgate.core.freshness import classify
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellChecked
from prefillgate.core.judge import judge, watch_view
from prefillgate.core.policy import Flag, Policy
from prefillgate.core.schedule import RunCell, Separate, StartReplicate, Stop, Wait, next_step, tainted_epochs
from prefillgate.core.shape import Shape
from prefillgate.core.snapshot import clean_prefills_needed, finished_by, take_snapshot
from prefillgate.core.verdict import Outcome
from prefillgate.core.watch import Watched, bad_cases, next_watching, watched
from tests.support.journals import Stepper, cell, epoch, measure, outcome, planned, score, screen

ALONE = Shape(candidate_alone=True)
BAD, CLEAN = increments(STANDARD.alarm)
LEVEL = math.log(100)


EIGHT = Watching(8)


def watching_gate(watching: Watching = EIGHT, policy: Policy = STANDARD, **more: Any) -> Gate:
    """A small replay after a promotion, its server met."""
    plan = planned(policy, watching=watching, shape=more.pop("shape", ALONE), **more)
    gate = Gate()
    gate.apply(fitted_plan(replace(plan, baseline_url=None)))
    gate.apply(epoch(CANDIDATE))
    return gate


def seen_by(gate: Gate) -> Watched:
    assert gate.plan.watching is not None
    return gate.watched(gate.plan.watching)


def fresh(gate: Gate, *outcomes: bool) -> Gate:
    screen(gate, *outcomes)
    return gate


# The sequence


def test_a_replay_begins_at_the_level_that_the_one_before_it_ended_with() -> None:
    first = fresh(watching_gate(Watching(4)), False, True, False, True)
    seen = seen_by(first)
    assert (seen.prefills, seen.bad_prefills, seen.alarmed) == (4, 2, False)
    assert seen.levels == (pytest.approx(2 * BAD + CLEAN),)
    assert seen.peak == pytest.approx(2 * BAD + CLEAN)
    second = next_watching(Watching(4), seen, "run-1", 6)
    assert second == Watching(6, seen.levels, 1, 4, 2, 0, seen.bad_cases, "run-1")
    assert seen_by(watching_gate(second)) == Watched(0, 0, seen.levels, seen.levels[0], False)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_many_small_replays_alarm_at_the_unit_at_which_one_long_one_does(size: int) -> None:
    stream = [number % 4 == 1 for number in range(60)]
    due = next(at for at in range(1, 61) if cusum(stream[:at], STANDARD.alarm, watch=True).alarmed)
    watching, taken = Watching(size), 0
    while True:
        gate = watching_gate(watching)
        for bad in stream[taken : taken + size]:
            taken += 1
            screen(gate, bad)
            if gate.alarm:
                break
        if gate.alarm:
            break
        watching = next_watching(watching, seen_by(gate), gate.plan.run_id, size)
    assert taken == due > size
    assert seen_by(gate).prefills + watching.prefills_before == due


def test_after_an_alarm_the_level_is_nothing_again_and_the_alarm_is_counted() -> None:
    gate = fresh(watching_gate(), True, True, True)
    assert next_watching(Watching(8), seen_by(gate), "run-1", 8) == Watching(8, (), 1, 3, 3, 1, (), "run-1")


def test_a_baseline_s_cut_answers_are_remembered_from_replay_to_replay() -> None:
    before = Watching(8, answers_cut=True)
    assert next_watching(before, seen_by(watching_gate(before)), "run", 8).answers_cut


def test_each_flag_has_its_own_level_and_any_of_them_alarms() -> None:
    policy = replace(STANDARD, flags=(Flag("one", ("a",)), Flag("two", ("b",))))
    gate = watching_gate(Watching(8, (LEVEL - 2 * BAD + 0.01, 1.0)), policy)
    for bad in (True, True):
        cell_id = measure(gate, cell(case=gate.places.next_case))
        gate.apply(CellChecked(cell_id, (outcome(bad, "a"), outcome(False, "b"))))
    seen = seen_by(gate)
    assert seen.levels == (pytest.approx(LEVEL + 0.01), pytest.approx(1.0 + 2 * CLEAN))
    assert (seen.prefills, seen.bad_prefills, seen.alarmed, gate.alarm) == (2, 2, True, True)


def test_only_fresh_units_of_the_promoted_profile_with_a_known_outcome_step_the_level() -> None:
    policy = STANDARD
    items = [
        cell(case="c0", bad=True),
        cell(case="c0", bad=True, cached_tokens=99, processed_tokens=1),  # a copy
        cell(case="c1", bad=True, cached_tokens=30, processed_tokens=70),  # partial
        cell(case="c2", bad=None),
        cell(BASELINE, "c3", bad=True),
        cell(case="c4", bad=False),
    ]
    seen = watched(classify(items), policy, Watching(8))
    assert (seen.prefills, seen.bad_prefills) == (2, 1)
    assert seen.levels == (pytest.approx(BAD + CLEAN),)
    assert seen.peak == pytest.approx(BAD)


def test_the_peak_of_a_replay_is_that_of_the_highest_flag_and_levels_must_fit_the_flags() -> None:
    policy = replace(STANDARD, flags=(Flag("one", ("a",)), Flag("two", ("b",))))
    seen = watched([], policy, Watching(8, (1.0, 3.0)))
    assert (seen.peak, seen.levels, seen.alarmed) == (3.0, (1.0, 3.0), False)
    with pytest.raises(ValueError, match="zip"):
        watched(classify([cell(bad=True)]), policy, Watching(8, (1.0,)))


def test_bad_cases_are_remembered_while_any_level_is_above_nothing() -> None:
    seen = Watched(4, 1, (0.0, 0.5), 2.0, False, ("c4",))
    before = Watching(4, bad_cases=("c1", "c4"))
    assert bad_cases(before, seen) == ("c4", "c1")
    assert next_watching(before, seen, "run", 4).bad_cases == ("c4", "c1")
    assert next_watching(before, replace(seen, levels=(0.0, 0.0)), "run", 4).bad_cases == ()
    assert next_watching(before, replace(seen, alarmed=True), "run", 4).bad_cases == ()
    gate = fresh(watching_gate(Watching(20)), True, True, False, *[False] * 11)
    assert seen_by(gate).levels == (pytest.approx(2 * BAD + 12 * CLEAN) if 2 * BAD + 12 * CLEAN > 0 else 0.0,)
    assert len(seen_by(gate).bad_cases) == 2


def test_what_nothing_is_told_of_is_nothing() -> None:
    assert Watching(8) == Watching(8, (), 0, 0, 0, 0, (), None, False)
    assert Trigger("w", ("c1",)) == Trigger("w", ("c1",), None, (), 0, 0, False)
    assert not planned(watching=Watching(8)).answers_cut


# The alarm


def test_the_alarm_comes_at_the_watch_level_and_not_a_hair_below_it() -> None:
    for start, alarmed in ((LEVEL - BAD, True), (LEVEL - BAD - 1e-9, False)):
        gate = fresh(watching_gate(Watching(8, (start,))), True)
        assert (gate.alarm, gate.ever_alarmed) == (alarmed, alarmed)
        assert gate.alarm_state() == (pytest.approx(start + BAD), pytest.approx(LEVEL))


def test_the_rule_of_more_than_k_bad_is_off() -> None:
    gate = watching_gate(Watching(200))
    for _ in range(12):
        screen(gate, True, *[False] * 11)
    assert seen_by(gate).bad_prefills == 12 > len(STANDARD.acceptance)
    assert not gate.alarm
    assert not take_snapshot(gate).more_bad_than_allowed
    assert decide(take_snapshot(gate)).reason is Reason.MORE_EVIDENCE_NEEDED


def test_an_alarm_stands_though_a_clean_prefill_follows_it() -> None:
    gate = fresh(watching_gate(), True, True, True, False)
    assert (gate.alarm, seen_by(gate).alarmed) == (True, True)
    assert seen_by(gate).levels[0] < seen_by(gate).peak
    ruling = decide(take_snapshot(gate))
    assert (ruling.decision, ruling.reason) == (Outcome.HOLD, Reason.ALARM_WITHOUT_BASELINE)
    assert isinstance(next_step(gate), Stop)


# The end of a replay


def test_a_replay_takes_its_prefills_and_no_more_and_promotes_nothing() -> None:
    run = Stepper(watching_gate(Watching(40)))
    stop = run.run()
    assert len(run.cells) == 40
    assert {step.arm for step in run.cells} == {CANDIDATE}
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.NO_ALARM)
    assert len({step.case_id for step in run.cells[:12]}) == 12


def test_a_replay_is_over_with_its_last_prefill_and_not_before() -> None:
    gate = fresh(watching_gate(Watching(3)), False, False)
    assert (finished_by(gate), clean_prefills_needed(gate)) == (None, 1)
    assert isinstance(next_step(gate), RunCell)
    fresh(gate, False)
    assert (finished_by(gate), clean_prefills_needed(gate)) == (Reason.NO_ALARM, 0)
    fresh(gate, False)
    assert clean_prefills_needed(gate) == 0


def test_a_replay_whose_last_prefill_alarms_ends_with_the_alarm() -> None:
    gate = fresh(watching_gate(Watching(3)), True, True, True)
    assert finished_by(gate) is None
    assert decide(take_snapshot(gate)).reason is Reason.ALARM_WITHOUT_BASELINE


def test_a_run_that_judges_somebody_is_not_over_by_that() -> None:
    gate = Gate()
    gate.apply(planned())
    assert finished_by(gate) is None


def test_cells_that_are_not_fresh_end_a_replay_on_its_budget() -> None:
    gate = watching_gate(Watching(3))
    assert gate.budget == 6
    for _ in range(6):
        score(gate, cell(case=gate.places.next_case, cached_tokens=None, processed_tokens=None, cold_proof=None))
    assert decide(take_snapshot(gate)).reason is Reason.BUDGET_SPENT
    verdict = judge(gate)
    assert verdict.budget_needed is None
    assert verdict.decision.what_would_change == ("The same command again: what is measured stands, and it goes on.",)


def test_several_servers_begin_no_more_than_the_replay_still_takes() -> None:
    gate = watching_gate(Watching(2), shape=replace(ALONE, candidate_lanes=3))
    first = next_step(gate)
    assert isinstance(first, RunCell)
    second = next_step(gate, Flight((first,)))
    assert isinstance(second, RunCell)
    assert isinstance(next_step(gate, Flight((first, second))), Wait)


# What is told


def told(watching: Watching, *outcomes: bool) -> tuple[str, ...]:
    return judge(fresh(watching_gate(watching), *outcomes)).decision.sentences


def test_the_verdict_tells_this_replay_and_all_of_them() -> None:
    before = Watching(3, (1.0,), 4, 30, 2, 1, ("c1",), "run-4")
    gate = fresh(watching_gate(before), False, True, False)
    view = watch_view(gate)
    assert view is not None
    assert (view.wanted, view.prefills, view.bad_prefills) == (3, 3, 1)
    assert (view.replays, view.prefills_since, view.bad_since, view.alarms_since) == (5, 33, 3, 1)
    assert judge(gate).watch == view
    level = math.exp(1.0 + CLEAN + BAD + CLEAN)
    assert told(before, False, True, False)[:3] == (
        "No alarm: the small replay after the promotion is over.",
        "Candidate: 1 of 3 requests bad; by prefill 1 of 3.",
        "Watch: replay 5 since the promotion took 3 of 3 fresh prefills, 1 bad; all replays 3 of 33 bad, 1 alarm. "
        f"The level is {level:.3g}, and 100 alarms.",
    )
    assert judge(gate).decision.what_would_change == (
        "Bad prefills in a later replay that raise the level to the one that alarms.",
    )


def test_the_words_of_alarms_are_singular_plural_and_none() -> None:
    assert "bad, no alarm. The level" in told(Watching(3), False)[2]
    assert "bad, 2 alarms. The level" in told(Watching(3, alarms_before=2), False)[2]


def test_an_alarm_says_what_would_answer_it() -> None:
    verdict = judge(fresh(watching_gate(), True, True, True))
    assert verdict.decision.reason == "AlarmWithoutBaseline"
    assert verdict.decision.sentences[0] == (
        "An alarm after the promotion: rollback is refused until a replicate with fresh prefills on the promoted and "
        "the previous profile confirms the regression."
    )
    assert verdict.decision.what_would_change == (
        "A fresh replicate against a server of the previous profile.",
        "An override by a person with a reason.",
    )
    assert verdict.watch is not None and verdict.watch.alarms_since == 1


def test_a_run_that_is_no_watch_has_no_view_of_one() -> None:
    gate = Gate()
    gate.apply(planned())
    assert (watch_view(gate), judge(gate).watch, judge(gate).trigger) == (None, None, None)


# The replicate of an alarm

TRIGGER = Trigger("watch-7", ("c5", "c3"), 1000.0, ("e0", "e9"), 40, 5)


def triggered(policy: Policy = STANDARD, trigger: Trigger = TRIGGER, **more: Any) -> Gate:
    gate = Gate()
    gate.apply(fitted_plan(planned(policy, trigger=trigger, **more)))
    for arm in (BASELINE, CANDIDATE):
        gate.apply(epoch(arm))
    return gate


def test_a_run_with_a_trigger_begins_with_its_alarm_and_runs_the_replicate_of_its_number() -> None:
    gate = triggered(first_replicate=4)
    assert (gate.alarm, gate.ever_alarmed) == (True, True)
    step = next_step(gate)
    assert isinstance(step, StartReplicate)
    assert step.number == 4
    run = Stepper(gate, bad=lambda step: step.arm == CANDIDATE)
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.ROLLBACK, Reason.REGRESSION_CONFIRMED)
    (replicate,) = judge(gate).replicates
    assert (replicate.number, replicate.threshold, replicate.ending) == (4, 480.0, "confirmed")
    assert {cell.replicate for cell in run.cells} == {4}
    assert len(run.cells) == 16  # eight pairs: 2.363 ** 8 is above 480, 2.363 ** 7 below


def test_its_prompts_are_those_that_failed_in_turn_with_the_others() -> None:
    run = Stepper(triggered())
    run.until(Separate)
    prompts = run.gate.replicates[0].plan.prompts
    assert prompts[0:6:2] == ("c5", "c3", "c5")
    assert not {"c5", "c3"} & set(prompts[1::2])


def test_it_is_kept_apart_from_the_last_bad_cell_of_the_watch() -> None:
    run = Stepper(triggered())
    step = run.until(Separate)
    assert step == Separate(1, 1600.0, "e9")
    unknown = Stepper(triggered(trigger=Trigger("w", ("c1",)))).until(Separate)
    assert unknown == Separate(1, None, None)


def test_lives_with_a_bad_cell_are_those_of_the_trigger_and_its_own() -> None:
    gate = triggered(trigger=Trigger("w", ("c1",), epochs=("e7",)))
    assert tainted_epochs(gate) == ["e7"]
    score(gate, cell(server_epoch="e8"), True)
    score(gate, cell(server_epoch="e6"), False)
    score(gate, cell(BASELINE, server_epoch="e5"), True)
    score(gate, cell(server_epoch=None), True)
    assert tainted_epochs(gate) == ["e7", "e8"]
    own = Stepper(gate).until(Separate)
    assert isinstance(own, Separate) and own.trigger_epoch is None  # its own last bad cell goes before the trigger's


@pytest.mark.parametrize("bad", ["none", "both"])
def test_not_confirmed_it_ends_there_and_a_person_decides(bad: str) -> None:
    run = Stepper(triggered(), bad=lambda step: bad == "both")
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.REGRESSION_NOT_CONFIRMED)
    assert len(run.gate.replicates) == 1
    assert {cell.replicate for cell in run.cells} == {1}


def test_it_says_which_alarm_it_answers() -> None:
    verdict = judge(triggered())
    assert verdict.trigger == TRIGGER
    assert (
        "This replicate answers the alarm of run watch-7 (5 of 40 fresh prefills bad since the promotion, last on c5, "
        "c3); none of those enters it."
    ) in verdict.decision.sentences


def test_the_trigger_s_cells_are_in_no_count() -> None:
    verdict = judge(triggered())
    assert (verdict.candidate.requests, verdict.candidate.prefills, verdict.prefills_used) == (0, 0, 0)


# The plan's policy


def test_a_replicate_alone_has_no_pass_no_speed_and_one_attempt() -> None:
    plan = fitted_plan(planned(replace(STANDARD, aa_check=True, budget=30), trigger=TRIGGER))
    assert (plan.policy.baseline_pass, plan.policy.aa_check, plan.policy.budget) == (0, False, 60)
    assert (plan.policy.throughput.required, plan.policy.throughput.max_pairs) == (False, 0)
    assert plan.policy.replicate == replace(STANDARD.replicate, max_attempts=1)
    assert fitted_plan(plan) == plan
    assert fitted_plan(planned(replace(STANDARD, budget=61), trigger=TRIGGER)).policy.budget == 61


def test_a_replay_may_spend_twice_its_prefills() -> None:
    plan = fitted_plan(planned(STANDARD, watching=Watching(5), shape=ALONE))
    assert plan.policy.budget == 10
    assert plan.policy.replicate.max_attempts == 0
    assert fitted_plan(plan) == plan


def test_a_plan_that_takes_nothing_over_keeps_its_policy() -> None:
    plan = planned(STANDARD)
    assert fitted_plan(plan) == plan
    assert not plan.answers_cut


@pytest.mark.parametrize("of", ["watching", "trigger"])
def test_a_cut_answer_is_nothing_bad_where_the_baseline_s_were_cut(of: str) -> None:
    def cut(answers_cut: bool) -> bool | None:
        made: dict[str, Any] = {
            "watching": Watching(8, answers_cut=answers_cut),
            "trigger": replace(TRIGGER, answers_cut=answers_cut),
        }
        gate = Gate()
        gate.apply(replace(planned(), **{of: made[of]}))
        return gate.bad_by((outcome(True, "cut"), outcome(False)))

    assert (cut(False), cut(True)) == (True, False)
