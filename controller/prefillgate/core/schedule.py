"""What to do next: the plan of the run as a function of what is known and of the cells in flight.

The runner asks `next_step` after every event and does what it says. Killed and started again it is told the same: what
was in flight then is planned anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import Ruling, decide
from prefillgate.core.flight import NOTHING, Flight, Wanted, lane_of
from prefillgate.core.flight import RunCell as RunCell
from prefillgate.core.gate import REFUSED_BODY, Gate
from prefillgate.core.journal import Purpose
from prefillgate.core.places import derived_nonce, derived_seed
from prefillgate.core.replicate import Half, Replicate
from prefillgate.core.screen import next_of_screen
from prefillgate.core.snapshot import take_snapshot
from prefillgate.core.verdict import Outcome
from prefillgate.core.window_screen import next_of_windows
from prefillgate.core.windows import SwapServers, Window, swap_needed

COMPARE_ROUND, PASS_ROUND = -1, -2  # cells outside of the rounds of the screen


@dataclass(frozen=True, slots=True)
class CheckCell:
    """An answer that no check has read yet."""

    cell_id: int


@dataclass(frozen=True, slots=True)
class StartReplicate:
    """Write down that this replicate begins; `seed` is new."""

    number: int
    seed: int


@dataclass(frozen=True, slots=True)
class Separate:
    """Keep the replicate apart from its trigger: wait until `not_before`, or for a candidate of another epoch.

    `not_before` is in seconds since the epoch, None when the trigger's time is unknown.
    """

    number: int
    not_before: float | None
    trigger_epoch: str | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is to be run: this is the decision."""

    ruling: Ruling


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be begun before a cell in flight ends, or a server left alone may be asked again."""


Step = RunCell | CheckCell | StartReplicate | Separate | SwapServers | Wait | Stop


def next_step(gate: Gate, flight: Flight = NOTHING) -> Step:
    """The one thing to do now.

    With cells in flight a stop is not the end yet: they are let end and scored, and may change it.
    """
    unchecked = gate.unchecked()
    if unchecked:
        return CheckCell(unchecked[0].cell_id)
    ruling = decide(take_snapshot(gate))
    if ruling.decision is not Outcome.CONTINUE:
        return Stop(ruling)
    if flight.cells and gate.prefills_used + len(flight.cells) >= gate.budget:
        return Wait()
    for phase in (_compare_refusal, _baseline_pass, _replicate):
        step = phase(gate, flight)
        if step is not None:
            return _swap_before(gate, step) or step
    if gate.plan.shape.sequential:
        cell = planned_cell(gate, flight, next_of_windows(gate))
        return _swap_before(gate, cell) or cell
    wanted = next_of_screen(gate, flight)
    return Wait() if wanted is None else planned_cell(gate, flight, wanted)


def _swap_before(gate: Gate, step: Step) -> SwapServers | None:
    """In a sequential run: the server that must be up before this step can be done."""
    if not gate.plan.shape.sequential or not isinstance(step, RunCell | Separate):
        return None
    if isinstance(step, Separate):
        return swap_needed(gate.windows, Window(CANDIDATE, 0, step.number))
    paired = step.purpose in (Purpose.WINDOW, Purpose.REPLICATE)
    return swap_needed(gate.windows, Window(step.arm, step.pair if paired else None, step.replicate))


def planned_cell(gate: Gate, flight: Flight, wanted: Wanted) -> RunCell:
    """A planned cell. Seed and nonce depend on the place, not on the arm or the server: equal on both.

    A resumed run has new nonces: the cell it was killed in may have warmed the server with the old one. So has the
    second pass over the baseline, whose seeds are those of the first.
    """
    group = wanted.purpose if wanted.purpose is Purpose.REPLICATE else "run"
    label = (group, wanted.replicate, wanted.round, wanted.pair, wanted.case_id)
    run_seed = gate.replicate_seeds[-1].seed if wanted.replicate else gate.plan.seed
    return RunCell(
        cell_id=gate.next_cell_id(frozenset(cell.cell_id for cell in flight.cells)),
        arm=wanted.arm,
        case_id=wanted.case_id,
        purpose=wanted.purpose,
        pair=wanted.pair,
        round=wanted.round,
        replicate=wanted.replicate,
        attempt=wanted.attempt,
        seed=derived_seed(run_seed, *label),
        nonce=derived_nonce(run_seed, *label, wanted.attempt, gate.session, wanted.purpose is Purpose.AA),
        place=wanted.place,
        lane=lane_of(gate, wanted),
    )


def _begun(gate: Gate, flight: Flight, wanted: Iterable[Wanted]) -> Step:
    """The first of these cells that can be begun now."""
    for cell in wanted:
        if flight.takes(gate, cell):
            return planned_cell(gate, flight, cell)
    return Wait()


def _compare_refusal(gate: Gate, flight: Flight) -> Step | None:
    """One arm refused a body that the other did not answer yet: ask it, to tell whose fault it is."""
    if not gate.flawed or len(gate.plan.shape.arms) == 1:
        return None
    asked = {
        (e.cell.arm, e.cell.case_id)
        for e in gate.measured.values()
        if e.cell.status is not Status.INVALID or e.http_status in REFUSED_BODY
    }
    for event in gate.flawed:
        case = event.cell.case_id
        refused = event.cell.status is Status.INVALID and event.http_status in REFUSED_BODY
        other = BASELINE if event.cell.arm == CANDIDATE else CANDIDATE
        if refused and (other, case) not in asked:
            attempt = gate.places.attempt(Purpose.COMPARE, other, case)
            wanted = Wanted(other, case, Purpose.COMPARE, attempt, round=COMPARE_ROUND)
            return Wait() if flight.of(Purpose.COMPARE) else _begun(gate, flight, [wanted])
    return None


def _baseline_pass(gate: Gate, flight: Flight) -> Step | None:
    """The first pass over the baseline, then the second where there is one: none of it beside the candidate."""
    places = gate.places
    passes = (
        (Purpose.BASELINE_PASS, places.baseline_pass, places.first_walk),
        (Purpose.AA, places.second_pass, places.second_walk),
    )
    for purpose, order, walk in passes:
        if walk.next < len(order):
            taken = {cell.place for cell in flight.of(purpose)}
            left = (at for at in range(walk.next, len(order)) if at not in taken and not walk.done(at))
            return _begun(gate, flight, (_of_pass(gate, purpose, order[at], at) for at in left))
    return None


def _of_pass(gate: Gate, purpose: Purpose, case: str, place: int) -> Wanted:
    attempt = gate.places.attempt(purpose, BASELINE, place)
    return Wanted(BASELINE, case, purpose, attempt, turn=place, round=PASS_ROUND, place=place)


def _replicate(gate: Gate, flight: Flight) -> Step | None:
    running = gate.open_replicate
    if running is not None:
        if running.separation is None:
            return Wait() if flight.cells else _separate(gate, running.plan.number)
        return _halves(gate, running, flight)
    if gate.alarm and gate.places.open_pair is None:
        if flight.cells:
            return Wait()
        number = gate.plan.first_replicate + len(gate.replicates)
        return StartReplicate(number, derived_seed(gate.plan.seed, "replicate", number, gate.next_cell_id()))
    return None


def _halves(gate: Gate, running: Replicate, flight: Flight) -> Step:
    """The next half of the replicate. Only as many are looked at as there are servers: E waits for the first of them.

    Where the arms take turns the second half of a pair waits for the first, and nothing is begun beside an arm that a
    mate waits for.
    """
    shape, in_flight = gate.plan.shape, {(cell.pair or 0, cell.arm) for cell in flight.of(Purpose.REPLICATE)}
    looked_at: set[int] = set()
    for half in islice(running.wanted(in_flight), shape.baseline_lanes + shape.candidate_lanes):
        if half.pair in looked_at and not shape.at_once:
            continue
        looked_at.add(half.pair)
        wanted = _half(half, running.plan.number)
        if flight.takes(gate, wanted):
            return planned_cell(gate, flight, wanted)
        if running.has_mate(half) and not flight.arm_may_run(gate, half.arm):
            break
    return Wait()


def _half(half: Half, number: int) -> Wanted:
    return Wanted(
        half.arm,
        half.case_id,
        Purpose.REPLICATE,
        half.tries,
        turn=half.pair,
        round=half.unit,
        pair=half.pair,
        replicate=number,
    )


def tainted_epochs(gate: Gate) -> list[str]:
    """Lives of the candidate's servers that a bad cell is known of, those of the trigger among them."""
    before = () if gate.plan.trigger is None else gate.plan.trigger.epochs
    bad = (e.cell.server_epoch for e in gate.scored if e.cell.arm == CANDIDATE and e.cell.bad)
    return [*before, *(epoch for epoch in bad if epoch is not None)]


def last_bad_end(gate: Gate, arm: str) -> float | None:
    """When the last bad cell of an arm ended, or began where its end is unknown; None without one."""
    last = next((e.cell for e in reversed(gate.scored) if e.cell.arm == arm and e.cell.bad), None)
    return None if last is None else last.ended_at if last.ended_at is not None else last.started_at


def _separate(gate: Gate, number: int) -> Separate:
    bad = [e.cell for e in gate.scored if e.cell.arm == CANDIDATE and e.cell.bad]
    gap, trigger = gate.plan.policy.replicate.gap_seconds, gate.plan.trigger
    if not bad and trigger is not None:
        not_before = None if trigger.last_bad_at is None else trigger.last_bad_at + gap
        return Separate(number, not_before, trigger.epochs[-1] if trigger.epochs else None)
    ended = last_bad_end(gate, CANDIDATE)
    return Separate(number, None if ended is None else ended + gap, bad[-1].server_epoch if bad else None)
