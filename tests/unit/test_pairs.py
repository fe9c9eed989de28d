"""From the journal's pairs to measurements, which place should be a pair, and the A/A passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CaseRef, Purpose, RunResumed
from prefillgate.core.pairs import (
    instrument_of,
    measured_cv,
    next_extra_pair,
    pair_measurements,
    pair_wanted,
    pairable_lengths,
    slow_units,
    throughput_standing,
    throughput_view,
)
from prefillgate.core.policy import Policy
from prefillgate.core.snapshot import acceptance_reached, clean_prefills_needed, take_snapshot
from prefillgate.core.verdict import ThroughputState
from tests.support.journals import cell, measure, score, started

TOKENS = 41  # 40 after the first


def policy(**throughput: Any) -> Policy:
    return replace(STANDARD, baseline_pass=0, throughput=replace(STANDARD.throughput, **throughput))


def half(
    gate: Gate, arm: str, case: str, pair: int, ms_per_token: float = 10.0, bad: bool = False, **changes: Any
) -> None:
    made = cell(arm, case, output_tokens=TOKENS, decode_ms=ms_per_token * (TOKENS - 1), **changes)
    score(gate, made, bad, Purpose.PAIR, pair=pair)


def both(gate: Gate, case: str, pair: int, baseline: float = 10.0, candidate: float = 10.0, **changes: Any) -> None:
    half(gate, BASELINE, case, pair, baseline, **changes)
    half(gate, CANDIDATE, case, pair, candidate, **changes)


# Measurements


def test_a_pair_is_measured_when_both_halves_are() -> None:
    gate = started(policy())
    half(gate, CANDIDATE, "c3", 0, 8.0)
    assert pair_measurements(gate) == []
    half(gate, BASELINE, "c3", 0, 10.0)
    (pair,) = pair_measurements(gate)
    assert (pair.pair, pair.case_id, pair.first_after_start) == (0, "c3", True)
    assert (pair.baseline_rate, pair.candidate_rate) == (pytest.approx(100), pytest.approx(125))
    assert (pair.baseline_ms_per_token, pair.candidate_ms_per_token) == (pytest.approx(10), pytest.approx(8))
    assert (pair.baseline_output_tokens, pair.candidate_output_tokens) == (TOKENS, TOKENS)
    assert (pair.baseline_fresh, pair.candidate_fresh) == (True, True)


def test_cells_outside_of_pairs_are_none() -> None:
    gate = started(policy())
    for arm in (BASELINE, CANDIDATE):
        score(gate, cell(arm), purpose=Purpose.SCREEN, pair=0)
        score(gate, cell(arm), purpose=Purpose.PAIR)
    assert pair_measurements(gate) == []


def test_only_the_first_pair_after_a_start_of_either_server_is_the_first() -> None:
    gate = started(policy())
    both(gate, "c0", 0)
    both(gate, "c1", 1)
    half(gate, BASELINE, "c2", 2)
    half(gate, CANDIDATE, "c2", 2, server_epoch="e2")
    half(gate, BASELINE, "c3", 3, server_epoch="e3")
    half(gate, CANDIDATE, "c3", 3, server_epoch="e2")
    half(gate, BASELINE, "c4", 4, server_epoch="e3")
    half(gate, CANDIDATE, "c4", 4, server_epoch="e2")
    assert [pair.first_after_start for pair in pair_measurements(gate)] == [True, False, True, True, False]


def test_pairs_stand_in_the_order_begun() -> None:
    gate = started(policy())
    half(gate, BASELINE, "c1", 1)
    both(gate, "c0", 0)
    half(gate, CANDIDATE, "c1", 1)
    assert [pair.pair for pair in pair_measurements(gate)] == [0, 1]


def test_a_half_that_failed_or_was_not_fresh_is_told() -> None:
    gate = started(policy())
    half(gate, BASELINE, "c0", 0)
    measure(gate, cell(CANDIDATE, "c0", status=Status.FAILED), Purpose.PAIR, pair=0)
    half(gate, BASELINE, "c1", 1, cached_tokens=None, cold_proof=None)
    half(gate, CANDIDATE, "c1", 1)
    first, second = pair_measurements(gate)
    assert (first.baseline_fresh, first.candidate_fresh, first.candidate_rate) == (True, False, None)
    assert (second.baseline_fresh, second.candidate_fresh) == (False, True)


def test_halves_of_two_sessions_are_not_adjacent_in_time() -> None:
    gate = started(policy())
    half(gate, BASELINE, "c0", 0)
    gate.apply(RunResumed(1.0))
    half(gate, CANDIDATE, "c0", 0)
    both(gate, "c1", 1)
    apart, together = pair_measurements(gate)
    assert (apart.baseline_fresh, apart.candidate_fresh) == (False, False)
    assert (together.baseline_fresh, together.candidate_fresh) == (True, True)


def test_output_digests_count_under_greedy_decoding_alone() -> None:
    cases = [CaseRef("a", "s", 10), CaseRef("b", "s", 10, greedy=False)]
    gate = started(policy(), cases=cases)
    both(gate, "a", 0, output_sha256="x")
    both(gate, "b", 1, output_sha256="y")
    greedy, sampled = pair_measurements(gate)
    assert (greedy.baseline_output_sha256, greedy.candidate_output_sha256) == ("x", "x")
    assert (sampled.baseline_output_sha256, sampled.candidate_output_sha256) == (None, None)


def test_only_cases_whose_limit_lets_them_give_a_pair_have_a_length() -> None:
    cases = [CaseRef("a", "s", 10, 31), CaseRef("b", "s", 20, 32), CaseRef("c", "s", 30, None)]
    assert pairable_lengths(started(policy(), cases=cases)) == {"b": 20, "c": 30}
    assert pairable_lengths(started(policy(min_output_tokens=33), cases=cases)) == {"c": 30}


# The standing


def run_pairs(gate: Gate, count: int, candidate: float = 9.0, first: int = 0) -> None:
    """Pairs over c0, c1, ... in turn."""
    cases = [case.case_id for case in gate.plan.cases]
    for pair in range(first, first + count):
        both(gate, cases[pair % len(cases)], pair, 10.0, candidate)


def test_without_pairs_nothing_is_compared() -> None:
    assert throughput_standing(started(policy(max_pairs=0))) == (ThroughputState.NOT_COMPARED, ())
    assert throughput_view(started(policy(max_pairs=0))).missing_prompts == ()
    assert throughput_view(started(policy(required=False))).missing_prompts == ()
    assert len(throughput_view(started(policy(max_pairs=1))).missing_prompts) == 12
    state, missing = throughput_standing(started(policy(max_pairs=1)))
    assert (state, len(missing)) == (ThroughputState.OPEN, 12)


def test_not_worse_waits_for_the_prompts_that_must_be_covered() -> None:
    gate = started(policy())
    run_pairs(gate, 12)
    assert throughput_standing(gate) == (ThroughputState.NOT_WORSE, ("c0",))  # the first pair is discarded
    assert take_snapshot(gate).throughput is ThroughputState.OPEN
    assert throughput_view(gate).state is ThroughputState.NOT_WORSE
    run_pairs(gate, 1, first=12)
    assert throughput_standing(gate) == (ThroughputState.NOT_WORSE, ())
    assert take_snapshot(gate).throughput is ThroughputState.NOT_WORSE
    assert throughput_view(gate).missing_prompts == ()


def test_worse_waits_for_nothing() -> None:
    gate = started(policy())
    run_pairs(gate, 9, candidate=13.0)
    state, missing = throughput_standing(gate)
    assert state is take_snapshot(gate).throughput is ThroughputState.WORSE
    assert missing == ("c11", "c10", "c9", "c0")


# Which place is a pair


def test_a_place_is_a_pair_until_the_speed_is_settled_and_its_prompt_covered() -> None:
    gate = started(policy())
    assert pair_wanted(gate, "c5") is True
    run_pairs(gate, 3)
    assert pair_wanted(gate, "c1") is True  # covered, but the speed is open
    run_pairs(gate, 9, first=3)
    assert pair_wanted(gate, "c0") is True  # its pair was discarded
    assert pair_wanted(gate, "c5") is False
    run_pairs(gate, 1, first=12)
    assert pair_wanted(gate, "c0") is False


def test_without_a_requirement_a_prompt_is_paired_once() -> None:
    gate = started(policy(required=False))
    run_pairs(gate, 3, candidate=10.0)
    assert pair_wanted(gate, "c0") is True
    assert pair_wanted(gate, "c1") is False
    assert pair_wanted(gate, "c4") is True


def test_only_prompts_of_the_coverage_are_paired_and_only_while_pairs_are_left() -> None:
    cases = [CaseRef(f"c{i}", "s", 10 + i) for i in range(3)] + [CaseRef("short", "s", 99, 8)]
    gate = started(policy(max_prompts=2, max_pairs=2), cases=cases)
    assert [pair_wanted(gate, case.case_id) for case in cases] == [True, False, True, False]
    both(gate, "c0", 0)
    assert pair_wanted(gate, "c0") is True
    both(gate, "c2", 1)
    assert [pair_wanted(gate, case.case_id) for case in cases] == [False] * 4


def test_a_pair_out_of_turn_takes_a_prompt_that_is_missing_first() -> None:
    gate = started(policy())
    run_pairs(gate, 12)
    assert next_extra_pair(gate) == "c0"
    run_pairs(gate, 1, first=12)
    assert next_extra_pair(gate) is None


def test_then_the_coverage_prompts_in_turn_while_the_speed_is_open() -> None:
    gate = started(policy(max_pairs=15), cases=3)
    run_pairs(gate, 4, candidate=10.3)
    assert throughput_standing(gate) == (ThroughputState.OPEN, ())
    assert next_extra_pair(gate) == "c1"  # four begun, longest first: c2, c1, c0
    run_pairs(gate, 1, candidate=10.6, first=4)
    assert next_extra_pair(gate) == "c0"
    run_pairs(gate, 9, candidate=10.6, first=5)
    assert gate.places.pairs_begun == 14
    assert next_extra_pair(gate) == "c0"
    run_pairs(gate, 1, candidate=10.6, first=14)
    assert next_extra_pair(gate) is None


def test_no_pair_out_of_turn_where_throughput_is_only_reported_or_cannot_be_had() -> None:
    assert next_extra_pair(started(policy(required=False))) is None
    assert next_extra_pair(started(policy(), cases=[CaseRef("a", "s", 10, 8)])) is None


# The A/A passes


def aa_gate(rates: list[tuple[float, float]], **throughput: Any) -> Gate:
    """Both passes over the baseline, one case per pair of milliseconds per token."""
    gate = started(replace(policy(**throughput), aa_check=True), cases=len(rates))
    for which, purpose in enumerate((Purpose.BASELINE_PASS, Purpose.AA)):
        for i, pair in enumerate(rates):
            made = cell(
                BASELINE,
                f"c{i}",
                output_tokens=TOKENS,
                decode_ms=pair[which] * (TOKENS - 1),
                output_sha256=f"{i}" if i else f"{which}",
            )
            score(gate, made, purpose=purpose)
    return gate


def test_the_second_pass_is_held_against_the_first() -> None:
    gate = aa_gate([(10.0, 10.0), (10.0, 8.0), (5.0, 5.0)])
    check = instrument_of(gate)
    assert check.pairs == 3
    assert check.identical_share == pytest.approx(2 / 3)
    assert check.baseline.rates == {
        "c0": (pytest.approx(100), pytest.approx(100)),
        "c1": (pytest.approx(100), pytest.approx(125)),
        "c2": (pytest.approx(200), pytest.approx(200)),
    }


def test_before_the_second_pass_there_is_nothing_to_hold() -> None:
    gate = started(policy())
    score(gate, cell(BASELINE), purpose=Purpose.BASELINE_PASS)
    assert instrument_of(gate).pairs == 0
    score(gate, cell(BASELINE, "c1"), purpose=Purpose.AA)
    assert instrument_of(gate).pairs == 0


def test_outcomes_of_the_passes_keep_their_sides() -> None:
    gate = started(policy(), cases=2)
    for purpose in (Purpose.BASELINE_PASS, Purpose.AA):
        for case in ("c0", "c1"):
            score(gate, cell(BASELINE, case), purpose is Purpose.AA, purpose)
    check = instrument_of(gate)
    assert check.e_second_worse == pytest.approx(5.58, abs=0.005)
    assert check.e_first_worse == 1.0


@pytest.mark.parametrize("which", [Purpose.BASELINE_PASS, Purpose.AA])
def test_of_a_pass_cell_that_was_not_fresh_nothing_is_known(which: Purpose) -> None:
    gate = started(policy(), cases=1)
    for purpose in (Purpose.BASELINE_PASS, Purpose.AA):
        changes: dict[str, Any] = {"cached_tokens": None, "cold_proof": None} if purpose is which else {}
        made = cell(BASELINE, output_tokens=TOKENS, decode_ms=400.0, output_sha256="x", **changes)
        score(gate, made, purpose is Purpose.AA, purpose)
    check = instrument_of(gate)
    assert (check.pairs, check.e_second_worse, check.identical_share) == (1, 1.0, None)
    assert check.baseline.rates == {"c0": (pytest.approx(100),)}


def test_the_cell_variation_is_known_once_both_passes_ended() -> None:
    gate = aa_gate([(10.0, 10.0), (20.0, 22.0), (5.0, 4.5)])
    assert measured_cv(gate) == pytest.approx(0.071067, abs=5e-7)
    gate.places.second_walk.next = 2
    assert measured_cv(gate) is None
    assert measured_cv(started(policy())) is None
    assert measured_cv(aa_gate([(10.0, 10.0)])) is None


SOUND = [(10.0, 10.0)] * 10


def slow_cells(gate: Gate, *ms_per_token: float, **changes: Any) -> None:
    for value in ms_per_token:
        made = cell(output_tokens=TOKENS, decode_ms=value * (TOKENS - 1), **changes)
        score(gate, made)


def test_slow_cells_are_counted_where_twenty_cells_of_the_passes_show_none() -> None:
    gate = aa_gate(SOUND)
    assert slow_units(gate) == 0
    slow_cells(gate, 12.4, 12.6, 13.0)  # 0.8 of 100 per second is 12.5 ms
    assert slow_units(gate) == 2
    slow_cells(gate, 13.0, cached_tokens=None, cold_proof=None)
    slow_cells(gate, 13.0, arm=BASELINE)
    slow_cells(gate, 13.0, case_id="c99")
    score(gate, cell())
    assert slow_units(gate) == 2


def test_slow_is_no_flag_where_the_baseline_has_two_speeds_or_too_few_cells_or_no_one_asked() -> None:
    for gate in (
        aa_gate([*SOUND, (10.0, 20.0)]),
        aa_gate(SOUND[:9]),
        aa_gate(SOUND, required=False),
        started(policy()),
    ):
        slow_cells(gate, 30.0)
        assert slow_units(gate) is None


def test_the_slow_flag_satisfies_the_table_like_any_other() -> None:
    gate = aa_gate(SOUND)
    slow_cells(gate, 20.0)
    for i in range(54):
        slow_cells(gate, 10.0, case_id=f"c{i % 10}")
    assert (acceptance_reached(gate), clean_prefills_needed(gate)) == (False, 1)
    slow_cells(gate, 10.0)
    assert acceptance_reached(gate) is True
    slow_cells(gate, 20.0)
    assert take_snapshot(gate).slow_more_than_allowed is False
    slow_cells(gate, 20.0)
    assert take_snapshot(gate).slow_more_than_allowed is True
    assert clean_prefills_needed(gate) is None
