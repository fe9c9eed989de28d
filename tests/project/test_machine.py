"""What a test run asks of the machine: nothing is compiled twice, and temporary files wait for no disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.machine import compile_once, keep_files_in_memory


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test changes of this very process is what it was once the test is over."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def test_what_a_process_compiled_is_kept_for_the_next(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 7\n", encoding="utf-8")
    environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tmp_path)}
    for compiled in (False, True):
        subprocess.run([sys.executable, "-c", "import helper"], env=environment, check=True)
        assert (tmp_path / "__pycache__").is_dir() is compiled
        compile_once(environment)
    assert sys.dont_write_bytecode is False


def test_temporary_files_are_in_memory_where_there_is_room(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    keep_files_in_memory(environment, tmp_path, 1)
    assert environment == {"TMPDIR": str(tmp_path)}
    assert Path(tempfile.mkdtemp()).parent == tmp_path


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP", "TMP"])
def test_a_folder_that_a_person_named_stays(tmp_path: Path, name: str) -> None:
    environment = {name: "here"}
    keep_files_in_memory(environment, tmp_path, 1)
    assert (environment, tempfile.gettempdir() == str(tmp_path)) == ({name: "here"}, False)


def test_without_room_or_without_such_a_place_nothing_changes(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    keep_files_in_memory(environment, tmp_path, shutil.disk_usage(tmp_path).total + 1)
    keep_files_in_memory(environment, tmp_path / "absent", 1)
    assert (environment, tempfile.gettempdir() == str(tmp_path)) == ({}, False)
