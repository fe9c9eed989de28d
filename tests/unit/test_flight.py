"""Several cells in flight: what is begun beside them, what waits, and that nothing is decided past a slow one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Status
from prefillgate.core.decision import Reason
from prefillgate.core.flight import Flight, RunCell, Wanted, lane_of, open_lanes
from prefillgate.core.gate import fold
from prefillgate.core.journal import OUT_OF_TURN, CaseRef, Purpose, RunResumed
from prefillgate.core.judge import judge
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import Stop, Wait, next_step
from prefillgate.core.shape import Shape
from prefillgate.core.snapshot import acceptance_reached
from prefillgate.core.verdict import Outcome
from tests.support.flights import Fleet, fleet, life
from tests.support.journals import answer_of, cell, measure, quality_only

TWO = Shape(candidate_lanes=2)
FOUR = Shape(baseline_lanes=2, candidate_lanes=2)
AT_ONCE = Shape(at_once=True)
FOUR_AT_ONCE = replace(FOUR, at_once=True)


def quick(**changes: object) -> Policy:
    return quality_only(QUICK, **changes)


def test_a_cell_of_which_nothing_more_is_said_goes_to_the_first_server_in_the_first_round() -> None:
    wanted = Wanted(CANDIDATE, "long", Purpose.SCREEN, attempt=1)
    assert (wanted.turn, wanted.round, wanted.pair, wanted.replicate, wanted.place) == (0, 0, None, 0, None)
    run = RunCell(1, CANDIDATE, "long", Purpose.SCREEN, None, 0, 0, 1, 1, "nonce")
    assert (run.lane, run.place) == (0, None)


def places(cells: list[RunCell]) -> list[int | None]:
    return [cell.place for cell in cells]


def first_on(lane: int, arm: str = CANDIDATE) -> Callable[[list[RunCell]], RunCell]:
    """That server's cell ends before any other."""
    return lambda flying: next((step for step in flying if (step.arm, step.lane) == (arm, lane)), flying[0])


def speedy(step: RunCell, factor: float = 1.0) -> object:
    return answer_of(step, output_tokens=41, decode_ms=40 * (10.0 if step.arm == BASELINE else 9.0 * factor))


# Shape


def test_one_server_each_that_take_turns_is_no_parallel_shape() -> None:
    assert Shape().parallel is False
    assert [shape.parallel for shape in (TWO, AT_ONCE, Shape(baseline_lanes=2))] == [True] * 3
    assert (FOUR.lanes(BASELINE), TWO.lanes(BASELINE), TWO.lanes(CANDIDATE)) == (2, 1, 2)


# Servers


def test_places_are_dealt_to_the_servers_in_turn() -> None:
    run = fleet(quick(), Shape(candidate_lanes=3))
    assert isinstance(run.begin(), Wait)
    assert [(step.place, step.lane) for step in run.flying] == [(0, 0), (1, 1), (2, 2)]
    assert [step.cell_id for step in run.flying] == [0, 1, 2]
    run.end(run.flying[1])
    run.begin()
    assert [(step.place, step.lane, step.cell_id) for step in run.flying] == [(0, 0, 0), (2, 2, 2), (4, 1, 3)]


def test_a_run_on_two_servers_gives_each_the_same_number_of_cells_however_slow_one_is() -> None:
    run = fleet(quick(), TWO)
    stop = run.run(first_on(1))
    assert stop.ruling.reason is Reason.ACCEPTANCE_REACHED
    assert Counter(step.lane for step in run.begun) == {0: 8, 1: 8}
    assert sorted(step.place or 0 for step in run.begun) == list(range(16))


def test_a_server_left_alone_gets_nothing() -> None:
    run = fleet(quick(), TWO)
    run.resting = frozenset({(CANDIDATE, 0)})
    run.begin()
    assert [(step.place, step.lane) for step in run.flying] == [(1, 1)]
    flight = Flight((), frozenset({(BASELINE, 0)}))
    assert flight.takes(run.gate, Wanted(CANDIDATE, "c0", Purpose.SCREEN, 1)) is True
    assert flight.takes(run.gate, Wanted(BASELINE, "c0", Purpose.COMPARE, 1)) is False


def test_a_void_cell_is_tried_again_on_the_next_server() -> None:
    run = fleet(quick(), TWO)
    run.begin()
    lost = run.flying[1]
    run.end(lost, cell(case=lost.case_id, status=Status.INVALID), reason="NotIdle")
    run.begin()
    assert [(step.place, step.lane, step.attempt) for step in run.flying] == [(0, 0, 1), (3, 1, 1)]
    run.end(run.flying[0])
    run.begin()
    again = run.flying[-1]
    assert (again.place, again.lane, again.attempt, again.case_id, again.seed) == (1, 0, 2, lost.case_id, lost.seed)
    assert again.nonce != lost.nonce


def refuse(run: Fleet, lane: int, times: int = 3) -> None:
    for _ in range(times):
        run.begin()
        step = next(step for step in run.flying if (step.arm, step.lane) == (CANDIDATE, lane))
        run.end(step, cell(case=step.case_id, status=Status.INVALID), reason="ConnectionRefused")


def test_a_server_that_refuses_as_often_as_allowed_is_left_out_and_its_places_go_to_the_others() -> None:
    run = fleet(quick(), TWO)
    refuse(run, 1, 2)
    assert (run.gate.lost_lanes(CANDIDATE), open_lanes(run.gate, CANDIDATE)) == ([], [0, 1])
    refuse(run, 1, 1)
    assert (run.gate.lost_lanes(CANDIDATE), open_lanes(run.gate, CANDIDATE)) == ([1], [0])
    assert (run.gate.refusals, run.gate.all_refusals) == (0, 3)
    stop = run.run()
    assert {step.lane for step in run.begun[6:]} == {0}
    assert run.gate.candidate_ledgers()[0].decision_prefills == 16
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.SERVER_LOST)
    back = "The lost server back, and the same command again."
    assert judge(run.gate).decision.what_would_change == (back, "An override by a person with a reason.")
    run.apply(RunResumed(run.tick()))
    assert run.gate.lost_lanes(CANDIDATE) == []
    resumed = run.begin()
    assert isinstance(resumed, Stop)
    assert resumed.ruling.decision is Outcome.PROMOTE


def test_the_candidate_is_unavailable_only_when_none_of_its_servers_takes_requests() -> None:
    run = fleet(quick(), TWO)
    refuse(run, 1)
    run.begin()
    assert not isinstance(run.look(), Stop)
    for _ in range(2):
        refuse(run, 0, 1)
    assert not isinstance(run.look(), Stop)
    refuse(run, 0, 1)
    stop = run.look()
    assert isinstance(stop, Stop)
    assert stop.ruling.reason is Reason.CANDIDATE_UNAVAILABLE
    assert open_lanes(run.gate, CANDIDATE) == [0, 1]
    assert lane_of(run.gate, Wanted(CANDIDATE, "c0", Purpose.SCREEN, 2, turn=4)) == 1


def test_a_refusal_of_one_of_several_servers_is_none_of_three_void_cells_of_its_case() -> None:
    for shape, arm, counted in ((TWO, CANDIDATE, []), (Shape(), CANDIDATE, [1]), (FOUR, BASELINE, [1])):
        gate = fleet(quick(), shape).gate
        measure(gate, cell(arm, status=Status.INVALID), reason="ConnectionRefused", lane=shape.lanes(arm) - 1)
        assert [count for _, _, count in gate.invalid_runs()] == counted
        measure(gate, cell(arm, status=Status.INVALID), reason="NotIdle")
        assert [count for _, _, count in gate.invalid_runs()] == [sum(counted) + 1]


def test_a_server_that_dies_under_a_cell_makes_a_bad_cell() -> None:
    run = fleet(quick(), TWO)
    run.begin()
    dead = run.flying[1]
    run.end(dead, cell(case=dead.case_id, status=Status.FAILED), reason="ConnectionLost")
    refuse(run, 1)
    run.run()
    assert run.gate.candidate_ledgers()[0].bad == 1
    assert run.gate.candidate_ledgers()[0].decision_prefills == 25


def test_lost_servers_of_the_baseline_block_nothing() -> None:
    run = fleet(quality_only(QUICK, baseline_pass=8), FOUR)
    for _ in range(3):
        run.begin()
        step = next(step for step in run.flying if step.lane == 1)
        run.end(step, cell(BASELINE, step.case_id, status=Status.INVALID), reason="ConnectionRefused")
    assert (run.gate.lost_lanes(BASELINE), run.gate.lost_lanes(CANDIDATE)) == ([1], [])
    assert run.run().ruling.decision is Outcome.PROMOTE


# Nothing is decided past an earlier cell in flight


def test_places_done_ahead_of_an_earlier_one_reach_no_acceptance() -> None:
    run = fleet(quick(), Shape(candidate_lanes=16))
    run.begin()
    slow = run.flying[0]
    for step in run.flying[1:]:
        run.end(step)
    assert isinstance(run.begin(), Wait)
    assert run.gate.candidate_ledgers()[0].decision_prefills == 15
    run.end(slow, cell(case=slow.case_id), place=16)  # the sixteenth unit, at a place after the one in flight
    run.flying = [slow]
    run.begin()
    assert run.gate.candidate_ledgers()[0].decision_prefills == 16
    assert run.gate.places.in_order is False
    assert acceptance_reached(run.gate) is False
    assert judge(run.gate).decision.reason == str(Reason.MORE_EVIDENCE_NEEDED)
    run.started_at[99] = run.tick()
    run.end(slow, event_id := answer_of(slow), cell_id=99)
    assert event_id.status is Status.OK
    assert run.gate.places.in_order is True


def test_a_slow_bad_cell_counts_before_quick_clean_ones_promote() -> None:
    run = fleet(quick(), TWO, bad=lambda step: step.place == 1)
    stop = run.run(first_on(0))
    assert stop.ruling.decision is Outcome.PROMOTE
    assert run.gate.candidate_ledgers()[0].bad == 1
    assert run.gate.candidate_ledgers()[0].decision_prefills == 25
    clean = [event for event in run.gate.scored if not event.cell.bad]
    assert [event.place for event in clean[:8]] == [0, 2, 4, 6, 8, 10, 12, 14]  # and no more while it was in flight


def test_a_bad_cell_that_ends_after_the_table_was_reached_takes_the_promotion_back() -> None:
    run = fleet(replace(QUICK, acceptance=(16, 40, 50)), FOUR_AT_ONCE, make=lambda step: speedy(step, 1.16))
    while not isinstance(stop := run.begin(), Stop):
        run.end(run.flying[0])
    assert stop.ruling.decision is Outcome.PROMOTE
    late = [step for step in run.flying if step.arm == CANDIDATE]
    assert [step.place for step in late] == [OUT_OF_TURN]  # more pairs than the one that settled it were under way
    begun = len(run.begun)
    assert isinstance(run.begin(), Stop)
    assert len(run.begun) == begun  # nothing more is begun meanwhile
    run.bad = lambda step: step is late[0]
    run.end(late[0])
    assert not isinstance(run.begin(), Stop)
    assert run.gate.candidate_ledgers()[0].bad == 1
    run.run()
    assert run.gate.candidate_ledgers()[0].decision_prefills == 40


def test_no_more_cells_are_begun_than_would_suffice_if_all_were_clean() -> None:
    run = fleet(quick(), Shape(candidate_lanes=5))
    run.run(lambda flying: flying[-1])
    assert len(run.begun) == 16


def test_no_more_cells_are_begun_than_the_budget_pays_for() -> None:
    run = fleet(quick(budget=17), Shape(candidate_lanes=4), bad=lambda step: step.place == 0)
    stop = run.run()
    assert stop.ruling.reason is Reason.BUDGET_SPENT
    assert len(run.begun) == 17


# Passes and comparisons


def test_the_baseline_pass_runs_on_every_server_of_the_baseline_and_none_of_it_beside_the_candidate() -> None:
    run = fleet(replace(STANDARD, aa_check=True), FOUR_AT_ONCE)
    run.begin()
    assert [(s.purpose, s.place, s.lane) for s in run.flying] == [
        (Purpose.BASELINE_PASS, 0, 0),
        (Purpose.BASELINE_PASS, 1, 1),
    ]
    seen: list[set[Purpose]] = []
    while len(run.begun) < 26:
        run.end(run.flying[-1])
        run.begin()
        seen.append({step.purpose for step in run.flying})
    assert all(len(purposes) == 1 for purposes in seen if purposes)
    first = [step for step in run.begun if step.purpose is Purpose.BASELINE_PASS]
    assert sorted(places(first), key=str) == sorted(range(12), key=str)
    assert [run.gate.places.baseline_pass[step.place or 0] for step in first] == [step.case_id for step in first]


def test_one_comparison_at_a_time_settles_whose_fault_a_refused_body_is() -> None:
    run = fleet(quick(), TWO)
    run.begin()
    for step in list(run.flying):
        run.end(step, cell(case=step.case_id, status=Status.INVALID), http_status=400)
    assert isinstance(run.begin(), Wait)
    (compare,) = run.flying
    assert (compare.purpose, compare.arm, compare.attempt) == (Purpose.COMPARE, BASELINE, 1)
    run.end(compare, cell(BASELINE, compare.case_id, status=Status.INVALID), reason="NotIdle")
    run.begin()
    (again,) = run.flying
    assert (again.case_id, again.attempt) == (compare.case_id, 2)
    assert again.nonce != compare.nonce


# Pairs


def pairs_of(run: Fleet) -> dict[int, list[RunCell]]:
    found: dict[int, list[RunCell]] = {}
    for step in run.begun:
        if step.purpose is Purpose.PAIR:
            found.setdefault(step.pair or 0, []).append(step)
    return found


def overlaps(run: Fleet) -> list[frozenset[str]]:
    """Steps the run to its end; the arms in flight together, each time."""
    seen = []
    while True:
        step = run.begin()
        seen.append(frozenset(cell.arm for cell in run.flying))
        if not run.flying:
            assert isinstance(step, Stop)
            return seen
        run.end(run.flying[0])


def test_both_halves_of_a_pair_run_at_the_same_time_where_the_arms_share_nothing() -> None:
    run = fleet(replace(STANDARD, baseline_pass=0), AT_ONCE, make=speedy)
    run.begin()
    first, second = run.flying
    assert (first.pair, second.pair) == (0, 0)
    assert {first.arm, second.arm} == set(ARMS)
    assert (first.arm == CANDIDATE) is run.gate.places.candidate_first(0)
    assert (first.seed, first.nonce, first.place) == (second.seed, second.nonce, second.place)
    run.end(second)
    assert isinstance(run.begin(), Wait)  # the next pair begins with both its halves
    run.end(first)
    run.begin()
    assert [(step.pair, step.arm) for step in run.flying] == [
        (1, arm) for arm in ((CANDIDATE, BASELINE) if run.gate.places.candidate_first(1) else (BASELINE, CANDIDATE))
    ]
    assert frozenset(ARMS) in overlaps(run)


@pytest.mark.parametrize("shape", [TWO, Shape(baseline_lanes=2), FOUR, Shape(baseline_lanes=3, candidate_lanes=2)])
def test_arms_that_take_turns_are_never_in_flight_together(shape: Shape) -> None:
    run = fleet(STANDARD, shape, make=speedy)
    assert all(len(arms) <= 1 for arms in overlaps(run))
    assert judge(run.gate).decision.reason == str(Reason.ACCEPTANCE_REACHED)
    for number, halves in pairs_of(run).items():
        assert [half.arm for half in halves] == (
            [CANDIDATE, BASELINE] if run.gate.places.candidate_first(number) else [BASELINE, CANDIDATE]
        )
        assert len({(half.case_id, half.seed, half.nonce, half.round) for half in halves}) == 1


def test_a_mate_goes_before_anything_new_of_the_other_arm() -> None:
    run = fleet(replace(STANDARD, baseline_pass=0), FOUR, make=speedy)
    run.begin()
    order = [run.gate.places.candidate_first(number) for number in range(4)]
    assert [step.pair for step in run.flying] == ([0, 1] if order[0] == order[1] else [0])
    first = run.flying[0]
    others = run.flying[1:]
    run.end(first)
    run.begin()
    assert run.flying == others or {step.arm for step in run.flying} != {first.arm}
    for step in others:
        run.end(step)
    run.begin()
    assert run.flying[0].pair == 0
    assert run.flying[0].arm != first.arm


def test_pairs_go_over_all_servers_and_the_first_on_each_life_is_warm_up() -> None:
    run = fleet(STANDARD, FOUR_AT_ONCE, make=speedy)
    assert run.run().ruling.reason is Reason.ACCEPTANCE_REACHED
    for arm in ARMS:
        lanes = Counter(half.lane for halves in pairs_of(run).values() for half in halves if half.arm == arm)
        assert set(lanes) == {0, 1}
        assert abs(lanes[0] - lanes[1]) <= 1
    warm_up = [pair for pair in judge(run.gate).throughput.pairs if not pair.used]
    assert [pair.pair for pair in warm_up] == [0, 1]


def test_a_void_half_is_run_again_alone_and_the_other_stays() -> None:
    run = fleet(replace(STANDARD, baseline_pass=0), AT_ONCE, make=speedy)
    run.begin()
    kept, void = run.flying
    run.end(void, cell(void.arm, void.case_id, status=Status.INVALID), reason="NotIdle")
    run.begin()
    assert [(step.arm, step.attempt) for step in run.flying] == [(kept.arm, 1), (void.arm, 2)]
    run.end(run.flying[1])
    run.end(kept)
    run.begin()
    assert run.gate.places.screened == 1
    assert (run.gate.places.pairs_begun, run.gate.places.open_pair) == (1, None)


def test_a_pair_that_runs_at_once_begins_only_when_both_its_servers_are_free() -> None:
    run = fleet(replace(STANDARD, baseline_pass=0), AT_ONCE, make=speedy)
    for server in ((BASELINE, 0), (CANDIDATE, 0)):
        run.resting = frozenset({server})
        assert isinstance(run.begin(), Wait)
        assert run.flying == []
    run.resting = frozenset()
    run.begin()
    assert len(run.flying) == 2


def test_a_place_that_waits_for_the_other_arm_keeps_later_ones_waiting() -> None:
    refs = [CaseRef(f"c{i}", f"sha-{i}", 100 + i, max_tokens=200 if i % 3 == 0 else 8) for i in range(12)]
    run = fleet(replace(STANDARD, baseline_pass=0), Shape(candidate_lanes=3), cases=refs, make=speedy)
    passed_over = 0
    while not isinstance(step := run.look(), Stop) or run.flying:
        if isinstance(step, RunCell) and step.purpose is Purpose.SCREEN:
            placed = {other.place for other in run.begun}
            for place in range(step.place or 0):
                if place not in placed:  # its own server is at work: it does not wait for the other arm
                    assert (CANDIDATE, place % 3) in {(other.arm, other.lane) for other in run.flying}
                    passed_over += 1
        if not run.begin_one(step):
            run.end(run.flying[-1])
    assert passed_over
    assert {step.purpose for step in run.begun} == {Purpose.PAIR, Purpose.SCREEN}


def test_nobody_looks_past_a_pair_under_way() -> None:
    run = fleet(replace(STANDARD, baseline_pass=0), FOUR_AT_ONCE, make=speedy)
    run.begin()
    late = run.flying[0]
    for step in run.flying[1:]:
        run.end(step)
    run.begin()
    for step in [step for step in run.flying if step is not late and step.pair not in (0, late.pair)]:
        run.end(step)
    run.begin()
    assert run.gate.places.pairs.next == 0
    assert run.gate.places.pairs.ahead
    assert judge(run.gate).throughput.pairs == ()
    run.end(late)
    run.begin()
    assert [pair.pair for pair in judge(run.gate).throughput.pairs] == list(range(run.gate.places.pairs.next))


def test_pairs_out_of_turn_take_different_prompts_at_the_same_time() -> None:
    run = fleet(QUICK, FOUR_AT_ONCE, make=speedy)
    together: list[tuple[str, ...]] = []
    while not isinstance(run.begin(), Stop) or run.flying:
        outside = {step.pair: step.case_id for step in run.flying if step.place == OUT_OF_TURN}
        if len(outside) > 1:
            together.append(tuple(outside.values()))
        run.end(run.flying[0])
    assert all(len(set(cases)) == len(cases) for cases in together)
    extra = [halves for halves in pairs_of(run).values() if halves[0].place == OUT_OF_TURN]
    assert extra
    assert all(len({(half.seed, half.nonce) for half in halves}) == 1 for halves in extra)


def test_no_pair_beyond_the_most_is_begun() -> None:
    policy = replace(QUICK, baseline_pass=0, throughput=replace(QUICK.throughput, max_pairs=9))
    run = fleet(policy, FOUR_AT_ONCE, make=lambda step: speedy(step, 1.17))
    stop = run.run()
    assert (stop.ruling.reason, len(pairs_of(run))) == (Reason.THROUGHPUT_OPEN, 9)


# Alarm and replicate


def bad_candidate(step: RunCell) -> bool:
    return step.arm == CANDIDATE


def test_an_alarm_waits_for_what_is_in_flight_and_begins_nothing_else() -> None:
    run = fleet(quick(), Shape(candidate_lanes=4), bad=bad_candidate)
    run.begin()
    run.end(run.flying[0])
    run.begin()
    run.end(run.flying[0])
    assert isinstance(run.begin(), Wait)
    assert run.gate.alarm is True
    assert len(run.flying) == 3
    for step in list(run.flying):
        assert run.gate.replicates == []
        run.end(step)
        run.begin()
    assert len(run.gate.replicates) == 1
    assert {step.replicate for step in run.flying} == {1}


@pytest.mark.parametrize("shape", [FOUR, FOUR_AT_ONCE])
def test_an_alarm_lets_an_open_pair_end(shape: Shape) -> None:
    run = fleet(replace(STANDARD, baseline_pass=0), shape, make=speedy, bad=bad_candidate)
    run.begin()
    while not run.gate.alarm:
        run.end(run.flying[0])
        run.begin()
    under_way = {*run.gate.places.open_pairs, *(step.pair for step in run.flying)}
    assert under_way
    while not run.gate.replicates:
        assert {step.pair for step in run.flying} <= under_way  # nothing new beside them
        run.end(run.flying[0])
        run.begin()
    assert run.gate.places.open_pairs == {}


def test_the_first_units_of_a_replicate_run_on_all_servers_and_eight_clean_ones_end_it() -> None:
    run = fleet(quick(), TWO, bad=lambda step: step.replicate == 0 and step.cell_id < 2)
    while not run.gate.replicates:
        run.begin()
        if not run.gate.replicates:
            run.end(run.flying[0])
    assert [(step.pair, step.lane, step.arm) for step in run.flying] == [(0, 0, CANDIDATE), (1, 1, CANDIDATE)]
    assert run.run().ruling.decision is Outcome.PROMOTE
    units = [step for step in run.begun if step.replicate]
    assert [(step.pair, step.lane) for step in units] == [(pair, pair % 2) for pair in range(8)]


@pytest.mark.parametrize("shape", [TWO, FOUR, AT_ONCE, FOUR_AT_ONCE])
def test_a_regression_is_confirmed_over_complete_pairs_in_planned_order(shape: Shape) -> None:
    run = fleet(quick(), shape, bad=bad_candidate)
    stop = run.run(lambda flying: flying[-1])
    assert stop.ruling.reason is Reason.REGRESSION_CONFIRMED
    (replicate,) = run.gate.replicates
    path = replicate.e_path()
    assert [value >= 40 for value in path[:5]] == [False, False, False, False, True]
    lanes = {(step.arm, step.lane) for step in run.begun if step.replicate}
    assert len(lanes) == shape.baseline_lanes + shape.candidate_lanes
    if not shape.at_once:
        again = fleet(quick(), shape, bad=bad_candidate)
        assert all(len(arms) <= 1 for arms in overlaps(again))


def test_a_replicate_waits_for_its_separation_with_nothing_in_flight() -> None:
    run = fleet(quick(), TWO, bad=bad_candidate)
    run.begin()
    one, two = run.flying
    run.end(one)
    run.end(two)
    run.begin()
    number = run.gate.replicates[0].plan.number
    assert run.gate.replicates[0].separation == "gap"
    run.gate.replicates[0].separation = None
    assert isinstance(run.look(), Wait)
    assert number == 1


# Killed and resumed


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from([TWO, FOUR, AT_ONCE, FOUR_AT_ONCE]), st.floats(0, 0.5))
def test_killed_at_any_instant_the_journal_alone_plans_what_was_in_flight_anew(
    seed: int, shape: Shape, rate: float
) -> None:
    dice = random.Random(seed)
    run = fleet(replace(QUICK, baseline_pass=3), shape, cases=5, make=speedy, bad=lambda s: dice.random() < rate / 4)
    nonces: set[tuple[str, str]] = set()
    for _ in range(400):
        step = run.begin()
        if isinstance(step, Stop) and not run.flying:
            break
        if dice.random() < 0.15:
            run.flying = []
            run.gate = fold(run.events)
            run.apply(RunResumed(run.tick()))
            continue
        run.end(dice.choice(run.flying))
    assert isinstance(step, Stop)
    again = fold(run.events)
    assert next_step(again) == step
    assert judge(again) == judge(run.gate)
    for begun in run.begun:
        nonces.add((begun.arm, begun.nonce))
    assert len(nonces) == len(run.begun)  # nothing was ever sent twice under one nonce
    done = [event.place for event in run.gate.scored if event.purpose is Purpose.SCREEN]
    assert len(set(done)) == len(done)
    halves = Counter((e.pair, e.cell.arm) for e in run.gate.scored if e.purpose is Purpose.PAIR)
    assert set(halves.values()) <= {1}


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from([TWO, FOUR, AT_ONCE, FOUR_AT_ONCE]))
def test_the_order_cells_end_in_changes_no_verdict_of_a_clean_run(seed: int, shape: Shape) -> None:
    dice = random.Random(seed)
    run = fleet(replace(QUICK, baseline_pass=3), shape, cases=5, make=speedy)
    stop = run.run(dice.choice)
    assert stop.ruling.reason is Reason.ACCEPTANCE_REACHED
    assert run.gate.candidate_ledgers()[0].decision_prefills >= 16
    assert life(CANDIDATE, 0) in {event.cell.server_epoch for event in run.gate.scored}
