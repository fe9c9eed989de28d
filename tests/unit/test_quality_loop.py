"""Repetition loops: what is one, what is not, and that no text takes more than linear time to judge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.core.quality import Finding, Output
from prefillgate.core.quality_loop import LoopRule, repetition_loop

RULE = LoopRule()
WORDS = [f"w{number}" for number in range(400)]


def loops(text: str, rule: LoopRule = RULE) -> bool:
    return repetition_loop(Output(text), rule) is not None


@pytest.mark.parametrize(
    "text",
    [
        "I am sorry, I cannot. " * 10,
        "no " * 30,
        "the end\n" * 20,
        "a" * 200,
        "私は申し訳ありません。" * 8,
        "ha" * 40,
        "A real start of an answer.\n" + "and then " * 40 + "\nand a real end of it.",
        "\n".join(f"{number % 3}: the same three lines go round" for number in range(30)),
    ],
)
def test_text_that_goes_round_is_a_loop(text: str) -> None:
    assert loops(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A short answer.",
        "=" * 200,
        "| --- " * 40,
        "-" * 80 + "\n" + "-" * 80,
        "\n" * 500,
        " ".join(WORDS),
        "\n".join(f"- item {number}: value {number * 7}" for number in range(100)),
        "yes yes yes yes",
    ],
)
def test_ordinary_text_tables_and_rules_are_no_loop(text: str) -> None:
    assert not loops(text)


def test_the_finding_tells_the_block_and_how_often() -> None:
    assert repetition_loop(Output("x " + "I am sorry now " * 5), RULE) == Finding(
        "content repeats 'I am sorry now' 5 times in a row"
    )
    assert repetition_loop(
        Output("and so: " + "I am sorry now " * 5 + "is how it goes and ends here"), RULE
    ) == Finding("content repeats 'I am sorry now' 5 times in a row")
    found = repetition_loop(Output("fine", reasoning="a" * 60), RULE)
    assert found == Finding("reasoning repeats 'a' 60 times in a row")


def test_a_long_block_is_shown_short() -> None:
    block = " ".join(WORDS[:20])
    found = repetition_loop(Output(" ".join([block] * 4)), RULE)
    assert found == Finding(f"content repeats '{block[:39]}…' 4 times in a row")
    exactly = "abcdefghi klmnopqrs uvwxyzabc efghijklmno"
    assert len(exactly) == 41
    found = repetition_loop(Output(" ".join([exactly] * 4)), RULE)
    assert found == Finding(f"content repeats '{exactly[:39]}…' 4 times in a row")
    found = repetition_loop(Output(" ".join([exactly[:40]] * 4)), RULE)
    assert found == Finding(f"content repeats '{exactly[:40]}' 4 times in a row")


def test_repeats_and_characters_are_counted_exactly() -> None:
    sentence = "fifteen letters"
    assert loops(" ".join([sentence] * 4))
    assert not loops(" ".join([sentence] * 3) + " fifteen other words here")
    assert not loops(" ".join(["abcdefghijk"] * 5))
    assert loops("a" * 60)
    assert not loops("a" * 59)
    assert not loops("b" + "a" * 59)
    assert loops("a" * 20, LoopRule(characters=20))
    assert loops("go round " * 2, LoopRule(repeats=2, characters=17))
    assert not loops("go round " * 2, LoopRule(repeats=2, characters=19))


def test_the_stretch_is_what_repeats_and_not_what_stands_around_it() -> None:
    assert not loops("a real beginning of some length " + "no " * 18 + "no")
    assert loops("a real beginning of some length " + "no " * 20 + "no")


@pytest.mark.parametrize(("period", "found"), [(16, True), (17, False)])
def test_a_loop_of_lines_in_the_middle_is_found_to_a_period_of_sixteen(period: int, found: bool) -> None:
    block = "\n".join(" ".join(WORDS[line * 5 : line * 5 + 5]) for line in range(period))
    assert loops("\n".join([*[block] * 4, " ".join(WORDS)])) == found


@pytest.mark.parametrize(("period", "found"), [(64, True), (65, False)])
def test_a_loop_of_words_in_the_middle_is_found_to_a_period_of_sixty_four(period: int, found: bool) -> None:
    block = " ".join(WORDS[:period])
    assert loops(" ".join([*[block] * 4, *WORDS])) == found


@pytest.mark.parametrize(("period", "found"), [(16, True), (17, False)])
def test_a_loop_without_spaces_in_the_middle_is_found_to_a_period_of_sixteen(period: int, found: bool) -> None:
    assert loops("abcdefghijklmnopqrst"[:period] * 4 + "and so it ends") == found


@pytest.mark.parametrize("period", [17, 50])
def test_a_loop_without_spaces_that_lasts_to_the_end_is_found_whatever_its_period(period: int) -> None:
    block = "".join(chr(0x4E00 + number) for number in range(period))
    assert loops("始" + block * 4 + "\n")
    assert not loops("始" + (block * 4)[:-1])


@pytest.mark.parametrize("period", [65, 99, 130])
def test_a_loop_that_lasts_to_the_end_is_found_whatever_its_period(period: int) -> None:
    block = WORDS[:period]
    assert loops(" ".join(["start", *block * 4]))
    assert not loops(" ".join(["start", *block * 3, *block[:-1]]))
    assert loops(" ".join([*block * 4, *block[:7]]))


def test_a_block_that_begins_and_ends_with_the_same_word_is_found_at_the_end() -> None:
    block = ["x", *WORDS[:70], "x", "x"]
    unlike_spaces = [glue.join(block) for glue in (" ", "  ", "\n", "\t")]
    assert loops(" ".join(unlike_spaces))


def test_a_later_run_is_found_behind_one_that_is_too_short() -> None:
    assert loops("no " * 10 + "stop " + "no " * 10 + "and then " * 20)


@given(st.text(alphabet="ab \n-", max_size=300))
def test_only_text_that_repeats_a_block_is_called_a_loop(text: str) -> None:
    """Against the plain definition, over words and characters, on short alphabets where runs are common."""
    rule = LoopRule(repeats=3, characters=12)
    if loops(text, rule):
        words = text.split()
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        assert any(_repeats(units, glue) for units, glue in ((words, " "), (lines, " "), (list(text), "")))


def _repeats(units: list[str], glue: str) -> bool:
    for start in range(len(units)):
        for period in range(1, (len(units) - start) // 3 + 1):
            end = start + period
            while end < len(units) and units[end] == units[end - period]:
                end += 1
            if end - start >= 3 * period and len(glue.join(units[start:end])) >= 12:
                return True
    return False


@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, "ab" * 500_000, "\0" * 300_000, " ".join(WORDS * 150), "x y " * 250_000, "\x1b[31m" * 60_000],
    ids=["one letter", "two letters", "nul", "long period", "two words", "escapes"],
)
def test_a_long_text_of_anything_is_judged(text: str) -> None:
    assert loops(text) == any(map(str.isalnum, text))
