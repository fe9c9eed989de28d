"""A stored baseline: what is taken of an earlier run, what makes it incomparable, and that it decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import (
    BaselineShown,
    CaseRef,
    CellChecked,
    CellMeasured,
    CheckOutcome,
    Overridden,
    Planned,
    Purpose,
)
from prefillgate.core.judge import judge
from prefillgate.core.policy import Flag
from prefillgate.core.shape import Shape
from prefillgate.core.stored_baseline import (
    NoStoredBaseline,
    age_words,
    baseline_of,
    baseline_sentence,
    same_baseline,
    why_not_comparable,
    why_of_no_age,
)
from tests.support.journals import cell, epoch, measure, planned, quality_only, score, screen, started

ALONE = Shape(candidate_alone=True)
CHECKS = {f"c{i}": {"check": "1"} for i in range(12)}
DAY = 86_400.0


def earlier(**more: Any) -> Gate:
    """A run with three scored baseline cells, one bad, one of them a copy, and one that is invalid."""
    gate = Gate()
    for event in (planned(**more), epoch(BASELINE, "e1", build="b0"), epoch(BASELINE, "e2", weights="w")):
        gate.apply(event)
    gate.apply(epoch(CANDIDATE))
    score(gate, cell(BASELINE, "c0", started_at=10.0, ended_at=20.0), True, Purpose.BASELINE_PASS)
    copy = cell(BASELINE, "c0", started_at=30.0, ended_at=95.0, cached_tokens=99, processed_tokens=1, cold_proof=None)
    score(gate, copy, False, Purpose.BASELINE_PASS)
    score(gate, cell(BASELINE, "c1", started_at=40.0, ended_at=50.0), False, Purpose.BASELINE_PASS)
    measure(gate, cell(BASELINE, "c2", status=Status.INVALID, ended_at=500.0))
    score(gate, cell(CANDIDATE, "c1", started_at=60.0, ended_at=700.0), True)
    return gate


def alone(*outcomes: bool) -> Gate:
    gate = Gate()
    gate.apply(replace(planned(quality_only(), shape=ALONE), baseline_url=None))
    gate.apply(epoch(CANDIDATE))
    for bad in outcomes:
        score(gate, cell(case=gate.places.next_case, started_at=1.0, ended_at=2.0), bad)
    return gate


def test_what_is_shown_are_the_counts_of_the_earlier_baseline_and_nothing_of_its_candidate() -> None:
    shown = baseline_of(earlier(), "old.db", 95.0 + DAY)
    assert shown == BaselineShown(
        at=95.0 + DAY,
        store="old.db",
        run_id="run",
        arm=BASELINE,
        measured_at=95.0,
        requests=3,
        bad_requests=1,
        prefills=2,
        bad_prefills=1,
        request_interval=shown.request_interval,
        prefill_interval=shown.prefill_interval,
        build="b1",
        model="m",
        weights="w",
        cut_left_out=False,
    )
    assert shown.request_interval == pytest.approx((0.008403759, 0.905700676))
    assert shown.prefill_interval == pytest.approx((0.012579117, 0.987420883))
    assert shown.age_seconds == DAY


def test_a_pass_whose_answers_were_cut_leaves_the_cut_ones_out_and_says_so() -> None:
    gate = earlier()
    cut = gate.next_cell_id()
    gate.apply(CellMeasured(cut, cell(BASELINE, "c3"), Purpose.BASELINE_PASS))
    gate.apply(CellChecked(cut, (CheckOutcome("cut", "1", True),)))
    shown = baseline_of(gate, "old.db", 100.0)
    assert shown.cut_left_out is True
    assert baseline_sentence(shown).endswith(" Its answers cut at their token limit are not among the bad.")


def test_a_store_whose_baseline_was_never_measured_is_none() -> None:
    empty = started()
    screen(empty, False)
    with pytest.raises(NoStoredBaseline, match="no cell of its baseline was measured"):
        baseline_of(empty, "old.db", 1.0)
    timeless = started()
    score(timeless, cell(BASELINE))
    with pytest.raises(NoStoredBaseline, match="no cell of its baseline was measured"):
        baseline_of(timeless, "old.db", 1.0)


def test_a_promoted_candidate_alone_is_the_baseline_now_and_is_called_what_it_was() -> None:
    gate = alone(*[False] * 32)
    shown = baseline_of(gate, "old.db", 2.0)
    assert (shown.arm, shown.requests, shown.prefills, shown.bad_prefills) == (CANDIDATE, 32, 32, 0)
    assert baseline_sentence(shown).startswith("Stored candidate, promoted then, of old.db (run run, under an hour old")
    by_hand = alone(False)
    by_hand.apply(Overridden(1.0, "promote", "ann", "seen"))
    assert baseline_of(by_hand, "old.db", 2.0).requests == 1


def test_a_candidate_alone_that_was_not_promoted_is_no_baseline() -> None:
    said = r"a candidate alone that was not promoted \(AlarmWithoutBaseline\), and no baseline stands in it"
    with pytest.raises(NoStoredBaseline, match=said):
        baseline_of(alone(True, True), "old.db", 2.0)


# Comparable


def test_the_same_prompts_and_checks_are_comparable() -> None:
    assert why_not_comparable(earlier(), planned(), CHECKS) is None
    assert why_not_comparable(earlier(), replace(planned(quality_only(budget=9)), seed=3), CHECKS) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sha256": "other-digest-of-it"}, "case c3 differs: its body had digest sha-3, now other-digest"),
        ({"max_tokens": 9}, "case c3 differs: max_tokens was none, now 9"),
        ({"greedy": False}, "case c3 differs: sampling was greedy, now random"),
        ({"case_id": "d"}, "case c3 stands in its replay set alone"),
    ],
)
def test_a_prompt_or_its_sampling_that_differs_is_named(change: dict[str, Any], why: str) -> None:
    cases = list(planned().cases)
    cases[3] = replace(cases[3], **change)
    assert why_not_comparable(earlier(), planned(cases=cases), CHECKS) == why


def test_what_differs_is_told_from_both_sides() -> None:
    few, many = planned(cases=3), planned(cases=4)
    assert why_not_comparable(earlier(cases=3), many, CHECKS) == "case c3 is not in its replay set"
    was = [CaseRef("c0", "s", 1, 5, False), *few.cases[1:]]
    assert why_not_comparable(earlier(cases=was), few, CHECKS) == "case c0 differs: max_tokens was 5, now none"
    hot = [replace(few.cases[0], greedy=False), *few.cases[1:]]
    assert why_not_comparable(earlier(cases=hot), few, CHECKS) == "case c0 differs: sampling was random, now greedy"


def test_digests_are_told_by_their_first_twelve_digits() -> None:
    was = replace(planned(cases=1).cases[0], sha256="0123456789abcdef")
    now = replace(was, sha256="fedcba9876543210")
    why = why_not_comparable(earlier(cases=[was]), planned(cases=[now]), CHECKS)
    assert why == "case c0 differs: its body had digest 0123456789ab, now fedcba987654"


def test_an_equal_list_under_another_digest_is_another_set() -> None:
    plan = replace(planned(), replay_set_sha256="new")
    assert why_not_comparable(earlier(), plan, CHECKS) == "its replay set is another one (digest sha, now new)"


@pytest.mark.parametrize(
    ("mine", "why"),
    [
        ({"check": "2"}, "check check on case c0: version 1 then, 2 now"),
        ({}, "check check on case c0: version 1 then, not run now"),
        ({"check": "1", "loop": "3"}, "check loop on case c0: version not run then, 3 now"),
    ],
)
def test_a_check_that_differs_is_named_with_both_versions(mine: dict[str, str], why: str) -> None:
    assert why_not_comparable(earlier(), planned(), {**CHECKS, "c0": mine}) == why


def test_only_checks_of_the_cells_that_are_shown_are_compared() -> None:
    other = {"check": "2"}
    assert why_not_comparable(earlier(), planned(), {**CHECKS, "c7": other}) is None  # never measured then
    gate = earlier()
    measure(gate, cell(BASELINE, "c5", status=Status.FAILED), Purpose.BASELINE_PASS)  # read by no check
    assert why_not_comparable(gate, planned(), {**CHECKS, "c5": other}) is None
    promoted = alone(*[False] * 32)
    assert why_not_comparable(promoted, promoted.plan, CHECKS) is None
    assert why_not_comparable(promoted, promoted.plan, {**CHECKS, "c5": other}) is not None


def test_another_meaning_of_bad_is_not_comparable() -> None:
    policy = quality_only(flags=(Flag("empty", ("not_empty", "cut")), Flag("other", ())))
    assert why_not_comparable(earlier(), planned(policy), CHECKS) == (
        "bad meant bad (every check), now empty (not_empty, cut); other (every check)"
    )


# Age


@pytest.mark.parametrize(
    ("age", "why"),
    [
        (-300.0, None),
        (-300.1, "its last cell lies in the future: the clocks of two machines differ"),
        (0.0, None),
        (2 * DAY, None),
        (2 * DAY + 0.1, "it is 2.0 days old, more than 2 days"),
        (30.25 * DAY, "it is 30.2 days old, more than 2 days"),
    ],
)
def test_it_is_of_the_past_and_not_too_old(age: float, why: str | None) -> None:
    shown = baseline_of(earlier(), "old.db", 95.0 + age)
    assert why_of_no_age(shown, 2.0) == why


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-100.0, "under an hour"),
        (3599.0, "under an hour"),
        (3600.0, "1 hour"),
        (5399.0, "1 hour"),
        (5400.0, "2 hours"),
        (84_599.0, "23 hours"),
        (DAY - 1, "24 hours"),
        (DAY, "1.0 days"),
        (3.25 * DAY, "3.2 days"),
    ],
)
def test_an_age_is_told_in_words(seconds: float, words: str) -> None:
    assert age_words(seconds) == words


def test_it_is_the_same_one_whenever_it_is_looked_at() -> None:
    shown = baseline_of(earlier(), "old.db", 100.0)
    assert same_baseline(shown, replace(shown, at=900.0))
    assert not same_baseline(shown, replace(shown, run_id="other"))


# In the verdict


def shown_beside(plan: Planned, *outcomes: bool) -> Gate:
    events: list[Any] = [plan, epoch(CANDIDATE)]
    events += [epoch(BASELINE)] if plan.baseline_url else []
    gate = fold(events)
    gate.apply(baseline_of(earlier(), "old.db", 95.0 + 3 * DAY))
    screen(gate, *outcomes)
    return gate


SENTENCE = (
    "Stored baseline of old.db (run run, 3.0 days old, model m, build b1): 1 of 3 requests bad; by prefill 1 of 2. It "
    "is shown for comparison and decides nothing."
)


def test_the_verdict_names_it_with_its_age_and_drops_that_the_checks_were_never_seen_to_pass() -> None:
    verdict = judge(shown_beside(replace(planned(shape=ALONE), baseline_url=None), False))
    assert SENTENCE in verdict.decision.sentences
    assert "Baseline: none in this run; the candidate is judged by the acceptance table alone." in (
        verdict.decision.sentences
    )
    assert verdict.baseline is None
    assert verdict.baseline_shown == baseline_of(earlier(), "old.db", 95.0 + 3 * DAY)


def test_it_decides_nothing() -> None:
    """Whatever was bad in it: the answer, its counts and its tests are those of the run without it."""
    for plan in (planned(), replace(planned(shape=ALONE), baseline_url=None)):
        for outcomes in ([False] * 32, [True, True]):
            with_it = judge(shown_beside(plan, *outcomes))
            bare = fold([plan, epoch(CANDIDATE), *([epoch(BASELINE)] if plan.baseline_url else [])])
            screen(bare, *outcomes)
            without = judge(bare)
            assert replace(with_it, baseline_shown=None, decision=without.decision) == without
            told = [said for said in with_it.decision.sentences if said != SENTENCE]
            unseen = ", by checks that were never seen to pass on a good server"
            alike = [said.replace(unseen, "") for said in without.decision.sentences]
            assert told == alike
            assert replace(with_it.decision, sentences=()) == replace(without.decision, sentences=())


def test_the_last_one_shown_stands() -> None:
    gate = shown_beside(planned())
    gate.apply(replace(baseline_of(earlier(), "old.db", 100.0), store="newer.db"))
    assert judge(gate).baseline_shown == replace(baseline_of(earlier(), "old.db", 100.0), store="newer.db")
