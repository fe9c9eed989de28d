"""Decode speed in windows: what a pair of windows measures, what it leaves out, and when no more are wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CaseRef, Purpose
from prefillgate.core.pair_measurement import PromptTimes
from prefillgate.core.pairs import pair_measurements, pairs_left, speed_policy, throughput_standing, throughput_view
from prefillgate.core.policy import Policy
from prefillgate.core.shape import Shape
from prefillgate.core.snapshot import take_snapshot
from prefillgate.core.throughput import BaselinePass, ms_per_token, prompt_differences, slow_pairs, why_unused
from prefillgate.core.verdict import ThroughputState
from prefillgate.core.window_speed import turns_of, wanted_window_cell, window_policy, windows_now
from tests.support.journals import cell, epoch, measure, planned, score

TOKENS = 41  # 40 after the first


def policy(base: Policy = QUICK, **throughput: Any) -> Policy:
    return replace(base, baseline_pass=0, throughput=replace(base.throughput, **throughput))


def gate_of(chosen: Policy | None = None, **more: Any) -> Gate:
    """A sequential run in which both servers were met and are warm."""
    gate = Gate()
    more.setdefault("cases", 2)
    gate.apply(planned(chosen or policy(), shape=Shape(sequential=True), **more))
    for arm in (BASELINE, CANDIDATE):
        gate.apply(epoch(arm))
        score(gate, cell(arm, "warm"))
    return gate


Make = Callable[[str, str, int], Cell]


def fresh(arm: str, case: str, pair: int) -> Cell:
    """10 ms a token on both arms."""
    return cell(arm, case, output_tokens=TOKENS, decode_ms=400.0, output_sha256="x")


def timed(baseline: float = 10.0, candidate: float = 10.0, **changes: Any) -> Make:
    def make(arm: str, case: str, pair: int) -> Cell:
        each = baseline if arm == BASELINE else candidate
        return replace(fresh(arm, case, pair), decode_ms=each * (TOKENS - 1), **changes)

    return make


def run_pair(gate: Gate, make: Make = fresh, cells: int = 100) -> None:
    """The cells of the pair of windows that is open or next, up to so many."""
    number = windows_now(gate).current.number
    for _ in range(cells):
        step = wanted_window_cell(gate)
        if step is None or step.pair != number:
            return
        made = make(step.arm, step.case_id, step.pair)
        more: dict[str, Any] = {"pair": step.pair, "round": step.round}
        if made.status is Status.OK:
            score(gate, made, purpose=Purpose.WINDOW, **more)
        else:
            measure(gate, made, Purpose.WINDOW, **more)


def test_what_windows_are_cut_from_follows_from_the_plan() -> None:
    cases = [CaseRef(f"c{i}", "s", 100 + i, max_tokens=31 if i == 0 else 32) for i in range(20)]
    turns = turns_of(gate_of(policy(STANDARD), cases=cases))
    assert (turns.size, turns.baseline_most) == (5, 5)
    assert "c0" not in turns.pairable and len(turns.pairable) == 19
    assert len(turns.coverage) == 12 and turns.coverage[0] == "c19"
    none = turns_of(gate_of(policy(min_output_tokens=33), cases=[CaseRef("a", "s", 1, max_tokens=32)]))
    assert (none.pairable, none.coverage) == ({}, ())


def test_the_bets_are_sized_for_a_windows_mean() -> None:
    gate = gate_of(policy(STANDARD), cases=12)
    assert window_policy(gate) == speed_policy(gate)
    assert window_policy(gate).planned_cv == pytest.approx(0.04 / math.sqrt(5))
    assert replace(window_policy(gate), planned_cv=0.04) == STANDARD.throughput
    ordinary = Gate()
    ordinary.apply(planned(policy(STANDARD)))
    assert speed_policy(ordinary).planned_cv == 0.04


def test_a_pair_is_measured_once_both_windows_are_complete() -> None:
    gate = gate_of()
    for cells in range(4):
        assert pair_measurements(gate) == [] and cells < 4
        run_pair(gate, timed(10.0, 8.0), cells=1)
    (pair,) = pair_measurements(gate)
    assert (pair.pair, pair.windows, pair.first_after_start) == (0, True, False)
    assert (pair.baseline_fresh, pair.candidate_fresh) == (True, True)
    assert (pair.baseline_ms_per_token, pair.candidate_ms_per_token) == (pytest.approx(10), pytest.approx(8))
    assert (pair.baseline_rate, pair.candidate_rate) == (pytest.approx(100), pytest.approx(125))
    assert (pair.baseline_output_tokens, pair.candidate_output_tokens) == (2 * TOKENS, 2 * TOKENS)
    assert sorted(pair.cases) == ["c0", "c1"] and pair.case_id == ", ".join(pair.cases)
    assert why_unused(pair, gate.plan.policy.throughput) == ""
    assert pair.key == "windows 0"


def test_each_prompt_has_equal_weight_and_a_prompt_twice_in_a_window_is_averaged_first() -> None:
    gate = gate_of(policy(STANDARD), cases=2)  # five places: each prompt twice, one a third time
    times = iter([1.0, 1.0, 1.0, 1.0, 1.0])

    def make(arm: str, case: str, pair: int) -> Cell:
        each = 10.0 * next(times, 1.0) if arm == "never" else (20.0 if case == "c0" else 10.0)
        return replace(fresh(arm, case, pair), decode_ms=each * (TOKENS - 1))

    run_pair(gate, make)
    (pair,) = pair_measurements(gate)
    assert pair.baseline_ms_per_token == pytest.approx(15)
    assert sorted(pair.prompts, key=lambda times: times.case_id) == [
        PromptTimes("c0", pytest.approx(20), pytest.approx(20)),
        PromptTimes("c1", pytest.approx(10), pytest.approx(10)),
    ]


def test_repeated_cells_of_a_prompt_are_averaged() -> None:
    gate = gate_of(policy(STANDARD), cases=1)
    ms = {BASELINE: iter([10.0, 12.0, 14.0, 16.0, 18.0]), CANDIDATE: iter([1.0, 2.0, 3.0, 4.0, 5.0])}
    run_pair(gate, lambda arm, case, pair: replace(fresh(arm, case, pair), decode_ms=next(ms[arm]) * 40))
    (pair,) = pair_measurements(gate)
    assert pair.prompts == (PromptTimes("c0", pytest.approx(14), pytest.approx(3)),)
    assert pair.baseline_output_sha256 == "x"


@pytest.mark.parametrize(
    "flaw",
    [
        {"status": Status.FAILED},
        {"cached_tokens": None, "cold_proof": None},
        {"cached_tokens": 60, "processed_tokens": 40},
        {"output_tokens": 31},
        {"output_tokens": None},
        {"decode_ms": None},
        {"decode_ms": 0.0},
    ],
)
@pytest.mark.parametrize("arm", [BASELINE, CANDIDATE])
def test_a_prompt_counts_only_where_both_windows_tell_its_speed(arm: str, flaw: dict[str, Any]) -> None:
    def make(of: str, case: str, pair: int) -> Cell:
        made = fresh(of, case, pair)
        return replace(made, **flaw) if (of, case) == (arm, "c1") else made

    gate = gate_of()
    run_pair(gate, make)
    (pair,) = pair_measurements(gate)
    assert pair.cases == ("c0",)
    assert windows_now(gate).missing == ("c1",)
    assert throughput_standing(gate)[1] == ("c1",)


def test_exactly_the_least_tokens_tell_a_speed() -> None:
    gate = gate_of()
    run_pair(gate, timed(output_tokens=32))
    assert len(pair_measurements(gate)[0].cases) == 2


def test_the_first_cell_of_a_life_is_left_out_and_its_place_run_again() -> None:
    gate = gate_of()
    seen = 0

    def make(arm: str, case: str, pair: int) -> Cell:
        nonlocal seen
        seen += arm == CANDIDATE
        each = 500.0 if arm == CANDIDATE and seen == 1 else 10.0
        life = "e9" if arm == CANDIDATE else "e1"
        return replace(fresh(arm, case, pair), server_epoch=life, decode_ms=each * 40)

    run_pair(gate, make)
    (pair,) = pair_measurements(gate)
    assert seen == 3
    assert pair.candidate_ms_per_token == pytest.approx(10)


def test_a_pair_without_a_common_prompt_is_not_used() -> None:
    gate = gate_of()
    run_pair(gate, timed(output_tokens=5))
    (pair,) = pair_measurements(gate)
    assert (pair.cases, pair.case_id, pair.times) == ((), "", ())
    assert why_unused(pair, gate.plan.policy.throughput) == "no prompt told its speed in both windows"
    assert (pair.baseline_rate, pair.candidate_rate) == (None, None)
    assert (pair.baseline_ms_per_token, pair.candidate_ms_per_token) == (None, None)
    assert throughput_view(gate).pairs_used == 0


def test_outputs_are_equal_only_where_every_prompt_is_greedy_and_known() -> None:
    def digest(changed: str | None) -> Make:
        def make(arm: str, case: str, pair: int) -> Cell:
            odd = (arm, case) == (CANDIDATE, "c1")
            return replace(fresh(arm, case, pair), output_sha256=changed if odd else f"same {case}")

        return make

    def pair_of(changed: str | None, **more: Any) -> Any:
        gate = gate_of(**more)
        run_pair(gate, digest(changed))
        return throughput_view(gate).pairs[0].identical_output

    assert pair_of("same c1") is True
    assert pair_of("another") is False
    assert pair_of(None) is None
    sampled = [CaseRef("c0", "s", 10), CaseRef("c1", "s", 10, greedy=False)]
    assert pair_of("same c1", cases=sampled) is None


def test_six_pairs_of_an_equal_candidate_settle_the_speed_and_five_do_not() -> None:
    gate = gate_of(policy(STANDARD), cases=12)
    for pairs in range(6):
        assert throughput_standing(gate)[0] is ThroughputState.OPEN
        assert len(pair_measurements(gate)) == pairs
        run_pair(gate)
    state, missing = throughput_standing(gate)
    assert (state, missing) == (ThroughputState.NOT_WORSE, ())
    view = throughput_view(gate)
    assert (view.pairs_used, view.prompts_in_pairs) == (6, 12)
    assert view.e_not_worse > 20 > 1 > view.e_worse
    assert "settled at pair 6" in view.sentence
    assert wanted_window_cell(gate) is None
    assert take_snapshot(gate).throughput is ThroughputState.NOT_WORSE


def test_a_slower_candidate_is_worse_after_six_pairs() -> None:
    gate = gate_of(policy(STANDARD), cases=12)
    for _ in range(6):
        run_pair(gate, timed(10.0, 12.0))
    assert throughput_standing(gate)[0] is ThroughputState.WORSE
    assert wanted_window_cell(gate) is None
    assert take_snapshot(gate).throughput is ThroughputState.WORSE
    assert throughput_view(gate).ratio == pytest.approx(10 / 12)
    assert throughput_view(gate).slow_share_candidate == 0


def test_total_time_weighs_each_prompt_once_over_all_windows() -> None:
    gate = gate_of(policy(STANDARD), cases=3)

    def make(arm: str, case: str, pair: int) -> Cell:
        each = {"c0": 10.0, "c1": 20.0, "c2": 60.0}[case] * (2 if arm == CANDIDATE else 1)
        return replace(fresh(arm, case, pair), decode_ms=each * 40)

    for _ in range(2):
        run_pair(gate, make)
    pairs = pair_measurements(gate)
    assert ms_per_token(pairs) == (pytest.approx(30), pytest.approx(60))
    assert len(prompt_differences(pairs)) == 2  # each pair of windows by itself
    assert slow_pairs(pairs, BaselinePass(), 0.8) == {0, 1}


def test_where_speed_is_only_reported_one_pair_of_windows_is_enough() -> None:
    gate = gate_of(policy(STANDARD, required=False), cases=12)
    run_pair(gate)
    assert len(pair_measurements(gate)) == 1
    assert wanted_window_cell(gate) is None
    assert pairs_left(gate)


def test_a_prompt_that_never_tells_its_speed_ends_the_windows_after_three_pairs() -> None:
    gate = gate_of(policy(STANDARD), cases=12)

    def make(arm: str, case: str, pair: int) -> Cell:
        return replace(fresh(arm, case, pair), output_tokens=5 if case == "c3" else TOKENS)

    pairs = 0
    while pairs_left(gate):
        assert not windows_now(gate).hopeless
        run_pair(gate, make)
        pairs += 1
    tried = [pair for pair in range(pairs) if any(case == "c3" for _, case in gate.windows.done[(pair, BASELINE)])]
    assert len(tried) == 3 and tried[-1] == pairs - 1
    assert windows_now(gate).missing == ("c3",) and windows_now(gate).hopeless
    assert wanted_window_cell(gate) is None
    assert not take_snapshot(gate).throughput_pairs_left


def test_the_policys_pairs_are_pairs_of_windows() -> None:
    gate = gate_of(policy(QUICK, max_pairs=1))
    assert pairs_left(gate)
    run_pair(gate)
    assert not pairs_left(gate) and wanted_window_cell(gate) is None
    assert not pairs_left(gate_of(policy(QUICK, max_pairs=0)))
    unable = gate_of(policy(min_output_tokens=33), cases=[CaseRef("a", "s", 1, max_tokens=32)])
    assert not pairs_left(unable) and wanted_window_cell(unable) is None
    assert throughput_standing(gate_of(policy(QUICK, max_pairs=0))) == (ThroughputState.NOT_COMPARED, ())
