"""Minutes of a plan, exactly, in every shape of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.minutes import (
    Paces,
    Span,
    cap_minutes,
    even_pace,
    mean_place,
    pace,
    replicate_minutes,
    run_minutes,
)
from prefillgate.core.planning import PrefillCost, expected_prefills
from prefillgate.core.shape import Isolation, Shape

COST = PrefillCost(
    baseline_pass=8,
    second_pass=0,
    candidate=16,
    pair_halves=12,
    warm_up=2,
    budget=150,
    replicate_least=8,
    replicate_most=60,
)
PACES = Paces(Span(6, 12, 30), Span(3, 6, 24))
TURNS = Shape()


def exactly(least: float, likely: float, most: float) -> object:
    return pytest.approx((least, likely, most), rel=1e-12)


def ends(span: Span | None) -> tuple[float, float, float]:
    assert span is not None
    return span.least, span.likely, span.most


# A cell


def test_a_pace_lies_between_the_short_and_the_long_case() -> None:
    assert pace((2, 10), 0.25) == Span(2, 4, 10)
    assert pace((10, 2), 0.25) == Span(2, 8, 10)  # a short prompt may bring the longer answer
    assert pace((0.001, 0.5), 1.0) == Span(0.001, 0.5, 0.5)
    assert even_pace(7.5) == Span(7.5, 7.5, 7.5)


@pytest.mark.parametrize("seconds", [(0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_what_is_no_time_is_refused(seconds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="seconds of a cell must be above 0, got"):
        pace(seconds, 0.5)


def test_the_mean_case_has_its_place_between_the_shortest_and_the_longest() -> None:
    assert mean_place([100, 200, 300, 1000]) == pytest.approx(1 / 3)
    assert mean_place([1000, 100]) == 0.5
    assert mean_place([5, 5, 5]) == mean_place([5]) == 0.5
    with pytest.raises(ValueError, match="lengths must not be empty"):
        mean_place([])


# A run with nothing bad


def test_arms_that_take_turns_add_up() -> None:
    # 8 baseline cells and 13 halves of pairs, the warm-up's among them; 4 candidate cells alone and 13 halves.
    assert ends(run_minutes(COST, PACES, TURNS)) == exactly(
        (21 * 6 + 17 * 3) / 60, (21 * 12 + 17 * 6) / 60, (21 * 30 + 17 * 24) / 60
    )


def test_every_cell_of_a_plan_is_counted_once() -> None:
    for policy in (QUICK, replace(STANDARD, aa_check=True)):
        cost = expected_prefills(policy, 12)
        assert run_minutes(cost, Paces(even_pace(60), even_pace(60)), TURNS).likely == cost.total


def test_the_second_pass_is_run_on_the_baseline() -> None:
    more = run_minutes(replace(COST, second_pass=10), PACES, TURNS)
    assert more.likely == pytest.approx(run_minutes(COST, PACES, TURNS).likely + 10 * 12 / 60)


def test_halves_that_run_at_once_cost_the_slower_ones_time() -> None:
    at_once = replace(TURNS, at_once=True)
    assert run_minutes(COST, PACES, at_once).likely == pytest.approx((8 * 12 + 4 * 6 + 13 * 12) / 60)
    slow_candidate = Paces(Span(1, 1, 1), Span(6, 6, 6))
    assert run_minutes(COST, slow_candidate, at_once).likely == pytest.approx((8 + 4 * 6 + 13 * 6) / 60)


def test_lanes_divide_each_part_and_round_it_up() -> None:
    lanes = Shape(baseline_lanes=3, candidate_lanes=2)
    # baseline: 8 in 3 turns, 13 in 5; candidate: 4 in 2 turns, 13 in 7.
    assert run_minutes(COST, PACES, lanes).likely == pytest.approx((8 * 12 + 9 * 6) / 60)
    both = replace(lanes, at_once=True)
    assert run_minutes(COST, PACES, both).likely == pytest.approx((3 * 12 + 2 * 6 + max(5 * 12, 7 * 6)) / 60)


def test_windows_of_a_sequential_run_take_as_long_as_turns() -> None:
    assert run_minutes(COST, PACES, Shape(sequential=True)) == run_minutes(COST, PACES, TURNS)


def test_a_candidate_alone_costs_its_own_cells() -> None:
    alone = Shape(candidate_alone=True)
    cost = expected_prefills(QUICK, 12, shape=alone)
    assert cost == PrefillCost(0, 0, 16, 0, 0, 150, 0, 0)
    assert expected_prefills(QUICK, 20, shape=alone).candidate == 20
    paces = Paces(None, Span(3, 6, 24))
    assert ends(run_minutes(cost, paces, alone)) == exactly(16 * 3 / 60, 16 * 6 / 60, 16 * 24 / 60)


def test_a_baseline_of_no_pace_takes_no_time() -> None:
    paces = Paces(None, Span(3, 6, 24))
    assert ends(run_minutes(COST, paces, TURNS)) == exactly(17 * 3 / 60, 17 * 6 / 60, 17 * 24 / 60)


def test_a_shared_server_gives_no_pairs() -> None:
    cost = expected_prefills(QUICK, 12, shape=Shape(isolation=Isolation.SHARED))
    assert (cost.baseline_pass, cost.candidate, cost.pair_halves, cost.warm_up) == (8, 16, 0, 0)
    assert expected_prefills(QUICK, 12, 12, Shape(isolation=Isolation.SHARED)) == cost


# At the cap


def test_the_rest_of_the_budget_may_fall_to_either_arm() -> None:
    run = run_minutes(COST, PACES, TURNS)
    left = 150 - 38
    assert ends(cap_minutes(COST, PACES, TURNS)) == exactly(
        run.least + left * 3 / 60, run.likely + left * 9 / 60, run.most + left * 30 / 60
    )


def test_lanes_share_the_rest_of_the_budget() -> None:
    lanes = Shape(baseline_lanes=3, candidate_lanes=2)
    run = run_minutes(COST, PACES, lanes)
    assert ends(cap_minutes(COST, PACES, lanes)) == exactly(
        run.least + 112 * 1.5 / 60, run.likely + 112 * 3.5 / 60, run.most + 112 * 12 / 60
    )


def test_without_a_baseline_the_rest_is_the_candidates() -> None:
    alone = Shape(candidate_alone=True)
    cost = expected_prefills(QUICK, 12, shape=alone)
    assert ends(cap_minutes(cost, Paces(None, Span(3, 6, 24)), alone)) == exactly(7.5, 15, 60)


def test_a_budget_below_a_clean_run_is_spent_in_its_proportions() -> None:
    run = run_minutes(COST, PACES, TURNS)
    half = cap_minutes(replace(COST, budget=19), PACES, TURNS)
    assert ends(half) == exactly(run.least / 2, run.likely / 2, run.most / 2)
    assert cap_minutes(replace(COST, budget=38), PACES, TURNS) == run


# With a replicate


def test_a_replicate_adds_its_cells_and_its_gap() -> None:
    run = run_minutes(COST, PACES, TURNS)
    assert ends(replicate_minutes(COST, PACES, TURNS, 600)) == exactly(
        run.least + 8 * 3 / 60, run.likely + 8 * 6 / 60 + 10, run.most + 30 * (30 + 24) / 60 + 10
    )


def test_the_pairs_of_a_replicate_run_at_once_and_in_lanes_too() -> None:
    shape = Shape(at_once=True, baseline_lanes=2, candidate_lanes=4)
    run = run_minutes(COST, PACES, shape)
    assert ends(replicate_minutes(COST, PACES, shape, 60)) == exactly(
        run.least + 2 * 3 / 60, run.likely + 2 * 6 / 60 + 1, run.most + max(15 * 30, 8 * 24) / 60 + 1
    )


def test_a_candidate_alone_has_no_replicate() -> None:
    alone = Shape(candidate_alone=True)
    cost = expected_prefills(QUICK, 12, shape=alone)
    assert replicate_minutes(cost, PACES, alone, 600) is None
    assert replicate_minutes(COST, Paces(None, Span(1, 1, 1)), TURNS, 600) is None
