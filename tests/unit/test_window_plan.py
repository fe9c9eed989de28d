"""Prefills and swaps of a sequential run, counted before it begins, and held against whole schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD, STRICT
from prefillgate.core.journal import CaseRef
from prefillgate.core.planning import expected_prefills, plan_warnings
from prefillgate.core.policy import Flag, Policy
from prefillgate.core.shape import Shape
from prefillgate.core.window_plan import Swaps, expected_swaps, window_cost, window_pairs
from tests.unit.test_windows import Lives, gate_of

SEQUENTIAL = Shape(sequential=True)


def speed(policy: Policy, **changes: Any) -> Policy:
    return replace(policy, throughput=replace(policy.throughput, **changes))


@pytest.mark.parametrize(
    ("policy", "total", "candidate", "halves"),
    [(QUICK, 8 + 24 + 12, 12, 12), (STANDARD, 8 + 60 + 12, 30, 30), (STRICT, 8 + 132 + 12, 66, 66)],
)
def test_the_named_policies_over_twelve_prompts(policy: Policy, total: int, candidate: int, halves: int) -> None:
    cost = window_cost(policy, 12, 12)
    assert (cost.total, cost.candidate, cost.pair_halves, cost.warm_up) == (total, candidate, halves, 12)
    assert (cost.baseline_pass, cost.second_pass, cost.budget) == (8, 0, policy.budget)
    assert (cost.replicate_least, cost.replicate_most) == (8, 2 * (8 + 29 * 4))
    assert expected_prefills(policy, 12, shape=SEQUENTIAL) == cost
    assert expected_prefills(policy, 12, 6, SEQUENTIAL) == window_cost(policy, 12, 6)


def test_an_instrument_check_passes_over_every_prompt_twice() -> None:
    cost = window_cost(replace(STANDARD, aa_check=True), 12, 12)
    assert (cost.baseline_pass, cost.second_pass) == (12, 12)
    assert window_cost(STANDARD, 3, 3).baseline_pass == 3


def test_many_prompts_cost_the_baseline_only_what_must_be_in_a_pair_or_a_few() -> None:
    cost = window_cost(STANDARD, 100, 100)
    assert (cost.candidate, cost.pair_halves) == (6 * 17, 6 * 5)
    assert window_cost(replace(STANDARD, acceptance=(6,)), 100, 100).pair_halves == 6 * 3  # ceil(17 * 12 / 100)
    assert window_cost(STANDARD, 100, 20).pair_halves == 6 * 4  # ceil(17 * 20 / 100)
    assert window_cost(STANDARD, 100, 3).pair_halves == 6 * 1


def test_without_pairs_the_candidate_runs_alone_and_reported_speed_takes_one_pair() -> None:
    none = window_cost(speed(STANDARD, max_pairs=0), 12, 12)
    assert (none.candidate, none.pair_halves, none.warm_up, none.total) == (32, 0, 0, 40)
    assert window_cost(STANDARD, 12, 0).pair_halves == 0
    assert window_cost(speed(STANDARD, max_pairs=0), 40, 40).candidate == 40
    reported = window_cost(speed(STANDARD, required=False), 12, 12)
    assert (reported.candidate, reported.pair_halves, reported.warm_up) == (31, 12, 2)
    with pytest.raises(ValueError, match="prompts must be at least 1"):
        window_cost(STANDARD, 0, 0)


def test_pairs_are_those_that_settle_the_speed_soonest() -> None:
    assert window_pairs(STANDARD, 12) == 6
    assert window_pairs(speed(STANDARD, max_pairs=4), 12) == 4
    assert window_pairs(speed(STANDARD, required=False), 12) == 1
    assert window_pairs(speed(STANDARD, max_pairs=0), 12) == 0
    assert window_pairs(STANDARD, 0) == 0


def test_swaps_are_two_for_each_pair_of_windows() -> None:
    assert expected_swaps(STANDARD, 12) == Swaps(11, 12, 2, 10)
    assert expected_swaps(speed(STANDARD, required=False), 12) == Swaps(1, 2, 2, 10)
    assert expected_swaps(speed(STANDARD, max_pairs=0), 12) == Swaps(1, 1, 1, 10)
    assert expected_swaps(STANDARD, 12, first_replicate=2).replicate_confirmed == 12
    two = replace(STANDARD, flags=(Flag("a", ()), Flag("b", ("x",))))
    assert expected_swaps(two, 12).replicate_confirmed == 12


@pytest.mark.parametrize("policy", [QUICK, STANDARD])
@pytest.mark.parametrize("seed", [7, 8])
def test_a_whole_run_costs_what_was_planned(policy: Policy, seed: int) -> None:
    run = Lives(gate_of(policy, seed=seed))
    assert run.run().ruling.decision == "promote"
    cost, swaps = window_cost(policy, 12, 12), expected_swaps(policy, 12)
    first = run.gate.places.candidate_first(0)
    # Where the baseline comes first its window goes on in the life of the pass, which is warm.
    assert run.gate.prefills_used == cost.total - (not first)
    assert run.gate.windows.swaps == (swaps.most if first else swaps.least)


def test_warnings_count_windows_and_what_a_replicate_in_windows_needs() -> None:
    cases = [CaseRef(f"c{i}", "s", 10) for i in range(48)]
    tight = replace(QUICK, budget=window_cost(QUICK, 48, 48).total + 28)
    assert plan_warnings(replace(tight, budget=tight.budget + 1), cases, shape=SEQUENTIAL) == ()
    (warning,) = plan_warnings(tight, cases, shape=SEQUENTIAL)
    assert "leaves 28 beside" in warning and "a replicate needs 29" in warning
    small = replace(QUICK, budget=window_cost(QUICK, 48, 48).total - 1)
    assert any("ends before the" in warning for warning in plan_warnings(small, cases, shape=SEQUENTIAL))
