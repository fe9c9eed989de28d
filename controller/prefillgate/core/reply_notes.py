"""What replies tell beside their counters, in notes of the verdict: accepted drafts, requests that were taken back.

Neither decides anything. A draft that is accepted less often explains a speed, and a request that was taken back has no
times (ENGINES.md sections 1 and 2).
"""

from __future__ import annotations

from prefillgate.core.gate import Gate, cells_of

MAX_NAMED = 3  # cases


def reply_notes(gate: Gate) -> list[str]:
    """Notes on the scored cells of each arm: the share of drafted tokens that was accepted, and retractions."""
    notes = []
    for arm in gate.plan.shape.arms:
        drafted = accepted = 0
        retracted: list[str] = []
        for event in cells_of(gate, arm):
            if event.draft_tokens and event.draft_accepted_tokens is not None:
                drafted, accepted = drafted + event.draft_tokens, accepted + event.draft_accepted_tokens
            if event.retractions:
                retracted.append(event.cell.case_id)
        if drafted:
            notes.append(f"{arm}: {100 * accepted / drafted:.1f} % of {drafted} drafted tokens were accepted")
        if retracted:
            notes.append(_retracted(arm, retracted))
    return notes


def _retracted(arm: str, cases: list[str]) -> str:
    named = list(dict.fromkeys(cases))
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    number = "1 cell was" if len(cases) == 1 else f"{len(cases)} cells were"
    return (
        f"{arm}: {number} taken back by the server and computed anew ({', '.join(named[:MAX_NAMED])}{more}): it served "
        "more than it had room for, and these times are unknown"
    )
