"""The bare verdict: what is a verdict line, and what is a rationale."""

from __future__ import annotations

import pytest

from prefillgate.core.quality import Finding, Output
from prefillgate.core.quality_verdict import VerdictLine, VerdictRule, bare_verdict, read_verdict_line


@pytest.mark.parametrize(
    "line",
    [
        "VERDICT: LGTM",
        "  VERDICT:LGTM  ",
        "**VERDICT: LGTM**",
        "**VERDICT:** LGTM",
        "**VERDICT**: **LGTM**",
        "__VERDICT: LGTM__",
        "__VERDICT__: LGTM",
        "*Verdict: LGTM.*",
        "`VERDICT: LGTM`",
        "~~VERDICT: LGTM~~",
        "### VERDICT: LGTM",
        "> VERDICT: LGTM",
        "- VERDICT: LGTM",
        "\u00a0VERDICT :\u00a0LGTM!",
        "\ufeffVERDICT\u200b:\u200d LGTM",
        "VERDICT：LGTM",
        "verdict: LGTM,",
    ],
)
def test_spaces_and_markdown_around_a_verdict_are_ignored(line: str) -> None:
    assert read_verdict_line(line, "VERDICT") == VerdictLine("LGTM", "")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "VERDICT",
        "VERDICT:",
        "VERDICT: ** **",
        "VERDICTS: LGTM",
        "My VERDICT: LGTM",
        "VERDIC: LGTM",
        "VERDICT LGTM:",
    ],
)
def test_a_line_without_keyword_colon_and_word_is_no_verdict(line: str) -> None:
    assert read_verdict_line(line, "VERDICT") is None


def test_a_verdict_keeps_its_inner_underscore_and_what_follows_it() -> None:
    found = read_verdict_line("**DECISION: NEEDS_WORK** because it leaks a handle", "decision")
    assert found == VerdictLine("NEEDS_WORK", "because it leaks a handle")


@pytest.mark.parametrize(
    "content",
    [
        "VERDICT: LGTM",
        "**VERDICT: LGTM**",
        "\n\n  VERDICT: LGTM\n",
        "## Review\n\n**VERDICT: LGTM**",
        "VERDICT: LGTM\nVERDICT: LGTM",
        "one two three\nVERDICT: LGTM",
        "VERDICT: LGTM one two three",
        "---\n***\nVERDICT: LGTM",
    ],
)
def test_a_verdict_without_a_rationale_is_bare(content: str) -> None:
    assert bare_verdict(Output(content), VerdictRule()) is not None


@pytest.mark.parametrize(
    "content",
    [
        "one two three four\nVERDICT: LGTM",
        "VERDICT: LGTM\none two three four",
        "VERDICT: LGTM one two three four",
        "one two\nVERDICT: LGTM three four",
        "变更安全\nVERDICT: LGTM",
        "no line of the kind",
        "",
    ],
)
def test_four_words_anywhere_outside_the_verdict_are_a_rationale(content: str) -> None:
    assert bare_verdict(Output(content), VerdictRule()) is None


def test_the_finding_names_verdict_and_words() -> None:
    found = bare_verdict(Output("fine\nVERDICT: CHANGES\nVERDICT: LGTM"), VerdictRule(rationale_words=2))
    assert found == Finding("verdict LGTM with 1 words of rationale, at least 2 wanted")


def test_reasoning_is_no_rationale() -> None:
    output = Output("VERDICT: LGTM", reasoning="one two three four five")
    assert bare_verdict(output, VerdictRule()) == Finding("verdict LGTM with 0 words of rationale, at least 4 wanted")


def test_a_missing_verdict_is_bad_only_where_it_is_required() -> None:
    assert bare_verdict(Output("a b c d e"), VerdictRule(required=True)) == Finding("no VERDICT line")
    assert bare_verdict(Output("a b c d e"), VerdictRule(required=False)) is None


def test_the_last_verdict_must_be_one_of_the_known_ones() -> None:
    rule = VerdictRule(verdicts=("LGTM", "CHANGES"))
    assert bare_verdict(Output("a b c d\nVERDICT: MAYBE\nVERDICT: lgtm"), rule) is None
    found = bare_verdict(Output("a b c d\nVERDICT: LGTM\nVERDICT: MAYBE"), rule)
    assert found == Finding("verdict MAYBE, allowed: LGTM, CHANGES")


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert VerdictRule() == VerdictRule("VERDICT", (), 4, False)
