"""Checks that ask others, as they are written down: where they may stand, and what lint says of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from prefillgate.api.check_spec import read_check_list
from prefillgate.api.errors import ReplaySetError
from prefillgate.api.replay_set import read_line
from prefillgate.cli.main import main
from tests.support.judging import write_examples
from tests.support.runs import write_policy


def line(*checks: Any) -> bytes:
    own = {"checks": list(checks)}
    body = {"prompt": "q", "max_tokens": 5}
    document = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body, "prefillgate": own}
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "check",
    [
        "exec=/bin/true",
        {"type": "Exec", "exec": {"arguments": ["/bin/true"]}},
        {"type": "Judge", "judge": {"rubric": "r", "url": "http://judge:1", "model": "m"}},
    ],
)
def test_a_replay_set_starts_no_program_and_names_no_judge(check: Any) -> None:
    with pytest.raises(ReplaySetError) as error:
        read_line(line("not_empty", check), "set.jsonl:1", 1)
    assert "which a replay set may not (allowed: declare it in the policy)" in str(error.value)
    assert read_line(line("not_empty"), "set.jsonl:1", 1).checks[0].name == "not_empty"


def test_the_short_form_of_a_program_is_its_name_or_a_json_list() -> None:
    found = read_check_list(["exec=./check", 'exec=["python3","a b.py"]'], "")
    assert [spec.name for spec in found.specs] == ["exec", "exec_2"]
    arguments = [spec.parameters.model_dump()["arguments"] for spec in found.specs if spec.parameters]
    assert arguments == [["./check"], ["python3", "a b.py"]]
    for wrong in ("exec=[", "exec=[1]", "exec=[]", "exec="):
        assert read_check_list([wrong], "").problems, wrong


def judge_policy(folder: Path, **judge: Any) -> Path:
    given = {"rubric": "r", "url": "http://judge:1", "model": "m", **judge}
    return write_policy(folder / "policy.yaml", checks=[{"type": "Judge", "name": "useful", "judge": given}])


def test_lint_says_where_outputs_go_and_that_a_judge_has_too_few_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "lint", str(judge_policy(tmp_path))]) == 0
    told = capsys.readouterr().err
    assert "warning: check useful: every output is sent to http://judge:1" in told
    assert "check useful: no labelled outputs; a run is refused without --unvalidated-judge" in told
    write_examples(tmp_path / "examples.jsonl")
    assert main(["policy", "lint", str(judge_policy(tmp_path, examples="examples.jsonl"))]) == 0
    told = capsys.readouterr().err
    assert "every output is sent to http://judge:1" in told
    assert "refused" not in told


def test_lint_refuses_a_program_and_examples_that_are_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "lint", str(judge_policy(tmp_path, examples="none.jsonl"))]) == 2
    assert "none.jsonl: cannot be read" in capsys.readouterr().err
    check = {"type": "Exec", "exec": {"arguments": ["./none"]}}
    assert main(["policy", "lint", str(write_policy(tmp_path / "policy.yaml", checks=[check]))]) == 2
    assert "the program" in capsys.readouterr().err
    check = {"type": "Exec", "exec": {"arguments": [sys.executable]}}
    assert main(["policy", "lint", str(write_policy(tmp_path / "policy.yaml", checks=[check]))]) == 0


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"type": "Exec"}, "a check of type Exec needs its parameters under its own key"),
        ({"type": "Exec", "exec": {"arguments": []}}, "exec.arguments: []"),
        (
            {"type": "Exec", "exec": {"arguments": ["x"], "timeoutSeconds": 0}},
            "0 (allowed: a whole number of 1 to 3600)",
        ),
        ({"type": "Exec", "exec": {"arguments": ["x"], "input": "Xml"}}, '"Xml" (allowed: Content, Json)'),
        ({"type": "Judge", "judge": {"rubric": "r", "model": "m"}}, "judge.url: missing"),
        (
            {"type": "Judge", "judge": {"rubric": "r", "model": "m", "url": "http://j", "apiKeyVariable": "a b"}},
            "judge.apiKeyVariable",
        ),
    ],
)
def test_a_wrong_field_is_named(check: dict[str, Any], message: str) -> None:
    (problem,) = read_check_list([check], "checks").problems
    assert message in str(problem)
