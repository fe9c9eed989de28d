"""Minutes of a plan: its prefills times the seconds that a cell takes on each server.

Only cells are counted: not the waits for a busy server, nor the swaps of servers in a sequential run. What a cell takes
is known of a short and a long case alone, so every figure is a `Span` between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefillgate.core.planning import PrefillCost
from prefillgate.core.shape import Shape

SECONDS_A_MINUTE = 60


@dataclass(frozen=True, slots=True)
class Span:
    """A time in one unit: if every cell were the quickest, as long as the mean case, or the slowest."""

    least: float
    likely: float
    most: float


NO_TIME = Span(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Paces:
    """Seconds of one cell on each arm's servers. `baseline` is None where there is none."""

    baseline: Span | None
    candidate: Span


def even_pace(seconds: float) -> Span:
    """Every cell takes as long. Raises ValueError for what is no time."""
    return pace((seconds, seconds), 0.0)  # equivalent mutant: any place between two equal times


def pace(seconds: tuple[float, float], place: float) -> Span:
    """Seconds of a cell, from those of a short and a long case; `place` is `mean_place` of the set.

    The likely figure lies on the line between the two. A prefill grows faster than its prompt, so it is rather too
    high than too low. Raises ValueError for a time that is not above 0.
    """
    short, long = seconds
    for value in seconds:
        if not value > 0:
            raise ValueError(f"seconds of a cell must be above 0, got {value!r}")
    return Span(min(seconds), short + place * (long - short), max(seconds))


def mean_place(lengths: Sequence[int]) -> float:
    """Where the mean of these lengths stands between the least (0) and the largest (1); one half where all are equal.

    Raises ValueError without lengths.
    """
    if not lengths:
        raise ValueError("lengths must not be empty")
    low, high = min(lengths), max(lengths)
    return 0.5 if low == high else (sum(lengths) / len(lengths) - low) / (high - low)


def run_minutes(cost: PrefillCost, paces: Paces, shape: Shape) -> Span:
    """Minutes of a run in which nothing is bad, without a replicate."""
    baseline, candidate = paces.baseline or NO_TIME, paces.candidate
    return Span(
        _run_seconds(cost, (baseline.least, candidate.least), shape) / SECONDS_A_MINUTE,
        _run_seconds(cost, (baseline.likely, candidate.likely), shape) / SECONDS_A_MINUTE,
        _run_seconds(cost, (baseline.most, candidate.most), shape) / SECONDS_A_MINUTE,
    )


def cap_minutes(cost: PrefillCost, paces: Paces, shape: Shape) -> Span:
    """Minutes of a run that spends its whole budget, without the gaps before replicates.

    What is left beside a run with nothing bad goes to either arm: to the quicker one at least, to both in equal parts
    likely, to the slower one at most. A budget below such a run is spent in its proportions.
    """
    run, left = run_minutes(cost, paces, shape), cost.budget - cost.total
    if left < 0:  # equivalent mutant: at 0 the share is 1
        share = cost.budget / cost.total
        return Span(run.least * share, run.likely * share, run.most * share)
    quick, even, slow = _spares(paces, shape)
    return Span(
        run.least + left * quick / SECONDS_A_MINUTE,
        run.likely + left * even / SECONDS_A_MINUTE,
        run.most + left * slow / SECONDS_A_MINUTE,
    )


def replicate_minutes(cost: PrefillCost, paces: Paces, shape: Shape, gap_seconds: float) -> Span | None:
    """Minutes of a run in which nothing is bad but for an alarm that a replicate answers; None where there can be none.

    Least: its leading candidate units are all clean and a restart of the candidate spared the gap. Likely: the same
    after the gap. Most: all its pairs, after the gap.
    """
    if paces.baseline is None or not cost.replicate_most:
        return None
    run = run_minutes(cost, paces, shape)
    clean = _turns(cost.replicate_least, shape.candidate_lanes)
    pairs = cost.replicate_most // 2  # equivalent mutant: it is whole pairs
    whole = _pairs_seconds(pairs, (paces.baseline.most, paces.candidate.most), shape)
    return Span(
        run.least + clean * paces.candidate.least / SECONDS_A_MINUTE,
        run.likely + (clean * paces.candidate.likely + gap_seconds) / SECONDS_A_MINUTE,
        run.most + (whole + gap_seconds) / SECONDS_A_MINUTE,
    )


def _run_seconds(cost: PrefillCost, seconds: tuple[float, float], shape: Shape) -> float:
    baseline, candidate = seconds
    passes = _turns(cost.baseline_pass, shape.baseline_lanes) + _turns(cost.second_pass, shape.baseline_lanes)
    alone = _turns(cost.candidate - cost.pair_halves, shape.candidate_lanes)
    pairs = cost.pair_halves + cost.warm_up // 2  # equivalent mutant: warm-up is whole pairs
    return passes * baseline + alone * candidate + _pairs_seconds(pairs, seconds, shape)


def _pairs_seconds(pairs: int, seconds: tuple[float, float], shape: Shape) -> float:
    """Both halves of so many pairs: one after the other, or at the same time where the arms share no hardware."""
    baseline = _turns(pairs, shape.baseline_lanes) * seconds[0]
    candidate = _turns(pairs, shape.candidate_lanes) * seconds[1]
    return max(baseline, candidate) if shape.at_once else baseline + candidate


def _turns(cells: int, lanes: int) -> int:
    """How often one after another, with a request on each lane at a time."""
    return -(-cells // lanes)


def _spares(paces: Paces, shape: Shape) -> tuple[float, float, float]:
    """Seconds of a cell that may fall to either arm: the quicker, the mean of both, the slower."""
    arms = [(paces.candidate, shape.candidate_lanes)]
    if paces.baseline is not None:
        arms.append((paces.baseline, shape.baseline_lanes))
    return (
        min(span.least / lanes for span, lanes in arms),
        sum(span.likely / lanes for span, lanes in arms) / len(arms),
        max(span.most / lanes for span, lanes in arms),
    )
