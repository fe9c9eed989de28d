"""`prefillgate run FILE`: one file holds all of a run, and options win over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from prefillgate.cli.errors import BadInput
from prefillgate.cli.run import command
from prefillgate.cli.run_request import requested
from prefillgate.replay.session import RunRequest

OLD, NEW = "http://127.0.0.1:1", "http://127.0.0.1:2"


def write(folder: Path, **more: Any) -> str:
    spec = {"baseline": {"url": OLD}, "candidate": {"url": NEW}, "replaySet": "demo", "policy": "quick", **more}
    path = folder / "gate.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "prefillgate.io/v1alpha1", "kind": "Run", "spec": spec}))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(
        command, [*arguments, "--dry-run", "--cell-seconds", "1", "--json"], standalone_mode=False
    )


def plan(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments).stdout)
    return found


def request_of(*arguments: str) -> RunRequest:
    """What is asked for, as `run` reads it."""
    return requested(command.make_context("run", list(arguments)).params)


def test_a_file_alone_is_a_whole_run(tmp_path: Path) -> None:
    told = plan(write(tmp_path))
    assert (told["baseline"], told["candidate"]) == (OLD, NEW)
    assert (told["replay_set"]["name"], told["policy"], told["budget"]) == ("demo", "quick", 150)


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path)
    told = plan(file, "--candidate", "http://127.0.0.1:3", "--policy", "strict", "--replay-set", "short")
    assert (told["baseline"], told["candidate"]) == (OLD, "http://127.0.0.1:3")
    assert (told["replay_set"]["name"], told["policy"], told["budget"]) == ("short", "strict", 300)


def test_without_a_policy_anywhere_it_is_the_standard_one() -> None:
    assert plan("--baseline", OLD, "--candidate", NEW, "--replay-set", "demo")["policy"] == "standard"


def test_a_key_is_taken_from_the_environment_and_a_missing_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, candidate={"url": NEW, "apiKeyVariable": "PREFILLGATE_TEST_KEY"})
    monkeypatch.delenv("PREFILLGATE_TEST_KEY", raising=False)
    error = run(file).exception
    assert isinstance(error, BadInput)
    assert str(error).startswith("candidate: API key: PREFILLGATE_TEST_KEY is not set in the environment")
    monkeypatch.setenv("PREFILLGATE_TEST_KEY", "sesame-7")
    told = run(file)
    assert told.return_value == 0
    assert "sesame-7" not in told.output


def test_a_budget_of_the_file_is_the_runs_unless_an_option_says_another(tmp_path: Path) -> None:
    file = write(tmp_path, budgetPrefills=40)
    assert plan(file)["budget"] == 40
    assert plan(file, "--budget", "60")["budget"] == 60
    error = run(write(tmp_path, budgetPrefills=15)).exception
    assert str(error).startswith("spec.budgetPrefills 15: too few prefills (allowed: 16 or more")


def test_a_gateway_of_the_file_is_asked_as_the_file_says_unless_an_option_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("X-Team: a\n")
    given = {"url": "http://gate:1/", "model": "m", "headerFile": "headers"}
    file = write(tmp_path, gateway=given)
    asked = request_of(file).gateway
    assert asked is not None
    assert (asked.url, asked.model, asked.access.header_file) == ("http://gate:1", "m", tmp_path / "headers")
    other = request_of(file, "--gateway", "http://other:1", "--gateway-model", "n").gateway
    assert other is not None
    assert (other.url, other.model, other.access.header_file) == ("http://other:1", "n", tmp_path / "headers")
    assert request_of(write(tmp_path)).gateway is None
    lone = run(write(tmp_path, gateway={**given, "apiKeyVariable": "NO_SUCH_KEY"})).exception
    assert str(lone).startswith("gateway: API key: NO_SUCH_KEY is not set in the environment")


def test_both_arms_of_a_file_may_not_be_one_server_and_one_model(tmp_path: Path) -> None:
    error = run(write(tmp_path, candidate={"url": OLD}))
    assert error.return_value == 2 or "same server and model" in str(error.exception)
    two = plan(write(tmp_path, candidate={"url": OLD, "model": "new"}))
    assert (two["baseline"], two["candidate"]) == (OLD, f"{OLD} (new)")


@pytest.mark.parametrize("days", [3, 0.5])
def test_an_age_of_a_stored_baseline_wants_a_stored_baseline(tmp_path: Path, days: float) -> None:
    error = run(write(tmp_path), "--baseline-max-age", str(days)).exception
    assert isinstance(error, BadInput)
    why = f"--baseline-max-age {days:g}: no stored baseline is shown (allowed: with --baseline-store)"
    assert str(error) == why
    assert str(run(write(tmp_path, baselineMaxAgeDays=7)).exception).startswith("--baseline-max-age 7: no stored")
    shown = run(write(tmp_path, baselineMaxAgeDays=7), "--baseline-store", "old.db").exception
    assert "old.db: there is no evidence store" in str(shown)


def test_an_empty_option_and_a_stored_baseline_that_is_not_there_are_bad_input(tmp_path: Path) -> None:
    file = write(tmp_path)
    for option in ("--model", "--baseline-model", "--candidate-api-key-env"):
        error = run(file, option, "").exception
        assert isinstance(error, click.BadParameter)
        assert error.message.startswith("it is empty")
    assert run(file, "--policy", "").return_value == 2  # and not the standard one
    lone = run(file, "--baseline-store", "none.db").exception
    assert isinstance(lone, BadInput)
    assert str(lone).startswith(
        "--baseline-store none.db: there is no evidence store (allowed: the store of an earlier run"
    )


def test_a_floor_and_a_first_replicate_of_the_file_are_the_run_s_unless_options_say_otherwise(tmp_path: Path) -> None:
    file = write(tmp_path, floor="f.db", floorMaxAgeDays=3, firstReplicate=4)
    asked = request_of(file)
    assert (asked.floor, asked.floor_max_age_days, asked.first_replicate) == (tmp_path / "f.db", 3, 4)
    other = request_of(file, "--floor", "g.db", "--floor-max-age", "0.5", "--first-replicate", "5")
    assert (other.floor, other.floor_max_age_days, other.first_replicate) == (Path("g.db"), 0.5, 5)
    plain = request_of(write(tmp_path))
    assert (plain.floor, plain.floor_max_age_days, plain.first_replicate) == (None, 14.0, 1)


def test_a_floor_stands_for_the_a_a_check(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: p}\nspec: {marginPercent: 20, "
        "aaCheck: Enabled}\n"
    )
    file = write(tmp_path, policy="p.yaml")
    assert request_of(file).policy.policy.aa_check
    assert not request_of(file, "--floor", "f.db").policy.policy.aa_check
    error = run(file, "--floor", "f.db", "--aa").exception
    assert str(error) == "--aa and --floor f.db: the floor stands for that check (allowed: one of them)"


@pytest.mark.parametrize("days", [3, 0.5])
def test_an_age_of_a_floor_wants_a_floor(tmp_path: Path, days: float) -> None:
    error = run(write(tmp_path), "--floor-max-age", str(days)).exception
    assert str(error) == f"--floor-max-age {days:g}: no floor is given (allowed: with --floor)"
    assert "there is no evidence store" in str(run(write(tmp_path), "--floor", "none.db").exception)


def test_a_first_replicate_is_part_of_the_plan(tmp_path: Path) -> None:
    file = write(tmp_path)
    assert plan(file, "--first-replicate", "3")["false_rollback"] < plan(file)["false_rollback"]
    assert run(file, "--first-replicate", "0").exit_code != 0
