"""When the measurement itself cannot be trusted: every reason, on both sides of its boundary, and their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core import distrust
from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import BASELINE, CANDIDATE, ColdProof, Status
from prefillgate.core.decision import Distrust, Reason
from prefillgate.core.distrust import DISTRUSTS, find_distrust
from prefillgate.core.exact import rate_lower_bound
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellChecked, Difference, MeasurementLost, Purpose, RunResumed
from prefillgate.core.policy import Flag
from tests.support.journals import cell, epoch, measure, outcome, planned, quality_only, score, screen, started

INVALID = cell(status=Status.INVALID)
FAILED = cell(status=Status.FAILED)


def found(gate: Gate) -> tuple[Reason, str] | None:
    answer = find_distrust(gate)
    return None if answer is None else (answer.reason, answer.sentence)


def met(baseline: dict[str, Any] | None = None, candidate: dict[str, Any] | None = None, **plan: Any) -> Gate:
    """Both servers met, with what is different about each."""
    gate = Gate()
    gate.apply(planned(**plan))
    gate.apply(epoch(BASELINE, **(baseline or {})))
    gate.apply(epoch(CANDIDATE, **(candidate or {})))
    return gate


def test_a_sound_run_is_trusted() -> None:
    gate = started()
    screen(gate, *[False] * 20, True, True)
    for _ in range(8):
        score(gate, cell(BASELINE), purpose=Purpose.BASELINE_PASS)
    assert find_distrust(gate) is None
    assert find_distrust(started(STANDARD)) is None


def test_the_checks_stand_in_their_order() -> None:
    assert [check.__name__ for check in DISTRUSTS] == [
        "measurement_lost",
        "undeclared_difference",
        "changed_during_run",
        "another_baseline",
        "independence_unknown",
        "unproven_by_responses",
        "knob_ignored_in_the_probe",
        "knob_not_honoured",
        "contaminated",
        "case_unusable",
        "body_refused",
        "refused_without_baseline",
        "server_in_use",
        "too_many_invalid",
        "errors_lopsided",
        "check_error",
        "checks_fail_on_baseline",
        "instrument_broken",
        "margin_too_close",
    ]


def test_the_first_that_answers_is_the_reason() -> None:
    gate = met(candidate={"build": "b2", "cold_proof": None, "counter_alive": False})
    assert found(gate) == (
        Reason.UNDECLARED_DIFFERENCE,
        "build differs between the arms and was not declared: baseline b1, candidate b2",
    )
    gate.apply(MeasurementLost(1.0, "Contaminated", "seen by the shell"))
    assert found(gate) == (Reason.CONTAMINATED, "seen by the shell")


@pytest.mark.parametrize(
    ("word", "reason"),
    [("InstrumentBroken", Reason.INSTRUMENT_BROKEN), ("SomethingNew", Reason.MEASUREMENT_LOST)],
)
def test_what_the_shell_saw_keeps_its_reason_where_it_is_known(word: str, reason: Reason) -> None:
    gate = started()
    gate.apply(MeasurementLost(1.0, word, "how"))
    assert found(gate) == (reason, "how")


# Differences between the arms


@pytest.mark.parametrize("name", ["build", "weights"])
def test_builds_or_weights_that_differ_are_named(name: str) -> None:
    gate = met({name: "one"}, {name: "two"})
    assert found(gate) == (
        Reason.UNDECLARED_DIFFERENCE,
        f"{name} differs between the arms and was not declared: baseline one, candidate two",
    )
    assert find_distrust(met({name: "one"}, {name: None})) is None
    assert find_distrust(met({name: None}, {name: "two"})) is None
    assert find_distrust(met({name: "same"}, {name: "same"})) is None
    declared = met({name: "one"}, {name: "two"}, differences=(Difference("build", name, "one", "two"),))
    assert find_distrust(declared) is None


def test_another_engine_on_one_arm_is_named() -> None:
    gate = met({"engine": "vllm"}, {"engine": "sglang"})
    words = "engine differs between the arms and was not declared: baseline vllm, candidate sglang"
    assert found(gate) == (Reason.UNDECLARED_DIFFERENCE, words)
    declared = (Difference("build", "engine", "vllm", "sglang"),)
    assert find_distrust(met({"engine": "vllm"}, {"engine": "sglang"}, differences=declared)) is None
    assert find_distrust(met({"engine": "vllm"}, {"engine": "vllm"})) is None


def test_an_undeclared_difference_of_the_plan_is_one() -> None:
    differences = (
        Difference("draft head", "-md", "a", "b"),
        Difference("KV cache", "-ctk", "f16", "q8_0", declared=False),
    )
    assert found(met(differences=differences)) == (
        Reason.UNDECLARED_DIFFERENCE,
        "-ctk differs between the arms and was not declared: baseline f16, candidate q8_0",
    )
    unknown = Difference("KV cache", "-ctk", None, "q8_0", declared=False)
    assert find_distrust(met(differences=(unknown,))) is None


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_a_knob_that_the_probe_saw_ignored_is_told_with_what_would_give_proof(arm: str) -> None:
    gate = met(**{arm: {"knob_ignored": "`x` is not honoured; a flag would", "cold_proof": None}})
    words = f"independence unknown on the {arm} (llama.cpp): `x` is not honoured; a flag would"
    assert found(gate) == (Reason.KNOB_NOT_HONOURED, words)
    gate.apply(epoch(arm, "e2"))
    assert find_distrust(gate) is None, "a later life of the server honours it"


def test_before_both_arms_were_met_nothing_differs() -> None:
    gate = Gate()
    gate.apply(planned())
    gate.apply(epoch(CANDIDATE, build="b2"))
    assert find_distrust(gate) is None


def test_the_lives_seen_last_are_compared() -> None:
    gate = met({"build": None}, {"build": None})
    gate.apply(epoch(CANDIDATE, "e2", build="b2"))
    assert find_distrust(gate) is None
    gate.apply(epoch(BASELINE, "e2", build="b1"))
    assert found(gate) is not None


@pytest.mark.parametrize("arm", [BASELINE, CANDIDATE])
@pytest.mark.parametrize("name", ["build", "weights"])
def test_a_server_that_comes_back_as_another_voids_the_run(arm: str, name: str) -> None:
    gate = met({name: "one"}, {name: "one"}, differences=(Difference("build", name, "one", "two"),))
    gate.apply(epoch(arm, "e2", **{name: None}))
    assert find_distrust(gate) is None
    gate.apply(epoch(arm, "e3", **{name: "two"}))
    gate.apply(epoch(arm, "e4", **{name: "one"}))
    assert found(gate) == (Reason.UNDECLARED_DIFFERENCE, f"{name} of the {arm} changed during the run: one, then two")


# Independence


@pytest.mark.parametrize("arm", [BASELINE, CANDIDATE])
def test_without_a_knob_and_a_living_counter_independence_is_unknown(arm: str) -> None:
    gate = started()
    gate.apply(epoch(arm, "e2", cold_proof=None, counter_alive=False))
    assert found(gate) == (
        Reason.INDEPENDENCE_UNKNOWN,
        f"independence unknown on the {arm} (llama.cpp): the server told no cached tokens",
    )
    gate.apply(epoch(arm, "e3", cold_proof=None, counter_alive=False, findings=("no counter", "no knob")))
    assert found(gate) == (
        Reason.INDEPENDENCE_UNKNOWN,
        f"independence unknown on the {arm} (llama.cpp): no counter; no knob",
    )
    gate.apply(epoch(arm, "e4", cold_proof="nonce", counter_alive=False))
    assert find_distrust(gate) is None
    gate.apply(epoch(arm, "e5", cold_proof=None, counter_alive=True))
    assert find_distrust(gate) is None


CACHED = {"cached_tokens": 99, "processed_tokens": 1}
PARTIAL = {"cached_tokens": 20, "processed_tokens": 80}


@pytest.mark.parametrize("proof", [ColdProof.CACHE_OFF, ColdProof.SALT])
@pytest.mark.parametrize(("changes", "parent"), [(CACHED, True), (PARTIAL, True), (CACHED, False)])
def test_a_forced_prefill_that_rode_the_cache_shows_a_knob_that_is_not_honoured(
    proof: ColdProof, changes: dict[str, int], parent: bool
) -> None:
    gate = started()
    if parent:
        score(gate, cell())
    score(gate, cell(cold_proof=proof, **changes))
    reason, sentence = found(gate) or (None, "")
    assert reason is Reason.KNOB_NOT_HONOURED
    cached = changes["cached_tokens"]
    assert sentence.startswith(f"candidate answered c0 from its cache (cached {cached} of 100")
    assert sentence.endswith(f") although the request forced a fresh prefill ({proof})")


def test_a_nonce_or_no_proof_leaves_a_cached_cell_what_it_is() -> None:
    gate = started()
    for proof in (ColdProof.NONCE, None):
        score(gate, cell())
        score(gate, cell(cold_proof=proof, **CACHED))
        score(gate, cell(cold_proof=proof, **PARTIAL))
    assert find_distrust(gate) is None


@pytest.mark.parametrize("arm", [BASELINE, CANDIDATE])
def test_three_cells_from_the_cache_under_a_nonce_are_too_short_for_it(arm: str) -> None:
    gate = started()
    other = CANDIDATE if arm == BASELINE else BASELINE
    for number, changes in enumerate((PARTIAL, CACHED)):
        score(gate, cell(arm, f"c{number}", cold_proof=ColdProof.NONCE, **changes))
        score(gate, cell(other, f"c{number}", cold_proof=ColdProof.NONCE, **changes))
    assert find_distrust(gate) is None
    score(gate, cell(arm, "c2", cold_proof=ColdProof.NONCE))
    assert find_distrust(gate) is None
    score(gate, cell(arm, "c3", cold_proof=ColdProof.NONCE, **PARTIAL))
    assert found(gate) == (
        Reason.KNOB_NOT_HONOURED,
        f"{arm} answered 3 cells from its cache under a nonce (last: c3, cached 20 of 100, its fresh parent never "
        "seen): what stands before the nonce is too large a share of these prompts",
    )


def test_text_of_another_conversation_contaminates() -> None:
    gate = started()
    cell_id = measure(gate, cell(case="c3"))
    gate.apply(CellChecked(cell_id, (outcome(True, "other"), outcome(False, "foreign_text"))))
    assert find_distrust(gate) is None
    cell_id = measure(gate, cell(BASELINE, "c4"))
    gate.apply(CellChecked(cell_id, (outcome(True, "foreign_text", "nonce 1a2b"),)))
    assert found(gate) == (
        Reason.CONTAMINATED,
        "baseline answered c4 with text of another conversation (nonce 1a2b)",
    )


# Cases and bodies


@pytest.mark.parametrize(
    ("status", "http", "reason", "what"),
    [
        (Status.FAILED, 500, "ServerError", "500"),
        (Status.FAILED, 502, "ServerError", "502"),
        (Status.FAILED, 504, "ServerError", "504"),
        (Status.FAILED, 200, "NotJson", "NotJson"),
        (Status.INVALID, 400, "Rejected", "400"),
        (Status.INVALID, 413, "Rejected", "413"),
        (Status.INVALID, 422, "Rejected", "422"),
    ],
)
def test_the_same_fault_from_both_arms_on_one_case_makes_it_unusable(
    status: Status, http: int, reason: str, what: str
) -> None:
    gate = started()
    measure(gate, cell(CANDIDATE, "c1", status=status), http_status=http, reason=reason)
    measure(gate, cell(BASELINE, "c2", status=status), http_status=http, reason=reason)
    assert distrust.case_unusable(gate) is None
    measure(gate, cell(BASELINE, "c1", status=status), http_status=http, reason=reason)
    assert found(gate) == (Reason.CASE_UNUSABLE, f"case c1 is unusable: both arms answer it with {what}")


def test_an_unusable_case_is_told_with_the_last_words_of_a_server() -> None:
    gate = started()
    for arm, words in ((CANDIDATE, "HTTP 500: no"), (BASELINE, "HTTP 500: image input is not supported")):
        measure(gate, cell(arm, "c1", status=Status.FAILED), http_status=500, reason="HttpError", detail=words)
    told = "case c1 is unusable: both arms answer it with 500 (HTTP 500: image input is not supported)"
    assert found(gate) == (Reason.CASE_UNUSABLE, told)


def test_unlike_faults_or_faults_of_other_kinds_leave_the_case_usable() -> None:
    gate = started()
    for arm, http in ((CANDIDATE, 500), (BASELINE, 502)):
        measure(gate, cell(arm, status=Status.FAILED), http_status=http)
    for arm in (CANDIDATE, BASELINE):
        measure(gate, cell(arm, "c1", status=Status.FAILED), http_status=503)
        measure(gate, cell(arm, "c2", status=Status.FAILED), reason="ConnectionLost")
        measure(gate, cell(arm, "c3", status=Status.INVALID), http_status=404, reason="NotJson")
        measure(gate, cell(arm, "c4", status=Status.INVALID), http_status=500)
    assert distrust.case_unusable(gate) is None


@pytest.mark.parametrize("http", [400, 413, 422])
def test_a_body_the_candidate_refuses_and_the_baseline_completes(http: int) -> None:
    gate = started()
    measure(gate, cell(CANDIDATE, status=Status.INVALID), http_status=http, detail="too long")
    assert find_distrust(gate) is None  # the baseline was not asked yet
    score(gate, cell(BASELINE, "c1"))
    measure(gate, cell(BASELINE, status=Status.FAILED))
    assert find_distrust(gate) is None
    score(gate, cell(BASELINE, output_tokens=7))
    assert found(gate) == (
        Reason.CANDIDATE_REFUSES,
        f"candidate answers c0 with {http}: too long; the baseline completes it (100 prompt tokens, 7 output tokens)",
    )


def test_a_body_the_baseline_refuses() -> None:
    gate = started()
    measure(gate, cell(BASELINE, status=Status.INVALID), http_status=400, detail="no such field")
    assert find_distrust(gate) is None  # the candidate was not asked yet
    score(gate, cell(CANDIDATE, output_tokens=7))
    assert found(gate) == (
        Reason.BASELINE_REFUSES,
        "baseline answers c0 with 400: no such field; the candidate completes it (100 prompt tokens, 7 output tokens)",
    )


@pytest.mark.parametrize("http", [401, 404, 429, 503, None])
def test_other_refusals_are_no_refusal_of_a_body(http: int | None) -> None:
    gate = started()
    measure(gate, cell(CANDIDATE, status=Status.INVALID), http_status=http)
    score(gate, cell(BASELINE))
    assert distrust.body_refused(gate) is None


def test_a_failed_answer_with_such_a_status_is_no_refusal() -> None:
    gate = started()
    measure(gate, cell(CANDIDATE, status=Status.FAILED), http_status=400)
    score(gate, cell(BASELINE))
    assert distrust.body_refused(gate) is None


# Invalid cells


@pytest.mark.parametrize("arm", [BASELINE, CANDIDATE])
def test_three_invalid_cells_in_a_row_for_one_case_on_one_arm_are_an_error(arm: str) -> None:
    gate = started()
    measure(gate, cell(arm, "c1", status=Status.INVALID), reason="NotIdle")
    for _ in range(2):
        measure(gate, cell(arm, status=Status.INVALID), reason="NotIdle")
    assert find_distrust(gate) is None
    measure(gate, cell(arm, status=Status.INVALID), reason="EpochChanged", detail="restarted")
    assert found(gate) == (
        Reason.INVALID_CELLS,
        f"3 invalid cells in a row for c0 on the {arm}: EpochChanged: restarted",
    )
    measure(gate, cell(arm, status=Status.INVALID), reason="NotIdle")
    assert found(gate) == (
        Reason.INVALID_CELLS,
        f"4 invalid cells in a row for c0 on the {arm}: NotIdle; --isolation shared, in a new store, judges quality on "
        "a server in use (no decode speed); or run this again at a quiet hour",
    )


def test_a_baseline_that_refuses_is_unavailable() -> None:
    gate = started()
    for _ in range(3):
        measure(gate, cell(BASELINE, status=Status.INVALID), reason="ConnectionRefused", detail="no one there")
    assert found(gate) == (
        Reason.BASELINE_UNAVAILABLE,
        "3 invalid cells in a row for c0 on the baseline: ConnectionRefused: no one there",
    )


def test_refusals_of_a_candidate_that_was_met_are_left_to_the_rule_of_availability() -> None:
    gate = started(quality_only(refusals=9))
    for _ in range(8):
        measure(gate, INVALID, reason="ConnectionRefused")
    for _ in range(8):
        score(gate, cell(BASELINE, "c1"))
    assert find_distrust(gate) is None
    measure(gate, INVALID, reason="NotIdle")
    assert (found(gate) or (None,))[0] is Reason.INVALID_CELLS


def test_refusals_of_a_candidate_that_was_never_met_are_an_error() -> None:
    gate = Gate()
    gate.apply(planned())
    for _ in range(3):
        measure(gate, replace(INVALID, server_epoch=None), reason="ConnectionRefused")
    assert found(gate) == (Reason.INVALID_CELLS, "3 invalid cells in a row for c0 on the candidate: ConnectionRefused")


def lopsided(arm: str, invalid: int, total: int, other: int, **more: Any) -> Gate:
    gate = started(cases=60)
    mate = BASELINE if arm == CANDIDATE else CANDIDATE
    for i in range(total):
        if i < invalid:
            measure(gate, cell(arm, f"c{i}", status=Status.INVALID), **{"reason": "NotVerified", **more})
        else:
            score(gate, cell(arm, f"c{i}"))
    for i in range(other):
        score(gate, cell(mate, f"c{i}"))
    return gate


@pytest.mark.parametrize(("arm", "other"), [(CANDIDATE, BASELINE), (BASELINE, CANDIDATE)])
def test_invalid_cells_that_fall_on_one_arm_are_lopsided(arm: str, other: str) -> None:
    assert found(lopsided(arm, 6, 12, 12)) == (
        Reason.ERRORS_LOPSIDED,
        f"6 of 12 cells of the {arm} were invalid, 0 of 12 of the {other}",
    )
    assert find_distrust(lopsided(arm, 5, 12, 12)) is None  # p = .019
    assert find_distrust(lopsided(arm, 12, 12, 0)) is None


def test_p_must_be_below_one_in_a_hundred() -> None:
    assert found(lopsided(CANDIDATE, 3, 3, 8)) is not None  # 1 of 165
    assert find_distrust(lopsided(CANDIDATE, 2, 2, 12)) is None  # 1 of 91
    assert found(lopsided(CANDIDATE, 2, 2, 13)) is not None  # 1 of 105
    assert find_distrust(lopsided(CANDIDATE, 7, 13, 9)) is None  # p = 0.01006


@pytest.mark.parametrize("http", [429, 503])
def test_a_busy_server_is_not_lopsided(http: int) -> None:
    assert find_distrust(lopsided(CANDIDATE, 9, 18, 18, http_status=http)) is None


def test_refusals_in_a_row_are_not_lopsided_and_earlier_ones_are() -> None:
    gate = started(quality_only(refusals=99), cases=60)
    for i in range(20):
        score(gate, cell(BASELINE, f"c{i}"))
        score(gate, cell(CANDIDATE, f"c{i}"))
    for i in range(20, 40):
        measure(gate, cell(CANDIDATE, f"c{i}", status=Status.INVALID), reason="ConnectionRefused")
    assert find_distrust(gate) is None
    score(gate, cell(CANDIDATE))
    assert found(gate) == (
        Reason.ERRORS_LOPSIDED,
        "20 of 41 cells of the candidate were invalid, 0 of 20 of the baseline",
    )


def test_a_refusal_under_way_takes_nothing_from_what_is_lopsided_already() -> None:
    gate = lopsided(CANDIDATE, 2, 2, 13)
    measure(gate, cell(CANDIDATE, "c9", status=Status.INVALID), reason="ConnectionRefused")
    assert found(gate) == (
        Reason.ERRORS_LOPSIDED,
        "2 of 2 cells of the candidate were invalid, 0 of 13 of the baseline",
    )


def test_a_refusing_candidate_that_was_never_met_counts_as_it_is() -> None:
    gate = Gate()
    gate.apply(planned(cases=60))
    gate.apply(epoch(BASELINE))
    for i in range(20):
        score(gate, cell(BASELINE, f"c{i}"))
    for i in range(2):
        measure(gate, cell(CANDIDATE, f"c{i}", status=Status.INVALID), reason="ConnectionRefused")
    assert (found(gate) or (None,))[0] is Reason.ERRORS_LOPSIDED


# Checks and instrument


def checked(gate: Gate, *bads: bool | None, check: str = "schema", arm: str = CANDIDATE) -> None:
    for bad in bads:
        cell_id = measure(gate, cell(arm, f"c{gate.next_cell_id() % 12}"))
        gate.apply(CellChecked(cell_id, (outcome(False, "words"), outcome(bad, check, "why"))))


def test_a_check_that_errs_on_three_cells_in_a_row_is_an_error() -> None:
    gate = started()
    checked(gate, None, None, False, None, None)
    checked(gate, None, check="other")
    assert find_distrust(gate) is None
    checked(gate, None)
    assert found(gate) == (Reason.CHECK_ERROR, "check schema erred on 3 cells in a row: why")


def test_a_check_that_is_only_reported_may_err_on_every_cell() -> None:
    gate = started()
    checked(gate, None, None, None, None, check="equal_to_baseline", arm=BASELINE)
    assert find_distrust(gate) is None
    flags = (Flag("f", ("words",)), Flag("g", ("equal_to_baseline",)))
    named = started(replace(STANDARD, flags=flags))
    checked(named, None, None, None, check="equal_to_baseline")
    assert found(named) == (Reason.CHECK_ERROR, "check equal_to_baseline erred on 3 cells in a row: why")


def baseline_pass(bad: int, cells: int = 8, policy: Any = None) -> Gate:
    gate = started(replace(policy or STANDARD, baseline_pass=cells))
    for i, case in enumerate(gate.places.baseline_pass):
        cell_id = measure(gate, cell(BASELINE, case), Purpose.BASELINE_PASS)
        failing = (outcome(i < bad, "schema"), outcome(i < bad - 1, "words"), outcome(False, "loop"))
        gate.apply(CellChecked(cell_id, failing))
    return gate


def test_checks_that_fail_on_the_baseline_stop_the_run() -> None:
    assert find_distrust(baseline_pass(2)) is None  # at least .046
    gate = baseline_pass(3)  # at least .111
    assert found(gate) == (
        Reason.CHECKS_FAIL_ON_BASELINE,
        "your checks fail on the baseline: 3 of 8 cells bad before the candidate was asked "
        f"(schema on 3, words on 2; first: {gate.places.baseline_pass[0]})",
    )
    assert find_distrust(baseline_pass(3, policy=replace(STANDARD, margin=0.20))) is None
    assert find_distrust(baseline_pass(0)) is None
    at_the_margin = replace(STANDARD, margin=rate_lower_bound(3, 8))
    assert find_distrust(baseline_pass(3, policy=at_the_margin)) is not None


def test_the_pass_must_have_ended_and_only_it_counts() -> None:
    gate = started(replace(STANDARD, baseline_pass=8))
    for case in gate.places.baseline_pass[:7]:
        score(gate, cell(BASELINE, case), True, Purpose.BASELINE_PASS)
    assert find_distrust(gate) is None
    score(gate, cell(BASELINE, gate.places.baseline_pass[7]), None, Purpose.BASELINE_PASS)
    reason, sentence = found(gate) or (None, "")
    assert reason is Reason.CHECKS_FAIL_ON_BASELINE
    assert "7 of 7 cells bad" in sentence
    later = baseline_pass(0)
    for i in range(8):
        score(later, cell(BASELINE, f"c{i}"), True, Purpose.PAIR, pair=i)
    assert find_distrust(later) is None


def test_a_pass_without_a_complete_answer_says_so() -> None:
    gate = started(replace(STANDARD, baseline_pass=8))
    for case in gate.places.baseline_pass:
        measure(gate, cell(BASELINE, case, status=Status.FAILED), Purpose.BASELINE_PASS)
    assert found(gate) == (
        Reason.CHECKS_FAIL_ON_BASELINE,
        "your checks fail on the baseline: 8 of 8 cells bad before the candidate was asked "
        f"(no complete answer; first: {gate.places.baseline_pass[0]})",
    )


def test_the_three_checks_that_fail_most_are_named() -> None:
    gate = started(replace(STANDARD, baseline_pass=8))
    for i, case in enumerate(gate.places.baseline_pass):
        cell_id = measure(gate, cell(BASELINE, case), Purpose.BASELINE_PASS)
        gate.apply(CellChecked(cell_id, tuple(outcome(i <= place, name) for place, name in enumerate("abcd"))))
    assert "(d on 4, c on 3, b on 2; first:" in (found(gate) or (None, ""))[1]


def passes(ms_per_token: float = 10.0, second_bad: bool = False, aa_check: bool = True, **throughput: Any) -> Gate:
    """Both passes over the baseline; every second cell of the second takes `ms_per_token`."""
    policy = replace(STANDARD, aa_check=aa_check, throughput=replace(STANDARD.throughput, **throughput))
    gate = started(policy)
    for purpose in (Purpose.BASELINE_PASS, Purpose.AA):
        for i in range(12):
            slow = purpose is Purpose.AA and i % 2
            made = cell(BASELINE, f"c{i}", output_tokens=41, decode_ms=40 * (ms_per_token if slow else 10.0))
            score(gate, made, second_bad and purpose is Purpose.AA, purpose)
    return gate


def test_two_passes_that_differ_break_the_instrument_where_it_is_checked() -> None:
    assert find_distrust(passes()) is None
    reason, sentence = found(passes(second_bad=True)) or (None, "")
    assert reason is Reason.INSTRUMENT_BROKEN
    assert sentence.startswith("the second pass over the baseline is worse than the first (E ")
    assert find_distrust(passes(second_bad=True, aa_check=False)) is None


def test_a_margin_too_close_for_the_noise_of_the_passes_is_refused() -> None:
    gate = passes(11.9, margin=-0.02)
    assert distrust.instrument_broken(gate) is None
    reason, sentence = found(gate) or (None, "")
    assert reason is Reason.INSTRUMENT_BROKEN
    assert sentence.startswith("throughput margin -2.0% cannot be told from equal here: cells vary by 6.4%")
    assert find_distrust(passes(10.5, margin=-0.02)) is None
    assert find_distrust(passes(11.9, margin=-0.05)) is None
    assert find_distrust(passes(11.9, margin=-0.02, required=False)) is None


def test_a_distrust_is_a_reason_and_a_sentence() -> None:
    assert Distrust(Reason.CONTAMINATED, "x") == Distrust(Reason.CONTAMINATED, "x")
    assert measure(started(), FAILED) == 0


def test_invalid_cells_of_before_a_resume_make_no_run_lopsided() -> None:
    gate = started()
    for number in range(8):
        score(gate, cell(BASELINE, f"c{number}"))
    for number in range(3):
        measure(gate, cell(CANDIDATE, f"c{number}", status=Status.INVALID), reason="NotIdle")
    assert found(gate) == (Reason.ERRORS_LOPSIDED, "3 of 3 cells of the candidate were invalid, 0 of 8 of the baseline")
    gate.apply(RunResumed(9.0))
    assert find_distrust(gate) is None
