"""The floor: the baseline alone against itself, what it shows, and a run that goes by it instead of an A/A pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, Status
from prefillgate.core.decision import Reason, decide
from prefillgate.core.distrust import find_distrust
from prefillgate.core.earlier import CaseRates, StoredFloor
from prefillgate.core.fitted_plan import fitted_plan
from prefillgate.core.floor import BROKEN, NoFloor, floor_of, floor_sentence, is_sound, own_floor
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CaseRef, CellChecked, DeadlinePassed, Purpose
from prefillgate.core.judge import judge
from prefillgate.core.pairs import instrument_of, measured_cv, passes_done, slow_units
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import RunCell, Stop, next_step
from prefillgate.core.shape import Isolation, Shape, fitted
from prefillgate.core.snapshot import take_snapshot
from prefillgate.core.verdict import Outcome
from tests.support.journals import Stepper, answer_of, cell, epoch, measure, outcome, planned, score

FLOOR = Shape(baseline_alone=True)
SHARED = replace(FLOOR, isolation=Isolation.SHARED)
HOUR = 3600.0


def opened(policy: Policy = STANDARD, shape: Shape = FLOOR, **more: Any) -> Gate:
    gate = Gate()
    gate.apply(fitted_plan(planned(policy, shape=shape, **more)))
    gate.apply(epoch(BASELINE, weights="w1"))
    return gate


def speeds(step: RunCell) -> Cell:
    """The second pass is 2 % faster on every other case; one output of it is another."""
    again = step.purpose is Purpose.AA
    number = int(step.case_id[1:])
    return answer_of(
        step,
        output_tokens=41,
        decode_ms=400.0 / (1.02 if again and number % 2 else 1.0),
        output_sha256="other" if again and number == 3 else f"said {step.case_id}",
    )


def measured(make: Callable[[RunCell], Cell] = speeds, **more: Any) -> Gate:
    run = Stepper(opened(**more), make=make)
    run.run()
    return run.gate


# The schedule of a floor


def test_a_floor_is_two_passes_over_the_baseline_and_then_the_end() -> None:
    run = Stepper(opened(cases=5))
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.FLOOR_MEASURED)
    assert {step.arm for step in run.cells} == {BASELINE}
    assert [step.purpose for step in run.cells] == [Purpose.BASELINE_PASS] * 5 + [Purpose.AA] * 5
    first, second = run.cells[:5], run.cells[5:]
    assert {step.case_id for step in first} == {step.case_id for step in second} == {f"c{i}" for i in range(5)}
    assert {step.nonce for step in first}.isdisjoint(step.nonce for step in second)
    assert {step.case_id: step.seed for step in first} == {step.case_id: step.seed for step in second}


def test_a_floor_spends_both_passes_however_small_the_budget() -> None:
    plan = fitted_plan(planned(replace(QUICK, budget=3), cases=200, shape=FLOOR))
    assert plan.policy.budget == 400
    assert (plan.policy.aa_check, plan.policy.replicate.max_attempts) == (True, 0)
    assert (plan.policy.throughput.required, plan.policy.throughput.max_pairs) == (False, 0)
    assert plan.policy.throughput.planned_cv == QUICK.throughput.planned_cv
    assert fitted_plan(plan) == plan


def test_the_baseline_alone_is_one_arm() -> None:
    assert (FLOOR.arms, FLOOR.no_speed_why) == ((BASELINE,), "no candidate was run")
    assert SHARED.no_speed_why == "no candidate was run"
    assert fitted(STANDARD, FLOOR).baseline_pass == STANDARD.baseline_pass


def test_a_body_that_the_baseline_alone_refuses_cannot_be_told_from_a_bad_prompt() -> None:
    gate = opened()
    measure(gate, cell(BASELINE, "c4", status=Status.INVALID), Purpose.BASELINE_PASS, http_status=422, detail="no")
    distrust = find_distrust(gate)
    assert distrust is not None
    assert distrust.reason is Reason.CASE_UNUSABLE
    assert distrust.sentence == (
        "the baseline answers c4 with 422: no; without a candidate nothing tells whether the prompt or the baseline is "
        "at fault"
    )
    assert is_sound(gate) is False
    assert isinstance(next_step(gate), Stop)


# What it shows


def test_a_floor_shows_noise_sameness_and_its_prefills() -> None:
    gate = measured()
    found = own_floor(gate)
    assert found is not None
    assert is_sound(gate) is True
    assert (found.store, found.run_id, found.age_seconds) == (None, "run", 0.0)
    assert (found.prefills, found.bad_prefills) == (24, 0)
    assert (found.identical, found.compared, found.identical_share) == (11, 12, 11 / 12)
    assert found.noise_cv == measured_cv(gate) == pytest.approx(0.0073, abs=3e-4)
    assert found.measured_at == 1000.0 + 24 * 60
    assert (found.build, found.model, found.weights, found.answers_cut) == ("b1", "m", "w1", False)
    assert {each.case_id: each.per_second for each in found.rates}["c1"] == (
        pytest.approx(100.0),
        pytest.approx(102.0),
    )
    assert len(found.rates) == 12


def test_before_anything_is_measured_a_floor_shows_nothing() -> None:
    found = own_floor(opened())
    assert found == StoredFloor(None, "run", 0.0, 0.0, 0, 0, build="b1", model="m", weights="w1")
    assert found.identical_share is None
    assert is_sound(opened()) is None
    bare = Gate()
    bare.apply(fitted_plan(planned(STANDARD, shape=FLOOR)))
    assert own_floor(bare) == StoredFloor(None, "run", 0.0, 0.0, 0, 0)


def test_of_several_lives_of_the_baseline_the_last_one_tells_its_build() -> None:
    gate = Gate()
    gate.apply(fitted_plan(planned(STANDARD, shape=FLOOR)))
    gate.apply(epoch(BASELINE, build=None, model=None))
    gate.apply(epoch(BASELINE, "e2", build="b7", model="m7", weights="w7"))
    found = own_floor(gate)
    assert found is not None
    assert (found.build, found.model, found.weights) == ("b7", "m7", "w7")


def test_a_run_that_judges_a_candidate_has_no_floor_of_its_own() -> None:
    gate = Gate()
    gate.apply(planned())
    assert own_floor(gate) is None
    assert judge(gate).floor is None


def test_a_server_that_others_use_tells_no_noise() -> None:
    gate = measured(shape=SHARED)
    found = own_floor(gate)
    assert found is not None
    assert (found.noise_cv, found.rates, found.compared) == (None, (), 12)
    assert is_sound(gate) is True


def test_other_work_on_a_shared_server_breaks_no_instrument() -> None:
    def slower(step: RunCell) -> Cell:
        return answer_of(step, output_tokens=41, decode_ms=800.0 if step.purpose is Purpose.AA else 400.0)

    assert is_sound(measured(make=slower, shape=SHARED)) is True
    assert is_sound(measured(make=slower)) is False


@pytest.mark.parametrize(("bad", "sound"), [(4, True), (5, False)])
def test_five_bad_in_one_pass_alone_break_the_instrument_and_four_do_not(bad: int, sound: bool) -> None:
    planted = {f"c{i}" for i in range(bad)}
    gate = opened(cases=[CaseRef(f"c{i}", f"sha-{i}", 100 + i) for i in range(5)])
    run = Stepper(gate, bad=lambda step: step.purpose is Purpose.AA and step.case_id in planted)
    stop = run.run()
    assert is_sound(run.gate) is sound
    assert stop.ruling.reason is (Reason.FLOOR_MEASURED if sound else Reason.INSTRUMENT_BROKEN)
    verdict = judge(run.gate)
    assert verdict.floor is not None and verdict.floor.bad_prefills == bad
    assert verdict.decision.measured is sound
    if not sound:
        assert verdict.decision.sentences[0].startswith(
            "Could not measure: the second pass over the baseline is worse than the first (E "
        )
        assert verdict.decision.what_would_change == ("A measurement that can be trusted: see the first sentence.",)


def test_checks_that_fail_on_the_baseline_judge_nobody() -> None:
    run = Stepper(opened(), bad=lambda step: True)
    assert run.run().ruling.reason is Reason.CHECKS_FAIL_ON_BASELINE
    assert is_sound(run.gate) is False
    with pytest.raises(NoFloor, match="are not both done: the command that began it goes on"):
        floor_of(run.gate, "f.db", 0.0)


def test_what_ended_a_floor_early_without_a_word_on_the_instrument_leaves_it_unknown() -> None:
    gate = opened()
    gate.apply(DeadlinePassed(1.0))
    assert decide(take_snapshot(gate)).reason is Reason.DEADLINE
    assert is_sound(gate) is None
    assert judge(gate).decision.what_would_change == (
        "The same command again: what is measured stands, and it goes on.",
    )


def test_these_reasons_say_that_nothing_can_be_judged() -> None:
    assert {str(reason) for reason in BROKEN} == {
        "InstrumentBroken",
        "IndependenceUnknown",
        "KnobNotHonoured",
        "Contaminated",
        "CaseUnusable",
        "CheckError",
        "ChecksFailOnBaseline",
    }


def test_a_floor_that_is_complete_is_over_whatever_the_clock_says() -> None:
    gate = measured()
    gate.apply(DeadlinePassed(9.0))
    assert decide(take_snapshot(gate)).reason is Reason.FLOOR_MEASURED


def test_the_verdict_of_a_floor_speaks_of_the_baseline_alone() -> None:
    verdict = judge(measured())
    assert verdict.decision.sentences == (
        "The instrument is sound: two passes over the baseline look alike. That judges nobody.",
        "Baseline: 0 of 24 requests bad; by prefill 0 of 24.",
        "The baseline against itself: 0 of 24 fresh prefills bad, the same output in 11 of 12 prompts, decode speed "
        "varies by 0.7 % from cell to cell.",
        "Decode speed was not compared: no candidate was run.",
    )
    assert verdict.decision.what_would_change == ("A floor decides nothing: prefillgate run --floor goes by it.",)
    assert [arm for arm, _, _ in verdict.arms] == [BASELINE]
    assert (verdict.decision.decision, verdict.decision.measured) == (Outcome.HOLD, True)


# From a floor to the run that goes by it


def taken(gate: Gate, at: float = 1000.0 + 24 * 60 + 5 * HOUR) -> StoredFloor:
    return floor_of(gate, "floor.db", at)


def test_a_stored_floor_says_where_it_came_from_and_how_old_it_was() -> None:
    floor = taken(measured())
    assert (floor.store, floor.age_seconds) == ("floor.db", 5 * HOUR)
    assert floor_sentence(floor) == (
        "Floor of floor.db (run run, 5 hours old), the baseline against itself: 0 of 24 fresh prefills bad, the same "
        "output in 11 of 12 prompts, decode speed varies by 0.7 % from cell to cell."
    )


def test_what_is_not_known_of_a_floor_is_not_said() -> None:
    bare = StoredFloor("f.db", "r", 0.0, 60.0, 4, 1, identical=0, compared=0)
    assert floor_sentence(bare) == (
        "Floor of f.db (run r, under an hour old), the baseline against itself: 1 of 4 fresh prefills bad."
    )
    assert floor_sentence(replace(bare, noise_cv=0.95)).endswith("decode speed varies by 95.0 % from cell to cell.")
    assert bare.identical_share is None
    assert replace(bare, identical=None, compared=3).identical_share is None
    assert replace(bare, identical=0, compared=4).identical_share == 0.0


def test_an_ordinary_run_with_its_own_check_serves_as_a_floor() -> None:
    run = Stepper(opened(replace(STANDARD, aa_check=True), Shape()), make=speeds)
    run.gate.apply(epoch(CANDIDATE))
    run.run()
    floor = taken(run.gate)
    assert (floor.prefills, floor.identical, floor.compared) == (24, 11, 12)


def test_a_run_without_both_passes_is_no_floor() -> None:
    gate = Gate()
    gate.apply(planned())
    with pytest.raises(NoFloor, match="its baseline was not measured against itself"):
        floor_of(gate, "x.db", 0.0)
    run = Stepper(opened(cases=3))
    while run.gate.places.passed_again < 2 or run.gate.unchecked():
        run.step()
    with pytest.raises(NoFloor, match="not both done"):
        floor_of(run.gate, "x.db", 0.0)
    run.step()
    run.step()
    assert floor_of(run.gate, "x.db", 0.0).prefills == 6


def test_a_broken_floor_is_taken_over_by_nobody() -> None:
    run = Stepper(
        opened(cases=5), bad=lambda step: step.purpose is Purpose.AA
    )  # broken with the last cell, so both passes are done
    run.run()
    assert passes_done(run.gate)
    with pytest.raises(NoFloor, match=r"nothing can be judged by it: the second pass .* \(E 73.7\)"):
        floor_of(run.gate, "x.db", 0.0)


def test_checks_that_fail_at_the_last_place_make_no_floor_either() -> None:
    gate = opened(cases=3)
    for purpose in (Purpose.BASELINE_PASS, Purpose.AA):
        for number in range(3):
            score(gate, cell(BASELINE, f"c{number}"), True, purpose)
    with pytest.raises(NoFloor, match="nothing can be judged by it: your checks fail on the baseline"):
        floor_of(gate, "x.db", 0.0)


def going_by(floor: StoredFloor, policy: Policy = STANDARD, **more: Any) -> Gate:
    gate = Gate()
    gate.apply(fitted_plan(planned(policy, floor=floor, **more)))
    gate.apply(epoch(BASELINE, weights="w1"))
    gate.apply(epoch(CANDIDATE, weights="w1"))
    return gate


def test_a_run_with_a_floor_has_no_pass_of_its_own_against_itself() -> None:
    policy = replace(STANDARD, aa_check=True)
    gate = going_by(taken(measured()), policy)
    assert not gate.plan.policy.aa_check
    assert replace(gate.plan.policy, aa_check=True) == policy
    run = Stepper(gate, make=speeds)
    run.until(Stop)
    assert Purpose.AA not in {step.purpose for step in run.cells}


def test_a_run_with_a_floor_shows_its_noise_and_its_sameness() -> None:
    floor = taken(measured())
    gate = going_by(floor)
    assert measured_cv(gate) == floor.noise_cv
    assert instrument_of(gate).baseline.identical_share == 11 / 12
    assert instrument_of(gate).baseline.rates == {each.case_id: each.per_second for each in floor.rates}
    verdict = judge(gate)
    assert verdict.floor == floor
    assert verdict.throughput.aa_identical_share == 11 / 12
    assert verdict.throughput.slow_share_baseline == 0.0
    assert floor_sentence(floor) in verdict.decision.sentences


def test_slow_cells_are_a_flag_by_the_floor_s_rates() -> None:
    floor = taken(measured())
    gate = going_by(floor)
    assert slow_units(gate) == 0
    for decode_ms, slow in ((400.0 / 0.79, 1), (400.0 / 0.82, 1)):
        score(gate, cell(case="c0", output_tokens=41, decode_ms=decode_ms))
        assert slow_units(gate) == slow
    without = going_by(replace(floor, rates=floor.rates[:9]))  # 18 cells: too few to tell
    assert slow_units(without) is None
    few = going_by(replace(floor, rates=floor.rates[:10]))
    assert slow_units(few) == 0
    plain = Gate()
    plain.apply(planned(STANDARD))
    assert slow_units(plain) is None


def test_a_floor_too_noisy_for_the_margin_refuses_the_plan() -> None:
    close = replace(STANDARD, throughput=replace(STANDARD.throughput, margin=-0.02))
    for cv, reason in ((0.051, Reason.INSTRUMENT_BROKEN), (0.05, None)):
        found = find_distrust(going_by(replace(taken(measured()), noise_cv=cv), close))
        assert (None if found is None else found.reason) is reason
    unknown = going_by(replace(taken(measured()), noise_cv=None), close)
    assert find_distrust(unknown) is None


@pytest.mark.parametrize(("name", "then"), [("build", "b0"), ("weights", "w0")])
def test_a_floor_of_another_baseline_is_not_gone_by(name: str, then: str) -> None:
    floor = taken(measured())
    found = find_distrust(going_by(replace(floor, **{name: then})))
    assert found is not None
    assert found.reason is Reason.UNDECLARED_DIFFERENCE
    now = {"build": "b1", "weights": "w1"}[name]
    assert found.sentence == f"the floor of floor.db is of another baseline: {name} {then} then, {now} now"
    assert find_distrust(going_by(replace(floor, **{name: None}))) is None


def test_a_baseline_that_tells_no_build_is_not_another_one() -> None:
    gate = Gate()
    gate.apply(fitted_plan(planned(floor=taken(measured()))))
    gate.apply(epoch(BASELINE, build=None))
    gate.apply(epoch(CANDIDATE, build=None))
    assert find_distrust(gate) is None


def test_answers_that_the_floor_saw_cut_are_nothing_bad_of_the_candidate() -> None:
    for name, bad in (("cut", False), ("other", True)):
        gate = opened(cases=30)
        cell_id = measure(gate, cell(BASELINE, "c0"), Purpose.BASELINE_PASS)
        gate.apply(CellChecked(cell_id, (outcome(True, name),)))
        assert gate.baseline_pass_cut is (name == "cut")
        floor = replace(own_floor(gate) or taken(measured()), store="f.db")
        assert floor.answers_cut is (name == "cut")
        assert going_by(floor).bad_by((outcome(True, "cut"), outcome(False))) is bad


def test_rates_of_one_pass_alone_tell_no_noise() -> None:
    floor = replace(taken(measured()), rates=(CaseRates("c0", (1.0,)),))
    assert instrument_of(going_by(floor)).baseline.cells == 1
