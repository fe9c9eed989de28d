"""`prefillgate decide`: every exit code, from the evidence alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from prefillgate.cli.decide import command
from prefillgate.core.gate import fold
from prefillgate.core.judge import judge
from prefillgate.report import verdict_json
from tests.support.stores import GATED, Played

CHECKING = {"re2", "jsonschema_rs", "cel_expr_python", "httpx", "prefillgate.replay", "prefillgate.engines"}


def kept(folder: Path, **how: object) -> Path:
    run = Played(**how)  # type: ignore[arg-type]
    run.play()
    return run.keep(folder / "run.db")


def decided(store: Path, *options: str) -> Result:
    return CliRunner().invoke(command, [str(store), *options], standalone_mode=False)


@pytest.mark.parametrize(
    ("how", "decision", "code"),
    [
        ({}, "promote", 0),
        ({"policy": replace(GATED, budget=16)}, "hold", 10),
        ({"candidate_rate": 1.0}, "rollback", 20),
        ({"invalid_rate": 1.0}, "hold", 1),
    ],
)
def test_the_exit_code_is_that_of_the_decision(
    tmp_path: Path, how: dict[str, object], decision: str, code: int
) -> None:
    told = decided(kept(tmp_path, **how), "--json")
    assert (json.loads(told.stdout)["decision"], told.return_value) == (decision, code)


def test_the_object_is_that_of_the_journal_at_any_time(tmp_path: Path) -> None:
    run = Played(candidate_rate=0.3)
    run.play()
    store = run.keep(tmp_path / "run.db")
    first, second = decided(store, "--json").stdout_bytes, decided(store, "--json").stdout_bytes
    assert first == second
    assert json.loads(first) == json.loads(json.dumps(verdict_json(judge(fold(run.events)))))


def test_no_check_is_run_again_and_no_server_is_asked(tmp_path: Path) -> None:
    store = kept(tmp_path)
    code = f"""
import sys
from prefillgate.cli.main import main
code = main(["decide", {str(store)!r}, "--json"])
print(code, *sorted(sys.modules), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    told, *modules = ran.stderr.split()
    assert (told, json.loads(ran.stdout)["decision"]) == ("0", "promote")
    assert CHECKING.intersection(modules) == set()
