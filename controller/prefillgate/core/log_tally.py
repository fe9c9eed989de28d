"""The units of a large log as counts: what `build_ledger`, `count_arm` and `tables` say of a list of cells, without it.

State is kept for each prompt of each life of a server, and one byte for each entry of the candidate's timeline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from operator import add

from prefillgate.core.cells import ARMS, CANDIDATE
from prefillgate.core.exact import clopper_pearson
from prefillgate.core.freshness import Ruling
from prefillgate.core.log_row import Kind
from prefillgate.core.restate import Table
from prefillgate.core.units import WHOLE, floor_of_counts
from prefillgate.core.verdict import ArmCounts, CellClass, Interval

CLEAN, BAD, UNKNOWN = range(3)  # entries of a timeline


@dataclass(slots=True)
class OpenUnit:
    """The latest fresh unit of a prompt: what a copy that joins it may still change.

    `screen` are the counts of its case, `at` is its place in the timeline; both are None for a unit of a replicate.
    """

    bad: bool | None
    screen: list[int] | None
    at: int | None
    size: int = 1


@dataclass(slots=True)
class CaseTally:
    """One case. Of the screen, by arm: bad and known requests, bad and known units; None where it was not seen."""

    seen: list[list[int] | None] = field(default_factory=lambda: [None, None])
    weights: list[Fraction] = field(default_factory=list)  # of the candidate's judged units, the heaviest `kept`
    spoiled: bool = False  # a candidate cell of it was bad

    def screen(self, arm: str) -> list[int]:
        """The counts of an arm, which has seen it now."""
        at = ARMS.index(arm)
        found = self.seen[at]
        if found is None:
            found = self.seen[at] = [0, 0, 0, 0]
        return found

    @property
    def common(self) -> bool:
        """Whether both arms saw it."""
        return None not in self.seen


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
    squares: int = 0  # of the cells of each unit
    outputs: set[str] = field(default_factory=set)
    timeline: bytearray = field(default_factory=bytearray)

    def counts(self, invalid: int) -> ArmCounts:
        """The arm restated, as `count_arm` does."""
        in_units = self.classes[CellClass.FRESH] + self.classes[CellClass.COPY]
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
            effective_prefills=in_units**2 / float(self.squares) if self.squares else None,
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
    """The arms. `kept` is how many units of one case any test may count; 0: cases are not told apart."""

    kept: int
    arms: defaultdict[str, ArmTally] = field(default_factory=lambda: defaultdict(ArmTally))
    cases: dict[str, CaseTally] = field(default_factory=dict)
    bad_cases: list[str] = field(default_factory=list)  # of the candidate, first bad first
    _orphans: set[tuple[str, str | None, str]] = field(default_factory=set)

    def meet(self, kind: Kind) -> None:
        """Take note of the case of a kind, one row of which was scored."""
        if self.kept:
            self.cases.setdefault(kind.case_id, CaseTally())
            self._screen(kind)

    def _screen(self, kind: Kind) -> list[int] | None:
        """What the screen counts of the case of a kind on its arm; None for a replicate."""
        return self.cases[kind.case_id].screen(kind.arm) if self.kept and not kind.replicate else None

    def count(self, kind: Kind, ruling: Ruling, rows: int) -> None:
        """Count rows of a kind and a class: all of them but what their order matters for."""
        arm, outcome = self.arms[kind.arm], kind.outcome()
        screen = self._screen(kind)
        arm.requests += rows
        arm.classes[ruling.cell_class] += rows
        if outcome is not None:
            _add(arm.outcomes, screen, 0, outcome * rows, rows)
        if ruling.cell_class is CellClass.FRESH and outcome is not None:
            _add(arm.units, screen, 2, outcome * rows, rows)
            weight = WHOLE - ruling.reused_share if ruling.reused_share else WHOLE
            arm.weights[weight] += rows
            if self.kept and kind.arm == CANDIDATE:
                self._weigh(self.cases[kind.case_id], weight, rows)

    def _weigh(self, case: CaseTally, weight: Fraction, units: int) -> None:
        case.weights += [weight] * min(units, self.kept)
        if len(case.weights) > 2 * self.kept:  # equivalent mutant: when it is cut, not what is left of use
            case.weights = sorted(case.weights, reverse=True)[: self.kept]

    def open(self, kind: Kind, output_sha256: str | None) -> OpenUnit:
        """The unit that a fresh row opens."""
        arm, outcome, screen = self.arms[kind.arm], kind.outcome(), self._screen(kind)
        if output_sha256 is not None:
            arm.outputs.add(output_sha256)
        arm.timeline.append(UNKNOWN if outcome is None or kind.replicate else BAD if outcome else CLEAN)
        return OpenUnit(outcome, screen, None if screen is None else len(arm.timeline) - 1)

    def close(self, arm: str, unit: OpenUnit) -> None:
        """Count the size of a unit that no further row joins."""
        self.arms[arm].squares += unit.size**2

    def spoil(self, arm: str, unit: OpenUnit) -> None:
        """A proven bad copy makes its unit bad, from the place on where the unit stands."""
        if unit.bad:
            return
        _add(self.arms[arm].units, unit.screen, 2, 1, unit.bad is None)
        unit.bad = True
        if unit.at is not None:
            self.arms[arm].timeline[unit.at] = BAD

    def spoil_case(self, case_id: str) -> None:
        """Note that a cell of this case was bad on the candidate."""
        case = self.cases.get(case_id)
        if case is not None and not case.spoiled:
            case.spoiled = True
            self.bad_cases.append(case_id)

    def suspect(self, kind: Kind) -> None:
        """A bad row outside of all units."""
        arm = self.arms[kind.arm]
        arm.suspects += 1
        arm.timeline.append(UNKNOWN if kind.replicate else BAD)

    def orphan(self, kind: Kind, proven: bool) -> None:
        """A bad row whose unit was never seen: proven ones count once for a prompt in a life of a server."""
        key = (kind.arm, kind.server_epoch, kind.prompt_key)
        if proven and key in self._orphans:
            return
        if proven:
            self._orphans.add(key)
        arm = self.arms[kind.arm]
        arm.bad_orphans += 1
        arm.timeline.append(UNKNOWN if kind.replicate else BAD)

    def common(self) -> frozenset[str]:
        """The cases of the screen that both arms saw."""
        return frozenset(name for name, case in self.cases.items() if case.common)

    def tables(self) -> tuple[Table, Table]:
        """(by request, by prefill) over the common cases, as `tables` of a list of cells."""
        sums = [[0, 0, 0, 0] for _ in ARMS]
        for case in self.cases.values():
            for place, seen in enumerate(case.seen):
                if case.common and seen is not None:
                    sums[place] = list(map(add, sums[place], seen))
        baseline, candidate = sums
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


def _add(counts: list[int], screen: list[int] | None, at: int, bad: int, known: int) -> None:
    """Add to the bad and the known ones of an arm, and to those of a case of the screen, which stand from `at` on."""
    counts[0] += bad
    counts[1] += known
    if screen is not None:
        screen[at] += bad
        screen[at + 1] += known
