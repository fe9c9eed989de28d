"""Prefill times as they become known: the same references as over all of them, and who became too fast by one more."""

from __future__ import annotations

import random

import pytest

from prefillgate.core.prefill_times import MEDIAN, UPPER_QUARTILE, TimesTold, quartile_of, quartiles_near


def told(*times: tuple[int, float], cold: bool = True, claimed: bool = False) -> TimesTold:
    made = TimesTold()
    for length, rate in times:
        made.take(length, rate, cold, claimed)
    return made


@pytest.mark.parametrize(
    ("values", "quartile", "expected"),
    [([1.0], 2, 1.0), ([1.0, 2.0], 2, 1.5), ([1.0, 2.0], 3, 1.75), ([1.0, 2.0, 4.0, 8.0, 16.0], 3, 8.0)],
)
def test_a_quartile_lies_between_its_neighbours(values: list[float], quartile: int, expected: float) -> None:
    assert quartile_of(values, quartile) == expected


def test_a_prefill_is_too_fast_below_half_of_the_median() -> None:
    times = told((100, 1.0), (100, 3.0), (100, 2.0))
    assert times.is_too_fast(100, 0.999) and not times.is_too_fast(100, 1.0)
    assert not times.is_too_fast(101, 0.1)  # nothing is known of that length


def test_claims_count_only_where_nothing_is_proven_and_by_their_upper_quartile() -> None:
    claims = told((100, 1.0), (100, 2.0), (100, 4.0), (100, 8.0), (100, 16.0), cold=False, claimed=True)
    assert claims.is_too_fast(100, 3.99) and not claims.is_too_fast(100, 4.0)
    claims.take(100, 1.0, True, False)
    assert claims.is_too_fast(100, 0.49) and not claims.is_too_fast(100, 0.5)


def test_lengths_within_a_quarter_are_neighbours_at_both_ends() -> None:
    assert told((100, 1.0), (80, 9.0), (80, 9.0)).is_too_fast(100, 4.4)
    assert told((100, 1.0), (125, 9.0), (125, 9.0)).is_too_fast(100, 4.4)
    assert told((80, 9.0), (125, 9.0), (100, 1.0)).is_too_fast(100, 4.4)
    assert told((1000, 1.0), (1250, 9.0), (1250, 9.0)).is_too_fast(1000, 4.4)
    assert not told((1000, 1.0), (1251, 9.0), (1251, 9.0)).is_too_fast(1000, 0.5)
    for far in (74, 126):
        assert not told((100, 1.0), (far, 9.0), (far, 9.0)).is_too_fast(100, 0.5)
        assert not told((far, 9.0), (far, 9.0), (100, 1.0)).is_too_fast(100, 0.5)


def test_a_time_that_is_neither_proven_nor_claimed_is_no_reference() -> None:
    times = TimesTold()
    assert not times.take(100, 1.0, False, False)
    assert not times.is_too_fast(100, 0.1)
    assert not times.take(80, 3.0, True, False)  # a neighbour, and nothing of the length itself
    assert not times.is_too_fast(100, 0.1)
    assert times.take(100, 4.0, True, False)  # now the first one is held against both
    assert times.is_too_fast(100, 1.74) and not times.is_too_fast(100, 1.75)


def test_it_is_told_whether_an_earlier_one_became_too_fast_or_is_no_longer() -> None:
    times = told((100, 1.0))
    assert not times.take(100, 2.9, True, False)  # median 1.95
    assert times.take(100, 2.9, True, False)  # median 2.9: the first is too fast
    assert not times.take(100, 2.9, True, False)
    assert not times.take(100, 1.0, False, False)  # too fast itself, and no earlier one
    assert not times.take(100, 1.0, True, False)
    assert times.take(100, 1.0, True, False)  # median 1.95: none is any more
    assert not times.take(200, 50.0, True, False)


@pytest.mark.parametrize("seed", range(12))
def test_after_each_time_the_references_are_those_of_all_of_them(seed: int) -> None:
    chosen = random.Random(seed)
    cold: list[tuple[int, float]] = []
    claimed: list[tuple[int, float]] = []
    every: list[tuple[int, float]] = []
    times = TimesTold()

    def fast() -> list[bool]:
        lengths = sorted({at for at, _ in (*cold, *claimed)})
        references = {**quartiles_near(claimed, lengths, UPPER_QUARTILE), **quartiles_near(cold, lengths, MEDIAN)}
        return [at in references and speed < 0.5 * references[at] for at, speed in every]

    for _ in range(40):
        length, rate = chosen.choice((60, 75, 80, 100, 125, 130)), chosen.choice((0.4, 1.0, 1.1, 2.0, 2.5, 5.0))
        proven, claims = chosen.random() < 0.2, chosen.random() < 0.6
        before = fast()
        cold += [(length, rate)] * proven
        claimed += [(length, rate)] * claims
        assert times.take(length, rate, proven, claims) == (fast() != before)
        every.append((length, rate))
        assert fast() == [times.is_too_fast(at, speed) for at, speed in every]
