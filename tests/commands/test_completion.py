"""Shell completion: what a real bash makes of the script, and that a command's name costs no heavy import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prefillgate.api.policy import NAMED_POLICIES
from prefillgate.cli.completing import ENGINE, LOG_FORMAT, POLICY, REPLAY_SET
from prefillgate.cli.main import COMMANDS, main
from prefillgate.engines.registry import engine_names
from prefillgate.importers.reading import CELLS
from prefillgate.importers.registry import format_names
from prefillgate.replay.replay_set import packaged_sets
from tests.unit.test_cli_main import HEAVY

BASH = """
set -e
eval "$(prefillgate completion bash)"
compopt() { printf 'compopt %s %s\\n' "$@"; }  # there is no line being edited here
complete -p prefillgate
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_prefillgate_completion prefillgate
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder whose `bin` holds the program by its name, as an installation does."""
    program = tmp_path / "bin" / "prefillgate"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m prefillgate "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "here").mkdir()
    return tmp_path


def completed(shell: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    path = f"{shell / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", "prefillgate", *words],
        env={**os.environ, "PATH": path},
        cwd=shell / "here",
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    registered, *offered = done.stdout.splitlines()
    assert registered.endswith("-F _prefillgate_completion prefillgate")
    return [word for word in offered if word]


def test_bash_completes_commands_and_their_options(shell: Path) -> None:
    assert completed(shell, "re") == ["recheck", "report", "replayset", "replay-job"]
    assert completed(shell, "") == [entry.name for entry in COMMANDS]
    assert completed(shell, "run", "--baseline-ap") == ["--baseline-api-key-env"]
    assert "--log-json" in completed(shell, "run", "--l")
    assert completed(shell, "replayset", "li") == ["lint"]
    assert completed(shell, "completion", "") == ["bash", "zsh", "fish"]


def test_bash_completes_names_and_files(shell: Path) -> None:
    for name in ("data.jsonl", "strict-mine.yaml", ".hidden", "other"):
        (shell / "here" / name).write_text("", encoding="utf-8")
    (shell / "here" / "demos").mkdir()
    assert completed(shell, "run", "--replay-set", "d") == ["demo", "data.jsonl", "demos/"]
    assert completed(shell, "run", "--replay-set", "") == [
        *("demo", "four", "short"),
        *("data.jsonl", "demos/", "other", "strict-mine.yaml"),
    ]
    assert completed(shell, "run", "--policy", "st") == ["standard", "strict", "strict-mine.yaml"]
    assert completed(shell, "audit", "--policy", "q") == ["quick"]
    assert completed(shell, "replayset", "lint", "fo") == ["four"]
    assert completed(shell, "run", "--policy", "demos/x") == ["compopt -o default"]  # bash lists files itself
    assert completed(shell, "decide", "d") == ["compopt -o default"]


def test_bash_completes_engines_and_no_file(shell: Path) -> None:
    (shell / "here" / "llama.txt").write_text("", encoding="utf-8")
    assert completed(shell, "run", "--candidate-engine", "lla") == ["llama.cpp"]
    assert completed(shell, "replayset", "show", "demo", "--engine", "") == list(engine_names())


@pytest.mark.parametrize("command", [("audit",), ("replayset", "import"), ("watch-log",)])
def test_bash_completes_formats_of_logs_and_no_file(shell: Path, command: tuple[str, ...]) -> None:
    (shell / "here" / "lite.txt").write_text("", encoding="utf-8")
    assert completed(shell, *command, "--format", "l") == ["llama-server-log", "lm-eval", "litellm", "langfuse"]


def test_the_names_offered_are_those_there_are() -> None:
    assert set(REPLAY_SET.names) == set(packaged_sets())
    assert ENGINE.names == engine_names()
    assert POLICY.names == tuple(NAMED_POLICIES)
    assert LOG_FORMAT.names == (CELLS, *format_names())


@pytest.mark.parametrize(
    ("shell_name", "wanted"),
    [
        ("bash", "complete -o nosort -F _prefillgate_completion prefillgate"),
        ("zsh", "compdef _prefillgate_completion prefillgate"),
        ("fish", "complete --no-files --command prefillgate"),
    ],
)
def test_each_shell_gets_its_own_script(shell_name: str, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell_name]) == 0
    out, err = capsys.readouterr()
    assert wanted in out
    assert f"_PREFILLGATE_COMPLETE={shell_name}_complete" in out
    assert err == ""


def test_another_shell_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "offered"), [("prefillgate ru", "run"), ("prefillgate run --replay-set sh", "short")]
)
def test_completing_imports_nothing_heavy(words: str, offered: str) -> None:
    code = "import json, sys\nfrom prefillgate.cli.main import main\nmain([])\nprint(json.dumps(sorted(sys.modules)))\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "_PREFILLGATE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        },
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    told, *_, modules = done.stdout.splitlines()
    assert told == f"plain,{offered}"
    loaded = set(json.loads(modules))
    assert HEAVY & loaded == set()
    if words == "prefillgate ru":
        assert [name for name in loaded if name.startswith("prefillgate.cli.run")] == []
