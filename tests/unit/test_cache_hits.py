"""Prefill-speed figures that measured cache hits: flat times, repeated prompts, tokens far too fast."""

from __future__ import annotations

import pytest

from prefillgate.core.cache_hits import Sign, Speed, SpeedLog, length_pairs
from prefillgate.core.cells import CANDIDATE
from prefillgate.core.restate import Seen
from prefillgate.core.restated import fold
from prefillgate.core.verdict import CellClass

FRESH, UNKNOWN, COPY = CellClass.FRESH, CellClass.UNKNOWN, CellClass.COPY
LENGTHS = [100 * (number + 1) for number in range(16)]


def asked(prompt: object, length: int | None, ms: float | None, cell_class: CellClass = UNKNOWN) -> Seen:
    return Seen(CANDIDATE, "e", prompt, prompt, cell_class, False, True, length, ms)


def speed(*requests: Seen) -> Speed:
    return fold(requests)[1][CANDIDATE].speed()


def over_lengths(times: list[float]) -> Speed:
    return speed(*(asked(length, length, ms) for length, ms in zip(LENGTHS, times, strict=True)))


def test_times_that_grow_with_the_prompt_are_no_sign() -> None:
    found = over_lengths([float(length) for length in LENGTHS])
    assert (found.pairs, found.slower, found.signs) == (8, 8, ())
    assert found.flat_p == pytest.approx(1.0)


def test_times_that_do_not_grow_with_the_prompt_are_a_sign() -> None:
    """Eight pairs, four of them slower: P(Binomial(8, 0.9) <= 4) = 0.0050; five is 0.0381."""
    falling = [1.0] * 8 + [2.0] * 4 + [0.5] * 4
    found = over_lengths(falling)
    assert (found.pairs, found.slower) == (8, 4)
    assert found.flat_p == pytest.approx(0.00502, rel=0.001)
    assert found.signs == (Sign.FLAT,)
    assert over_lengths([1.0] * 8 + [2.0] * 5 + [0.5] * 3).signs == ()
    assert over_lengths([1.0] * 16).slower == 0  # equal times did not grow


def test_two_pairs_of_real_prefills_never_reach_the_limit_by_one_that_was_slow() -> None:
    """P(Binomial(2, 0.9) = 0) is 0.01: at the limit, and a sign."""
    found = speed(*(asked(length, length, 5.0) for length in (100, 101, 400, 404)))
    assert (found.pairs, found.slower, found.signs) == (2, 0, (Sign.FLAT,))
    assert speed(*(asked(length, length, 5.0) for length in (100, 400))).signs == ()


@pytest.mark.parametrize(("slower", "p_value", "sign"), [(81, 0.0045808, True), (82, 0.0100073, False)])
def test_a_hundred_pairs_are_a_sign_up_to_one_in_a_hundred(slower: int, p_value: float, sign: bool) -> None:
    times = [1.0] * 100 + [2.0] * slower + [0.5] * (100 - slower)
    lengths = [*range(1000, 1100), *range(3000, 3100)]
    found = speed(*(asked(length, length, ms) for length, ms in zip(lengths, times, strict=True)))
    assert (found.pairs, found.slower) == (100, slower)
    assert found.flat_p == pytest.approx(p_value, rel=1e-4)
    assert (Sign.FLAT in found.signs) is sign


def test_only_lengths_twice_apart_are_paired_the_middle_one_of_an_odd_number_is_left() -> None:
    assert length_pairs({100: [1.0], 200: [2.0]}) == (1, 1)
    assert length_pairs({100: [1.0], 199: [2.0]}) == (0, 0)
    assert length_pairs({100: [1.0], 150: [9.0], 300: [2.0]}) == (1, 1)
    assert length_pairs({100: [1.0], 150: [9.0], 300: [2.0], 500: [3.0]}) == (2, 1)
    assert length_pairs({}) == (0, 0)


def test_a_length_counts_by_its_lower_median_of_the_first_hundred_and_one() -> None:
    assert length_pairs({100: [5.0], 200: [9.0, 4.0]}) == (1, 0)
    assert length_pairs({100: [5.0], 200: [9.0, 4.0, 6.0]}) == (1, 1)
    log = SpeedLog()
    for ms in (*[1.0] * 51, *[9.0] * 200):
        log.add(asked("a", 200, ms), False)
    log.add(asked("b", 100, 2.0), False)
    assert (log.speed().pairs, log.speed().slower) == (1, 0)
    log = SpeedLog()
    for ms in (*[1.0] * 50, *[9.0] * 51, 1.0):  # the last is the hundred and second
        log.add(asked("a", 200, ms), False)
    log.add(asked("b", 100, 2.0), False)
    assert (log.speed().pairs, log.speed().slower) == (1, 1)


def test_repeats_that_nothing_proves_are_a_sign_from_a_tenth_on() -> None:
    def share(repeats: int, cell_class: CellClass = UNKNOWN, ms: float | None = 1.0) -> Speed:
        firsts = [asked(number, 10, ms) for number in range(10 - repeats)]
        return speed(*firsts, *(asked(0, 10, ms, cell_class) for _ in range(repeats)))

    assert (share(1).repeats, share(1).requests, share(1).signs) == (1, 10, (Sign.REPEATED,))
    assert share(0).signs == ()
    assert (share(5, FRESH).repeats, share(5, FRESH).signs) == (0, ())
    assert share(5, ms=None).signs == ()
    more = [asked(number, 10, 1.0) for number in range(10)]
    assert speed(*more, asked(0, 10, 1.0)).signs == ()  # 1 of 11


def test_tokens_far_faster_than_those_of_fresh_prefills_are_a_sign() -> None:
    real = asked("a", 1000, 1000.0, FRESH)
    found = speed(real, asked("a", 1000, 10.0, COPY))
    assert (found.fresh_tokens_per_second, found.fresh_proven) == (1000.0, True)
    assert found.tokens_per_second == pytest.approx(1000 * 2000 / 1010)
    assert Sign.TOO_FAST not in found.signs  # 1980 is not twice 1000
    quicker = speed(real, *(asked("a", 1000, 10.0, COPY) for _ in range(2)))
    assert Sign.TOO_FAST in quicker.signs
    assert quicker.timed == 3


def test_the_limit_is_half_the_speed() -> None:
    def of(ms: float) -> Speed:
        return speed(asked("a", 1000, 1000.0, FRESH), asked("b", 3000, ms, COPY))

    assert of(1000.0).tokens_per_second == 2000.0
    assert of(1000.0).signs == ()
    assert of(999.0).signs == (Sign.TOO_FAST,)


def test_where_no_prefill_is_proven_the_first_time_of_each_prompt_is_compared() -> None:
    found = speed(asked("a", 1000, 1000.0), *(asked("a", 1000, 1.0) for _ in range(3)), asked("b", 1000, 1000.0))
    assert (found.fresh_tokens_per_second, found.fresh_proven) == (1000.0, False)
    assert found.signs == (Sign.REPEATED, Sign.TOO_FAST)
    for rode in (COPY, CellClass.ORPHAN, CellClass.CONTRADICTED):
        assert speed(asked("a", 1000, 1000.0, rode)).fresh_tokens_per_second is None


def test_requests_without_a_time_or_a_length_are_not_timed() -> None:
    found = speed(asked("a", None, 5.0), asked("b", 10, None), asked("c", 10, 0.0), asked("d", 0, 5.0))
    assert found == Speed(4, 0, 0, None, None, False, 0, 0, None, ())
