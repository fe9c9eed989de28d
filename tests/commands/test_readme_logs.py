"""The commands of README.md on logs, prompts out of traffic and watching, run as they stand there by a shell."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import ARMS, CANDIDATE, Cell
from tests.support.cell_logs import story
from tests.support.llama_logs import llama_log

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
LLAMA_LOG = ROOT / "tests" / "importing" / "logs" / "llama_server" / "verbose.log"


def commands_of(heading: str) -> list[str]:
    """The commands in the console blocks of a section, one string each."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def reply_of(cell: Cell, number: int) -> dict[str, Any]:
    """A cell of the story as an OpenAI-style line: its prompt, its counters, and an output that the checks judge."""
    said = "VERDICT: LGTM" if cell.bad else "The loop ends one too early in line 12, see the test. VERDICT: CHANGES"
    return {
        "request": {"messages": [{"role": "user", "content": f"Review {cell.case_id}"}]},
        "response": {
            "id": f"r{number}",
            "created": 1_788_256_800 + 60 * number,
            "model": "new-model" if cell.arm == CANDIDATE else "old-model",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}],
            "usage": {
                "prompt_tokens": cell.prompt_tokens,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": cell.cached_tokens},
            },
        },
    }


def lines_of(cells: Iterable[Cell]) -> str:
    return "".join(json.dumps(reply_of(cell, number)) + "\n" for number, cell in enumerate(cells))


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of the README in a shell; `prefillgate` is the one under test."""
    script = f'prefillgate() {{ "{sys.executable}" -m prefillgate "$@"; }}\n{command}\n'
    here = {**os.environ, "PYTHONPATH": str(ROOT / "controller"), "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=here, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for arm, name in zip(ARMS, ("old.jsonl", "new.jsonl"), strict=True):
        (tmp_path / name).write_text(lines_of(cell for cell in story() if cell.arm == arm))
    (tmp_path / "results.json").write_text(
        json.dumps([reply_of(cell, number) for number, cell in enumerate(story())], indent=1)
    )
    (tmp_path / "server.log.gz").write_bytes(gzip.compress(LLAMA_LOG.read_bytes()))
    (tmp_path / "traffic.jsonl.gz").write_bytes(gzip.compress(lines_of(story()).encode()))
    return tmp_path


def test_the_audits_of_the_readme_run_as_they_stand_there(folder: Path) -> None:
    markdown, labels, piped, check = commands_of("A log you already have")
    told = run(f"{markdown} --checks standard", folder)
    assert (told.returncode, told.stdout.splitlines()[0]) == (0, "### Weaker than it looks: new\\.jsonl and 1 more")
    assert "11 of 12" in told.stdout and "0 of 20" in told.stdout
    told = run(labels, folder)
    assert told.returncode == 0 and "The difference is weaker than it looks." in told.stdout, told.stderr
    assert "by prefill the candidate is bad in 2 of 2 against 0 of 2" in " ".join(told.stdout.split())
    told = run(piped, folder)
    assert told.returncode == 0 and "4 requests" in " ".join(told.stdout.split()), told.stdout
    assert "prefillgate: no-rationale" in README and (run(check, folder).stdout, run(check, folder).returncode) == (
        "prefillgate: no-rationale\n",
        10,
    )


def test_prompts_out_of_logs_are_imported_and_picked_as_the_readme_says(folder: Path) -> None:
    recording, picking, importing = commands_of("Prompts out of traffic")
    assert recording.startswith("prefillgate replayset record --upstream ")
    told = run(importing, folder)
    assert told.returncode == 0, told.stderr
    (folder / "prompts.jsonl").rename(folder / "recorded.jsonl")
    told = run(picking, folder)
    assert told.returncode == 0, told.stderr
    picked = (folder / "prompts.jsonl").read_bytes().splitlines()
    assert set(picked) <= set((folder / "recorded.jsonl").read_bytes().splitlines())
    assert 0 < len(picked) <= 16


def test_a_watch_of_the_readme_pages_somebody(folder: Path) -> None:
    following, paging = commands_of("A log that is being written")
    assert following.startswith("prefillgate watch-log ") and " --once" in paging
    log = llama_log(folder / "llama-server.log", 3)
    command = paging.replace("/var/log/llama-server.log", str(log)).replace("page-somebody", "echo paged $?")
    told = run(command.replace("--slow-decode-ms 60", "--slow-decode-ms 100"), folder)
    assert (told.returncode, told.stdout) == (0, ""), told.stderr
    (folder / "watch.state").unlink()
    told = run(command, folder)
    assert told.stdout.splitlines()[-1] == "paged 10" and "3 of the last 3 prefills are bad" in told.stdout
