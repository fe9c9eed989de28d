"""`run --dry-run`: the plan, its prefills and its error bounds, without asking a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefillgate.cli.run import command

SERVERS = ["--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:2"]


def dry(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*SERVERS, "--dry-run", *arguments], standalone_mode=False)


def plan(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dry("--json", *arguments).stdout)
    return found


def test_the_demo_set_under_quick_costs_38_prefills_and_states_its_exact_errors() -> None:
    told = plan("--replay-set", "demo", "--policy", "quick")
    assert told["acceptance"] == [{"bad": 0, "prefills": 16}, {"bad": 1, "prefills": 25}, {"bad": 2, "prefills": 35}]
    assert told["false_promotion"] == pytest.approx(0.04995226558545358, abs=1e-15)
    assert told["false_rollback"] == pytest.approx(1 / 40 + 1 / 80)
    assert told["prefills"]["total"] == 38
    assert told["budget"] == 150
    assert [row["rate"] for row in told["power"]] == [0.0, 0.01, 0.05, 0.10]
    assert [round(row["promote"], 3) for row in told["power"]] == [1.0, 0.996, 0.795, 0.395]


def test_the_aa_check_adds_its_second_pass() -> None:
    with_check = plan("--replay-set", "demo", "--policy", "quick", "--aa")["prefills"]
    assert (with_check["baseline_pass"], with_check["second_pass"]) == (16, 16)


def test_the_strict_policy_has_its_own_table_and_bounds() -> None:
    told = plan("--replay-set", "short", "--policy", "strict")
    assert told["acceptance"][2] == {"bad": 2, "prefills": 175}
    assert told["policy"] == "strict"
    assert told["replay_set"]["prompts"] == 8


def test_what_cannot_work_is_said_before_the_run() -> None:
    warnings = plan("--replay-set", "short", "--policy", "standard")["warnings"]
    assert any("32 tokens" in warning and "decode speed stays open" in warning for warning in warnings), warnings
    assert any("8 prompts" in warning for warning in warnings)


def test_the_page_says_the_same_numbers_as_the_json() -> None:
    page = dry("--replay-set", "demo", "--policy", "quick").stdout
    for words in (
        "0.049952",
        "0.0375",
        "0.395 at 10 % bad",
        "38 when nothing is bad",
        "16 with 0 bad",
        "150, both arms",
    ):
        assert words in page, page


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert dry("--replay-set", "demo").return_value == 0
    assert list(tmp_path.iterdir()) == []
