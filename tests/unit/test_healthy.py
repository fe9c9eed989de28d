"""A trial's bad rate, its interval, and the margin that would promote a candidate just as good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.healthy import HealthyRate, healthy_rate
from prefillgate.core.planning import promotion_power
from prefillgate.core.policy import Flag


def told(bad: int, units: int, policy: object = STANDARD, prompts: int = 12) -> HealthyRate:
    found = healthy_rate(bad, units, policy, prompts)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_twelve_clean_prefills_promise_a_promotion_and_prove_little() -> None:
    found = told(0, 12)
    assert (found.bad, found.units, found.rate) == (0, 12, 0.0)
    assert found.interval == (0.0, pytest.approx(0.2646485, abs=1e-7))
    assert found.promote == 1.0
    assert found.promote_at_ends == (1.0, promotion_power(STANDARD, found.interval[1], 12))
    assert found.margin == 0.10


def test_one_bad_of_twelve_names_the_margin_that_works() -> None:
    found = told(1, 12)
    assert found.rate == pytest.approx(1 / 12)
    assert found.interval == (pytest.approx(0.0021076, abs=1e-7), pytest.approx(0.3847962, abs=1e-7))
    assert found.promote == promotion_power(STANDARD, 1 / 12, 12) == pytest.approx(0.0993366, abs=1e-7)
    assert found.promote_at_ends == tuple(promotion_power(STANDARD, rate, 12) for rate in found.interval)
    assert found.margin == 0.36


def test_the_policys_own_margin_stands_where_it_promotes_with_four_fifths() -> None:
    exact = replace(STANDARD, acceptance=(1,), margin=0.95)
    assert told(1, 5, exact, 1).promote == 0.8
    assert told(1, 5, exact, 1).margin == 0.95
    assert told(2, 9, exact, 1).margin != 0.95


def test_the_margin_must_be_reached_within_the_budget_beside_the_baseline_pass() -> None:
    def margin(budget: int, baseline_pass: int, prompts: int) -> float | None:
        return told(1, 12, replace(STANDARD, budget=budget, baseline_pass=baseline_pass), prompts).margin

    assert margin(40, 8, 12) == 0.36
    assert (margin(17, 8, 12), margin(16, 8, 12)) == (0.43, 0.48)
    assert margin(20, 14, 12) == 0.48  # a pass over 12 prompts is 12 cells
    assert margin(20, 100, 3) == margin(20, 8, 3) == 0.33
    assert margin(12, 100, 12) is None


def test_a_server_that_is_mostly_bad_has_no_margin() -> None:
    assert told(9, 12).margin is None
    assert told(12, 12).promote == 0.0


def test_more_flags_need_a_wider_margin() -> None:
    three = replace(QUICK, flags=tuple(Flag(f"f{number}", ("check",)) for number in range(3)))
    one, more = told(1, 12, QUICK).margin, told(1, 12, three).margin
    assert one is not None and more is not None and more > one


def test_without_a_prefill_nothing_is_known() -> None:
    assert healthy_rate(0, 0, STANDARD, 12) is None
    with pytest.raises(ValueError, match="bad"):
        healthy_rate(2, 1, STANDARD, 12)
