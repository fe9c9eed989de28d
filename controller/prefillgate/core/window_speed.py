"""Decode speed of a sequential run: a pair of windows is one pair of the sequential test (STATISTICS.md section 8).

d = ln(mean baseline ms per token / mean candidate ms per token) over the prompts measured in both windows, each prompt
weighted equally; a prompt is measured by its fresh complete cells with enough output tokens, the first cell of a
server's life left out. The argument: every window has a life of its server of its own, and a fair coin orders the two,
so, given all earlier pairs, d lies symmetrically around ln(speed ratio) where the arms' windows vary alike; that is all
the sequential test asks of d. Two cells of one window share their life, so they are never two observations: the test
looks at complete pairs of windows only, at least `min_pairs` of them.

A mean over several prompts varies less than one cell. The bets are therefore sized for the planned variation of a cell
over the square root of the prompts in a window. That is fixed before the run, so any size would keep the bound 1/20;
too small a one makes the test a sign test, too large a one makes it slow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from statistics import fmean

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.freshness import Classified
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured
from prefillgate.core.pair_measurement import PairMeasurement, PromptTimes
from prefillgate.core.policy import ThroughputPolicy
from prefillgate.core.throughput import cell_ms_per_token, run_sequence, why_unused
from prefillgate.core.throughput_plan import coverage_prompts, pairable
from prefillgate.core.verdict import CellClass, ThroughputState
from prefillgate.core.windows import (
    PairStanding,
    Turns,
    WindowCell,
    baseline_most,
    next_window_cell,
    standing_pair,
    window_size,
)

HOPELESS_TRIES = 3  # pairs in which a prompt gave no speed: more windows will not bring it


@dataclass(frozen=True, slots=True)
class WindowsNow:
    """The complete pairs of windows, measured, the pair that is open or next, and what is still missing in a pair."""

    pairs: tuple[PairMeasurement, ...]
    current: PairStanding
    missing: tuple[str, ...]
    hopeless: bool  # a missing prompt was in `HOPELESS_TRIES` pairs and told no speed


def turns_of(gate: Gate) -> Turns:
    """What the windows of this run are cut from."""
    policy, cases = gate.plan.policy, gate.plan.cases
    lengths = pairable(cases, policy.throughput)
    coverage = coverage_prompts(lengths, policy.throughput.max_prompts) if lengths else ()
    return Turns(window_size(policy, len(cases)), lengths, coverage, baseline_most(policy))


def window_policy(gate: Gate) -> ThroughputPolicy:
    """The throughput policy with the variation planned for a window's mean."""
    policy = gate.plan.policy
    size = window_size(policy, len(gate.plan.cases))
    return replace(policy.throughput, planned_cv=policy.throughput.planned_cv / math.sqrt(size))


def windows_now(gate: Gate) -> WindowsNow:
    """Where the windows of the screen stand."""
    turns = turns_of(gate)
    classes = {id(item.cell): item for item in gate.classified()} if gate.windows.done else {}
    missing, pairs, tries = turns.coverage, list[PairMeasurement](), Counter[str]()
    for number in count():
        standing = standing_pair(gate.places, number, turns, missing)
        if next_window_cell(gate.windows, standing) is not None:
            break
        pair = _measurement(gate, standing, classes)
        pairs.append(pair)
        told = {times.case_id for times in pair.prompts}
        tries.update({case for _, case in standing.places[BASELINE]} - told)
        missing = tuple(case for case in missing if case not in told)
    hopeless = any(tries[case] >= HOPELESS_TRIES for case in missing)
    return WindowsNow(tuple(pairs), standing, missing, hopeless)


def _measurement(gate: Gate, standing: PairStanding, classes: Mapping[int, Classified]) -> PairMeasurement:
    """One complete pair of windows."""
    policy = gate.plan.policy.throughput
    greedy = {case.case_id for case in gate.plan.cases if case.greedy}
    arms = {}
    for arm in (BASELINE, CANDIDATE):
        cells: dict[str, list[CellMeasured]] = {}
        for event in gate.windows.done.get((standing.number, arm), {}).values():
            if _tells_speed(event, classes, policy):
                cells.setdefault(event.cell.case_id, []).append(event)
        arms[arm] = cells
    both = [case for case in arms[BASELINE] if case in arms[CANDIDATE]]
    times = tuple(PromptTimes(case, _ms(arms[BASELINE][case]), _ms(arms[CANDIDATE][case])) for case in both)
    baseline = fmean(each.baseline_ms for each in times) if times else None
    candidate = fmean(each.candidate_ms for each in times) if times else None
    same = greedy.issuperset(both)
    return PairMeasurement(
        pair=standing.number,
        case_id=", ".join(both),
        baseline_rate=None if baseline is None else 1000.0 / baseline,
        candidate_rate=None if candidate is None else 1000.0 / candidate,
        baseline_ms_per_token=baseline,
        candidate_ms_per_token=candidate,
        baseline_output_tokens=_tokens(arms[BASELINE][case] for case in both),
        candidate_output_tokens=_tokens(arms[CANDIDATE][case] for case in both),
        baseline_output_sha256=_outputs(arms[BASELINE][case] for case in both) if same else None,
        candidate_output_sha256=_outputs(arms[CANDIDATE][case] for case in both) if same else None,
        first_after_start=False,
        baseline_fresh=True,
        candidate_fresh=True,
        windows=True,
        prompts=times,
    )


def _tells_speed(event: CellMeasured, classes: Mapping[int, Classified], policy: ThroughputPolicy) -> bool:
    cell, item = event.cell, classes.get(id(event.cell))
    fresh = cell.status is Status.OK and item is not None and item.cell_class is CellClass.FRESH
    tokens, time = cell.output_tokens, cell_ms_per_token(cell.output_tokens, cell.decode_ms)
    return fresh and tokens is not None and tokens >= policy.min_output_tokens and time is not None


def _ms(events: Iterable[CellMeasured]) -> float:
    times = (cell_ms_per_token(event.cell.output_tokens, event.cell.decode_ms) for event in events)
    return fmean(time for time in times if time is not None)


def _tokens(prompts: Iterable[list[CellMeasured]]) -> int:
    told = (event.cell.output_tokens for events in prompts for event in events)
    return sum(tokens for tokens in told if tokens is not None)


def _outputs(prompts: Iterable[list[CellMeasured]]) -> str | None:
    """All outputs of a window in one word, the prompts in one order on both arms; None where a digest is unknown."""
    digests = [sorted(event.cell.output_sha256 or "" for event in events) for events in prompts]
    known = all(digest for prompt in digests for digest in prompt)
    return "+".join(digest for prompt in digests for digest in dict.fromkeys(prompt)) if known else None


def wanted_window_cell(gate: Gate) -> WindowCell | None:
    """The next cell of a pair of windows, or None where none is wanted: speed settled, or no pairs left to it."""
    policy = gate.plan.policy.throughput
    if not window_pairs_left(gate):
        return None
    now = windows_now(gate)
    used = [pair for pair in now.pairs if not why_unused(pair, policy)]
    state = run_sequence(used, window_policy(gate)).state
    if not now.missing and not (policy.required and state is ThroughputState.OPEN):
        return None
    return next_window_cell(gate.windows, now.current)


def window_pairs_left(gate: Gate) -> bool:
    """Whether the policy lets another pair of windows, or the open one, run, and it could tell a speed."""
    policy = gate.plan.policy.throughput
    if not policy.max_pairs or not turns_of(gate).pairable:
        return False
    now = windows_now(gate)
    return now.current.number < policy.max_pairs and not now.hopeless
