"""A plan, some cells and a store to try the evidence on."""

import pytest

from prefillgate.core.cells import Cell
from prefillgate.core.journal import CaseRef, CellMeasured, Planned, Purpose, Texts
from prefillgate.core.policy import Policy
from prefillgate.evidence import SqliteJournal

PLAN = Planned(
    run_id="run-1",
    started_at=1764457200.125,
    seed=7,
    policy=Policy("quick", 0.2, 0.05, (16, 25, 35), 150),
    cases=(CaseRef("a", "0" * 64, 900), CaseRef("b", "1" * 64, 1200, max_tokens=64)),
    replay_set_name="demo",
    replay_set_sha256="2" * 64,
    baseline_url="http://127.0.0.1:1",
    candidate_url="http://127.0.0.1:2",
)


@pytest.fixture
def plan():
    return PLAN


@pytest.fixture
def measured():
    """A measured cell with a given id."""

    def make(cell_id, **fields):
        cell = Cell("candidate", "a", bad=False, prompt_tokens=312, cached_tokens=0, prefill_ms=0.1 + cell_id, **fields)
        return CellMeasured(cell_id, cell, Purpose.SCREEN)

    return make


@pytest.fixture
def said():
    """The texts of a cell with a given id: different for each, and too long to fit one page."""

    def make(cell_id):
        words = " ".join(str(cell_id * 7919 + index * index) for index in range(1500))
        return Texts(content=f"cell {cell_id}", request="{}", response=words)

    return make


@pytest.fixture
def store(tmp_path, measured, said):
    """The path of a closed store: the plan and five cells with their texts."""
    path = tmp_path / "run.db"
    with SqliteJournal.create(path, PLAN) as journal:
        for cell_id in range(5):
            journal.append(measured(cell_id), said(cell_id))
    return path
