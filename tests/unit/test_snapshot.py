"""From the folded facts to the one snapshot the rules may look at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.core.acceptance import STANDARD, STRICT
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import Reason, Snapshot, decide
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CandidateUnavailable,
    CaseRef,
    CellChecked,
    DeadlinePassed,
    Overridden,
    Purpose,
    ReplicateAborted,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.policy import Flag, Policy
from prefillgate.core.snapshot import acceptance_reached, clean_prefills_needed, table_of, take_snapshot
from prefillgate.core.verdict import Outcome, ThroughputState
from tests.support.journals import cell, epoch, measure, outcome, planned, quality_only, score, screen, started

TWO = (Flag("shape", ("schema",)), Flag("taste", ("words",)))


def test_the_table_is_that_of_the_plan() -> None:
    table = table_of(started(quality_only(STRICT)))
    assert (table.margin, table.alpha, table.entries) == (0.05, 0.05, (67, 105, 175))


@pytest.mark.parametrize(("bad", "entry"), [(0, 32), (1, 56), (2, 75)])
def test_acceptance_is_reached_at_the_entry_of_the_table(bad: int, entry: int) -> None:
    gate = started()
    screen(gate, *[False] * (entry - 1 - bad), *[True] * bad)
    assert acceptance_reached(gate) is False
    assert clean_prefills_needed(gate) == 1
    screen(gate, False)
    assert acceptance_reached(gate) is True
    assert clean_prefills_needed(gate) == 0


def test_three_bad_are_more_than_the_table_allows() -> None:
    gate = started()
    screen(gate, *[False] * 100, True, True)
    assert take_snapshot(gate).more_bad_than_allowed is False
    screen(gate, True)
    assert take_snapshot(gate).more_bad_than_allowed is True
    assert clean_prefills_needed(gate) is None
    assert acceptance_reached(gate) is False


def test_every_prompt_must_have_been_fresh_once() -> None:
    gate = started()
    for i in range(32):
        score(gate, cell(case=f"c{i % 11}"))
    assert acceptance_reached(gate) is False
    assert clean_prefills_needed(gate) == 1
    score(gate, cell(case="c11"), None)  # its check erred: nothing is known of this one
    assert acceptance_reached(gate) is False
    score(gate, cell(case="c11"))
    assert acceptance_reached(gate) is True


def test_missing_prompts_and_missing_units_are_not_added_up() -> None:
    gate = started()
    for i in range(25):
        score(gate, cell(case=f"c{i % 2}"))
    assert clean_prefills_needed(gate) == 10
    for _ in range(4):
        score(gate, cell())
    assert clean_prefills_needed(gate) == 10
    few = started()
    for i in range(20):
        score(few, cell(case=f"c{i % 2}"))
    assert clean_prefills_needed(few) == 12


def test_with_more_prompts_than_the_entry_every_one_is_wanted() -> None:
    gate = started(cases=40)
    screen(gate, *[False] * 39)
    assert (acceptance_reached(gate), clean_prefills_needed(gate)) == (False, 1)
    screen(gate, False)
    assert acceptance_reached(gate) is True


def test_the_storys_state_after_a_clean_replicate_wants_65_more() -> None:
    gate = started(cases=2)
    screen(gate, True, True)
    gate.apply(ReplicateStarted(1, 0.0, 9))
    gate.apply(SeparationKept(1, 1.0, "gap"))
    for pair in range(8):
        made = cell(case=gate.replicates[0].plan.prompts[pair], replicate=1)
        score(gate, made, False, Purpose.REPLICATE, pair=pair)
    ledger = gate.candidate_ledgers()[0]
    assert (ledger.decision_prefills, ledger.bad) == (10, 2)
    assert clean_prefills_needed(gate) == 65
    snapshot = take_snapshot(gate)
    assert (snapshot.replicates_not_confirmed, snapshot.replicate_running, snapshot.alarm) == (1, False, False)
    assert decide(snapshot).reason is Reason.MORE_EVIDENCE_NEEDED


def flagged(gate: Gate, schema: bool | None, words: bool | None) -> None:
    cell_id = measure(gate, cell(case=gate.places.next_case))
    gate.apply(CellChecked(cell_id, (outcome(schema, "schema"), outcome(words, "words"))))


def test_all_flags_must_satisfy_the_table_at_one_and_the_same_n() -> None:
    gate = started(quality_only(flags=TWO))
    flagged(gate, True, False)
    for _ in range(54):
        flagged(gate, False, False)
    assert (acceptance_reached(gate), clean_prefills_needed(gate)) == (False, 1)
    flagged(gate, False, None)  # known under one flag only
    assert (acceptance_reached(gate), clean_prefills_needed(gate)) == (False, 1)
    flagged(gate, False, False)
    assert acceptance_reached(gate) is True


def test_each_flag_has_its_own_k() -> None:
    gate = started(quality_only(flags=TWO))
    flagged(gate, True, False)
    for _ in range(54):
        flagged(gate, False, False)
    flagged(gate, False, True)
    assert acceptance_reached(gate) is True
    assert take_snapshot(gate).more_bad_than_allowed is False
    flagged(gate, False, True)
    flagged(gate, False, True)
    assert clean_prefills_needed(gate) is None
    assert take_snapshot(gate).more_bad_than_allowed is True


def test_a_prompt_that_only_one_flag_knows_is_missing() -> None:
    gate = started(quality_only(flags=TWO), cases=1)
    for _ in range(32):
        flagged(gate, False, None)
    assert (acceptance_reached(gate), clean_prefills_needed(gate)) == (False, 32)


def test_a_prompt_fresh_under_one_flag_alone_holds_up_the_others() -> None:
    gate = started(quality_only(flags=TWO), cases=2)
    for _ in range(32):
        cell_id = measure(gate, cell(case="c0"))
        gate.apply(CellChecked(cell_id, (outcome(False, "schema"), outcome(False, "words"))))
    cell_id = measure(gate, cell(case="c1"))
    gate.apply(CellChecked(cell_id, (outcome(False, "schema"), outcome(None, "words"))))
    assert (acceptance_reached(gate), clean_prefills_needed(gate)) == (False, 1)


# The snapshot


def test_a_fresh_run_knows_nothing_yet() -> None:
    assert take_snapshot(started()) == Snapshot(budget_left=200)
    required = take_snapshot(started(STANDARD))
    assert required == Snapshot(
        budget_left=200, throughput=ThroughputState.OPEN, throughput_required=True, throughput_pairs_left=True
    )


def test_without_slow_cells_none_are_too_many_even_where_none_is_allowed() -> None:
    assert take_snapshot(started(quality_only(acceptance=(32,)))).slow_more_than_allowed is False


def test_single_facts_stand_in_the_snapshot() -> None:
    gate = started()
    gate.apply(DeadlinePassed(1.0))
    assert take_snapshot(gate).deadline_passed is True
    gate.apply(Overridden(2.0, "rollback", "me", "why"))
    assert take_snapshot(gate).override is Outcome.ROLLBACK
    assert decide(take_snapshot(gate)).reason is Reason.OVERRIDE


def test_the_budget_pays_for_scored_cells_of_both_arms() -> None:
    gate = started()
    score(gate, cell())
    score(gate, cell(BASELINE))
    measure(gate, cell(status=Status.FAILED, case="c1"))
    measure(gate, cell(status=Status.INVALID, case="c2"))
    assert take_snapshot(gate).budget_left == 197


def test_three_refusals_in_a_row_after_a_probe_are_unavailability() -> None:
    gate = started()
    for count in range(3):
        assert take_snapshot(gate).candidate_unavailable is False, count
        measure(gate, cell(status=Status.INVALID), reason="ConnectionRefused")
    assert decide(take_snapshot(gate)).reason is Reason.CANDIDATE_UNAVAILABLE


def test_the_policy_says_how_many_refusals() -> None:
    gate = started(quality_only(refusals=5))
    for _ in range(4):
        measure(gate, cell(status=Status.INVALID), reason="ConnectionRefused")
    assert decide(take_snapshot(gate)).reason is Reason.MORE_EVIDENCE_NEEDED
    measure(gate, cell(status=Status.INVALID), reason="ConnectionRefused")
    assert decide(take_snapshot(gate)).reason is Reason.CANDIDATE_UNAVAILABLE


def test_a_candidate_that_never_answered_a_probe_could_not_be_measured() -> None:
    gate = Gate()
    gate.apply(planned())
    for _ in range(3):
        measure(gate, cell(status=Status.INVALID, server_epoch=None), reason="ConnectionRefused")
    assert take_snapshot(gate).candidate_unavailable is False
    assert decide(take_snapshot(gate)).reason is Reason.INVALID_CELLS
    gate.apply(CandidateUnavailable(1.0, 3, "refused"))
    assert take_snapshot(gate).candidate_unavailable is False


def test_unavailability_written_by_the_shell_counts() -> None:
    gate = started()
    gate.apply(CandidateUnavailable(1.0, 3, "crash loop"))
    assert take_snapshot(gate).candidate_unavailable is True


def confirmed() -> Gate:
    gate = started()
    screen(gate, True, True)
    gate.apply(ReplicateStarted(1, 0.0, 9))
    gate.apply(SeparationKept(1, 1.0, "gap"))
    for pair in range(5):
        for arm in (CANDIDATE, BASELINE):
            made = cell(arm, gate.replicates[0].plan.prompts[pair], replicate=1)
            score(gate, made, arm == CANDIDATE, Purpose.REPLICATE, pair=pair)
    return gate


def test_a_confirmed_replicate_rolls_back_and_is_latched_under_a_later_one() -> None:
    gate = confirmed()
    snapshot = take_snapshot(gate)
    assert (snapshot.regression_confirmed, snapshot.latched, snapshot.replicates_not_confirmed) == (True, None, 0)
    assert decide(snapshot).reason is Reason.REGRESSION_CONFIRMED
    gate.apply(ReplicateStarted(2, 2.0, 8))
    snapshot = take_snapshot(gate)
    assert (snapshot.regression_confirmed, snapshot.latched) == (False, Outcome.ROLLBACK)
    assert decide(snapshot).reason is Reason.ALREADY_DECIDED


def test_what_was_confirmed_stands_whatever_is_met_on_a_server_later() -> None:
    gate = confirmed()
    gate.apply(epoch(BASELINE, "e2", build="another"))
    snapshot = take_snapshot(gate)
    assert snapshot.distrust is not None
    assert (snapshot.latched, decide(snapshot).reason) == (Outcome.ROLLBACK, Reason.ALREADY_DECIDED)


def spent(left: int, policy: Policy | None = None, first_replicate: int = 1) -> Gate:
    """A gate in alarm with so many prefills left."""
    gate = started(policy or quality_only(budget=2 + left), first_replicate=first_replicate)
    screen(gate, True, True)
    return gate


@pytest.mark.parametrize(("first", "needed"), [(1, 10), (2, 12), (3, 12), (4, 16)])
def test_a_replicate_needs_its_prefills_of_budget(first: int, needed: int) -> None:
    assert take_snapshot(spent(needed, first_replicate=first)).replicate_affordable is True
    short = take_snapshot(spent(needed - 1, first_replicate=first))
    assert short.replicate_affordable is False
    assert decide(short).reason is Reason.BUDGET_SPENT


def test_the_second_replicate_of_a_run_needs_two_prefills_more() -> None:
    for left, affordable in ((12, True), (11, False)):
        gate = spent(left)
        gate.apply(ReplicateStarted(1, 0.0, 9))
        gate.apply(ReplicateAborted(1, 1.0, "separation impossible"))
        assert take_snapshot(gate).replicate_affordable is affordable


def test_more_flags_need_more_budget() -> None:
    for budget, affordable in ((14, True), (13, False)):
        gate = started(quality_only(flags=TWO, budget=budget))
        flagged(gate, True, False)
        flagged(gate, True, False)
        assert take_snapshot(gate).replicate_affordable is affordable


def test_a_running_replicate_whose_budget_ends_holds_although_acceptance_is_reached() -> None:
    gate = started(quality_only(replace(STANDARD, acceptance=(2, 3, 4)), budget=4), cases=1)
    screen(gate, False, False, True, True)
    gate.apply(ReplicateStarted(1, 0.0, 9))
    snapshot = take_snapshot(gate)
    assert (snapshot.acceptance_reached, snapshot.replicate_running, snapshot.budget_left) == (True, True, 0)
    assert decide(snapshot).reason is Reason.BUDGET_SPENT
    gate.apply(ReplicateAborted(1, 1.0, "budget"))
    assert take_snapshot(gate).replicate_running is False


def test_the_policys_attempts_are_those_of_the_run() -> None:
    policy = quality_only()
    policy = replace(policy, replicate=replace(policy.replicate, max_attempts=3))
    assert take_snapshot(started(policy)).max_replicates == 3


def test_a_policy_that_only_reports_throughput_does_not_require_it() -> None:
    reported = replace(STANDARD, throughput=replace(STANDARD.throughput, required=False))
    assert take_snapshot(started(reported)).throughput_required is False
    none = replace(STANDARD, throughput=replace(STANDARD.throughput, max_pairs=0))
    snapshot = take_snapshot(started(none))
    assert (snapshot.throughput_required, snapshot.throughput_pairs_left) == (False, False)
    assert snapshot.throughput is ThroughputState.NOT_COMPARED
    one = replace(STANDARD, throughput=replace(STANDARD.throughput, max_pairs=1))
    assert take_snapshot(started(one)).throughput_required is True


def test_no_pair_is_left_once_all_were_begun_or_where_no_prompt_can_give_one() -> None:
    policy = replace(STANDARD, baseline_pass=0, throughput=replace(STANDARD.throughput, max_pairs=2))
    gate = started(policy)
    for pair in range(2):
        assert take_snapshot(gate).throughput_pairs_left is True
        for arm in (BASELINE, CANDIDATE):
            score(gate, cell(arm, "c0"), purpose=Purpose.PAIR, pair=pair)
    assert take_snapshot(gate).throughput_pairs_left is False
    short = started(policy, cases=[CaseRef("a", "s", 10, max_tokens=31)])
    assert take_snapshot(short).throughput_pairs_left is False
    for _ in range(32):
        score(short, cell(case="a"))
    assert decide(take_snapshot(short)).reason is Reason.THROUGHPUT_OPEN
