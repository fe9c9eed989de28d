"""Re-simulates the table of STATISTICS.md section 6 on the shipped code, and its cost over Wald's bounds.

    python tests/benchmarks/operating_characteristics.py [--runs 20000] [--workers N]

Each run steps the shipped schedule, decision and replicate cell by cell. Printed beside each other: what was found and
what the page prints; the prefills to each verdict over Wald's bound; the false alarms of the watch rule; the exact
bound of false rollbacks. Exits 1 when a figure lies outside of four standard errors.
"""

from __future__ import annotations

import argparse
import os
import sys
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from prefillgate.core.policy import ReplicatePolicy
from prefillgate.core.verdict import Outcome
from tests.simulation.harness import (
    ROWS,
    STANDARD_ERRORS,
    WALD_PROMOTION,
    WALD_ROLLBACK,
    WATCH,
    Run,
    differences,
    simulate_run,
    summarize,
    units_to_watch_alarm,
)
from tests.support.replicate_law import Rule, law_of, static

CHUNK = 250
WORST_FALSE_ROLLBACK = 0.0246


def chunk(task: tuple[int, int, int]) -> list[Run]:
    """Some runs of one row."""
    row = ROWS[task[0]]
    return [simulate_run(seed, row.baseline, row.candidate) for seed in range(task[1], task[2])]


def rows(runs: int, pool: Pool) -> bool:  # type: ignore[valid-type]
    """Print the table; whether every row is inside its bands."""
    sound = True
    print(f"{'truth':>10}   rollback        promote         hold            mean prefills   p95")
    for place, row in enumerate(ROWS):
        tasks = [(place, start, min(start + CHUNK, runs)) for start in range(0, runs, CHUNK)]
        done = [run for part in pool.map(chunk, tasks) for run in part]  # type: ignore[attr-defined]
        found = summarize(done)
        print(
            f"{row.name:>10}   {found.rollback:.4f} {row.rollback:<8g} {found.promote:.4f} {row.promote:<8g} "
            f"{found.hold:.4f} {row.hold:<8g} {found.mean:5.1f}  {row.mean:<8g} {found.quantile(0.95):3d} {row.p95}"
        )
        for difference in differences(row, found):
            sound = False
            print(f"            OUTSIDE: {difference}")
        over_wald(row.baseline, row.candidate, done)
    return sound


def over_wald(baseline: float, candidate: float, runs: list[Run]) -> None:
    """Mean prefills to each verdict over Wald's bound, where the page has one."""
    bounds = {Outcome.ROLLBACK: WALD_ROLLBACK.get((baseline, candidate))}
    bounds[Outcome.PROMOTE] = WALD_PROMOTION.get(candidate) if baseline == candidate else None
    for end, bound in bounds.items():
        spent = [run.prefills for run in runs if run.outcome is end]
        if bound is not None and spent:
            print(f"            to {end}: {fmean(spent):.1f} prefills, {fmean(spent) / bound:.2f} of Wald's {bound:g}")


def watch(task: tuple[float, int]) -> tuple[float, float]:
    """One figure of the watch rule, for a worker."""
    return units_to_watch_alarm(*task)


def watched(pool: Pool) -> bool:  # type: ignore[valid-type]
    """Print the watch rule's figures; whether they are those of the page."""
    figures = [(rate, printed, digit, 400 if printed > 100 else 20_000) for rate, (printed, digit) in WATCH.items()]
    found = pool.map(watch, [(rate, runs) for rate, _, _, runs in figures])  # type: ignore[attr-defined]
    sound = True
    print("\nwatch after promotion: units to the first alarm at ln 100")
    for (rate, printed, digit, _), (mean, error) in zip(figures, found, strict=True):
        inside = abs(mean - printed) <= STANDARD_ERRORS * error + digit
        sound = sound and inside
        print(f"  bad rate {rate:<5g} {mean:9.1f} +- {error:.1f}, printed {printed:g}{'' if inside else '  OUTSIDE'}")
    return sound


def false_rollback() -> bool:
    """Print the exact bound of false rollbacks; whether it is that of the page."""
    shipped = ReplicatePolicy()
    e_value = static(shipped.planned_baseline_rate, shipped.planned_candidate_rate)
    worst, rate = 0.0, 0.0
    for percent in range(16, 29):
        both = [
            law_of(Rule("shipped", e_value, threshold), percent / 100, percent / 100).confirmed
            for threshold in (shipped.threshold, 2 * shipped.threshold)
        ]
        worst, rate = max((worst, rate), (sum(both), percent / 100))
    inside = abs(worst - WORST_FALSE_ROLLBACK) < 0.00005
    print(f"\nfalse rollback of two replicates, exact: at most {worst:.4f}, at a rate of {rate:g} on both arms")
    print(f"  printed {WORST_FALSE_ROLLBACK}, Ville's bound .0375{'' if inside else '  OUTSIDE'}")
    return inside


def main() -> int:
    """Print every table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    with Pool(options.workers) as pool:
        sound = [rows(options.runs, pool), watched(pool), false_rollback()]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
