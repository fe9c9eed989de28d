"""The words of an answer, to the letter and the number, from journals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.decision import ERRORS, Reason
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CandidateUnavailable,
    CaseRef,
    DeadlinePassed,
    Overridden,
    Purpose,
    ReplicateAborted,
    ReplicateStarted,
    SeparationKept,
)
from prefillgate.core.judge import facts_of, judge
from prefillgate.core.policy import Flag, Policy
from prefillgate.core.schedule import StartReplicate
from prefillgate.core.sentences import REASON_SENTENCES, SPEED_OPEN, percent, what_would_change
from prefillgate.core.verdict import Decision, ThroughputState
from tests.support.journals import Stepper, answer_of, cell, measure, quality_only, score, screen, started

PERSON = "An override by a person with a reason."
NOT_COMPARED = "Decode speed was not compared."
REFUSED = "bad requests hang off {} bad prefills, and no replicate with fresh prefills has confirmed a regression."


def said(gate: Gate) -> Decision:
    return judge(gate).decision


def policy_with(**changes: Any) -> Policy:
    return quality_only(**changes)


def replicate_on(gate: Gate, number: int = 1, how: str | None = "gap") -> None:
    gate.apply(ReplicateStarted(number, 5.0, 99))
    if how is not None:
        gate.apply(SeparationKept(number, 6.0, how))


def half(gate: Gate, pair: int, arm: str, bad: bool) -> None:
    running = gate.replicates[-1].plan
    score(gate, cell(arm, running.prompts[pair], replicate=running.number), bad, Purpose.REPLICATE, pair=pair)


@pytest.mark.parametrize(
    ("rate", "words"), [(0.2, "20 %"), (0.025, "2.5 %"), (0.004, "0.4 %"), (1.0, "100 %"), (0.12345, "12.3 %")]
)
def test_a_rate_as_a_person_writes_it(rate: float, words: str) -> None:
    assert percent(rate) == words


def test_a_promotion_says_what_was_excluded_and_what_was_not() -> None:
    gate = started(policy_with(name="quick", margin=0.20, acceptance=(16, 25, 35)))
    screen(gate, *[False] * 16)
    decision = said(gate)
    assert decision.sentences == (
        "Promotion is allowed: 0 bad in 16 fresh prefills exclude a bad rate of 20 % or more (error at most 5 %). "
        "Not excluded: a candidate bad in 1 of 10 would have passed 39 % of the time.",
        "Candidate: 0 of 16 requests bad; by prefill 0 of 16.",
        NOT_COMPARED,
        "This speaks of these 12 prompts, not of a population of prompts (that takes 48 or more).",
    )
    assert decision.what_would_change == ("More than 2 bad prefills would block promotion again.",)


def test_a_half_margin_that_is_no_unit_fraction_is_a_percentage() -> None:
    gate = started(policy_with(margin=0.15, alpha=0.10, acceptance=(30, 40)))
    screen(gate, *[False] * 39, True)
    (first, *_), (change,) = said(gate).sentences, said(gate).what_would_change
    assert first.startswith("Promotion is allowed: 1 bad in 40 fresh prefills exclude a bad rate of 15 % or more ")
    assert "(error at most 10 %). Not excluded: a candidate bad in 7.5 % would have passed " in first
    assert change == "More than 1 bad prefills would block promotion again."


@pytest.mark.parametrize(("prompts", "said_so"), [(47, True), (48, False)])
def test_a_set_of_fewer_than_48_prompts_speaks_of_itself_alone(prompts: int, said_so: bool) -> None:
    gate = started(cases=prompts)
    screen(gate, *[False] * prompts)
    words = f"This speaks of these {prompts} prompts, not of a population of prompts (that takes 48 or more)."
    assert (words in said(gate).sentences) is said_so
    few = started()
    screen(few, False)
    assert not any("population" in sentence for sentence in said(few).sentences)


def test_requests_and_prefills_stand_side_by_side() -> None:
    gate = started(cases=2)
    for case in ("c0", "c1"):
        score(gate, cell(case=case, cold_proof=None), True)
        for _ in range(4):
            score(gate, cell(case=case, cold_proof=None, cached_tokens=99, processed_tokens=1), True)
        score(gate, cell(case=case, cold_proof=None, cached_tokens=99, processed_tokens=1), case == "c0")
    score(gate, cell(case="c0", cold_proof=None, cached_tokens=20, processed_tokens=80))
    score(gate, cell(case="c0", cold_proof=None, cached_tokens=None, processed_tokens=None))
    score(gate, cell(case="c9", cold_proof=None, cached_tokens=99, processed_tokens=1))
    assert said(gate).sentences == (
        REASON_SENTENCES[Reason.REPLICATE_DUE],
        "Rollback is refused: 11 " + REFUSED.format(2),
        "Candidate: 11 of 15 requests bad; by prefill 2 of 2 (10 copies, 1 partial, 1 unknown, 1 orphans).",
        NOT_COMPARED,
    )
    assert said(gate).what_would_change == (
        "73 more clean fresh prefills would promote.",
        "A fresh replicate reaching E >= 40 would allow rollback.",
        PERSON,
    )


def test_a_request_that_was_never_judged_is_told_beside_the_bad_ones() -> None:
    gate = started()
    score(gate, cell(BASELINE), True)
    score(gate, cell(), None)
    score(gate, cell(), True)
    assert said(gate).sentences[1:3] == (
        "Candidate: 1 of 2 requests bad; by prefill 1 of 2 (1 never judged).",
        "Baseline: 1 of 1 requests bad; by prefill 1 of 1.",
    )


def test_both_arms_are_told_and_an_arm_without_a_request_is_not() -> None:
    gate = started()
    score(gate, cell(BASELINE), True)
    assert said(gate).sentences == (
        REASON_SENTENCES[Reason.MORE_EVIDENCE_NEEDED],
        "Baseline: 1 of 1 requests bad; by prefill 1 of 1.",
        NOT_COMPARED,
    )
    assert said(gate).what_would_change == ("32 more clean fresh prefills would promote.", PERSON)


def test_distinct_outputs_are_counted_over_prefills() -> None:
    gate = started()
    for i in range(16):
        score(gate, cell(case=f"c{i % 12}", output_sha256=f"digest {i % 12}"))
    assert "Candidate: 16 prefills of 12 prompts, 12 distinct outputs." in said(gate).sentences
    assert judge(gate).distinct_outputs == 12
    unknown = started()
    screen(unknown, False)
    assert judge(unknown).distinct_outputs is None
    assert not any("distinct" in sentence for sentence in said(unknown).sentences)


# Replicates


def test_a_replicate_is_told_while_it_runs() -> None:
    gate = started()
    screen(gate, True, True, case="c0")
    replicate_on(gate, how=None)
    assert said(gate).sentences[0] == REASON_SENTENCES[Reason.REPLICATE_RUNNING]
    assert "Replicate 1 is running: 0 of 0 fresh candidate prefills bad, E = 1 against 40." in said(gate).sentences
    gate.apply(SeparationKept(1, 6.0, "restart"))
    half(gate, 0, CANDIDATE, True)
    half(gate, 0, BASELINE, False)
    assert (
        "Replicate 1 is running: 1 of 1 fresh candidate prefills bad, E = 2.36 against 40; kept apart by restart."
        in said(gate).sentences
    )
    assert said(gate).what_would_change == (
        "No number of clean prefills promotes with 3 bad; the table allows 2.",
        "Replicate 1 reaching E >= 40 would allow rollback.",
        PERSON,
    )


def test_a_confirmed_replicate_names_the_prompts_that_carry_e() -> None:
    gate = started(cases=3)
    screen(gate, True, True, case="c1")
    replicate_on(gate)
    for pair in range(5):
        half(gate, pair, CANDIDATE, True)
        half(gate, pair, BASELINE, False)
    prompts = list(dict.fromkeys(gate.replicates[0].plan.prompts[:5]))
    assert said(gate).sentences == (
        REASON_SENTENCES[Reason.REGRESSION_CONFIRMED],
        "Candidate: 7 of 7 requests bad; by prefill 7 of 7.",
        "Baseline: 0 of 5 requests bad; by prefill 0 of 5.",
        "Replicate 1 confirmed the regression: 5 of 5 fresh candidate prefills bad, E = 73.7 against 40, "
        f"carried by {', '.join(prompts)}; kept apart by gap.",
        NOT_COMPARED,
    )
    assert said(gate).what_would_change == (PERSON,)


def test_the_story_ends_refused_and_then_not_confirmed() -> None:
    gate = started(cases=2)
    screen(gate, True, True)
    replicate_on(gate)
    for pair in range(8):
        half(gate, pair, CANDIDATE, False)
    assert said(gate).sentences == (
        REASON_SENTENCES[Reason.MORE_EVIDENCE_NEEDED],
        "Rollback is refused: 2 " + REFUSED.format(2),
        "Candidate: 2 of 10 requests bad; by prefill 2 of 10.",
        "Replicate 1 not confirmed: 0 of 8 fresh candidate prefills bad (rate below 0.312 at 95 %); kept apart by gap.",
        NOT_COMPARED,
    )
    assert said(gate).what_would_change == ("65 more clean fresh prefills would promote.", PERSON)
    assert said(gate).cause == "Unverified"


def test_a_futile_and_an_aborted_replicate_say_how_they_ended() -> None:
    gate = started()
    screen(gate, True, True, case="c0")
    replicate_on(gate)
    for pair in range(2):
        half(gate, pair, CANDIDATE, True)
        half(gate, pair, BASELINE, True)
    assert (
        f"Replicate 1 not confirmed (futile): 2 of 2 fresh candidate prefills bad, E = {0.1814**2:.3g} against 40; "
        "kept apart by gap." in said(gate).sentences
    )
    assert said(gate).sentences[0] == REASON_SENTENCES[Reason.REGRESSION_NOT_CONFIRMED]
    other = started()
    screen(other, True, True, case="c0")
    replicate_on(other, how=None)
    other.apply(ReplicateAborted(1, 7.0, "deadline"))
    assert (
        "Replicate 1 not confirmed (aborted, deadline): 0 of 0 fresh candidate prefills bad, E = 1 against 40."
        in said(other).sentences
    )


@pytest.mark.parametrize(("flags", "first", "threshold"), [(1, 1, "40"), (2, 1, "80"), (1, 2, "80"), (1, 3, "160")])
def test_the_threshold_that_would_allow_a_rollback_is_that_of_the_next_replicate(
    flags: int, first: int, threshold: str
) -> None:
    names = tuple(Flag(name, ("check",)) for name in ("one", "two")[:flags])
    gate = started(policy_with(flags=names), first_replicate=first)
    screen(gate, True, True)
    assert f"A fresh replicate reaching E >= {threshold} would allow rollback." in said(gate).what_would_change
    replicate_on(gate, number=first)
    running = f"Replicate {first} reaching E >= {threshold} would allow rollback."
    assert running in said(gate).what_would_change


def test_after_one_replicate_the_second_threshold_is_named() -> None:
    gate = started(policy_with(acceptance=(32, 56, 75, 90, 100)))
    screen(gate, True, True)
    replicate_on(gate)
    gate.apply(ReplicateAborted(1, 7.0, "separation impossible"))
    screen(gate, True, True)
    assert "A fresh replicate reaching E >= 80 would allow rollback." in said(gate).what_would_change


def test_a_replicate_cut_short_while_clean_claims_no_rate() -> None:
    gate = started()
    screen(gate, True, True, case="c0")
    replicate_on(gate)
    half(gate, 0, CANDIDATE, False)
    gate.apply(ReplicateAborted(1, 7.0, "deadline"))
    assert (
        "Replicate 1 not confirmed (aborted, deadline): 0 of 1 fresh candidate prefills bad, E = 1 against 40; "
        "kept apart by gap." in said(gate).sentences
    )


def test_without_a_plan_replicates_are_numbered_from_the_first() -> None:
    gate = started()
    screen(gate, True, True)
    facts = replace(facts_of(gate), plan=None)
    assert "A fresh replicate reaching E >= 40 would allow rollback." in what_would_change(facts)


# Other reasons


def test_every_reason_without_a_sentence_of_its_own_is_a_distrust() -> None:
    distrusts = {reason for reason in Reason if reason not in REASON_SENTENCES} - {Reason.ACCEPTANCE_REACHED}
    assert distrusts > ERRORS
    assert {str(reason) for reason in distrusts - ERRORS} == {
        "IndependenceUnknown",
        "KnobNotHonoured",
        "Contaminated",
        "UndeclaredDifference",
        "ErrorsLopsided",
        "CandidateRefuses",
    }


@pytest.mark.parametrize(
    ("apply", "reason"),
    [
        (lambda gate: gate.apply(DeadlinePassed(1.0)), Reason.DEADLINE),
        (lambda gate: gate.apply(CandidateUnavailable(1.0, 3, "x")), Reason.CANDIDATE_UNAVAILABLE),
    ],
)
def test_a_reason_has_its_sentence(apply: Callable[[Gate], None], reason: Reason) -> None:
    gate = started()
    apply(gate)
    assert (said(gate).reason, said(gate).sentences[0]) == (str(reason), REASON_SENTENCES[reason])


def test_an_override_names_who_and_why() -> None:
    gate = started()
    gate.apply(Overridden(1.0, "promote", "ann", "the cause is known"))
    assert said(gate).sentences[0] == "A person overrode the gate. ann: the cause is known"
    assert said(gate).promotion == "Allowed"


def test_a_broken_instrument_could_not_measure_and_a_distrust_is_no_error() -> None:
    gate = started()
    for _ in range(3):
        measure(gate, cell(status=Status.INVALID), reason="NotSent")
    assert said(gate).sentences[0] == "Could not measure: 3 invalid cells in a row for c0 on the candidate: NotSent."
    assert said(gate).measured is False
    assert said(gate).what_would_change == ("A measurement that can be trusted: see the first sentence.", PERSON)
    other = started()
    score(other, cell(cached_tokens=99, processed_tokens=1))
    assert said(other).sentences[0].startswith("The measurement cannot be trusted: candidate answered c0 from its")
    assert said(other).measured is True


def test_a_distrust_that_did_not_decide_is_not_the_headline() -> None:
    gate = started()
    score(gate, cell(cached_tokens=99, processed_tokens=1))
    gate.apply(CandidateUnavailable(1.0, 3, "x"))
    assert said(gate).sentences[0] == REASON_SENTENCES[Reason.CANDIDATE_UNAVAILABLE]


def paired(ratio: float, **throughput: Any) -> Stepper:
    policy = replace(STANDARD, throughput=replace(STANDARD.throughput, **throughput))

    def make(step: Any) -> Any:
        return answer_of(step, output_tokens=41, decode_ms=400 * (ratio if step.arm == CANDIDATE else 1.0))

    return Stepper(started(policy), make=make)


def test_the_pairs_that_are_missing_stand_beside_the_units() -> None:
    run = paired(1.0)
    while len(run.cells) < 8 + 10 or run.gate.unchecked():
        run.step()
    view = judge(run.gate).throughput
    assert (view.pairs_used, len(view.missing_prompts)) == (4, 8)
    assert said(run.gate).what_would_change == (
        "27 more clean fresh prefills would promote.",
        f"About {view.pairs_needed} more throughput pairs would decide the speed.",
        PERSON,
    )
    assert view.sentence in said(run.gate).sentences


def test_pairs_that_are_only_reported_hold_nothing_up() -> None:
    run = paired(1.0, required=False)
    run.run()
    assert said(run.gate).promotion == "Allowed"
    assert judge(run.gate).throughput.missing_prompts == ()
    short = paired(1.0, required=False)
    while len(short.cells) < 12 or short.gate.unchecked():
        short.step()
    assert said(short.gate).what_would_change == ("30 more clean fresh prefills would promote.", PERSON)


def test_once_the_units_suffice_only_the_speed_is_wanting() -> None:
    gate = started(replace(STANDARD, baseline_pass=0), cases=[CaseRef("a", "s", 10)])
    for _ in range(32):
        score(gate, cell(case="a"))
    assert said(gate).what_would_change[0].endswith("more throughput pairs would decide the speed.")
    assert said(gate).sentences[0] == SPEED_OPEN
    facts = facts_of(gate)
    leading_nowhere = replace(facts, throughput=replace(facts.throughput, pairs_needed=None))
    wanted = "Throughput pairs that show the speed to be not worse; those so far do not lead there."
    assert what_would_change(leading_nowhere) == (wanted, PERSON)
    settled = replace(leading_nowhere, snapshot=replace(facts.snapshot, throughput=ThroughputState.NOT_WORSE))
    assert what_would_change(settled) == (PERSON,)
    only_reported = replace(leading_nowhere, snapshot=replace(facts.snapshot, throughput_required=False))
    assert what_would_change(only_reported) == (PERSON,)


def test_a_started_replicate_is_asked_for_by_the_schedule_in_the_same_words() -> None:
    run = Stepper(started(), bad=lambda step: step.arm == CANDIDATE)
    step = run.until(StartReplicate)
    assert isinstance(step, StartReplicate)
    assert f"Replicate {step.number} is running" in " ".join(said(run.gate).sentences)
