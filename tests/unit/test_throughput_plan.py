"""Planning of throughput pairs: coverage, pairs needed and refused margins (STATISTICS.md section 8)."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from prefillgate.core import throughput_plan
from prefillgate.core.exact import noncentral_t_above, t_limit


def test_pairs_cover_the_longest_prompt_and_the_range_of_lengths() -> None:
    lengths = {f"p{i:02}": i for i in range(20)}
    assert throughput_plan.coverage_prompts(lengths, 4) == ("p19", "p13", "p07", "p00")
    assert throughput_plan.coverage_prompts(lengths, 3) == ("p19", "p10", "p00")
    assert throughput_plan.coverage_prompts(lengths, 1) == ("p19",)
    assert throughput_plan.coverage_prompts(lengths, 2) == ("p19", "p00")
    twelve = throughput_plan.coverage_prompts(lengths, 12)
    assert len(set(twelve)) == 12
    assert (twelve[0], twelve[-1]) == ("p19", "p00")
    assert throughput_plan.coverage_prompts({"b": 5, "a": 5, "c": 9}, 12) == ("c", "a", "b")
    assert throughput_plan.coverage_prompts({"b": 5, "a": 5}, 1) == ("a",)
    assert throughput_plan.coverage_prompts({}, 12) == ()
    for number in (0, True, None, 1.0):
        with pytest.raises(
            ValueError, match=rf"^throughput max_prompts must be a whole number of at least 1, got {number}$"
        ):
            throughput_plan.coverage_prompts(lengths, number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "margin", "pairs"),
    [
        (1.075, 0.0, [5, 10, 23]),
        (1.02, 0.0, [41, 111, 281]),
        (1.0, -0.05, [8, 18, 43]),
        (1.0, -0.02, [40, 107, 270]),
        (0.98, -0.05, [18, 46, 115]),
    ],
)
def test_planned_pairs_are_the_printed_ones_and_scipys(ratio: float, margin: float, pairs: list[int]) -> None:
    assert [throughput_plan.pairs_needed(ratio, margin, cv) for cv in (0.03, 0.05, 0.08)] == pairs
    for cv, count in zip((0.03, 0.05, 0.08), pairs, strict=True):
        effect = math.log(ratio / (1 + margin)) / math.sqrt(2 * math.log(1 + cv**2))
        powers = [
            stats.nct.sf(stats.t.isf(0.05, n - 1), n - 1, effect * math.sqrt(n)) for n in (max(count - 1, 4), count)
        ]
        assert powers[0] < 0.9 <= powers[1]


def test_a_plan_that_reaches_the_power_exactly_is_enough() -> None:
    effect = -math.log1p(-0.05) / throughput_plan.pair_spread(0.04)
    reached = noncentral_t_above(t_limit(0.05, 11), 11, effect * math.sqrt(12))
    assert throughput_plan.pairs_needed(1.0, -0.05, 0.04, 0.05, reached) == 12
    assert throughput_plan.pairs_needed(1.0, -0.05, 0.04, 0.05, math.nextafter(reached, 1)) == 13


def test_planning_knows_its_limits() -> None:
    assert throughput_plan.pairs_needed(2.0, 0.0, 0.03) == 5
    assert throughput_plan.pairs_needed(0.9, 0.0, 0.05) == throughput_plan.pairs_needed(1 / 0.9, 0.0, 0.05)
    assert throughput_plan.pairs_needed(1.0, 0.0, 0.05) is None
    assert throughput_plan.pairs_needed(1.001, 0.0, 0.03) == 15425
    # The largest plan there is: 81,920 pairs.
    assert throughput_plan.pairs_needed(1.000433786293, 0.0, 0.03) == 81920
    assert throughput_plan.pairs_needed(1.000433786292, 0.0, 0.03) is None
    assert throughput_plan.pairs_needed(1.0, -0.05, 0.05, 0.01, 0.8) == 22
    assert throughput_plan.pair_spread(0.08) == pytest.approx(math.sqrt(2 * math.log(1.0064)), rel=1e-12)
    assert throughput_plan.cell_cv(throughput_plan.pair_spread(0.08)) == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0.0, 0.0, 0.05), "ratio must be above 0, got 0.0"),
        ((math.inf, 0.0, 0.05), "ratio must be above 0, got inf"),
        ((1.0, -1.0, 0.05), "throughput margin must be above -1, got -1.0"),
        ((1.0, math.inf, 0.05), "throughput margin must be above -1, got inf"),
        ((1.0, -0.05, 0.0), "cv must be above 0, got 0.0"),
        ((1.0, -0.05, math.inf), "cv must be above 0, got inf"),
        ((1.0, -0.05, 0.05, 0.05, 1.0), "power must be above alpha 0.05 and below 1, got 1.0"),
        ((1.0, -0.05, 0.05, 0.05, 0.05), "power must be above alpha 0.05 and below 1, got 0.05"),
        ((1.0, -0.05, 0.05, 0.0, 0.9), "power must be above alpha 0.0 and below 1, got 0.9"),
    ],
)
def test_impossible_plans_are_named(numbers: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        throughput_plan.pairs_needed(*numbers)
    assert str(caught.value) == message


def test_a_margin_close_to_equal_is_refused_on_a_noisy_machine() -> None:
    assert throughput_plan.margin_problem(-0.02, 0.05) is None
    assert throughput_plan.margin_problem(-0.0201, 0.2) is None
    assert throughput_plan.margin_problem(-0.02, 0.0501) == (
        "throughput margin -2.0% cannot be told from equal here: cells vary by 5.0%, so an equal candidate needs "
        "about 107 pairs; a margin of -5 % or a quieter machine would do"
    )
    refused = throughput_plan.margin_problem(0.0, 0.06)
    assert refused is not None
    assert "needs no number of pairs" in refused
