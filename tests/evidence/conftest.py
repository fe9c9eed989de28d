"""A plan, some cells and a store to try the evidence on."""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from prefillgate.core.cells import Cell
from prefillgate.core.journal import CaseRef, CellMeasured, Planned, Purpose, Texts
from prefillgate.core.policy import Policy
from prefillgate.evidence import SqliteJournal, encode_event
from tests.support.postgres import recorded, running_server

WRITER = Path(__file__).with_name("writer.py")
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


@pytest.fixture(scope="session")
def session_server():
    """A PostgreSQL server that the tests of this worker share. It keeps nothing from a power cut; nothing cuts it."""
    with running_server("fsync=off") as server:
        yield server


@pytest.fixture
def server(session_server):
    """The shared server, noted as spoken to."""
    return recorded(session_server)


@pytest.fixture
def database(server):
    """The URL of an empty database of the test's own."""
    return server.new_database()


class Child:
    """The writing process and what it has printed so far. Killed by its own id, never politely."""

    def __init__(self, store, plan_file, pause_seconds):
        self.process = subprocess.Popen(
            [sys.executable, str(WRITER), str(store), str(plan_file), str(pause_seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout.readline().strip() == b"ready", self.process.stderr.read().decode()
        self.printed = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.printed.append(int(line))

    def wait_for(self, count):
        while len(self.printed) < count:
            assert self.process.poll() is None, self.process.stderr.read().decode()
            time.sleep(0.001)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.printed


@pytest.fixture
def start(tmp_path, plan):
    plan_file = tmp_path / "plan.json"
    plan_file.write_bytes(encode_event(plan))
    children = []

    def begin(store, pause_seconds=0):
        children.append(Child(store, plan_file, pause_seconds))
        return children[-1]

    yield begin
    for child in children:
        if child.process.poll() is None:
            child.kill()
