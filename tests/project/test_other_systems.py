"""The package as it would be on another system than the one that tests it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_every_name_the_package_uses_is_there_on_other_systems(system: str, tmp_path: Path) -> None:
    command = ["mypy", "--strict", "--platform", system, "--cache-dir", str(tmp_path)]
    seen = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )
    assert seen.returncode == 0, seen.stdout
    assert seen.stdout.startswith("Success: no issues found")
