"""Which texts are nearly the same: the sketch, its estimate, and the index that keeps one of each kind."""

from __future__ import annotations

import random
import zlib

import pytest

from prefillgate.core.resemblance import CROWD, SKETCH_SIZE, Distinct, common_and_all, looked_up, sketch

WORDS = [f"w{number}" for number in range(5000)]


def text(seed: int, words: int = 100) -> list[str]:
    return random.Random(seed).choices(WORDS, k=words)


def share(first: str, second: str) -> tuple[int, int]:
    return common_and_all(sketch(first), sketch(second))


def test_a_text_is_the_set_of_its_five_word_sequences() -> None:
    assert share("a b c d e f", "a b c d e f") == (2, 2)
    assert share("a b c d e f", "b c d e f g") == (1, 3)
    assert share("a b c d e", "a b c d x") == (0, 2)
    assert sketch("a b c d e f a b c d e") == sketch("a b c d e f a b c d e")
    assert len(sketch("a a a a a a a a")) == 1


def test_a_hash_is_crc32_times_knuths_multiplier() -> None:
    expected = sorted(zlib.crc32(words) * 2_654_435_761 % 2**32 for words in (b"a b c d e", b"b c d e f"))
    assert sketch("a b c d e f") == tuple(expected)


def test_a_short_text_is_one_sequence_and_no_word_is_none() -> None:
    assert len(sketch("one two")) == len(sketch("one two three four")) == len(sketch("one two three four five")) == 1
    assert len(sketch("one two three four five six")) == 2
    assert sketch("one two") != sketch("two one")
    assert sketch("") == sketch(" -- ?! ") == ()


def test_case_spaces_and_punctuation_do_not_count() -> None:
    assert sketch("The quick,  brown\nFOX jumps.") == sketch("the quick brown fox jumps")


@pytest.mark.parametrize("letters", ["一二三四五六", "あいうえおか", "ァアィイゥウ", "가각갂갃간갅", "ぁ一가아丁각"])
def test_a_script_without_spaces_is_read_letter_by_letter(letters: str) -> None:
    assert len(sketch(letters)) == 2
    assert share(letters, letters[1:]) == (1, 2)


def test_lone_surrogates_are_no_obstacle() -> None:
    assert len(sketch("\ud800a b c d e")) == 1


def test_a_sketch_holds_the_smallest_128_hashes() -> None:
    whole = sketch(" ".join(WORDS[:132]))
    assert SKETCH_SIZE == 128 and len(whole) == 128
    longer = sketch(" ".join(WORDS[:1000]))
    assert len(longer) == 128
    assert list(longer) == sorted(longer)
    assert max(longer) < max(whole)


def test_up_to_128_sequences_the_resemblance_is_exact_and_above_an_estimate() -> None:
    words = [f"x{number}" for number in range(104)]  # 100 sequences
    changed = [*words[:50], "other", *words[51:]]
    assert share(" ".join(words), " ".join(changed)) == (95, 105)
    long = text(1, 4004)
    other = [word if place % 200 else "changed" for place, word in enumerate(long)]
    both, union = share(" ".join(long), " ".join(other))
    assert union == 128
    assert both / union == pytest.approx((4000 - 96) / (4000 + 96), abs=4 * 0.02)


def kept(texts: list[str], percent: int) -> list[int]:
    index = Distinct(percent)
    return [place for place, one in enumerate(texts) if index.like(sketch(one)) is None]


def test_one_text_of_each_kind_is_kept_and_named() -> None:
    index = Distinct(90)
    assert index.like(sketch("a b c d e f g")) is None
    assert index.like(sketch("q r s t u v w")) is None
    assert index.like(sketch("A B C D E F G")) == 0
    assert index.like(sketch("q r s t u v w.")) == 1


@pytest.mark.parametrize(("percent", "same"), [(32, True), (33, True), (34, False), (100, False)])
def test_the_share_itself_is_near_and_one_below_it_is_not(percent: int, same: bool) -> None:
    texts = ["a b c d e f", "b c d e f g"]  # 1 of 3
    assert (kept(texts, percent) == [0]) is same


@pytest.mark.parametrize("percent", [50, 90, 91, 100])
def test_at_exactly_the_share_it_is_a_near_duplicate(percent: int) -> None:
    first = [f"x{number}" for number in range(104)]
    both, union = 100, 100 * 100 // percent
    longer = [*first, *(f"y{number}" for number in range(union - both))]
    assert share(" ".join(first), " ".join(longer))[1] == min(128, union)
    assert kept([" ".join(longer), " ".join(first)], percent) == [0]


@pytest.mark.parametrize("percent", [30, 60, 80, 90, 95, 100])
def test_the_index_finds_what_comparing_each_with_each_finds(percent: int) -> None:
    source = random.Random(percent)
    texts: list[list[str]] = []
    for number in range(150):
        base = list(texts[source.randrange(number)]) if number and source.random() < 0.7 else text(number, 130)
        for _ in range(source.randrange(4)):
            base[source.randrange(len(base))] = source.choice(WORDS)
        texts.append(base[: source.randrange(20, 140)])
    sketches = [sketch(" ".join(one)) for one in texts]
    expected: list[int] = []
    for place, one in enumerate(sketches):
        pairs = (common_and_all(sketches[other], one) for other in expected)
        if not any(100 * common >= percent * union for common, union in pairs):
            expected.append(place)
    index = Distinct(percent)
    assert [place for place, one in enumerate(sketches) if index.like(one) is None] == expected
    assert 10 < len(expected) < 150


@pytest.mark.parametrize(
    ("size", "percent", "first"),
    [(128, 90, 13), (128, 100, 1), (128, 50, 65), (128, 1, 127), (107, 90, 12), (9, 90, 2), (8, 90, 1), (1, 50, 2)],
)
def test_one_more_of_the_first_hashes_is_looked_up_than_can_stand_in_one_alone(
    size: int, percent: int, first: int
) -> None:
    """9 hashes at 90 %: the union has 10 at most, so one can stand alone; 107: 118, so 11; 108: 120, so 12."""
    assert looked_up(size, percent) == first


def test_only_the_hashes_that_are_looked_up_are_kept_in_the_index() -> None:
    index = Distinct(90)
    index.like(tuple(range(128)))
    assert sorted(index._where) == list(range(13))


def test_the_first_of_several_that_it_resembles_is_named() -> None:
    index = Distinct(30)
    assert index.like(sketch("a b c d e f")) is None
    assert index.like(sketch("e f g h i j b c d e f g")) is None
    assert index.like(sketch("b c d e f g")) == 0


@pytest.mark.parametrize(("crowd", "found"), [(255, 0), (256, None)])
def test_a_sequence_of_256_kept_texts_finds_nothing_any_more(crowd: int, found: int | None) -> None:
    assert CROWD == 256
    index = Distinct(50)
    assert all(index.like((7, 1000 + number)) is None for number in range(crowd))  # 1 of 3 in common with each other
    assert index.like((7,)) == found  # 1 of 2


def test_no_list_of_the_index_grows_beyond_the_crowd() -> None:
    index = Distinct(100)
    shared = (7,)
    for number in range(300):
        index.like((*shared, 10 + number))
    assert len(index._where[7]) == CROWD
    assert len(index._kept) == 300
