"""Cells in flight: which of the servers are free, and which of two arms may be asked beside what runs already.

Each server does one request at a time. The servers of one arm are lanes that share no hardware with each other; the
two arms may share some (they stand on one machine), so their cells never overlap unless the run says they may. Places
are dealt to lanes in turn, so a slow server weighs as much as a quick one; a lane that refused as often as the policy
allows is left out while another of its arm takes requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefillgate.core.gate import Gate
from prefillgate.core.journal import Purpose


@dataclass(frozen=True, slots=True)
class RunCell:
    """Run this cell: one request, one generation, on the server number `lane` of its arm."""

    cell_id: int
    arm: str
    case_id: str
    purpose: Purpose
    pair: int | None
    round: int
    replicate: int
    attempt: int
    seed: int
    nonce: str
    place: int | None = None
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A cell that may be begun. `turn` says which of the arm's servers it falls to."""

    arm: str
    case_id: str
    purpose: Purpose
    attempt: int
    turn: int = 0
    round: int = 0
    pair: int | None = None
    replicate: int = 0
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Flight:
    """The cells under way, and the servers (arm, lane) that are left alone for a while after an invalid one."""

    cells: tuple[RunCell, ...] = ()
    resting: frozenset[tuple[str, int]] = frozenset()

    def of(self, *purposes: Purpose) -> list[RunCell]:
        """The cells under way of these purposes."""
        return [cell for cell in self.cells if cell.purpose in purposes]

    def arm_may_run(self, gate: Gate, arm: str) -> bool:
        """Whether a cell of this arm may run beside those under way: only beside its own arm's, unless the arms share
        no hardware."""
        return gate.plan.shape.at_once or all(cell.arm == arm for cell in self.cells)

    def takes(self, gate: Gate, wanted: Wanted) -> bool:
        """Whether this cell can be begun now, on the server it falls to."""
        server = (wanted.arm, lane_of(gate, wanted))
        idle = server not in self.resting and all((cell.arm, cell.lane) != server for cell in self.cells)
        return idle and self.arm_may_run(gate, wanted.arm)


NOTHING = Flight()


def lane_of(gate: Gate, wanted: Wanted) -> int:
    """The server the cell falls to. A later attempt goes to the next one: what voided the first may last there."""
    lanes = open_lanes(gate, wanted.arm)
    return lanes[(wanted.turn + wanted.attempt - 1) % len(lanes)]


def open_lanes(gate: Gate, arm: str) -> Sequence[int]:
    """Servers of the arm that take requests; all of them where none does."""
    lanes, lost = range(gate.plan.shape.lanes(arm)), gate.lost_lanes(arm)
    return [lane for lane in lanes if lane not in lost] or list(lanes)
