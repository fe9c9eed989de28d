"""The units of a large log as counts: what `build_ledger`, `count_arm` and `tables` say of a list of cells, without it.

State is kept for each prompt of each life of a server, and one byte for each entry of the candidate's timeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.exact import clopper_pearson
from prefillgate.core.freshness import Ruling
from prefillgate.core.log_row import Row
from prefillgate.core.restate import Table
from prefillgate.core.units import WHOLE, floor_of_counts
from prefillgate.core.verdict import ArmCounts, CellClass, Interval

CLEAN, BAD, UNKNOWN = 0, 1, 2  # entries of a timeline


@dataclass(slots=True)
class OpenUnit:
    """The latest fresh unit of a prompt: what a copy that joins it may still change. `at` is its place in the
    timeline, None for a unit of a replicate."""

    case_id: str
    bad: bool | None
    screen: bool
    at: int | None
    size: int = 1


@dataclass(slots=True)
class CaseTally:
    """One case. Of the screen, by arm: whether it was seen, bad and known requests, bad and known units."""

    seen: dict[str, list[int]] = field(default_factory=dict)
    weights: list[Fraction] = field(default_factory=list)  # of the candidate's judged units, the heaviest `kept`


@dataclass(slots=True)
class ArmTally:
    """One arm. `timeline` holds an entry for each unit and for each bad cell outside of all units."""

    requests: int = 0
    classes: Counter[CellClass] = field(default_factory=Counter)
    outcomes: list[int] = field(default_factory=lambda: [0, 0])  # bad, known
    units: list[int] = field(default_factory=lambda: [0, 0])  # bad, known
    suspects: int = 0
    bad_orphans: int = 0
    weights: Counter[Fraction] = field(default_factory=Counter)
    cells_in_units: int = 0
    squares: int = 0  # of the cells of each unit
    outputs: set[str] = field(default_factory=set)
    timeline: bytearray = field(default_factory=bytearray)

    def counts(self, invalid: int) -> ArmCounts:
        """The arm restated, as `count_arm` does."""
        return ArmCounts(
            requests=self.requests,
            prefills=self.classes[CellClass.FRESH],
            decision_prefills=floor_of_counts(self.weights),
            copies=self.classes[CellClass.COPY],
            partial=self.classes[CellClass.PARTIAL],
            unknown=self.classes[CellClass.UNKNOWN] + self.classes[CellClass.CONTRADICTED],
            orphans=self.classes[CellClass.ORPHAN],
            bad_requests=self.outcomes[0],
            bad_prefills=self.units[0],
            bad_for_promotion=self.bad,
            request_interval=_interval(self.outcomes),
            prefill_interval=_interval(self.units),
            invalid=invalid,
            effective_prefills=self.cells_in_units**2 / float(self.squares) if self.squares else None,
        )

    @property
    def bad(self) -> int:
        """k: bad units, bad suspects, bad orphans."""
        return self.units[0] + self.suspects + self.bad_orphans

    @property
    def unjudged(self) -> int:
        """Requests whose outcome is unknown."""
        return self.requests - self.outcomes[1]


def _interval(counts: list[int]) -> Interval | None:
    bad, known = counts
    return clopper_pearson(bad, known) if known else None


@dataclass(slots=True)
class LogTally:
    """Both arms. `kept` is how many units of one case any test may count."""

    kept: int
    arms: dict[str, ArmTally] = field(default_factory=lambda: {arm: ArmTally() for arm in ARMS})
    cases: dict[str, CaseTally] = field(default_factory=dict)
    _orphans: set[tuple[str, str | None, str]] = field(default_factory=set)

    def add(self, row: Row, ruling: Ruling, parent: OpenUnit | None) -> OpenUnit | None:
        """Count one more scored row; the unit it opened. `parent` is the unit that a copy joins."""
        arm, case = self.arms[row.arm], self.cases.get(row.case_id)
        if case is None:
            case = self.cases[row.case_id] = CaseTally()
        outcome = row.outcome()
        arm.requests += 1
        arm.classes[ruling.cell_class] += 1
        if outcome is not None:
            arm.outcomes[0] += outcome
            arm.outcomes[1] += 1
        if not row.replicate:
            self._screen(case, row.arm, 0, outcome)
        if ruling.cell_class is CellClass.FRESH:
            return self._open(row, ruling, arm, case)
        if ruling.cell_class is CellClass.COPY:
            assert parent is not None
            self._join(parent, arm, row.arm, ruling.proven and bool(outcome))
            if ruling.proven:
                return None
        elif ruling.cell_class is CellClass.ORPHAN:
            if outcome and self._new_orphan(row, ruling.proven):
                arm.bad_orphans += 1
                arm.timeline.append(UNKNOWN if row.replicate else BAD)
            return None
        if outcome:
            arm.suspects += 1
            arm.timeline.append(UNKNOWN if row.replicate else BAD)
        return None

    def _screen(self, case: CaseTally, arm: str, at: int, outcome: bool | None) -> None:
        """Count an outcome of the screen: of a request (`at` 0) or of a unit (`at` 2)."""
        seen = case.seen.get(arm)
        if seen is None:
            seen = case.seen[arm] = [0, 0, 0, 0]
        if outcome is not None:
            seen[at] += outcome
            seen[at + 1] += 1

    def _open(self, row: Row, ruling: Ruling, arm: ArmTally, case: CaseTally) -> OpenUnit:
        outcome, screen = row.outcome(), not row.replicate
        arm.cells_in_units += 1
        arm.squares += 1
        if outcome is not None:
            weight = WHOLE - ruling.reused_share if ruling.reused_share else WHOLE
            arm.weights[weight] += 1
            arm.units[0] += outcome
            arm.units[1] += 1
            if row.arm == CANDIDATE:
                case.weights.append(weight)
                if len(case.weights) > 2 * self.kept:
                    case.weights = sorted(case.weights, reverse=True)[: self.kept]
        if row.output_sha256 is not None:
            arm.outputs.add(row.output_sha256)
        if screen:
            self._screen(case, row.arm, 2, outcome)
        arm.timeline.append(UNKNOWN if outcome is None or not screen else BAD if outcome else CLEAN)
        return OpenUnit(row.case_id, outcome, screen, len(arm.timeline) - 1 if screen else None)

    def _join(self, unit: OpenUnit, arm: ArmTally, name: str, makes_bad: bool) -> None:
        """A copy joins a unit; a proven bad one makes it bad, from the place on where the unit stands."""
        arm.cells_in_units += 1
        arm.squares += 2 * unit.size + 1
        unit.size += 1
        if not makes_bad or unit.bad:
            return
        seen = self.cases[unit.case_id].seen[name] if unit.screen else [0, 0, 0, 0]
        for counts, at in ((arm.units, 0), (seen, 2)):
            counts[at] += 1
            counts[at + 1] += unit.bad is None
        unit.bad = True
        if unit.at is not None:
            arm.timeline[unit.at] = BAD

    def _new_orphan(self, row: Row, proven: bool) -> bool:
        """Whether it counts: proven ones once for a prompt in a life of a server, others each time."""
        key = (row.arm, row.server_epoch, row.prompt_key)
        if proven and key in self._orphans:
            return False
        if proven:
            self._orphans.add(key)
        return True

    def common(self) -> frozenset[str]:
        """The cases of the screen that both arms saw."""
        return frozenset(name for name, case in self.cases.items() if len(case.seen) == len(ARMS))

    def tables(self) -> tuple[Table, Table]:
        """(by request, by prefill) over the common cases, as `tables` of a list of cells."""
        sums = {arm: [0, 0, 0, 0] for arm in ARMS}
        for case in self.cases.values():
            if len(case.seen) == len(ARMS):
                for arm, seen in case.seen.items():
                    sums[arm] = [one + other for one, other in zip(sums[arm], seen, strict=True)]
        candidate, baseline = sums[CANDIDATE], sums[BASELINE]
        return Table(*candidate[:2], *baseline[:2]), Table(*candidate[2:], *baseline[2:])

    @property
    def decision_prefills(self) -> int:
        """n of the candidate."""
        return floor_of_counts(self.arms[CANDIDATE].weights)

    @property
    def bad(self) -> int:
        """k of the candidate."""
        return self.arms[CANDIDATE].bad

    def weights_by_case(self) -> Mapping[str, list[Fraction]]:
        """Of the candidate, per case with a judged unit: the weights of its heaviest units."""
        return {name: case.weights for name, case in self.cases.items() if case.weights}

    def outcomes(self, start: int) -> Iterator[bool]:
        """The candidate's timeline from an entry on, for the alarm."""
        return (entry == BAD for entry in memoryview(self.arms[CANDIDATE].timeline)[start:] if entry != UNKNOWN)
