"""The exact signed-rank test against scipy and against every sign pattern."""

from __future__ import annotations

import itertools
import math

import pytest
from scipy import stats

from prefillgate.core.signed_rank import (
    SignedRank,
    doubled_average_ranks,
    hodges_lehmann,
    null_counts,
    signed_rank_interval,
    signed_rank_test,
    walsh_averages,
)

TWELVE = [0.31, -0.12, 0.87, 0.05, -0.44, 1.2, 0.66, -0.73, 0.29, 0.91, 0.18, -0.02]


def test_the_null_distribution_counts_sign_patterns() -> None:
    assert null_counts([2, 4, 6]) == [1, 0, 1, 0, 1, 0, 2, 0, 1, 0, 1, 0, 1]
    assert null_counts([]) == [1]


def test_ties_share_the_average_of_their_ranks() -> None:
    assert doubled_average_ranks([0.5, -0.1, 0.5, -0.5, 2.0]) == [6, 2, 6, 6, 10]


@pytest.mark.parametrize("count", [1, 4, 5, 12])
def test_without_ties_p_values_agree_with_scipy(count: int) -> None:
    values = TWELVE[:count]
    ours = signed_rank_test(values)
    assert ours.p_greater == pytest.approx(stats.wilcoxon(values, alternative="greater", method="exact").pvalue)
    assert ours.p_less == pytest.approx(stats.wilcoxon(values, alternative="less", method="exact").pvalue)
    assert ours.pairs == count


def test_with_ties_p_values_agree_with_every_sign_pattern() -> None:
    # In the second list the next larger sum of ranks lies only one half above the observed one.
    for values, ranks, statistic in (
        ([1.0, -1.0, 2.0, 2.0, -2.0, 3.0, 0.0], [1.5, 1.5, 4.0, 4.0, 4.0, 6.0], 15.5),
        ([-1.0, -1.0, -2.0, 3.0], [1.5, 1.5, 3.0, 4.0], 4.0),
    ):
        signs = itertools.product((0, 1), repeat=len(ranks))
        sums = [sum(itertools.compress(ranks, up)) for up in signs]
        assert signed_rank_test(values) == SignedRank(
            statistic=statistic,
            pairs=len(ranks),
            p_greater=sum(s >= statistic for s in sums) / len(sums),
            p_less=sum(s <= statistic for s in sums) / len(sums),
        )


def test_only_zeros_show_nothing() -> None:
    assert signed_rank_test([0.0, 0.0]) == SignedRank(0.0, 0, 1.0, 1.0)


def test_a_centre_is_taken_off_first() -> None:
    assert signed_rank_test([3.0, 2.0, 4.0], 2.0) == signed_rank_test([1.0, 0.0, 2.0])


def test_the_estimate_is_the_median_of_walsh_averages() -> None:
    assert walsh_averages([0.0, 4.0, 1.0]) == [0.0, 0.5, 1.0, 2.0, 2.5, 4.0]
    assert hodges_lehmann([0.0, 4.0, 1.0]) == 1.5
    assert hodges_lehmann([7.0]) == 7.0


def test_the_interval_needs_five_pairs_at_five_percent() -> None:
    assert signed_rank_interval([1.0, 2.0, 3.0, 4.0], 0.05) is None
    assert signed_rank_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.05) == (1.0, 5.0)
    assert signed_rank_interval([1.0, 2.0, 3.0, 4.0], 1 / 16) == (1.0, 4.0)
    assert signed_rank_interval([1.0, 2.0, 3.0, 4.0], 0.0624) is None
    assert signed_rank_interval([1.0], 0.5) == (1.0, 1.0)


def test_the_interval_inverts_the_test() -> None:
    interval = signed_rank_interval(TWELVE, 0.05)
    assert interval is not None
    low, high = interval
    averages = walsh_averages(TWELVE)
    assert (low, high) == (averages[17], averages[-18])
    assert signed_rank_test(TWELVE, low - 1e-9).p_greater <= 0.05 < signed_rank_test(TWELVE, low + 1e-9).p_greater
    assert signed_rank_test(TWELVE, high + 1e-9).p_less <= 0.05 < signed_rank_test(TWELVE, high - 1e-9).p_less


@pytest.mark.parametrize("count", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5])
def test_the_interval_leaves_out_as_many_walsh_averages_as_the_sign_patterns_allow(count: int, alpha: float) -> None:
    patterns = itertools.product((0, 1), repeat=count)
    sums = [sum(itertools.compress(range(1, count + 1), up)) for up in patterns]
    outside = sum(sum(s <= least for s in sums) <= alpha * len(sums) for least in range(count * (count + 1) // 2))
    averages = walsh_averages(TWELVE[:count])
    expected = (averages[outside - 1], averages[-outside]) if outside else None
    assert signed_rank_interval(TWELVE[:count], alpha) == expected


@pytest.mark.parametrize(
    "call", [signed_rank_test, hodges_lehmann, lambda differences: signed_rank_interval(differences, 0.05)]
)
def test_impossible_differences_are_named(call: object) -> None:
    with pytest.raises(ValueError, match=r"^differences must hold at least one number, got none$"):
        call([])  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^differences must be finite numbers, got nan$"):
        call([1.0, math.nan])  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^differences must be finite numbers, got None$"):
        call([1.0, None])  # type: ignore[operator]


@pytest.mark.parametrize("alpha", [0.0, 0.501, -0.1])
def test_an_impossible_alpha_is_named(alpha: float) -> None:
    with pytest.raises(ValueError, match=rf"^alpha must be above 0 and at most 0.5, got {alpha}$"):
        signed_rank_interval([1.0, 2.0], alpha)
