"""How well a judge agrees with people: counts, kappa, interval, and what makes it worth nothing."""

from __future__ import annotations

import math

import pytest

from prefillgate.core.agreement import MIN_EXAMPLES, Agreement, judge_notes
from prefillgate.core.exact import clopper_pearson
from prefillgate.core.gate import fold
from prefillgate.core.journal import JudgeCompared
from prefillgate.core.judge import judge
from tests.support.journals import planned

TABLE = Agreement(good_as_good=10, good_as_bad=2, bad_as_bad=9, bad_as_good=3, unanswered=1)


def test_the_counts_add_up_by_label() -> None:
    assert (TABLE.good, TABLE.bad, TABLE.answered, TABLE.agreed) == (12, 12, 24, 19)


def test_kappa_is_cohens() -> None:
    # po = 19/24; pe = (12 * 13 + 12 * 11) / 24^2 = 1/2
    assert TABLE.kappa == pytest.approx((19 / 24 - 0.5) / 0.5)
    # po = 15/20; pe = (12 * 11 + 8 * 9) / 400 = .51
    uneven = Agreement(good_as_good=9, good_as_bad=3, bad_as_bad=6, bad_as_good=2)
    assert uneven.kappa == pytest.approx((0.75 - 0.51) / 0.49)
    assert Agreement(good_as_good=5, bad_as_bad=5).kappa == 1.0
    assert Agreement(good_as_bad=5, bad_as_good=5).kappa == -1.0


def test_kappa_and_interval_are_unknown_where_nothing_can_be_said() -> None:
    assert Agreement().kappa is None
    assert Agreement(unanswered=3).interval is None
    assert Agreement(good_as_good=7).kappa is None
    assert Agreement(good_as_bad=7).kappa == 0.0


def test_the_interval_is_that_of_a_share() -> None:
    assert TABLE.interval == clopper_pearson(19, 24)


@pytest.mark.parametrize(
    ("agreement", "shortcoming"),
    [
        (Agreement(good_as_good=10, bad_as_bad=10), None),
        (Agreement(good_as_good=19, good_as_bad=1, bad_as_bad=1), None),
        (
            Agreement(good_as_good=10, bad_as_bad=9, unanswered=5),
            "19 labelled outputs with a verdict, fewer than 20",
        ),
        (Agreement(), "0 labelled outputs with a verdict, fewer than 20"),
        (Agreement(good_as_good=15, good_as_bad=5), "all 20 labelled outputs are good"),
        (Agreement(bad_as_bad=15, bad_as_good=6), "all 21 labelled outputs are bad"),
    ],
)
def test_twenty_answers_of_both_labels_validate_a_judge(agreement: Agreement, shortcoming: str | None) -> None:
    assert agreement.shortcoming == shortcoming
    assert MIN_EXAMPLES == 20


def test_a_judge_is_worth_something_when_it_beats_one_that_says_the_same_of_everything() -> None:
    assert Agreement(good_as_good=12, bad_as_bad=1, bad_as_good=7).better_than_a_constant
    assert not Agreement(good_as_good=12, bad_as_good=8).better_than_a_constant
    assert Agreement(bad_as_bad=12, good_as_good=1, good_as_bad=7).better_than_a_constant
    assert not Agreement(bad_as_bad=12, good_as_bad=8).better_than_a_constant


def test_the_notes_say_the_agreement_in_numbers() -> None:
    low, high = clopper_pearson(19, 24)
    assert (math.floor(100 * low), math.floor(100 * high)) == (57, 92)
    assert judge_notes("useful", TABLE) == (
        "judge useful agrees with 19 of 24 labelled outputs (95 % 0.58 to 0.93, kappa 0.58); 3 of 12 bad ones called "
        "good, 2 of 12 good ones called bad; no verdict on 1 more",
    )


def test_the_notes_name_a_judge_that_is_not_validated_and_one_that_says_nothing() -> None:
    assert judge_notes("useful", Agreement()) == (
        "judge useful is NOT VALIDATED: 0 labelled outputs with a verdict, fewer than 20",
    )
    assert judge_notes("useful", Agreement(unanswered=4)) == (
        "judge useful is NOT VALIDATED: 0 labelled outputs with a verdict, fewer than 20",
        "judge useful gives no verdict on 4 labelled outputs",
    )
    assert judge_notes("useful", Agreement(good_as_good=12, bad_as_good=8)) == (
        "judge useful is NOT VALIDATED: its verdicts agree with the labels no more than chance does (kappa 0.00)",
        "judge useful agrees with 12 of 20 labelled outputs (95 % 0.36 to 0.81, kappa 0.00); 8 of 8 bad ones called "
        "good, 0 of 12 good ones called bad",
        "judge useful agrees no better than one that says the same of everything",
    )
    assert judge_notes("useful", Agreement(good_as_good=20))[1:] == (
        "judge useful agrees with 20 of 20 labelled outputs (95 % 0.83 to 1.00, kappa unknown); 0 of 0 bad ones called "
        "good, 0 of 20 good ones called bad",
        "judge useful agrees no better than one that says the same of everything",
    )


def test_a_judge_that_agrees_no_more_than_chance_does_is_not_validated() -> None:
    chance = "its verdicts agree with the labels no more than chance does (kappa {})"
    assert Agreement(good_as_good=12, bad_as_good=12).shortcoming == chance.format("0.00")
    assert Agreement(good_as_bad=10, bad_as_bad=10).shortcoming == chance.format("0.00")
    assert Agreement(good_as_bad=12, bad_as_good=12).shortcoming == chance.format("-1.00")
    assert Agreement(good_as_good=12, bad_as_good=11, bad_as_bad=1).shortcoming is None  # kappa 0.08
    # No more often right than one that calls all good, and yet of use: it finds both of the bad ones.
    assert Agreement(good_as_good=20, good_as_bad=2, bad_as_bad=2).shortcoming is None


def test_the_verdict_tells_what_was_measured_last() -> None:
    events = [
        planned(),
        JudgeCompared(1.0, "useful", "1", "d1", Agreement()),
        JudgeCompared(2.0, "useful", "1", "d2", Agreement(good_as_good=10, bad_as_bad=10)),
        JudgeCompared(2.0, "kind", "1", "d2", Agreement()),
    ]
    notes = judge(fold(events)).notes
    assert notes[:2] == (
        "judge useful agrees with 20 of 20 labelled outputs (95 % 0.83 to 1.00, kappa 1.00); 0 of 10 bad ones called "
        "good, 0 of 10 good ones called bad",
        "judge kind is NOT VALIDATED: 0 labelled outputs with a verdict, fewer than 20",
    )
