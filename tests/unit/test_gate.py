"""The gate: what each event changes, and what cannot follow what came before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, ColdProof, Status
from prefillgate.core.gate import BUSY, REFUSALS, REFUSED_BODY, Gate, JournalError, cells_of, fold
from prefillgate.core.journal import (
    CandidateUnavailable,
    CauseNoted,
    CellChecked,
    CellMeasured,
    DeadlinePassed,
    Event,
    MeasurementLost,
    Overridden,
    OverrideEnded,
    Purpose,
    ReplicateAborted,
    ReplicateStarted,
    RunResumed,
    SeparationKept,
)
from prefillgate.core.policy import Flag
from prefillgate.core.replicate import Ending
from tests.support.journals import (
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


def with_replicate(number: int = 1, separated: bool = True, **more: object) -> Gate:
    """A gate after an alarm, in its replicate; both bad cells on c0."""
    gate = started(**more)  # type: ignore[arg-type]
    screen(gate, True, True, case="c0")
    gate.apply(ReplicateStarted(number, 5.0, 99))
    if separated:
        gate.apply(SeparationKept(number, 6.0, "gap", "600 s after"))
    return gate


def unit(gate: Gate, bad: bool | None, pair: int = 0, arm: str = CANDIDATE, number: int = 1, **changes: object) -> None:
    """One scored half of a replicate."""
    made = cell(arm, gate.replicates[-1].plan.prompts[pair], replicate=number, **changes)
    score(gate, made, bad, Purpose.REPLICATE, pair=pair)


# What cannot follow


def test_a_journal_begins_with_its_plan_and_has_one() -> None:
    with pytest.raises(JournalError, match="the journal begins with DeadlinePassed, not with a plan"):
        Gate().apply(DeadlinePassed(1.0))
    with pytest.raises(JournalError, match="a second plan in one journal"):
        started().apply(planned())
    with pytest.raises(JournalError, match="the journal is empty"):
        _ = Gate().plan


def test_a_cell_stands_once() -> None:
    gate = started()
    event = CellMeasured(0, cell(), Purpose.SCREEN)
    gate.apply(event)
    with pytest.raises(JournalError, match="cell 0 stands twice in the journal"):
        gate.apply(event)


def test_only_a_complete_answer_is_checked_and_only_once() -> None:
    gate = started()
    with pytest.raises(JournalError, match="checks of cell 0, which has no answer"):
        gate.apply(CellChecked(0, ()))
    failed = measure(gate, cell(status=Status.FAILED))
    with pytest.raises(JournalError, match=f"checks of cell {failed}, which has no answer"):
        gate.apply(CellChecked(failed, ()))
    checked = score(gate, cell())
    with pytest.raises(JournalError, match=f"cell {checked} was checked twice"):
        gate.apply(CellChecked(checked, (outcome(False),)))


@pytest.mark.parametrize("first", [1, 3])
def test_replicates_are_started_in_their_number(first: int) -> None:
    gate = started(first_replicate=first)
    with pytest.raises(JournalError, match=f"replicate {first + 1} started where number {first} was due"):
        gate.apply(ReplicateStarted(first + 1, 5.0, 99))
    gate.apply(ReplicateStarted(first, 5.0, 99))
    assert gate.replicate(first) is gate.replicates[0]
    for missing in (first - 1, first + 1):
        with pytest.raises(JournalError, match=f"replicate {missing} was never started"):
            gate.replicate(missing)
    with pytest.raises(JournalError, match=f"replicate {first + 1} started before replicate {first} ended"):
        gate.apply(ReplicateStarted(first + 1, 5.0, 98))
    gate.apply(ReplicateAborted(first, 6.0, "deadline"))
    gate.apply(ReplicateStarted(first + 1, 7.0, 98))
    assert [r.plan.number for r in gate.replicates] == [first, first + 1]
    assert [event.seed for event in gate.replicate_seeds] == [99, 98]


def test_a_replicate_has_no_cell_before_its_separation() -> None:
    gate = with_replicate(separated=False)
    with pytest.raises(JournalError, match="cell 2 of replicate 1 before its separation"):
        unit(gate, True)


def test_an_event_of_no_known_kind_is_refused() -> None:
    with pytest.raises(JournalError, match="unknown event str"):
        started().apply("word")  # type: ignore[arg-type]


# Facts that are only kept


def test_single_facts_are_kept_as_they_came() -> None:
    unavailable = CandidateUnavailable(1.0, 3, "refused")
    lost, deadline = MeasurementLost(1.0, "Contaminated", "x"), DeadlinePassed(2.0)
    overridden, cause = Overridden(3.0, "promote", "me", "why"), CauseNoted(4.0, "me", "cosmic ray")
    gate = started()
    assert (gate.unavailable, gate.lost, gate.deadline, gate.overridden, gate.cause) == (None,) * 5
    for event in (unavailable, lost, deadline, overridden, cause):
        gate.apply(event)
    assert (gate.unavailable, gate.lost, gate.deadline) == (unavailable, lost, deadline)
    assert (gate.overridden, gate.cause) == (overridden, cause)


def test_a_persons_word_holds_until_it_is_over_and_the_last_one_counts() -> None:
    gate, hold = started(), Overridden(2.0, "hold", "me", "wait")
    gate.apply(Overridden(1.0, "promote", "me", "why"))
    gate.apply(hold)
    assert gate.overridden == hold
    gate.apply(OverrideEnded(3.0, "taken away"))
    assert gate.overridden is None
    gate.apply(hold)
    assert gate.overridden == hold


def test_a_resumed_run_is_a_new_session_with_a_new_deadline() -> None:
    gate = started()
    first = score(gate, cell())
    gate.apply(DeadlinePassed(1.0))
    gate.apply(RunResumed(2.0))
    second = score(gate, cell())
    assert gate.session == 1
    assert gate.deadline is None
    assert (gate.session_of(first), gate.session_of(second)) == (0, 1)


def test_a_resumed_run_tries_anew_what_could_not_be_measured_or_reached() -> None:
    gate = started()
    kept = score(gate, cell(), True)
    for _ in range(3):
        measure(gate, cell(status=Status.INVALID), reason="ConnectionRefused")
    gate.apply(CandidateUnavailable(1.0, 3, "refused"))
    gate.apply(MeasurementLost(1.0, "InstrumentBroken", "x"))
    gate.apply(RunResumed(2.0))
    assert (gate.refusals, gate.invalid_runs(), gate.unavailable, gate.lost) == (0, [], None, None)
    assert [event.cell_id for event in gate.scored] == [kept]
    assert len(gate.measured) == 4


def test_epochs_are_kept_by_arm() -> None:
    gate = started()
    gate.apply(epoch(CANDIDATE, "e2"))
    assert [seen.server_epoch for seen in gate.epochs[CANDIDATE]] == ["e1", "e2"]
    assert [seen.server_epoch for seen in gate.epochs[BASELINE]] == ["e1"]
    assert tuple(Gate().epochs) == ARMS


# Scoring


def test_an_answer_is_scored_when_it_was_checked_and_a_failed_cell_at_once() -> None:
    gate = started()
    cell_id = measure(gate, cell())
    assert (gate.scored, gate.prefills_used, gate.next_cell_id()) == ([], 0, 1)
    assert [event.cell_id for event in gate.unchecked()] == [cell_id]
    gate.apply(CellChecked(cell_id, (outcome(False),)))
    assert gate.unchecked() == []
    measure(gate, cell(case="c1", status=Status.FAILED))
    measure(gate, cell(case="c2", status=Status.INVALID))
    assert [(event.cell.case_id, event.cell.bad) for event in gate.scored] == [("c0", False), ("c1", True)]
    assert (gate.prefills_used, gate.next_cell_id()) == (2, 3)
    assert gate.unchecked() == []
    assert gate.candidate_ledgers()[0].bad == 1
    assert gate.candidate_ledgers()[0].decision_prefills == 2


def test_the_cells_of_an_arm_in_scoring_order() -> None:
    gate = started()
    for arm, case in ((CANDIDATE, "c1"), (BASELINE, "c0"), (CANDIDATE, "c0")):
        score(gate, cell(arm, case))
    assert [event.cell.case_id for event in cells_of(gate, CANDIDATE)] == ["c1", "c0"]
    assert [event.cell.case_id for event in cells_of(gate, BASELINE)] == ["c0"]


def bad_of(gate: Gate, *outcomes: tuple[str, bool | None]) -> bool | None:
    cell_id = measure(gate, cell())
    gate.apply(CellChecked(cell_id, tuple(outcome(bad, check) for check, bad in outcomes)))
    return gate.scored[-1].cell.bad


def test_the_default_flag_is_bad_if_any_check_fails_and_unknown_if_one_erred() -> None:
    gate = started()
    assert bad_of(gate, ("a", False), ("b", False)) is False
    assert bad_of(gate, ("a", False), ("b", True)) is True
    assert bad_of(gate, ("a", None), ("b", True)) is True
    assert bad_of(gate, ("a", None), ("b", False)) is None
    assert bad_of(gate) is None


@pytest.mark.parametrize("check", ["equal_to_baseline", "slow"])
def test_what_is_only_reported_is_not_in_the_default_flag(check: str) -> None:
    gate = started()
    assert bad_of(gate, ("a", False), (check, True)) is False
    assert bad_of(gate, (check, True)) is None
    named = started(quality_only(flags=(Flag("f", (check,)),)))
    assert bad_of(named, (check, True)) is True


def test_cut_is_in_the_default_flag_only_if_the_baseline_pass_shows_none() -> None:
    clean = started()
    assert clean.baseline_pass_cut is False
    score(clean, cell(BASELINE), purpose=Purpose.BASELINE_PASS)
    assert bad_of(clean, ("a", False), ("cut", True)) is True
    shown = started()
    cell_id = measure(shown, cell(BASELINE), Purpose.BASELINE_PASS)
    shown.apply(CellChecked(cell_id, (outcome(False, "a"), outcome(True, "cut"))))
    assert shown.baseline_pass_cut is True
    assert shown.scored[-1].cell.bad is False
    score(shown, cell(BASELINE), purpose=Purpose.BASELINE_PASS)
    assert shown.baseline_pass_cut is True
    assert bad_of(shown, ("a", False), ("cut", True)) is False
    other = started()
    cell_id = measure(other, cell(BASELINE), Purpose.BASELINE_PASS)
    other.apply(CellChecked(cell_id, (outcome(True, "a"), outcome(False, "cut"))))
    assert other.baseline_pass_cut is False


def test_a_cut_answer_outside_of_the_baseline_pass_does_not_switch_cut_off() -> None:
    gate = started()
    cell_id = measure(gate, cell(BASELINE), Purpose.PAIR, pair=0)
    gate.apply(CellChecked(cell_id, (outcome(True, "cut"),)))
    assert gate.baseline_pass_cut is False


def test_a_flag_that_names_cut_keeps_it() -> None:
    gate = started(quality_only(flags=(Flag("f", ("cut",)),)))
    cell_id = measure(gate, cell(BASELINE), Purpose.BASELINE_PASS)
    gate.apply(CellChecked(cell_id, (outcome(True, "cut"),)))
    assert bad_of(gate, ("cut", True)) is True


TWO = (Flag("shape", ("schema",)), Flag("taste", ("words", "loop")))


def test_each_flag_has_its_own_outcome_and_a_cell_is_bad_if_any_is() -> None:
    gate = started(quality_only(flags=TWO))
    assert gate.flags == TWO
    assert bad_of(gate, ("schema", False), ("words", True), ("loop", False)) is True
    assert gate.scored[-1].cell.flag_outcomes == (("shape", False), ("taste", True))
    assert bad_of(gate, ("schema", False), ("words", False), ("loop", None)) is None
    assert gate.scored[-1].cell.flag_outcomes == (("shape", False), ("taste", None))
    assert bad_of(gate, ("schema", False), ("words", False), ("loop", False)) is False
    assert [ledger.bad for ledger in gate.candidate_ledgers()] == [0, 1]
    assert [ledger.decision_prefills for ledger in gate.candidate_ledgers()] == [3, 2]


# Invalid cells and refusals


def test_invalid_cells_in_a_row_are_counted_by_arm_and_case() -> None:
    gate = started()
    invalid = cell(status=Status.INVALID)
    measure(gate, invalid, reason="NotIdle")
    measure(gate, invalid, reason="NotIdle")
    measure(gate, cell(case="c1", status=Status.INVALID), reason="NotIdle")
    measure(gate, cell(BASELINE, status=Status.INVALID), reason="NotIdle")
    assert sorted(gate.invalid_runs()) == [("baseline", "c0", 1), ("candidate", "c0", 2), ("candidate", "c1", 1)]
    score(gate, cell())
    assert sorted(gate.invalid_runs()) == [("baseline", "c0", 1), ("candidate", "c1", 1)]
    measure(gate, invalid, reason="NotIdle")
    assert ("candidate", "c0", 1) in gate.invalid_runs()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_not_among_the_three(status: int) -> None:
    gate = started()
    measure(gate, cell(status=Status.INVALID), reason="ConnectionRefused", http_status=status)
    assert gate.invalid_runs() == []
    assert gate.refusals == 0
    measure(gate, cell(status=Status.INVALID), reason="Refused", http_status=400)
    measure(gate, cell(status=Status.INVALID), reason="Busy", http_status=status)
    assert gate.invalid_runs() == [("candidate", "c0", 1)]
    assert gate.refusals == 1


@pytest.mark.parametrize("reason", sorted(REFUSALS))
def test_refusals_of_the_candidate_in_a_row(reason: str) -> None:
    gate = started()
    refused = cell(status=Status.INVALID)
    measure(gate, refused, reason=reason)
    measure(gate, replace(refused, case_id="c1"), reason=reason)
    measure(gate, replace(refused, arm=BASELINE), reason=reason)
    assert gate.refusals == 2
    measure(gate, refused, reason="NotIdle")
    assert gate.refusals == 0
    measure(gate, refused, reason=reason)
    measure(gate, cell(status=Status.FAILED), reason=reason)
    assert gate.refusals == 0


def test_what_counts_as_a_refusal() -> None:
    assert {"ConnectionRefused", "Tls", "ConnectTimeout", "NameNotFound", "Refused"} == REFUSALS


def test_which_answers_refuse_a_body_and_which_ask_to_wait() -> None:
    assert {400, 413, 422} == REFUSED_BODY
    assert {429, 503} == BUSY


# Alarm


def test_two_bad_units_in_a_row_alarm() -> None:
    gate = started()
    assert gate.alarm_state() == (0.0, pytest.approx(2.302585))
    screen(gate, True)
    assert (gate.alarm, gate.ever_alarmed) == (False, False)
    assert gate.alarm_state()[0] == pytest.approx(1.791759)
    screen(gate, True)
    assert (gate.alarm, gate.ever_alarmed) == (True, True)


def test_an_alarm_is_latched() -> None:
    gate = started()
    screen(gate, True, True, *[False] * 30)
    assert gate.alarm_state()[0] == 0.0
    assert gate.alarm is True


def test_more_bad_than_allowed_alarm_however_far_apart() -> None:
    gate = started()
    for _ in range(2):
        screen(gate, *[False] * 7, True)
    assert gate.alarm is False
    screen(gate, *[False] * 7, True)
    assert gate.alarm is True
    assert gate.candidate_ledgers()[0].bad == 3


def test_baseline_cells_never_alarm() -> None:
    gate = started()
    for _ in range(9):
        score(gate, cell(BASELINE), True)
    assert (gate.alarm, gate.ever_alarmed) == (False, False)


def test_any_flag_alarms() -> None:
    gate = started(quality_only(flags=TWO))
    for _ in range(2):
        assert gate.alarm is False
        bad_of(gate, ("schema", False), ("words", True))
    assert gate.alarm is True
    apart = started(quality_only(flags=TWO))
    bad_of(apart, ("schema", False), ("words", True))
    bad_of(apart, ("schema", True), ("words", False))
    assert apart.alarm is False
    assert apart.alarm_state()[0] == pytest.approx(1.791759)


def test_a_bad_cell_outside_of_every_unit_moves_the_alarm() -> None:
    gate = started()
    partial = cell(cached_tokens=20, processed_tokens=80, cold_proof=None)
    score(gate, cell())
    score(gate, partial, True)
    score(gate, partial, True)
    assert gate.alarm is True


# Replicates


def test_starting_a_replicate_answers_the_alarm_and_sets_the_cusum_to_zero() -> None:
    gate = with_replicate()
    assert (gate.alarm, gate.ever_alarmed) == (False, True)
    assert gate.alarm_state()[0] == 0.0
    assert gate.open_replicate is gate.replicates[0]
    gate.apply(ReplicateAborted(1, 7.0, "deadline"))
    screen(gate, True, case="c5")
    assert gate.alarm_state()[0] == pytest.approx(1.791759)


def test_its_prompts_are_those_that_failed_and_the_next_in_turn() -> None:
    gate = started()
    screen(gate, True, case="c7")
    screen(gate, True, case="c3")
    screen(gate, False, case="c1")
    assert gate.failed_cases() == ["c7", "c3"]
    upcoming = [case for case in gate.places.upcoming() if case not in ("c7", "c3")]
    gate.apply(ReplicateStarted(1, 5.0, 99))
    prompts = gate.replicates[0].plan.prompts
    assert prompts[:8:2] == ("c7", "c3", "c7", "c3")
    assert list(prompts[1:21:2]) == upcoming
    assert gate.replicates[0].plan.flags == 1


def test_separation_and_abort_are_kept_with_their_words() -> None:
    gate = with_replicate()
    assert (gate.replicates[0].separation, gate.replicates[0].separation_detail) == ("gap", "600 s after")
    gate.apply(ReplicateAborted(1, 7.0, "budget"))
    assert gate.replicates[0].aborted == "budget"
    assert (gate.open_replicate, gate.not_confirmed) == (None, 1)


def test_replicate_units_enter_n_and_k_but_not_the_cusum() -> None:
    gate = with_replicate()
    unit(gate, True)
    unit(gate, False, arm=BASELINE)
    unit(gate, True, pair=1)
    ledger = gate.candidate_ledgers()[0]
    assert (ledger.decision_prefills, ledger.bad) == (4, 4)
    assert gate.alarm_state()[0] == 0.0
    assert gate.alarm is False


def test_five_pairs_of_a_bad_candidate_and_a_good_baseline_confirm_and_latch() -> None:
    gate = with_replicate()
    for pair in range(5):
        assert gate.latched_rollback is False
        unit(gate, True, pair)
        unit(gate, False, pair, BASELINE)
    assert gate.replicates[0].ending() is Ending.CONFIRMED
    assert gate.latched_rollback is True
    assert (gate.open_replicate, gate.not_confirmed) == (None, 0)
    gate.apply(ReplicateStarted(2, 8.0, 98))
    assert gate.latched_rollback is True


@pytest.mark.parametrize(
    ("cached", "counts"),
    [(32, True), (33, False), (None, True)],
)
def test_a_unit_of_a_replicate_had_at_most_32_tokens_cached(cached: int | None, counts: bool) -> None:
    gate = with_replicate()
    processed = None if cached is None else 1000 - cached
    unit(gate, True, prompt_tokens=1000, cached_tokens=cached, processed_tokens=processed)
    assert (gate.replicates[0].candidate == {0: (True,)}) is counts
    assert gate.replicates[0].tries == ({} if counts else {(0, CANDIDATE): 1})


@pytest.mark.parametrize(
    "changes",
    [
        {"cached_tokens": None, "cold_proof": None},
        {"cached_tokens": 20, "processed_tokens": 80, "cold_proof": None},
        {"cached_tokens": 0, "processed_tokens": 1},
    ],
)
def test_a_cell_that_is_not_proven_fresh_is_no_half_and_is_planned_again(changes: dict[str, object]) -> None:
    gate = with_replicate()
    unit(gate, True, **changes)
    assert gate.replicates[0].candidate == {}
    assert gate.replicates[0].tries == {(0, CANDIDATE): 1}


def test_a_half_whose_check_erred_is_planned_again() -> None:
    gate = with_replicate()
    unit(gate, None)
    assert gate.replicates[0].candidate == {}
    assert gate.replicates[0].tries == {(0, CANDIDATE): 1}


def test_a_failed_half_is_a_bad_unit() -> None:
    gate = with_replicate()
    measure(gate, cell(replicate=1, status=Status.FAILED), Purpose.REPLICATE, pair=0)
    assert gate.replicates[0].candidate == {0: (True,)}


@pytest.mark.parametrize(("http_status", "tries"), [(None, 1), (500, 1), (429, 0), (503, 0)])
def test_an_invalid_half_is_a_try_unless_the_server_was_busy(http_status: int | None, tries: int) -> None:
    gate = with_replicate()
    invalid = cell(BASELINE, replicate=1, status=Status.INVALID)
    measure(gate, invalid, Purpose.REPLICATE, pair=3, http_status=http_status)
    assert gate.replicates[0].tries.get((3, BASELINE), 0) == tries
    assert gate.replicates[0].waits.get((3, BASELINE), 0) == 1 - tries


def test_a_cell_belongs_to_the_replicate_it_names_and_to_its_pair() -> None:
    gate = with_replicate()
    gate.apply(ReplicateAborted(1, 7.0, "deadline"))
    gate.apply(ReplicateStarted(2, 8.0, 98))
    gate.apply(SeparationKept(2, 9.0, "restart"))
    assert gate.open_replicate is gate.replicates[1]
    unit(gate, True, pair=3, number=2)
    assert (gate.replicates[0].candidate, gate.replicates[1].candidate) == ({}, {3: (True,)})
    assert gate.replicates[1].threshold == 80


def test_each_flag_has_its_own_half_and_e_value() -> None:
    gate = with_replicate(policy=quality_only(flags=TWO))
    cell_id = measure(gate, cell(replicate=1), Purpose.REPLICATE, pair=0)
    gate.apply(CellChecked(cell_id, (outcome(False, "schema"), outcome(True, "words"))))
    assert gate.replicates[0].candidate == {0: (False, True)}
    assert gate.replicates[0].plan.flags == 2
    erred = measure(gate, cell(replicate=1), Purpose.REPLICATE, pair=1)
    gate.apply(CellChecked(erred, (outcome(None, "schema"), outcome(True, "words"))))
    assert gate.replicates[0].candidate == {0: (False, True)}


# Folding


def test_folding_the_same_events_gives_the_same_gate() -> None:
    events: list[Event] = [planned(), epoch(BASELINE), epoch(CANDIDATE)]
    events.append(CellMeasured(0, cell(), Purpose.SCREEN))
    events.append(CellChecked(0, (outcome(True),)))
    one, other = fold(events), fold(events)
    assert one.scored == other.scored
    assert one.candidate_ledgers()[0].bad == other.candidate_ledgers()[0].bad == 1


def test_what_was_read_before_an_event_is_not_what_is_read_after_it() -> None:
    gate = started()
    screen(gate, True)
    assert gate.candidate_ledgers()[0].bad == 1
    assert gate.candidate_ledgers() is gate.candidate_ledgers()
    screen(gate, True)
    assert gate.candidate_ledgers()[0].bad == 2
    assert len(gate.classified()) == 2


def test_a_nonce_alone_is_proof_of_a_unit_in_a_replicate() -> None:
    gate = with_replicate()
    unit(gate, True, cached_tokens=None, processed_tokens=None, cold_proof=ColdProof.NONCE)
    assert gate.replicates[0].candidate == {0: (True,)}
