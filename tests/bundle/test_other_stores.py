"""Bundles of other stores: a demonstration, a store begun by an older version, one with secrets around it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from prefillgate.api.access import Access
from prefillgate.bundle import content
from prefillgate.cli.running import execute
from prefillgate.core.journal import CellMeasured, Planned
from prefillgate.evidence import SqliteJournal
from tests.support.bundles import Bundle, exported
from tests.support.runs import Watch, bench
from tests.support.simulated import start_simulated

KEY = "sk-a-key-that-is-planted-0123456789"


def test_a_store_of_an_older_version_is_exported_and_says_what_it_did_not_keep(store: Path, tmp_path: Path) -> None:
    with SqliteJournal.open_readonly(store) as journal:
        plan = journal.events()[0]
        assert isinstance(plan, Planned)
        cases = tuple(replace(case, line=None) for case in plan.cases)
        with SqliteJournal.create(tmp_path / "old.db", replace(plan, cases=cases, checks=None)) as older:
            for event in journal.events()[1:]:
                older.append(event, journal.texts(event.cell_id) if isinstance(event, CellMeasured) else None)
    told = exported(tmp_path / "old.db", tmp_path / "old").verify()
    assert told.code == 0, told.text
    assert "requests against the replay set (the store did not keep it)" in told.text
    assert "outcomes of checks that the store did not keep" in told.text
    assert "check outcomes" in told.text  # those of the default checks are made again all the same
    assert "the digest of the replay set, whose lines the store did not keep" in told.text
    policy = Bundle(tmp_path / "old").documents(content.POLICY)[0]
    assert policy["checks"] is None and policy["checks_kept"] is False


def test_a_plan_that_asked_for_its_cells_without_the_schedule_says_so(store: Path, tmp_path: Path) -> None:
    with SqliteJournal.open_readonly(store) as journal:
        plan = journal.events()[0]
        assert isinstance(plan, Planned)
        with SqliteJournal.create(tmp_path / "free.db", replace(plan, scheduled=False)) as free:
            for event in journal.events()[1:]:
                free.append(event, journal.texts(event.cell_id) if isinstance(event, CellMeasured) else None)
    told = exported(tmp_path / "free.db", tmp_path / "free").verify()
    assert told.code == 0 and "not recomputed: the order of the cells" in told.text
    assert "steps of the schedule" not in told.text


def test_no_key_of_a_server_is_in_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_KEY", KEY)
    work = bench(tmp_path, cases=3, budgetPrefills=16)
    given = {"environment": {"K": KEY}, "api_key_env": "K", "text_seed": 9}
    with start_simulated(seed=1, **given) as baseline, start_simulated(seed=2, **given) as candidate:
        request = work.request(baseline.url, candidate.url)
        assert request.baseline is not None
        access = Access(api_key_variable="PLANTED_KEY")
        asked = replace(
            request,
            baseline=replace(request.baseline, access=access),
            candidate=replace(request.candidate, access=access),
        )
        asyncio.run(execute(asked, Watch())).journal.close()
    folder = exported(tmp_path / "run.db", tmp_path / "out").folder
    whole = b"".join(path.read_bytes() for path in folder.iterdir())
    assert KEY.encode() not in whole
    assert json.loads((folder / content.DECISION).read_bytes())["prefills_used"] > 0
