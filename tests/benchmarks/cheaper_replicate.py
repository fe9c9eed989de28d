"""Looks for a replicate that is valid and cheaper than the shipped one: a row per rule and truth.

    python tests/benchmarks/cheaper_replicate.py [--runs 4000] [--workers 2] [--rules NAME ...]

Every rule plays the whole state machine of STATISTICS.md section 6 (standard profile, both arms counted) beside the
shipped rule on the same truths. Printed per row: shares of rollback, promote and hold, mean prefills of the runs that
rolled back, and that mean over Wald's bound where the page has one.

Validity is exact: `worst` is the largest chance that a replicate confirms although on every prompt the candidate is no
worse than the baseline, over every predictable choice of rates from pair to pair (dynamic program over a grid of both
rates, the clean exit left out, which only lowers it). It must not exceed .025 for the first replicate and .0125 for the
second. A rule that looks at more than the counts of its pairs is valid by its supermartingale alone.

Exits 1 when a valid rule is better at every row (it should be shipped then), else 0.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.simulation.harness import ROWS, WALD_ROLLBACK, Row
from tests.support.replicate_law import Counts, static, static_factors

ENTRIES, BUDGET, PROMPTS = (32, 56, 75), 200, 12
BAD_STEP, CLEAN_STEP = math.log(0.30 / 0.05), math.log(0.70 / 0.95)
TYPES = {(1, 0): 0, (0, 0): 1, (1, 1): 2, (0, 1): 3}


@dataclass(frozen=True)
class Tried:
    """A rule that was tried. `e_value` gives E from the counts; a plug-in's `plug_in` is its prior count instead."""

    name: str
    e_value: Callable[[Counts], float]
    thresholds: tuple[float, float] = (40.0, 80.0)
    futility: float = 0.05
    clean_units: int = 8
    max_pairs: int = 30
    alarm: float = 10.0
    candidate_first: bool = True
    plug_in: float | None = None


def mixture(rates: Sequence[tuple[float, float]]) -> Callable[[Counts], float]:
    """The mean of several planned tests: learns from its own pairs which of them grows."""
    parts = [static(*pair) for pair in rates]

    @cache
    def e_value(counts: Counts) -> float:
        return fmean(part(counts) for part in parts)

    return e_value


def discordant(share: float) -> Callable[[Counts], float]:
    """A bet on the discordant pairs alone (McNemar): pairs that agree change nothing."""
    return lambda counts: (2 * share) ** counts[0] * (2 * (1 - share)) ** counts[3]


SHIPPED = Tried("shipped .02/.40", static())
LOW_BASE = [(b, c) for b in (0.002, 0.03) for c in (0.2, 0.4, 0.8)]
RULES = (
    SHIPPED,
    *(
        Tried(f"planned {b:g}/{c:g}", static(b, c))
        for b in (0.001, 0.02, 0.05)
        for c in (0.3, 0.4, 0.5, 0.6)
        if (b, c) != (0.02, 0.4)
    ),
    Tried("mixture of candidate .2 .4 .8", mixture([(0.02, c) for c in (0.2, 0.4, 0.8)])),
    Tried("mixture of candidate .3 .7", mixture([(0.02, c) for c in (0.3, 0.7)])),
    Tried("mixture of both rates", mixture(LOW_BASE)),
    Tried("mixture of baseline .001 .05", mixture([(0.001, 0.35), (0.05, 0.45)])),
    Tried("planned .01/.35", static(0.01, 0.35)),
    Tried("planned .01/.40", static(0.01, 0.40)),
    Tried("planned .01/.40, futile at .01", static(0.01, 0.40), futility=0.01),
    Tried("planned .005/.40, futile at .001", static(0.005, 0.40), futility=0.001),
    Tried("plug-in, prior count 1", static(), plug_in=1.0),
    Tried("plug-in, prior count 4", static(), plug_in=4.0),
    Tried("discordant pairs, .98", discordant(0.98)),
    Tried("discordant pairs, .90", discordant(0.90)),
    Tried("clean after 6", static(), clean_units=6),
    Tried("clean after 12", static(), clean_units=12),
    Tried("pairs from the start", static(), candidate_first=False),
    Tried("futile at .2", static(), futility=0.2),
    Tried("40 pairs", static(), max_pairs=40),
    Tried("alarm at ln 6", static(), alarm=6.0),
    Tried("alarm at ln 20", static(), alarm=20.0),
    Tried("calibrated threshold 31/60", static(), thresholds=(31.0, 60.0)),
    Tried("calibrated threshold 27/55", static(), thresholds=(27.0, 55.0)),
    Tried("calibrated .01/.40, 31/60", static(0.01, 0.40), thresholds=(31.0, 60.0)),
    Tried("calibrated mixture of baseline .001 .05, 31/60", mixture([(0.001, 0.35), (0.05, 0.45)]), (31.0, 60.0)),
    Tried("calibrated .001/.40, 31/60", static(0.001, 0.40), thresholds=(31.0, 60.0)),
    Tried("calibrated .02/.50, 31/60", static(0.02, 0.50), thresholds=(31.0, 60.0)),
)


# Validity


def worst(rule: Tried, threshold: float) -> float:
    """The largest chance of a false confirmation over predictable rates with candidate no worse than baseline."""
    rates = np.linspace(0.0, 1.0, 41)
    pairs = [(b, c) for b in rates for c in rates if c <= b and (c == b or round(b * 40) % 4 == round(c * 40) % 4 == 0)]
    weights = np.array([(c * (1 - b), (1 - c) * (1 - b), c * b, (1 - c) * b) for b, c in pairs])
    ahead: dict[Counts, float] = {}
    for total in range(rule.max_pairs, -1, -1):
        here: dict[Counts, float] = {}
        states, rows = [], []
        for counts in _states(total):
            value = rule.e_value(counts)
            if value >= threshold:
                here[counts] = 1.0
            elif total == rule.max_pairs or value <= rule.futility:
                here[counts] = 0.0
            else:
                states.append(counts)
                rows.append([ahead[_after(counts, kind)] for kind in range(4)])
        if rows:
            best = (np.array(rows) @ weights.T).max(axis=1)
            here.update(zip(states, map(float, best), strict=True))
        ahead = here
    return ahead[(0, 0, 0, 0)]


def _states(total: int) -> list[Counts]:
    return [
        (a, b, c, total - a - b - c)
        for a in range(total + 1)
        for b in range(total + 1 - a)
        for c in range(total + 1 - a - b)
    ]


def _after(counts: Counts, kind: int) -> Counts:
    return tuple(count + (kind == at) for at, count in enumerate(counts))  # type: ignore[return-value]


# The state machine of a run, with any rule


@dataclass
class Machine:
    """One run: screen, alarm, at most two replicates."""

    rule: Tried
    baseline: float
    candidate: float
    draw: random.Random
    units: int = 0
    bad: int = 0
    spent: int = 0

    def unit(self) -> bool:
        """A candidate prefill; it counts towards promotion wherever it was taken."""
        outcome = self.draw.random() < self.candidate
        self.units, self.bad, self.spent = self.units + 1, self.bad + outcome, self.spent + 1
        return outcome

    def mate(self) -> bool:
        """A baseline prefill."""
        self.spent += 1
        return self.draw.random() < self.baseline

    def run(self) -> str:
        """promote, hold or rollback."""
        level, attempts, allowed = 0.0, 0, len(ENTRIES) - 1
        while self.spent < BUDGET:
            if self.bad <= allowed and self.units >= max(ENTRIES[self.bad], PROMPTS):
                return "promote"
            outcome = self.unit()
            level = max(0.0, level + (BAD_STEP if outcome else CLEAN_STEP))
            if level >= math.log(self.rule.alarm) or self.bad > allowed:
                if BUDGET - self.spent < (10, 12)[attempts]:
                    return "hold"
                if self.replicate(self.rule.thresholds[attempts]):
                    return "rollback"
                attempts, level = attempts + 1, 0.0
                if attempts == 2 or self.bad > allowed:
                    return "hold"
        return "hold"

    def replicate(self, threshold: float) -> bool:
        """Whether it confirms."""
        counts, leading = [0, 0, 0, 0], []
        test = PlugIn(self.rule.plug_in) if self.rule.plug_in is not None else None
        if self.rule.candidate_first:
            while not any(leading):
                if len(leading) == self.rule.clean_units:
                    return False
                leading.append(self.unit())
        clean, value = 0, 1.0
        for pair in range(self.rule.max_pairs):
            if self.spent >= BUDGET:
                return False
            outcome = leading[pair] if pair < len(leading) else self.unit()
            clean = clean + 1 if not outcome and clean == pair else clean
            kind = TYPES[(int(outcome), int(self.mate()))]
            if not self.rule.candidate_first and clean == self.rule.clean_units:
                return False
            counts[kind] += 1
            value = test.after(kind) if test is not None else self.rule.e_value(tuple(counts))  # type: ignore[arg-type]
            if value >= threshold:
                return True
            if value <= self.rule.futility:
                return False
        return False


class PlugIn:
    """Rates of each pair learned from the earlier pairs of the same replicate, never from the pair itself."""

    def __init__(self, prior: float) -> None:
        self.prior, self.value = prior, 1.0
        self.seen = [0, 0, 0, 0]

    def after(self, kind: int) -> float:
        """E after one more pair."""
        pairs = sum(self.seen) + self.prior
        candidate = (self.seen[0] + self.seen[2] + 0.40 * self.prior) / pairs
        baseline = (self.seen[2] + self.seen[3] + 0.02 * self.prior) / pairs
        candidate = min(0.95, max(0.05, candidate))
        baseline = min(0.8 * candidate, max(0.005, baseline))
        self.value *= static_factors(baseline, candidate)[kind]
        self.seen[kind] += 1
        return self.value


@dataclass(frozen=True)
class Played:
    """What the runs of one rule and row came to."""

    rollback: float
    promote: float
    hold: float
    prefills: float
    prefills_rollback: float | None


def play(task: tuple[int, int, int]) -> Played:
    """All runs of one rule on one row."""
    rule, row, runs = RULES[task[0]], ROWS[task[1]], task[2]
    ends, spent = [], []
    for seed in range(runs):
        machine = Machine(rule, row.baseline, row.candidate, random.Random(f"{task[1]}/{seed}"))
        ends.append(machine.run())
        spent.append(machine.spent)
    rolled = [cost for end, cost in zip(ends, spent, strict=True) if end == "rollback"]
    shares = [fmean(end == which for end in ends) for which in ("rollback", "promote", "hold")]
    return Played(*shares, fmean(spent), fmean(rolled) if rolled else None)


# What is better


def better(row: Row, found: Played, shipped: Played, runs: int) -> bool:
    """Whether the rule is no worse than the shipped one on this row, by verdicts and by prefills.

    Both played the same draws, so their noise is shared. A null row allows no more false rollbacks, whatever the bound
    would allow; a regression no fewer rollbacks (two standard errors) and no dearer ones (1 %).
    """
    if found.promote < shipped.promote - 0.2 / math.sqrt(runs):
        return False
    if row.candidate <= row.baseline:
        return found.rollback <= shipped.rollback + 0.0005 and found.prefills <= shipped.prefills * 1.01
    slack = 2 * math.sqrt(max(shipped.rollback * (1 - shipped.rollback), 1 / runs) / runs)
    if found.prefills_rollback is None or shipped.prefills_rollback is None:
        return found.rollback >= shipped.rollback
    return found.rollback >= shipped.rollback - slack and found.prefills_rollback <= shipped.prefills_rollback * 1.01


def report(rule: Tried, found: Sequence[Played], shipped: Sequence[Played], runs: int) -> bool:
    """Print the rows of one rule; whether it is valid and better at every one of them."""
    if rule.plug_in is not None:
        valid, words = True, "valid as a supermartingale"
    else:
        ones = [worst(rule, threshold) for threshold in rule.thresholds]
        valid = ones[0] <= 0.025 and ones[1] <= 0.0125
        words = f"worst {ones[0]:.4f} and {ones[1]:.4f}, {'valid' if valid else 'NOT VALID'}"
    print(f"\n{rule.name} ({words})")
    everywhere = True
    for row, mine, theirs in zip(ROWS, found, shipped, strict=True):
        bound = WALD_ROLLBACK.get((row.baseline, row.candidate))
        over = mine.prefills_rollback / bound if bound and mine.prefills_rollback is not None else None
        good = better(row, mine, theirs, runs)
        everywhere = everywhere and good
        print(
            f"  {row.name:>10}  rollback {mine.rollback:.4f}  promote {mine.promote:.4f}  hold {mine.hold:.4f}  "
            f"mean {mine.prefills:5.1f}  to rollback {_shown(mine.prefills_rollback, '5.1f')}  "
            f"over Wald {_shown(over, '4.2f')}  {'' if good else 'worse here'}",
            flush=True,
        )
    moved = any(mine != theirs for mine, theirs in zip(found, shipped, strict=True))
    return valid and everywhere and moved


def _shown(value: float | None, form: str) -> str:
    return "    -" if value is None else format(value, form)


def main() -> int:
    """Play every rule and print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rules", nargs="*", help="names that contain one of these words")
    options = parser.parse_args()
    wanted = [
        place
        for place, rule in enumerate(RULES)
        if place == 0 or not options.rules or any(word in rule.name for word in options.rules)
    ]
    tasks = [(rule, row, options.runs) for rule in wanted for row in range(len(ROWS))]
    with Pool(options.workers) as pool:
        played = pool.map(play, tasks, chunksize=1)
    found = {rule: played[at * len(ROWS) : (at + 1) * len(ROWS)] for at, rule in enumerate(wanted)}
    winners = [RULES[rule].name for rule in wanted if report(RULES[rule], found[rule], found[0], options.runs)]
    print(f"\nvalid and better at every row: {', '.join(winners) or 'none'}")
    return 1 if winners else 0


if __name__ == "__main__":
    sys.exit(main())
