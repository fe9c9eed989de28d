"""The ways out of a plan over so many minutes: each with its numbers, fitting or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD, AcceptanceTable, power
from prefillgate.core.fitting import TimedPlan, Way, affordable_table, affordable_units, ways_to_fit
from prefillgate.core.minutes import Paces, Span, even_pace
from prefillgate.core.policy import Flag, Policy
from prefillgate.core.shape import Shape

MINUTE = Paces(even_pace(60), even_pace(60))  # a plan takes as many minutes as it has prefills


def plan(policy: Policy = STANDARD, prompts: int = 12, shape: Shape | None = None) -> TimedPlan:
    return TimedPlan(policy, prompts, prompts, shape or Shape(), MINUTE)


def ways(minutes: float, timed: TimedPlan | None = None) -> dict[str, Way]:
    return {way.name: way for way in ways_to_fit(timed or plan(), minutes)}


def told(way: Way) -> tuple[str, float, bool]:
    return way.change, round(way.minutes.likely, 9), way.fits


def test_a_plan_decides_in_what_it_likely_takes() -> None:
    assert plan().cost.total == 54
    assert plan().minutes == Span(54, 54, 54)
    assert plan().decides_in(54) and not plan().decides_in(53.999)
    uneven = replace(plan(), paces=Paces(Span(1, 60, 600), Span(1, 60, 600)))
    assert uneven.decides_in(54) and not uneven.decides_in(53.999)


def test_every_way_out_is_named_in_order() -> None:
    named = [way.name for way in ways_to_fit(plan(), 45)]
    assert named == ["fewer cases", "a wider margin", "throughput: Report", "candidate alone", "lanes"]


# Fewer cases


def test_the_most_cases_that_fit_are_kept() -> None:
    # 32 candidate prefills, 7 baseline, 7 halves, 2 warm-up with seven prompts; one more costs two.
    assert told(ways(48)["fewer cases"]) == ("7 of 12", 48, True)
    assert told(ways(49)["fewer cases"]) == ("7 of 12", 48, True)
    assert told(ways(53)["fewer cases"]) == ("11 of 12", 53, True)


def test_where_not_even_one_case_fits_it_is_told_what_one_takes() -> None:
    assert told(ways(41)["fewer cases"]) == ("1 of 12", 41, True)
    assert told(ways(40.9)["fewer cases"]) == ("1 of 12", 41, False)


def test_fewer_are_fewer_even_where_all_would_fit() -> None:
    assert told(ways(60)["fewer cases"]) == ("11 of 12", 53, True)


def test_one_case_cannot_become_fewer() -> None:
    assert "fewer cases" not in ways(10, plan(prompts=1))
    assert told(ways(10, plan(prompts=2))["fewer cases"]) == ("1 of 2", 41, False)


def test_cases_that_give_no_pair_are_no_more_than_the_cases() -> None:
    some = replace(plan(), pairable=3)
    assert told(ways(47, some)["fewer cases"]) == ("7 of 12", 47, True)  # 32, 7 baseline, 6 halves, 2 warm-up


# A wider margin


def test_the_smallest_margin_that_fits_promotes_a_healthy_candidate_in_time() -> None:
    # 22 of the 54 prefills are not the candidate's, so 20 of 42 are.
    assert affordable_units(plan(), 42) == 20
    assert affordable_units(plan(), 42.999) == 20
    found = affordable_table(plan(), 42)
    assert found == AcceptanceTable(0.14, 0.05, (20,))
    assert power(found, 0.01).promote >= 0.8
    assert told(ways(42)["a wider margin"]) == (
        "14 %, promoted at 20 fresh prefills, instead of 10 %",
        42,
        True,
    )


def test_several_entries_are_told_where_they_fit() -> None:
    two_flags = replace(QUICK, flags=(Flag("a", ("x",)), Flag("b", ("y",))), margin=0.1, acceptance=(29,))
    found = affordable_table(plan(two_flags), 46)
    assert found is not None and found.entries[-1] <= 24
    assert power(found, 0.01).promote >= 0.8**0.5
    assert power(found, 0.01).promote ** 2 >= 0.8
    one_flag = affordable_table(plan(replace(two_flags, flags=QUICK.flags)), 46)
    assert one_flag is not None and one_flag.margin < found.margin


def test_no_margin_spares_a_prompt_its_prefill() -> None:
    # 12 prompts once, with their 12 baseline halves, a pass of 8 and the warm-up.
    assert affordable_units(plan(), 34) == 12
    assert affordable_units(plan(), 33.9) is None
    assert affordable_table(plan(), 33.9) is None
    assert told(ways(33.9)["a wider margin"]) == ("no margin: each prompt must run once", 34, False)


def test_one_prompt_alone_is_run_once() -> None:
    one = plan(prompts=1, shape=Shape(candidate_alone=True))
    assert affordable_units(one, 1) == 1
    assert affordable_units(one, 0.9) is None
    assert told(ways(0.9, one)["a wider margin"]) == ("no margin: each prompt must run once", 1, False)


def test_no_margin_promotes_what_is_bad_too_often() -> None:
    sick = plan(replace(STANDARD, healthy_rate=0.9))
    assert affordable_table(sick, 42) is None
    assert told(ways(42, sick)["a wider margin"]) == ("no margin: 20 prefills promote no healthy candidate", 34, False)


def test_a_table_of_the_same_margin_is_called_what_it_is() -> None:
    spared = plan(replace(STANDARD, healthy_rate=0.0))
    assert affordable_units(spared, 52) == 30
    found = ways(52, spared)
    assert "a wider margin" not in found
    assert told(found["another table"]) == ("for a margin of 10 %, promoted at 29 fresh prefills", 51, True)


def test_the_margin_is_sought_within_the_budget() -> None:
    assert affordable_units(plan(), 1000) == 200 - 22
    assert affordable_units(plan(replace(STANDARD, budget=40)), 1000) == 18
    assert affordable_units(plan(replace(STANDARD, budget=33)), 1000) is None


# Throughput, candidate alone, lanes


def test_reported_speed_saves_the_pairs_beyond_six() -> None:
    assert told(ways(48)["throughput: Report"]) == ("mode: Report with maxPairs: 6", 48, True)
    assert told(ways(47)["throughput: Report"]) == ("mode: Report with maxPairs: 6", 48, False)
    assert told(ways(10, plan(prompts=3))["throughput: Report"])[1] == 40  # 3 pairs instead of 6


def test_reported_speed_is_not_named_where_it_saves_nothing() -> None:
    assert "throughput: Report" not in ways(10, plan(prompts=6))
    assert "throughput: Report" not in ways(10, plan(shape=Shape(candidate_alone=True)))


def test_a_candidate_alone_costs_its_own_prefills() -> None:
    words = "without --baseline; no replicate and no throughput then"
    assert told(ways(32)["candidate alone"]) == (words, 32, True)
    assert told(ways(31)["candidate alone"]) == (words, 32, False)
    assert "candidate alone" not in ways(10, plan(shape=Shape(candidate_alone=True)))


def test_the_fewest_servers_that_suffice_are_named() -> None:
    both = "{0} servers of the baseline and {0} servers of the candidate"
    assert told(ways(53)["lanes"]) == (both.format(2), 4 + 10 + 7 + 7, True)
    assert told(ways(28)["lanes"]) == (both.format(2), 28, True)
    assert told(ways(27)["lanes"]) == (both.format(3), 3 + 7 + 5 + 5, True)
    assert told(ways(1)["lanes"]) == (both.format(16), 1 + 2 + 1 + 1, False)


def test_lanes_are_added_to_those_there_are() -> None:
    uneven = plan(shape=Shape(baseline_lanes=3, candidate_lanes=1))
    assert told(ways(27, uneven)["lanes"])[0] == "3 servers of the baseline and 2 servers of the candidate"
    alone = plan(shape=Shape(candidate_alone=True))
    assert told(ways(16, alone)["lanes"]) == ("2 servers of the candidate", 16, True)


def test_no_lanes_are_named_beyond_sixteen() -> None:
    full = plan(shape=Shape(baseline_lanes=16, candidate_lanes=16))
    assert "lanes" not in ways(1, full)
    nearly = plan(shape=Shape(baseline_lanes=16, candidate_lanes=15))
    assert ways(1, nearly)["lanes"].change == "16 servers of the baseline and 16 servers of the candidate"


def test_the_times_of_a_shape_decide() -> None:
    slow_baseline = replace(plan(), paces=Paces(even_pace(600), even_pace(6)))
    found = {way.name: way.fits for way in ways_to_fit(slow_baseline, 5)}
    assert found == {
        "fewer cases": False,
        "a wider margin": False,
        "throughput: Report": False,
        "candidate alone": True,
        "lanes": False,
    }
    assert ways_to_fit(slow_baseline, 5)[3].minutes.likely == pytest.approx(3.2)
