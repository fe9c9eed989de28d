"""Runs with cells in flight, stepped by the shipped schedule: a test says which cell ends, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from prefillgate.core.cells import BASELINE, Cell, Status
from prefillgate.core.flight import Flight, RunCell
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CaseRef,
    CellChecked,
    CellMeasured,
    EpochSeen,
    Event,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import CheckCell, Separate, StartReplicate, Step, Stop, Wait, next_step
from prefillgate.core.shape import Shape
from tests.support.journals import answer_of, epoch, outcome, planned


@dataclass
class Fleet:
    """A gate, the cells in flight, and every event and cell so far. Each cell has a second of its own to start in."""

    gate: Gate
    bad: Callable[[RunCell], bool] = lambda step: False
    make: Callable[[RunCell], Cell] = answer_of
    flying: list[RunCell] = field(default_factory=list)
    resting: frozenset[tuple[str, int]] = frozenset()
    events: list[Event] = field(default_factory=list)
    begun: list[RunCell] = field(default_factory=list)
    clock: float = 1000.0
    started_at: dict[int, float] = field(default_factory=dict)

    @property
    def flight(self) -> Flight:
        """As the runner tells the schedule."""
        return Flight(tuple(self.flying), self.resting)

    def apply(self, event: Event) -> None:
        """Write an event and fold it."""
        self.events.append(event)
        self.gate.apply(event)

    def tick(self) -> float:
        """A second goes by."""
        self.clock += 1.0
        return self.clock

    def look(self) -> Step:
        """What the schedule says now."""
        return next_step(self.gate, self.flight)

    def begin(self) -> Step:
        """Begin every cell that can be begun, and do what needs no cell; the step that ended it."""
        while self.begin_one(step := self.look()):
            pass
        assert isinstance(step, Stop | Wait)
        return step

    def begin_one(self, step: Step) -> bool:
        """Do what the schedule said; False where that is to wait or to stop."""
        if isinstance(step, RunCell):
            assert (step.arm, step.lane) not in {(cell.arm, cell.lane) for cell in self.flying}
            self.flying.append(step)
            self.begun.append(step)
            self.started_at[step.cell_id] = self.tick()
        elif isinstance(step, CheckCell):
            asked = next(cell for cell in reversed(self.begun) if cell.cell_id == step.cell_id)
            self.apply(CellChecked(step.cell_id, (outcome(self.bad(asked)),)))
        elif isinstance(step, StartReplicate):
            self.apply(ReplicateStarted(step.number, self.tick(), step.seed))
        elif isinstance(step, Separate):
            self.apply(SeparationKept(step.number, self.tick(), "gap"))
        return not isinstance(step, Stop | Wait)

    def end(self, step: RunCell, made: Cell | None = None, **changes: object) -> None:
        """A cell in flight ends and is written down, not checked yet. `changes` are of its event."""
        self.flying.remove(step)
        made = self.make(step) if made is None else made
        if made.status is Status.OK:
            made = replace(made, started_at=self.started_at[step.cell_id], ended_at=self.tick())
        if made.server_epoch == "e1":
            made = replace(made, server_epoch=life(step.arm, step.lane))
        event = CellMeasured(
            step.cell_id,
            made,
            step.purpose,
            pair=step.pair,
            round=step.round,
            attempt=step.attempt,
            seed=step.seed,
            nonce=step.nonce,
            place=step.place,
            lane=step.lane,
        )
        self.apply(replace(event, **changes))  # type: ignore[arg-type]

    def run(self, choose: Callable[[list[RunCell]], RunCell] = lambda flying: flying[0], steps: int = 2000) -> Stop:
        """To the stop, with `choose` saying which cell in flight ends next."""
        for _ in range(steps):
            step = self.begin()
            if isinstance(step, Stop) and not self.flying:
                return step
            self.end(choose(self.flying))
        raise AssertionError(f"no stop after {steps} cells")


def life(arm: str, lane: int) -> str:
    """The epoch of a fleet's server."""
    return f"{arm}-{lane}"


def seen(arm: str, lane: int = 0, **changes: object) -> EpochSeen:
    """A server of a fleet was met."""
    return replace(epoch(arm, life(arm, lane)), lane=lane, **changes)  # type: ignore[arg-type]


def fleet(policy: Policy, shape: Shape, cases: int | Sequence[CaseRef] = 12, seed: int = 7, **how: object) -> Fleet:
    """A run of that shape with every server met."""
    made = Fleet(Gate(), **how)  # type: ignore[arg-type]
    made.apply(planned(policy, cases, seed, shape=shape))
    for arm in (BASELINE, "candidate"):
        for lane in range(shape.lanes(arm)):
            made.apply(seen(arm, lane))
    return made
