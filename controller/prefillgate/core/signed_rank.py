"""The exact signed-rank test of paired differences, its estimate and its interval (STATISTICS.md section 8).

Wilcoxon 1945; Hodges and Lehmann 1963. Zero differences are dropped before ranking (Wilcoxon's rule). Ties share the
average of their ranks and are permuted as they are, so p values stay exact; ranks are doubled to keep them whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, groupby
from operator import add
from statistics import median


@dataclass(frozen=True, slots=True)
class SignedRank:
    """`statistic` is the sum of the ranks of positive differences; `pairs` those that are not zero.

    `p_greater`: exact chance, were the differences symmetric about zero, of a statistic as large or larger;
    `p_less`: as small or smaller. Both are 1 without a difference that is not zero.
    """

    statistic: float
    pairs: int
    p_greater: float
    p_less: float


def _check(differences: Sequence[float]) -> None:
    if not differences:
        raise ValueError("differences must hold at least one number, got none")
    for difference in differences:
        if difference is None or not math.isfinite(difference):
            raise ValueError(f"differences must be finite numbers, got {difference!r}")


def null_counts(doubled_ranks: Sequence[int]) -> list[int]:
    """How many of the 2^n sign patterns give each doubled rank sum 0, 1, ..., sum of `doubled_ranks`."""
    counts = [1]
    for rank in doubled_ranks:
        counts = list(map(add, [0] * rank + counts, counts + [0] * rank))
    return counts


def doubled_average_ranks(differences: Sequence[float]) -> list[int]:
    """Twice the average rank of each difference by size, in the order given. No difference may be zero."""
    order = sorted(range(len(differences)), key=lambda i: abs(differences[i]))
    ranks: dict[int, int] = {}
    below = 0
    for _, tied in groupby(order, key=lambda i: abs(differences[i])):
        group = list(tied)
        for i in group:
            ranks[i] = 2 * below + len(group) + 1
        below += len(group)
    return [ranks[i] for i in range(len(differences))]


def signed_rank_test(differences: Sequence[float], centre: float = 0.0) -> SignedRank:
    """Exact one-sided tests that `differences` lie above or below `centre`.

    Raises ValueError when there is no difference or one is not a finite number.
    """
    _check(differences)
    shifted = [difference - centre for difference in differences if difference != centre]
    ranks = doubled_average_ranks(shifted)
    positive = [difference > 0 for difference in shifted]  # equivalent mutant: none of them is zero
    observed = sum(compress(ranks, positive))
    counts = null_counts(ranks)
    patterns = 2 ** len(ranks)
    return SignedRank(
        statistic=observed / 2,
        pairs=len(ranks),
        p_greater=sum(counts[observed:]) / patterns,
        p_less=sum(counts[: observed + 1]) / patterns,
    )


def walsh_averages(differences: Sequence[float]) -> list[float]:
    """The n (n + 1) / 2 averages of every two differences, each with itself too, in rising order."""
    return sorted((a + b) / 2 for i, a in enumerate(differences) for b in differences[i:])


def hodges_lehmann(differences: Sequence[float]) -> float:
    """Median of the Walsh averages: the centre the signed-rank test rejects least. Raises as `signed_rank_test`."""
    _check(differences)
    return median(walsh_averages(differences))


def signed_rank_interval(differences: Sequence[float], alpha: float) -> tuple[float, float] | None:
    """The centres that neither one-sided exact test at `alpha` rejects: each end is a one-sided bound.

    None with too few pairs for such an error (0.05 needs five). The ends are Walsh averages, counted by the
    null distribution without ties; zeros stay in. Raises ValueError as `signed_rank_test`, or for an `alpha` outside
    (0, 0.5].
    """
    _check(differences)
    if not 0 < alpha <= 0.5:
        raise ValueError(f"alpha must be above 0 and at most 0.5, got {alpha!r}")
    pairs = len(differences)
    counts = null_counts(range(1, pairs + 1))
    outside, seen = 0, 0
    while (seen + counts[outside]) <= alpha * 2**pairs:
        seen += counts[outside]
        outside += 1
    if outside == 0:
        return None
    averages = walsh_averages(differences)
    return averages[outside - 1], averages[-outside]
