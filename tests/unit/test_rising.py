"""Numbers kept sorted in blocks: their ranks before and after a block is cut in two, and what comes out again."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from prefillgate.core.rising import BLOCK, Rising

FULL = 2 * BLOCK  # one more cuts the block in two


def rising(values: Iterable[float]) -> Rising:
    made = Rising()
    for value in values:
        made.add(value)
    return made


def held(numbers: Rising) -> list[float]:
    return [numbers[rank] for rank in range(len(numbers))]


def test_numbers_stand_in_rising_order_each_as_often_as_it_was_added() -> None:
    assert held(rising([])) == []
    assert held(rising([3.0, 1.0, 2.0, 1.0])) == [1.0, 1.0, 2.0, 3.0]


def test_beyond_the_last_rank_there_is_nothing() -> None:
    with pytest.raises(IndexError):
        rising([1.0])[1]
    with pytest.raises(IndexError):
        rising([])[0]


def test_a_number_is_taken_out_once() -> None:
    numbers = rising([2.0, 1.0, 2.0])
    numbers.remove(2.0)
    assert held(numbers) == [1.0, 2.0]
    numbers.remove(2.0)
    numbers.remove(1.0)
    assert held(numbers) == []
    numbers.add(5.0)
    assert held(numbers) == [5.0]


@pytest.mark.parametrize("missing", [0.0, 1.5, 3.0])
def test_a_number_that_is_not_there_is_not_taken_out(missing: float) -> None:
    numbers = rising([1.0, 2.0])
    with pytest.raises(ValueError, match=rf"{missing} is not there"):
        numbers.remove(missing)
    assert held(numbers) == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"1\.0 is not there"):
        rising([]).remove(1.0)


@pytest.mark.parametrize("added", [-1.0, BLOCK - 1.5, BLOCK - 0.5, BLOCK + 0.5, FULL + 1.0])
def test_a_block_that_is_cut_in_two_keeps_every_number_findable(added: float) -> None:
    """Each of the numbers about the cut and about the end is taken out, put back, and stands where it stood."""
    expected = sorted([*map(float, range(FULL)), added])
    numbers = rising([*map(float, range(FULL)), added])
    assert held(numbers) == expected
    about = [*expected[:3], *expected[BLOCK - 3 : BLOCK + 4], *expected[-3:]]
    for value in about:
        numbers.remove(value)
        numbers.add(value)
    assert held(numbers) == expected
    for value in reversed(about):
        numbers.remove(value)
    assert held(numbers) == [value for value in expected if value not in about]


def test_the_last_of_each_block_is_known_after_every_change() -> None:
    """A number is looked for in the first block whose last is not below it: a wrong last would hide it."""
    numbers = rising([1.0])
    numbers.add(3.0)
    numbers.add(2.0)
    assert numbers._last == [3.0]
    numbers.remove(3.0)
    assert numbers._last == [2.0]
    numbers.add(9.0)
    assert numbers._last == [9.0]
    for value in range(10, FULL + 8):
        numbers.add(float(value))
    assert [block[-1] for block in numbers._blocks] == numbers._last == [float(BLOCK + 6), float(FULL + 7)]
    numbers.remove(float(BLOCK + 6))
    assert numbers._last == [float(BLOCK + 5), float(FULL + 7)]


def test_a_block_that_is_empty_is_gone() -> None:
    numbers = rising(map(float, range(FULL + 1)))
    for value in range(BLOCK):
        numbers.remove(float(value))
    assert (len(numbers), numbers[0], numbers._last) == (BLOCK + 1, float(BLOCK), [float(FULL)])
    numbers.add(0.0)
    assert (numbers[0], numbers[1]) == (0.0, float(BLOCK))


def test_it_agrees_with_a_sorted_list() -> None:
    source, numbers, expected = random.Random(3), Rising(), list[float]()
    for _ in range(6000):
        if expected and source.random() < 0.2:
            value = source.choice(expected)
            numbers.remove(value)
            expected.remove(value)
        else:
            value = float(source.randrange(3000))
            numbers.add(value)
            expected.append(value)
    assert held(numbers) == sorted(expected)
