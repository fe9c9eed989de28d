"""Which cell of the screen comes next: one gate, one flight, one answer at a time.

Four prompts, named in the order the first round takes them (c0 to c3; the second takes c2, c0, c1, c3), six clean
units promote. The coins of the pairs 0 to 3: the baseline first, the candidate, the baseline, the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import QUICK
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.flight import Flight, RunCell, Wanted
from prefillgate.core.gate import Gate
from prefillgate.core.journal import OUT_OF_TURN, CaseRef, Purpose, ReplicateStarted
from prefillgate.core.policy import Policy
from prefillgate.core.screen import next_of_screen
from prefillgate.core.shape import Shape
from tests.support.journals import cell, measure, quality_only, score, started

SEED = 4
PAIR, SCREEN = Purpose.PAIR, Purpose.SCREEN
SPEED = replace(QUICK, acceptance=(6, 12), baseline_pass=0)
ALONE = quality_only(SPEED)
CANDIDATE_REST, BASELINE_REST = frozenset({(CANDIDATE, 0)}), frozenset({(BASELINE, 0)})


def lanes(candidate: int, baseline: int = 1, at_once: bool = False) -> Shape:
    return Shape(at_once=at_once, baseline_lanes=baseline, candidate_lanes=candidate)


ONE, TWO, AT_ONCE = lanes(1), lanes(2), lanes(1, at_once=True)


def gate(policy: Policy = ALONE, shape: Shape = ONE, done: int = 0, short: Sequence[str] = ()) -> Gate:
    """A run whose first `done` places are clean. Prompts of `short` may give too few tokens for a pair."""
    refs = [CaseRef(f"c{i}", f"sha-{i}", 100 + i, max_tokens=8 if f"c{i}" in short else 200) for i in range(4)]
    made = started(policy, cases=refs, seed=SEED, shape=shape)
    for place in range(done):
        clean(made, place)
    return made


def clean(gate: Gate, place: int, **changes: Any) -> None:
    score(gate, cell(case=gate.places.case_at(place)), place=place, **changes)


def end_half(gate: Gate, pair: int, arm: str, place: int | None, case: str, **changes: Any) -> None:
    measure(gate, cell(arm, case, **changes), PAIR, pair=pair, place=place)


def alone(place: int, case: str, attempt: int = 1, round: int = 0) -> Wanted:
    """The candidate alone at a place."""
    return Wanted(CANDIDATE, case, SCREEN, attempt, turn=place, round=round, place=place)


def half(pair: int, arm: str, place: int | None, case: str, turn: int, attempt: int = 1, round: int = 0) -> Wanted:
    return Wanted(arm, case, PAIR, attempt, turn=turn, round=round, pair=pair, place=place)


def flight(*cells: tuple[Wanted, int], rest: frozenset[tuple[str, int]] = frozenset()) -> Flight:
    """These cells under way, each on the server of that number."""
    flying = (
        RunCell(at, w.arm, w.case_id, w.purpose, w.pair, w.round, 0, w.attempt, 1, "nonce", w.place, lane)
        for at, (w, lane) in enumerate(cells)
    )
    return Flight(tuple(flying), rest)


def test_the_order_and_the_coins_are_those_of_the_seed() -> None:
    places = gate().places
    assert (places.round_order(0), places.round_order(1)) == (("c0", "c1", "c2", "c3"), ("c2", "c0", "c1", "c3"))
    assert [places.candidate_first(number) for number in range(4)] == [False, True, False, False]


# The candidate alone


def test_places_come_in_their_order_round_after_round() -> None:
    assert next_of_screen(gate(), flight()) == alone(0, "c0")
    assert next_of_screen(gate(done=3), flight()) == alone(3, "c3")
    assert next_of_screen(gate(done=4), flight()) == alone(4, "c2", round=1)
    assert next_of_screen(gate(done=9), flight()) == alone(9, gate().places.round_order(2)[1], round=2)


def test_a_void_cell_is_tried_again_at_its_place() -> None:
    run = gate(done=1)
    measure(run, cell(case="c1", status=Status.INVALID), place=1)
    assert next_of_screen(run, flight()) == alone(1, "c1", attempt=2)


def test_a_place_under_way_or_done_ahead_is_left() -> None:
    run = gate(shape=lanes(3))
    assert next_of_screen(run, flight((alone(0, "c0"), 0))) == alone(1, "c1")
    clean(run, 1)
    assert next_of_screen(run, flight((alone(0, "c0"), 0))) == alone(2, "c2")


def test_a_place_whose_server_is_busy_or_rests_lets_later_ones_pass() -> None:
    under_way = (alone(0, "c0"), 0)
    assert next_of_screen(gate(shape=lanes(3)), flight(under_way, rest=frozenset({(CANDIDATE, 1)}))) == alone(2, "c2")
    assert next_of_screen(gate(shape=TWO), flight(under_way, rest=frozenset({(CANDIDATE, 1)}))) is None
    assert next_of_screen(gate(), flight(rest=CANDIDATE_REST)) is None


def test_nothing_of_the_candidate_is_begun_beside_the_baseline_unless_they_share_nothing() -> None:
    asked = (Wanted(BASELINE, "c0", Purpose.COMPARE, 1), 0)
    assert next_of_screen(gate(), flight(asked)) is None
    assert next_of_screen(gate(shape=AT_ONCE), flight(asked)) == alone(0, "c0")


def test_no_more_are_begun_beside_others_than_would_suffice() -> None:
    run = gate(shape=lanes(3), done=4)  # six are needed
    first, second = alone(4, "c2", round=1), alone(5, "c0", round=1)
    assert next_of_screen(run, flight((first, 1))) == second
    assert next_of_screen(run, flight((first, 1), (second, 2))) is None


def test_what_is_done_ahead_counts_among_those_that_suffice() -> None:
    run = gate(shape=lanes(4), done=3)
    clean(run, 4)
    late = alone(3, "c3")
    assert next_of_screen(run, flight((late, 3))) == alone(5, "c0", round=1)
    clean(run, 5)
    assert next_of_screen(run, flight((late, 3))) is None


def test_a_run_with_nothing_under_way_goes_on_whatever_is_missing() -> None:
    assert next_of_screen(gate(done=6), flight()) == alone(6, "c1", round=1)
    assert next_of_screen(gate(done=7, shape=TWO), flight()) == alone(7, "c3", round=1)


def test_where_no_clean_units_would_promote_any_more_each_server_is_kept_at_work() -> None:
    run = gate(replace(ALONE, acceptance=(6,)), TWO)
    score(run, cell(case="c0"), True, place=0)
    assert next_of_screen(run, flight()) is None  # an alarm
    run.apply(ReplicateStarted(1, 0.0, 1))
    first, second = alone(1, "c1"), alone(2, "c2")
    assert next_of_screen(run, flight((first, 1))) == second
    assert next_of_screen(run, flight((first, 1), (replace(second, turn=0), 0))) is None
    assert next_of_screen(run, flight((second, 0))) == first


# Pairs


def test_a_place_is_a_pair_whose_coin_says_who_is_first() -> None:
    assert next_of_screen(gate(SPEED), flight()) == half(0, BASELINE, 0, "c0", turn=0)
    run = gate(SPEED, done=2)
    assert next_of_screen(run, flight()) == half(0, BASELINE, 2, "c2", turn=0)
    end_half(run, 0, BASELINE, 2, "c2")
    end_half(run, 0, CANDIDATE, 2, "c2")
    assert next_of_screen(run, flight()) == half(1, CANDIDATE, 3, "c3", turn=3)


def test_the_second_half_follows_at_the_same_place() -> None:
    run = gate(SPEED, done=2)
    end_half(run, 0, BASELINE, 2, "c2")
    assert next_of_screen(run, flight()) == half(0, CANDIDATE, 2, "c2", turn=2)
    run = gate(SPEED, done=2)
    end_half(run, 1, CANDIDATE, 2, "c2")
    assert next_of_screen(run, flight()) == half(1, BASELINE, 2, "c2", turn=1)


@pytest.mark.parametrize("place", [None, OUT_OF_TURN])
def test_a_half_without_a_place_falls_to_the_server_of_its_pair(place: int | None) -> None:
    run = gate(SPEED)
    end_half(run, 2, BASELINE, place, "c1")
    assert next_of_screen(run, flight()) == half(2, CANDIDATE, place, "c1", turn=2)


def test_a_void_half_is_tried_again_before_its_mate() -> None:
    run = gate(SPEED, short=["c1", "c2", "c3"])
    end_half(run, 0, BASELINE, 0, "c0", status=Status.INVALID)
    again = half(0, BASELINE, 0, "c0", turn=0, attempt=2)
    assert next_of_screen(run, flight()) == again
    assert next_of_screen(run, flight(rest=BASELINE_REST)) == alone(1, "c1")  # not the mate: its turn comes after
    at_once = gate(SPEED, AT_ONCE)
    end_half(at_once, 0, BASELINE, 0, "c0", status=Status.INVALID)
    assert next_of_screen(at_once, flight(rest=BASELINE_REST)) == half(0, CANDIDATE, 0, "c0", turn=0)


def test_nothing_new_is_begun_beside_an_arm_that_a_mate_waits_for() -> None:
    run = gate(SPEED, lanes(2, 2), short=["c1"])
    end_half(run, 0, BASELINE, 0, "c0")
    asked = (Wanted(BASELINE, "c3", Purpose.COMPARE, 1), 0)
    assert next_of_screen(run, flight(asked)) is None
    resting = frozenset({(CANDIDATE, 0)})
    assert next_of_screen(run, flight(rest=resting)) == alone(1, "c1")  # its server rests, the other goes on


def test_beside_a_first_half_in_flight_another_pair_of_the_same_arm_may_begin() -> None:
    run = gate(SPEED, lanes(2, 3))
    end_half(run, 1, CANDIDATE, 1, "c1")
    end_half(run, 1, BASELINE, 1, "c1")
    first = half(0, BASELINE, 0, "c0", turn=0)
    assert next_of_screen(run, flight((first, 0))) == half(2, BASELINE, 2, "c2", turn=2)


def test_where_the_arms_share_nothing_the_mate_goes_at_the_same_time() -> None:
    run = gate(SPEED, AT_ONCE, short=["c1"])
    first, second = half(0, BASELINE, 0, "c0", turn=0), half(0, CANDIDATE, 0, "c0", turn=0)
    assert next_of_screen(run, flight()) == first
    assert next_of_screen(run, flight((first, 0))) == second
    assert next_of_screen(run, flight((second, 0))) == first
    assert next_of_screen(run, flight((first, 0), (second, 0))) is None


def test_the_mate_of_each_pair_in_flight_is_its_own() -> None:
    run = gate(SPEED, lanes(2, 2, at_once=True))
    first, other = half(0, BASELINE, 0, "c0", turn=0), half(1, CANDIDATE, 1, "c1", turn=1)
    assert next_of_screen(run, flight((other, 1))) == half(1, BASELINE, 1, "c1", turn=1)
    assert next_of_screen(run, flight((first, 0), (other, 1))) == half(0, CANDIDATE, 0, "c0", turn=0)


def test_pairs_under_way_come_in_the_order_of_their_numbers() -> None:
    run = gate(SPEED, lanes(2, 2, at_once=True))
    end_half(run, 1, CANDIDATE, 1, "c1")
    first = half(0, BASELINE, 0, "c0", turn=0)
    assert next_of_screen(run, flight((first, 0))) == half(0, CANDIDATE, 0, "c0", turn=0)


@pytest.mark.parametrize("rest", [CANDIDATE_REST, BASELINE_REST])
def test_a_pair_at_once_begins_only_where_both_its_servers_are_free(rest: frozenset[tuple[str, int]]) -> None:
    assert next_of_screen(gate(SPEED, AT_ONCE), flight(rest=rest)) is None
    assert (next_of_screen(gate(SPEED, ONE), flight(rest=rest)) is None) is (rest is BASELINE_REST)


def test_a_pair_that_waits_for_the_other_arm_keeps_later_places_waiting() -> None:
    under_way = (alone(0, "c0"), 0)
    short = ["c0", "c2"]
    assert next_of_screen(gate(SPEED, lanes(3), short=short), flight(under_way)) is None
    alone_later = alone(2, "c2")
    resting = flight(under_way, rest=BASELINE_REST)
    assert next_of_screen(gate(SPEED, lanes(3, at_once=True), short=short), resting) == alone_later
    run = gate(SPEED, done=1, short=short)
    assert next_of_screen(run, flight(rest=BASELINE_REST)) == alone_later  # nothing is under way that could end


def test_no_pair_is_begun_beyond_the_most_those_in_flight_among_them() -> None:
    policy = replace(SPEED, throughput=replace(SPEED.throughput, max_pairs=1))
    run = gate(policy, lanes(2, 2, at_once=True))
    first, second = half(0, BASELINE, 0, "c0", turn=0), half(0, CANDIDATE, 0, "c0", turn=0)
    assert next_of_screen(run, flight((first, 0), (second, 0))) == alone(1, "c1")
    end_half(run, 0, BASELINE, 0, "c0")
    assert next_of_screen(run, flight((second, 0))) == alone(1, "c1")
    two = gate(replace(policy, throughput=replace(policy.throughput, max_pairs=2)), lanes(2, 2, at_once=True))
    assert next_of_screen(two, flight((first, 0), (second, 0))) == half(1, CANDIDATE, 1, "c1", turn=1)
    end_half(two, 0, BASELINE, 0, "c0")
    assert next_of_screen(two, flight((second, 0))) == half(1, CANDIDATE, 1, "c1", turn=1)


def test_an_alarm_lets_open_pairs_end_and_begins_nothing_else() -> None:
    run = gate(replace(SPEED, acceptance=(6,)), short=["c1"])
    end_half(run, 0, BASELINE, 0, "c0")
    score(run, cell(case="c1"), True, place=1)
    assert run.alarm
    assert next_of_screen(run, flight()) == half(0, CANDIDATE, 0, "c0", turn=0)
    end_half(run, 0, CANDIDATE, 0, "c0")
    assert next_of_screen(run, flight()) is None


# Pairs out of turn


def test_once_only_speed_is_missing_the_longest_prompt_is_paired_out_of_turn() -> None:
    run = gate(SPEED, done=6)
    assert next_of_screen(run, flight()) == half(0, BASELINE, OUT_OF_TURN, "c3", turn=0, round=1)
    assert next_of_screen(gate(SPEED, done=5), flight()) == half(0, BASELINE, 5, "c0", turn=0, round=1)


def test_a_prompt_whose_turn_has_come_takes_its_place() -> None:
    run = gate(SPEED, done=7)
    assert next_of_screen(run, flight()) == half(0, BASELINE, 7, "c3", turn=0, round=1)


def test_pairs_out_of_turn_take_different_prompts_while_others_are_under_way() -> None:
    run = gate(SPEED, lanes(2, 2, at_once=True), done=6)
    first = half(0, BASELINE, OUT_OF_TURN, "c3", turn=0, round=1)
    mate = replace(first, arm=CANDIDATE)
    assert next_of_screen(run, flight((first, 0), (mate, 0))) == half(1, CANDIDATE, OUT_OF_TURN, "c2", turn=1, round=1)


@pytest.mark.parametrize(("most", "begins"), [(1, False), (2, True)])
def test_pairs_out_of_turn_are_counted_before_a_half_of_them_ended(most: int, begins: bool) -> None:
    policy = replace(SPEED, throughput=replace(SPEED.throughput, max_pairs=most))
    run = gate(policy, lanes(2, 2, at_once=True), done=6)
    first = half(0, BASELINE, OUT_OF_TURN, "c3", turn=0, round=1)
    found = next_of_screen(run, flight((first, 0), (replace(first, arm=CANDIDATE), 0)))
    assert (found is not None and found.purpose is PAIR) is begins


def test_where_speed_is_only_reported_no_pair_is_out_of_turn() -> None:
    policy = replace(SPEED, throughput=replace(SPEED.throughput, required=False))
    assert next_of_screen(gate(policy, done=6), flight()) == half(0, BASELINE, 6, "c1", turn=0, round=1)
