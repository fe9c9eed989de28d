"""The A/A check: two passes over the baseline."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.instrument import AaPair, check_instrument
from prefillgate.core.throughput import BaselinePass
from prefillgate.core.throughput_bets import e_values

CLEAN = AaPair("case", False, False)
WORSE = AaPair("case", False, True)
FACTOR = (0.40 / 0.21) * (0.98 / 0.79)  # 2.363: second bad, first good
BOTH_GOOD = (0.60 / 0.79) * (0.98 / 0.79)


def test_equal_passes_are_sound() -> None:
    check = check_instrument([replace(CLEAN, case_id=f"c{i}") for i in range(12)], STANDARD)
    assert check.findings == ()
    assert not check.broken
    assert check.pairs == 12
    assert (check.e_second_worse, check.e_first_worse, check.e_second_faster, check.e_second_slower) == (1, 1, 1, 1)
    assert check.identical_share is None


def test_four_bad_in_one_pass_are_not_enough_and_five_break_the_instrument() -> None:
    four = check_instrument([WORSE] * 4, STANDARD)
    assert four.e_second_worse == pytest.approx(FACTOR**4)
    assert not four.broken
    five = check_instrument([WORSE] * 5, STANDARD)
    assert five.e_second_worse == pytest.approx(FACTOR**5)
    assert five.e_first_worse == 1.0
    assert five.findings == ("the second pass over the baseline is worse than the first (E 73.7)",)
    assert five.broken


def test_the_other_direction_breaks_it_too() -> None:
    check = check_instrument([AaPair("case", True, False)] * 5, STANDARD)
    assert (check.e_first_worse, check.e_second_worse) == (pytest.approx(FACTOR**5), 1.0)
    assert check.findings == ("the first pass over the baseline is worse than the second (E 73.7)",)


def test_the_highest_e_counts_and_an_unknown_outcome_ends_the_test() -> None:
    check = check_instrument([WORSE, WORSE, CLEAN], STANDARD)
    assert check.e_second_worse == pytest.approx(FACTOR**2)
    late = check_instrument([CLEAN, WORSE, WORSE], STANDARD)
    assert late.e_second_worse == pytest.approx(BOTH_GOOD * FACTOR**2)
    mirrored = check_instrument([CLEAN, AaPair("case", True, False), AaPair("case", True, False), CLEAN], STANDARD)
    assert mirrored.e_first_worse == pytest.approx(BOTH_GOOD * FACTOR**2)
    for unknown in (AaPair("case", None, True), AaPair("case", False, None)):
        assert check_instrument([WORSE, unknown, *[WORSE] * 9], STANDARD).e_second_worse == pytest.approx(FACTOR)


@pytest.mark.parametrize(("second", "words"), [(108.0, "faster"), (92.0, "slower")])
def test_a_speed_change_between_the_passes_breaks_the_instrument(second: float, words: str) -> None:
    pairs = [AaPair(f"c{i}", False, False, 100.0, second) for i in range(8)]
    check = check_instrument(pairs, STANDARD)
    assert len(check.findings) == 1
    assert check.findings[0].startswith(f"the second pass over the baseline decodes {words} than the first (E ")
    peak = check.e_second_faster if words == "faster" else check.e_second_slower
    other = check.e_second_slower if words == "faster" else check.e_second_faster
    d = math.log(second) - math.log(100.0)
    assert peak == pytest.approx(e_values([d] * 8, 0.0, 0.04, 1 if words == "faster" else -1)[-1])
    assert other < 1


def test_fewer_than_six_pairs_say_nothing_of_speed() -> None:
    pairs = [AaPair(f"c{i}", False, False, 100.0, 300.0) for i in range(5)]
    assert check_instrument(pairs, STANDARD).e_second_faster == 1.0
    assert check_instrument([*pairs, AaPair("x", False, False, None, 1.0)], STANDARD).e_second_faster == 1.0
    assert check_instrument([*pairs, AaPair("x", False, False, 1.0, None)], STANDARD).e_second_faster == 1.0
    assert check_instrument([*pairs, pairs[0]], STANDARD).e_second_faster == pytest.approx(
        (2**6 + 1.5**6) / 2, rel=1e-6
    )


def test_a_failed_probe_breaks_the_instrument() -> None:
    check = check_instrument([], STANDARD, ("cache_off did nothing",))
    assert check.findings == ("probe failed: cache_off did nothing",)
    assert check.broken


def test_an_e_value_of_exactly_forty_breaks_the_instrument() -> None:
    # At this planned rate seven pairs multiply to 40 without a remainder.
    rate = 0.08927407951139593
    for planned, e_value, broken in ((rate, 40.0, True), (math.nextafter(rate, 0), None, False)):
        policy = replace(STANDARD, replicate=replace(STANDARD.replicate, planned_candidate_rate=planned))
        check = check_instrument([WORSE] * 7, policy)
        assert check.e_second_worse == e_value or (e_value is None and 39.999 < check.e_second_worse < 40)
        assert check.broken is broken


def test_shares_and_rates_of_the_baseline_are_kept_for_the_comparison() -> None:
    pairs = [
        AaPair("a", False, False, 10.0, 11.0, "x", "x"),
        AaPair("b", False, False, 12.0, None, "x", "y"),
        AaPair("a", False, False, None, 13.0, None, "y"),
        AaPair("c", False, False, None, None, "x", None),
        AaPair("d", False, False, None, None, "z", "z"),
    ]
    check = check_instrument(pairs, STANDARD)
    assert check.identical_share == 2 / 3
    assert check.baseline == BaselinePass(2 / 3, {"a": (10.0, 11.0, 13.0), "b": (12.0,), "c": (), "d": ()})
