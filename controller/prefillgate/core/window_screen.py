"""The screen of a sequential run: which cell comes next, in a pair of windows or on the candidate alone."""

from __future__ import annotations

from prefillgate.core.cells import CANDIDATE
from prefillgate.core.flight import Wanted
from prefillgate.core.gate import Gate
from prefillgate.core.journal import Purpose
from prefillgate.core.window_speed import wanted_window_cell


def next_of_windows(gate: Gate) -> Wanted:
    """The next cell of a pair of windows; where none is wanted the next prompt on the candidate alone."""
    found = wanted_window_cell(gate)
    if found is not None:
        return Wanted(found.arm, found.case_id, Purpose.WINDOW, found.attempt, round=found.round, pair=found.pair)
    places = gate.places
    place = places.screened
    attempt = places.attempt(Purpose.SCREEN, CANDIDATE, place)
    return Wanted(CANDIDATE, places.next_case, Purpose.SCREEN, attempt, turn=place, round=places.round, place=place)
