"""Promote: acceptance tables on the candidate alone (STATISTICS.md section 2).

A table holds n_0 < n_1 < ... < n_K: at n_k fresh units, k bad ones still promote. Its error and power come from an
exact dynamic program over the stopping points; no table is taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from prefillgate.core.exact import binomial_at_most
from prefillgate.core.policy import Policy

QUICK = Policy(name="quick", margin=0.20, alpha=0.05, acceptance=(16, 25, 35), budget=150)
STANDARD = Policy(name="standard", margin=0.10, alpha=0.05, acceptance=(32, 56, 75), budget=200)
STRICT = Policy(name="strict", margin=0.05, alpha=0.05, acceptance=(67, 105, 175), budget=300)
NAMED_POLICIES = {policy.name: policy for policy in (QUICK, STANDARD, STRICT)}

PLANNING_RATE = 0.01  # the healthy rate a searched table is cheapest at
MAX_UNITS = 10_000  # the largest entry a table may have: beyond it nobody runs a plan, and the search would not end
MAX_BAD_ALLOWED = 2  # a searched table has at most the entries for 0, 1 and 2 bad
_GRID = 150  # above this many units the search steps over the entries in strides


@dataclass(frozen=True, slots=True)
class AcceptanceTable:
    """Margin d and error alpha (fractions), and the entries n_0 < n_1 < ... in fresh units.

    Raises ValueError when a number is impossible. That `alpha` is kept is for `false_promotion` to say.
    """

    margin: float
    alpha: float
    entries: tuple[int, ...]

    def __post_init__(self) -> None:
        check_margin(self.margin)
        check_alpha(self.alpha)
        rising = all(low < high for low, high in pairwise(self.entries))
        if not self.entries or self.entries[0] < 1 or not rising:
            raise ValueError(f"acceptance must be rising whole numbers of at least 1, got {list(self.entries)}")

    @property
    def bad_allowed(self) -> int:
        """K, the most bad units that may still promote."""
        return len(self.entries) - 1

    @property
    def last(self) -> int:
        """n_K, the last entry, in fresh units."""
        return self.entries[-1]


@dataclass(frozen=True, slots=True)
class Power:
    """What a table does at a true bad rate. `expected_prefills` counts units until promotion, the last entry, or
    one bad more than the table allows."""

    rate: float
    promote: float
    expected_prefills: float


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return value


def check_margin(margin: float) -> None:
    """Raises ValueError unless `margin` lies strictly between 0 and 1."""
    if not 0 < _number("margin", margin) < 1:
        raise ValueError(f"margin must be above 0 and below 1, got {margin!r}")


def check_alpha(alpha: float) -> None:
    """Raises ValueError unless `alpha` is above 0 and at most 0.5."""
    if not 0 < _number("alpha", alpha) <= 0.5:
        raise ValueError(f"alpha must be above 0 and at most 0.5, got {alpha!r}")


def check_rate(rate: float) -> None:
    """Raises ValueError unless `rate` is a fraction from 0 to 1."""
    if not 0 <= _number("rate", rate) <= 1:
        raise ValueError(f"rate must be from 0 to 1, got {rate!r}")


def power(table: AcceptanceTable, rate: float) -> Power:
    """Exact chance of promotion and expected units at true bad rate `rate`. Raises ValueError on a bad `rate`."""
    check_rate(rate)
    running = (1.0,) + (0.0,) * table.bad_allowed  # running[b]: probability of b bad so far, not yet stopped
    promote = expected = 0.0
    for allowed, (before, entry) in enumerate(pairwise((0, *table.entries)), start=1):
        for _ in range(entry - before):
            expected += math.fsum(running)
            running = _one_more(running, rate)
        promote += math.fsum(running[:allowed])
        running = (0.0,) * allowed + running[allowed:]
    return Power(rate, promote, expected)


def false_promotion(table: AcceptanceTable) -> float:
    """Exact chance to promote a candidate whose bad rate is the margin: the table's error."""
    return power(table, table.margin).promote


def smallest_units(margin: float, alpha: float) -> int:
    """The least fresh units, none of them bad, that can promote: the smallest n with (1 - margin)^n <= alpha.

    Raises ValueError on an impossible margin or alpha, and when the answer is above `MAX_UNITS`.
    """
    check_margin(margin)
    check_alpha(alpha)
    least_margin = -math.expm1(math.log(alpha) / MAX_UNITS)
    if margin < least_margin:
        raise ValueError(
            f"margin {margin!r} needs more than {MAX_UNITS} prefills at alpha {alpha!r}; "
            f"at least {least_margin:.6f} is possible"
        )
    return _clean_units(alpha, margin)


def _clean_units(chance: float, margin: float) -> int:
    """Smallest whole n with (1 - margin)^n <= chance."""
    units = math.ceil(math.log(chance) / math.log1p(-margin))
    # The logarithms may err in their last bits.
    return units + ((1 - margin) ** units > chance) - ((1 - margin) ** (units - 1) <= chance)


def fixed_sample_units(margin: float, alpha: float, bad_allowed: int) -> int:
    """One look only: the smallest n at which `bad_allowed` or fewer bad units promote with error <= alpha.

    Raises ValueError on impossible numbers.
    """
    if isinstance(bad_allowed, bool) or not isinstance(bad_allowed, int) or bad_allowed < 0:
        raise ValueError(f"bad_allowed must be a whole number of at least 0, got {bad_allowed!r}")
    units = smallest_units(margin, alpha)
    while binomial_at_most(min(bad_allowed, units), units, margin) > alpha:
        units += 1
    return units


def find_table(
    margin: float, alpha: float, cap: int | None = None, bad_allowed: int = MAX_BAD_ALLOWED
) -> AcceptanceTable:
    """The table for (margin, alpha), no entry above `cap`.

    A named profile's table where its numbers and the cap fit. Otherwise the table with the most entries the cap
    allows, `bad_allowed` + 1 at most, and of those the one with the fewest expected units at a bad rate of
    `PLANNING_RATE` (at a margin under twice that, half the margin) whose exact error is at most alpha.
    Raises ValueError on impossible numbers, and when `cap` is below `smallest_units`, which it names.
    """
    smallest = smallest_units(margin, alpha)
    if isinstance(bad_allowed, bool) or not isinstance(bad_allowed, int) or not 0 <= bad_allowed <= MAX_BAD_ALLOWED:
        raise ValueError(f"bad_allowed must be a whole number from 0 to {MAX_BAD_ALLOWED}, got {bad_allowed!r}")
    if cap is not None:
        if isinstance(cap, bool) or not isinstance(cap, int) or cap < 1:
            raise ValueError(f"cap must be a whole number of at least 1, got {cap!r}")
        if cap < smallest:
            raise ValueError(f"cap {cap} is below {smallest}, the smallest possible at margin {margin}, alpha {alpha}")
    for policy in NAMED_POLICIES.values():
        fits = cap is None or policy.acceptance[-1] <= cap
        if (policy.margin, policy.alpha, len(policy.acceptance)) == (margin, alpha, bad_allowed + 1) and fits:
            return AcceptanceTable(margin, alpha, policy.acceptance)
    search = _Search(margin, alpha, smallest, cap)
    for entries in range(bad_allowed + 1, 1, -1):
        found = search.cheapest(entries)
        if found:
            return AcceptanceTable(margin, alpha, found)
    return AcceptanceTable(margin, alpha, (smallest,))


@dataclass(frozen=True, slots=True)
class _Step:
    """A start of a table: entries so far, error spent, expected units, and the paths still running.

    The paths still running after the last entry have more bad units than it allows: `at_margin[b]` and
    `at_healthy[b]` are their probabilities at the margin and at the planning rate.
    """

    entries: tuple[int, ...]
    error: float
    expected: float
    at_margin: tuple[float, ...]
    at_healthy: tuple[float, ...]


class _Search:
    """Branch and bound over tables, entry by entry; the last entry follows from the error that is left.

    More units to an entry, the others kept, cost more: so the expected units up to an entry bound every table that
    begins like it, and a row of entries ends at the first that costs more than the best table.
    """

    def __init__(self, margin: float, alpha: float, smallest: int, cap: int | None) -> None:
        self.margin, self.alpha, self.smallest = margin, alpha, smallest
        self.cap = MAX_UNITS if cap is None else min(cap, MAX_UNITS)
        self.healthy = min(PLANNING_RATE, margin / 2)
        self.stride = 1 + smallest // _GRID
        self.cost = math.inf
        self.best: tuple[int, ...] = ()

    def cheapest(self, entries: int) -> tuple[int, ...]:
        """The cheapest table of exactly this many entries, or none when none fits."""
        clean, spent = (1.0,) + (0.0,) * (entries - 1), 0.0
        self._extend(_Step((), spent, spent, clean, clean), entries)
        return self.best

    def _extend(self, step: _Step, entries: int) -> None:
        if len(step.entries) == entries - 1:
            self._finish(step)
            return
        for longer in self._next_steps(step):
            if longer.expected >= self.cost:  # equivalent mutant: what it leads to costs more still
                return
            if longer.error < self.alpha:
                self._extend(longer, entries)

    def _next_steps(self, step: _Step) -> Iterator[_Step]:
        """Every way to set the next entry, in rising order."""
        bad = len(step.entries)
        units = (0, *step.entries)[-1]
        at_margin, at_healthy, expected = step.at_margin, step.at_healthy, step.expected
        while units < self.cap:  # equivalent mutant: behind the cap there is no room for the last entry
            expected += sum(at_healthy)
            at_margin, at_healthy = _one_more(at_margin, self.margin), _one_more(at_healthy, self.healthy)
            units += 1
            if units < self.smallest or units % self.stride:
                continue
            clear = (0.0,) * (bad + 1)
            yield _Step(
                (*step.entries, units),
                step.error + at_margin[bad],
                expected,
                clear + at_margin[bad + 1 :],
                clear + at_healthy[bad + 1 :],
            )

    def _finish(self, step: _Step) -> None:
        """Set the last entry: only clean units lead to it, so it is a power of the clean rate."""
        before, left = step.entries[-1], self.alpha - step.error
        needed = _clean_units(left / step.at_margin[-1], self.margin)
        more = max(1, needed)  # equivalent mutant: where fewer would do a cheaper table was found before
        last = before + more
        if last > self.cap:
            return
        clean = 1 - self.healthy
        expected = step.expected + step.at_healthy[-1] * (1 - clean**more) / self.healthy
        entries = (*step.entries, last)
        if expected >= self.cost:  # equivalent mutant: no two tables cost the same to the last bit
            return
        # The sum of rounded steps may pass alpha by a last bit: the exact program has the last word.
        if false_promotion(AcceptanceTable(self.margin, self.alpha, entries)) <= self.alpha:
            self.cost, self.best = expected, entries


def _one_more(running: tuple[float, ...], rate: float) -> tuple[float, ...]:
    """Probabilities of each count of bad units after one more unit."""
    return tuple(same * (1 - rate) + fewer * rate for fewer, same in pairwise((0.0, *running)))


def affordable_margin(rate: float, wanted: float, alpha: float, cap: int | None = None) -> float | None:
    """The smallest margin, in whole percent, whose table promotes a bad rate of `rate` with chance `wanted` or more.

    None when no margin below 1 does. Raises ValueError on impossible numbers.
    """
    check_rate(rate)
    check_rate(wanted)
    for percent in range(1, 100):
        smallest = smallest_units(percent / 100, alpha)
        if cap is not None and smallest > cap:
            continue
        # Entry k is at least `smallest` + k, so no table does better: spares the search where that is too little.
        if binomial_at_most(MAX_BAD_ALLOWED, smallest + MAX_BAD_ALLOWED, rate) < wanted:
            continue
        if power(find_table(percent / 100, alpha, cap), rate).promote >= wanted:
            return percent / 100
    return None


def promotes(table: AcceptanceTable, units: int, bad: int, prompts: int) -> bool:
    """Whether `units` fresh units, `bad` of them bad, of a set of `prompts` prompts satisfy the table.

    True at any n >= max(n_k, P) with at most k bad, for any k; with P > n_K the test at P allows K.
    """
    return more_clean_units_needed(table, units, bad, prompts) == 0


def more_clean_units_needed(table: AcceptanceTable, units: int, bad: int, prompts: int) -> int | None:
    """Clean units still missing to promotion if no more bad ones come; None when `bad` is above K.

    Raises ValueError on negative counts.
    """
    for name, count in (("units", units), ("bad", bad), ("prompts", prompts)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"{name} must be a whole number of at least 0, got {count!r}")
    if bad > table.bad_allowed:
        return None
    return max(0, max(table.entries[bad], prompts) - units)


def unplanned_units(entry: int, prompts: int) -> int:
    """In a log the gate did not plan: the most units one of `prompts` prompts supplies to the test at `entry` units.

    Raises ValueError for `prompts` below 1.
    """
    if isinstance(prompts, bool) or not isinstance(prompts, int) or prompts < 1:
        raise ValueError(f"prompts must be a whole number of at least 1, got {prompts!r}")
    return -(-entry // prompts)
