"""Whether each cell is the one that the schedule asked for: no cell can be dropped, added or moved unseen.

The next step is a function of the events before it, seeds and nonces included. Cells in flight at the same time may end
in another order: of a run with several servers at once each cell is held against what the plan fixes of its place.
"""

from __future__ import annotations

from prefillgate.bundle.findings import unlike
from prefillgate.bundle.lanes_order import LanesOrder
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellChecked, CellMeasured, Event, ReplicateStarted, SeparationKept
from prefillgate.core.schedule import CheckCell, RunCell, Separate, StartReplicate, Step, next_step

NOT_FOLLOWED = "the order of the cells (a demonstration): one left out would not be missed"
BY_PLACE = "cells against their places in the plan"
TIMES_DECIDE = "which cells were in flight together, and which places were run as pairs (several servers at once)"
LANES_LOST = "the servers of the cells, of which one was left out (several servers at once)"
_PLANNED = ("cell_id", "purpose", "pair", "round", "attempt", "seed", "nonce", "place", "lane")
_OF_THE_CELL = ("arm", "case_id", "replicate")


def is_followed(gate: Gate) -> bool:
    """Whether the order of this run's cells can be recomputed."""
    return gate.plan.scheduled


def is_step(event: Event) -> bool:
    """Whether the schedule asks for such an event."""
    return isinstance(event, CellMeasured | CellChecked | ReplicateStarted | SeparationKept)


def out_of_order(gate: Gate, event: Event, lanes: LanesOrder) -> str | None:
    """Why `event` cannot follow what `gate` holds, in words; None where it can."""
    if gate.plan.shape.parallel and isinstance(event, CellMeasured):
        return lanes.out_of_order(gate, event)
    step = next_step(gate)
    match event, step:
        case CellMeasured(), RunCell():
            return _of_cell(event, step)
        case CellChecked(), CheckCell():
            return _first([("cell_id", event.cell_id, step.cell_id)])
        case ReplicateStarted(), StartReplicate():
            return _first([("number", event.number, step.number), ("seed", event.seed, step.seed)])
        case SeparationKept(), Separate():
            return _first([("number", event.number, step.number)])
    return (
        f"{type(event).__name__} stands where {_words(step)} was due: events were dropped, added or changed before it"
    )


def _of_cell(event: CellMeasured, step: RunCell) -> str | None:
    told = [(name, getattr(event, name), getattr(step, name)) for name in _PLANNED]
    told += [(name, getattr(event.cell, name), getattr(step, name)) for name in _OF_THE_CELL]
    return _first(told)


def _first(told: list[tuple[str, object, object]]) -> str | None:
    for name, stated, due in told:
        if stated != due:
            return unlike(name, stated, due, "the schedule asks here for")
    return None


def _words(step: Step) -> str:
    match step:
        case RunCell():
            return f"a cell of {step.case_id} on the {step.arm}"
        case CheckCell():
            return f"the check of cell {step.cell_id}"
        case StartReplicate() | Separate():
            return f"replicate {step.number}"
    return "the end of the run" if type(step).__name__ == "Stop" else "another server"
