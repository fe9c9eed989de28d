"""The CUSUM alarm: increments, floor, latch, and the two levels."""

from __future__ import annotations

import math

import pytest

from prefillgate.core.alarm import Cusum, alarm_level, cusum, increments
from prefillgate.core.policy import AlarmPolicy

POLICY = AlarmPolicy()
BAD, CLEAN = math.log(6), math.log(0.7 / 0.95)


def test_a_bad_unit_adds_1_792_and_a_clean_one_takes_0_305() -> None:
    assert increments(POLICY) == (pytest.approx(1.792, abs=5e-4), pytest.approx(-0.305, abs=5e-4))
    assert increments(AlarmPolicy(0.1, 0.2)) == (pytest.approx(math.log(2)), pytest.approx(math.log(0.8 / 0.9)))


def test_it_alarms_at_ln_10_and_under_watch_at_ln_100() -> None:
    assert alarm_level(POLICY) == pytest.approx(math.log(10))
    assert alarm_level(POLICY, watch=True) == pytest.approx(math.log(100))
    assert alarm_level(AlarmPolicy(threshold=7.0, watch_threshold=9.0), watch=True) == pytest.approx(math.log(9))


def test_no_outcome_stands_at_zero() -> None:
    assert cusum([], POLICY) == Cusum(0.0, 0.0, False)


def test_clean_units_never_go_below_zero() -> None:
    assert cusum([False] * 50, POLICY) == Cusum(0.0, 0.0, False)
    after = cusum([False] * 50 + [True], POLICY)
    assert after.level == after.peak == pytest.approx(BAD)


def test_two_bad_in_a_row_alarm_and_one_does_not() -> None:
    assert not cusum([True], POLICY).alarmed
    two = cusum([True, True], POLICY)
    assert two.alarmed
    assert two.level == pytest.approx(2 * BAD)


@pytest.mark.parametrize(("clean", "alarmed"), [(0, True), (4, True), (5, False)])
def test_how_many_clean_units_may_lie_between_two_bad_ones(clean: int, alarmed: bool) -> None:
    outcomes = [True, *[False] * clean, True]
    result = cusum(outcomes, POLICY)
    assert result.alarmed is alarmed
    assert result.level == pytest.approx(2 * BAD + clean * CLEAN)


def test_the_alarm_is_latched_while_the_level_falls() -> None:
    result = cusum([True, True, *[False] * 9], POLICY)
    assert result.alarmed
    assert result.peak == pytest.approx(2 * BAD)
    assert result.level == pytest.approx(2 * BAD + 9 * CLEAN)


def test_reaching_the_level_exactly_alarms() -> None:
    exact = AlarmPolicy(0.05, 0.30, threshold=0.30 / 0.05, watch_threshold=math.nextafter(6.0, 7.0))
    assert cusum([True], exact).alarmed
    assert not cusum([True], exact, watch=True).alarmed


def test_under_watch_two_bad_are_not_enough_and_three_are() -> None:
    assert not cusum([True, True], POLICY, watch=True).alarmed
    assert cusum([True, True, True], POLICY, watch=True).alarmed
