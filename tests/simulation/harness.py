"""Steps the shipped schedule, decision and replicate code cell by cell against a planted truth."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.alarm import alarm_level, increments
from prefillgate.core.cells import CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CaseRef,
    CellChecked,
    CellMeasured,
    CheckOutcome,
    EpochSeen,
    Planned,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.policy import AlarmPolicy, Policy
from prefillgate.core.schedule import CheckCell, RunCell, Separate, StartReplicate, Stop, next_step
from prefillgate.core.verdict import Outcome

PROMPTS = 12


def quality_only(policy: Policy) -> Policy:
    """The policy of STATISTICS.md section 6: throughput left out, no baseline pass, both arms counted."""
    return replace(policy, baseline_pass=0, throughput=replace(policy.throughput, required=False, max_pairs=0))


@dataclass(frozen=True)
class Run:
    outcome: Outcome
    prefills: int


def new_gate(seed: int, policy: Policy, prompts: int = PROMPTS) -> Gate:
    """A gate with a plan and both epochs probed."""
    gate = Gate()
    cases = tuple(CaseRef(f"case-{i}", f"sha-{i}", 100 + i) for i in range(prompts))
    gate.apply(Planned("run", 0.0, seed, policy, cases, "set", "sha", "http://b", "http://c"))
    for arm in ("baseline", "candidate"):
        gate.apply(EpochSeen(arm, "epoch", 0.0, "llama.cpp", "b1", "m", True, "cache_off", False))
    return gate


def measured(step: RunCell) -> CellMeasured:
    """A fresh answer with two witnesses."""
    cell = Cell(
        step.arm,
        step.case_id,
        status=Status.OK,
        replicate=step.replicate,
        server_epoch="epoch",
        prompt_tokens=100,
        cached_tokens=0,
        processed_tokens=100,
        cold_proof=ColdProof.CACHE_OFF,
    )
    return CellMeasured(step.cell_id, cell, step.purpose, pair=step.pair, round=step.round)


def simulate_run(seed: int, baseline_rate: float, candidate_rate: float, policy: Policy | None = None) -> Run:
    """One run from plan to stop; every fresh prefill is bad at its arm's rate, independently."""
    generator = random.Random(seed)
    gate = new_gate(seed, policy or quality_only(STANDARD))
    pending: RunCell | None = None
    while True:
        step = next_step(gate)
        if isinstance(step, Stop):
            return Run(step.ruling.decision, gate.prefills_used)
        if isinstance(step, RunCell):
            pending = step
            gate.apply(measured(step))
        elif isinstance(step, CheckCell):
            assert pending is not None
            rate = candidate_rate if pending.arm == CANDIDATE else baseline_rate
            gate.apply(CellChecked(step.cell_id, (CheckOutcome("planted", "1", generator.random() < rate),)))
        elif isinstance(step, StartReplicate):
            gate.apply(ReplicateStarted(step.number, 0.0, step.seed))
        elif isinstance(step, Separate):
            gate.apply(SeparationKept(step.number, 0.0, "gap"))


@dataclass(frozen=True)
class Row:
    """One row of the table in STATISTICS.md section 6, as printed. Rates are bad rates per fresh prefill.

    `digits` is half a unit of the last printed digit of the mean; the shares are printed to `share_digits`.
    """

    baseline: float
    candidate: float
    rollback: float
    promote: float
    hold: float
    mean: float
    p95: int
    digits: float = 0.5
    share_digits: float = 0.0005

    @property
    def name(self) -> str:
        """How the table names the row."""
        return f"{self.baseline:g} / {self.candidate:g}"


ROWS = (
    Row(0, 0, 0, 1, 0, 32, 32),
    Row(0.02, 0.02, 0.0001, 0.851, 0.149, 47, 75),
    Row(0.05, 0.05, 0.0005, 0.365, 0.635, 58, 105),
    Row(0.20, 0.20, 0.0175, 0.001, 0.982, 34, 66),
    Row(0, 0.10, 0.070, 0.050, 0.880, 68, 107),
    Row(0, 0.30, 0.923, 0, 0.077, 43, 68),
    Row(0.02, 0.20, 0.407, 0.0007, 0.592, 60, 85),
    Row(0.05, 0.50, 0.905, 0, 0.095, 30, 62),
    Row(0, 0.90, 1, 0, 0, 13.3, 16, 0.05),
)
PRINTED_RUNS = 20_000  # the fewest the printed table was simulated with
STANDARD_ERRORS = 4


@dataclass(frozen=True)
class Found:
    """What the runs of one row came to."""

    runs: int
    rollback: float
    promote: float
    hold: float
    mean: float
    spread: float
    prefills: tuple[int, ...]  # rising

    def quantile(self, share: float) -> int:
        """The smallest number of prefills that at least this share of the runs needed no more than."""
        return self.prefills[min(len(self.prefills), max(1, math.ceil(share * len(self.prefills)))) - 1]


def summarize(runs: Sequence[Run]) -> Found:
    """Shares of the three decisions and the prefills spent."""
    shares = {end: fmean(run.outcome is end for run in runs) for end in Outcome}
    prefills = [run.prefills for run in runs]
    return Found(
        len(runs),
        shares[Outcome.ROLLBACK],
        shares[Outcome.PROMOTE],
        shares[Outcome.HOLD],
        fmean(prefills),
        pstdev(prefills),
        tuple(sorted(prefills)),
    )


def differences(row: Row, found: Found) -> list[str]:
    """Where the runs lie outside of four standard errors of the printed row, its rounding and its own error added."""
    both = 1 / found.runs + 1 / PRINTED_RUNS
    wrong = []
    for name in ("rollback", "promote", "hold"):
        printed, seen = getattr(row, name), getattr(found, name)
        # A share printed as 0 or 1 is known to its rounding alone.
        likely = min(max(printed, row.share_digits), 1 - row.share_digits)
        band = STANDARD_ERRORS * math.sqrt(likely * (1 - likely) * both) + row.share_digits
        if abs(seen - printed) > band:
            wrong.append(f"{name} {seen:.4f}, printed {printed:g} +- {band:.4f}")
    band = STANDARD_ERRORS * found.spread * math.sqrt(both) + row.digits
    if abs(found.mean - row.mean) > band:
        wrong.append(f"mean prefills {found.mean:.2f}, printed {row.mean:g} +- {band:.2f}")
    level = STANDARD_ERRORS * math.sqrt(0.95 * 0.05 * both)
    low, high = found.quantile(0.95 - level), found.quantile(0.95 + level)
    if not low <= row.p95 <= high:
        wrong.append(f"p95 between {low} and {high}, printed {row.p95}")
    return wrong


# Wald's bounds on expected prefills of a test with power .9 and alpha .05, best allocation (STATISTICS.md section 6).
WALD_ROLLBACK = {(0, 0.30): 19.4, (0.05, 0.50): 16.5, (0, 0.90): 4.5, (0.02, 0.20): 49.2}
WALD_PROMOTION = {0.0: 22.6, 0.01: 33.3, 0.02: 45.9, 0.05: 92.4}


# The watch rule (STATISTICS.md section 4): bad rate -> (mean units to an alarm, half a unit of its last digit).
WATCH = {0.02: (17_500.0, 50.0), 0.05: (1_000.0, 50.0), 0.30: (13.7, 0.05), 0.90: (3.3, 0.05)}


def units_to_watch_alarm(rate: float, runs: int) -> tuple[float, float]:
    """(mean, standard error) of the units to the first alarm of the watch rule."""
    policy = AlarmPolicy()
    (bad, clean), limit = increments(policy), alarm_level(policy, watch=True)
    draw, units = random.Random(f"watch {rate}"), []
    for _ in range(runs):
        level, count = 0.0, 0
        while level < limit:
            level = max(0.0, level + (bad if draw.random() < rate else clean))
            count += 1
        units.append(count)
    return fmean(units), pstdev(units) / math.sqrt(runs)
