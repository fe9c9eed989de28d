"""The acceptance tables of STATISTICS.md section 2, to the printed digits."""

from __future__ import annotations

import itertools
import math

import pytest

from prefillgate.core import acceptance
from prefillgate.core.acceptance import AcceptanceTable, find_table


def table(name: str) -> AcceptanceTable:
    policy = acceptance.NAMED_POLICIES[name]
    return AcceptanceTable(policy.margin, policy.alpha, policy.acceptance)


@pytest.mark.parametrize(
    ("name", "margin", "entries", "budget", "error"),
    [
        ("quick", 0.20, (16, 25, 35), 150, 0.04995226558545358),
        ("standard", 0.10, (32, 56, 75), 200, 0.04984889438404841),
        ("strict", 0.05, (67, 105, 175), 300, 0.04999215430536153),
    ],
)
def test_named_profiles_have_the_printed_entries_and_error(
    name: str, margin: float, entries: tuple[int, ...], budget: int, error: float
) -> None:
    policy = acceptance.NAMED_POLICIES[name]
    assert (policy.name, policy.margin, policy.alpha, policy.acceptance, policy.budget) == (
        name,
        margin,
        0.05,
        entries,
        budget,
    )
    assert acceptance.false_promotion(table(name)) == pytest.approx(error, rel=1e-13)
    assert find_table(margin, 0.05) == table(name)
    assert find_table(margin, 0.05, cap=entries[-1]) == table(name)


@pytest.mark.parametrize(
    ("name", "rate", "promote", "expected"),
    [
        ("standard", 0.01, 0.969783736061098, 39.6142072030577),
        ("standard", 0.02, 0.850252625190864, 44.565277190335536),
        ("quick", 0.01, 0.9961143596846249, 17.526159559646857),
        ("quick", 0.02, 0.975063046702378, 19.014590221486234),
        ("strict", 0.01, 0.8291669059627926, 91.52834331442004),
        ("strict", 0.02, 0.4799713660665456, 91.97437189449484),
        ("standard", 0.0, 1.0, 32.0),
        ("standard", 1.0, 0.0, 3.0),
    ],
)
def test_power_and_expected_units_are_exact(name: str, rate: float, promote: float, expected: float) -> None:
    power = acceptance.power(table(name), rate)
    assert (power.rate, power.promote, power.expected_prefills) == (
        rate,
        pytest.approx(promote, rel=1e-13),
        pytest.approx(expected, rel=1e-13),
    )


def test_the_program_agrees_with_all_paths_of_a_small_table() -> None:
    small, rate = AcceptanceTable(0.4, 0.5, (3, 5)), 0.4
    promote = units = 0.0
    for path in itertools.product((0, 1), repeat=5):
        chance = math.prod(rate if bad else 1 - rate for bad in path)
        stop = next((n for n in range(1, 6) if sum(path[:n]) > 1 or (n == 3 and sum(path[:n]) == 0)), 5)
        units += chance * stop
        promote += chance * (sum(path[:stop]) <= 1)
    power = acceptance.power(small, rate)
    assert power.promote == pytest.approx(promote, rel=1e-14)
    assert power.expected_prefills == pytest.approx(units, rel=1e-14)


@pytest.mark.parametrize(
    ("margin", "expected"), [(0.10, [29, 46, 61, 76]), (0.20, [14, 22, 30, 37]), (0.05, [59, 93, 124, 153])]
)
def test_one_look_needs_the_printed_units(margin: float, expected: list[int]) -> None:
    assert [acceptance.fixed_sample_units(margin, 0.05, bad) for bad in range(4)] == expected


@pytest.mark.parametrize(
    ("margin", "alpha", "cap", "entries"),
    [
        (0.10, 0.05, 74, (32, 57, 74)),
        (0.10, 0.05, 61, (48, 60, 61)),
        (0.10, 0.05, 47, (37, 47)),
        (0.10, 0.05, 46, (40, 46)),
        (0.10, 0.05, 40, (29,)),
        (0.10, 0.05, 29, (29,)),
        (0.20, 0.05, 34, (15, 31, 34)),
        (0.05, 0.05, 174, (66, 110, 160)),
        (0.15, 0.05, None, (20, 37, 54)),
        (0.10, 0.01, None, (47, 74, 100)),
        (0.24, 0.05, None, (11, 30, 43)),
        (0.30, 0.05, None, (9, 17, 29)),
        (0.50, 0.5, None, (2, 4, 6)),
        (0.90, 0.5, None, (1, 2, 3)),
        (0.90, 0.5, 1, (1,)),
        (0.5, 0.25, None, (3, 5, 9)),
        (0.02, 0.05, None, (170, 273, 404)),
        (0.02, 0.05, 400, (173, 269, 398)),
        (0.02, 0.0484, None, (174, 272, 401)),
        (0.01, 0.05, None, (344, 546, 803)),
        (0.01, 0.001, 1200, (795, 990, 1200)),
    ],
)
def test_other_numbers_are_answered_by_search(
    margin: float, alpha: float, cap: int | None, entries: tuple[int, ...]
) -> None:
    found = find_table(margin, alpha, cap)
    assert found.entries == entries
    assert (found.margin, found.alpha) == (margin, alpha)
    assert acceptance.false_promotion(found) <= alpha


def test_the_search_finds_what_trying_every_table_finds() -> None:
    margin, alpha, cap = 0.3, 0.1, 16
    valid = [
        AcceptanceTable(margin, alpha, entries)
        for entries in itertools.combinations(range(1, cap + 1), 3)
        if entries[0] >= 1 and entries[1] >= 2 and entries[2] >= 3
    ]
    valid = [candidate for candidate in valid if acceptance.false_promotion(candidate) <= alpha]
    cheapest = min(valid, key=lambda candidate: acceptance.power(candidate, 0.01).expected_prefills)
    assert find_table(margin, alpha, cap) == cheapest


def test_one_look_may_spend_its_error_to_the_last_bit() -> None:
    assert acceptance.fixed_sample_units(0.5, 0.5, 0) == 1
    assert acceptance.fixed_sample_units(0.5, 0.5, 1) == 3
    assert acceptance.fixed_sample_units(0.5, 0.49, 1) == 4


def test_fewer_bad_units_may_be_allowed() -> None:
    assert find_table(0.10, 0.05, bad_allowed=0).entries == (29,)
    assert find_table(0.10, 0.05, bad_allowed=1).entries == (30, 58)
    assert find_table(0.5, 0.375, bad_allowed=1).entries == (2, 4)  # its error is 3/8 to the last bit


def test_the_affordable_margin_is_the_first_whole_percent_with_the_power() -> None:
    margin = acceptance.affordable_margin(0.02, 0.8, 0.05)
    assert margin == 0.09
    assert acceptance.power(find_table(margin, 0.05), 0.02).promote >= 0.8
    assert acceptance.power(find_table(round(margin - 0.01, 2), 0.05), 0.02).promote < 0.8
    assert acceptance.affordable_margin(0.02, 0.8, 0.05, cap=30) == 0.15
    assert acceptance.affordable_margin(1.0, 0.8, 0.05) is None
    assert acceptance.affordable_margin(0.5, 0.87, 0.05) == 0.99
    assert acceptance.affordable_margin(0.5, 0.88, 0.05) is None
    assert acceptance.affordable_margin(0.0, 1.0, 0.05, cap=300) == 0.01
    assert acceptance.affordable_margin(0.0, 1.0, 0.05, cap=299) == 0.01
    assert acceptance.affordable_margin(0.0, 1.0, 0.05, cap=298) == 0.02


@pytest.mark.parametrize(
    ("units", "bad", "prompts", "needed"),
    [
        (32, 0, 12, 0),
        (31, 0, 12, 1),
        (56, 1, 12, 0),
        (55, 1, 12, 1),
        (75, 2, 12, 0),
        (74, 2, 12, 1),
        (10, 2, 12, 65),
        (0, 0, 0, 32),
        (90, 0, 100, 10),
        (99, 2, 100, 1),
        (100, 2, 100, 0),
        (100, 3, 12, None),
        (32, 0, 33, 1),
    ],
)
def test_the_road_to_promotion_is_counted_in_clean_units(
    units: int, bad: int, prompts: int, needed: int | None
) -> None:
    standard = table("standard")
    assert acceptance.more_clean_units_needed(standard, units, bad, prompts) == needed
    assert acceptance.promotes(standard, units, bad, prompts) is (needed == 0)


def test_a_log_nobody_planned_spreads_its_units_over_the_prompts() -> None:
    assert acceptance.unplanned_units(32, 12) == 3
    assert acceptance.unplanned_units(36, 12) == 3
    assert acceptance.unplanned_units(37, 12) == 4
    assert acceptance.unplanned_units(32, 1) == 32


def test_a_table_knows_its_last_entry_and_its_bad_units() -> None:
    assert (table("quick").last, table("quick").bad_allowed) == (35, 2)


def test_the_smallest_sample_meets_alpha_exactly_at_powers() -> None:
    assert acceptance.smallest_units(0.5, 0.25) == 2
    assert acceptance.smallest_units(0.5, 0.2499) == 3
    assert acceptance.smallest_units(0.2, math.nextafter(0.8**10, 0)) == 11  # where it rounds down to 10
    assert acceptance.smallest_units(0.01, (1 - 0.01) ** 69) == 69  # where the logarithms' ratio rounds above 69
    assert acceptance.smallest_units(0.5, 0.5) == 1
    assert acceptance.smallest_units(0.9, 0.5) == 1
    assert acceptance.smallest_units(0.0003, 0.05) == 9985
    assert acceptance.smallest_units(-math.expm1(math.log(0.05) / 10_000), 0.05) == 10_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_table(0.0, 0.05), "margin must be above 0 and below 1, got 0.0"),
        (lambda: find_table(1.0, 0.05), "margin must be above 0 and below 1, got 1.0"),
        (lambda: find_table(math.nan, 0.05), "margin must be above 0 and below 1, got nan"),
        (lambda: find_table(None, 0.05), "margin must be a number, got None"),  # type: ignore[arg-type]
        (lambda: find_table(True, 0.05), "margin must be a number, got True"),
        (lambda: find_table(0.1, 0.0), "alpha must be above 0 and at most 0.5, got 0.0"),
        (lambda: find_table(0.1, 0.501), "alpha must be above 0 and at most 0.5, got 0.501"),
        (lambda: find_table(0.1, 0.05, 28), "cap 28 is below 29, the smallest possible at margin 0.1, alpha 0.05"),
        (lambda: find_table(0.1, 0.05, 0), "cap must be a whole number of at least 1, got 0"),
        (lambda: find_table(0.1, 0.05, True), "cap must be a whole number of at least 1, got True"),
        (lambda: find_table(0.1, 0.05, 40.0), "cap must be a whole number of at least 1, got 40.0"),  # type: ignore[arg-type]
        (lambda: find_table(0.1, 0.05, None, 3), "bad_allowed must be a whole number from 0 to 2, got 3"),
        (lambda: find_table(0.1, 0.05, None, -1), "bad_allowed must be a whole number from 0 to 2, got -1"),
        (
            lambda: find_table(0.000299, 0.05),
            "margin 0.000299 needs more than 10000 prefills at alpha 0.05; at least 0.000300 is possible",
        ),
        (
            lambda: find_table(1e-300, 0.05),
            "margin 1e-300 needs more than 10000 prefills at alpha 0.05; at least 0.000300 is possible",
        ),
        (lambda: acceptance.power(table("quick"), 1.01), "rate must be from 0 to 1, got 1.01"),
        (lambda: acceptance.power(table("quick"), -0.01), "rate must be from 0 to 1, got -0.01"),
        (lambda: acceptance.affordable_margin(2, 0.8, 0.05), "rate must be from 0 to 1, got 2"),
        (lambda: acceptance.affordable_margin(0.1, 2, 0.05), "rate must be from 0 to 1, got 2"),
        (lambda: AcceptanceTable(0.1, 0.05, ()), "acceptance must be rising whole numbers of at least 1, got []"),
        (
            lambda: AcceptanceTable(0.1, 0.05, (0, 1)),
            "acceptance must be rising whole numbers of at least 1, got [0, 1]",
        ),
        (
            lambda: AcceptanceTable(0.1, 0.05, (9, 9)),
            "acceptance must be rising whole numbers of at least 1, got [9, 9]",
        ),
        (lambda: AcceptanceTable(0.0, 0.05, (9,)), "margin must be above 0 and below 1, got 0.0"),
        (lambda: AcceptanceTable(0.1, 0.6, (9,)), "alpha must be above 0 and at most 0.5, got 0.6"),
        (
            lambda: acceptance.fixed_sample_units(0.1, 0.05, -1),
            "bad_allowed must be a whole number of at least 0, got -1",
        ),
        (
            lambda: acceptance.more_clean_units_needed(table("quick"), -1, 0, 1),
            "units must be a whole number of at least 0, got -1",
        ),
        (lambda: acceptance.promotes(table("quick"), 1, -1, 1), "bad must be a whole number of at least 0, got -1"),
        (lambda: acceptance.promotes(table("quick"), 1, 0, -1), "prompts must be a whole number of at least 0, got -1"),
        (lambda: acceptance.unplanned_units(32, 0), "prompts must be a whole number of at least 1, got 0"),
    ],
)
def test_impossible_numbers_are_named(call: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()  # type: ignore[operator]
    assert str(caught.value) == message
