"""The suite of checks: what is declared, what is added, and that a check that errs is never a pass."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from prefillgate.api.check_spec import read_check_list
from prefillgate.api.check_type import ABOUT, CheckType
from prefillgate.api.errors import PolicyError, ReplaySetError
from prefillgate.api.policy import PolicyDocument, load_policy
from prefillgate.api.replay_set import Case
from prefillgate.core.journal import CheckOutcome
from prefillgate.core.quality import Output
from prefillgate.core.quality_expect import Expect
from prefillgate.replay.check_kinds import BUILDERS
from prefillgate.replay.checks import NO_CONTEXT, CheckContext, CheckSuite
from prefillgate.replay.replay_set import ReplaySet, load_replay_set

CASE = Case("a", "/v1/completions", {"prompt": "question"})
GOOD = Output("The change is small, tested and correct.\nVERDICT: LGTM", finish_reason="stop")


def policy(tmp_path: Path, checks: str | None, flags: str = "[]") -> PolicyDocument:
    file = tmp_path / "policy.yaml"
    text = (
        "apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: p}\nspec:\n  marginPercent: 10\n"
    )
    text += f"  flags: {flags}\n"
    if checks is not None:
        text += f"  checks: {checks}\n"
    file.write_text(text)
    return load_policy(file)


def suite(tmp_path: Path, checks: str | None, *cases: Case) -> CheckSuite:
    return CheckSuite.from_policy(policy(tmp_path, checks), ReplaySet("set", "0", cases or (CASE,)))


def run(made: CheckSuite, case: Case, output: Output, context: CheckContext = NO_CONTEXT) -> tuple[CheckOutcome, ...]:
    return asyncio.run(made.run(case, output, context))


def one(tmp_path: Path, check: dict[str, Any], output: Output) -> CheckOutcome:
    return run(suite(tmp_path, json.dumps([check])), CASE, output)[0]


def names(outcomes: tuple[CheckOutcome, ...]) -> list[str]:
    return [outcome.check for outcome in outcomes]


def bad(outcomes: tuple[CheckOutcome, ...]) -> list[str]:
    return [outcome.check for outcome in outcomes if outcome.bad]


def test_without_declared_checks_the_default_ones_are_made(tmp_path: Path) -> None:
    made = suite(tmp_path, None)
    assert names(run(made, CASE, GOOD)) == ["not_empty", "loop", "template_tokens", "bare_verdict", "cut"]
    assert bad(run(made, CASE, GOOD)) == []
    assert bad(run(made, CASE, Output("VERDICT: LGTM", finish_reason="length"))) == ["bare_verdict", "cut"]
    assert bad(run(made, CASE, Output("", reasoning="thinking", finish_reason="stop"))) == ["not_empty"]
    assert bad(run(made, CASE, Output("so it is<|im_end|>", finish_reason="stop"))) == ["template_tokens"]
    assert bad(run(made, CASE, Output("again and " * 30, finish_reason="stop"))) == ["loop"]
    assert bad(run(made, CASE, Output(tool_calls='[{"name": "f"}]', finish_reason="tool_calls"))) == []


def test_declared_checks_take_the_place_of_the_default_ones(tmp_path: Path) -> None:
    assert suite(tmp_path, "[{type: MinWords, minWords: {words: 3}}]").names() == ("min_words", "cut")
    assert suite(tmp_path, "[]").names() == ("cut",)


def test_a_line_adds_its_checks_and_replaces_one_of_the_same_name(tmp_path: Path) -> None:
    mine = Case(
        "a", "/v1/completions", {"prompt": "q"}, checks=read_check_list(["min_words=1", "cel=words > 0"], "").specs
    )
    other = Case("b", "/v1/completions", {"prompt": "q"})
    made = suite(tmp_path, "[{type: MinWords, minWords: {words: 3}}]", mine, other)
    assert names(run(made, mine, Output("word", finish_reason="stop"))) == ["min_words", "cel", "cut"]
    assert bad(run(made, mine, Output("word", finish_reason="stop"))) == []
    assert bad(run(made, other, Output("word", finish_reason="stop"))) == ["min_words"]
    assert made.names() == ("min_words", "cut", "cel")


def test_a_line_with_checks_of_its_own_has_no_default_ones(tmp_path: Path) -> None:
    mine = Case("a", "/v1/completions", {"prompt": "q"}, checks=read_check_list(["min_words=1"], "").specs)
    assert names(run(suite(tmp_path, None, mine), mine, GOOD)) == ["min_words", "cut"]


def test_an_expected_answer_is_checked_beside_the_default_ones(tmp_path: Path) -> None:
    case = Case("a", "/v1/completions", {"prompt": "q"}, expect=Expect("json", {"a": 1}))
    made = suite(tmp_path, None, case, Case("b", "/v1/completions", {"prompt": "q"}))
    assert names(run(made, case, GOOD))[-2:] == ["expect", "cut"]
    assert bad(run(made, case, Output('{"a": 1}', finish_reason="stop"))) == []
    assert bad(run(made, case, Output('{"a": 2}', finish_reason="stop"))) == ["expect"]


def test_the_canary_of_another_case_is_foreign_and_the_own_is_not(tmp_path: Path) -> None:
    first = Case("a", "/v1/completions", {"prompt": "canary-first"}, canary="canary-first")
    second = Case("b", "/v1/completions", {"prompt": "canary-second"}, canary="canary-second")
    made = suite(tmp_path, None, first, second)
    assert bad(run(made, first, Output("canary-first", finish_reason="stop"))) == []
    (outcome,) = [o for o in run(made, first, Output("canary-second", finish_reason="stop")) if o.bad]
    assert (outcome.check, outcome.detail) == ("foreign_text", "the canary canary-second of another case")
    context = CheckContext(foreign=("nonce-of-another-cell",))
    assert bad(run(made, second, Output("nonce-of-another-cell", finish_reason="stop"), context)) == ["foreign_text"]


def test_a_cut_answer_is_unknown_without_a_finish_reason(tmp_path: Path) -> None:
    (*_, cut) = run(suite(tmp_path, None), CASE, Output("text"))
    assert cut == CheckOutcome("cut", "1", None, "no finish reason was reported")


@pytest.mark.parametrize(
    ("check", "good", "wrong", "detail"),
    [
        (
            {"type": "Regex", "regex": {"mustMatch": "^[A-Z]"}},
            "Yes",
            "no",
            "no match of ^[A-Z]",
        ),
        (
            {"type": "Regex", "regex": {"mustNotMatch": "(?i)sorry"}},
            "fine",
            "I am Sorry",
            "(?i)sorry matches at character 5",
        ),
        (
            {"type": "JsonSchema", "jsonSchema": {"schema": {"type": "object", "required": ["a"]}}},
            ' {"a": 1}\n',
            "{}",
            '"a" is a required property',
        ),
        (
            {"type": "JsonSchema", "jsonSchema": {"schema": {"type": "object"}}},
            "{}",
            "{]",
            "not JSON: Expecting property name enclosed in double quotes at character 2",
        ),
        (
            {"type": "Cel", "cel": {"expression": "words >= 2 && content.contains('LGTM')"}},
            "it is LGTM",
            "LGTM",
            "words >= 2 && content.contains('LGTM') is false",
        ),
        ({"type": "MinWords", "minWords": {"words": 2}}, "one two", "one", "1 words, at least 2 wanted"),
        (
            {"type": "BareVerdict", "bareVerdict": {"keyword": "Decision", "rationaleWords": 1}},
            "good\nDecision: yes",
            "Decision: yes",
            "verdict yes with 0 words of rationale, at least 1 wanted",
        ),
        ({"type": "Loop", "loop": {"repeats": 2, "characters": 8}}, "abc def", "abc abc abc", None),
        ({"type": "TemplateTokens", "templateTokens": {"additional": ["[X]"]}}, "ok", "a [X]", "[X] at character 2"),
        ({"type": "NotEmpty"}, "x", " ", "nothing at all"),
    ],
)
def test_each_check_tells_good_from_bad_and_why(
    tmp_path: Path, check: dict[str, Any], good: str, wrong: str, detail: str | None
) -> None:
    assert one(tmp_path, check, Output(good)).bad is False
    outcome = one(tmp_path, check, Output(wrong))
    assert outcome.bad is True
    assert detail is None or outcome.detail == detail


def test_reasons_and_reasoning_are_checked(tmp_path: Path) -> None:
    check = {"type": "FinishReason", "finishReason": {"allowed": ["stop"]}}
    assert one(tmp_path, check, Output("x", finish_reason="stop")).bad is False
    assert one(tmp_path, check, Output("x", finish_reason="tool_calls")).bad is True
    assert one(tmp_path, check, Output("x")).bad is None
    assert one(tmp_path, {"type": "ReasoningOnly"}, Output(reasoning="x")).bad is True
    ignored = {"type": "TemplateTokens", "templateTokens": {"ignored": ["</s>"]}}
    assert one(tmp_path, ignored, Output("</s>")).bad is False


def test_equality_with_the_baseline_needs_its_output(tmp_path: Path) -> None:
    made = suite(tmp_path, "[{type: EqualToBaseline}]")
    assert run(made, CASE, GOOD)[0].bad is None
    assert run(made, CASE, GOOD, CheckContext(baseline=GOOD))[0].bad is False
    assert run(made, CASE, GOOD, CheckContext(baseline=Output("else")))[0].bad is True


def test_cel_sees_every_part_of_an_output(tmp_path: Path) -> None:
    expression = "reasoning == 'r' && tool_calls[0].name == 'f' && finish_reason == 'stop' && case_id == 'a'"
    output = Output("c", "r", '[{"name": "f"}]', "stop")
    assert one(tmp_path, {"type": "Cel", "cel": {"expression": expression}}, output).bad is False


@pytest.mark.parametrize(
    "expression",
    [
        "words / 0 == 1",
        "tool_calls[5] == 1",
        "[%s].all(a, [%s].all(b, [%s].all(c, a + b + c > 0)))" % ((",".join("1" * 300),) * 3),
    ],
    ids=["division", "index", "endless"],
)
def test_a_check_that_errs_is_an_error_and_no_pass(tmp_path: Path, expression: str) -> None:
    outcome = one(tmp_path, {"type": "Cel", "cel": {"expression": expression}}, GOOD)
    assert outcome.bad is None
    assert outcome.detail
    assert len(outcome.detail) <= 300


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            {"type": "Regex", "regex": {"mustMatch": "(?=a)"}},
            "check regex: the pattern (?=a) cannot be used: invalid perl operator: (?= "
            "(allowed: RE2 syntax, without look-around)",
        ),
        (
            {"type": "Cel", "cel": {"expression": "contnt == ''"}},
            "check cel: the expression contnt == '' cannot be used: INVALID_ARGUMENT: ERROR: <input>:1:1: undeclared "
            "reference to 'contnt' (in container '') (allowed: names content, reasoning, tool_calls, finish_reason, "
            "words, case_id)",
        ),
        (
            {"type": "Cel", "cel": {"expression": "words + 1"}},
            "check cel: the expression words + 1 is a INT (allowed: a bool, true for good)",
        ),
        (
            {"type": "Plugin", "plugin": {"entryPoint": "nowhere"}},
            "check plugin: no plug-in is named nowhere (allowed: none is installed)",
        ),
    ],
)
def test_a_check_that_cannot_work_is_refused_before_the_run(
    tmp_path: Path, check: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        suite(tmp_path, json.dumps([check]))
    assert str(caught.value) == f"{tmp_path / 'policy.yaml'}: {message}"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:1/schema"},
        {"$ref": "file:///etc/hostname"},
        {"properties": {"a": {"$ref": "https://example.com/x#/y"}}},
        {"type": "nonsense"},
        {"pattern": "(?=a)"},
    ],
)
def test_a_schema_may_not_reach_out_or_be_nonsense(tmp_path: Path, schema: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="the schema cannot be used"):
        suite(tmp_path, json.dumps([{"type": "JsonSchema", "jsonSchema": {"schema": schema}}]))


def test_a_local_reference_of_a_schema_is_followed(tmp_path: Path) -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}
    check = {"type": "JsonSchema", "jsonSchema": {"schema": schema}}
    assert one(tmp_path, check, Output('"x"')).bad is False
    assert one(tmp_path, check, Output("1")).bad is True


def test_a_line_that_cannot_work_is_named_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}
    file.write_text(json.dumps({**line, "prefillgate": {"checks": ["regex=("]}}))
    with pytest.raises(ReplaySetError) as caught:
        CheckSuite.from_policy(load_policy("quick"), load_replay_set(file))
    assert str(caught.value).startswith(f"{file}:1: check regex: the pattern ( cannot be used: missing ): ")


def test_a_flag_may_name_only_checks_that_are_made(tmp_path: Path) -> None:
    flags = "[{name: shape, checks: [loop]}, {name: content, checks: [expect, typo]}]"
    with pytest.raises(PolicyError) as caught:
        CheckSuite.from_policy(
            policy(tmp_path, None, flags), ReplaySet("set", "0", (Case("a", "/", {}, expect=Expect("exact", "x")),))
        )
    assert "spec.flags[1].checks: no check is named typo" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "\0" * 1_000_000,
        "\x1b]0;x\x07" * 100_000,
        "(a+)+$" * 100_000,
        "a" * 999_999 + "b",
        "\ud800lone" * 1000,
        "[" * 500_000,
    ],
    ids=["nul", "escapes", "pattern", "letters", "surrogates", "brackets"],
)
def test_hostile_text_gets_an_outcome_from_every_check(tmp_path: Path, text: str) -> None:
    checks = [
        {"type": "Regex", "regex": {"mustMatch": "(a+)+$", "mustNotMatch": "(x|x)*y"}},
        {"type": "JsonSchema", "jsonSchema": {"schema": {"type": "object"}}},
        {"type": "Cel", "cel": {"expression": "content.matches('(a+)+$') || true"}},
        {"type": "MinWords"},
        {"type": "BareVerdict"},
        {"type": "TemplateTokens"},
    ]
    outcomes = run(suite(tmp_path, json.dumps(checks)), CASE, Output(text, text, "", "stop"))
    assert [outcome.bad is not None for outcome in outcomes] == [True] * 7
    assert all(outcome.detail.isprintable() for outcome in outcomes)


def test_a_version_tells_other_parameters_apart(tmp_path: Path) -> None:
    first = one(tmp_path, {"type": "MinWords", "minWords": {"words": 2}}, GOOD).version
    assert first == one(tmp_path, {"type": "MinWords", "minWords": {"words": 2}}, GOOD).version
    assert first != one(tmp_path, {"type": "MinWords", "minWords": {"words": 3}}, GOOD).version
    assert one(tmp_path, {"type": "NotEmpty"}, GOOD).version == "1"


PLUGIN = """
from prefillgate.core.quality import Finding

class Shouting:
    version = "7"
    def __init__(self, parameters):
        self.limit = int(parameters.get("limit", "3"))
    def __call__(self, judged):
        if judged.output.content == "crash":
            raise RuntimeError("no idea")
        if judged.output.content == "odd":
            return True
        marks = judged.output.content.count("!")
        return Finding(f"{marks} exclamation marks") if marks > self.limit else None

nothing = lambda parameters: None
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that brings two entry points, as an installed one would."""
    (tmp_path / "shouting.py").write_text(PLUGIN)
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    points = "shouting = shouting:Shouting\nnothing = shouting:nothing\n"
    (info / "entry_points.txt").write_text(f"[prefillgate.checks]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_is_found_by_its_entry_point(tmp_path: Path) -> None:
    check = {"type": "Plugin", "name": "loud", "plugin": {"entryPoint": "shouting", "parameters": {"limit": "1"}}}
    outcome = one(tmp_path, check, Output("Fine!!"))
    assert (outcome.check, outcome.bad, outcome.detail) == ("loud", True, "2 exclamation marks")
    assert outcome.version.startswith("7+")
    assert one(tmp_path, check, Output("Fine!")).bad is False
    crashed = one(tmp_path, check, Output("crash"))
    assert (crashed.bad, crashed.detail) == (None, "RuntimeError: no idea")
    assert one(tmp_path, check, Output("odd")).detail == "answered bool, not a finding"


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("point", "parameters", "message"),
    [
        ("nothing", {}, "the plug-in nothing gives no callable with a version"),
        ("shouting", {"limit": "x"}, "the plug-in shouting cannot be made: ValueError: invalid literal"),
        ("other", {}, r"no plug-in is named other \(allowed: nothing, shouting\)"),
    ],
)
def test_a_plug_in_that_cannot_be_made_is_refused(
    tmp_path: Path, point: str, parameters: dict[str, str], message: str
) -> None:
    check = {"type": "Plugin", "plugin": {"entryPoint": point, "parameters": parameters}}
    with pytest.raises(PolicyError, match=message):
        one(tmp_path, check, GOOD)


def test_every_type_of_check_has_a_builder_and_a_marker_of_its_own() -> None:
    assert set(BUILDERS) == set(CheckType) == set(ABOUT)
    markers = [about.marker for about in ABOUT.values()]
    assert len(set(markers)) == len(markers)
    assert CheckType.BARE_VERDICT.marker == "no-rationale"
    assert CheckType.EQUAL_TO_BASELINE.default_name == "equal_to_baseline"
