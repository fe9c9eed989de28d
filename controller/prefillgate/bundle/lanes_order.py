"""What the plan fixes of a cell where several servers were asked at once, whatever order the cells ended in.

Which cells were in flight together depends on time, so the schedule cannot be followed step by step. But the place of a
cell gives its case, its seed, its nonce, its attempt and its server, the coin gives the arm that begins a pair, nothing
is done twice, and after the decision no more cells come in than were in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.bundle.findings import unlike
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.decision import decide
from prefillgate.core.flight import Flight, Wanted, lane_of
from prefillgate.core.gate import REFUSED_BODY, Gate
from prefillgate.core.journal import OUT_OF_TURN, CellMeasured, Purpose
from prefillgate.core.pairs import pairable_lengths
from prefillgate.core.schedule import COMPARE_ROUND, PASS_ROUND, planned_cell
from prefillgate.core.snapshot import take_snapshot
from prefillgate.core.throughput_plan import coverage_prompts
from prefillgate.core.verdict import Outcome

_Told = tuple[str, object, object]
_FIXED = ("arm", "case_id", "round", "pair", "place")  # of what the place wants
_OF_THE_PLAN = ("attempt", "seed", "nonce")


@dataclass(slots=True)
class LanesOrder:
    """Follows the cells of a run with several servers. `after` counts cells that ended since the decision stood,
    `lanes_lost` says that a server was left out at some time: from there on its places fall to others by time."""

    after: int = 0
    lanes_lost: bool = False

    def out_of_order(self, gate: Gate, event: CellMeasured) -> str | None:
        """Why this cell cannot be the plan's, in words; None where it can. `gate` is as it was before it ended."""
        self.lanes_lost = self.lanes_lost or any(gate.lost_lanes(arm) for arm in gate.plan.shape.arms)
        shape = gate.plan.shape
        lanes = shape.baseline_lanes + shape.candidate_lanes
        if event.cell_id >= len(gate.measured) + lanes * (gate.session + 1):
            return f"cell_id is {event.cell_id}, and {len(gate.measured)} cells ended before it: cells were dropped"
        early = _too_early(gate, event) or (None if self.lanes_lost else _skipped(gate, event))
        if early is not None:
            return early
        wanted, told = _wanted(gate, event)
        if wanted is None:
            return told
        due = planned_cell(gate, Flight(), wanted)
        pairs: list[_Told] = [(name, _stated(event, name), getattr(wanted, name)) for name in _FIXED]
        pairs += [(name, getattr(event, name), getattr(due, name)) for name in _OF_THE_PLAN]
        if not self.lanes_lost:
            pairs.append(("lane", event.lane, lane_of(gate, wanted)))
        for name, stated, found in pairs:
            if stated != found:
                return unlike(name, stated, found, "the plan gives that place")
        return self._after_the_end(gate, lanes)

    def _after_the_end(self, gate: Gate, lanes: int) -> str | None:
        if gate.unchecked() or decide(take_snapshot(gate)).decision is Outcome.CONTINUE:
            self.after = 0
            return None
        self.after += 1
        if self.after > lanes:
            return f"{self.after} cells ended after the decision, and {lanes} servers had at most {lanes} in flight"
        return None


def _too_early(gate: Gate, event: CellMeasured) -> str | None:
    """Nothing of the candidate's own runs before the passes over the baseline are complete."""
    if event.purpose in (Purpose.BASELINE_PASS, Purpose.COMPARE):
        return None
    first, second = gate.places.first_walk.next, gate.places.second_walk.next
    if first < len(gate.places.baseline_pass):
        return f"a cell of the {event.purpose} while place {first} of the baseline pass was not done"
    if event.purpose is not Purpose.AA and second < len(gate.places.second_pass):
        return f"a cell of the {event.purpose} while place {second} of the second pass was not done"
    return None


def _skipped(gate: Gate, event: CellMeasured) -> str | None:
    """A server does one request at a time and its places in their order: an earlier one that it did not do was dropped.

    Where both arms are asked at once, a place that waits as a pair may be passed by.
    """
    places, place, lanes = gate.places, event.place, gate.plan.shape.candidate_lanes
    if event.purpose is not Purpose.SCREEN or place is None or event.attempt > 1 or gate.plan.shape.at_once:
        return None
    under_way = {pair.place for pair in places.open_pairs.values()}
    for earlier in range(places.screened, place):
        tried = places.attempt(Purpose.SCREEN, CANDIDATE, earlier) > 1
        if earlier % lanes == place % lanes and not (places.screen.done(earlier) or earlier in under_way or tried):
            return f"place {place} stands before place {earlier} of the same server: a cell was dropped"
    return None


def _stated(event: CellMeasured, name: str) -> object:
    return getattr(event.cell if name in ("arm", "case_id") else event, name)


def _wanted(gate: Gate, event: CellMeasured) -> tuple[Wanted | None, str]:
    """What the place of this cell asks for, or why there is no such place."""
    purpose, places, cell = event.purpose, gate.places, event.cell
    if purpose is Purpose.REPLICATE:
        return _of_replicate(gate, event)
    if purpose is Purpose.COMPARE:
        refused = {e.cell.case_id for e in gate.flawed if e.cell.arm != cell.arm and e.http_status in REFUSED_BODY}
        if cell.case_id not in refused:
            return None, f"a cell to compare on {cell.case_id}, whose body nobody refused"
        attempt = places.attempt(purpose, cell.arm, cell.case_id)
        return Wanted(cell.arm, cell.case_id, purpose, attempt, round=COMPARE_ROUND), ""
    if purpose is Purpose.PAIR:
        return _of_pair(gate, event)
    walk, place = places.walk_of(purpose), event.place
    if walk is None or place is None or place < 0:
        return None, f"place is {place}, where the plan has none for {purpose}"
    if walk.done(place):
        return None, f"place {place} of {purpose} was done before"
    if purpose is Purpose.SCREEN:
        attempt = places.attempt(purpose, CANDIDATE, place)
        case, round_ = places.case_at(place), places.round_of(place)
        return Wanted(CANDIDATE, case, purpose, attempt, turn=place, round=round_, place=place), ""
    order = places.baseline_pass if purpose is Purpose.BASELINE_PASS else places.second_pass
    if place >= len(order):
        return None, f"place is {place}, and {purpose} has {len(order)}"
    attempt = places.attempt(purpose, BASELINE, place)
    return Wanted(BASELINE, order[place], purpose, attempt, turn=place, round=PASS_ROUND, place=place), ""


def _of_pair(gate: Gate, event: CellMeasured) -> tuple[Wanted | None, str]:
    places, number, cell = gate.places, event.pair, event.cell
    if number is None or number < 0 or places.pairs.done(number):
        return None, f"pair is {number}, which was done before or never begun"
    begun = places.open_pairs.get(number)
    if begun is not None and cell.arm in begun.done:
        return None, f"pair {number} has its half on the {cell.arm} already"
    if begun is None:
        wrong = _first_half(gate, event, number)
        if wrong is not None:
            return None, wrong
    case, place, round_ = (
        (cell.case_id, event.place, event.round) if begun is None else (begun.case_id, begun.place, begun.round)
    )
    turn = place if cell.arm == CANDIDATE and place is not None and place != OUT_OF_TURN else number
    attempt = places.attempt(Purpose.PAIR, cell.arm, number)
    return Wanted(cell.arm, case, Purpose.PAIR, attempt, turn, round_, number, 0, place), ""


def _first_half(gate: Gate, event: CellMeasured, number: int) -> str | None:
    """What is wrong with the half of a pair that ended first."""
    places, place, plan = gate.places, event.place, gate.plan
    first = CANDIDATE if places.candidate_first(number) else BASELINE
    if not plan.shape.at_once and event.cell.arm != first:
        return unlike("arm", event.cell.arm, first, f"the coin of pair {number} begins with")
    if place == OUT_OF_TURN:
        lengths = pairable_lengths(gate)
        if event.cell.case_id not in coverage_prompts(lengths, plan.policy.throughput.max_prompts):
            return f"a pair out of turn on {event.cell.case_id}, which is not among the prompts that pairs must cover"
        return None if 0 <= event.round <= places.round else f"round is {event.round}, before its turn"
    if place is None or place < 0 or places.screen.done(place):
        return f"place is {place}, which was done before or never begun"
    for name, stated, due in (
        ("case_id", event.cell.case_id, places.case_at(place)),
        ("round", event.round, places.round_of(place)),
    ):
        if stated != due:
            return unlike(name, stated, due, "the plan gives that place")
    return None


def _of_replicate(gate: Gate, event: CellMeasured) -> tuple[Wanted | None, str]:
    running, pair, arm = gate.replicate(event.cell.replicate), event.pair, event.cell.arm
    if pair is None or not 0 <= pair < len(running.plan.prompts):
        return None, f"pair is {pair}, and a replicate has {len(running.plan.prompts)}"
    if pair in (running.candidate if arm == CANDIDATE else running.baseline):
        return None, f"pair {pair} of the replicate has its half on the {arm} already"
    if arm == BASELINE and running.ending() is None:
        due = {(half.pair, half.arm) for half in running.wanted()}
        if (pair, arm) not in due:
            return None, f"pair {pair} of the replicate is not due on the {arm}"
    half = running.half(pair, arm)
    wanted = Wanted(arm, half.case_id, Purpose.REPLICATE, half.tries, pair, half.unit, pair, running.plan.number)
    return wanted, ""
