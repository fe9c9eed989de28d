"""A plan, some cells and a store to try the evidence on."""

import shutil

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


def measured_cell(cell_id):
    """A measured cell with a given id."""
    cell = Cell("candidate", "a", bad=False, prompt_tokens=312, cached_tokens=0, prefill_ms=0.1 + cell_id)
    return CellMeasured(cell_id, cell, Purpose.SCREEN)


def texts_of(cell_id):
    """The texts of a cell with a given id: different for each, and too long to fit one page."""
    words = " ".join(str(cell_id * 7919 + index * index) for index in range(1500))
    return Texts(content=f"cell {cell_id}", request="{}", response=words)


@pytest.fixture
def measured():
    return measured_cell


@pytest.fixture
def said():
    return texts_of


@pytest.fixture(scope="session")
def written_once(tmp_path_factory):
    """The folder of a closed store that no test may touch."""
    path = tmp_path_factory.mktemp("written_once") / "run.db"
    with SqliteJournal.create(path, PLAN) as journal:
        for cell_id in range(5):
            journal.append(measured_cell(cell_id), texts_of(cell_id))
    return path.parent


@pytest.fixture
def store(tmp_path, written_once):
    """The path of a closed store of the test's own: the plan and five cells with their texts."""
    for file in written_once.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    return tmp_path / "run.db"
