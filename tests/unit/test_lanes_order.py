"""Cells of runs with several servers, held against what the plan fixes of their places: no true run is accused,
whatever order its cells end in, and what was moved, added, dropped or taken from another place is named."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from prefillgate.bundle.lanes_order import LanesOrder
from prefillgate.core.acceptance import QUICK
from prefillgate.core.cells import CANDIDATE, Status
from prefillgate.core.flight import Flight, RunCell, Wanted
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import CellChecked, CellMeasured, CheckOutcome, Event, Purpose, RunResumed
from prefillgate.core.schedule import Stop, planned_cell
from prefillgate.core.shape import Shape
from tests.support.flights import Fleet, fleet
from tests.support.journals import cell

POLICY = replace(QUICK, throughput=replace(QUICK.throughput, max_pairs=6, required=False))
TWO_AND_THREE = Shape(baseline_lanes=2, candidate_lanes=3)
SHAPES = [TWO_AND_THREE, Shape(at_once=True), replace(TWO_AND_THREE, at_once=True), Shape(candidate_lanes=4)]


def accused(events: list[Event]) -> tuple[int, str] | None:
    """The place in the journal, from 0, and the words of the first cell that cannot be the plan's."""
    gate, order = Gate(), LanesOrder()
    for number, event in enumerate(events):
        if isinstance(event, CellMeasured) and (wrong := order.out_of_order(gate, event)):
            return number, wrong
        gate.apply(event)
    return None


@cache
def flown(shape: Shape, seed: int, bad: float = 0.0, invalid: float = 0.0, killed: float = 0.0) -> Fleet:
    """A run whose cells end in a random order; some are bad, some invalid, and now and then the program is killed."""
    chance = random.Random(seed)
    made = fleet(POLICY, shape, seed=seed, bad=lambda step: step.arm == CANDIDATE and chance.random() < bad)
    for _ in range(2000):
        step = made.begin()
        if isinstance(step, Stop) and not made.flying:
            return made
        if chance.random() < killed:
            made.flying.clear()
            made.apply(RunResumed(made.tick()))
            continue
        cell = chance.choice(made.flying)
        if chance.random() < invalid:
            cell_ended_void(made, cell)
        else:
            made.end(cell)
    raise AssertionError("no stop")


def cell_ended_void(made: Fleet, cell: RunCell) -> None:
    made.end(cell, replace(made.make(cell), status=Status.INVALID), reason="WitnessMismatch")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("bad", "invalid", "killed"), [(0, 0, 0), (0.4, 0, 0), (0.1, 0.1, 0), (0.2, 0.05, 0.05)])
def test_no_true_run_is_accused(shape: Shape, bad: float, invalid: float, killed: float) -> None:
    for seed in range(2):
        assert accused(flown(shape, seed, bad, invalid, killed).events) is None


def cells(events: list[Event], purpose: str) -> list[int]:
    return [at for at, one in enumerate(events) if isinstance(one, CellMeasured) and one.purpose == purpose]


CHANGES: dict[str, Any] = {
    "seed": 1,
    "nonce": "0" * 32,
    "attempt": 2,
    "round": 7,
    "lane": 1,
    "case_id": "c11",
    "arm": "baseline",
}


@pytest.mark.parametrize("purpose", ["baseline_pass", "screen", "pair", "replicate"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_field_is_named(purpose: str, name: str) -> None:
    events = list(flown(TWO_AND_THREE, 3, bad=0.4).events)
    for at in cells(events, purpose)[:6]:
        event = events[at]
        assert isinstance(event, CellMeasured)
        value = CHANGES[name]
        if name == "arm":
            value = "candidate" if event.cell.arm == "baseline" else "baseline"
        if name == "lane":
            value = 1 - event.lane if event.lane < 2 else 0
        if name == "case_id" and event.cell.case_id == value:
            continue
        changed = replace(event, cell=replace(event.cell, **{name: value})) if name in ("arm", "case_id") else None
        found = accused([*events[:at], changed or replace(event, **{name: value}), *events[at + 1 :]])
        assert found is not None and found[0] == at, (purpose, name)


def test_the_words_name_field_value_and_what_was_due() -> None:
    events = list(flown(TWO_AND_THREE, 3).events)
    at = cells(events, "screen")[0]
    event = events[at]
    assert isinstance(event, CellMeasured)
    found = accused([*events[:at], replace(event, seed=1)])
    assert found == (at, f"seed is 1, the plan gives that place {event.seed}")
    assert accused([*events[:at], replace(event, place=None)]) == (
        at,
        "place is None, where the plan has none for screen",
    )
    assert accused([*events[:at], replace(event, cell_id=900)])[1].startswith("cell_id is 900, and ")  # type: ignore[index]


@pytest.mark.parametrize("purpose", ["baseline_pass", "screen"])
def test_a_cell_that_was_dropped_is_missed_at_the_next_of_its_server(purpose: str) -> None:
    events = list(flown(TWO_AND_THREE, 3).events)
    for at in cells(events, purpose)[:4]:
        event = events[at]
        assert isinstance(event, CellMeasured)
        without = [one for one in events if getattr(one, "cell_id", None) != event.cell_id]
        found = accused(without)
        assert found is not None
        assert "was not done" in found[1] or "a cell was dropped" in found[1]


def test_a_place_done_twice_is_named() -> None:
    events = list(flown(TWO_AND_THREE, 3).events)
    at = cells(events, "screen")[0]
    event = events[at]
    assert isinstance(event, CellMeasured)
    again = replace(event, cell_id=1000)
    place = len(events) - 1
    found = accused([*events[:place], replace(again, cell_id=event.cell_id + 1)])
    assert found is not None and found[1] == f"place {event.place} of screen was done before"


def test_a_pair_begins_with_the_arm_of_its_coin() -> None:
    events = list(flown(TWO_AND_THREE, 3).events)
    first = cells(events, "pair")[0]
    one = events[first]
    assert isinstance(one, CellMeasured)
    mate = next(
        at
        for at in cells(events, "pair")[1:]
        if events[at].pair == one.pair  # type: ignore[union-attr]
    )
    swapped = [*events[:first], events[mate]]
    found = accused(swapped)
    assert found is not None and f"the coin of pair {one.pair} begins with" in found[1]


def test_cells_after_the_decision_are_no_more_than_were_in_flight() -> None:
    events = list(flown(Shape(candidate_lanes=2), 3).events)
    assert accused(events) is None
    gate = fold(events)
    for _ in range(4):
        place = gate.places.screened
        case, round_ = gate.places.case_at(place), gate.places.round_of(place)
        wanted = Wanted(CANDIDATE, case, Purpose.SCREEN, 1, place, round_, place=place)
        due = planned_cell(gate, Flight(), wanted)
        one = CellMeasured(
            due.cell_id,
            cell(case=due.case_id, server_epoch=f"{CANDIDATE}-{due.lane}"),
            due.purpose,
            None,
            due.round,
            1,
            due.seed,
            due.nonce,
            place=place,
            lane=due.lane,
        )
        for event in (one, CellChecked(due.cell_id, (CheckOutcome("check", "1", False),))):
            gate.apply(event)
            events.append(event)
    found = accused(events)
    assert found is not None and found[1] == "4 cells ended after the decision, and 3 servers had at most 3 in flight"
