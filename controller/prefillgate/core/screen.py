"""The screen: which place comes next, on the candidate alone or as a throughput pair, beside the cells in flight."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.flight import Flight, Wanted
from prefillgate.core.gate import Gate
from prefillgate.core.journal import OUT_OF_TURN, Purpose
from prefillgate.core.pairs import next_extra_pair, pair_wanted
from prefillgate.core.places import OpenPair
from prefillgate.core.snapshot import acceptance_reached, clean_prefills_needed


def next_of_screen(gate: Gate, flight: Flight) -> Wanted | None:
    """The next cell of the screen that can be begun now, or None.

    Pairs under way come first. Where an alarm stands nothing else is begun: a replicate is due as soon as they ended.
    """
    pairs = _pairs_under_way(gate, flight)
    for pair in pairs.values():
        for half in _halves_left(gate, flight, pair):
            if flight.takes(gate, half):
                return half
            if pair.done and not flight.arm_may_run(gate, half.arm):
                return None  # its mate comes as soon as the other arm rests: adjacent in time
    if gate.alarm:
        return None
    if gate.plan.policy.throughput.required and acceptance_reached(gate):
        cases = frozenset(pair.case_id for pair in pairs.values())
        extra = next_extra_pair(gate, cases, len(pairs.keys() - gate.places.open_pairs.keys()))
        if extra is not None:
            return _out_of_turn(gate, flight, extra)
    return _in_turn(gate, flight, len(pairs.keys() - gate.places.open_pairs.keys()))


def _pairs_under_way(gate: Gate, flight: Flight) -> dict[int, OpenPair]:
    """By number, rising: pairs of which a half ended, and those of which a half is in flight."""
    pairs = dict(gate.places.open_pairs)
    for cell in flight.of(Purpose.PAIR):
        number = cell.pair or 0
        pairs.setdefault(number, OpenPair(number, cell.case_id, cell.arm, cell.place, cell.round))
    return dict(sorted(pairs.items()))


def _halves_left(gate: Gate, flight: Flight, pair: OpenPair) -> list[Wanted]:
    """Halves that are still to be begun: both at once where the arms share no hardware, else one after the other. (The
    second waits for the first in flight as any cell waits for the other arm.)"""
    begun = {cell.arm for cell in flight.of(Purpose.PAIR) if cell.pair == pair.number}
    other = BASELINE if pair.first_arm == CANDIDATE else CANDIDATE
    left = [arm for arm in (pair.first_arm, other) if arm not in pair.done | begun]
    return [_half(gate, pair, arm) for arm in (left if gate.plan.shape.at_once else left[:1])]


def _half(gate: Gate, pair: OpenPair, arm: str) -> Wanted:
    return Wanted(
        arm,
        pair.case_id,
        Purpose.PAIR,
        gate.places.attempt(Purpose.PAIR, arm, pair.number),
        turn=pair.number if arm == BASELINE or pair.place is None or pair.place == OUT_OF_TURN else pair.place,
        round=pair.round,
        pair=pair.number,
        place=pair.place,
    )


def _out_of_turn(gate: Gate, flight: Flight, case: str) -> Wanted | None:
    """The first half of a pair that is run for its speed; where its prompt's turn has come it takes that place."""
    places = gate.places
    place = places.screened if case == places.next_case else OUT_OF_TURN
    return _new_pair(gate, flight, case, (place, places.round))


def _in_turn(gate: Gate, flight: Flight, pairs_in_flight: int) -> Wanted | None:
    """The first place whose server is free. A place that waits for the other arm keeps later ones waiting too."""
    places = gate.places
    for place in _open_places(gate, flight):
        case, round_ = places.case_at(place), places.round_of(place)
        if pair_wanted(gate, case, pairs_in_flight):
            wanted = _new_pair(gate, flight, case, (place, round_))
            if wanted is not None:
                return wanted
            if not gate.plan.shape.at_once and flight.cells:
                return None
            continue
        attempt = places.attempt(Purpose.SCREEN, CANDIDATE, place)
        alone = Wanted(CANDIDATE, case, Purpose.SCREEN, attempt, turn=place, round=round_, place=place)
        if flight.takes(gate, alone):
            return alone
        if not flight.arm_may_run(gate, CANDIDATE):
            return None
    return None


def _new_pair(gate: Gate, flight: Flight, case: str, at: tuple[int, int]) -> Wanted | None:
    """The first half of the next pair, in the order of its coin, if it can be begun: with its mate, where both run at
    once. `at` is (place, round)."""
    places = gate.places
    taken = {cell.pair for cell in flight.of(Purpose.PAIR)} | places.open_pairs.keys()
    number = next(number for number in count() if number not in taken and not places.pairs.done(number))
    first = CANDIDATE if places.candidate_first(number) else BASELINE
    halves = _halves_left(gate, flight, OpenPair(number, case, first, *at))
    return halves[0] if all(flight.takes(gate, half) for half in halves) else None


def _open_places(gate: Gate, flight: Flight) -> Iterator[int]:
    """Places that are neither done nor under way, in their order: no more than would suffice if all were clean."""
    places = gate.places
    taken = {cell.place for cell in flight.of(Purpose.PAIR, Purpose.SCREEN)}
    taken |= {pair.place for pair in places.open_pairs.values()}
    free = (place for place in count(places.screened) if place not in taken and not places.screen.done(place))
    if not flight.cells:
        yield next(free)  # whatever is missing, the run goes on
    missing = clean_prefills_needed(gate)
    end = places.screened + gate.plan.shape.candidate_lanes if missing is None else places.screen.count + missing
    for place in free:
        if place >= end:
            return
        yield place
