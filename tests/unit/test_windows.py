"""Windows of a sequential run: what stands in them, when a server must be started anew, and where a run goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD, STRICT
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import Purpose, RunResumed, WindowOpened
from prefillgate.core.places import Places
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import RunCell, Separate, Step, next_step
from prefillgate.core.shape import Shape
from prefillgate.core.windows import (
    FOUND,
    PairStanding,
    SwapServers,
    Turns,
    Window,
    WindowCell,
    Windows,
    baseline_most,
    baseline_places,
    next_window_cell,
    serves,
    standing_pair,
    swap_needed,
    window_notes,
    window_places,
    window_size,
)
from tests.support.journals import Stepper, answer_of, cell, epoch, measure, planned, quality_only, score

SEQUENTIAL = Shape(sequential=True)
SPEED = replace(QUICK, throughput=replace(QUICK.throughput, min_output_tokens=2))


def gate_of(policy: Policy | None = None, **more: Any) -> Gate:
    """A sequential run whose servers were not met."""
    gate = Gate()
    gate.apply(planned(policy or quality_only(QUICK), shape=SEQUENTIAL, **more))
    return gate


def opened(arm: str, pair: int | None = None, replicate: int = 0, how: str = "command", **more: Any) -> WindowOpened:
    return WindowOpened(arm, 1.0, how, pair, replicate, **more)


def put_up(gate: Gate, step: Step, life: str) -> None:
    """Do a swap: the server of the window in a new life."""
    assert isinstance(step, SwapServers)
    window = step.window
    gate.apply(epoch(window.arm, life))
    gate.apply(opened(window.arm, window.pair, window.replicate))


class Lives(Stepper):
    """A stepper that swaps servers: each swap is a new life, `e1`, `e2`, ..., and cells bear it."""

    def step(self) -> Step:
        step = next_step(self.gate)
        if not isinstance(step, SwapServers):
            return super().step()
        self.swaps = [*getattr(self, "swaps", []), step]
        life = f"e{len(self.swaps)}"
        put_up(self.gate, step, life)
        self.make = lambda asked: answer_of(asked, server_epoch=life, output_tokens=41, decode_ms=400.0)
        return step


# Sizes


@pytest.mark.parametrize(
    ("policy", "prompts", "size"),
    [
        (STANDARD, 12, 5),  # ceil(32 / 6) - 1 and a warm-up cell: 36 candidate cells in 6 windows
        (QUICK, 12, 2),
        (STRICT, 12, 11),
        (QUICK, 5, 2),
        (STANDARD, 30, 5),
        (STANDARD, 31, 6),
        (STANDARD, 100, 17),
        (replace(STANDARD, acceptance=(6,)), 1, 1),
        (replace(STANDARD, acceptance=(13,)), 1, 2),
    ],
)
def test_six_windows_bring_the_candidate_to_the_table_and_to_every_prompt(
    policy: Policy, prompts: int, size: int
) -> None:
    assert window_size(policy, prompts) == size
    assert policy.throughput.min_pairs * (size + 1) >= policy.acceptance[0]
    assert policy.throughput.min_pairs * size >= prompts


def test_where_speed_is_only_reported_one_window_holds_every_prompt() -> None:
    reported = replace(STANDARD, throughput=replace(STANDARD.throughput, required=False))
    assert window_size(reported, 12) == 12
    assert window_size(reported, 1) == 1
    with pytest.raises(ValueError, match="prompts must be at least 1, got 0"):
        window_size(STANDARD, 0)


@pytest.mark.parametrize(("entry", "most"), [(1, 1), (6, 1), (12, 1), (13, 2), (32, 5), (67, 11)])
def test_a_baseline_window_is_as_long_as_the_table_alone_would_have_it(entry: int, most: int) -> None:
    assert baseline_most(replace(STANDARD, acceptance=(entry,))) == most


# What stands in a window


def places_of(cases: int = 5, seed: int = 7) -> Places:
    places = Places()
    places.begin(planned(QUICK, cases=cases, seed=seed))
    return places


def turns(size: int = 2, pairable: str = "c0 c1 c2 c3 c4", coverage: str | None = None, most: int = 9) -> Turns:
    names = pairable.split()
    return Turns(size, dict.fromkeys(names, 1), tuple(names if coverage is None else coverage.split()), most)


def test_windows_take_the_prompts_in_turn_each_round_in_an_order_of_its_own() -> None:
    places = places_of()
    first, second = places.round_order(0), places.round_order(1)
    assert window_places(places, 0, turns(), ()) == ((0, first[0]), (0, first[1]))
    assert window_places(places, 1, turns(), ()) == ((0, first[2]), (0, first[3]))
    assert window_places(places, 2, turns(), ()) == ((0, first[4]), (1, second[0]))
    assert window_places(places, 3, turns(), ()) == ((1, second[1]), (1, second[2]))


def test_a_prompt_that_is_still_missing_comes_first_once_every_prompt_had_its_turn() -> None:
    places = places_of()
    second = places.round_order(1)
    late = second[4]
    assert window_places(places, 2, turns(), (late,))[0] != (1, late)  # the round is not over
    assert window_places(places, 3, turns(), (late,)) == ((1, late), (1, second[1]))
    assert window_places(places, 3, turns(), (second[2],)) == ((1, second[1]), (1, second[2]))  # in its turn anyhow
    assert window_places(places, 3, turns(), (late, second[0], second[3])) == ((1, late), (1, second[0]))
    assert window_places(places_of(6), 3, turns(), ("c9",))[0] == (1, "c9")  # the very first place of round 1


def test_the_baselines_window_holds_what_can_tell_a_speed_coverage_first_in_the_windows_order() -> None:
    chosen = tuple((0, f"c{i}") for i in range(5))
    assert baseline_places(chosen, turns()) == chosen
    assert baseline_places(chosen, turns(pairable="c1 c3")) == (chosen[1], chosen[3])
    assert baseline_places(chosen, turns(coverage="c4", most=2)) == (chosen[0], chosen[4])
    assert baseline_places(chosen, turns(coverage="c4 c3", most=1)) == (chosen[3], chosen[4])
    assert baseline_places(chosen, turns(coverage="c4", most=1)) == (chosen[4],)
    assert baseline_places(chosen, turns(pairable="")) == ()


def test_a_fair_coin_orders_the_windows_of_a_pair() -> None:
    places = places_of()
    orders = [standing_pair(places, number, turns(), ()).order for number in range(40)]
    assert orders == [
        (CANDIDATE, BASELINE) if places.candidate_first(number) else (BASELINE, CANDIDATE) for number in range(40)
    ]
    assert 10 < sum(order[0] == CANDIDATE for order in orders) < 30
    pair = standing_pair(places, 1, turns(pairable=places.round_order(0)[3]), ())
    assert pair.number == 1
    assert pair.places == {
        CANDIDATE: window_places(places, 1, turns(), ()),
        BASELINE: ((0, places.round_order(0)[3]),),
    }


# Going through a pair

PAIR = PairStanding(0, {CANDIDATE: ((0, "a"), (0, "b")), BASELINE: ((0, "a"),)}, (CANDIDATE, BASELINE))


def test_the_first_cell_of_a_life_warms_it_up_and_its_place_is_run_again() -> None:
    gate = gate_of()
    wanted = []
    for _ in range(6):
        step = next_window_cell(gate.windows, PAIR)
        if step is None:
            break
        wanted.append((step.arm[0], step.case_id, step.attempt))
        score(gate, cell(step.arm, step.case_id), purpose=Purpose.WINDOW, pair=0, round=step.round)
    assert wanted == [("c", "a", 1), ("c", "a", 2), ("c", "b", 1), ("b", "a", 1), ("b", "a", 2)]
    assert next_window_cell(gate.windows, PAIR) is None


def test_only_cells_of_this_pair_arm_round_and_prompt_fill_its_places() -> None:
    gate = gate_of()
    score(gate, cell(BASELINE, "z"), purpose=Purpose.BASELINE_PASS)
    score(gate, cell(CANDIDATE, "z"))
    for more in ({"pair": 1, "round": 0}, {"pair": 0, "round": 1}):
        score(gate, cell(CANDIDATE, "a"), purpose=Purpose.WINDOW, **more)
    score(gate, cell(CANDIDATE, "a"), purpose=Purpose.SCREEN, pair=0)
    score(gate, cell(CANDIDATE, "a"), purpose=Purpose.WINDOW)
    assert next_window_cell(gate.windows, PAIR) == WindowCell(CANDIDATE, "a", 0, 0, 1)
    score(gate, cell(CANDIDATE, "a"), purpose=Purpose.WINDOW, pair=0)
    assert next_window_cell(gate.windows, PAIR) == WindowCell(CANDIDATE, "b", 0, 0, 1)


def test_an_invalid_cell_leaves_its_place_and_a_failed_one_fills_it() -> None:
    gate = gate_of()
    score(gate, cell(CANDIDATE, "z"))
    measure(gate, cell(CANDIDATE, "a", status=Status.INVALID), Purpose.WINDOW, pair=0)
    assert next_window_cell(gate.windows, PAIR) == WindowCell(CANDIDATE, "a", 0, 0, 2)
    measure(gate, cell(CANDIDATE, "a", status=Status.FAILED), Purpose.WINDOW, pair=0)
    assert next_window_cell(gate.windows, PAIR) == WindowCell(CANDIDATE, "b", 0, 0, 1)


def test_a_server_that_was_started_within_the_window_warms_up_again() -> None:
    gate = gate_of()
    for life, case in (("e1", "a"), ("e1", "a"), ("e2", "b")):
        score(gate, cell(CANDIDATE, case, server_epoch=life), purpose=Purpose.WINDOW, pair=0)
    assert next_window_cell(gate.windows, PAIR) == WindowCell(CANDIDATE, "b", 0, 0, 2)


# Which life serves which window


@pytest.mark.parametrize(
    ("up", "window", "good"),
    [
        (None, Window(CANDIDATE), False),
        (opened(CANDIDATE), Window(BASELINE), False),
        (opened(CANDIDATE), Window(CANDIDATE), True),
        (opened(CANDIDATE, 3), Window(CANDIDATE), True),
        (opened(CANDIDATE, 3, 1), Window(CANDIDATE), True),
        (opened(BASELINE), Window(BASELINE, 0), True),
        (opened(BASELINE, 0), Window(BASELINE, 0), True),
        (opened(BASELINE, 0), Window(BASELINE, 1), False),
        (opened(BASELINE, 0, 1), Window(BASELINE, 0), False),
        (opened(CANDIDATE), Window(CANDIDATE, 0, 1), False),
        (opened(CANDIDATE, 0), Window(CANDIDATE, 0, 1), False),
        (opened(CANDIDATE, 0, 1), Window(CANDIDATE, 0, 1), True),
        (opened(CANDIDATE, 0, 1), Window(CANDIDATE, 0, 2), False),
    ],
)
def test_a_life_serves_one_paired_window_and_a_replicate_never_takes_one_over(
    up: WindowOpened | None, window: Window, good: bool
) -> None:
    assert serves(up, window) is good
    wanted = swap_needed(Windows(open=up, last=up), window)
    assert wanted == (None if good else SwapServers(window, same_life=window.pair is None))


def test_a_run_that_is_taken_up_again_may_go_on_in_the_life_it_left() -> None:
    windows = Windows()
    windows.opened(opened(BASELINE, 1))
    windows.left()
    assert swap_needed(windows, Window(BASELINE, 1)) == SwapServers(Window(BASELINE, 1), same_life=True)
    assert swap_needed(windows, Window(BASELINE, 2)) == SwapServers(Window(BASELINE, 2), same_life=False)
    assert swap_needed(windows, Window(CANDIDATE, 1)) == SwapServers(Window(CANDIDATE, 1), same_life=False)
    windows.opened(opened(CANDIDATE, 1))
    assert swap_needed(windows, Window(CANDIDATE, 1)) is None


def test_a_life_that_no_pair_had_belongs_to_the_first_that_runs_in_it() -> None:
    gate = gate_of()
    gate.apply(opened(BASELINE))
    score(gate, cell(BASELINE, "c0"), purpose=Purpose.BASELINE_PASS)
    assert serves(gate.windows.open, Window(BASELINE, 0)) and serves(gate.windows.open, Window(BASELINE, 1))
    score(gate, cell(BASELINE, "c0"), purpose=Purpose.WINDOW, pair=0)
    assert serves(gate.windows.open, Window(BASELINE, 0)) and not serves(gate.windows.open, Window(BASELINE, 1))
    gate.apply(RunResumed(2.0))
    assert gate.windows.open is None
    assert serves(gate.windows.last, Window(BASELINE, 0)) and not serves(gate.windows.last, Window(BASELINE, 1))
    gate.apply(opened(CANDIDATE, 1))
    score(gate, cell(CANDIDATE, "c0"), purpose=Purpose.WINDOW, pair=2)  # its own stays
    assert gate.windows.open == opened(CANDIDATE, 1)


def test_the_notes_count_swaps_and_name_each_word_that_was_taken() -> None:
    windows = Windows()
    windows.opened(opened(BASELINE, how=FOUND))
    assert window_notes(windows) == ["one server at a time: windows took turns, 0 swaps of servers"]
    windows.opened(opened(CANDIDATE, 0, detail="on a word"))
    windows.opened(opened(CANDIDATE, 0, how=FOUND))
    assert window_notes(windows) == ["on a word", "one server at a time: windows took turns, 1 swap of servers"]
    windows.opened(opened(BASELINE, 0))
    assert window_notes(windows)[1] == "one server at a time: windows took turns, 2 swaps of servers"
    first = Windows()
    first.opened(opened(BASELINE))  # put up by the command, but not in place of another
    assert first.swaps == 0


# Whole schedules


def test_without_speed_the_candidate_stays_up_after_one_swap() -> None:
    run = Lives(gate_of(replace(quality_only(QUICK), baseline_pass=2)))
    stop = run.run()
    assert stop.ruling.reason == "AcceptanceReached"
    assert [step.window for step in run.swaps] == [Window(BASELINE), Window(CANDIDATE)]
    assert [(c.arm[0], c.purpose) for c in run.cells[:3]] == [
        ("b", Purpose.BASELINE_PASS),
        ("b", Purpose.BASELINE_PASS),
        ("c", Purpose.SCREEN),
    ]
    assert len(run.cells) == 2 + 16


@pytest.mark.parametrize("seed", [7, 8])
def test_with_speed_six_pairs_of_windows_each_in_a_life_of_its_own_promote(seed: int) -> None:
    run = Lives(gate_of(replace(SPEED, baseline_pass=2), seed=seed))
    stop = run.run()
    assert stop.ruling.reason == "AcceptanceReached"
    windows = [(step.window.arm, step.window.pair) for step in run.swaps]
    first = run.gate.places.candidate_first(0)
    assert len(windows) == 1 + 12 - (not first)  # the pass's life goes on where the baseline comes first
    assert windows[0] == (BASELINE, None)
    assert len(set(windows)) == len(windows)
    cells = [c for c in run.cells if c.purpose is Purpose.WINDOW]
    lives: dict[str, set[tuple[str, int | None]]] = {}
    for event in run.gate.scored:
        if event.purpose is Purpose.WINDOW and event.cell.server_epoch is not None:
            lives.setdefault(event.cell.server_epoch, set()).add((event.cell.arm, event.pair))
    assert all(len(served) == 1 for served in lives.values())
    assert len({(c.arm, c.nonce) for c in run.cells}) == len(run.cells)
    assert sum(c.arm == CANDIDATE for c in cells) == 6 * 3
    assert sum(c.arm == BASELINE for c in cells) == 6 * 3 - (not first)  # the pass warmed its life up
    both = {(c.pair, c.case_id, c.round, c.seed) for c in cells if c.arm == BASELINE}
    assert both == {(c.pair, c.case_id, c.round, c.seed) for c in cells if c.arm == CANDIDATE}


def test_an_alarm_ends_a_window_and_the_replicate_begins_in_a_new_life() -> None:
    run = Lives(gate_of(SPEED), bad=lambda asked: asked.arm == CANDIDATE and asked.purpose is Purpose.WINDOW)
    while not run.starts:
        run.step()
    step = next_step(run.gate)
    assert step == SwapServers(Window(CANDIDATE, 0, 1), same_life=False)
    run.step()
    assert isinstance(run.step(), Separate)
    asked = run.step()
    assert isinstance(asked, RunCell)
    assert (asked.purpose, asked.arm, asked.replicate, asked.pair, asked.round) == (
        *(Purpose.REPLICATE, CANDIDATE, 1, 0),
        0,
    )


def test_the_windows_of_a_replicate_take_turns_and_a_clean_one_goes_back_to_its_pair() -> None:
    bad = iter([True, True, *([False] * 100)])
    run = Lives(gate_of(SPEED), bad=lambda asked: asked.arm == CANDIDATE and next(bad))
    run.run()
    replicate = [(step.window.arm, step.window.pair) for step in run.swaps if step.window.replicate]
    assert replicate == [(CANDIDATE, 0)]
    at = next(i for i, step in enumerate(run.swaps) if step.window.replicate)
    assert run.swaps[at - 1].window == run.swaps[at + 1].window  # the window that was left goes on, in another life
    assert run.gate.replicates[0].ending() == "clean"
    rounds = [c.round for c in run.cells if c.purpose is Purpose.REPLICATE]
    assert rounds == list(range(8))


def test_a_body_that_one_arm_refuses_costs_a_swap_to_ask_the_other() -> None:
    run = Lives(gate_of(replace(quality_only(QUICK), baseline_pass=1)))
    run.until(RunCell)
    while not any(c.arm == CANDIDATE for c in run.cells):
        run.step()
    case = run.cells[-1].case_id
    other = next(f"c{i}" for i in range(12) if f"c{i}" not in {c.case_id for c in run.cells})
    step = next_step(run.gate)
    assert step is not None and case
    measure(run.gate, cell(CANDIDATE, other, status=Status.INVALID), http_status=400)
    while not isinstance(step := next_step(run.gate), SwapServers):
        run.step()
    assert step == SwapServers(Window(BASELINE), same_life=True)
    run.step()
    asked = next_step(run.gate)
    assert isinstance(asked, RunCell) and asked.purpose is Purpose.COMPARE
