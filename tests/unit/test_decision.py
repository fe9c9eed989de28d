"""The rule chain: every rule alone, and its order, by snapshots in which two rules would answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from prefillgate.core import decision
from prefillgate.core.decision import ERRORS, RULES, Distrust, Reason, Rule, Ruling, Snapshot, decide
from prefillgate.core.verdict import Outcome, Promotion, Rollback, ThroughputState

HOLD, PROMOTE, ROLLBACK, CONTINUE = Outcome.HOLD, Outcome.PROMOTE, Outcome.ROLLBACK, Outcome.CONTINUE
LOST = Distrust(Reason.CONTAMINATED, "seen")


@dataclass(frozen=True)
class Firing:
    """What makes one rule answer, and its answer."""

    rule: Rule
    facts: dict[str, Any]
    ruling: Ruling


ORDER = (
    Firing(decision.deleting, {"deleting": True}, Ruling(HOLD, Reason.DELETING)),
    Firing(decision.spec_invalid, {"spec_invalid": True}, Ruling(HOLD, Reason.SPEC_INVALID)),
    Firing(decision.override, {"override": PROMOTE}, Ruling(PROMOTE, Reason.OVERRIDE)),
    Firing(
        decision.candidate_unavailable,
        {"candidate_unavailable": True},
        Ruling(ROLLBACK, Reason.CANDIDATE_UNAVAILABLE),
    ),
    Firing(decision.already_decided, {"latched": ROLLBACK}, Ruling(ROLLBACK, Reason.ALREADY_DECIDED)),
    Firing(decision.measurement_not_trustworthy, {"distrust": LOST}, Ruling(HOLD, Reason.CONTAMINATED)),
    Firing(
        decision.regression_confirmed,
        {"regression_confirmed": True},
        Ruling(ROLLBACK, Reason.REGRESSION_CONFIRMED),
    ),
    Firing(decision.finished, {"finished": Reason.NO_ALARM}, Ruling(HOLD, Reason.NO_ALARM)),
    Firing(decision.deadline, {"deadline_passed": True}, Ruling(HOLD, Reason.DEADLINE)),
    Firing(
        decision.alarm_without_baseline,
        {"alarm": True, "replicate_possible": False},
        Ruling(HOLD, Reason.ALARM_WITHOUT_BASELINE),
    ),
    Firing(decision.replicate_due_or_running, {"replicate_running": True}, Ruling(CONTINUE, Reason.REPLICATE_RUNNING)),
    Firing(
        decision.not_confirmed,
        {"replicates_not_confirmed": 2},
        Ruling(HOLD, Reason.REGRESSION_NOT_CONFIRMED),
    ),
    Firing(
        decision.throughput_worse,
        {"throughput": ThroughputState.WORSE, "throughput_required": True},
        Ruling(HOLD, Reason.SLOWER),
    ),
    Firing(decision.acceptance_reached, {"acceptance_reached": True}, Ruling(PROMOTE, Reason.ACCEPTANCE_REACHED)),
    Firing(decision.budget_spent, {"budget_left": 0}, Ruling(HOLD, Reason.BUDGET_SPENT)),
    Firing(decision.more_evidence_needed, {}, Ruling(CONTINUE, Reason.MORE_EVIDENCE_NEEDED)),
)


def both(first: Firing, second: Firing) -> Snapshot:
    """A snapshot in which both would answer; the later one's facts must not hide the earlier one's."""
    facts = {**second.facts, **first.facts}
    if first.rule is decision.replicate_due_or_running and second.rule is decision.budget_spent:
        facts = {"alarm": True, "budget_left": 0}
    if first.rule is decision.throughput_worse and second.rule is decision.acceptance_reached:
        facts = {"acceptance_reached": True, "slow_more_than_allowed": True, "throughput_required": True}
        facts["throughput"] = ThroughputState.NOT_WORSE
    return Snapshot(**facts)


def test_the_chain_holds_its_sixteen_rules_in_their_order() -> None:
    assert tuple(firing.rule for firing in ORDER) == RULES
    for number, rule in enumerate(RULES, start=1):
        assert (rule.__doc__ or "").startswith(f"{number}. ")


@pytest.mark.parametrize("firing", ORDER, ids=lambda firing: firing.rule.__name__)
def test_each_rule_answers_alone(firing: Firing) -> None:
    snapshot = Snapshot(**firing.facts)
    assert firing.rule(snapshot) == firing.ruling
    assert decide(snapshot) == firing.ruling


@pytest.mark.parametrize("firing", ORDER[:-1], ids=lambda firing: firing.rule.__name__)
def test_each_rule_but_the_last_is_silent_without_its_facts(firing: Firing) -> None:
    assert firing.rule(Snapshot()) is None


@pytest.mark.parametrize(("first", "second"), list(pairwise(ORDER)), ids=lambda firing: firing.rule.__name__)
def test_of_two_neighbours_that_would_both_answer_the_earlier_wins(first: Firing, second: Firing) -> None:
    snapshot = both(first, second)
    assert first.rule(snapshot) is not None
    assert second.rule(snapshot) is not None
    assert first.rule(snapshot) != second.rule(snapshot)
    assert decide(snapshot) == first.rule(snapshot)


def test_only_promote_allows_promotion_and_only_rollback_allows_a_rollback() -> None:
    for outcome in Outcome:
        ruling = Ruling(outcome, Reason.OVERRIDE)
        assert ruling.promotion == (Promotion.ALLOWED if outcome is PROMOTE else Promotion.BLOCKED)
        assert ruling.rollback == (Rollback.ALLOWED if outcome is ROLLBACK else Rollback.REFUSED)


def test_nothing_known_yet_goes_on() -> None:
    assert (Snapshot().max_replicates, Snapshot().budget_left) == (2, 1)
    assert decide(Snapshot()) == Ruling(CONTINUE, Reason.MORE_EVIDENCE_NEEDED)


@pytest.mark.parametrize("verdict", [PROMOTE, HOLD, ROLLBACK])
def test_an_override_is_obeyed_whatever_it_says(verdict: Outcome) -> None:
    assert decide(Snapshot(override=verdict, candidate_unavailable=True)) == Ruling(verdict, Reason.OVERRIDE)


@pytest.mark.parametrize("reason", list(Reason))
def test_a_distrust_holds_under_its_own_reason(reason: Reason) -> None:
    ruling = decide(Snapshot(distrust=Distrust(reason, "why"), regression_confirmed=True, acceptance_reached=True))
    assert ruling == Ruling(HOLD, reason)


def test_could_not_measure_is_nine_reasons() -> None:
    assert {str(reason) for reason in ERRORS} == {
        "InvalidCells",
        "BaselineRefuses",
        "BaselineUnavailable",
        "CaseUnusable",
        "OtherTraffic",
        "CheckError",
        "ChecksFailOnBaseline",
        "InstrumentBroken",
        "MeasurementLost",
    }


ALARM = Snapshot(alarm=True, acceptance_reached=True)


def test_an_alarm_starts_a_replicate_although_acceptance_is_reached() -> None:
    assert decide(ALARM) == Ruling(CONTINUE, Reason.REPLICATE_DUE)
    assert decide(replace(ALARM, replicates_not_confirmed=1)) == Ruling(CONTINUE, Reason.REPLICATE_DUE)


def test_an_alarm_whose_replicate_is_not_affordable_holds() -> None:
    assert decide(replace(ALARM, replicate_affordable=False)) == Ruling(HOLD, Reason.BUDGET_SPENT)


def test_after_the_last_attempt_an_alarm_waits_for_a_person() -> None:
    used = replace(ALARM, replicates_not_confirmed=2)
    assert decide(used) == Ruling(HOLD, Reason.REGRESSION_NOT_CONFIRMED)
    assert decide(replace(used, max_replicates=3)) == Ruling(CONTINUE, Reason.REPLICATE_DUE)
    assert decide(replace(used, replicates_not_confirmed=3)) == Ruling(HOLD, Reason.REGRESSION_NOT_CONFIRMED)


def test_a_policy_without_replicates_promotes_until_an_alarm_and_then_holds_for_a_person() -> None:
    none = Snapshot(max_replicates=0, acceptance_reached=True)
    assert decide(none) == Ruling(PROMOTE, Reason.ACCEPTANCE_REACHED)
    assert decide(replace(none, more_bad_than_allowed=True)).decision is CONTINUE
    assert decide(replace(none, alarm=True)) == Ruling(HOLD, Reason.REGRESSION_NOT_CONFIRMED)


def test_a_replicate_that_runs_goes_on_while_a_prefill_is_left_and_holds_when_none_is() -> None:
    running = Snapshot(replicate_running=True, acceptance_reached=True, budget_left=1)
    assert decide(running) == Ruling(CONTINUE, Reason.REPLICATE_RUNNING)
    assert decide(replace(running, budget_left=0)) == Ruling(HOLD, Reason.BUDGET_SPENT)
    assert decide(replace(running, budget_left=-1)) == Ruling(HOLD, Reason.BUDGET_SPENT)


def test_more_bad_than_allowed_after_a_replicate_holds_and_after_one_attempt_alone_it_goes_on() -> None:
    once = Snapshot(replicates_not_confirmed=1)
    assert decide(once) == Ruling(CONTINUE, Reason.MORE_EVIDENCE_NEEDED)
    assert decide(replace(once, acceptance_reached=True)) == Ruling(PROMOTE, Reason.ACCEPTANCE_REACHED)
    more = replace(once, more_bad_than_allowed=True)
    assert decide(more) == Ruling(HOLD, Reason.REGRESSION_NOT_CONFIRMED)
    assert decide(replace(more, alarm=True)) == Ruling(CONTINUE, Reason.REPLICATE_DUE)
    assert decision.not_confirmed(Snapshot(more_bad_than_allowed=True)) is None


def test_more_bad_than_allowed_never_promotes() -> None:
    assert decide(Snapshot(more_bad_than_allowed=True, acceptance_reached=True)).decision is CONTINUE


REACHED = Snapshot(acceptance_reached=True, throughput_required=True, throughput_pairs_left=True)


@pytest.mark.parametrize(
    ("state", "ruling"),
    [
        (ThroughputState.NOT_WORSE, Ruling(PROMOTE, Reason.ACCEPTANCE_REACHED)),
        (ThroughputState.WORSE, Ruling(HOLD, Reason.SLOWER)),
        (ThroughputState.OPEN, Ruling(CONTINUE, Reason.MORE_EVIDENCE_NEEDED)),
        (ThroughputState.NOT_COMPARED, Ruling(CONTINUE, Reason.MORE_EVIDENCE_NEEDED)),
    ],
)
def test_acceptance_waits_for_a_throughput_that_is_not_worse(state: ThroughputState, ruling: Ruling) -> None:
    assert decide(replace(REACHED, throughput=state)) == ruling


def test_open_throughput_without_a_pair_left_holds() -> None:
    spent = replace(REACHED, throughput=ThroughputState.OPEN, throughput_pairs_left=False)
    assert decide(spent) == Ruling(HOLD, Reason.THROUGHPUT_OPEN)
    assert decide(replace(spent, acceptance_reached=False)) == Ruling(CONTINUE, Reason.MORE_EVIDENCE_NEEDED)


@pytest.mark.parametrize("state", list(ThroughputState))
def test_throughput_that_is_only_reported_never_blocks(state: ThroughputState) -> None:
    only = Snapshot(acceptance_reached=True, throughput=state, slow_more_than_allowed=True)
    assert decide(only) == Ruling(PROMOTE, Reason.ACCEPTANCE_REACHED)


def test_more_slow_cells_than_allowed_hold_as_slower() -> None:
    slow = replace(REACHED, throughput=ThroughputState.NOT_WORSE, slow_more_than_allowed=True)
    assert decide(slow) == Ruling(HOLD, Reason.SLOWER)


@pytest.mark.parametrize(("left", "reason"), [(1, Reason.MORE_EVIDENCE_NEEDED), (0, Reason.BUDGET_SPENT)])
def test_the_budget_is_spent_at_zero(left: int, reason: Reason) -> None:
    assert decide(Snapshot(budget_left=left)).reason is reason
    assert decide(Snapshot(budget_left=-3)).reason is Reason.BUDGET_SPENT
