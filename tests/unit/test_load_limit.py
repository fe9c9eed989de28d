"""How many fresh prefills replays put on production within an hour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prefillgate.app.load_limit import LoadLimit
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.journal import Purpose
from prefillgate.core.schedule import RunCell
from prefillgate.evidence.book import Book, open_book
from tests.support.manual_clock import ManualClock

CELL = RunCell(1, BASELINE, "a", Purpose.BASELINE_PASS, None, 0, 0, 1, 0, "n")


class Limit:
    """A limit over a book of its own."""

    def __init__(self, path: Path, most: int, arm: str = BASELINE) -> None:
        self.path, self.clock, self.told = path, ManualClock(), list[float]()
        self.book: Book = open_book(path)
        self.limit = LoadLimit(self.book, "line", "work", most, arm, self.clock, lambda: self.told.append(0.0))

    def pairs(self, *halves: tuple[str, int]) -> list[float]:
        return [self.next(replace(CELL, purpose=Purpose.PAIR, arm=arm, pair=pair)) for arm, pair in halves]

    def next(self, step: RunCell) -> float:
        self.clock.wall += 1
        return self.limit(step)


@pytest.fixture
def two(tmp_path: Path) -> Limit:
    return Limit(tmp_path / "book.db", 2)


def test_cells_on_production_are_counted_and_the_next_waits_until_an_hour_is_past(two: Limit) -> None:
    assert two.limit(CELL) == 0.0
    two.clock.wall += 60
    assert (two.limit(CELL), two.told) == (0.0, [])
    two.clock.wall += 40
    assert (two.limit(CELL), two.told) == (3500.0, [0.0])
    two.clock.wall += 3499
    assert two.limit(CELL) == 1.0
    two.clock.wall += 1
    assert two.limit(CELL) == 0.0
    two.clock.wall += 1
    assert two.limit(CELL) == 59.0


def test_cells_on_the_other_arm_are_free(two: Limit) -> None:
    assert [two.limit(replace(CELL, arm=CANDIDATE, purpose=Purpose.SCREEN)) for _ in range(5)] == [0.0] * 5
    assert two.limit(CELL) == 0.0


def test_a_pair_is_counted_once_where_it_begins_and_nothing_comes_between_its_halves(two: Limit) -> None:
    assert two.pairs((CANDIDATE, 0), (BASELINE, 0), (BASELINE, 1), (CANDIDATE, 1), (CANDIDATE, 2)) == [0.0] * 4 + [
        3596.0
    ]


def test_the_half_on_production_may_come_first_and_its_mate_is_free_where_there_is_room(tmp_path: Path) -> None:
    limit = Limit(tmp_path / "book.db", 1)
    assert limit.pairs((BASELINE, 1), (CANDIDATE, 1), (CANDIDATE, 2)) == [0.0, 0.0, 3598.0]


def test_a_cell_on_production_that_is_run_again_is_counted_again_and_its_mate_is_not(two: Limit) -> None:
    halves = ((CANDIDATE, 0), (BASELINE, 0), (CANDIDATE, 0), (BASELINE, 0), (BASELINE, 0))
    assert two.pairs(*halves) == [0.0] * 4 + [3596.0]


def test_after_a_promotion_the_candidate_s_servers_are_production(tmp_path: Path) -> None:
    limit = Limit(tmp_path / "book.db", 1, CANDIDATE)
    screen = replace(CELL, arm=CANDIDATE, purpose=Purpose.SCREEN)
    assert (limit.next(CELL), limit.next(screen), limit.next(screen)) == (0.0, 0.0, 3599.0)


def test_what_another_process_counted_counts(two: Limit) -> None:
    assert two.limit(CELL) == 0.0
    two.clock.wall += 1
    other = LoadLimit(open_book(two.path), "line", "other work", 2, BASELINE, two.clock, lambda: None)
    assert other(CELL) == 0.0
    two.clock.wall += 1
    assert two.limit(CELL) == 3598.0
