"""Fixtures of the pytest plug-in's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import leftovers
from tests.support import llama as _llama

llama_pool = _llama.llama_pool
llama = _llama.llama

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a real pytest over one test module, with the plug-in as an installed package brings it."""

    def go(module: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(module, encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        kept.pop(leftovers.VARIABLE, None)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        return subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False, timeout=300)

    return go
