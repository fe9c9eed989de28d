"""Exact small-sample statistics of binomial counts, and the units a cluster of cells is worth.

Tails are built from ratios of neighbouring probabilities, summed outwards from the mode and normalised by their
own total: no gamma function, no cancellation, about 1e-13 relative error at a million units.
Formulas: Clopper and Pearson 1934; Fisher 1935; Boschloo 1970; Kish 1965 (STATISTICS.md sections 1, 5, 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import accumulate, takewhile
from statistics import NormalDist

Ratio = Callable[[int], float]  # P(j + 1) / P(j)

BOSCHLOO_MAX_UNITS = 1000  # of both arms together; beyond it Fisher's p stands in, which is never smaller
_CHI_STEPS = 64  # Simpson intervals for the noncentral t
_CHI_WIDTH = 7.0  # standard deviations of the chi variate integrated on either side
# A verdict is written anew as cells come, and asks for the same few bounds, which are found by halving. A watch is
# without end, so no more than these are kept.
_remembered = lru_cache(4096)  # equivalent mutant: what is forgotten is found again


def _whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Raises ValueError naming the field, the value and what is allowed."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        allowed = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be a whole number {allowed}, got {value!r}")


def _fraction(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
    return float(value)


def _inner(name: str, value: object) -> float:
    """A fraction strictly between 0 and 1."""
    fraction = _fraction(name, value)
    if fraction in (0.0, 1.0):
        raise ValueError(f"{name} must be above 0 and below 1, got {value!r}")
    return fraction


def _upward(ratio: Ratio, start: int, high: int) -> float:
    """Sum of P(j) / P(start) over j = start..high, for a start at or above the mode."""
    total = term = 1.0
    for j in range(start, high):
        term *= ratio(j)
        before, total = total, total + term
        if total == before:
            break
    return total


def _downward(ratio: Ratio, start: int, low: int) -> float:
    """Sum of P(j) / P(start) over j = low..start, for a start at or below the mode."""
    total = term = 1.0
    for j in range(start - 1, low - 1, -1):
        term /= ratio(j)
        before, total = total, total + term
        if total == before:
            break
    return total


def _at(ratio: Ratio, mode: int, k: int) -> float:
    """P(k) / P(mode). One of the two products is empty."""
    return math.prod(map(ratio, range(mode, k))) / math.prod(map(ratio, range(k, mode)))


def _upper_tail(ratio: Ratio, mode: int, k: int, support: tuple[int, int]) -> float:
    """P(X >= k) of a unimodal distribution, given the ratio of neighbours and a place at or next to its mode.

    `k` lies in `support`. All terms are added, none taken away, so a small tail keeps its digits.
    """
    low, high = support
    total = _upward(ratio, mode, high) + _downward(ratio, mode, low) - 1.0
    top = max(mode, k)
    return _at(ratio, mode, top) * (_upward(ratio, top, high) + _downward(ratio, top, k) - 1.0) / total


def _binomial(units: int, rate: float) -> tuple[Ratio, int]:
    """Ratio of neighbours and the place next to the mean of a binomial with 0 <= rate < 1."""
    odds = rate / (1.0 - rate)
    return (lambda j: (units - j) / (j + 1) * odds), round(units * rate)


def binomial_pmf(bad: int, units: int, rate: float) -> float:
    """P(exactly `bad` of `units`) at `rate`. Raises ValueError on counts or rates that cannot be."""
    _whole("units", units, 0)
    _whole("bad", bad, 0, units)
    if _fraction("rate", rate) == 1.0:
        return 1.0 if bad == units else 0.0
    ratio, mode = _binomial(units, rate)
    return _at(ratio, mode, bad) / (_upward(ratio, mode, units) + _downward(ratio, mode, 0) - 1.0)


def binomial_at_least(bad: int, units: int, rate: float) -> float:
    """P(`bad` or more of `units`) at `rate`. Raises ValueError on counts or rates that cannot be."""
    _whole("units", units, 0)
    _whole("bad", bad, 0, units)
    if _fraction("rate", rate) == 1.0:
        return 1.0
    ratio, mode = _binomial(units, rate)
    return _upper_tail(ratio, mode, bad, (0, units))


def binomial_at_most(bad: int, units: int, rate: float) -> float:
    """P(`bad` or fewer of `units`) at `rate`. Raises ValueError on counts or rates that cannot be."""
    _whole("units", units, 0)
    _whole("bad", bad, 0, units)
    if _fraction("rate", rate) in (0.0, 1.0):
        return 1.0 if bad >= units * rate else 0.0
    # The mirrored distribution, by its own ratio: 1 - rate would lose a small rate.
    ratio, mode = _binomial(units, rate)
    return _upper_tail(lambda j: 1.0 / ratio(units - j - 1), units - mode, units - bad, (0, units))


def _root(rises: Callable[[float], bool]) -> float:
    """The least number between 0 and 1 at which `rises`, once False and then True, is True."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if rises(middle) else (middle, high)
    return high


def rate_lower_bound(bad: int, units: int, alpha: float = 0.05) -> float:
    """One-sided Clopper-Pearson lower bound of the bad rate, error `alpha`.

    Raises ValueError without units, with `bad` outside 0..units or `alpha` outside (0, 1).
    """
    _whole("units", units, 1)
    _whole("bad", bad, 0, units)
    _inner("alpha", alpha)
    if bad == 0:
        return 0.0
    return _lower(bad, units, alpha)


@_remembered
def _lower(bad: int, units: int, alpha: float) -> float:
    return _root(lambda rate: binomial_at_least(bad, units, rate) >= alpha)


def rate_upper_bound(bad: int, units: int, alpha: float = 0.05) -> float:
    """One-sided Clopper-Pearson upper bound of the bad rate, error `alpha`. Raises as `rate_lower_bound`."""
    _whole("units", units, 1)
    _whole("bad", bad, 0, units)
    _inner("alpha", alpha)
    if bad == units:
        return 1.0
    return _upper(bad, units, alpha)


@_remembered
def _upper(bad: int, units: int, alpha: float) -> float:
    return _root(lambda rate: binomial_at_most(bad, units, rate) <= alpha)


def clopper_pearson(bad: int, units: int, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided Clopper-Pearson interval of the bad rate: each end a one-sided bound at half the error.

    Raises ValueError for impossible numbers.
    """
    alpha = (1.0 - _inner("confidence", confidence)) / 2
    return rate_lower_bound(bad, units, alpha), rate_upper_bound(bad, units, alpha)


def _check_table(candidate_bad: int, candidate_units: int, baseline_bad: int, baseline_units: int) -> None:
    _whole("candidate_units", candidate_units, 1)
    _whole("candidate_bad", candidate_bad, 0, candidate_units)
    _whole("baseline_units", baseline_units, 1)
    _whole("baseline_bad", baseline_bad, 0, baseline_units)


def _fisher(candidate_bad: int, candidate_units: int, baseline_bad: int, baseline_units: int) -> float:
    total_bad = candidate_bad + baseline_bad
    support = (max(0, total_bad - baseline_units), candidate_units)  # above the total the ratio is 0
    mean = candidate_units * total_bad // (candidate_units + baseline_units)

    def ratio(j: int) -> float:
        return (candidate_units - j) * (total_bad - j) / ((j + 1) * (baseline_units - total_bad + j + 1))

    return _upper_tail(ratio, mean, candidate_bad, support)


def fisher_one_sided(candidate_bad: int, candidate_units: int, baseline_bad: int, baseline_units: int) -> float:
    """Fisher's exact p that the candidate is worse, given both margins.

    Raises ValueError when an arm has no units or more bad than units.
    """
    _check_table(candidate_bad, candidate_units, baseline_bad, baseline_units)
    return _fisher(candidate_bad, candidate_units, baseline_bad, baseline_units)


def boschloo_one_sided(candidate_bad: int, candidate_units: int, baseline_bad: int, baseline_units: int) -> float:
    """Boschloo's exact unconditional p that the candidate is worse (supremum over the common rate).

    2/2 against 0/2 gives 0.0625. The supremum is taken over a grid of equal angles, its peaks refined. The cost
    grows with the product of the units: above `BOSCHLOO_MAX_UNITS` of both arms together Fisher's p, which is never
    smaller, is returned instead. Raises as `fisher_one_sided`.
    """
    observed = fisher_one_sided(candidate_bad, candidate_units, baseline_bad, baseline_units)
    units = candidate_units + baseline_units
    if units > BOSCHLOO_MAX_UNITS:
        return observed
    outcomes = _extreme_outcomes(candidate_bad, candidate_units, baseline_bad, baseline_units)

    def height(angle: float) -> float:
        bad, good = math.sin(angle) ** 2, math.cos(angle) ** 2
        return math.fsum(count * bad**k * good ** (units - k) for k, count in enumerate(outcomes))

    # In the angle the peaks are all about 1 / (2 sqrt(units)) wide, however near to 0 or 1 the rate is.
    points = 16 * math.isqrt(units)
    step = math.pi / 2 / points
    heights = [height(i * step) for i in range(points)]
    peaks = [
        _climb(height, i * step, step)
        for i in range(points)
        if heights[i - 1] < heights[i] >= heights[i + 1 - points]  # equivalent mutant: neighbours climb the same peak
    ]
    return min(observed, max(heights + peaks))


def _extreme_outcomes(candidate_bad: int, candidate_units: int, baseline_bad: int, baseline_units: int) -> list[float]:
    """For each number of bad units of both arms together, in how many ways it falls on units so that Fisher's p is
    at most the observed one. Counted in whole numbers, since p values that are equal must compare as equal."""
    units = candidate_units + baseline_units
    chosen = cache(math.comb)

    def ways(bad: int, total: int) -> int:
        return chosen(candidate_units, bad) * chosen(baseline_units, total - bad)

    def worst_first(total: int) -> range:
        return range(max(0, total - baseline_units), min(candidate_units, total) + 1)[::-1]

    total_bad = candidate_bad + baseline_bad
    observed = sum(ways(bad, total_bad) for bad in worst_first(total_bad) if bad >= candidate_bad)
    of = math.comb(units, total_bad)

    def extreme(total: int) -> int:
        limit = observed * math.comb(units, total)
        tails = accumulate(ways(bad, total) for bad in worst_first(total))
        return max(takewhile(lambda tail: tail * of <= limit, tails), default=0)

    # All bad is left out: it is one outcome, as extreme as any only where the observed p is 1.
    return [float(extreme(total)) for total in range(units)]


def _climb(height: Callable[[float], float], angle: float, step: float) -> float:
    """Height of the one peak less than `step` from `angle`."""
    for _ in range(14):
        step /= 2
        angle = max(angle - step, angle, angle + step, key=height)
    return height(angle)


def kish_effective_units(sizes: Sequence[int], rho: float = 1.0) -> float:
    """Kish's effective sample size M^2 / (M (1 - rho) + rho sum m_i^2) of M cells in clusters of `sizes` (L. Kish,
    Survey Sampling, 1965).

    A diagnostic, never a count for a decision. Raises ValueError without clusters or with an empty one.
    """
    if not sizes:
        raise ValueError("sizes must name at least one cluster, got none")
    for size in sizes:
        _whole("sizes", size, 1)
    _fraction("rho", rho)
    cells = sum(sizes)
    return cells**2 / (cells * (1 - rho) + rho * sum(size**2 for size in sizes))


def shared_prefix_units(units: int, shared: float) -> float:
    """What `units` that share a fraction of their prefill are worth as evidence of badness: k / (1 + (k - 1) r).

    The design effect of k cells of one cluster (`kish_effective_units`). Raises ValueError for impossible numbers.
    """
    _whole("units", units, 1)
    _fraction("shared", shared)
    return units / (1 + (units - 1) * shared)


def noncentral_t_above(limit: float, freedom: int, noncentrality: float = 0.0) -> float:
    """P(T > limit) of a noncentral t: the normal tail averaged over the chi variate of its denominator.

    Simpson's rule: absolute error under 3e-6 from two degrees of freedom on, under 1e-10 from ten on. Raises ValueError
    for `freedom` below 1.
    """
    _whole("freedom", freedom, 1)
    normal = NormalDist()
    log_scale = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    spread = _CHI_WIDTH / math.sqrt(2 * freedom)
    low, high = max(0.0, 1 - spread), 1 + spread
    step = (high - low) / _CHI_STEPS
    terms = []
    for i in range(_CHI_STEPS + 1):
        s = low + i * step
        weight = 1 if i in (0, _CHI_STEPS) else 4 if i % 2 else 2
        density = math.exp(log_scale + (freedom - 1) * math.log(s) - freedom * s * s / 2) if s > 0 else 0.0
        terms.append(weight * density * normal.cdf(noncentrality - limit * s))
    return math.fsum(terms) * step / 3


def t_limit(alpha: float, freedom: int) -> float:
    """The value a central t exceeds with probability `alpha`. Raises ValueError unless 0 < alpha < 0.5."""
    if _inner("alpha", alpha) >= 0.5:
        raise ValueError(f"alpha must be below 0.5, got {alpha!r}")
    return _t_limit(alpha, freedom)


@_remembered
def _t_limit(alpha: float, freedom: int) -> float:
    share = _root(lambda share: noncentral_t_above(share / (1 - share), freedom) <= alpha)
    return share / (1 - share)
