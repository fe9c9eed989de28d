"""What the documents say about commands, targets, files and codes is true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from prefillgate import __version__
from prefillgate.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
TOP_FOLDERS = ("charts", "controller", "manifests", "policies", "tests")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for folder in TOP_FOLDERS for path in (ROOT / folder).rglob("*.md"))])
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))

by_path = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def code_of(text: str) -> str:
    """What stands in code blocks and code spans of a Markdown text, a line each."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join([*blocks, *spans])


@pytest.mark.parametrize("folder", TOP_FOLDERS)
def test_every_top_level_folder_says_what_is_in_it(folder: str) -> None:
    assert (ROOT / folder / "README.md").read_text(encoding="utf-8").startswith("# ")


@by_path
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


@by_path
def test_commands_that_documents_show_exist(document: Path) -> None:
    code = code_of(document.read_text(encoding="utf-8"))
    shown = set(re.findall(r"(?:^|\s)prefillgate ([a-z]+(?:-[a-z]+)*)", code, re.MULTILINE))
    assert shown - {entry.name for entry in COMMANDS} == set()
    assert set(re.findall(r"(?:^|\s)make ([a-z]+)", code, re.MULTILINE)) - TARGETS == set()


def test_the_readme_lists_every_command() -> None:
    assert re.findall(r"^\| `prefillgate ([a-z-]+)` \|", README, re.MULTILINE) == [entry.name for entry in COMMANDS]


def test_make_help_lists_every_target() -> None:
    assert set(re.findall(r'@echo "make ([a-z]+) ', MAKEFILE)) == TARGETS - {"help"}
    assert set(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split()) == TARGETS


def test_the_changelog_has_a_place_for_this_version() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0] == __version__


def test_the_licence_is_the_one_the_package_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_decisions_are_numbered_without_a_gap() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Decisions")[2]
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 7
