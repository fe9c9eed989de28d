"""Choosing over the lengths of prompts: strata, the draw, the longest."""

from __future__ import annotations

import hashlib

from prefillgate.core.picking import Stratum, choose


def test_one_is_drawn_from_each_quantile_and_the_longest_is_kept() -> None:
    lengths = [50, 10, 40, 20, 30, 60, 5]
    found = choose(lengths, 3, seed=0)
    assert [(s.shortest, s.longest, s.size) for s in found] == [(5, 10, 2), (20, 30, 2), (40, 60, 3)]
    assert found[2].chosen == 5
    assert all(s.shortest <= lengths[s.chosen] <= s.longest for s in found)


def test_the_draw_is_the_seeds_digest_and_nothing_else() -> None:
    lengths = list(range(100))
    for seed in (0, 1, 7):
        expected = []
        for number in range(3):
            digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
            expected.append(number * 25 + int.from_bytes(digest[:8], "big") % 25)
        assert [s.chosen for s in choose(lengths, 4, seed)] == [*expected, 99]
    assert choose(lengths, 4, 0) != choose(lengths, 4, 1)


def test_of_equally_long_ones_the_earliest_is_the_longest() -> None:
    assert choose([7, 9, 9, 9, 8], 1, 0) == (Stratum(7, 9, 5, 1),)


def test_no_more_than_there_are_are_chosen() -> None:
    assert [s.chosen for s in choose([3, 1, 2], 3, 0)] == [1, 2, 0]
    assert choose([3, 1, 2], 9, 0) == (Stratum(1, 1, 1, 1), Stratum(2, 2, 1, 2), Stratum(3, 3, 1, 0))
    assert choose([], 4, 0) == ()


def test_the_strata_are_all_of_them_and_nearly_equal() -> None:
    for count in (1, 2, 5, 16, 33):
        found = choose(list(range(101)), count, 3)
        sizes = [s.size for s in found]
        assert sum(sizes) == 101 and max(sizes) - min(sizes) <= 1
        assert len({s.chosen for s in found}) == count
