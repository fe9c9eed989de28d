"""From classes to counts: n, k and the prefill units of one arm (STATISTICS.md section 1)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from prefillgate.core.cells import Cell
from prefillgate.core.exact import clopper_pearson, kish_effective_units
from prefillgate.core.freshness import Classified
from prefillgate.core.verdict import ArmCounts, CellClass

WHOLE = Fraction(1)  # the weight of a prefill of which nothing was cached
# How far from a whole number a sum of doubles has the exact sum's floor: their error is below n^2 2^-53.
SAFE_DISTANCE = 1e-6  # equivalent mutant: nearer, the exact sum answers the same, only later


@dataclass(slots=True)
class Unit:
    """One fresh prefill with every cell that reused it. `own_outcome` is that of its fresh cell."""

    number: int
    case_id: str
    cell: Cell
    weight: Fraction  # 1 - r
    own_outcome: bool | None
    copy_bad: bool = False
    copies: int = 0

    @property
    def bad(self) -> bool | None:
        """Bad for promotion: its own cell, or a proven copy of it, was bad. None: its own outcome is unknown."""
        return True if self.copy_bad else self.own_outcome


class Units(Protocol):
    """The candidate's units as a test counts them: a ledger, or the tally of a large log."""

    @property
    def bad(self) -> int: ...
    @property
    def decision_prefills(self) -> int: ...
    def weights_by_case(self) -> Mapping[str, Sequence[Fraction]]: ...


@dataclass(slots=True)
class UnitLedger:
    """The units of one arm under one flag, and the bad cells that stand outside of them."""

    units: list[Unit] = field(default_factory=list)
    suspects: int = 0  # bad partial, unknown or contradicted cells, and bad copies without proof, each once
    bad_orphans: int = 0  # orphan units with a bad proven copy, and bad orphans without proof, each once
    timeline: list[tuple[int, int, Unit | None]] = field(default_factory=list)  # start order, replicate, unit or None
    # (None: a bad cell that stands outside of every unit)
    _taken: int = 0  # of the classified cells
    _bad_units: int = 0
    _weights: Counter[Fraction] = field(default_factory=Counter)  # of the units whose own outcome is known
    _orphans: set[tuple[str | None, str]] = field(default_factory=set)  # bad ones

    def take(self, classified: Sequence[Classified], arm: str, flag: str | None = None) -> None:
        """Fold what `classified` has beyond what was taken of it before."""
        for position in range(self._taken, len(classified)):
            item = classified[position]
            if item.cell.arm == arm:
                self._take(item, position, item.cell.outcome(flag))
        self._taken = len(classified)

    def _take(self, item: Classified, position: int, outcome: bool | None) -> None:
        if item.cell_class is CellClass.FRESH:
            weight = WHOLE - item.reused_share if item.reused_share else WHOLE
            unit = Unit(len(self.units), item.cell.case_id, item.cell, weight, outcome)
            self.units.append(unit)
            self.timeline.append((position, item.cell.replicate, unit))
            self._bad_units += bool(outcome)
            if outcome is not None:
                self._weights[weight] += 1
        elif item.cell_class is CellClass.COPY:
            self._join(item, position, outcome)
        elif item.cell_class is CellClass.ORPHAN:
            if outcome:
                self._join_orphan(item, position)
        elif outcome:
            self._suspect(item, position)

    def _suspect(self, item: Classified, position: int) -> None:
        self.suspects += 1
        self.timeline.append((position, item.cell.replicate, None))

    def _join(self, item: Classified, position: int, outcome: bool | None) -> None:
        """A copy makes its unit bad only where it is proven to be one; a bad copy without proof stands beside it.

        So no order of the cells of a unit, and no merging without proof, lowers k.
        """
        unit = self.units[item.unit or 0]
        unit.copies += 1
        if outcome and item.proven:
            self._bad_units += not unit.bad
            unit.copy_bad = True
        elif outcome:
            self._suspect(item, position)

    def _join_orphan(self, item: Classified, position: int) -> None:
        """One orphan unit per prompt and epoch, shared by its proven copies; one without proof counts each time."""
        key = (item.cell.server_epoch, item.cell.prompt_key)
        if item.proven:
            if key in self._orphans:
                return
            self._orphans.add(key)
        self.bad_orphans += 1
        self.timeline.append((position, item.cell.replicate, None))

    @property
    def bad(self) -> int:
        """k: bad fresh units, bad suspects each once, bad orphans."""
        return self._bad_units + self.suspects + self.bad_orphans

    @property
    def decision_prefills(self) -> int:
        """n: floor of the sum of (1 - r) over fresh units whose own outcome is known: no copy of one changes it."""
        return floor_of_counts(self._weights)

    def weights_by_case(self) -> dict[str, list[Fraction]]:
        """Per case the weights of its units, of those that n counts."""
        result: dict[str, list[Fraction]] = {}
        for unit in self.units:
            if unit.own_outcome is not None:
                result.setdefault(unit.case_id, []).append(unit.weight)
        return result

    def outcomes(self, after: int = -1) -> list[bool]:  # equivalent mutant: any number below the first position
        """Outcomes in start order for the CUSUM: screen cells (replicate 0) whose start order is above `after`."""
        return [
            True if unit is None else bool(unit.bad)
            for position, replicate, unit in self.timeline
            if position > after and not replicate and (unit is None or unit.bad is not None)
        ]


def floor_of_sum(weights: Iterable[Fraction]) -> int:
    """The exact floor of a sum of weights in [0, 1].

    Doubles decide it wherever their sum is not near a whole number: the common denominator of a long log's prompt
    lengths has more digits than anyone waits for.
    """
    return floor_of_counts(Counter(weights))


def floor_of_counts(counted: Mapping[Fraction, int]) -> int:
    """As `floor_of_sum`, each weight with how often it stands there."""
    rough = math.fsum(float(weight) * count for weight, count in counted.items())
    if abs(rough - round(rough)) > SAFE_DISTANCE:  # equivalent mutant: at the limit both sums answer the same
        return math.floor(rough)
    return math.floor(sum((weight * count for weight, count in counted.items()), Fraction(0)))


def build_ledger(classified: Sequence[Classified], arm: str, flag: str | None = None) -> UnitLedger:
    """Fold the classified cells of one arm into units, under one flag (None: the default flag)."""
    ledger = UnitLedger()
    ledger.take(classified, arm, flag)
    return ledger


def count_arm(classified: Sequence[Classified], arm: str, invalid: int = 0) -> ArmCounts:
    """One arm restated under the default flag: requests beside prefills, with their intervals."""
    mine = [item for item in classified if item.cell.arm == arm]
    ledger = build_ledger(classified, arm)
    known_requests = [outcome for item in mine if (outcome := item.cell.outcome()) is not None]
    known_units = [unit.bad for unit in ledger.units if unit.bad is not None]
    return ArmCounts(
        requests=len(mine),
        prefills=len(ledger.units),
        decision_prefills=ledger.decision_prefills,
        copies=_of(mine, CellClass.COPY),
        partial=_of(mine, CellClass.PARTIAL),
        unknown=_of(mine, CellClass.UNKNOWN, CellClass.CONTRADICTED),
        orphans=_of(mine, CellClass.ORPHAN),
        bad_requests=sum(known_requests),
        bad_prefills=sum(known_units),
        bad_for_promotion=ledger.bad,
        request_interval=_interval(known_requests),
        prefill_interval=_interval(known_units),
        invalid=invalid,
        effective_prefills=_effective(ledger),
    )


def _of(items: Iterable[Classified], *classes: CellClass) -> int:
    return sum(1 for item in items if item.cell_class in classes)


def _interval(outcomes: Sequence[bool]) -> tuple[float, float] | None:
    return clopper_pearson(sum(outcomes), len(outcomes)) if outcomes else None


def _effective(ledger: UnitLedger) -> float | None:
    sizes = [1 + unit.copies for unit in ledger.units]
    return kish_effective_units(sizes) if sizes else None
