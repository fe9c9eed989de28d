"""What stands behind an answer, from a run's journal or from a stranger's log: one shape for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prefillgate.core.acceptance import AcceptanceTable
from prefillgate.core.budget import BudgetNeeded
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.decision import Ruling, Snapshot
from prefillgate.core.exact import boschloo_one_sided, fisher_one_sided
from prefillgate.core.freshness import Classified
from prefillgate.core.journal import BaselineShown, Difference, Planned
from prefillgate.core.policy import Policy
from prefillgate.core.replicate import Replicate
from prefillgate.core.restate import Table
from prefillgate.core.units import UnitLedger, build_ledger
from prefillgate.core.verdict import CellView, Comparison, GatewayView, PathPoint, ThroughputView


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the verdict is written from. `ledgers` are the candidate's, one per flag."""

    title: str
    policy: Policy
    cases: tuple[str, ...]
    classified: Sequence[Classified]
    ledgers: Sequence[UnitLedger]
    cells: tuple[CellView, ...]
    replicates: Sequence[Replicate]
    snapshot: Snapshot
    ruling: Ruling
    throughput: ThroughputView
    clean_prefills_needed: int | None
    alarm_level: float
    alarm_at: float
    ever_alarmed: bool
    budget: int  # as it stands now
    plan: Planned | None = None
    differences: tuple[Difference, ...] = ()
    cause: str = "Unverified"
    notes: tuple[str, ...] = ()
    override_note: str = ""
    invalid: tuple[tuple[str, int], ...] = ()
    from_log: bool = False
    budget_needed: BudgetNeeded | None = None
    arms: tuple[str, ...] = ARMS  # those that are there
    baseline_shown: BaselineShown | None = None
    gateway: tuple[GatewayView, ...] = ()

    @property
    def table(self) -> AcceptanceTable:
        """The acceptance table."""
        return AcceptanceTable(self.policy.margin, self.policy.alpha, self.policy.acceptance)

    @property
    def units(self) -> int:
        """n: the fresh prefills the decision may count."""
        return min(ledger.decision_prefills for ledger in self.ledgers)

    @property
    def bad(self) -> int:
        """k: of the flag with the most bad."""
        return max(ledger.bad for ledger in self.ledgers)


def compare(classified: Sequence[Classified]) -> Comparison:
    """The naive test by request and the honest ones by prefill, one-sided, over the prompts both arms saw.

    The screen alone: a replicate is analysed by itself (STATISTICS.md section 4). None where an arm has nothing to
    compare.
    """
    return comparison_of(*tables(classified))


def comparison_of(requests: Table, prefills: Table) -> Comparison:
    """The tests of what both arms brought."""
    return Comparison(
        fisher_by_request=_test(fisher_one_sided, requests),
        fisher_by_prefill=_test(fisher_one_sided, prefills),
        boschloo_by_prefill=_test(boschloo_one_sided, prefills),
    )


def common_cases(classified: Sequence[Classified]) -> frozenset[str]:
    """The cases of the screen that both arms saw."""
    seen = {(item.cell.arm, item.cell.case_id) for item in classified if not item.cell.replicate}
    return frozenset(case for _, case in seen if {(BASELINE, case), (CANDIDATE, case)} <= seen)


def tables(classified: Sequence[Classified]) -> tuple[Table, Table]:
    """(by request, by prefill): the bad ones of the screen over the prompts both arms saw."""
    screen, common = [item for item in classified if not item.cell.replicate], common_cases(classified)
    requests, prefills = [], []
    for arm in (CANDIDATE, BASELINE):
        outcomes = [
            outcome
            for item in screen
            if item.cell.arm == arm and item.cell.case_id in common and (outcome := item.cell.outcome()) is not None
        ]
        units = [
            bool(unit.bad)
            for unit in build_ledger(classified, arm).units
            if unit.case_id in common and unit.bad is not None and not unit.cell.replicate
        ]
        requests += [sum(outcomes), len(outcomes)]
        prefills += [sum(units), len(units)]
    return Table(*requests), Table(*prefills)


def _test(test: Callable[[int, int, int, int], float], table: Table) -> float | None:
    counts = (table.candidate_bad, table.candidate, table.baseline_bad, table.baseline)
    return test(*counts) if table.whole else None


def acceptance_path(ledger: UnitLedger) -> tuple[PathPoint, ...]:
    """The candidate's way through the acceptance table: (fresh units, bad) after each entry of its timeline.

    A unit whose own outcome is unknown takes no step, unless a copy made it bad.
    """
    path, units, bad = [PathPoint(0, 0)], 0, 0
    for _, _, unit in ledger.timeline:
        units += unit is not None and unit.own_outcome is not None
        bad += unit is None or bool(unit.bad)
        if PathPoint(units, bad) != path[-1]:
            path.append(PathPoint(units, bad))
    return tuple(path)
