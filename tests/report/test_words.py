"""Numbers are put into words once, the same for every format."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from prefillgate.core.verdict import Decision, Outcome, Promotion, ReplicateView, Rollback, ThroughputState
from prefillgate.report import words
from tests.support import verdicts


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "unknown"),
        (math.nan, "unknown"),
        (math.inf, "unknown"),
        (0.0, "0"),
        (1.0, "1"),
        (0.0625, "0.0625"),
        (1 / 6, "0.167"),
        (5.58, "5.58"),
        (99.94, "99.9"),
        (1643.4, "1,643"),
        (-0.305, "-0.305"),
        (0.0001, "0.0001"),
        (9.3e-8, "9.30e-08"),
    ],
)
def test_a_number_is_shown_to_three_digits(value: float | None, shown: str) -> None:
    assert words.number(value) == shown


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [(None, "unknown"), (math.nan, "unknown"), (0.0, "0 %"), (0.05, "5 %"), (0.3123, "31.2 %"), (1.0, "100 %")],
)
def test_a_fraction_is_shown_as_percent(fraction: float | None, shown: str) -> None:
    assert words.percent(fraction) == shown
    assert words.percent(-0.00001) == "0 %"


def test_an_interval_is_shown_with_one_sign_and_unknown_is_a_word() -> None:
    assert words.percent_interval((0.0, 0.1089)) == "0 to 10.9 %"
    assert words.percent_interval(None) == "unknown"


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(1.075, "+7.5 %"), (1.0, "0 %"), (0.95, "-5 %"), (None, "unknown"), (math.inf, "unknown")],
)
def test_a_ratio_is_shown_as_a_signed_change(ratio: float | None, shown: str) -> None:
    assert words.change(ratio) == shown


def test_an_interval_of_ratios_is_two_signed_changes() -> None:
    assert words.change_interval((0.988, 1.024)) == "-1.2 % to +2.4 %"
    assert words.change_interval(None) == "unknown"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min"), (7803, "2 h 10 min")],
)
def test_a_span_has_its_two_largest_units(seconds: float, shown: str) -> None:
    assert words.span(seconds) == shown


def test_one_is_singular_and_every_other_count_plural() -> None:
    assert [words.plural(n, "prefill") for n in (0, 1, 2, 1200)] == [
        "0 prefills",
        "1 prefill",
        "2 prefills",
        "1,200 prefills",
    ]


@pytest.mark.parametrize(
    ("sample", "word"),
    [
        ("promote", "PROMOTE"),
        ("alarm, rollback refused", "ALARM"),
        ("the story", "HOLD"),
        ("confirmed", "ROLLBACK"),
        ("could not measure", "ERROR"),
        ("empty", "HOLD"),
    ],
)
def test_the_first_word_tells_error_alarm_and_hold_apart(sample: str, word: str) -> None:
    assert words.headline(verdicts.SAMPLES[sample]()) == word


def test_an_answer_is_measured_unless_it_says_otherwise() -> None:
    decision = Decision(Outcome.CONTINUE, Promotion.BLOCKED, Rollback.REFUSED, "Collecting", ())
    assert decision.measured is True
    assert words.headline(verdicts.build(decision)) == "CONTINUE"
    assert words.headline(verdicts.build(replace(decision, measured=False))) == "CONTINUE"


def test_a_promotion_is_never_called_an_alarm() -> None:
    assert words.headline(replace(verdicts.promote(), alarm=True)) == "PROMOTE"


def test_a_replicate_that_runs_has_no_ending_and_no_line_of_futility() -> None:
    view = ReplicateView(1, 40.0, None, 2, 1, (), 1.0, None)
    assert words.ending(view) == "running"
    assert view.futility is None
    assert words.ending(replace(view, ending="confirmed")) == "confirmed"
    assert words.ending(replace(view, ending="futile")) == "not confirmed (futile)"


def test_the_acceptance_table_is_told_in_order() -> None:
    assert words.acceptance_rule(verdicts.promote()) == "32 with 0 bad, 56 with 1 bad, 75 with 2 bad"
    assert words.acceptance_rule(replace(verdicts.promote(), acceptance=())) == "unknown"


def test_every_count_beyond_the_prefills_is_named_and_zeros_are_left_out() -> None:
    assert words.counting(verdicts.every_class().candidate) == "2 copies, 2 partial, 4 unknown, 2 orphans"
    one = replace(verdicts.empty().candidate, copies=1, orphans=1, invalid=3)
    assert words.counting(one) == "1 copy, 1 orphan, 3 invalid"
    assert words.counting(verdicts.promote().candidate) == "none"


def test_every_state_of_the_decode_comparison_has_words() -> None:
    assert [words.speed(state) for state in ThroughputState] == [
        "not worse",
        "worse",
        "open, more pairs are needed",
        "not compared",
    ]
