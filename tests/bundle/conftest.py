"""A run with bad cells and a replicate, over simulated servers, and its bundle: made once, copied by every test."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.bundles import Bundle, exported
from tests.support.runs import Bench, Finished, Watch, write_policy, write_set
from tests.support.simulated import start_simulated

CHECKS = [
    {"type": "NotEmpty"},
    {"type": "MinWords", "minWords": {"words": 4}},
    {"type": "TemplateTokens"},
    {"type": "Regex", "name": "no-apology", "regex": {"mustNotMatch": "(?i)i am sorry"}},
    {"type": "EqualToBaseline"},
]


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A candidate that is bad now and then, to the end of its run."""
    folder = tmp_path_factory.mktemp("measured")
    program = folder / "looks.py"
    program.write_text("import sys\nsys.stdin.read()\nprint('looked at it')\n", encoding="utf-8")
    checks = [*CHECKS, {"type": "Exec", "exec": {"arguments": [sys.executable, program.name]}}]
    work = Bench(folder, write_set(folder / "set.jsonl"), write_policy(folder / "policy.yaml", checks=checks))
    with (
        start_simulated(seed=1, text_seed=9) as baseline,
        start_simulated(seed=4, text_seed=9, fault=["bad-rate=0.4"]) as candidate,
    ):
        watch = Watch(waits=[lambda gate, step: candidate.restart()])
        return work.run(work.request(baseline.url, candidate.url), watch)


@pytest.fixture(scope="session")
def store(measured: Finished) -> Path:
    """The store of that run."""
    return Path(measured.journal.path)


@pytest.fixture(scope="session")
def original(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of that run. Nobody changes it."""
    return exported(store, tmp_path_factory.mktemp("bundles") / "bundle").folder


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Bundle:
    """A copy to change."""
    shutil.copytree(original, tmp_path / "bundle")
    return Bundle(tmp_path / "bundle")
