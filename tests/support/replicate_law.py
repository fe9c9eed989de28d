"""The exact law of one replicate by dynamic program, for any rule whose E depends on the counts of the four pairs.

Every candidate unit is bad with one rate and every baseline unit with another, independently. The order of halves and
the endings are those of STATISTICS.md section 4; nothing of the shipped replicate is used, so the two can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

Counts = tuple[int, int, int, int]  # pairs: candidate bad alone, both good, both bad, baseline bad alone


@dataclass(frozen=True)
class Rule:
    """A replicate's rule. `e_value` gives E from the counts of complete pairs."""

    name: str
    e_value: Callable[[Counts], float]
    threshold: float = 40.0
    futility: float = 0.05
    clean_units: int = 8
    max_pairs: int = 30


@dataclass(frozen=True)
class Law:
    """Chances of the endings and expected prefills, both arms counted."""

    confirmed: float
    clean: float
    futile: float
    capped: float
    prefills: float
    prefills_confirmed: float  # expected prefills where it confirms, times the chance that it does


def static_factors(baseline: float, candidate: float) -> Counts:
    """The four factors planned at these rates, in the order of `Counts`."""
    mean = (baseline + candidate) / 2
    bad, good = candidate / mean, (1 - candidate) / (1 - mean)
    other_bad, other_good = baseline / mean, (1 - baseline) / (1 - mean)
    return bad * other_good, good * other_good, bad * other_bad, good * other_bad  # type: ignore[return-value]


def static(baseline: float = 0.02, candidate: float = 0.40) -> Callable[[Counts], float]:
    """E planned at two rates."""
    factors = static_factors(baseline, candidate)

    @cache
    def e_value(counts: Counts) -> float:
        value = 1.0
        for factor, count in zip(factors, counts, strict=True):
            value *= factor**count
        return value

    return e_value


class _Walk:
    """Endings gathered while the states walk forward."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.ends: dict[str, float] = defaultdict(float)
        self.prefills = self.prefills_confirmed = 0.0

    def end(self, how: str, chance: float, prefills: int) -> None:
        self.ends[how] += chance
        self.prefills += chance * prefills
        if how == "confirmed":
            self.prefills_confirmed += chance * prefills

    def ended(self, counts: Counts, chance: float, prefills: int) -> bool:
        """Whether the replicate ends at these complete pairs; its chance is gathered then."""
        value = self.rule.e_value(counts)
        if value >= self.rule.threshold:
            how = "confirmed"
        elif value <= self.rule.futility:
            how = "futile"
        elif sum(counts) >= self.rule.max_pairs:
            how = "capped"
        else:
            return False
        self.end(how, chance, prefills)
        return True


def law_of(rule: Rule, baseline: float, candidate: float) -> Law:
    """The exact law at true bad rates `baseline` and `candidate`."""
    walk = _Walk(rule)
    starts = _leading(walk, baseline, candidate)
    chances = {
        (1, 0, 0, 0): candidate * (1 - baseline),
        (0, 1, 0, 0): (1 - candidate) * (1 - baseline),
        (0, 0, 1, 0): candidate * baseline,
        (0, 0, 0, 1): (1 - candidate) * baseline,
    }
    for pairs in range(1, rule.max_pairs):
        for counts, chance in starts.pop(pairs, {}).items():
            for step, weight in chances.items():
                if chance * weight <= 0.0:
                    continue
                after: Counts = tuple(a + b for a, b in zip(counts, step, strict=True))  # type: ignore[assignment]
                if not walk.ended(after, chance * weight, 2 * (pairs + 1)):
                    starts[pairs + 1][after] += chance * weight
    ends = walk.ends
    return Law(ends["confirmed"], ends["clean"], ends["futile"], ends["capped"], walk.prefills, walk.prefills_confirmed)


def _leading(walk: _Walk, baseline: float, candidate: float) -> dict[int, dict[Counts, float]]:
    """The candidate's leading units and their mates: states, by complete pairs, from which pairs go on."""
    rule = walk.rule
    starts: dict[int, dict[Counts, float]] = defaultdict(lambda: defaultdict(float))
    walk.end("clean", (1 - candidate) ** rule.clean_units, rule.clean_units)
    for first in range(rule.clean_units):  # the first bad unit; its own mate runs before the others
        running = {0: (1 - candidate) ** first * candidate}
        for mates in range(1, first + 1):
            after: dict[int, float] = defaultdict(float)
            for bad, chance in running.items():
                after[bad] += chance * (1 - baseline)
                after[bad + 1] += chance * baseline
            running = {
                bad: chance
                for bad, chance in after.items()
                if chance and not walk.ended((0, mates - bad, 0, bad), chance, first + 2 + mates)
            }
        for bad, chance in running.items():
            for own_bad, weight in ((0, 1 - baseline), (1, baseline)):
                counts = (1 - own_bad, first - bad, own_bad, bad)
                if chance * weight and not walk.ended(counts, chance * weight, 2 * (first + 1)):
                    starts[first + 1][counts] += chance * weight
    return starts


def false_rollback(first: Rule, second: Rule, baseline: float, candidate: float) -> float:
    """Chance that one of two replicates confirms, both always run: the bound of a run's false rollbacks."""
    one, two = law_of(first, baseline, candidate), law_of(second, baseline, candidate)
    return one.confirmed + (1 - one.confirmed) * two.confirmed
