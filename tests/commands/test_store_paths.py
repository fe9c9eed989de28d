"""Every command that takes a store takes it by a relative path, as a person in its folder types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillgate.cli.main import main
from tests.support.stores import Played

COMMANDS = (
    ("decide",),
    ("report",),
    ("cells",),
    ("explain",),
    ("diff", "case 1"),
    ("export", "-o", "bundle"),
    ("store", "list"),
    ("store", "migrate"),
    ("store", "migrate", "--to", "1"),
    ("override", "--cause", "a cable"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("typed", ["run.db", "../here/run.db"])
def test_a_relative_path_is_a_store_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], typed: str
) -> None:
    (tmp_path / "here").mkdir()
    played = Played(most_cells=20)
    played.play()
    played.keep(tmp_path / "here" / "run.db")
    monkeypatch.chdir(tmp_path / "here")
    at = 2 if words[0] == "store" else 1
    assert main([*words[:at], typed, *words[at:]]) in (0, 10)
