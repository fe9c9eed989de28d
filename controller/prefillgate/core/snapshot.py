"""From the gate to the one snapshot the rules may look at."""

from __future__ import annotations

from collections.abc import Sequence

from prefillgate.core.acceptance import AcceptanceTable, more_clean_units_needed, promotes
from prefillgate.core.cells import CANDIDATE
from prefillgate.core.decision import Reason, Snapshot
from prefillgate.core.distrust import find_distrust
from prefillgate.core.gate import Gate
from prefillgate.core.pairs import pairs_left, passes_done, slow_units, throughput_standing
from prefillgate.core.replicate import Ending, prefills_needed
from prefillgate.core.units import UnitLedger
from prefillgate.core.verdict import Outcome, ThroughputState
from prefillgate.core.window_replicate import window_prefills_needed


def table_of(gate: Gate) -> AcceptanceTable:
    """The acceptance table of the plan's policy."""
    policy = gate.plan.policy
    return AcceptanceTable(policy.margin, policy.alpha, policy.acceptance)


def every_prompt_fresh(ledgers: Sequence[UnitLedger], cases: Sequence[str]) -> bool:
    """Whether every prompt has a fresh unit whose outcome is known, under every flag."""
    return all({unit.case_id for unit in ledger.units if unit.bad is not None}.issuperset(cases) for ledger in ledgers)


def acceptance_reached(gate: Gate) -> bool:
    """Every flag satisfies the table at one and the same n, and every prompt was fresh at least once.

    Slow cells are one more flag where the A/A pass showed none (STATISTICS.md section 8). Nothing is reached while a
    place is done ahead of an earlier one: a cell that is slow may be slow because it goes wrong, and quick clean ones
    must not be counted without it.
    """
    if gate.plan.watching is not None or not gate.places.in_order:
        return False
    ledgers = gate.candidate_ledgers()
    table, cases = table_of(gate), [case.case_id for case in gate.plan.cases]
    units = min(ledger.decision_prefills for ledger in ledgers)
    counts = [*(ledger.bad for ledger in ledgers), slow_units(gate) or 0]
    return all(promotes(table, units, bad, len(cases)) for bad in counts) and every_prompt_fresh(ledgers, cases)


def clean_prefills_needed(gate: Gate) -> int | None:
    """How many more fresh clean prefills would promote; None when the bad ones forbid it already.

    Of a replay after a promotion, which promotes nothing: how many fresh ones it still takes.
    """
    if gate.plan.watching is not None:
        return max(0, gate.plan.watching.prefills - gate.watched(gate.plan.watching).prefills)
    ledgers = gate.candidate_ledgers()
    table, cases = table_of(gate), [case.case_id for case in gate.plan.cases]
    units = min(ledger.decision_prefills for ledger in ledgers)
    counts = [*(ledger.bad for ledger in ledgers), slow_units(gate) or 0]
    needed = [more_clean_units_needed(table, units, bad, len(cases)) for bad in counts]
    if any(value is None for value in needed):
        return None
    missing = max(
        len(set(cases) - {unit.case_id for unit in ledger.units if unit.bad is not None}) for ledger in ledgers
    )
    return max([missing, *(value for value in needed if value is not None)])


def finished_by(gate: Gate) -> Reason | None:
    """Why a run that judges nobody is over; None while it is not, and for every other run."""
    if gate.plan.shape.baseline_alone:
        return Reason.FLOOR_MEASURED if passes_done(gate) else None
    if gate.plan.watching is None or gate.alarm or clean_prefills_needed(gate):
        return None
    return Reason.NO_ALARM


def _replicate_cost(gate: Gate, number: int) -> int:
    """Prefills that a replicate must find in the budget before it starts."""
    needed = window_prefills_needed if gate.plan.shape.sequential else prefills_needed
    return needed(number, gate.plan.policy.replicate, len(gate.plan.policy.flags))


def take_snapshot(gate: Gate) -> Snapshot:
    """Everything the rules may look at, from the folded facts alone."""
    policy = gate.plan.policy
    standing, missing = throughput_standing(gate)
    last = gate.replicates[-1] if gate.replicates else None
    next_number = gate.plan.first_replicate + len(gate.replicates)
    budget_left = gate.budget - gate.prefills_used
    unavailable = gate.unavailable is not None or gate.refusals >= policy.refusals
    confirmed = last is not None and last.ending() is Ending.CONFIRMED
    distrust = find_distrust(gate)
    # What was confirmed stands, whatever is met on a server later.
    latched = gate.latched_rollback and (not confirmed or distrust is not None)
    return Snapshot(
        override=None if gate.overridden is None else Outcome(gate.overridden.verdict),
        candidate_unavailable=unavailable and bool(gate.epochs["candidate"]),
        latched=Outcome.ROLLBACK if latched else None,
        distrust=distrust,
        regression_confirmed=confirmed,
        finished=finished_by(gate),
        deadline_passed=gate.deadline is not None,
        alarm=gate.alarm,
        replicate_possible=not gate.plan.shape.candidate_alone,
        replicate_running=gate.open_replicate is not None,
        replicate_affordable=budget_left >= _replicate_cost(gate, next_number),
        replicates_not_confirmed=gate.not_confirmed,
        max_replicates=policy.replicate.max_attempts,
        more_bad_than_allowed=gate.plan.watching is None
        and any(len(policy.acceptance) <= ledger.bad for ledger in gate.candidate_ledgers()),
        # Not worse counts only once the pairs cover the prompts they must: until then the test is open.
        throughput=ThroughputState.OPEN if missing and standing is ThroughputState.NOT_WORSE else standing,
        throughput_required=policy.throughput.required and policy.throughput.max_pairs > 0,
        throughput_pairs_left=pairs_left(gate),
        slow_more_than_allowed=(slow_units(gate) or 0) >= len(policy.acceptance),
        acceptance_reached=acceptance_reached(gate),
        budget_left=budget_left,
        candidate_server_lost=bool(gate.lost_lanes(CANDIDATE)),
    )
