"""promptfoo configurations: the plain subset becomes cases with checks, the rest is refused by name with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from prefillgate.api.replay_set import read_line
from prefillgate.cli.replayset import command
from prefillgate.importers.base import Prompted
from prefillgate.importers.source import ImportProblem
from prefillgate.replay.checks import compile_checks
from tests.support.imports import read_bytes, spoiled, unread, withstands

CONFIG = """\
# yaml-language-server: $schema=https://example.org/schema.json
description: sums
prompts:
  - "What is {{ sum }}? Answer in {{style}}."
providers:
  - openai:chat:m-q4
defaultTest:
  vars: {style: digits}
tests:
  - description: small
    vars: {sum: 2+2}
    assert:
      - {type: equals, value: "4"}
      - {type: regex, value: "^[0-9]+$"}
  - vars: {sum: 3+3, style: "JSON"}
    assert:
      - {type: is-json}
      - {type: contains, value: "{{sum}}"}
      - {type: contains, value: "a.b"}
"""
SAMPLE = CONFIG.encode()


def read(config: Any) -> list[Any]:
    data = config.encode() if isinstance(config, str) else yaml.safe_dump(config).encode()
    return read_bytes(data, "promptfoo-config")


def prompted(config: Any) -> list[Prompted]:
    return [each for each in read(config) if isinstance(each, Prompted)]


def config(*asserts: Any, prompt: Any = "p {{a}}", **more: Any) -> dict[str, Any]:
    return {"prompts": [prompt], "tests": [{"vars": {"a": "x"}, "assert": list(asserts), **more}]}


def text(found: Prompted) -> Any:
    return found.asked.body["messages"][0]["content"]


def test_each_test_on_each_prompt_is_a_case_with_its_variables_and_checks() -> None:
    first, second = prompted(CONFIG)
    assert [text(first), text(second)] == ["What is 2+2? Answer in digits.", "What is 3+3? Answer in JSON."]
    assert first.own == {
        "expect": {"exact": "4"},
        "checks": [{"type": "Regex", "name": "regex-1", "regex": {"mustMatch": "^[0-9]+$"}}],
    }
    assert second.own == {
        "expect": {"contains": "3+3"},
        "checks": [
            {"type": "JsonSchema", "name": "json_schema-1", "jsonSchema": {"schema": {}}},
            {"type": "Regex", "name": "contains-2", "regex": {"mustMatch": r"a\.b"}},
        ],
    }
    assert unread(read(CONFIG)) == []
    assert len(prompted({**config(), "prompts": ["one {{a}}", "two {{a}}"]})) == 2


def test_the_command_writes_a_replay_set_whose_checks_can_be_used(tmp_path: Path) -> None:
    given, written = tmp_path / "any-name", tmp_path / "set.jsonl"
    given.write_text(CONFIG + "scenarios: []\n", encoding="utf-8")
    result = CliRunner().invoke(command, ["import", str(given), "-o", str(written)])
    assert result.exit_code == 0, result.output
    assert "promptfoo's `scenarios` is not read" in result.output
    cases = [read_line(line, "set", 1) for line in written.read_bytes().splitlines()]
    assert [case.expect.kind for case in cases if case.expect] == ["exact", "contains"]
    assert [len(compile_checks(case.checks, "set", ImportProblem)) for case in cases] == [1, 2]


def test_a_chat_keeps_its_messages_with_the_variables_in_them() -> None:
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "p {{a}}"}]
    as_yaml = "- role: system\n  content: be brief\n- role: user\n  content: p {{a}}\n"
    for prompt in (json.dumps(chat), as_yaml):
        (found,) = prompted(config(prompt=prompt))
        assert found.asked.body["messages"] == [chat[0], {"role": "user", "content": "p x"}]


def test_values_of_every_plain_type_are_filled_in_and_json_is_expected_as_json() -> None:
    values = {"a": 4, "b": True, "c": 1.5}
    kept = config({"type": "equals", "value": {"sum": "{{a}}"}}, vars=values, prompt="{{a}}{{b}}{{c}}")
    (found,) = prompted(kept)
    assert (text(found), found.own) == ("4true1.5", {"expect": {"json": {"sum": "4"}}})


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"type": "llm-rubric", "value": "good"}, "an assert `llm-rubric` with this value has no check here"),
        ({"type": "not-contains", "value": "x"}, "an assert `not-contains`"),
        ({"type": "equals", "value": 4}, "an assert `equals` with this value"),
        ({"type": "contains", "value": "x", "weight": 2}, "an assert with `weight`"),
        ({"type": "contains", "value": "x", "transform": "y"}, "an assert with `transform`"),
        ({"type": "regex", "value": "(?=a)b"}, "a regex with lookaround"),
        ({"type": "is-json", "value": "file://schema.json"}, "an assert `is-json` with this value"),
        ({"type": "is-json", "value": {"type": 7}}, "a JSON schema that cannot be used"),
        ({"type": "contains", "value": "{{missing}}"}, "a template with {{ missing }}"),
        ("contains:x", "an assert without a type"),
    ],
)
def test_an_assert_without_a_check_is_left_out_of_its_case_by_name_and_place(told: Any, why: str) -> None:
    found = read(config({"type": "contains", "value": "kept"}, told))
    ((where, said),) = unread(found)
    assert where == "log: tests[0].assert[1]"
    assert said.startswith(why)
    assert [each.own for each in found if isinstance(each, Prompted)] == [{"expect": {"contains": "kept"}}]


def test_a_second_expected_answer_is_left_out() -> None:
    found = read(config({"type": "equals", "value": "a"}, {"type": "equals", "value": "b"}))
    assert len(unread(found)) == 1


@pytest.mark.parametrize(
    ("changed", "where", "why"),
    [
        (config(prompt="file://p.txt"), "log: prompts[0]", "a prompt in a file of its own"),
        (config(prompt="prompts/p.txt"), "log: prompts[0]", "a prompt in a file of its own"),
        (config(prompt={"raw": "x", "function": "f"}), "log: prompts[0]", "a prompt that is not written out"),
        (config(prompt='[{"role": "user", "content": {{a}}}]'), "log: prompts[0]", "a chat whose messages stand in"),
        (config(prompt="- role: user\n  content: {{a}}"), "log: prompts[0]", "a chat whose messages stand in"),
        (config(prompt="{{a | upper}}"), "log: tests[0]", "a template beyond {{ name }}"),
        (config(prompt="{% if a %}{% endif %}"), "log: tests[0]", "a template beyond {{ name }}"),
        (config(prompt="{{b}}"), "log: tests[0]", "a template with {{ b }}, which the test does not set"),
        (config(vars={"a": ["x", "y"]}), "log: tests[0]", "a variable that is a list or an object"),
        (config(vars={"a": "file://a.txt"}), "log: tests[0]", "a variable in a file of its own"),
        (config(vars={"a": "{{b}}"}), "log: tests[0]", "a variable that is a template itself"),
        (config(vars="a.csv"), "log: tests[0]", "vars that are not written out"),
        (config(options={"prefix": "x"}), "log: tests[0]", "a test with `options`: no case"),
        ({"prompts": ["p"], "tests": "tests.csv"}, "log: tests", "tests that are not written out"),
        ({"prompts": ["p"], "tests": ["a.yaml"]}, "log: tests[0]", "a test that is not written out"),
        ({**config(), "defaultTest": {"options": {}}}, "log: defaultTest", "a defaultTest with more"),
    ],
)
def test_what_changes_a_prompt_refuses_the_case_by_name_and_place(changed: Any, where: str, why: str) -> None:
    found = read(changed)
    assert [each for each in found if isinstance(each, Prompted)] == []
    assert [(place, said[: len(why)]) for place, said in unread(found)] == [(where, why)]


def test_prompts_alone_are_cases_without_tests() -> None:
    (found,) = prompted({"prompts": "only one", "providers": ["x"]})
    assert (text(found), found.own) == ("only one", None)


def test_what_is_no_configuration_is_refused() -> None:
    for data in ("prompts: [", "- 1", "prompts: *a"):
        with pytest.raises(ImportProblem):
            read(data)
    with pytest.raises(ImportProblem, match="too many"):
        read({"prompts": ["p {{a}}"] * 400, "tests": [{"vars": {"a": "x"}}] * 400})


def test_no_hostile_input_is_a_traceback() -> None:
    whole = yaml.safe_load(CONFIG)
    withstands(
        "promptfoo-config", [SAMPLE], lambda seed: [json.dumps(spoiled(whole, seed)).encode()], times=40, seeds=150
    )
