"""The verdict: everything that stands behind a decision, from the journal alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import Reason
from prefillgate.core.earlier import Watching
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import (
    CauseNoted,
    CellChecked,
    DeadlinePassed,
    Difference,
    MeasurementLost,
    Overridden,
    Purpose,
    ReplicateAborted,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.judge import facts_of, judge, notes_of, write_verdict
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import RunCell
from prefillgate.core.shape import Shape, fitted
from prefillgate.core.snapshot import clean_prefills_needed
from prefillgate.core.verdict import CellClass, Outcome, PathPoint
from tests.support.journals import (
    Stepper,
    answer_of,
    cell,
    epoch,
    measure,
    outcome,
    planned,
    quality_only,
    score,
    screen,
    started,
)


def test_a_verdict_carries_its_plan() -> None:
    differences = (Difference("KV cache", "-ctk", "q8_0", "f16"),)
    gate = started(differences=differences)
    verdict = judge(gate)
    assert (verdict.title, verdict.replay_set_name, verdict.replay_set_sha256) == ("set", "set", "sha")
    assert (verdict.baseline_name, verdict.candidate_name) == ("http://b", "http://c")
    assert (verdict.policy_name, verdict.margin, verdict.acceptance) == ("standard", 0.10, (32, 56, 75))
    assert (verdict.prompts, verdict.budget, verdict.prefills_used) == (12, 200, 0)
    assert verdict.differences == differences
    assert (verdict.started_at, verdict.ended_at) == (0.0, None)
    assert (verdict.alarm, verdict.alarm_level, verdict.alarm_at) == (False, 0.0, pytest.approx(2.302585))
    assert verdict.path == (PathPoint(0, 0),)
    assert verdict.replicates == ()


def test_two_engines_are_a_difference_that_the_verdict_names() -> None:
    gate = started()
    gate.apply(epoch(BASELINE, "e2", engine="vllm", settings=(("kv_cache_dtype", "fp8"), ("speculation", "on"))))
    gate.apply(epoch(CANDIDATE, "e2", engine="sglang", settings=(("kv_cache_dtype", "auto"), ("speculation", "off"))))
    assert judge(gate).differences == (
        Difference("build", "engine", "vllm", "sglang", declared=False),
        Difference("KV cache", "kv_cache_dtype", "fp8", "auto", declared=False),
        Difference("draft head", "speculation", "on", "off", declared=False),
    )


def test_a_run_that_would_go_on_holds_when_it_is_asked_now() -> None:
    decision = judge(started()).decision
    assert (decision.decision, decision.promotion, decision.rollback) == (Outcome.HOLD, "Blocked", "Refused")
    assert (decision.reason, decision.measured) == ("MoreEvidenceNeeded", True)


def test_the_counts_of_both_arms_and_the_path() -> None:
    gate = started()
    screen(gate, False, True)
    score(gate, cell(BASELINE, gate.places.round_order(0)[0]))
    for _ in range(3):
        measure(gate, cell(status=Status.INVALID))
    for _ in range(2):
        measure(gate, cell(BASELINE, status=Status.INVALID))
    verdict = judge(gate)
    assert (verdict.candidate.requests, verdict.candidate.bad_for_promotion, verdict.candidate.invalid) == (2, 1, 3)
    assert (verdict.baseline.requests, verdict.baseline.bad_for_promotion, verdict.baseline.invalid) == (1, 0, 2)
    assert verdict.path == (PathPoint(0, 0), PathPoint(1, 0), PathPoint(2, 1))
    assert verdict.prefills_used == 3
    assert verdict.alarm_level == pytest.approx(1.791759)
    assert verdict.comparison.fisher_by_prefill == 1.0


def test_every_cell_is_shown_in_the_order_measured() -> None:
    gate = started()
    score(gate, cell(), True, detail="cut off", reason="Loop")
    measure(gate, cell(case="c1", status=Status.INVALID), reason="NotIdle", detail="busy")
    score(gate, cell(BASELINE, "c2"), purpose=Purpose.PAIR, pair=4)
    last = measure(gate, cell(case="c3"))
    first, lost, half, unchecked = judge(gate).cells
    assert (first.cell_id, first.purpose, first.pair) == (0, Purpose.SCREEN, None)
    assert (first.cell_class, first.unit, first.bad) == (CellClass.FRESH, 1, True)
    assert (first.witness, first.outcomes) == ("cached 0 of 100, processed 100", (outcome(True),))
    assert (first.reason, first.detail) == ("Loop", "cut off")
    assert (lost.cell_class, lost.unit, lost.bad, lost.witness) == (None, None, None, "")
    assert (lost.reason, lost.detail, lost.outcomes) == ("NotIdle", "busy", ())
    assert (half.purpose, half.pair, half.unit, half.bad) == (Purpose.PAIR, 4, 1, False)
    assert (unchecked.cell_id, unchecked.cell_class, unchecked.bad) == (last, None, None)


def test_a_cell_without_a_unit_shows_none() -> None:
    gate = started()
    score(gate, cell(cached_tokens=None, processed_tokens=None, cold_proof=None))
    (shown,) = judge(gate).cells
    assert (shown.cell_class, shown.unit) == (CellClass.UNKNOWN, None)


def test_the_verdict_ends_with_its_last_cell() -> None:
    gate = started()
    score(gate, cell(started_at=10.0, ended_at=20.0))
    score(gate, cell(case="c1", started_at=30.0, ended_at=90.0))
    score(gate, cell(BASELINE, started_at=91.0, ended_at=None))
    verdict = judge(gate)
    assert (verdict.started_at, verdict.ended_at) == (0.0, 90.0)


def test_a_log_without_a_plan_tells_its_own_times_and_prefills() -> None:
    gate = started()
    score(gate, cell(started_at=10.0, ended_at=20.0, cold_proof=None))
    score(gate, cell(started_at=30.0, ended_at=40.0, cold_proof=None, cached_tokens=99, processed_tokens=1))
    score(gate, cell(BASELINE, started_at=50.0, ended_at=60.0))
    score(gate, cell(BASELINE, "c1", started_at=70.0))
    facts = facts_of(gate)
    assert write_verdict(facts).prefills_used == 4
    verdict = write_verdict(replace(facts, plan=None, from_log=True, invalid=()))
    assert (verdict.started_at, verdict.ended_at) == (10.0, 60.0)
    assert verdict.prefills_used == 3
    assert (verdict.baseline.invalid, verdict.candidate.invalid) == (0, 0)
    assert (verdict.baseline_name, verdict.candidate_name, verdict.replay_set_sha256) == ("baseline", "candidate", "")


def test_findings_and_lives_are_noted_once() -> None:
    gate = started()
    gate.apply(epoch(CANDIDATE, "e2", findings=("no knob", "no counter")))
    gate.apply(epoch(CANDIDATE, "e2", findings=("no knob",), access_findings=("not checked",)))
    gate.apply(epoch(BASELINE, "e1"))
    assert notes_of(gate) == (
        "candidate: not checked",
        "candidate: no knob",
        "candidate: no counter",
        "candidate: 2 lives of the server were measured",
    )
    measure(gate, cell())
    assert notes_of(gate)[-2] == "1 cell measured but not checked yet: resume the run"
    assert notes_of(gate)[-1].startswith("the gate changed only model, n, seed, stream and stream_options of each body")
    assert judge(gate).notes == notes_of(gate)


def test_the_cause_is_unverified_until_a_person_wrote_one() -> None:
    gate = started()
    assert judge(gate).decision.cause == "Unverified"
    gate.apply(CauseNoted(1.0, "ann", "wrong rope base"))
    assert judge(gate).decision.cause == "wrong rope base"


def test_an_alarm_stays_one_while_its_replicate_runs() -> None:
    gate = started()
    screen(gate, True, True)
    assert judge(gate).alarm is True
    gate.apply(ReplicateStarted(1, 5.0, 9))
    assert judge(gate).alarm is True
    assert [view.number for view in judge(gate).replicates] == [1]
    gate.apply(ReplicateAborted(1, 6.0, "deadline"))
    assert judge(gate).alarm is False


# Every reason from a journal


def alarmed() -> Gate:
    gate = started()
    screen(gate, True, True, case="c0")
    return gate


def replicated(candidate: bool, baseline: bool, pairs: int) -> Gate:
    gate = alarmed()
    gate.apply(ReplicateStarted(1, 5.0, 9))
    gate.apply(SeparationKept(1, 6.0, "gap"))
    for pair in range(pairs):
        for arm, bad in ((CANDIDATE, candidate), (BASELINE, baseline)):
            made = cell(arm, gate.replicates[0].plan.prompts[pair], replicate=1)
            score(gate, made, bad, Purpose.REPLICATE, pair=pair)
    return gate


def after_rollback() -> Gate:
    gate = replicated(True, False, 5)
    gate.apply(ReplicateStarted(2, 7.0, 8))
    return gate


def server_lost() -> Gate:
    gate = started(shape=Shape(candidate_lanes=2))
    for _ in range(3):
        measure(gate, cell(status=Status.INVALID), reason="ConnectionRefused", lane=1)
    screen(gate, *[False] * 32)
    return gate


def lost(reason: str) -> Callable[[], Gate]:
    def make() -> Gate:
        gate = started()
        gate.apply(MeasurementLost(1.0, reason, "how"))
        return gate

    return make


def with_cells(arm: str, status: Status, count: int, **more: object) -> Callable[[], Gate]:
    def make() -> Gate:
        gate = started()
        for _ in range(count):
            measure(gate, cell(arm, status=status), **more)
        return gate

    return make


def both_arms(make_one: Callable[[Gate, str], None]) -> Callable[[], Gate]:
    def make() -> Gate:
        gate = started()
        for arm in (CANDIDATE, BASELINE):
            make_one(gate, arm)
        return gate

    return make


def refused_by(arm: str) -> Callable[[], Gate]:
    def one(gate: Gate, mine: str) -> None:
        if mine == arm:
            measure(gate, cell(mine, status=Status.INVALID), http_status=400)
        else:
            score(gate, cell(mine))

    return both_arms(one)


def lopsided() -> Gate:
    gate = started()
    for i in range(12):
        score(gate, cell(BASELINE, f"c{i}"))
        if i < 6:
            measure(gate, cell(case=f"c{i}", status=Status.INVALID), reason="NotIdle")
    return gate


def checked(*bads: bool | None, check: str = "check") -> Callable[[], Gate]:
    def make() -> Gate:
        gate = started()
        for bad in bads:
            cell_id = measure(gate, cell(case=gate.places.next_case))
            gate.apply(CellChecked(cell_id, (outcome(bad, check),)))
        return gate

    return make


def stepped(policy: Policy, ratio: float, bad: Callable[[RunCell], bool] = lambda step: False) -> Callable[[], Gate]:
    def make() -> Gate:
        def answer(step: RunCell) -> object:
            return answer_of(step, output_tokens=41, decode_ms=400 * (ratio if step.arm == CANDIDATE else 1.0))

        run = Stepper(started(policy), bad=bad, make=answer)  # type: ignore[arg-type]
        run.run()
        return run.gate

    return make


def overridden() -> Gate:
    gate = started()
    gate.apply(Overridden(1.0, "rollback", "ann", "why"))
    return gate


def deadline() -> Gate:
    gate = started()
    gate.apply(DeadlinePassed(1.0))
    return gate


def differing() -> Gate:
    gate = started()
    gate.apply(epoch(CANDIDATE, "e2", build="b2"))
    return gate


def unknown_independence() -> Gate:
    gate = started()
    gate.apply(epoch(CANDIDATE, "e2", cold_proof=None, counter_alive=False))
    return gate


def rode_the_cache() -> Gate:
    gate = started()
    score(gate, cell(cached_tokens=99, processed_tokens=1))
    return gate


def running() -> Gate:
    gate = alarmed()
    gate.apply(ReplicateStarted(1, 5.0, 9))
    return gate


def alone_alarmed() -> Gate:
    gate = started(shape=Shape(candidate_alone=True))
    screen(gate, True, True)
    return gate


def of_a_floor() -> Gate:
    run = Stepper(started(fitted(STANDARD, FLOOR), shape=FLOOR))
    run.run()
    return run.gate


def of_a_watch() -> Gate:
    shape = Shape(candidate_alone=True)
    run = Stepper(started(fitted(STANDARD, shape), shape=shape, watching=Watching(3)))
    run.run()
    return run.gate


def in_use() -> Gate:
    gate = started(cases=20)
    for number in range(10):
        voided = number % 3 < 2
        case = f"c{number}"
        if voided:
            measure(gate, cell(case=case, status=Status.INVALID), reason="OtherTraffic")
        else:
            score(gate, cell(case=case))
    return gate


FLOOR = Shape(baseline_alone=True)
FEW_PAIRS = replace(STANDARD, throughput=replace(STANDARD.throughput, max_pairs=13))
AA = replace(STANDARD, aa_check=True)
JOURNALS: dict[Reason, Callable[[], Gate]] = {
    Reason.OVERRIDE: overridden,
    Reason.CANDIDATE_UNAVAILABLE: with_cells(CANDIDATE, Status.INVALID, 3, reason="ConnectionRefused"),
    Reason.ALREADY_DECIDED: after_rollback,
    Reason.INDEPENDENCE_UNKNOWN: unknown_independence,
    Reason.KNOB_NOT_HONOURED: rode_the_cache,
    Reason.CONTAMINATED: checked(True, check="foreign_text"),
    Reason.UNDECLARED_DIFFERENCE: differing,
    Reason.INVALID_CELLS: with_cells(CANDIDATE, Status.INVALID, 3, reason="NotIdle"),
    Reason.ERRORS_LOPSIDED: lopsided,
    Reason.CANDIDATE_REFUSES: refused_by(CANDIDATE),
    Reason.BASELINE_REFUSES: refused_by(BASELINE),
    Reason.BASELINE_UNAVAILABLE: with_cells(BASELINE, Status.INVALID, 3, reason="ConnectionRefused"),
    Reason.CASE_UNUSABLE: both_arms(lambda gate, arm: measure(gate, cell(arm, status=Status.FAILED), http_status=500)),
    Reason.OTHER_TRAFFIC: in_use,
    Reason.CHECK_ERROR: checked(None, None, None),
    Reason.CHECKS_FAIL_ON_BASELINE: stepped(STANDARD, 1.0, bad=lambda step: True),
    Reason.INSTRUMENT_BROKEN: stepped(AA, 1.0, bad=lambda step: step.purpose is Purpose.AA),
    Reason.MEASUREMENT_LOST: lost("PowerCut"),
    Reason.REGRESSION_CONFIRMED: lambda: replicated(True, False, 5),
    Reason.DEADLINE: deadline,
    Reason.ALARM_WITHOUT_BASELINE: alone_alarmed,
    Reason.FLOOR_MEASURED: of_a_floor,
    Reason.NO_ALARM: of_a_watch,
    Reason.REPLICATE_DUE: alarmed,
    Reason.REPLICATE_RUNNING: running,
    Reason.REGRESSION_NOT_CONFIRMED: lambda: replicated(True, True, 2),
    Reason.SLOWER: stepped(STANDARD, 1.4),
    Reason.SERVER_LOST: server_lost,
    Reason.ACCEPTANCE_REACHED: stepped(STANDARD, 0.9),
    Reason.THROUGHPUT_OPEN: stepped(FEW_PAIRS, 1.05),
    Reason.BUDGET_SPENT: stepped(replace(STANDARD, budget=20), 0.9),
    Reason.MORE_EVIDENCE_NEEDED: started,
}


def test_only_the_two_reasons_of_a_cluster_have_no_journal() -> None:
    assert set(Reason) - set(JOURNALS) == {Reason.DELETING, Reason.SPEC_INVALID}


@pytest.mark.parametrize("reason", list(JOURNALS), ids=str)
def test_every_reason_is_reached_from_a_journal(reason: Reason) -> None:
    decision = judge(JOURNALS[reason]()).decision
    assert decision.reason == str(reason)
    assert decision.sentences
    assert decision.what_would_change


# Properties


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.floats(0, 0.9), st.floats(0, 0.5))
def test_the_verdict_is_a_function_of_the_journal(seed: int, candidate: float, baseline: float) -> None:
    generator = random.Random(seed)
    policy = quality_only(acceptance=(10, 14), budget=40)
    run = Stepper(
        started(policy, cases=4, seed=seed),
        bad=lambda step: generator.random() < (candidate if step.arm == CANDIDATE else baseline),
    )
    run.run()
    events = [planned(policy, 4, seed), epoch(BASELINE), epoch(CANDIDATE), *run.events]
    assert judge(fold(events)) == judge(run.gate) == judge(fold(events))
    decision = judge(run.gate).decision
    confirmed = [replicate for replicate in run.gate.replicates if str(replicate.ending()) == "confirmed"]
    assert (decision.rollback == "Allowed") == bool(confirmed)
    assert decision.decision is not Outcome.CONTINUE


@settings(max_examples=40)
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 39))
def test_one_more_bad_unit_never_shortens_the_road_to_promote(outcomes: list[bool], at: int) -> None:
    def needed(units: list[bool]) -> float:
        gate = started()
        screen(gate, *units)
        found = clean_prefills_needed(gate)
        return float("inf") if found is None else found

    worse = [*outcomes[:at], True, *outcomes[at:]]
    assert needed(worse) >= needed(outcomes) - 1
    assert needed([*outcomes, True]) >= needed([*outcomes, False])
