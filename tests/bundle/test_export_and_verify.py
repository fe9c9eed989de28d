"""What `export` writes and `verify` says of a bundle that nobody changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefillgate.bundle import content
from prefillgate.cli.audit import command as audit_command
from prefillgate.cli.cells import command as cells_command
from prefillgate.cli.decide import command as decide_command
from prefillgate.cli.errors import BadInput
from prefillgate.cli.export import command as export_command
from prefillgate.core.decision import Reason
from prefillgate.evidence import SqliteJournal
from prefillgate.replay.replay_set import load_replay_set
from tests.support.bundles import Bundle, exported, invoke


def test_a_bundle_that_nobody_changed_is_the_same_and_says_what_was_recomputed(bundle: Bundle, store: Path) -> None:
    told = bundle.verify()
    cells = len((bundle.folder / content.CELLS).read_bytes().splitlines())
    assert told.code == 0
    assert told.text.startswith(f"same: {bundle.folder}: ")
    for what in ("cells", "texts", "replies read again", "requests against the replay set"):
        assert f"{cells} {what}" in told.text
    assert "5 prompts of the replay set" in told.text
    assert f"{cells} outcomes of exec (it asked a program)" in told.text
    assert "not signed" in told.text


def test_the_files_are_those_that_the_commands_print(original: Path, store: Path) -> None:
    assert (original / content.CELLS).read_text("utf-8") == invoke(cells_command, str(store), "--json").text
    decision = json.loads((original / content.DECISION).read_text("utf-8"))
    assert decision == json.loads(invoke(decide_command, str(store), "--json").text)
    assert Reason(decision["reason"])


def test_the_run_has_what_the_tests_need(original: Path) -> None:
    cells = [json.loads(line) for line in (original / content.CELLS).read_bytes().splitlines()]
    assert {cell["arm"] for cell in cells} == {"baseline", "candidate"}
    assert any(cell["bad"] for cell in cells) and any(cell["bad"] is False for cell in cells)
    assert any(cell["replicate"] for cell in cells)


def test_the_same_store_gives_the_same_bytes(original: Path, store: Path, tmp_path: Path) -> None:
    again = exported(store, tmp_path / "again").folder
    names = sorted(path.name for path in original.iterdir())
    assert names == sorted([*content.FILES, content.MANIFEST])
    assert [(again / name).read_bytes() for name in names] == [(original / name).read_bytes() for name in names]


def test_audit_reads_the_cells_and_run_reads_the_replay_set_of_a_bundle(original: Path, store: Path) -> None:
    seen = json.loads(invoke(audit_command, str(original / content.CELLS), "--json").text)
    assert seen["arms"]["candidate"]["requests"] > 0
    with SqliteJournal.open_readonly(store) as journal:
        planned = journal.events()[0]
    assert load_replay_set(original / content.REPLAY_SET).sha256 == getattr(planned, "replay_set_sha256")  # noqa: B009


def test_the_tail_of_the_journal_is_the_stores(original: Path, store: Path) -> None:
    with SqliteJournal.open_readonly(store) as journal:
        assert json.loads((original / content.MANIFEST).read_bytes())["journal"] == journal.tail


@pytest.mark.parametrize("there", ["folder", "file", "link"])
def test_what_is_there_already_is_not_touched(store: Path, tmp_path: Path, there: str) -> None:
    target = tmp_path / "out"
    if there == "folder":
        target.mkdir()
    elif there == "file":
        target.write_text("mine", encoding="utf-8")
    else:
        target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="something is there already"):
        invoke(export_command, str(store), "-o", str(target))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_export_that_fails_leaves_nothing(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prefillgate.bundle.write.facts_of", full)  # a full disk cannot be had in a test
    with pytest.raises(Exception, match=r"out: cannot be written: No space left on device"):
        invoke(export_command, str(store), "-o", str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
