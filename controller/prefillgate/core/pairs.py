"""From the journal's throughput pairs to measurements, and which place of the screen should be a pair."""

from __future__ import annotations

import math
from dataclasses import replace

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Cell, Status
from prefillgate.core.freshness import Classified
from prefillgate.core.gate import Gate
from prefillgate.core.instrument import AaPair, InstrumentCheck, check_instrument
from prefillgate.core.journal import CellMeasured, Purpose
from prefillgate.core.policy import ThroughputPolicy
from prefillgate.core.throughput import (
    BaselinePass,
    PairMeasurement,
    SlowRule,
    cell_ms_per_token,
    cell_rate,
    estimated_cv,
    is_slow,
    judge_throughput,
    run_sequence,
    slow_rule,
    why_unused,
)
from prefillgate.core.throughput_plan import coverage_prompts, pairable
from prefillgate.core.verdict import CellClass, ThroughputState, ThroughputView
from prefillgate.core.window_speed import window_pairs_left, window_policy, windows_now


def throughput_view(gate: Gate) -> ThroughputView:
    """What the pairs so far say of decode throughput. Prompts are missing only where promotion waits for them."""
    policy = speed_policy(gate)
    lengths = pairable_lengths(gate) if policy.required and policy.max_pairs else {}
    view = judge_throughput(pair_measurements(gate), policy, lengths, instrument_of(gate).baseline)
    why = gate.plan.shape.no_speed_why
    return view if why is None else replace(view, sentence=f"Decode speed was not compared: {why}.")


def throughput_standing(gate: Gate) -> tuple[ThroughputState, tuple[str, ...]]:
    """(state of the test, prompts that must still be in a pair): all that rules and schedule ask of the pairs."""
    policy = speed_policy(gate)
    if not policy.max_pairs:
        return ThroughputState.NOT_COMPARED, ()
    used = [pair for pair in pair_measurements(gate) if not why_unused(pair, policy)]
    paired = {case for pair in used for case in pair.cases}
    missing = tuple(case for case in coverage_prompts(pairable_lengths(gate), policy.max_prompts) if case not in paired)
    return run_sequence(used, policy).state, missing


def pairable_lengths(gate: Gate) -> dict[str, int]:
    """Lengths, in characters, of the cases whose token limit lets them give a pair."""
    return pairable(gate.plan.cases, gate.plan.policy.throughput)


def speed_policy(gate: Gate) -> ThroughputPolicy:
    """The throughput policy as the pairs of this run's shape are tested by it."""
    return window_policy(gate) if gate.plan.shape.sequential else gate.plan.policy.throughput


def pairs_left(gate: Gate) -> bool:
    """Whether more pairs may be run for the speed."""
    if gate.plan.shape.sequential:
        return window_pairs_left(gate)
    return gate.places.pairs_begun < gate.plan.policy.throughput.max_pairs and bool(pairable_lengths(gate))


def pair_measurements(gate: Gate) -> list[PairMeasurement]:
    """Every complete pair in the order begun; in a sequential run every complete pair of windows."""
    if gate.plan.shape.sequential:
        return list(windows_now(gate).pairs)
    halves: dict[int, dict[str, CellMeasured]] = {}
    for event in gate.paired:
        assert event.pair is not None
        halves.setdefault(event.pair, {})[event.cell.arm] = event
    classes = gate.classes_of_pairs() if halves else {}
    met: dict[str, set[str | None]] = {BASELINE: set(), CANDIDATE: set()}
    pairs = []
    for number, arms in sorted(halves.items()):
        if gate.plan.shape.parallel and not number < gate.places.pairs.next:
            break  # an earlier pair is under way: a slow one would come in late, so nobody looks past it
        if len(arms) < len(met):
            continue
        fresh_start = any(event.cell.server_epoch not in met[arm] for arm, event in arms.items())
        for arm, event in arms.items():
            met[arm].add(event.cell.server_epoch)
        pairs.append(_measurement(gate, number, arms, (fresh_start, classes)))
    return pairs


def _measurement(
    gate: Gate, number: int, arms: dict[str, CellMeasured], known: tuple[bool, dict[int, Classified]]
) -> PairMeasurement:
    fresh_start, classes = known
    baseline, candidate = arms[BASELINE], arms[CANDIDATE]
    greedy = baseline.cell.case_id in {case.case_id for case in gate.plan.cases if case.greedy}
    apart = gate.session_of(baseline.cell_id) != gate.session_of(candidate.cell_id)

    def fresh(event: CellMeasured) -> bool:
        item = classes.get(id(event.cell))
        complete = event.cell.status is Status.OK
        return complete and not apart and item is not None and item.cell_class is CellClass.FRESH

    return PairMeasurement(
        pair=number,
        case_id=baseline.cell.case_id,
        baseline_rate=_rate(baseline.cell),
        candidate_rate=_rate(candidate.cell),
        baseline_ms_per_token=cell_ms_per_token(baseline.cell.output_tokens, baseline.cell.decode_ms),
        candidate_ms_per_token=cell_ms_per_token(candidate.cell.output_tokens, candidate.cell.decode_ms),
        baseline_output_tokens=baseline.cell.output_tokens,
        candidate_output_tokens=candidate.cell.output_tokens,
        baseline_output_sha256=baseline.cell.output_sha256 if greedy else None,
        candidate_output_sha256=candidate.cell.output_sha256 if greedy else None,
        first_after_start=fresh_start,
        baseline_fresh=fresh(baseline),
        candidate_fresh=fresh(candidate),
    )


def _rate(cell: Cell) -> float | None:
    return cell_rate(cell.output_tokens, cell.decode_ms)


def passes_done(gate: Gate) -> bool:
    """Whether both passes of the A/A check were walked to their end."""
    places = gate.places
    return bool(places.second_pass) and places.passed_again >= len(places.second_pass)


def instrument_of(gate: Gate) -> InstrumentCheck:
    """The A/A check: the second pass over the baseline held against the first, in the order of the second.

    Where the baseline was measured against itself before this run, what was found then stands for what it shows.
    """
    first = {e.cell.case_id: e.cell for e in gate.scored if e.purpose is Purpose.BASELINE_PASS}
    second = [e.cell for e in gate.scored if e.purpose is Purpose.AA and e.cell.case_id in first]
    fresh = {id(item.cell) for item in gate.classified() if item.cell_class is CellClass.FRESH} if second else set()
    timed = not gate.plan.shape.shared  # speed beside others' work tells of the others
    found = check_instrument([_aa_pair(first[cell.case_id], cell, fresh, timed) for cell in second], gate.plan.policy)
    floor = gate.plan.floor
    if floor is None:
        return found
    rates = {case.case_id: case.per_second for case in floor.rates}
    return replace(found, baseline=BaselinePass(identical_share=floor.identical_share, rates=rates))


def _aa_pair(first: Cell, second: Cell, fresh: set[int], timed: bool) -> AaPair:
    """What is known of one prompt in both passes: of a cell that was not fresh, nothing."""
    one, two = (cell if id(cell) in fresh else None for cell in (first, second))
    return AaPair(
        case_id=second.case_id,
        first_bad=None if one is None else one.bad,
        second_bad=None if two is None else two.bad,
        first_rate=_rate(one) if timed and one is not None else None,
        second_rate=_rate(two) if timed and two is not None else None,
        first_output_sha256=None if one is None else one.output_sha256,
        second_output_sha256=None if two is None else two.output_sha256,
    )


def measured_cv(gate: Gate) -> float | None:
    """Coefficient of variation of one cell's rate between the two passes over the baseline; None before both ended."""
    if gate.plan.floor is not None:
        return gate.plan.floor.noise_cv
    if not passes_done(gate):
        return None
    rates = [known for known in instrument_of(gate).baseline.rates.values() if len(known) == len(ARMS)]
    return estimated_cv([math.log(second) - math.log(first) for first, second in rates])


def slow_units(gate: Gate) -> int | None:
    """Fresh candidate cells under `slow_ratio` of their prompt's baseline median; None where slow is no flag.

    It is one only if the A/A pass showed none in 20 cells: else the baseline has two speed modes itself.
    """
    policy = gate.plan.policy
    checked = policy.aa_check or gate.plan.floor is not None
    if not checked or not policy.throughput.required:
        return None
    aa = instrument_of(gate).baseline
    if slow_rule(aa, policy.throughput.slow_ratio) is not SlowRule.FLAG:
        return None
    slow = 0
    for item in gate.classified():
        cell = item.cell
        rate, known = _rate(cell), aa.rates.get(cell.case_id)
        if cell.arm == CANDIDATE and item.cell_class is CellClass.FRESH and rate is not None and known:
            slow += is_slow(rate, known, policy.throughput.slow_ratio)
    return slow


def pair_wanted(gate: Gate, case_id: str, in_flight: int = 0) -> bool:
    """Whether the next place of the screen, on this case, is to be run on both arms.

    `in_flight` are pairs of which no half has ended yet.
    """
    policy = gate.plan.policy.throughput
    lengths = pairable_lengths(gate)
    if gate.places.pairs_begun + in_flight >= policy.max_pairs or case_id not in lengths:
        return False
    if case_id not in coverage_prompts(lengths, policy.max_prompts):
        return False
    state, missing = throughput_standing(gate)
    return case_id in missing or (policy.required and state is ThroughputState.OPEN)


def next_extra_pair(gate: Gate, under_way: frozenset[str] = frozenset(), in_flight: int = 0) -> str | None:
    """The case of a pair that is run out of turn, once nothing but the pairs is missing to a promotion.

    A prompt that must still be in a pair comes first, then the coverage prompts in turn. `under_way` are the cases of
    pairs that are under way, `in_flight` is how many of them had no half end yet.
    """
    policy = gate.plan.policy.throughput
    begun = gate.places.pairs_begun + in_flight
    if not policy.required or begun >= policy.max_pairs:
        return None
    state, missing = throughput_standing(gate)
    due = [case for case in missing if case not in under_way]
    if due:
        return due[0]
    if state is not ThroughputState.OPEN:
        return None
    turn = coverage_prompts(pairable_lengths(gate), policy.max_prompts)
    return turn[begun % len(turn)] if turn else None
