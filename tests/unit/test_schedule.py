"""What is to be done next: the plan of a run as a function of what is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, Status
from prefillgate.core.decision import Reason
from prefillgate.core.gate import fold
from prefillgate.core.journal import (
    CandidateUnavailable,
    CaseRef,
    CellMeasured,
    DeadlinePassed,
    Event,
    Purpose,
    ReplicateAborted,
    ReplicateStarted,
    RunResumed,
    SeparationKept,
)
from prefillgate.core.judge import judge
from prefillgate.core.places import derived_nonce, derived_seed
from prefillgate.core.policy import Policy
from prefillgate.core.replicate import Ending
from prefillgate.core.schedule import CheckCell, RunCell, Separate, StartReplicate, Stop, next_step
from prefillgate.core.verdict import Outcome
from tests.support.journals import (
    Stepper,
    answer_of,
    cell,
    epoch,
    measure,
    outcome,
    planned,
    quality_only,
    score,
    screen,
    started,
)


def speed(milliseconds: Callable[[RunCell], float]) -> Callable[[RunCell], Cell]:
    """Answers of 41 tokens, each taking so many milliseconds per token."""
    return lambda step: answer_of(step, output_tokens=41, decode_ms=40 * milliseconds(step))


def stepper(policy: Policy | None = None, cases: Any = 12, seed: int = 7, **how: Any) -> Stepper:
    made = Stepper(started(policy or STANDARD, cases=cases, seed=seed), **how)
    made.events = [planned(policy or STANDARD, cases, seed), epoch(BASELINE), epoch(CANDIDATE)]
    return made


def bad_candidate(step: RunCell) -> bool:
    return step.arm == CANDIDATE


# A run from end to end


def test_a_healthy_run_spends_its_prefills_on_passes_pairs_and_the_screen() -> None:
    run = stepper(make=speed(lambda step: 10.0 if step.arm == BASELINE else 9.0))
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.PROMOTE, Reason.ACCEPTANCE_REACHED)
    assert Counter((step.purpose, step.arm) for step in run.cells) == {
        (Purpose.BASELINE_PASS, BASELINE): 8,
        (Purpose.PAIR, BASELINE): 13,  # twelve prompts, and the discarded first pair
        (Purpose.PAIR, CANDIDATE): 13,
        (Purpose.SCREEN, CANDIDATE): 19,
    }


def test_without_throughput_a_clean_run_is_32_candidate_prefills() -> None:
    run = stepper(quality_only())
    assert run.run().ruling.decision is Outcome.PROMOTE
    assert [(step.arm, step.purpose) for step in run.cells] == [(CANDIDATE, Purpose.SCREEN)] * 32


def test_a_regression_is_alarmed_replicated_and_rolled_back() -> None:
    run = stepper(quality_only(), bad=bad_candidate)
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.ROLLBACK, Reason.REGRESSION_CONFIRMED)
    assert [(step.arm, step.replicate) for step in run.cells] == [
        (CANDIDATE, 0),
        (CANDIDATE, 0),
        *[(CANDIDATE, 1), (BASELINE, 1)][:2],
        *[(step.arm, 1) for step in run.cells[4:]],
    ]
    assert len(run.cells) == 12
    assert next_step(run.gate) == stop


def test_a_clean_replicate_goes_on_to_promote() -> None:
    run = stepper(quality_only(), bad=lambda step: step.replicate == 0 and step.cell_id < 2)
    assert run.run().ruling.decision is Outcome.PROMOTE
    assert [r.ending() for r in run.gate.replicates] == [Ending.CLEAN]
    assert len(run.cells) == 75


def test_two_replicates_that_do_not_confirm_wait_for_a_person() -> None:
    marked = {0, 1}
    run = stepper(quality_only(), bad=lambda step: step.replicate == 0 and step.cell_id in marked)
    run.until(StartReplicate)
    while run.gate.not_confirmed == 0:
        run.step()
    marked.add(run.gate.next_cell_id())
    stop = run.run()
    assert [step.number for step in run.starts] == [1, 2]
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.REGRESSION_NOT_CONFIRMED)


def test_the_budget_ends_a_run() -> None:
    run = stepper(quality_only(budget=20))
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.BUDGET_SPENT)
    assert len(run.cells) == 20


# Order of work


def test_an_answer_that_no_check_has_read_comes_first() -> None:
    gate = started(STANDARD)
    first = measure(gate, cell(BASELINE, gate.places.baseline_pass[0]), Purpose.BASELINE_PASS)
    measure(gate, cell(BASELINE, gate.places.baseline_pass[1]), Purpose.BASELINE_PASS)
    gate.apply(DeadlinePassed(1.0))
    assert next_step(gate) == CheckCell(first)


def test_the_baseline_pass_comes_before_the_candidate() -> None:
    run = stepper()
    for case in run.gate.places.baseline_pass:
        step = run.until(RunCell)
        assert isinstance(step, RunCell)
        assert (step.arm, step.case_id, step.purpose, step.pair) == (BASELINE, case, Purpose.BASELINE_PASS, None)
        assert (step.round, step.replicate, step.attempt) == (-2, 0, 1)
    step = run.until(RunCell)
    assert isinstance(step, RunCell)
    assert step.purpose is Purpose.PAIR


def test_with_an_instrument_check_the_second_pass_follows_with_equal_seeds_and_new_nonces() -> None:
    run = stepper(replace(STANDARD, aa_check=True))
    while len(run.cells) < 24:
        run.step()
    first, second = run.cells[:12], run.cells[12:]
    assert {step.purpose for step in first} == {Purpose.BASELINE_PASS}
    assert {step.purpose for step in second} == {Purpose.AA}
    assert [step.case_id for step in second] == list(run.gate.places.second_pass)
    assert {(s.case_id, s.seed) for s in first} == {(s.case_id, s.seed) for s in second}
    assert len({step.nonce for step in run.cells}) == 24
    for step in run.cells:
        label = ("run", 0, -2, None, step.case_id)
        assert step.seed == derived_seed(7, *label)
        assert step.nonce == derived_nonce(7, *label, 1, 0, step.purpose is Purpose.AA)


def test_a_pair_runs_both_arms_at_once_in_the_order_of_its_coin() -> None:
    run = stepper(make=speed(lambda step: 10.0))
    run.run()
    halves = [step for step in run.cells if step.purpose is Purpose.PAIR]
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        assert (first.pair, first.case_id, first.round) == (second.pair, second.case_id, second.round)
        assert (first.seed, first.nonce) == (second.seed, second.nonce)
        assert {first.arm, second.arm} == {BASELINE, CANDIDATE}
        assert second.cell_id == first.cell_id + 1
        assert (first.arm == CANDIDATE) is run.gate.places.candidate_first(first.pair or 0)
    assert {first.arm for first in halves[::2]} == {BASELINE, CANDIDATE}
    assert [first.pair for first in halves[::2]] == list(range(len(halves) // 2))


def test_every_prompt_of_a_round_is_taken_once_each_round_in_a_new_order() -> None:
    run = stepper(quality_only(acceptance=(60, 80, 90)))
    run.run()
    rounds = [[step.case_id for step in run.cells if step.round == number] for number in range(5)]
    assert all(sorted(order) == sorted(f"c{i}" for i in range(12)) for order in rounds)
    assert len({tuple(order) for order in rounds}) == 5
    assert [step.round for step in run.cells] == [i // 12 for i in range(60)]


def test_seeds_and_nonces_are_new_every_round() -> None:
    run = stepper(quality_only(acceptance=(60, 80, 90)))
    run.run()
    assert len({step.seed for step in run.cells}) == 60
    assert len({step.nonce for step in run.cells}) == 60
    other = stepper(quality_only(acceptance=(60, 80, 90)), seed=8)
    other.run()
    assert not {step.nonce for step in run.cells} & {step.nonce for step in other.cells}


def test_a_pair_out_of_turn_follows_once_only_the_speed_is_missing() -> None:
    run = stepper(make=speed(lambda step: 10.0 if step.arm == BASELINE else 9.0))
    run.run()
    last = [step for step in run.cells if step.purpose is Purpose.PAIR][-2:]
    first = next(step for step in run.cells if step.purpose is Purpose.PAIR)
    discarded = first.case_id
    paired_again = [step.case_id for step in run.cells if step.purpose is Purpose.PAIR].count(discarded) == 4
    assert last[0].case_id == discarded
    assert paired_again


def test_speed_that_never_settles_holds_after_all_its_pairs() -> None:
    policy = replace(STANDARD, throughput=replace(STANDARD.throughput, max_pairs=16))
    run = stepper(policy, make=speed(lambda step: 10.0 if step.arm == BASELINE else 10.5))
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.THROUGHPUT_OPEN)
    assert run.gate.places.pairs_begun == 16


def test_a_slower_candidate_holds() -> None:
    run = stepper(make=speed(lambda step: 10.0 if step.arm == BASELINE else 14.0))
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.SLOWER)


# Invalid cells and refusals


def invalid(step: RunCell, **changes: Any) -> Cell:
    return cell(step.arm, step.case_id, status=Status.INVALID, replicate=step.replicate, **changes)


@pytest.mark.parametrize("position", [0, 8, 9])
def test_an_invalid_cell_is_planned_again_at_its_place_with_a_new_nonce(position: int) -> None:
    run = stepper()
    run.make = lambda step: invalid(step) if len(run.cells) == position + 1 else answer_of(step)
    while len(run.cells) < position + 2:
        run.step()
    lost, again = run.cells[position:]
    same = ("arm", "case_id", "purpose", "pair", "round", "seed")
    assert [getattr(lost, name) for name in same] == [getattr(again, name) for name in same]
    assert (lost.attempt, again.attempt) == (1, 2)
    assert again.nonce != lost.nonce
    assert again.cell_id == lost.cell_id + 1


def test_three_invalid_cells_in_a_row_stop_the_run() -> None:
    run = stepper(quality_only(), make=invalid)
    assert run.run().ruling.reason is Reason.INVALID_CELLS
    assert [step.attempt for step in run.cells] == [1, 2, 3]


def refuse(gate: Any, arm: str, case: str, http: int = 400, purpose: Purpose = Purpose.SCREEN) -> None:
    measure(gate, cell(arm, case, status=Status.INVALID), purpose, http_status=http, detail="too long")


@pytest.mark.parametrize("http", [400, 413, 422])
def test_a_body_the_candidate_refused_is_put_to_the_baseline(http: int) -> None:
    gate = started()
    score(gate, cell(BASELINE, "c1"))
    refuse(gate, CANDIDATE, "c0", http)
    step = next_step(gate)
    assert isinstance(step, RunCell)
    assert (step.arm, step.case_id, step.purpose, step.round, step.attempt) == (BASELINE, "c0", Purpose.COMPARE, -1, 1)
    score(gate, cell(BASELINE, "c0"), purpose=Purpose.COMPARE)
    stop = next_step(gate)
    assert isinstance(stop, Stop)
    assert stop.ruling.reason is Reason.CANDIDATE_REFUSES


def test_a_baseline_that_gave_no_answer_is_asked_again_and_one_that_refused_is_not() -> None:
    gate = started()
    refuse(gate, CANDIDATE, "c0")
    first = next_step(gate)
    measure(gate, cell(BASELINE, "c0", status=Status.INVALID), Purpose.COMPARE, reason="NotIdle")
    again = next_step(gate)
    assert isinstance(first, RunCell)
    assert isinstance(again, RunCell)
    assert (again.purpose, again.case_id, again.attempt) == (Purpose.COMPARE, "c0", 2)
    assert again.nonce != first.nonce
    refuse(gate, BASELINE, "c0", purpose=Purpose.COMPARE)
    stop = next_step(gate)
    assert isinstance(stop, Stop)
    assert stop.ruling.reason is Reason.CASE_UNUSABLE


def test_a_baseline_that_failed_on_the_body_has_answered() -> None:
    gate = started()
    refuse(gate, CANDIDATE, "c0")
    measure(gate, cell(BASELINE, "c0", status=Status.FAILED), Purpose.COMPARE)
    step = next_step(gate)
    assert isinstance(step, RunCell)
    assert step.purpose is Purpose.SCREEN


def test_only_a_refused_body_is_put_to_the_other_arm() -> None:
    gate = started()
    refuse(gate, CANDIDATE, "c0", http=404)
    measure(gate, cell(CANDIDATE, "c1", status=Status.FAILED), http_status=400)
    step = next_step(gate)
    assert isinstance(step, RunCell)
    assert step.purpose is Purpose.SCREEN


def test_a_body_the_baseline_refused_is_put_to_the_candidate() -> None:
    gate = started(STANDARD)
    refuse(gate, BASELINE, "c0", purpose=Purpose.BASELINE_PASS)
    step = next_step(gate)
    assert isinstance(step, RunCell)
    assert (step.arm, step.case_id, step.purpose) == (CANDIDATE, "c0", Purpose.COMPARE)
    score(gate, cell(CANDIDATE, "c0"), purpose=Purpose.COMPARE)
    stop = next_step(gate)
    assert isinstance(stop, Stop)
    assert stop.ruling.reason is Reason.BASELINE_REFUSES


# Replicates


def test_an_alarm_starts_a_replicate_with_a_new_seed_and_asks_for_separation() -> None:
    run = stepper(quality_only(), bad=bad_candidate)
    start = run.until(StartReplicate)
    separate = run.until(Separate)
    assert isinstance(start, StartReplicate)
    assert isinstance(separate, Separate)
    assert (start.number, separate.number, separate.trigger_epoch) == (1, 1, "e1")
    last_bad = run.gate.scored[-1].cell
    assert last_bad.ended_at is not None
    assert separate.not_before == last_bad.ended_at + 600
    assert 1 <= start.seed < 2**31


def test_the_seed_of_a_replicate_is_its_own() -> None:
    seeds = set()
    for seed in (7, 8):
        for first in (1, 2):
            gate = started(quality_only(), seed=seed, first_replicate=first)
            screen(gate, True, True)
            step = next_step(gate)
            assert isinstance(step, StartReplicate)
            assert step.number == first
            seeds.add(step.seed)
    later = started(quality_only(), seed=7)
    screen(later, False, True, True)
    step = next_step(later)
    assert isinstance(step, StartReplicate)
    assert len({*seeds, step.seed}) == 5


def test_separation_is_kept_from_the_last_bad_candidate_cell() -> None:
    gate = started()
    for i, (arm, bad) in enumerate([(CANDIDATE, True), (CANDIDATE, True), (CANDIDATE, False), (BASELINE, True)]):
        made = cell(arm, f"c{i}", started_at=100.0 * i, ended_at=100.0 * i + 50, server_epoch=f"e{i}")
        score(gate, made, bad)
    gate.apply(ReplicateStarted(1, 500.0, 9))
    assert next_step(gate) == Separate(1, 750.0, "e1")


def test_a_start_stands_in_for_an_end_and_an_unknown_time_for_neither() -> None:
    gate = started()
    screen(gate, True)
    score(gate, cell(case="c1", started_at=100.0), True)
    gate.apply(ReplicateStarted(1, 500.0, 9))
    assert next_step(gate) == Separate(1, 700.0, "e1")
    unknown = started()
    screen(unknown, True, True)
    unknown.apply(ReplicateStarted(1, 500.0, 9))
    assert next_step(unknown) == Separate(1, None, "e1")
    none = started()
    none.apply(ReplicateStarted(1, 500.0, 9))
    assert next_step(none) == Separate(1, None, None)


def test_the_second_replicate_is_kept_apart_from_bad_cells_of_the_first() -> None:
    gate = started()
    score(gate, cell(case="c0", started_at=0.0, ended_at=10.0), True)
    gate.apply(ReplicateStarted(1, 20.0, 9))
    gate.apply(SeparationKept(1, 30.0, "restart"))
    prompt = gate.replicates[0].plan.prompts[0]
    made = cell(case=prompt, replicate=1, started_at=40.0, ended_at=50.0, server_epoch="e2")
    score(gate, made, True, Purpose.REPLICATE, pair=0)
    gate.apply(ReplicateAborted(1, 60.0, "deadline"))
    gate.apply(ReplicateStarted(2, 70.0, 8))
    assert next_step(gate) == Separate(2, 650.0, "e2")


def test_the_policy_sets_the_gap() -> None:
    policy = quality_only()
    gate = started(replace(policy, replicate=replace(policy.replicate, gap_seconds=5.0)))
    score(gate, cell(started_at=0.0, ended_at=10.0), True)
    score(gate, cell(case="c1", started_at=10.0, ended_at=20.0), True)
    gate.apply(ReplicateStarted(1, 30.0, 9))
    assert next_step(gate) == Separate(1, 25.0, "e1")


def test_replicate_cells_have_seeds_and_nonces_of_their_own_equal_on_both_arms() -> None:
    run = stepper(quality_only(), bad=bad_candidate)
    run.run()
    halves = [step for step in run.cells if step.replicate]
    assert {step.purpose for step in halves} == {Purpose.REPLICATE}
    assert {(step.round, step.replicate, step.attempt) for step in halves} == {(0, 1, 1)}
    for pair in range(5):
        one, other = [step for step in halves if step.pair == pair]
        assert (one.seed, one.nonce, one.case_id) == (other.seed, other.nonce, other.case_id)
    assert len({step.nonce for step in halves}) == len({step.seed for step in halves}) == 5
    earlier = {step.nonce for step in run.cells if not step.replicate}
    assert not earlier & {step.nonce for step in halves}
    again = stepper(quality_only(), bad=lambda step: bad_candidate(step) or step.cell_id == 0, seed=7)
    again.gate.replicate_seeds.clear()
    again.run()
    assert [step.seed for step in again.cells] == [step.seed for step in run.cells]


def test_another_replicate_seed_gives_other_seeds_and_nonces() -> None:
    found = set()
    for seed in (9, 10):
        gate = started()
        screen(gate, True, True)
        gate.apply(ReplicateStarted(1, 20.0, seed))
        gate.apply(SeparationKept(1, 30.0, "restart"))
        step = next_step(gate)
        assert isinstance(step, RunCell)
        found |= {step.seed, step.nonce}
    assert len(found) == 4


def test_the_second_replicate_takes_its_own_seed() -> None:
    gate = started()
    screen(gate, True, True)
    for number, seed in ((1, 9), (2, 10)):
        gate.apply(ReplicateStarted(number, 20.0, seed))
        gate.apply(SeparationKept(number, 30.0, "restart"))
        step = next_step(gate)
        assert isinstance(step, RunCell)
        assert step.seed == derived_seed(seed, "replicate", number, 0, 0, step.case_id)
        assert step.nonce == derived_nonce(seed, "replicate", number, 0, 0, step.case_id, 1, 0, False)
        gate.apply(ReplicateAborted(number, 40.0, "separation impossible"))
        screen(gate, False)


def test_an_invalid_half_is_planned_again_with_a_new_nonce_and_the_same_seed() -> None:
    run = stepper(quality_only(), bad=bad_candidate)
    run.make = lambda step: invalid(step) if len(run.cells) == 4 else answer_of(step)
    while len(run.cells) < 5:
        run.step()
    lost, again = run.cells[3:]
    assert (lost.arm, lost.pair, lost.attempt) == (BASELINE, 0, 1)
    assert (again.arm, again.pair, again.attempt) == (BASELINE, 0, 2)
    assert (lost.seed == again.seed, lost.nonce == again.nonce) == (True, False)


def test_an_alarm_between_two_halves_of_a_pair_lets_the_pair_end() -> None:
    policy = replace(STANDARD, baseline_pass=0)
    run = stepper(policy, bad=bad_candidate)
    run.until(StartReplicate)
    assert [step.purpose for step in run.cells] == [Purpose.PAIR] * 4
    assert run.gate.places.open_pair is None
    gate = started(policy)
    case = gate.places.next_case
    score(gate, cell(case=case), True, Purpose.PAIR, pair=0)
    score(gate, cell(case=case), True, Purpose.COMPARE)
    assert gate.alarm is True
    step = next_step(gate)
    assert isinstance(step, RunCell)
    assert (step.arm, step.purpose, step.pair) == (BASELINE, Purpose.PAIR, 0)


# Resuming


def test_folding_the_same_events_gives_the_same_next_step_at_every_event() -> None:
    run = stepper(bad=lambda step: step.arm == CANDIDATE and step.cell_id % 3 == 0)
    run.run()
    assert len(run.starts) >= 1
    live = fold(run.events[:1])
    for count, event in enumerate(run.events[1:], start=2):
        live.apply(event)
        if count > 3:
            assert next_step(live) == next_step(fold(run.events[:count]))
    assert judge(live) == judge(fold(run.events))


def test_a_resumed_run_goes_on_at_the_same_place_with_another_nonce() -> None:
    run = stepper()
    for _ in range(9):
        run.step()
    before = next_step(run.gate)
    run.apply(RunResumed(5.0))
    after = next_step(run.gate)
    assert isinstance(before, CheckCell)
    run.step()
    resumed = next_step(run.gate)
    other = fold([event for event in run.events if not isinstance(event, RunResumed)])
    plain = next_step(other)
    assert before == after
    assert isinstance(resumed, RunCell)
    assert isinstance(plain, RunCell)
    assert resumed.nonce != plain.nonce
    assert replace(resumed, nonce="") == replace(plain, nonce="")


def test_a_deadline_stops_and_a_resumed_run_goes_on() -> None:
    gate = started()
    gate.apply(DeadlinePassed(1.0))
    stop = next_step(gate)
    assert isinstance(stop, Stop)
    assert stop.ruling.reason is Reason.DEADLINE
    gate.apply(RunResumed(2.0))
    assert isinstance(next_step(gate), RunCell)


def test_a_cell_id_is_the_position_in_the_journal() -> None:
    run = stepper(quality_only())
    run.run()
    assert [step.cell_id for step in run.cells] == list(range(32))


def test_an_unavailable_candidate_stops_the_run() -> None:
    gate = started()
    gate.apply(CandidateUnavailable(1.0, 3, "refused"))
    stop = next_step(gate)
    assert isinstance(stop, Stop)
    assert stop.ruling.decision is Outcome.ROLLBACK


def test_prompts_that_cannot_give_a_pair_are_screened_alone() -> None:
    cases = [CaseRef("short", "s", 10, 8), CaseRef("long", "s", 20, 64)]
    run = stepper(replace(STANDARD, baseline_pass=0), cases=cases, make=speed(lambda step: 10.0))
    run.run()
    assert {step.purpose for step in run.cells if step.case_id == "short"} == {Purpose.SCREEN}
    assert Purpose.PAIR in {step.purpose for step in run.cells if step.case_id == "long"}


def test_events_keep_what_the_schedule_asked_for() -> None:
    run = stepper()
    run.step()
    event: Event = run.events[-1]
    assert isinstance(event, CellMeasured)
    assert event.purpose is Purpose.BASELINE_PASS
    assert outcome(True).bad is True
