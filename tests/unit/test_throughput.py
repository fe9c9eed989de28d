"""Decode throughput: pairs, e-values, latches, coverage, slow cells and planning (STATISTICS.md section 8)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from prefillgate.core import throughput, throughput_plan
from prefillgate.core.policy import ThroughputPolicy
from prefillgate.core.throughput import BaselinePass, PairMeasurement, SlowRule, judge_throughput
from prefillgate.core.throughput_bets import e_values
from prefillgate.core.verdict import ThroughputState, ThroughputView

POLICY = ThroughputPolicy()


def pair(number: int, ratio: float = 1.0, case: str | None = None, base: float = 100.0) -> PairMeasurement:
    return PairMeasurement(
        pair=number,
        case_id=case or f"c{number:02}",
        baseline_rate=base,
        candidate_rate=base * ratio,
        baseline_ms_per_token=1000 / base,
        candidate_ms_per_token=1000 / (base * ratio),
        baseline_output_tokens=64,
        candidate_output_tokens=64,
        baseline_output_sha256="x",
        candidate_output_sha256="x",
        first_after_start=False,
        baseline_fresh=True,
        candidate_fresh=True,
    )


def judge(pairs: list[PairMeasurement], policy: ThroughputPolicy = POLICY, **kwargs: object) -> ThroughputView:
    return judge_throughput(pairs, policy, {p.case_id: 1 for p in pairs}, **kwargs)  # type: ignore[arg-type]


def test_the_rate_leaves_the_first_token_out() -> None:
    assert throughput.cell_rate(41, 2000.0) == 20.0
    assert throughput.cell_ms_per_token(41, 2000.0) == 50.0
    assert throughput.cell_ms_per_token(2, 0.5) == 0.5
    for tokens, ms in ((None, 10.0), (10, None), (1, 10.0), (10, 0.0), (10, -1.0), (10, math.inf), (10, math.nan)):
        assert throughput.cell_rate(tokens, ms) is None
        assert throughput.cell_ms_per_token(tokens, ms) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"first_after_start": True}, "first pair after a server start"),
        ({"baseline_fresh": False}, "baseline cell not fresh"),
        ({"candidate_fresh": False}, "candidate cell not fresh"),
        ({"baseline_output_tokens": None}, "baseline output tokens unknown"),
        ({"candidate_output_tokens": None}, "candidate output tokens unknown"),
        ({"baseline_output_tokens": 31}, "baseline cell under 32 output tokens"),
        ({"candidate_output_tokens": 31}, "candidate cell under 32 output tokens"),
        ({"candidate_output_tokens": 32}, ""),
        ({"baseline_rate": None}, "baseline decode rate unknown"),
        ({"candidate_rate": 0.0}, "candidate decode rate unknown"),
        ({"candidate_rate": math.inf}, "candidate decode rate unknown"),
        ({"candidate_rate": 0.5, "candidate_ms_per_token": 0.5}, ""),
        ({"baseline_ms_per_token": None}, "baseline decode rate unknown"),
        ({"candidate_ms_per_token": 0.0}, "candidate decode rate unknown"),
        ({"first_after_start": True, "baseline_fresh": False}, "first pair after a server start"),
    ],
)
def test_a_pair_left_out_says_why(change: dict[str, object], reason: str) -> None:
    changed = replace(pair(1), **change)  # type: ignore[arg-type]
    assert throughput.why_unused(changed, POLICY) == reason
    shown = judge([changed]).pairs[0]
    assert (shown.used, shown.why_not) == (reason == "", reason)
    assert (shown.pair, shown.case_id) == (1, "c01")
    assert shown.baseline_tokens_per_second == changed.baseline_rate
    assert shown.candidate_tokens_per_second == changed.candidate_rate


def test_a_pair_without_a_rate_has_no_ratio() -> None:
    for change in ({"baseline_rate": None}, {"candidate_rate": None}):
        with pytest.raises(ValueError, match=r"^pair 7 has no decode rate on both arms$"):
            throughput.log_ratio(replace(pair(7), **change))  # type: ignore[arg-type]
    assert throughput.log_ratio(pair(7, 1.1)) == pytest.approx(math.log(1.1))


def test_six_pairs_are_the_least_and_e_20_is_the_bar() -> None:
    five = judge([pair(i, 1.3) for i in range(5)], replace(POLICY, alpha=0.06))
    assert five.e_not_worse > 1 / 0.06
    assert five.state is ThroughputState.OPEN
    six = judge([pair(i, 1.3) for i in range(6)])
    assert six.state is ThroughputState.NOT_WORSE
    assert "settled at pair 6" in six.sentence
    differences = [0.0] * 6
    level = e_values(differences, -0.05, 0.04)[-1]
    pairs = [pair(i) for i in range(6)]
    assert judge(pairs, replace(POLICY, alpha=1 / level * 1.0001)).state is ThroughputState.NOT_WORSE
    assert judge(pairs, replace(POLICY, alpha=1 / level * 0.9999)).state is ThroughputState.OPEN
    assert (
        judge([pair(i) for i in range(6)], replace(POLICY, alpha=0.5, min_pairs=6)).state is ThroughputState.NOT_WORSE
    )


@pytest.mark.parametrize(("ratio", "state"), [(100.0, ThroughputState.NOT_WORSE), (0.01, ThroughputState.WORSE)])
def test_an_e_value_of_exactly_one_over_alpha_settles_it(ratio: float, state: ThroughputState) -> None:
    # Six pairs this far apart win every bet whole: stakes of 1 and 1/2 give 2^6 and 1.5^6.
    pairs = [pair(i, ratio) for i in range(6)]
    level = (2**6 + 1.5**6) / 2
    assert 1 / (1 / level) == level
    view = judge(pairs, replace(POLICY, alpha=1 / level))
    assert view.state is state
    assert max(view.e_not_worse, view.e_worse) == level
    assert judge(pairs, replace(POLICY, alpha=(1 - 1e-12) / level)).state is ThroughputState.OPEN


def test_a_slow_candidate_is_worse_and_stays_worse() -> None:
    slow = [pair(i, 0.85) for i in range(10)]
    view = judge(slow)
    assert view.state is ThroughputState.WORSE
    assert "worse than -5.0% (settled at pair 6)" in view.sentence
    assert view.e_worse > 20 > view.e_not_worse
    assert view.e_worse == pytest.approx(e_values([math.log(0.85)] * 10, -0.05, 0.04, -1)[-1], rel=1e-9)
    assert view.pairs_needed is None
    recovered = judge([*slow, *[pair(i, 1.3) for i in range(10, 40)]])
    assert recovered.state is ThroughputState.WORSE
    assert judge([pair(i, 0.85) for i in range(5)]).state is ThroughputState.OPEN


def test_not_worse_is_latched_though_e_falls_again() -> None:
    quick = [pair(i, 1.3) for i in range(6)]
    later = [pair(i, 0.94) for i in range(6, 40)]
    view = judge(quick + later)
    assert view.e_not_worse < 20
    assert view.state is ThroughputState.NOT_WORSE
    assert view.pairs_needed == 0


def test_total_speed_is_looked_at_again_at_the_end() -> None:
    quick = [pair(i, 1.01) for i in range(12)]
    drag = replace(pair(12, 0.2), candidate_ms_per_token=50.0)
    assert judge(quick).state is ThroughputState.NOT_WORSE
    view = judge([*quick, drag])
    assert view.state is ThroughputState.OPEN
    assert view.pairs_needed is None
    assert view.sentence.startswith(
        "Decode speed is open: the typical pair is not worse than -5.0%, the total decode time is."
    )


def test_total_speed_at_the_margin_is_enough_and_below_it_is_not() -> None:
    pairs = [replace(pair(i, 1.3), baseline_ms_per_token=19.0, candidate_ms_per_token=20.0) for i in range(6)]
    assert judge(pairs, replace(POLICY, margin=-0.05)).state is ThroughputState.NOT_WORSE
    pairs = [replace(p, candidate_ms_per_token=20.001) for p in pairs]
    assert judge(pairs).state is ThroughputState.OPEN


def test_each_prompt_weighs_the_same_in_total_speed() -> None:
    pairs = [
        replace(pair(1, case="a"), baseline_ms_per_token=10.0, candidate_ms_per_token=20.0),
        replace(pair(2, case="a"), baseline_ms_per_token=30.0, candidate_ms_per_token=20.0),
        replace(pair(3, case="b"), baseline_ms_per_token=40.0, candidate_ms_per_token=80.0),
    ]
    assert throughput.ms_per_token(pairs) == (30.0, 50.0)
    assert throughput.total_speed_ratio(pairs) == 0.6
    assert throughput.total_speed_ratio([]) is None
    assert throughput.total_speed_ratio([replace(pairs[0], baseline_ms_per_token=None)]) is None
    assert throughput.total_speed_ratio([replace(pairs[0], candidate_ms_per_token=None)]) is None
    view = judge(pairs)
    assert (view.baseline_ms_per_token, view.candidate_ms_per_token) == (30.0, 50.0)
    assert view.baseline_tokens_per_second == pytest.approx(1000 / 30)
    assert view.candidate_tokens_per_second == 20.0


def test_repeated_prompts_are_averaged_before_the_estimate() -> None:
    pairs = [pair(1, 1.1, "a"), pair(2, 1.0, "b"), pair(3, 1.3, "a"), pair(4, 0.9, "c")]
    expected = [(math.log(1.1) + math.log(1.3)) / 2, 0.0, math.log(0.9)]
    assert throughput.prompt_differences(pairs) == pytest.approx(expected)
    view = judge(pairs)
    assert (view.pairs_used, view.prompts_in_pairs) == (4, 3)
    averages = sorted((a + b) / 2 for i, a in enumerate(expected) for b in expected[i:])
    assert view.ratio == pytest.approx(math.exp((averages[2] + averages[3]) / 2))
    assert view.ratio_interval is None


def test_five_prompts_give_an_interval() -> None:
    view = judge([pair(i, 1 + i / 100) for i in range(5)])
    assert view.ratio_interval == pytest.approx((1.0, 1.04))
    assert view.ratio is not None
    assert "The typical ratio is 1.020 (1.000 to 1.040) over 5 pairs of 5 prompts." in view.sentence
    assert judge([pair(i, 1 + i / 100) for i in range(5)], replace(POLICY, alpha=0.03)).ratio_interval is None


def test_the_cv_is_that_of_one_cell() -> None:
    assert throughput.estimated_cv([0.1]) is None
    assert throughput.estimated_cv([]) is None
    spread = math.sqrt(2 * math.log(1 + 0.08**2))
    assert throughput.estimated_cv([-spread / math.sqrt(2), spread / math.sqrt(2)]) == pytest.approx(0.08)
    assert judge([pair(1, 1.0), pair(2, 1.1)]).cv == pytest.approx(math.sqrt(math.exp(math.log(1.1) ** 2 / 4) - 1))


def test_without_pairs_everything_is_unknown() -> None:
    view = judge([])
    assert view.state is ThroughputState.OPEN
    assert judge([], replace(POLICY, required=False)).state is ThroughputState.NOT_COMPARED
    assert judge([], replace(POLICY, required=False)).sentence == "Decode speed was not compared."
    assert judge([pair(1)], replace(POLICY, required=False)).state is ThroughputState.OPEN
    assert (view.e_not_worse, view.e_worse, view.pairs_used, view.prompts_in_pairs) == (1.0, 1.0, 0, 0)
    unknown = (view.ratio, view.ratio_interval, view.cv, view.identical_share, view.aa_identical_share)
    assert unknown == (None, None, None, None, None)
    assert (view.slow_share_candidate, view.slow_share_baseline) == (None, None)
    assert (view.baseline_ms_per_token, view.candidate_tokens_per_second) == (None, None)
    assert view.margin == -0.05


def test_missing_pairs_are_guessed_from_the_growth_of_e() -> None:
    pairs = [pair(i) for i in range(4)]
    view = judge(pairs)
    growth = math.log(view.e_not_worse) / 4
    assert growth > 0
    expected = math.ceil((math.log(20) - math.log(view.e_not_worse)) / growth)
    assert expected > 2
    assert view.pairs_needed == expected
    assert f"about {expected} more pairs would settle it" in view.sentence
    assert judge([pair(i, 1.5) for i in range(3)]).pairs_needed == 3
    one = judge([pair(0)])
    assert 1 < one.e_not_worse < 2
    assert one.pairs_needed == math.ceil(math.log(20) / math.log(one.e_not_worse) - 1)
    at_the_margin = judge([pair(0)], replace(POLICY, margin=0.0))
    assert (at_the_margin.e_not_worse, at_the_margin.pairs_needed) == (1.0, None)
    nearly = replace(POLICY, alpha=1 / (judge([pair(i) for i in range(8)]).e_not_worse * 1.001))
    assert judge([pair(i) for i in range(8)], nearly).pairs_needed == 1
    assert judge([pair(i, 0.94) for i in range(8)]).pairs_needed is None
    assert "do not lead to a promotion" in judge([pair(i, 0.94) for i in range(8)]).sentence
    # Nothing seen: the plan for an equal candidate, planned CV 4 %, at least a pair for each prompt that needs one.
    assert judge([]).pairs_needed == throughput_plan.pairs_needed(1.0, -0.05, 0.04) == 12
    assert judge_throughput([], replace(POLICY, max_prompts=30), {str(i): i for i in range(30)}).pairs_needed == 30
    assert judge_throughput([], replace(POLICY, margin=0.0), {"a": 1}).pairs_needed is None
    lengths = {f"c{i:02}": i for i in range(12)}
    assert judge_throughput([pair(i, 1.3) for i in range(4)], POLICY, lengths).pairs_needed == 8
    cleared = judge_throughput([pair(i, 1.3) for i in range(6)], POLICY, lengths)
    assert (cleared.state, cleared.pairs_needed) == (ThroughputState.NOT_WORSE, 6)
    assert cleared.missing_prompts == ("c11", "c10", "c09", "c08", "c07", "c06")
    assert "6 prompts must still be in a pair before promotion." in cleared.sentence
    eleven = judge_throughput([pair(i, 1.3) for i in range(11)], POLICY, lengths)
    assert eleven.missing_prompts == ("c11",)
    assert "1 prompt must still be in a pair before promotion." in eleven.sentence
    unused = judge_throughput([replace(pair(11), first_after_start=True)], POLICY, lengths)
    assert "c11" in unused.missing_prompts


def test_a_cell_under_four_fifths_of_its_prompts_baseline_median_is_slow() -> None:
    assert not throughput.is_slow(80.0, [100.0], 0.8)
    assert throughput.is_slow(79.9, [100.0], 0.8)
    assert throughput.is_slow(79.9, [50.0, 100.0, 300.0], 0.8)
    view = judge([pair(1, 0.79), pair(2, 0.81), pair(3), replace(pair(4, 0.5), first_after_start=True)])
    assert [shown.slow for shown in view.pairs] == [True, False, False, False]
    assert view.slow_share_candidate == pytest.approx(1 / 3)
    # The A/A pass adds baseline rates of that prompt to the median.
    view = judge([pair(1, 0.79)], aa=BaselinePass(None, {"c01": (90.0, 90.0)}))
    assert view.pairs[0].slow is False


def test_slow_cells_of_the_baseline_itself_mean_two_speed_modes() -> None:
    steady = BaselinePass(0.9, {f"c{i:02}": (100.0, 100.0) for i in range(10)})
    few = BaselinePass(0.9, {**{f"c{i:02}": (100.0, 100.0) for i in range(9)}, "c10": (100.0,)})
    modes = BaselinePass(0.9, {"c01": (100.0, 100.0, 79.0), "c02": (100.0,)})
    assert (steady.cells, few.cells, modes.cells) == (20, 19, 4)
    assert (steady.slow_cells(0.8), modes.slow_cells(0.8)) == (0, 1)
    assert throughput.slow_rule(steady, 0.8) is SlowRule.FLAG
    assert throughput.slow_rule(few, 0.8) is SlowRule.UNKNOWN
    assert throughput.slow_rule(modes, 0.8) is SlowRule.TWO_SPEED_MODES
    pairs = [pair(1, 0.5), pair(2)]
    view = judge(pairs, aa=modes)
    assert (view.slow_share_candidate, view.slow_share_baseline, view.aa_identical_share) == (0.5, 0.25, 0.9)
    assert "Two speed modes: 50% of candidate and 25% of baseline cells are slow" in view.sentence
    assert "Two speed modes" not in judge(pairs, aa=steady).sentence
    assert judge(pairs, aa=steady).slow_share_baseline == 0.0
    assert "Two speed modes" not in judge([pair(2)], aa=modes).sentence


def test_identical_outputs_are_counted_where_both_are_known() -> None:
    pairs = [
        pair(1),
        replace(pair(2), candidate_output_sha256="y"),
        replace(pair(3), candidate_output_sha256=None),
        replace(pair(4), baseline_output_sha256=None),
        replace(pair(5), first_after_start=True),
    ]
    view = judge(pairs)
    assert [shown.identical_output for shown in view.pairs] == [True, False, None, None, True]
    assert view.identical_share == 0.5


def test_faster_is_claimed_only_over_identical_output() -> None:
    same = [pair(i, 1.075) for i in range(5)]
    other = [replace(pair(i, 0.96), candidate_output_sha256="y") for i in range(5, 8)]
    assert "Faster on identical output: 1.075 (1.075 to 1.075) over 5 pairs." in judge(same + other).sentence
    assert "Faster" not in judge(same[:4] + other).sentence
    assert "Faster" not in judge([pair(i, 1.0) for i in range(5)]).sentence
    assert "Faster" not in judge([pair(i, 0.99 + i / 50) for i in range(5)]).sentence
    assert "Faster" not in judge(same, replace(POLICY, alpha=0.03)).sentence


def test_lengths_far_apart_are_said() -> None:
    longer = [replace(pair(i), candidate_output_tokens=129) for i in range(2)]
    assert "Output lengths differ by a factor of 2.0: the rates compare different work." in judge(longer).sentence
    shorter = [replace(pair(i), baseline_output_tokens=192) for i in range(2)]
    assert "Output lengths differ by a factor of 3.0" in judge(shorter).sentence
    assert "lengths" not in judge([replace(pair(1), candidate_output_tokens=128)]).sentence
    halves = [replace(pair(1), candidate_output_tokens=32), replace(pair(2), baseline_output_tokens=16)]
    assert throughput.length_factor(halves) == 96 / 80
    unknown = [replace(pair(3), baseline_output_tokens=None), replace(pair(4), candidate_output_tokens=None)]
    empty = [replace(pair(5), baseline_output_tokens=0), replace(pair(6), candidate_output_tokens=0)]
    assert throughput.length_factor(halves + unknown + empty) == 96 / 80
    assert throughput.length_factor(unknown + empty) == 1.0
