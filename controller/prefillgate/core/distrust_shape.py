"""Distrust that follows from the shape of a run: no baseline to ask, or servers that others use (rule 6).

The checks of `prefillgate.core.distrust` hold for every shape; these hold for one.
"""

from __future__ import annotations

from collections import deque

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import Distrust, Reason
from prefillgate.core.gate import BUSY, REFUSED_BODY, Gate

TRAFFIC = frozenset({"OtherTraffic", "NotIdle"})  # reasons of a cell that other work on the server voided
WINDOW = 10
MOST_VOIDED = 5  # of WINDOW cells in a row; more stop the run
SUGGEST_SHARED = (
    "--isolation shared, in a new store, judges quality on a server in use (no decode speed); or run this again at a "
    "quiet hour"
)


def refused_without_baseline(gate: Gate) -> Distrust | None:
    """400, 413 or 422 from an arm that is alone: nothing tells whether the prompt or the server is at fault."""
    arms = gate.plan.shape.arms
    if len(arms) > 1:
        return None
    (arm,) = arms
    other = BASELINE if arm == CANDIDATE else CANDIDATE
    for event in gate.flawed:
        if event.cell.status is Status.INVALID and event.http_status in REFUSED_BODY:
            return Distrust(
                Reason.CASE_UNUSABLE,
                f"the {arm} answers {event.cell.case_id} with {event.http_status}: {event.detail}; without a "
                f"{other} nothing tells whether the prompt or the {arm} is at fault",
            )
    return None


def server_in_use(gate: Gate) -> Distrust | None:
    """More than half of ten cells in a row of one arm were voided by other work on its server: an Error.

    Cells since the last resume; those of a server that asked to be left alone (429, 503) are passed over.
    """
    if not gate.flawed or gate.plan.shape.shared:
        return None
    last: dict[str, deque[bool]] = {arm: deque(maxlen=WINDOW) for arm in gate.plan.shape.arms}
    for event in gate.measured.values():
        if event.http_status in BUSY or gate.session_of(event.cell_id) != gate.session:
            continue
        seen = last[event.cell.arm]
        seen.append(voided_by_traffic(event.cell.status, event.reason))
        if len(seen) == WINDOW and sum(seen) > MOST_VOIDED:
            return Distrust(
                Reason.OTHER_TRAFFIC,
                f"{sum(seen)} of {WINDOW} cells in a row on the {event.cell.arm} were voided by other traffic: its "
                f"server is in use; {SUGGEST_SHARED}",
            )
    return None


def voided_by_traffic(status: Status, reason: str | None) -> bool:
    """Whether a cell is void because somebody else used the server."""
    return status is Status.INVALID and reason in TRAFFIC


def unproven_by_responses(gate: Gate) -> Distrust | None:
    """On a server in use only what a response tells of its own prefill counts, and one arm's responses do not tell."""
    if not gate.plan.shape.shared:
        return None
    for arm, epochs in gate.epochs.items():
        if epochs and not epochs[-1].counter_alive:
            why = "; ".join(epochs[-1].findings) or "the responses tell no cached tokens"
            return Distrust(
                Reason.INDEPENDENCE_UNKNOWN, f"independence unknown on the {arm} ({epochs[-1].engine}): {why}"
            )
    return None
