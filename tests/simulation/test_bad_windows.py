"""Bad windows: now and then every cell in one life of a server is bad, on both arms alike. That is no regression.

Read as pairs of cells, one bad life of the candidate is many pairs and confirms by itself. Read as pairs of windows it
is one, and false rollbacks keep their bound (core/window_replicate.py). The shipped code is stepped cell by cell.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import CANDIDATE
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CaseRef,
    CellChecked,
    CheckOutcome,
    EpochSeen,
    Planned,
    ReplicateStarted,
    SeparationKept,
    WindowOpened,
)
from prefillgate.core.policy import ReplicatePolicy
from prefillgate.core.replicate import Ending, PromptTurns, Replicate, plan_replicate
from prefillgate.core.schedule import CheckCell, RunCell, Separate, StartReplicate, Stop, next_step
from prefillgate.core.shape import Shape
from prefillgate.core.verdict import Outcome
from prefillgate.core.window_replicate import WindowReplicate, plan_window_replicate
from prefillgate.core.windows import SwapServers
from tests.simulation.harness import PROMPTS, STANDARD_ERRORS, measured, quality_only

RUNS = 4000
WHOLE_RUNS = 600
POLICY = ReplicatePolicy()
TURNS = PromptTurns(("a",), ("b", "c"))


def within(share: float, bound: float, runs: int) -> bool:
    """Whether a simulated share keeps the bound, four standard errors allowed."""
    return share <= bound + STANDARD_ERRORS * math.sqrt(bound * (1 - bound) / runs)


def confirmed(made: Replicate, bad: Callable[[int, str], bool]) -> bool:
    """Run a replicate to its end; `bad` answers by pair and arm."""
    made.separation = "restart"
    while (half := made.next_half()) is not None:
        made.record(half.pair, half.arm, (bad(half.pair, half.arm),))
    return made.ending() is Ending.CONFIRMED


def lives(draw: random.Random, rate: float, cell_rate: float, window_of: Callable[[int], int]) -> Callable[..., bool]:
    """Cells by pair and arm: bad where the life of their window is, else at a rate of their own."""
    states: dict[tuple[int, str], bool] = {}

    def bad(pair: int, arm: str) -> bool:
        key = (window_of(pair), arm)
        if key not in states:
            states[key] = draw.random() < rate
        return states[key] or draw.random() < cell_rate

    return bad


@pytest.mark.parametrize(("rate", "cell_rate"), [(0.1, 0.0), (0.3, 0.0), (0.2, 0.02)])
def test_bad_windows_confirm_often_as_pairs_of_cells_and_within_the_bound_as_windows(
    rate: float, cell_rate: float
) -> None:
    draw = random.Random(f"bad windows {rate}")
    by_cells = by_windows = 0
    for seed in range(RUNS):
        cells = Replicate(plan_replicate(1, seed, TURNS, POLICY), POLICY)
        block = lives(draw, rate, cell_rate, lambda pair: 0 if pair < 8 else 1 + (pair - 8) // 4)
        by_cells += confirmed(cells, block)
        windows = WindowReplicate(plan_window_replicate(1, seed, TURNS, POLICY), POLICY)
        by_windows += confirmed(windows, lives(draw, rate, cell_rate, lambda pair: pair))
    assert within(by_windows / RUNS, 1 / 40, RUNS)
    assert not within(by_cells / RUNS, 1 / 40, RUNS)
    assert by_cells / RUNS > 0.05


def whole_run(seed: int, rate: float) -> Outcome:
    """A sequential run, from plan to stop, in which each life of either server is bad at that rate."""
    draw, gate = random.Random(seed), Gate()
    cases = tuple(CaseRef(f"case-{i}", f"sha-{i}", 100 + i) for i in range(PROMPTS))
    policy, shape = quality_only(STANDARD), Shape(sequential=True)
    gate.apply(Planned("run", 0.0, seed, policy, cases, "set", "sha", "http://b", "http://b", shape=shape))
    bad_life, started = False, 0
    while True:
        step = next_step(gate)
        if isinstance(step, Stop):
            return step.ruling.decision
        if isinstance(step, SwapServers):
            window, started, bad_life = step.window, started + 1, draw.random() < rate
            seen = EpochSeen(window.arm, f"e{started}", 0.0, "llama.cpp", "b1", "m", True, "cache_off", False)
            gate.apply(seen)
            gate.apply(WindowOpened(window.arm, 0.0, "command", window.pair, window.replicate))
        elif isinstance(step, RunCell):
            gate.apply(measured(step))
        elif isinstance(step, CheckCell):
            gate.apply(CellChecked(step.cell_id, (CheckOutcome("planted", "1", bad_life),)))
        elif isinstance(step, StartReplicate):
            gate.apply(ReplicateStarted(step.number, 0.0, step.seed))
        elif isinstance(step, Separate):
            gate.apply(SeparationKept(step.number, 0.0, "restart"))


@pytest.mark.parametrize("rate", [0.3])
def test_a_whole_sequential_run_over_bad_windows_rolls_back_within_the_bound_of_both_replicates(rate: float) -> None:
    ends = [whole_run(seed, rate) for seed in range(WHOLE_RUNS)]
    rolled_back = sum(end is Outcome.ROLLBACK for end in ends) / WHOLE_RUNS
    assert within(rolled_back, 0.0375, WHOLE_RUNS)
    assert sum(end is Outcome.PROMOTE for end in ends) > WHOLE_RUNS / 3  # a good life promotes


def test_a_candidate_whose_lives_are_all_bad_is_rolled_back() -> None:
    draw = random.Random(3)

    def bad(pair: int, arm: str) -> bool:
        return arm == CANDIDATE and draw.random() < 0.9

    made = [WindowReplicate(plan_window_replicate(1, seed, TURNS, POLICY), POLICY) for seed in range(300)]
    assert sum(confirmed(one, bad) for one in made) == 300
