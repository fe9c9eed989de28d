"""The pure text checks, on both sides of every boundary."""

from __future__ import annotations

import pytest

from prefillgate.core import quality
from prefillgate.core.quality import Finding, Output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("   \n\t", 0),
        ("one", 1),
        ("one two\nthree", 3),
        ("a-b c/d", 2),
        ("--- ** | |", 0),
        ("naïve café", 2),
        ("«quoted»", 1),
        ("été!encore", 1),
        ("7", 1),
        ("変更は小さい", 6),
        ("這個變更很安全。", 7),
        ("แก้ไข", 4),
        ("변경은 작고 안전합니다", 3),
        ("abc変更def", 3),
        ("…—…", 0),
    ],
)
def test_words_are_counted_about_the_same_in_every_language(text: str, words: int) -> None:
    assert quality.count_words(text) == words


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("ก", "ༀ"),
        ("ໟ", "\u0df2"),
        ("\u1000", "\u10a0"),
        ("\u1780", "\u1810"),
        ("\u3041", "\u3105"),
        ("\u30fe", "\u3105"),
        ("\u3400", "\ua000"),
        ("\u9fff", "\ua000"),
        ("\uf900", "\ufb00"),
        ("\U00020000", "\U00010300"),
    ],
)
def test_each_character_is_a_word_only_in_scripts_without_spaces(inside: str, outside: str) -> None:
    assert quality.count_words(inside * 3) == 3
    assert quality.count_words(outside * 3) <= 1


def test_an_unspaced_mark_without_a_letter_is_no_word() -> None:
    assert quality.count_words("\u0e46\u0e2f") == 2
    assert quality.count_words("\u0e3f") == 0


def test_a_minimum_of_words_is_met_exactly_at_the_minimum() -> None:
    output = Output("one two three", reasoning="four five six")
    assert quality.too_few_words(output, 3) is None
    assert quality.too_few_words(output, 4) == Finding("3 words, at least 4 wanted")


@pytest.mark.parametrize(
    ("output", "finding"),
    [
        (Output(), Finding("nothing at all")),
        (Output(" \n\t"), Finding("nothing at all")),
        (Output(reasoning="thinking"), Finding("reasoning only, no content and no tool call")),
        (Output(reasoning="  "), Finding("nothing at all")),
        (Output(tool_calls="[]"), Finding("nothing at all")),
        (Output(tool_calls=" null "), Finding("nothing at all")),
        (Output(tool_calls='[{"name":"f"}]'), None),
        (Output("x"), None),
        (Output("x", reasoning="thinking"), None),
    ],
)
def test_tool_calls_count_as_an_answer_and_reasoning_alone_does_not(output: Output, finding: Finding | None) -> None:
    assert quality.nothing_said(output) == finding


@pytest.mark.parametrize(
    ("output", "finding"),
    [
        (Output(reasoning="abc"), Finding("3 characters of reasoning, no content and no tool call")),
        (Output(), None),
        (Output(reasoning=" "), None),
        (Output("x", reasoning="abc"), None),
        (Output(tool_calls="[{}]", reasoning="abc"), None),
    ],
)
def test_reasoning_without_an_answer_is_found_only_where_there_is_reasoning(
    output: Output, finding: Finding | None
) -> None:
    assert quality.reasoning_only(output) == finding


@pytest.mark.parametrize("token", quality.TEMPLATE_TOKENS)
def test_every_template_token_is_found_in_content_and_in_reasoning(token: str) -> None:
    found = Finding(f"{token} at character 2")
    assert quality.leaked_template_token(Output(f"a {token} b")) == found
    assert quality.leaked_template_token(Output("clean", reasoning=f"a {token}")) == found


def test_the_tokens_of_the_best_known_templates_are_known() -> None:
    wanted = {"<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "</s>", "<|eot_id|>"}
    assert wanted <= set(quality.TEMPLATE_TOKENS)
    assert len(quality.TEMPLATE_TOKENS) == 31


def test_text_with_angle_brackets_is_no_template_token() -> None:
    assert quality.leaked_template_token(Output("<div>im_end</div> <| |> [INFO]")) is None
    assert quality.leaked_template_token(Output("<x>"), ["<x>"]) == Finding("<x> at character 0")
    assert quality.leaked_template_token(Output("</s>"), ["<x>"]) is None


def test_a_finish_reason_must_be_among_the_allowed_ones() -> None:
    assert quality.finish_reason_outside("stop", ("stop", "tool_calls")) is None
    found = quality.finish_reason_outside("length", ("stop", "tool_calls"))
    assert found == Finding("finish reason length, allowed: stop, tool_calls")


@pytest.mark.parametrize(("reason", "cut"), [("length", True), ("max_tokens", True), ("stop", False), ("", False)])
def test_an_output_is_cut_when_it_ran_into_its_limit(reason: str, cut: bool) -> None:
    assert quality.cut_short(reason) == (Finding(f"finish reason {reason}") if cut else None)


@pytest.mark.parametrize(
    ("output", "foreign"),
    [
        (Output("see ZX-81-canary here"), True),
        (Output("fine", reasoning="ZX-81-canary"), True),
        (Output("fine", tool_calls='[{"arguments":"ZX-81-canary"}]'), True),
        (Output("zx-81-canary"), False),
        (Output("fine"), False),
    ],
)
def test_the_canary_of_another_case_is_found_in_every_part(output: Output, foreign: bool) -> None:
    found = quality.foreign_text(output, ["other-canary", "ZX-81-canary"], "my prompt")
    assert found == (Finding("the canary ZX-81-canary of another case") if foreign else None)


def test_a_canary_that_stands_in_the_own_prompt_is_not_foreign() -> None:
    assert quality.foreign_text(Output("ZX-81-canary"), ["ZX-81-canary"], "quote ZX-81-canary") is None


@pytest.mark.parametrize(
    ("output", "finding"),
    [
        (Output("abc"), None),
        (Output("abd"), Finding("content differs from character 2 on")),
        (Output("abcd"), Finding("content differs from character 3 on")),
        (Output("ab"), Finding("content differs from character 2 on")),
        (Output(""), Finding("content differs from character 0 on")),
        (Output("abc", tool_calls="[{}]"), Finding("tool calls differ")),
        (Output("abc", reasoning="else"), None),
    ],
)
def test_equality_with_the_baseline_is_by_character(output: Output, finding: Finding | None) -> None:
    assert quality.differs_from(output, Output("abc")) == finding
