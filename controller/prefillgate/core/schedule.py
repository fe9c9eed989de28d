"""What to do next: the plan of the run as a function of what is known.

The runner asks `next_step` after every event and does what it says. Killed and started again it is told the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import Ruling, decide
from prefillgate.core.gate import REFUSED_BODY, Gate
from prefillgate.core.journal import Purpose
from prefillgate.core.pairs import next_extra_pair, pair_wanted
from prefillgate.core.places import derived_nonce, derived_seed
from prefillgate.core.snapshot import acceptance_reached, take_snapshot
from prefillgate.core.verdict import Outcome

COMPARE_ROUND, PASS_ROUND = -1, -2  # cells outside of the rounds of the screen


@dataclass(frozen=True, slots=True)
class RunCell:
    """Run this cell: one request, one generation."""

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


Step = RunCell | CheckCell | StartReplicate | Separate | Stop


def next_step(gate: Gate) -> Step:
    """The one thing to do now."""
    unchecked = gate.unchecked()
    if unchecked:
        return CheckCell(unchecked[0].cell_id)
    ruling = decide(take_snapshot(gate))
    if ruling.decision is not Outcome.CONTINUE:
        return Stop(ruling)
    return _compare_refusal(gate) or _baseline_pass(gate) or _replicate(gate) or _screen(gate)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a planned cell stands."""

    attempt: int
    round: int = 0
    pair: int | None = None
    replicate: int = 0


def _cell(gate: Gate, arm: str, case: str, purpose: Purpose, place: _Place) -> RunCell:
    """A planned cell. Seed and nonce depend on the place, not on the arm: equal on both.

    A resumed run has new nonces: the cell it was killed in may have warmed the server with the old one. So has the
    second pass over the baseline, whose seeds are those of the first.
    """
    group = purpose if purpose is Purpose.REPLICATE else "run"
    label = (group, place.replicate, place.round, place.pair, case)
    run_seed = gate.replicate_seeds[-1].seed if place.replicate else gate.plan.seed
    return RunCell(
        cell_id=gate.next_cell_id(),
        arm=arm,
        case_id=case,
        purpose=purpose,
        pair=place.pair,
        round=place.round,
        replicate=place.replicate,
        attempt=place.attempt,
        seed=derived_seed(run_seed, *label),
        nonce=derived_nonce(run_seed, *label, place.attempt, gate.session, purpose is Purpose.AA),
    )


def _compare_refusal(gate: Gate) -> RunCell | None:
    """One arm refused a body that the other did not answer yet: ask it, to tell whose fault it is."""
    if not gate.flawed or gate.plan.shape.candidate_alone:
        return None
    asked = {
        (e.cell.arm, e.cell.case_id)
        for e in gate.measured.values()
        if e.cell.status is not Status.INVALID or e.http_status in REFUSED_BODY
    }
    for event in gate.flawed:
        refused = event.cell.status is Status.INVALID and event.http_status in REFUSED_BODY
        other = BASELINE if event.cell.arm == CANDIDATE else CANDIDATE
        if refused and (other, event.cell.case_id) not in asked:
            attempt = gate.places.attempt(Purpose.COMPARE, other)
            return _cell(gate, other, event.cell.case_id, Purpose.COMPARE, _Place(attempt, COMPARE_ROUND))
    return None


def _baseline_pass(gate: Gate) -> RunCell | None:
    places = gate.places
    if places.passed < len(places.baseline_pass):
        case, purpose = places.baseline_pass[places.passed], Purpose.BASELINE_PASS
    elif places.passed_again < len(places.second_pass):
        case, purpose = places.second_pass[places.passed_again], Purpose.AA
    else:
        return None
    return _cell(gate, BASELINE, case, purpose, _Place(places.attempt(purpose, BASELINE), PASS_ROUND))


def _replicate(gate: Gate) -> Step | None:
    running = gate.open_replicate
    if running is not None:
        if running.separation is None:
            return _separate(gate, running.plan.number)
        half = running.next_half()
        if half is not None:
            number = running.plan.number
            place = _Place(half.tries, pair=half.pair, replicate=number)
            return _cell(gate, half.arm, half.case_id, Purpose.REPLICATE, place)
    if gate.alarm and gate.places.open_pair is None:
        number = gate.plan.first_replicate + len(gate.replicates)
        return StartReplicate(number, derived_seed(gate.plan.seed, "replicate", number, gate.next_cell_id()))
    return None


def _separate(gate: Gate, number: int) -> Separate:
    bad = [e.cell for e in gate.scored if e.cell.arm == CANDIDATE and e.cell.bad]
    last = bad[-1] if bad else None
    ended = None if last is None else (last.ended_at if last.ended_at is not None else last.started_at)
    not_before = None if ended is None else ended + gate.plan.policy.replicate.gap_seconds
    return Separate(number, not_before, None if last is None else last.server_epoch)


def _screen(gate: Gate) -> RunCell:
    places = gate.places
    if places.open_pair is not None:
        pair = places.open_pair
        arm = pair.first_arm
        if arm in pair.done:
            arm = BASELINE if arm == CANDIDATE else CANDIDATE
        return _screen_cell(gate, arm, pair.case_id, Purpose.PAIR, pair.number)
    wanted = gate.plan.policy.throughput.required and acceptance_reached(gate)
    extra = next_extra_pair(gate) if wanted else None
    case = extra or places.next_case
    if extra is not None or pair_wanted(gate, case):
        number = places.pairs_begun
        arm = CANDIDATE if places.candidate_first(number) else BASELINE
        return _screen_cell(gate, arm, case, Purpose.PAIR, number)
    return _screen_cell(gate, CANDIDATE, case, Purpose.SCREEN, None)


def _screen_cell(gate: Gate, arm: str, case: str, purpose: Purpose, pair: int | None) -> RunCell:
    attempt = gate.places.attempt(purpose, arm)
    return _cell(gate, arm, case, purpose, _Place(attempt, gate.places.round, pair))
