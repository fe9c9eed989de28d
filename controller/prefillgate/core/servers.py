"""What a verdict says of the servers behind the arms where a run has more than one for each, or asks both at once."""

from __future__ import annotations

from collections import Counter

from prefillgate.core.cells import ARMS, CANDIDATE
from prefillgate.core.gate import Gate

AT_ONCE = (
    "both arms were asked at the same time (--arms-at-once): the speeds compare only if the arms share no hardware"
)


def server_name(gate: Gate, arm: str, lane: int) -> str:
    """`the server`, or which of several."""
    servers = gate.plan.shape.lanes(arm)
    return "the server" if servers == 1 else f"server {lane + 1} of {servers}"


def named_server(gate: Gate, arm: str, lane: int) -> str:
    """The arm, and which of several servers: `candidate 2`."""
    return arm if gate.plan.shape.lanes(arm) == 1 else f"{arm} {lane + 1}"


def shape_notes(gate: Gate) -> list[str]:
    """How the scored cells fell on several servers, which of them were lost, and that the arms overlapped."""
    notes = [AT_ONCE] if gate.plan.shape.at_once else []
    for arm in ARMS:
        servers = gate.plan.shape.lanes(arm)
        if servers == 1:
            continue
        cells = Counter(event.lane for event in gate.scored if event.cell.arm == arm)
        bad = Counter(event.lane for event in gate.scored if event.cell.arm == arm and event.cell.bad)
        shares = ", ".join(f"{bad[lane]} of {cells[lane]}" for lane in range(servers))
        notes.append(f"{arm}: {servers} servers; bad of scored cells on each: {shares}")
        for lane in gate.lost_lanes(arm):
            blocks = "; nothing is promoted without it" if arm == CANDIDATE else ""
            notes.append(
                f"{arm}: {server_name(gate, arm, lane)} takes no requests any more, the others went on{blocks}"
            )
    return notes
