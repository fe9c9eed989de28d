"""What stands behind an answer, from a run's journal or from a stranger's log: one shape for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prefillgate.core.acceptance import AcceptanceTable
from prefillgate.core.budget import BudgetNeeded
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.decision import Ruling, Snapshot
from prefillgate.core.earlier import StoredFloor
from prefillgate.core.exact import boschloo_one_sided, fisher_one_sided
from prefillgate.core.freshness import Classified
from prefillgate.core.journal import BaselineShown, Difference, Planned
from prefillgate.core.policy import Policy
from prefillgate.core.replicate import Replicate
from prefillgate.core.restate import Table
from prefillgate.core.units import Unit, UnitLedger, Units, build_ledger, count_arm
from prefillgate.core.verdict import ArmCounts, CellView, Comparison, GatewayView, PathPoint, ThroughputView, WatchView


@dataclass(frozen=True, slots=True)
class Counted:
    """What the cells of a large log come to, by arm.

    `span` is when the first began and the last ended, `bad_cases` are those with a bad candidate cell, first bad first.
    """

    arms: Mapping[str, ArmCounts]
    comparison: Comparison
    unjudged: Mapping[str, int]
    outputs: int | None
    span: tuple[float | None, float | None]
    bad_cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the verdict is written from. `ledgers` are the candidate's, one per flag."""

    title: str
    policy: Policy
    cases: tuple[str, ...]
    classified: Sequence[Classified]
    ledgers: Sequence[Units]
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
    floor: StoredFloor | None = None
    watch: WatchView | None = None
    gateway: tuple[GatewayView, ...] = ()
    counted: Counted | None = None  # of a log too large to keep its cells: `classified`, `cells` are empty then

    def counts(self, arm: str) -> ArmCounts:
        """An arm restated."""
        invalid = dict(self.invalid).get(arm, 0)
        return self.counted.arms[arm] if self.counted else count_arm(self.classified, arm, invalid)

    def comparison(self) -> Comparison:
        """The tests between the arms."""
        return self.counted.comparison if self.counted else compare(self.classified)

    def unjudged(self, arm: str) -> int:
        """Scored requests of an arm whose outcome is unknown."""
        if self.counted:
            return self.counted.unjudged[arm]
        return sum(item.cell.arm == arm and item.cell.outcome() is None for item in self.classified)

    def span(self) -> tuple[float | None, float | None]:
        """When the first cell began and the last one ended, seconds since the epoch."""
        if self.counted:
            return self.counted.span
        times = [view.cell.started_at for view in self.cells if view.cell.started_at is not None]
        ends = [view.cell.ended_at for view in self.cells if view.cell.ended_at is not None]
        return min(times) if times else None, max(ends) if ends else None

    def outputs(self) -> int | None:
        """How many different outputs the candidate's fresh units brought; None where no output digest is known."""
        if self.counted:
            return self.counted.outputs
        seen = {unit.cell.output_sha256 for unit in self.candidate_units() if unit.cell.output_sha256 is not None}
        return len(seen) or None

    def candidate_units(self) -> Sequence[Unit]:
        """The candidate's units under the first flag; none of a large log."""
        first = self.ledgers[0]
        return first.units if isinstance(first, UnitLedger) else ()

    def path(self) -> tuple[PathPoint, ...]:
        """The candidate's way through the acceptance table; of a large log it is not kept."""
        first = self.ledgers[0]
        return acceptance_path(first) if isinstance(first, UnitLedger) else ()

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
