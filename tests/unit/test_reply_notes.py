"""What replies tell beside their counters: drafts that were accepted, requests that were taken back."""

from __future__ import annotations

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.judge import notes_of
from prefillgate.core.reply_notes import reply_notes
from tests.support.journals import cell, measure, score, started

ROOM = "it served more than it had room for, and these times are unknown"


def test_replies_that_tell_neither_bring_no_note() -> None:
    gate = started()
    score(gate, cell(), draft_tokens=None, draft_accepted_tokens=None, retractions=None)
    score(gate, cell(), draft_tokens=0, draft_accepted_tokens=0, retractions=0)
    score(gate, cell(), draft_tokens=4, draft_accepted_tokens=None)
    assert reply_notes(gate) == []


def test_accepted_drafts_are_told_for_each_arm_over_its_scored_cells() -> None:
    gate = started()
    score(gate, cell(), draft_tokens=30, draft_accepted_tokens=7)
    score(gate, cell(), draft_tokens=3, draft_accepted_tokens=3)
    score(gate, cell(BASELINE), draft_tokens=8, draft_accepted_tokens=0)
    measure(gate, cell(), draft_tokens=900, draft_accepted_tokens=900)  # not checked yet
    assert reply_notes(gate) == [
        "baseline: 0.0 % of 8 drafted tokens were accepted",
        "candidate: 30.3 % of 33 drafted tokens were accepted",
    ]


def test_requests_that_were_taken_back_are_counted_and_their_cases_named() -> None:
    gate = started()
    score(gate, cell(BASELINE, "c2"), retractions=1)
    for case in ("c0", "c1", "c0", "c3"):
        score(gate, cell(CANDIDATE, case), retractions=2)
    one, several = reply_notes(gate)
    assert one == f"baseline: 1 cell was taken back by the server and computed anew (c2): {ROOM}"
    assert several == f"candidate: 4 cells were taken back by the server and computed anew (c0, c1, c3): {ROOM}"
    for case in ("c4", "c5"):
        score(gate, cell(CANDIDATE, case), retractions=1)
    assert "6 cells were taken back by the server and computed anew (c0, c1, c3 and 2 more)" in reply_notes(gate)[1]
    assert set(reply_notes(gate)) <= set(notes_of(gate))
