"""`prefillgate cells`: a store's cells in time order, and lines that `audit` counts as the run did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefillgate.cli.audit import command as audit_command
from prefillgate.cli.cells import command
from prefillgate.cli.main import main
from prefillgate.core.journal import CellChecked
from prefillgate.core.judge import judge
from prefillgate.report import verdict_json
from tests.support.stores import GATED, Played


def cells(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def lines_of(store: Path) -> list[dict[str, Any]]:
    result = cells(str(store), "--json")
    assert result.exception is None
    return [json.loads(line) for line in result.stdout.splitlines()]


def audited(store: Path, folder: Path) -> dict[str, Any]:
    log = folder / "cells.jsonl"
    log.write_text(cells(str(store), "--json").stdout, encoding="utf-8")
    result = CliRunner().invoke(audit_command, [str(log), "--json"], standalone_mode=False)
    assert result.exception is None
    return dict(json.loads(result.stdout))


@pytest.mark.parametrize(
    "played",
    [
        Played(seed=1),
        Played(seed=2, candidate_rate=0.9),
        Played(seed=3, candidate_rate=0.15, baseline_rate=0.1, invalid_rate=0.1, failed_rate=0.05),
        Played(seed=4, candidate_rate=0.3, failed_rate=0.1),
        Played(seed=5, most_cells=17),
    ],
    ids=["promote", "rollback", "lossy", "failing", "interrupted"],
)
def test_an_audit_of_the_cell_log_gives_the_arms_of_the_run(played: Played, tmp_path: Path) -> None:
    run = verdict_json(judge(played.play()))
    told = audited(played.keep(tmp_path / "run.db"), tmp_path)
    assert told["arms"] == run["arms"]
    assert told["comparison"] == run["comparison"]
    assert told["invalid"] == run["invalid"]
    assert told["rollback"] == run["rollback"]


def test_an_audit_confirms_what_the_run_confirmed(tmp_path: Path) -> None:
    played = Played(seed=2, candidate_rate=0.9)
    run = verdict_json(judge(played.play()))
    told = audited(played.keep(tmp_path / "run.db"), tmp_path)
    assert run["rollback"] == told["rollback"] == "Allowed"
    assert told["reason"] == "RegressionConfirmed"
    assert [each["pairs"] for each in told["replicates"]] == [each["pairs"] for each in run["replicates"]]


def test_a_cell_that_was_not_checked_yet_is_shown_and_not_counted(tmp_path: Path) -> None:
    played = Played(seed=1)
    played.play()
    checked = [place for place, event in enumerate(played.events) if isinstance(event, CellChecked)][9]
    cut = Played()
    for event in played.events[:checked]:
        cut._apply(event)
    store = cut.keep(tmp_path / "run.db")
    *before, last = lines_of(store)
    assert (last["bad"], last["scored"], last["status"], last["class"]) == (None, False, "ok", None)
    assert all(line["bad"] is False and line["scored"] for line in before)
    told = audited(store, tmp_path)
    assert told["arms"] == verdict_json(judge(cut.gate))["arms"]
    assert told["notes"] == ["1 cells measured but not checked yet are not counted"]


def test_lines_are_in_time_order_and_hold_every_field(tmp_path: Path) -> None:
    played = Played(seed=3, candidate_rate=0.2, invalid_rate=0.2)
    gate = played.play()
    lines = lines_of(played.keep(tmp_path / "run.db"))
    assert len(lines) == len(gate.measured)
    assert [line["started_at"] for line in lines] == sorted(line["started_at"] for line in lines)
    invalid = [line for line in lines if line["status"] == "invalid"]
    assert invalid
    assert all((line["bad"], line["scored"], line["reason"]) == (None, False, "OtherTraffic") for line in invalid)
    assert all(line["cold_proof"] == "cache_off" and line["counter_alive"] for line in lines)
    assert {line["purpose"] for line in lines} >= {"baseline_pass", "pair", "screen"}


def test_the_table_shows_cached_beside_prompt_tokens_class_unit_and_witness(tmp_path: Path) -> None:
    played = Played(seed=3, candidate_rate=0.9, invalid_rate=0.4)
    gate = played.play()
    result = cells(str(played.keep(tmp_path / "run.db")))
    assert result.return_value == 0
    table, restated = result.stdout.split("\n\n")
    head, *rows = table.splitlines()
    assert head.split("  ")[0] == "cell"
    assert [name for name in ("prompt", "cached", "processed", "class", "unit", "bad", "witness") if name in head] == [
        *("prompt", "cached", "processed", "class", "unit", "bad", "witness")
    ]
    assert len(rows) == len(gate.measured)
    first = rows[0].split()
    assert first[:5] == ["0", "2026-09-21", first[2], "baseline", "baseline"]
    measured = next(row for row in rows if "fresh" in row)
    assert ", processed 3" in measured
    assert "cached 0 of 3" in measured
    assert any("replicate 1" in row and "bad" in row for row in rows)
    verdict = judge(gate)
    assert restated.splitlines()[0].startswith(f"baseline: {verdict.baseline.requests} requests, ")
    assert restated.splitlines()[1].startswith(f"candidate: {verdict.candidate.requests} requests, ")
    lost = next(row for row in rows if "invalid" in row)
    assert "OtherTraffic: busy" in lost
    assert " - " in lost


def test_text_of_a_server_never_reaches_the_terminal_raw(tmp_path: Path) -> None:
    played = Played(seed=3, invalid_rate=0.3)
    played.play()
    store = str(played.keep(tmp_path / "run.db"))
    for told in (cells(store).stdout, cells(store, "--json").stdout):
        assert "OtherTraffic" in told
        assert all(character.isprintable() or character == "\n" for character in told)


@pytest.mark.parametrize(
    ("played", "code"),
    [
        (Played(seed=1), 0),
        (Played(seed=2, candidate_rate=0.9), 20),
        (Played(seed=1, most_cells=9), 10),
        (Played(seed=1, invalid_rate=1.0), 1),
    ],
    ids=["promote", "rollback", "hold", "error"],
)
def test_the_exit_code_is_that_of_the_decision_when_asked_for(played: Played, code: int, tmp_path: Path) -> None:
    played.play()
    store = str(played.keep(tmp_path / "run.db"))
    assert cells(store, "--exit-decision").return_value == code
    assert cells(store).return_value == 0


def test_a_store_of_a_plan_alone_has_no_cells(tmp_path: Path) -> None:
    played = Played(policy=replace(GATED, name="mine"), most_cells=0)
    played.play()
    store = str(played.keep(tmp_path / "run.db"))
    assert cells(store, "--json").stdout == ""
    assert cells(store).stdout.splitlines()[0].startswith("cell")


def test_a_store_that_is_not_there_or_is_none_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cells", str(tmp_path / "nothing.db")]) == 2
    assert "nothing.db" in capsys.readouterr().err
    text = tmp_path / "text.db"
    text.write_text("no database", encoding="utf-8")
    assert main(["cells", str(text)]) == 2
    captured = capsys.readouterr()
    assert "text.db" in captured.err
    assert captured.out == ""


def test_the_help_names_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    from prefillgate.api.cell_log import DERIVED_FIELDS, EXTRA_FIELDS, FIELDS

    assert main(["cells", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in (*FIELDS, *EXTRA_FIELDS, *DERIVED_FIELDS) if name not in shown] == []
