"""Operating numbers of the sequential speed test (STATISTICS.md section 8), simulated on the shipped code."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from prefillgate.core.throughput_bets import STAKES, e_values
from prefillgate.core.throughput_plan import pair_spread

RUNS = 2000
PAIRS = 40
LEAST = 6


def settled(cv: float, ratio: float, stakes: tuple[float, ...] = STAKES) -> list[int | None]:
    """For each run the pair at which "not worse than -5 %" was settled, or None within 40 pairs."""
    draw = random.Random(20)
    ends: list[int | None] = []
    for _ in range(RUNS):
        differences = [math.log(ratio) + draw.gauss(0.0, pair_spread(cv)) for _ in range(PAIRS)]
        path = e_values(differences, -0.05, 0.04, stakes=stakes)
        ends.append(next((i + 1 for i in range(LEAST - 1, PAIRS) if path[i] >= 20), None))
    return ends


def within_bands(ends: list[int | None], share: float, mean: float) -> None:
    """Both within four standard errors, the printed number's rounding added."""
    cleared = fmean(end is not None for end in ends)
    assert abs(cleared - share) <= 4 * math.sqrt(max(share * (1 - share), 0.001) / RUNS) + 0.005
    spent = [PAIRS if end is None else end for end in ends]
    assert abs(fmean(spent) - mean) <= 4 * stdev(spent) / math.sqrt(RUNS) + 0.05


@pytest.mark.parametrize(("cv", "share", "mean"), [(0.03, 1.00, 8.6), (0.05, 0.96, 15.6), (0.08, 0.51, 28.2)])
def test_the_printed_operating_numbers_are_those_of_the_full_stake(cv: float, share: float, mean: float) -> None:
    within_bands(settled(cv, 1.0, stakes=(1.0,)), share, mean)


@pytest.mark.parametrize(("cv", "share", "mean"), [(0.03, 1.00, 9.8), (0.05, 0.97, 16.8), (0.08, 0.605, 28.2)])
def test_both_stakes_clear_an_equal_candidate_at_least_as_often(cv: float, share: float, mean: float) -> None:
    within_bands(settled(cv, 1.0), share, mean)


@pytest.mark.parametrize("cv", [0.03, 0.05, 0.08])
def test_a_candidate_at_the_margin_is_cleared_in_at_most_one_run_in_twenty(cv: float) -> None:
    cleared = fmean(end is not None for end in settled(cv, 0.95))
    assert cleared <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / RUNS)
    assert cleared > 0.005
