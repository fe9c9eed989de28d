"""What a plan costs, and every warning that it may not work, on both sides of its boundary."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillgate.core.acceptance import QUICK, STANDARD, STRICT, AcceptanceTable, power
from prefillgate.core.journal import CaseRef
from prefillgate.core.planning import (
    PrefillCost,
    baseline_warning,
    expected_prefills,
    pairable_cases,
    plan_warnings,
    promotion_power,
)
from prefillgate.core.policy import Flag, Policy


def flags(count: int) -> tuple[Flag, ...]:
    return tuple(Flag(f"f{i}", ("check",)) for i in range(count))


def cases(count: int, max_tokens: int | None = None, greedy: bool = True) -> tuple[CaseRef, ...]:
    return tuple(CaseRef(f"c{i}", "sha", 100, max_tokens, greedy) for i in range(count))


# Cost


@pytest.mark.parametrize(("policy", "total"), [(QUICK, 38), (STANDARD, 54), (STRICT, 89)])
def test_a_clean_run_over_twelve_prompts_costs_what_the_page_says(policy: Policy, total: int) -> None:
    cost = expected_prefills(policy, 12)
    assert cost == PrefillCost(8, 0, policy.acceptance[0], 12, 2, policy.budget, 8, 60)
    assert cost.total == total
    assert cost.with_replicate == (total + 8, total + 60)


def test_the_instrument_check_passes_over_every_prompt_twice() -> None:
    cost = expected_prefills(replace(STANDARD, aa_check=True), 12)
    assert (cost.baseline_pass, cost.second_pass, cost.total) == (12, 12, 70)


def test_the_cost_follows_the_number_of_prompts() -> None:
    small = expected_prefills(STANDARD, 3)
    assert (small.baseline_pass, small.candidate, small.pair_halves, small.warm_up) == (3, 32, 6, 2)
    large = expected_prefills(STANDARD, 48)
    assert (large.baseline_pass, large.candidate, large.pair_halves, large.warm_up) == (8, 48, 12, 2)
    assert expected_prefills(replace(STANDARD, acceptance=(5,)), 7).candidate == 7
    assert expected_prefills(replace(STANDARD, acceptance=(5,)), 3).candidate == 6


@pytest.mark.parametrize(("pairable", "halves", "warm_up"), [(0, 0, 0), (1, 6, 2), (6, 6, 2), (7, 7, 2), (13, 12, 2)])
def test_the_pairs_are_those_the_prompts_can_give(pairable: int, halves: int, warm_up: int) -> None:
    cost = expected_prefills(STANDARD, 20, pairable)
    assert (cost.pair_halves, cost.warm_up) == (halves, warm_up)


def test_reported_throughput_pairs_each_prompt_once_and_none_costs_nothing() -> None:
    reported = replace(STANDARD, throughput=replace(STANDARD.throughput, required=False))
    assert expected_prefills(reported, 3).pair_halves == 3
    none = replace(STANDARD, throughput=replace(STANDARD.throughput, required=False, max_pairs=0))
    assert expected_prefills(none, 12).total == 40
    few = replace(STANDARD, throughput=replace(STANDARD.throughput, max_pairs=4))
    assert expected_prefills(few, 12).pair_halves == 4


def test_a_run_needs_a_prompt() -> None:
    with pytest.raises(ValueError, match="prompts must be at least 1, got 0"):
        expected_prefills(STANDARD, 0)
    assert expected_prefills(STANDARD, 1).baseline_pass == 1


# Power


@pytest.mark.parametrize("policy", [QUICK, STANDARD, STRICT])
@pytest.mark.parametrize("rate", [0.0, 0.01, 0.02, 0.05, 0.10, 1.0])
def test_with_one_flag_the_power_is_that_of_the_table(policy: Policy, rate: float) -> None:
    table = AcceptanceTable(policy.margin, policy.alpha, policy.acceptance)
    assert promotion_power(policy, rate) == pytest.approx(power(table, rate).promote, abs=1e-12)
    assert promotion_power(policy, rate, 12) == pytest.approx(power(table, rate).promote, abs=1e-12)


def by_walking(policy: Policy, rate: float, prompts: int) -> float:
    """The same by walking every joint state of two independent flags, unit by unit."""
    known = {max(entry, prompts): allowed for allowed, entry in enumerate(policy.acceptance)}
    running, promoted = {(0, 0): 1.0}, 0.0
    for units in range(1, max(known) + 1):
        after: dict[tuple[int, int], float] = {}
        for (one, two), chance in running.items():
            for x in (0, 1):
                for y in (0, 1):
                    weight = chance * (rate if x else 1 - rate) * (rate if y else 1 - rate)
                    after[(one + x, two + y)] = after.get((one + x, two + y), 0.0) + weight
        running = after
        if units in known:
            ended = {state: chance for state, chance in running.items() if max(state) <= known[units]}
            promoted += sum(ended.values())
            running = {state: chance for state, chance in running.items() if state not in ended}
    return promoted


@pytest.mark.parametrize("prompts", [1, 60])
@pytest.mark.parametrize("rate", [0.05])
def test_two_flags_must_meet_the_table_at_one_and_the_same_n(prompts: int, rate: float) -> None:
    two = replace(STANDARD, flags=flags(2))
    assert promotion_power(two, rate, prompts) == pytest.approx(by_walking(two, rate, prompts), abs=1e-12)


def test_more_flags_promote_less() -> None:
    chances = [promotion_power(replace(STANDARD, flags=flags(count)), 0.01) for count in (1, 2, 3, 8)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == pytest.approx(0.9698, abs=5e-5)
    assert chances[3] == pytest.approx(0.75, abs=0.005)


def test_with_more_prompts_than_the_last_entry_one_look_is_left() -> None:
    at_80 = sum(c * 0.02**k * 0.98 ** (80 - k) for k, c in enumerate((1, 80, 3160)))
    assert promotion_power(STANDARD, 0.02, 80) == pytest.approx(at_80)


@pytest.mark.parametrize(("budget", "entries"), [(40, 1), (63, 1), (64, 2), (82, 2), (83, 3)])
def test_entries_beyond_the_budget_and_the_baseline_pass_are_out_of_reach(budget: int, entries: int) -> None:
    reached = replace(STANDARD, acceptance=STANDARD.acceptance[:entries])
    limited = promotion_power(replace(STANDARD, budget=budget), 0.03, 12)
    assert limited == pytest.approx(promotion_power(reached, 0.03, 12))
    assert promotion_power(replace(STANDARD, budget=39), 0.0, 12) == 0.0
    assert promotion_power(replace(STANDARD, budget=33, baseline_pass=8), 0.0, 1) == pytest.approx(1)
    assert promotion_power(replace(STANDARD, budget=33), 0.0) == pytest.approx(1)  # one prompt, one baseline cell
    assert promotion_power(replace(STANDARD, budget=32), 0.0) == 0.0


@settings(max_examples=30)
@given(st.floats(0, 1), st.integers(1, 90))
def test_a_power_is_a_chance(rate: float, prompts: int) -> None:
    assert -1e-9 <= promotion_power(replace(STANDARD, flags=flags(2)), rate, prompts) <= 1 + 1e-9


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="rate"):
        promotion_power(STANDARD, 1.5)
    long = replace(STANDARD, acceptance=tuple(range(32, 45)))
    with pytest.raises(ValueError, match="a table of 13 entries is too long to plan with; 12 is the most"):
        promotion_power(long, 0.01)
    assert 0.99 < promotion_power(replace(long, acceptance=long.acceptance[:12]), 0.01) <= 1


# Warnings


FEW = "12 prompts: the answer will speak of these prompts, not of a population of prompts (48 or more)."


@pytest.mark.parametrize("policy", [QUICK, STANDARD, STRICT])
def test_the_named_profiles_are_only_warned_of_few_prompts(policy: Policy) -> None:
    assert plan_warnings(policy, cases(12)) == (FEW,)
    assert plan_warnings(policy, cases(48)) == ()
    assert len(plan_warnings(policy, cases(47))) == 1


def test_a_plan_a_healthy_candidate_fails_is_told_with_the_margin_that_works() -> None:
    assert plan_warnings(replace(STANDARD, healthy_rate=0.05), cases(48))[0] == (
        "P(promote) is 0.32 for a healthy candidate (bad rate 5 %), below 0.8; a margin of 23 % would reach it."
    )
    assert plan_warnings(replace(STANDARD, flags=flags(8)), cases(12))[0] == (
        "P(promote) is 0.75 for a healthy candidate (bad rate 1 % under each of 8 flags), below 0.8; "
        "a margin of 11 % would reach it."
    )
    assert plan_warnings(replace(STANDARD, healthy_rate=0.7), cases(48))[0].endswith("; no margin reaches it.")
    two = replace(STANDARD, healthy_rate=0.05, flags=flags(2))
    assert "(bad rate 5 % under each of 2 flags)" in plan_warnings(two, cases(48))[0]


def test_entries_that_are_worse_than_the_usual_ones_are_told_so() -> None:
    assert plan_warnings(replace(STANDARD, acceptance=(32,)), cases(48))[0] == (
        "P(promote) is 0.62 for a healthy candidate (bad rate 1 %), below 0.8; "
        "the usual entries for this margin and a budget beyond them would reach it."
    )


def test_the_smallest_margin_that_works_is_no_other_margin() -> None:
    least = replace(STANDARD, margin=0.05, acceptance=(59,))
    assert plan_warnings(least, cases(48))[0].endswith(
        "; the usual entries for this margin and a budget beyond them would reach it."
    )


def test_the_warning_begins_below_four_fifths() -> None:
    rates = [0.0236, 0.0237, 0.0238, 0.0239, 0.024]
    for rate in rates:
        warned = bool(plan_warnings(replace(STANDARD, healthy_rate=rate), cases(48)))
        assert warned is (promotion_power(STANDARD, rate, 48) < 0.8)


def test_a_power_of_exactly_four_fifths_is_enough() -> None:
    exact = replace(
        STANDARD, acceptance=(1,), healthy_rate=0.2, throughput=replace(STANDARD.throughput, required=False)
    )
    assert promotion_power(exact, 0.2) == 0.8
    assert not any("P(promote)" in warning for warning in plan_warnings(exact, cases(1)))
    assert baseline_warning(1, 5, exact) is None


def test_too_few_prompts_for_pairs_are_told() -> None:
    short = (*cases(3, 31), *cases(9, 32))
    assert pairable_cases(STANDARD, short) == 9
    assert plan_warnings(STANDARD, short) == (
        "3 of 12 prompts may write fewer than 32 tokens and give no throughput pair: the speed will be judged on 9 "
        "prompts alone.",
        FEW,
    )
    assert plan_warnings(STANDARD, cases(12, 31))[0] == (
        "12 of 12 prompts may write fewer than 32 tokens and give no throughput pair: decode speed stays open and "
        "nothing is promoted."
    )
    assert plan_warnings(STANDARD, (*cases(12, 32), *cases(40, 8))) == ()
    reported = replace(STANDARD, throughput=replace(STANDARD.throughput, required=False))
    assert plan_warnings(reported, short) == (FEW,)


@pytest.mark.parametrize(("budget", "warned"), [(100, False), (92, False), (91, True), (82, True), (81, True)])
def test_a_budget_without_room_for_a_replicate_is_told(budget: int, warned: bool) -> None:
    quick = replace(QUICK, budget=budget)
    found = plan_warnings(quick, cases(60))
    assert bool(found) is warned
    if 82 <= budget < 92:
        assert found == (
            f"The budget of {budget} prefills leaves {budget - 82} beside the 82 of a run with nothing bad; "
            "a replicate needs 10, so a late alarm would end in hold.",
        )
    if budget == 81:
        assert found == ("The budget of 81 prefills ends before the 82 that a run with nothing bad spends.",)


def test_later_replicates_and_more_flags_need_more_of_the_budget() -> None:
    quick = replace(QUICK, budget=92)
    assert plan_warnings(quick, cases(60)) == ()
    assert "a replicate needs 12" in plan_warnings(quick, cases(60), first_replicate=2)[0]
    assert "a replicate needs 12" in plan_warnings(replace(quick, flags=flags(2)), cases(60))[0]


def test_sampled_prompts_are_told() -> None:
    mixed = (*cases(47), *cases(1, greedy=False))
    assert plan_warnings(STANDARD, mixed) == (
        "1 of 48 prompts are sampled at a temperature above 0: a healthy server fails more of them, and identical "
        "output cannot be claimed.",
    )


# The measured baseline


def test_a_bad_baseline_makes_promotion_unlikely_and_names_the_margin_that_works() -> None:
    assert baseline_warning(1, 8, STANDARD) == (
        "The baseline itself was bad in 1 of 8 prefills: a candidate just as good is promoted with a chance of 0.02 "
        "only, below 0.8; a margin of 48 % would reach it."
    )
    assert baseline_warning(8, 8, STANDARD) is not None


def test_a_baseline_good_enough_is_no_reason_to_warn() -> None:
    assert baseline_warning(0, 8, STANDARD) is None
    assert baseline_warning(0, 0, STANDARD) is None
    assert baseline_warning(1, 100, STANDARD) is None
    assert baseline_warning(1, 1000, replace(STANDARD, budget=33)) is None
    assert baseline_warning(1, 1000, replace(STANDARD, budget=32)) is not None
    assert baseline_warning(1, 42, STANDARD) is not None
    assert baseline_warning(1, 50, STANDARD) is None
    assert baseline_warning(1, 50, STANDARD, prompts=80) is not None


@pytest.mark.parametrize(("bad", "units"), [(-1, 8), (9, 8)])
def test_impossible_counts_are_refused(bad: int, units: int) -> None:
    with pytest.raises(ValueError, match=f"bad must be from 0 to units, got {bad} of {units}"):
        baseline_warning(bad, units, STANDARD)
