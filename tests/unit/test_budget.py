"""A budget that is raised: what it changes, what it never changes, and which one would do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.budget import BudgetNeeded, budget_needed
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.decision import Reason, decide
from prefillgate.core.gate import Gate, JournalError
from prefillgate.core.journal import BudgetRaised, Purpose, ReplicateStarted, SeparationKept
from prefillgate.core.judge import judge
from prefillgate.core.pairs import throughput_view
from prefillgate.core.schedule import RunCell, StartReplicate, Stop, next_step
from prefillgate.core.snapshot import take_snapshot
from tests.support.journals import cell, planned, quality_only, score, screen, started


def needed(gate: Gate) -> BudgetNeeded | None:
    return budget_needed(gate, decide(take_snapshot(gate)), throughput_view(gate))


def spent(budget: int = 20, cells: int | None = None) -> Gate:
    """A run without speed that spent its budget on clean candidate cells."""
    gate = started(quality_only(budget=budget))
    screen(gate, *[False] * (budget if cells is None else cells))
    return gate


def test_the_budget_is_the_policys_until_it_is_raised() -> None:
    gate = started(quality_only(budget=20))
    assert gate.budget == 20
    gate.apply(BudgetRaised(1.0, 21))
    assert gate.budget == 21
    gate.apply(BudgetRaised(2.0, 40))
    assert (gate.budget, gate.plan.policy.budget) == (40, 20)


@pytest.mark.parametrize("budget", [20, 19, 1])
def test_a_budget_only_ever_rises(budget: int) -> None:
    gate = started(quality_only(budget=20))
    with pytest.raises(JournalError, match=f"^a budget of {budget} prefills after one of 20: it is only ever raised$"):
        gate.apply(BudgetRaised(1.0, budget))
    assert gate.budget == 20


def test_a_run_that_spent_its_budget_goes_on_once_it_is_raised_and_decides_by_the_same_table() -> None:
    gate = spent(20)
    assert next_step(gate) == Stop(decide(take_snapshot(gate)))
    assert decide(take_snapshot(gate)).reason is Reason.BUDGET_SPENT
    gate.apply(BudgetRaised(1.0, 32))
    assert take_snapshot(gate).budget_left == 12
    step = next_step(gate)
    assert isinstance(step, RunCell)
    assert (step.arm, step.purpose) == (CANDIDATE, Purpose.SCREEN)
    screen(gate, *[False] * 11)
    assert decide(take_snapshot(gate)).reason is Reason.MORE_EVIDENCE_NEEDED
    screen(gate, False)
    assert decide(take_snapshot(gate)).reason is Reason.ACCEPTANCE_REACHED
    assert judge(gate).acceptance == STANDARD.acceptance == (32, 56, 75)


def test_the_verdict_shows_the_present_budget() -> None:
    gate = spent(20)
    assert (judge(gate).budget, judge(gate).prefills_used) == (20, 20)
    gate.apply(BudgetRaised(1.0, 47))
    assert judge(gate).budget == 47


def test_clean_prefills_that_are_missing_make_the_budget_that_would_do() -> None:
    assert needed(spent(20)) == BudgetNeeded(20, 12, "promote if nothing more is bad")
    verdict = judge(spent(20))
    assert verdict.budget_needed == 32
    assert verdict.decision.what_would_change == (
        "A budget of 32 prefills (12 more; --budget 32) would promote if nothing more is bad.",
        "12 more clean fresh prefills would promote.",
        "An override by a person with a reason.",
    )


def test_no_budget_is_named_for_a_run_that_did_not_end_on_its_own() -> None:
    gate = spent(20, cells=19)
    assert needed(gate) is None
    assert judge(gate).budget_needed is None
    assert judge(gate).decision.what_would_change[0] == "13 more clean fresh prefills would promote."


def test_what_is_left_of_the_first_passes_is_counted_too() -> None:
    policy = replace(quality_only(budget=33), baseline_pass=3)
    gate = started(policy)
    for case in gate.places.baseline_pass[:2]:
        score(gate, cell(BASELINE, case), purpose=Purpose.BASELINE_PASS)
    screen(gate, *[False] * 31)  # by hand: the schedule would run the pass first
    assert needed(gate) == BudgetNeeded(33, 2, "promote if nothing more is bad")  # one of the pass, one clean
    again = started(replace(policy, aa_check=True), cases=3)
    for purpose, cases in ((Purpose.BASELINE_PASS, again.places.baseline_pass), (Purpose.AA, ["c0"])):
        for case in cases:
            score(again, cell(BASELINE, case), purpose=purpose)
    screen(again, *[False] * 29)
    assert needed(again) == BudgetNeeded(33, 5, "promote if nothing more is bad")  # two of the pass, three clean


def test_pairs_cost_both_halves() -> None:
    policy = replace(QUICK, baseline_pass=0, budget=16)
    gate = started(policy, cases=4)
    screen(gate, *[False] * 16)
    pairs = throughput_view(gate).pairs_needed
    assert pairs is not None and pairs > 4
    brings = "promote if nothing more is bad and the pairs go on as they did"
    assert needed(gate) == BudgetNeeded(16, 2 * pairs, brings)  # the clean ones are there: the pairs alone
    early = started(replace(policy, budget=2), cases=4)
    screen(early, False, False)
    assert pairs < 14
    assert needed(early) == BudgetNeeded(2, 14 + pairs, brings)  # 14 clean, some of them halves of pairs


def test_no_budget_is_named_where_no_number_of_pairs_is_foreseen_to_decide() -> None:
    impossible = replace(QUICK.throughput, margin=-0.001, planned_cv=0.5)
    gate = started(replace(QUICK, baseline_pass=0, budget=16, throughput=impossible), cases=4)
    screen(gate, *[False] * 16)
    assert throughput_view(gate).pairs_needed is None
    assert needed(gate) is None


def test_speed_that_is_only_reported_or_not_compared_asks_for_no_pairs() -> None:
    for changes in ({"required": False}, {"required": True, "max_pairs": 0}):
        policy = replace(QUICK, baseline_pass=0, budget=10, throughput=replace(QUICK.throughput, **changes))
        gate = started(policy, cases=4)
        screen(gate, *[False] * 10)
        assert needed(gate) == BudgetNeeded(10, 6, "promote if nothing more is bad")


def test_a_replicate_that_cannot_be_afforded_is_given_all_its_pairs() -> None:
    gate = started(quality_only(budget=5), first_replicate=3)
    screen(gate, False, False, False, True, True)
    assert decide(take_snapshot(gate)).reason is Reason.BUDGET_SPENT
    assert needed(gate) == BudgetNeeded(5, 60, "let replicate 3 run to its end")
    assert judge(gate).decision.what_would_change[0] == (
        "A budget of 65 prefills (60 more; --budget 65) would let replicate 3 run to its end."
    )
    gate.apply(BudgetRaised(1.0, 65))
    assert isinstance(next_step(gate), StartReplicate)


def test_the_second_replicate_is_named_by_its_own_number() -> None:
    gate = started(quality_only(budget=12))
    screen(gate, True, True)
    gate.apply(ReplicateStarted(1, 1.0, 9))
    gate.apply(SeparationKept(1, 2.0, "gap"))
    for pair, case in enumerate(gate.replicates[0].plan.prompts[:8]):
        score(gate, cell(case=case, replicate=1), False, Purpose.REPLICATE, pair=pair)
    screen(gate, True, True)
    assert decide(take_snapshot(gate)).reason is Reason.BUDGET_SPENT
    assert needed(gate) == BudgetNeeded(12, 60, "let replicate 2 run to its end")


def test_a_replicate_that_ran_out_is_given_the_rest_of_its_pairs_and_goes_on_where_it_was() -> None:
    gate = started(quality_only(budget=5))
    screen(gate, True, True)
    gate.apply(ReplicateStarted(1, 1.0, 9))
    gate.apply(SeparationKept(1, 2.0, "gap"))
    prompts = gate.replicates[0].plan.prompts
    for arm, pair in ((CANDIDATE, 0), (BASELINE, 0), (CANDIDATE, 1)):
        score(gate, cell(arm, prompts[pair], replicate=1), arm == CANDIDATE, Purpose.REPLICATE, pair=pair)
    assert decide(take_snapshot(gate)).reason is Reason.BUDGET_SPENT
    assert needed(gate) == BudgetNeeded(5, 57, "let replicate 1 run to its end")
    gate.apply(BudgetRaised(3.0, 62))
    step = next_step(gate)
    assert isinstance(step, RunCell)
    assert (step.purpose, step.replicate, gate.replicates[0].complete_pairs()) == (Purpose.REPLICATE, 1, 1)


def test_more_bad_than_the_table_allows_without_an_alarm_has_no_budget_that_would_do() -> None:
    gate = Gate()
    gate.apply(planned(quality_only(budget=3, replicate=replace(STANDARD.replicate, max_attempts=0))))
    screen(gate, True, True, True)
    reason = decide(take_snapshot(gate)).reason
    assert reason is not Reason.BUDGET_SPENT
    assert needed(gate) is None
