"""What a verdict says of several servers of an arm."""

from __future__ import annotations

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.servers import AT_ONCE, named_server, server_name, shape_notes
from prefillgate.core.shape import Shape
from tests.support.journals import cell, measure, score, started

TWO = Shape(candidate_lanes=2)


def names(gate: Gate, arm: str, lane: int) -> tuple[str, str]:
    return server_name(gate, arm, lane), named_server(gate, arm, lane)


def test_a_server_is_numbered_from_one_where_there_are_several() -> None:
    gate = started(shape=TWO)
    assert names(gate, BASELINE, 0) == ("the server", "baseline")
    assert names(gate, CANDIDATE, 0) == ("server 1 of 2", "candidate 1")
    assert names(gate, CANDIDATE, 1) == ("server 2 of 2", "candidate 2")


def test_one_server_for_each_arm_needs_no_note() -> None:
    assert shape_notes(started()) == []
    assert shape_notes(started(shape=Shape(at_once=True))) == [AT_ONCE]


def test_bad_and_scored_cells_are_told_for_each_server_of_the_arm() -> None:
    gate = started(shape=Shape(candidate_lanes=2, baseline_lanes=2))
    for lane, bad in ((0, True), (1, False), (1, False), (1, True)):
        score(gate, cell(case=gate.places.next_case), bad, lane=lane)
    score(gate, cell(BASELINE), lane=1)
    assert shape_notes(gate) == [
        "baseline: 2 servers; bad of scored cells on each: 0 of 0, 0 of 1",
        "candidate: 2 servers; bad of scored cells on each: 1 of 1, 1 of 3",
    ]


def test_a_server_that_was_lost_is_named_and_blocks_where_it_is_the_candidates() -> None:
    gate = started(shape=Shape(candidate_lanes=2, baseline_lanes=2))
    for arm, lane in ((BASELINE, 0), (CANDIDATE, 1)):
        for _ in range(3):
            measure(gate, cell(arm, status=Status.INVALID), reason="ConnectionRefused", lane=lane)
    notes = shape_notes(gate)
    assert notes[1] == "baseline: server 1 of 2 takes no requests any more, the others went on"
    assert notes[3] == (
        "candidate: server 2 of 2 takes no requests any more, the others went on; nothing is promoted without it"
    )
    assert len(notes) == 4
