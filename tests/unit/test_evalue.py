"""The safe test for a rollback: what one pair is worth, and when the product suffices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.core.evalue import pair_factor, replicate_threshold
from prefillgate.core.policy import ReplicatePolicy

RATES = (0.02, 0.40)
INNER = st.floats(0.001, 0.999)


@pytest.mark.parametrize(
    ("candidate_bad", "baseline_bad", "factor"),
    [(True, False, 2.363), (False, False, 0.942), (True, True, 0.181), (False, True, 0.072)],
)
def test_a_pair_multiplies_e_by_the_printed_factor(candidate_bad: bool, baseline_bad: bool, factor: float) -> None:
    assert pair_factor(candidate_bad, baseline_bad, *RATES) == pytest.approx(factor, abs=0.0005)


def test_two_pairs_of_a_bad_candidate_and_a_good_baseline_make_5_58() -> None:
    assert pair_factor(True, False, *RATES) ** 2 == pytest.approx(5.58, abs=0.005)


@given(INNER, INNER)
def test_the_factor_is_the_likelihood_ratio_over_the_mean_rate(baseline: float, candidate: float) -> None:
    mean = (baseline + candidate) / 2
    for x in (0, 1):
        for y in (0, 1):
            expected = (
                (candidate / mean) ** x
                * ((1 - candidate) / (1 - mean)) ** (1 - x)
                * (baseline / mean) ** y
                * ((1 - baseline) / (1 - mean)) ** (1 - y)
            )
            assert pair_factor(bool(x), bool(y), baseline, candidate) == pytest.approx(expected)


@given(INNER, INNER)
def test_its_expectation_is_at_most_one_where_the_candidate_is_no_worse(one: float, other: float) -> None:
    candidate, baseline = sorted((one, other))
    expected = sum(
        (candidate if x else 1 - candidate) * (baseline if y else 1 - baseline) * pair_factor(x, y, *RATES)
        for x in (False, True)
        for y in (False, True)
    )
    assert expected <= 1 + 1e-12


def test_its_expectation_is_one_at_the_mean_of_the_planned_rates() -> None:
    rate = 0.21
    expected = sum(
        (rate if x else 1 - rate) * (rate if y else 1 - rate) * pair_factor(x, y, *RATES)
        for x in (False, True)
        for y in (False, True)
    )
    assert expected == pytest.approx(1)


@pytest.mark.parametrize(("number", "threshold"), [(1, 40), (2, 80), (3, 160), (4, 480), (5, 960), (6, 1600)])
@pytest.mark.parametrize("flags", [1, 2, 3])
def test_the_threshold_of_each_replicate_times_the_flags(number: int, threshold: float, flags: int) -> None:
    assert replicate_threshold(number, ReplicatePolicy(), flags) == threshold * flags


def test_one_flag_is_the_default_and_the_first_threshold_sets_the_others() -> None:
    policy = ReplicatePolicy(threshold=50.0)
    assert [replicate_threshold(number, policy) for number in (1, 2, 3, 4)] == [50, 100, 200, 600]


def test_the_false_rollback_bounds_of_all_replicates_sum_to_a_twentieth() -> None:
    total = sum(1 / replicate_threshold(number, ReplicatePolicy()) for number in range(1, 20_000))
    assert 0.04999 < total < 0.05


@pytest.mark.parametrize("number", [0, -1])
def test_replicates_are_numbered_from_one(number: int) -> None:
    with pytest.raises(ValueError, match=f"replicate number {number}: replicates are numbered from 1"):
        replicate_threshold(number, ReplicatePolicy())
