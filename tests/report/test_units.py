"""Which cells are shown as one, which are bad, and which clean one a bad one is compared with."""

from __future__ import annotations

from dataclasses import replace

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.journal import CheckOutcome, Texts
from prefillgate.core.verdict import CellClass
from prefillgate.report import units
from prefillgate.report.diff import CHARACTERS_SHOWN, WORDS_SHOWN, alone, compare
from tests.support import verdicts


def test_the_story_shows_two_units_of_six_cells_and_eight_of_one() -> None:
    groups = units.unit_groups(verdicts.story(), CANDIDATE)
    assert [len(group.cells) for group in groups] == [6, 6, 1, 1, 1, 1, 1, 1, 1, 1]
    assert [group.bad for group in groups] == [True, True, *[False] * 8]
    assert [units.stage_of(group) for group in groups] == ["Screen"] * 2 + ["Replicate 1"] * 8


def test_a_fresh_cell_leads_its_unit_and_cells_without_a_unit_stand_alone() -> None:
    cells = (
        verdicts.view(0, CANDIDATE, "a", CellClass.COPY, unit=1),
        verdicts.view(1, CANDIDATE, "a", unit=1),
        verdicts.view(2, CANDIDATE, "a", CellClass.UNKNOWN),
        verdicts.view(3, CANDIDATE, "a", CellClass.UNKNOWN),
        verdicts.view(4, CANDIDATE, "a", None),
    )
    groups = units.unit_groups(verdicts.build(verdicts.empty().decision, cells), CANDIDATE)
    assert [[view.cell_id for view in group.cells] for group in groups] == [[1, 0], [2], [3]]


def test_cells_stand_in_time_order_only_when_every_start_is_known() -> None:
    late, early = verdicts.view(0, CANDIDATE, "a", started_at=9.0), verdicts.view(1, CANDIDATE, "a", started_at=3.0)
    unknown = verdicts.view(2, CANDIDATE, "a", started_at=None)
    assert [view.cell_id for view in units.in_time_order((late, early))] == [1, 0]
    assert [view.cell_id for view in units.in_time_order((late, early, unknown))] == [0, 1, 2]


def test_bad_cells_are_the_scored_ones_and_the_candidates_come_first() -> None:
    cells = (
        verdicts.view(0, BASELINE, "a", unit=1, bad=True),
        verdicts.view(1, CANDIDATE, "b", unit=1, bad=True),
        verdicts.view(2, CANDIDATE, "c", None, bad=True),
        verdicts.view(3, CANDIDATE, "d", unit=2, bad=None),
    )
    verdict = verdicts.build(verdicts.empty().decision, cells)
    assert [view.cell_id for view in units.bad_cells(verdict)] == [1, 0]
    assert units.bad_cases(verdict) == ("b",)
    assert [view.cell_id for view in units.invalid_cells(verdict)] == [2]
    assert units.case_ids(verdict) == ("a", "b", "c", "d")


def test_the_twin_is_the_clean_fresh_cell_of_the_other_arm() -> None:
    pair = units.twins(verdicts.story())
    assert pair is not None
    assert pair.bad.cell_id == 20
    assert pair.twin is not None
    assert (pair.twin.cell_id, pair.twin.cell.arm, pair.twin.cell.case_id) == (0, BASELINE, pair.bad.cell.case_id)
    assert units.texts_wanted(verdicts.story()) == (20, 0)


def test_without_the_other_arm_the_twin_is_a_clean_cell_of_the_same_case() -> None:
    cells = (
        verdicts.view(0, CANDIDATE, "a", unit=1, bad=True),
        verdicts.view(1, CANDIDATE, "b", unit=2),
        verdicts.view(2, CANDIDATE, "a", unit=3),
    )
    pair = units.twins(verdicts.build(verdicts.empty().decision, cells))
    assert pair is not None and pair.twin is not None
    assert pair.twin.cell_id == 2


def test_a_bad_cell_with_an_answer_is_shown_before_one_that_failed_without() -> None:
    cells = (
        verdicts.view(0, CANDIDATE, "a", unit=1, bad=True, status=Status.FAILED),
        verdicts.view(1, CANDIDATE, "b", unit=2, bad=True),
    )
    pair = units.twins(verdicts.build(verdicts.empty().decision, cells))
    assert pair is not None
    assert (pair.bad.cell_id, pair.twin) == (1, None)
    assert units.texts_wanted(verdicts.build(verdicts.empty().decision, cells)) == (1,)
    only_failed = units.twins(verdicts.build(verdicts.empty().decision, cells[:1]))
    assert only_failed is not None
    assert only_failed.bad.cell_id == 0


def test_without_a_bad_cell_no_text_is_wanted() -> None:
    assert units.twins(verdicts.promote()) is None
    assert units.texts_wanted(verdicts.promote()) == ()


def test_parts_of_an_answer_are_told_apart_and_an_empty_answer_is_still_shown() -> None:
    assert units.shown_parts(Texts("c", "r", "[]")) == {"reasoning": "r", "content": "c", "tool calls": "[]"}
    assert units.shown_parts(Texts("", "r")) == {"reasoning": "r", "content": ""}
    assert units.shown_parts(None) == {}


def test_failed_and_erring_checks_are_told_and_passed_ones_are_not() -> None:
    outcomes = (
        CheckOutcome("passed", "1", False, "fine"),
        CheckOutcome("words", "1", True, "2 words"),
        CheckOutcome("schema", "1", None, "timed out"),
        CheckOutcome("loop", "1", True),
    )
    view = replace(verdicts.view(0, CANDIDATE, "a"), outcomes=outcomes)
    assert units.failed_checks(view) == "words: 2 words; schema erred: timed out; loop"


def test_words_of_one_side_only_are_marked() -> None:
    left, right = compare("the cat sat", "the dog sat")
    assert [(piece.text, piece.own) for piece in left.pieces] == [("the ", False), ("cat", True), (" sat", False)]
    assert [(piece.text, piece.own) for piece in right.pieces] == [("the ", False), ("dog", True), (" sat", False)]


def test_a_text_without_a_twin_is_shown_whole_and_unmarked() -> None:
    assert [(piece.text, piece.own) for piece in alone("a b").pieces] == [("a b", False)]
    assert alone("").pieces == ()


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    many, _ = compare("w " * (WORDS_SHOWN + 7), "")
    assert many.left_out == 14
    long, _ = compare("x" * (CHARACTERS_SHOWN + 5), "x")
    assert long.left_out == 5
    assert alone("short").left_out == 0


def test_a_text_is_cleaned_before_it_is_compared() -> None:
    left, right = compare("a\x1b[2J", "a\x00")
    assert "".join(piece.text for piece in left.pieces) == "a⟨ESC⟩[2J"
    assert "".join(piece.text for piece in right.pieces) == "a⟨NUL⟩"
