"""The rules of a test run, each on a small project of its own with the real conftest and a real pytest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support import leftovers, programs

ROOT = Path(__file__).resolve().parents[2]
SPOKE = """
from tests.support.programs import EXPECTED, record_real_program
def test_speaks_to_every_program():
    for name in EXPECTED:
        record_real_program(name, "7.0")
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Write test modules (name under tests/ -> text), run pytest over them, return what it printed."""

    def go(files: dict[str, str], *options: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        shutil.copytree(ROOT / "tests" / "support", tmp_path / "tests" / "support")
        shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        for name, text in files.items():
            path = tmp_path / "tests" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        environment.pop(leftovers.VARIABLE, None)
        return subprocess.run(
            [*before, sys.executable, "-m", "pytest", "-q", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
            stdin=subprocess.DEVNULL,
        )

    return go


@pytest.mark.parametrize("workers", [(), ("-n2", "--dist=loadgroup", "--no-loadscope-reorder")], ids=["one", "two"])
def test_the_last_lines_of_a_run_list_each_program_its_version_and_its_tests(
    run: Run, workers: tuple[str, ...]
) -> None:
    again = """
    from tests.support.programs import record_real_program
    def test_speaks_to_another_build(request):
        record_real_program("chromium", "8.1  beta", request.node.nodeid)
        record_real_program("llama-server", "7.0")
    """.replace("\n    ", "\n")
    seen = run({"unit/test_a.py": SPOKE, "engine/test_b.py": again}, *workers)
    assert seen.returncode == 0, seen.stdout
    lines = seen.stdout.splitlines()
    rows = [(name, "7.0", "2 tests" if name == "llama-server" else "1 test") for name in programs.EXPECTED]
    rows = sorted([*rows, ("chromium", "8.1 beta", "1 test")])
    assert "2 passed" in lines[-len(rows) - 1]
    assert lines[-len(rows) :] == [f"real program  {name:<23}  {version}  {tests}" for name, version, tests in rows]


def test_a_whole_run_fails_when_no_test_spoke_to_an_expected_program(run: Run) -> None:
    seen = run({"unit/test_a.py": "def test_alone(): assert 1 + 1 == 2"})
    assert seen.returncode == 1
    assert "run fails: no test spoke to llama-server" in seen.stdout
    assert f"real program  {'llama-server':<23}  no version seen  0 tests" in seen.stdout


def test_a_part_of_the_tests_need_not_speak_to_any_program(run: Run) -> None:
    seen = run({"unit/test_a.py": "def test_alone(): assert 1 + 1 == 2"}, "tests/unit")
    assert (seen.returncode, seen.stdout.splitlines()[-1][:8]) == (0, "1 passed")


def test_a_filter_typed_by_a_person_makes_a_run_partial(run: Run) -> None:
    text = "def test_alone(): assert 1 + 1 == 2\ndef test_other(): pass"
    seen = run({"unit/test_a.py": text}, "-k", "alone")
    assert (seen.returncode, "run fails" in seen.stdout) == (0, False)


@pytest.mark.parametrize("workers", [(), ("-n2", "--dist=loadgroup")], ids=["one", "two"])
def test_a_whole_run_fails_when_tests_were_not_run_in_earnest(run: Run, workers: tuple[str, ...]) -> None:
    tests = """
import pytest
def test_skips(): pytest.skip("no")
@pytest.mark.xfail
def test_xfails(): assert 0
@pytest.mark.xfail
def test_xpasses(): assert 1
"""
    module = "import pytest\npytest.skip('no', allow_module_level=True)"
    seen = run({"unit/test_a.py": SPOKE, "unit/test_x.py": tests, "unit/test_y.py": module}, *workers)
    assert seen.returncode == 1
    assert [line for line in seen.stdout.splitlines() if line.startswith("run fails")] == [
        "run fails: skipped: tests/unit/test_x.py::test_skips",
        "run fails: expected to fail: tests/unit/test_x.py::test_xfails",
        "run fails: expected to fail: tests/unit/test_x.py::test_xpasses",
        "run fails: skipped: tests/unit/test_y.py",
    ]


def test_a_whole_run_fails_when_something_other_than_a_typed_filter_deselects(run: Run) -> None:
    hide = """
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[i for i in items if i.name == "test_x"])
    items[:] = [i for i in items if i.name != "test_x"]
"""
    seen = run({"unit/test_a.py": SPOKE, "unit/test_x.py": "def test_x(): pass", "unit/conftest.py": hide})
    assert seen.returncode == 1
    assert "run fails: deselected: tests/unit/test_x.py::test_x" in seen.stdout


@pytest.mark.parametrize("workers", [(), ("-n2", "--dist=loadgroup")], ids=["one", "two"])
def test_a_run_that_leaves_processes_behind_fails_and_ends_them(
    run: Run, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    text = f"""
import pathlib, subprocess, sys
def test_forgets_a_child_without_the_mark_and_a_grandchild_with_it():
    nap = [sys.executable, "-c", "import time; time.sleep(600)"]
    one = subprocess.Popen(nap, env={{}}).pid
    start = "import subprocess; print(subprocess.Popen(%r, stdout=subprocess.DEVNULL).pid)" % (nap,)
    two = subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True).stdout
    pathlib.Path(r"{tmp_path / "pids"}").write_text(f"{{one}} {{two}}")
"""
    seen = run({"unit/test_forgets.py": text}, "tests/unit", *workers)
    assert "1 passed" in seen.stdout
    assert seen.returncode == 1
    pids = (tmp_path / "pids").read_text(encoding="utf-8").split()
    assert len(pids) == 2
    for pid in pids:
        assert f"run fails: left a process behind: {pid} " in seen.stdout
        assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["one", "two"])
def test_a_run_begun_in_the_background_can_interrupt_its_children(run: Run, workers: tuple[str, ...]) -> None:
    module = """
import signal, subprocess, sys
def test_interrupts_a_child():
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == -signal.SIGINT
"""
    ended = run(
        {"test_child.py": module}, "tests/test_child.py", *workers, before=("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(("name", "version"), [("", "1.0"), ("llama-server", " ")])
def test_a_program_without_name_or_version_cannot_be_recorded(name: str, version: str) -> None:
    with pytest.raises(ValueError, match="is empty"):
        programs.record_real_program(name, version, "tests/unit/test_x.py::test_x")


def test_real_servers_have_one_worker_a_cluster_has_one_and_every_other_file_of_servers_has_one_each(
    run: Run, tmp_path: Path
) -> None:
    tells = """
import os, pathlib, pytest
@pytest.mark.parametrize("number", range(6))
def test_who(number):
    with open("who.txt", "a") as file:
        file.write(f"{pathlib.Path(__file__).stem} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""
    real = ("engine/test_one.py", "demo/test_two.py", "contract/test_three.py")
    others = ("runner/test_four.py", "story/test_five.py")
    cluster = ("cluster/test_six.py", "cluster/test_seven.py")
    seen = run({"unit/test_a.py": SPOKE} | dict.fromkeys((*real, *cluster, *others), tells), "-n2", "--dist=loadgroup")
    assert seen.returncode == 0, seen.stdout
    workers: dict[str, set[str]] = {}
    for row in (tmp_path / "who.txt").read_text().splitlines():
        name, worker = row.split()
        workers.setdefault(name, set()).add(worker)
    assert {name: len(found) for name, found in workers.items()} == dict.fromkeys(workers, 1)
    assert len(workers["test_one"] | workers["test_two"] | workers["test_three"]) == 1
    assert len(workers["test_six"] | workers["test_seven"]) == 1
    assert len(workers) == len(real) + len(cluster) + len(others)


def test_the_folder_of_many_files_comes_last(run: Run) -> None:
    folders = ("runner", "story", "engine", "unit", "watching")
    seen = run({f"{each}/test_{each}.py": "def test_it(): pass" for each in folders}, "--collect-only", "tests")
    lines = [line for line in seen.stdout.splitlines() if line.startswith("tests/")]
    assert [line.split("/")[1] for line in lines] == ["unit", "engine", "story", "watching", "runner"]
