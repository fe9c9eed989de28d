"""Journals for tests of the run core: events built short, and a gate stepped by the shipped schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Cell, ColdProof, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CaseRef,
    CellChecked,
    CellMeasured,
    CheckOutcome,
    EpochSeen,
    Event,
    Planned,
    Purpose,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import CheckCell, RunCell, Separate, StartReplicate, Step, Stop, next_step

CELL_SECONDS = 60.0


def quality_only(policy: Policy = STANDARD, **changes: Any) -> Policy:
    """No throughput, no baseline pass: the candidate's units alone."""
    bare = replace(policy, baseline_pass=0, throughput=replace(policy.throughput, required=False, max_pairs=0))
    return replace(bare, **changes)


def planned(policy: Policy | None = None, cases: int | Sequence[CaseRef] = 12, seed: int = 7, **more: Any) -> Planned:
    """A plan over `cases` cases named c0, c1, ..., the longest last."""
    refs = cases if not isinstance(cases, int) else [CaseRef(f"c{i}", f"sha-{i}", 100 + i) for i in range(cases)]
    return Planned(
        "run", 0.0, seed, policy or quality_only(), tuple(refs), "set", "sha", "http://b", "http://c", **more
    )


def epoch(arm: str, name: str = "e1", **changes: Any) -> EpochSeen:
    """A life of a server whose probe showed everything to work."""
    seen = EpochSeen(arm, name, 0.0, "llama.cpp", "b1", "m", True, "cache_off", False)
    return replace(seen, **changes)


def started(policy: Policy | None = None, **more: Any) -> Gate:
    """A gate with its plan and both servers met."""
    gate = Gate()
    for event in (planned(policy, **more), epoch(BASELINE), epoch(CANDIDATE)):
        gate.apply(event)
    return gate


def cell(arm: str = CANDIDATE, case: str = "c0", **changes: Any) -> Cell:
    """A complete fresh answer with two witnesses."""
    fresh = Cell(
        arm,
        case,
        server_epoch="e1",
        prompt_tokens=100,
        cached_tokens=0,
        processed_tokens=100,
        cold_proof=ColdProof.CACHE_OFF,
    )
    return replace(fresh, **changes)


def measure(gate: Gate, what: Cell, purpose: Purpose = Purpose.SCREEN, **more: Any) -> int:
    """Fold a measured cell; returns its id."""
    cell_id = gate.next_cell_id()
    gate.apply(CellMeasured(cell_id, what, purpose, **more))
    return cell_id


def score(gate: Gate, what: Cell, bad: bool | None = False, purpose: Purpose = Purpose.SCREEN, **more: Any) -> int:
    """Fold a measured cell and one check on it."""
    cell_id = measure(gate, what, purpose, **more)
    gate.apply(CellChecked(cell_id, (CheckOutcome("check", "1", bad),)))
    return cell_id


def screen(gate: Gate, *outcomes: bool, case: str | None = None) -> None:
    """Screen cells of the candidate, one per outcome (True is bad), in the planned order of cases."""
    for bad in outcomes:
        score(gate, cell(case=case or gate.places.next_case), bad)


Answer = Callable[[RunCell], tuple[Cell, Sequence[CheckOutcome]]]


def outcome(bad: bool | None, check: str = "check", detail: str = "") -> CheckOutcome:
    """One check's outcome."""
    return CheckOutcome(check, "1", bad, detail)


def answer_of(step: RunCell, **changes: Any) -> Cell:
    """A complete fresh answer to a planned cell."""
    return cell(step.arm, step.case_id, replicate=step.replicate, **changes)


@dataclass
class Stepper:
    """Does what the schedule says against planted answers and keeps every event and step."""

    gate: Gate
    bad: Callable[[RunCell], bool] = lambda step: False
    make: Callable[[RunCell], Cell] = answer_of
    events: list[Event] = field(default_factory=list)
    cells: list[RunCell] = field(default_factory=list)
    separations: list[Separate] = field(default_factory=list)
    starts: list[StartReplicate] = field(default_factory=list)
    clock: float = 1000.0

    def apply(self, event: Event) -> None:
        self.events.append(event)
        self.gate.apply(event)

    def step(self) -> Step:
        """One step of the schedule, done; returned as it was asked for."""
        step = next_step(self.gate)
        if isinstance(step, RunCell):
            self.cells.append(step)
            made = self.make(step)
            if made.status is Status.OK:
                made = replace(made, started_at=self.clock, ended_at=self.clock + CELL_SECONDS)
            self.clock += CELL_SECONDS
            self.apply(
                CellMeasured(
                    step.cell_id,
                    made,
                    step.purpose,
                    pair=step.pair,
                    round=step.round,
                    attempt=step.attempt,
                    seed=step.seed,
                    nonce=step.nonce,
                )
            )
        elif isinstance(step, CheckCell):
            asked = next(c for c in reversed(self.cells) if c.cell_id == step.cell_id)
            self.apply(CellChecked(step.cell_id, (outcome(self.bad(asked)),)))
        elif isinstance(step, StartReplicate):
            self.starts.append(step)
            self.apply(ReplicateStarted(step.number, self.clock, step.seed))
        elif isinstance(step, Separate):
            self.separations.append(step)
            self.apply(SeparationKept(step.number, self.clock, "gap", "600 s after the last bad cell"))
        return step

    def run(self, steps: int = 2000) -> Stop:
        """Step to the stop."""
        for _ in range(steps):
            step = self.step()
            if isinstance(step, Stop):
                return step
        raise AssertionError(f"no stop after {steps} steps")

    def until(self, kind: type, steps: int = 2000) -> Step:
        """Step until the schedule asks for a step of this kind; that step is done too."""
        for _ in range(steps):
            step = self.step()
            if isinstance(step, kind):
                return step
        raise AssertionError(f"no {kind.__name__} after {steps} steps")
