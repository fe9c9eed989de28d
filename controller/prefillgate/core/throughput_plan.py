"""Planning of throughput pairs: which prompts, how many pairs, and plans that cannot work (STATISTICS.md section 8)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from prefillgate.core.exact import noncentral_t_above, t_limit
from prefillgate.core.journal import CaseRef
from prefillgate.core.policy import ThroughputPolicy

LEAST_PAIRS = 5  # fewer can give no exact one-sided .05 interval
DOUBLINGS = 14  # of it: a plan beyond 81,920 pairs is none
CLOSE_MARGIN = -0.02  # a margin this close to equal is refused where the A/A pass is noisier than `NOISY_CV`
NOISY_CV = 0.05


def pairable(cases: Iterable[CaseRef], policy: ThroughputPolicy) -> dict[str, int]:
    """Lengths, in characters, of the cases whose token limit lets them give a pair."""
    least = policy.min_output_tokens
    return {case.case_id: case.characters for case in cases if case.max_tokens is None or case.max_tokens >= least}


def coverage_prompts(lengths: Mapping[str, int], max_prompts: int) -> tuple[str, ...]:
    """The prompts that must be in a pair, longest first: min(P, `max_prompts`) of them.

    `lengths` are those of the prompts that can give a pair. Sorted by length, then id, the prompts taken are the last,
    the first, and evenly spaced ones between; ties in length go by id. Raises ValueError for `max_prompts` below 1.
    """
    if isinstance(max_prompts, bool) or not isinstance(max_prompts, int) or max_prompts < 1:
        raise ValueError(f"throughput max_prompts must be a whole number of at least 1, got {max_prompts!r}")
    falling = sorted(lengths, key=lambda case_id: (-lengths[case_id], case_id))
    taken = min(len(falling), max_prompts)
    gaps = max(1, taken - 1)
    return tuple(falling[i * (len(falling) - 1) // gaps] for i in range(taken))


def pair_spread(cv: float) -> float:
    """Standard deviation of d over two cells with lognormal rates of coefficient of variation `cv` each."""
    return math.sqrt(2 * math.log1p(cv**2))


def cell_cv(spread: float) -> float:
    """The inverse of `pair_spread`."""
    return math.sqrt(math.expm1(spread**2 / 2))


def pairs_needed(ratio: float, margin: float, cv: float, alpha: float = 0.05, power: float = 0.9) -> int | None:
    """Pairs at which a one-sided paired t test tells a true `ratio` from 1 + `margin` with chance `power`.

    Either direction. `cv` is that of one cell's rate, taken as lognormal: see `pair_spread`. At least
    `LEAST_PAIRS`; None when the ratio is the margin itself or 81,920 pairs would not do.
    Raises ValueError for numbers that cannot be.
    """
    if not 0 < ratio < math.inf:
        raise ValueError(f"ratio must be above 0, got {ratio!r}")
    if not -1 < margin < math.inf:
        raise ValueError(f"throughput margin must be above -1, got {margin!r}")
    if not 0 < cv < math.inf:
        raise ValueError(f"cv must be above 0, got {cv!r}")
    if not 0 < alpha < power < 1:
        raise ValueError(f"power must be above alpha {alpha!r} and below 1, got {power!r}")
    effect = abs(math.log(ratio) - math.log1p(margin)) / pair_spread(cv)

    def enough(pairs: int) -> bool:
        limit = t_limit(alpha, pairs - 1)
        return noncentral_t_above(limit, pairs - 1, effect * math.sqrt(pairs)) >= power

    low = high = LEAST_PAIRS
    for _ in range(DOUBLINGS + 1):
        if enough(high):
            return low + bisect_left(range(low, high), True, key=enough)
        low, high = high, 2 * high
    return None


def margin_problem(margin: float, cv: float) -> str | None:
    """Why a plan with this throughput margin is refused at the CV the A/A pass measured, or None."""
    if margin < CLOSE_MARGIN or cv <= NOISY_CV:
        return None
    pairs = pairs_needed(1.0, margin, cv)
    need = "no number of pairs" if pairs is None else f"about {pairs} pairs"
    return (
        f"throughput margin {margin:+.1%} cannot be told from equal here: cells vary by {cv:.1%}, "
        f"so an equal candidate needs {need}; a margin of -5 % or a quieter machine would do"
    )
