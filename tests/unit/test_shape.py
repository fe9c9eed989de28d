"""What a run's shape changes in the core: its arms, the policy it can keep, its rule, its distrust and its words.

Of `prefillgate.core.shape`, `prefillgate.core.distrust_shape` and `prefillgate.core.sentences_shape`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import QUICK, STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, ColdProof, Status
from prefillgate.core.decision import Reason
from prefillgate.core.distrust import find_distrust
from prefillgate.core.freshness import classify
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CandidateUnavailable, Overridden, RunResumed
from prefillgate.core.judge import judge
from prefillgate.core.planning import expected_prefills, plan_warnings, promotion_power
from prefillgate.core.schedule import Stop, next_step
from prefillgate.core.shape import Isolation, Shape, fitted
from prefillgate.core.verdict import CellClass, Outcome, ThroughputState
from tests.support.journals import Stepper, cell, epoch, measure, planned, score, screen, started

ALONE = Shape(candidate_alone=True)
SHARED = Shape(isolation=Isolation.SHARED)
QUIET_HOUR = (
    "--isolation shared, in a new store, judges quality on a server in use (no decode speed); or run this again at a "
    "quiet hour"
)


def alone(policy: Any = STANDARD, **more: Any) -> Gate:
    """A run of the candidate alone, its server met."""
    gate = Gate()
    gate.apply(replace(planned(fitted(policy, ALONE), **more), baseline_url=None, shape=ALONE))
    gate.apply(epoch(CANDIDATE))
    return gate


def reason_of(gate: Gate) -> tuple[Reason, str] | None:
    found = find_distrust(gate)
    return None if found is None else (found.reason, found.sentence)


def voided(gate: Gate, pattern: str, arm: str = CANDIDATE, reason: str = "OtherTraffic", **more: Any) -> None:
    """Cells of one arm, each on its own case: v is voided, anything else clean."""
    for letter in pattern:
        case = f"c{len(gate.measured)}"
        if letter == "v":
            measure(gate, cell(arm, case, status=Status.INVALID), reason=reason, **more)
        else:
            score(gate, cell(arm, case))


# The policy a shape can keep


def test_two_exclusive_arms_keep_the_policy_as_it_is() -> None:
    assert fitted(STANDARD, Shape()) == STANDARD
    assert (Shape().arms, Shape().shared, Shape().no_speed_why) == ((BASELINE, CANDIDATE), False, None)


def test_the_candidate_alone_has_no_pass_no_pairs_and_no_replicate() -> None:
    policy = fitted(replace(STANDARD, aa_check=True), ALONE)
    assert (policy.baseline_pass, policy.aa_check, policy.replicate.max_attempts) == (0, False, 0)
    assert (policy.throughput.required, policy.throughput.max_pairs) == (False, 0)
    assert (policy.acceptance, policy.margin, policy.budget) == (STANDARD.acceptance, STANDARD.margin, STANDARD.budget)
    assert (ALONE.arms, ALONE.no_speed_why) == ((CANDIDATE,), "no baseline was run")


def test_a_shared_run_gives_up_speed_and_nothing_else() -> None:
    policy = fitted(STANDARD, SHARED)
    assert replace(policy, throughput=STANDARD.throughput) == STANDARD
    assert (policy.throughput.required, policy.throughput.max_pairs) == (False, 0)
    assert (SHARED.shared, SHARED.no_speed_why) == (True, "the servers served others meanwhile")
    assert replace(ALONE, isolation=Isolation.SHARED).no_speed_why == "no baseline was run"


def test_a_plan_of_the_candidate_alone_costs_its_table_and_no_more() -> None:
    policy = fitted(QUICK, ALONE)
    cost = expected_prefills(policy, 12, shape=ALONE)
    assert (cost.total, cost.candidate, cost.baseline_pass, cost.pair_halves, cost.warm_up) == (16, 16, 0, 0, 0)
    assert (cost.replicate_least, cost.replicate_most) == (0, 0)
    assert promotion_power(policy, 0.0, 12) == 1.0
    tight = replace(policy, budget=16)
    cases = planned(tight, 50).cases
    assert not [warning for warning in plan_warnings(replace(policy, budget=60), cases) if "replicate" in warning]
    assert [warning for warning in plan_warnings(fitted(replace(QUICK, budget=60), SHARED), cases) if "late" in warning]


# The candidate alone


def test_sixteen_clean_prefills_of_the_candidate_alone_promote_by_the_table() -> None:
    run = Stepper(alone(QUICK, cases=4))
    stop = run.run()
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.PROMOTE, Reason.ACCEPTANCE_REACHED)
    assert [step.arm for step in run.cells] == [CANDIDATE] * 16
    verdict = judge(run.gate)
    assert verdict.baseline is None
    assert [arm for arm, _, _ in verdict.arms] == [CANDIDATE]
    assert verdict.throughput.state is ThroughputState.NOT_COMPARED
    assert verdict.throughput.sentence == "Decode speed was not compared: no baseline was run."
    assert (verdict.comparison.fisher_by_request, verdict.comparison.boschloo_by_prefill) == (None, None)
    assert verdict.shape == ALONE
    assert verdict.decision.sentences[2] == (
        "Baseline: none in this run; the candidate is judged by the acceptance table alone, by checks that were never "
        "seen to pass on a good server."
    )


def test_an_alarm_of_the_candidate_alone_is_a_hold_that_names_what_would_answer_it() -> None:
    gate = alone()
    screen(gate, True)
    assert not isinstance(next_step(gate), Stop)
    screen(gate, True)
    stop = next_step(gate)
    assert isinstance(stop, Stop)
    assert (stop.ruling.decision, stop.ruling.reason) == (Outcome.HOLD, Reason.ALARM_WITHOUT_BASELINE)
    decision = judge(gate).decision
    assert decision.measured is True
    assert decision.sentences[0] == (
        "An alarm: promotion is blocked, and rollback is refused, since only a replicate against a baseline could "
        "confirm the regression and this run has none."
    )
    assert decision.sentences[1].startswith("Rollback is refused: 2 bad requests hang off 2 bad prefills")
    assert decision.what_would_change == (
        "A new run with --baseline: a replicate on both arms could answer the alarm.",
        "An override by a person with a reason.",
    )


def test_bad_ones_spread_too_thin_for_an_alarm_end_in_the_same_hold_beyond_the_table() -> None:
    gate = alone()
    for _ in range(2):
        screen(gate, True, *[False] * 15)
    assert not gate.alarm
    screen(gate, True)
    assert gate.alarm
    assert judge(gate).decision.reason == "AlarmWithoutBaseline"


def test_with_a_baseline_the_same_alarm_starts_a_replicate() -> None:
    gate = started()
    screen(gate, True, True)
    assert judge(gate).decision.reason == "ReplicateDue"


def test_a_persons_word_goes_before_an_alarm_that_nothing_answers() -> None:
    gate = alone()
    screen(gate, True, True)
    gate.apply(Overridden(1.0, "promote", "ann", "seen before"))
    assert judge(gate).decision.promotion == "Allowed"


def test_a_candidate_alone_that_went_away_may_be_rolled_back_and_to_what_is_not_said() -> None:
    gate = alone()
    gate.apply(CandidateUnavailable(1.0, 3, "refused"))
    decision = judge(gate).decision
    assert (decision.reason, decision.rollback) == ("CandidateUnavailable", "Allowed")
    assert "What to roll back to was no part of this run." in decision.sentences
    assert "What to roll back to was no part of this run." not in judge(alone()).decision.sentences


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_body_that_the_candidate_alone_refuses_cannot_be_told_from_a_bad_prompt(status: int) -> None:
    gate = alone()
    measure(gate, cell(status=Status.INVALID), http_status=status, detail="no such field")
    assert reason_of(gate) == (
        Reason.CASE_UNUSABLE,
        f"the candidate answers c0 with {status}: no such field; without a baseline nothing tells whether the prompt "
        "or the candidate is at fault",
    )
    assert isinstance(next_step(gate), Stop)  # and no baseline is asked


def test_another_refusal_of_the_candidate_alone_is_planned_again() -> None:
    gate = alone()
    measure(gate, cell(status=Status.INVALID), http_status=404, detail="gone")
    measure(gate, cell(status=Status.FAILED), http_status=400)
    assert reason_of(gate) is None
    both = started()
    measure(both, cell(status=Status.INVALID), http_status=400, detail="no such field")
    assert reason_of(both) is None


# A server in use


@pytest.mark.parametrize("arm", [BASELINE, CANDIDATE])
@pytest.mark.parametrize("reason", ["OtherTraffic", "NotIdle"])
def test_more_than_half_of_ten_cells_voided_by_traffic_is_an_error_that_names_the_way_out(
    arm: str, reason: str
) -> None:
    gate = started(cases=60)
    voided(gate, "vv.vv.v..", arm, reason)
    assert reason_of(gate) is None
    voided(gate, "v", arm, reason)
    assert reason_of(gate) == (
        Reason.OTHER_TRAFFIC,
        f"6 of 10 cells in a row on the {arm} were voided by other traffic: its server is in use; {QUIET_HOUR}",
    )
    decision = judge(gate).decision
    assert (decision.measured, decision.promotion, decision.rollback) == (False, "Blocked", "Refused")


def test_half_of_ten_cells_is_not_more_than_half_and_the_ten_are_in_a_row() -> None:
    gate = started(cases=60)
    voided(gate, "v.v.v.v.v." * 3)
    assert reason_of(gate) is None
    spread = started(cases=60)
    voided(spread, "vvv......vvv")  # never six of ten, six of twelve
    assert reason_of(spread) is None


def test_other_reasons_and_busy_answers_are_no_traffic() -> None:
    gate = started(cases=60)
    voided(gate, "v" * 12, reason="EpochChanged")
    assert reason_of(gate) is None
    busy = started(cases=60)
    voided(busy, "v" * 12, http_status=503)
    assert reason_of(busy) is None


def test_the_cells_of_both_arms_are_counted_apart() -> None:
    gate = started(cases=60)
    for arm in (BASELINE, CANDIDATE):
        voided(gate, "vvvvv....", arm)
    assert reason_of(gate) is None
    voided(gate, "v", BASELINE)
    assert (reason_of(gate) or (None, ""))[1].startswith("6 of 10 cells in a row on the baseline")


def test_after_a_resume_the_ten_are_counted_anew() -> None:
    gate = started(cases=60)
    voided(gate, "vvvvvv....")
    assert reason_of(gate) is not None
    gate.apply(RunResumed(1.0))
    assert reason_of(gate) is None


def test_a_shared_run_voids_nothing_for_traffic_and_is_not_stopped_by_it() -> None:
    gate = started(cases=60, shape=SHARED)
    voided(gate, "vvvvvv....")
    assert reason_of(gate) is None


# Freshness on a server in use


@pytest.mark.parametrize("arm", [BASELINE, CANDIDATE])
def test_a_shared_run_needs_a_counter_in_the_responses(arm: str) -> None:
    for shape, expected in ((Shape(), False), (SHARED, True)):
        gate = Gate()
        gate.apply(planned(shape=shape))
        for each in (BASELINE, CANDIDATE):
            dead = {"counter_alive": False, "findings": ("start it with --enable-x", "odd")} if each == arm else {}
            gate.apply(epoch(each, **dead))
        found = (
            Reason.INDEPENDENCE_UNKNOWN,
            f"independence unknown on the {arm} (llama.cpp): start it with --enable-x; odd",
        )
        assert reason_of(gate) == (found if expected else None)
    gate.apply(epoch(arm))
    assert reason_of(gate) is None
    for each in (BASELINE, CANDIDATE):
        dead = {"counter_alive": False, "findings": ("dead now",)} if each == arm else {}
        gate.apply(epoch(each, "e2", engine="other", **dead))
    assert reason_of(gate) == (Reason.INDEPENDENCE_UNKNOWN, f"independence unknown on the {arm} (other): dead now")


def test_a_dead_counter_without_a_finding_is_named_all_the_same() -> None:
    gate = Gate()
    gate.apply(planned(shape=SHARED))
    gate.apply(epoch(CANDIDATE, counter_alive=False))
    said = "independence unknown on the candidate (llama.cpp): the responses tell no cached tokens"
    assert reason_of(gate) == (Reason.INDEPENDENCE_UNKNOWN, said)


def test_the_verdict_of_a_shared_run_says_so() -> None:
    gate = started(STANDARD, shape=SHARED)
    verdict = judge(gate)
    assert verdict.throughput.sentence == "Decode speed was not compared: the servers served others meanwhile."
    assert (
        "Isolation shared: the servers served others meanwhile; a prefill counts as fresh by what its own response "
        "tells, never by the server's totals."
    ) in verdict.decision.sentences
    assert not [said for said in judge(started()).decision.sentences if "Isolation" in said]


def test_the_verdict_of_a_run_with_one_server_at_a_time_says_what_that_costs() -> None:
    cost = (
        "One server at a time: for decode speed and in a replicate a pair of windows is one observation, however many "
        "prompts it holds."
    )
    assert cost in judge(started(STANDARD, shape=Shape(sequential=True))).decision.sentences
    assert cost not in judge(started()).decision.sentences


def test_no_time_contradicts_a_fresh_prefill_on_a_server_in_use() -> None:
    slow = [cell(case=f"c{i}", prefill_ms=1000.0) for i in range(8)]
    quick = cell(case="c9", prefill_ms=100.0)
    assert classify([*slow, quick])[-1].cell_class is CellClass.CONTRADICTED
    in_use = [replace(each, shared_server=True) for each in (*slow, quick)]
    assert classify(in_use)[-1].cell_class is CellClass.FRESH
    false_sum = replace(quick, shared_server=True, processed_tokens=50)
    assert classify([false_sum])[0].cell_class is CellClass.CONTRADICTED


def test_a_cold_proof_alone_is_no_witness_on_a_server_in_use() -> None:
    silent = cell(cached_tokens=None, processed_tokens=None, cold_proof=ColdProof.CACHE_OFF)
    assert classify([silent])[0].cell_class is CellClass.FRESH
    (item,) = classify([replace(silent, shared_server=True)])
    assert (item.cell_class, item.witness) == (
        CellClass.UNKNOWN,
        "a server in use, and the response tells no cached tokens",
    )
    failed = replace(silent, shared_server=True, status=Status.FAILED)
    assert classify([failed])[0].cell_class is CellClass.FRESH  # a bad one is never dropped
