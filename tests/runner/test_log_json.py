"""`run --log-json`: everything on standard error is one object a line, whatever happens; and the last line resumes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.runner.test_interruptions import until_cells
from tests.support.runs import Ended, bench, ended, start, stored
from tests.support.simulated import SimulatedServer, start_simulated

Line = dict[str, Any]


def said(run: Ended) -> list[Line]:
    """The objects of standard error; a line that is none fails."""
    lines = [json.loads(line) for line in run.lines]
    assert lines
    for line in lines:
        assert list(line)[:4] == ["event", "time", "level", "message"]
        assert line["level"] in ("info", "warning", "error")
        assert datetime.fromisoformat(line["time"].replace("Z", "+00:00")).tzinfo is not None
    assert run.err.isascii() and b"\x1b" not in run.err
    return lines


def test_progress_is_objects_with_the_facts_of_each_cell(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        run = work.child(
            *work.arguments(
                healthy.url, candidate.url, "--store", "run.db", "--log-json", "--json", "--report", "r.html"
            )
        )
    lines = said(run)
    assert run.code == 0 and run.json["decision"] == "promote"
    gate, _ = stored(tmp_path / "run.db")
    told = {line["event"]: line for line in lines}
    assert told["store"]["store"] == "run.db"
    assert told["seed"]["seed"] == 5
    assert told["report"]["report"] == "r.html"
    assert [line["arm"] for line in lines if line["event"] == "server_met"] == ["baseline", "candidate"]
    cells = [line for line in lines if line["event"] == "cell"]
    assert [line["cell_id"] for line in cells] == list(gate.measured)
    for line in cells:
        cell = gate.measured[line["cell_id"]].cell
        assert (line["arm"], line["server"], line["case_id"], line["replicate"]) == (cell.arm, 1, cell.case_id, 0)
        assert (line["prompt_tokens"], line["cached_tokens"]) == (cell.prompt_tokens, cell.cached_tokens)
        assert (line["status"], line["bad"], line["processed_tokens"]) == ("ok", False, cell.processed_tokens)
        assert line["message"].split()[:2] == [str(line["cell_id"]), cell.arm]


def test_an_alarm_and_its_replicate_are_events_of_their_own(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})
    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=1.0"]) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url, "--log-json", "--quiet"))
    assert run.code == 20
    lines = said(run)
    events = [line["event"] for line in lines]
    assert "cell" not in events  # kept back by --quiet
    alarm, begun, done = (events.index(name) for name in ("alarm", "replicate_started", "replicate_ended"))
    assert alarm < begun < done
    assert lines[alarm]["level"] == "warning" and lines[done]["ending"] == "confirmed"


def test_without_it_the_same_run_speaks_lines(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url, "--store", "run.db"))
        quiet = work.child(*work.arguments(healthy.url, candidate.url, "--store", "quiet.db", "--quiet"))
    assert not any(line.startswith("{") for line in run.lines)
    cells = [line for line in run.lines if " cached " in line]
    assert len(cells) == len(stored(tmp_path / "run.db")[0].measured)
    assert [line for line in quiet.lines if " cached " in line] == []
    assert "store: quiet.db" in quiet.lines


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--no-such-option"], 2),
        (["--replay-set", "nothing.jsonl", "--baseline", "http://127.0.0.1:9", "--candidate", "http://127.0.0.1:8"], 2),
        (["--baseline", "no address", "--candidate", "http://127.0.0.1:8"], 2),
        (["--replay-set", "short", "--baseline", "http://127.0.0.1:9", "--candidate", "http://127.0.0.1:8"], 1),
    ],
    ids=["option", "set", "address", "no server"],
)
def test_an_error_is_an_object_too(arguments: list[str], code: int, tmp_path: Path) -> None:
    run = ended(start(["run", "--log-json", *arguments], tmp_path))
    lines = said(run)
    assert (run.code, run.out) == (code, b"")
    assert lines[-1]["level"] == "error" and lines[-1]["message"].startswith("prefillgate: ")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_last_object_of_an_interrupted_run_holds_the_command_that_resumes_it(
    healthy: SimulatedServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, time_scale=0.02) as candidate:
        given = ["--store", "my run.db", "--log-json", "--json"]
        process = start(work.arguments(healthy.url, candidate.url, *given), tmp_path)
        until_cells(tmp_path / "my run.db", 3, process)
        process.send_signal(number)
        stopped = ended(process)
        last = said(stopped)[-1]
        assert (stopped.code, stopped.out, last["event"]) == (code, b"", "resume")
        assert last["command"] == last["message"]
        program, *arguments = shlex.split(last["command"])
        assert program == "prefillgate"
        resumed = work.child(*arguments)
    assert (resumed.code, resumed.json["decision"]) == (0, "promote")
    assert "resumed" in {line["event"] for line in said(resumed)}


# Interrupted before the run has a store

STRIKE = """
import os, signal, sys

class Strike:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["STRIKE_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(os.environ["STRIKE_WITH"]))
        return None

sys.meta_path.insert(0, Strike())
"""
"""A sitecustomize that sends the process a signal when it imports a module: an instant that a test can name."""

EARLY = ("click", "prefillgate.cli.main", "prefillgate.cli.run", "prefillgate.cli.run_request", "pydantic", "httpx")
LATER = ("prefillgate.cli.interruptible", "prefillgate.cli.progress")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("module", [*EARLY, *LATER])
@pytest.mark.parametrize("log_json", [False, True], ids=["lines", "objects"])
def test_a_run_interrupted_before_it_has_a_store_ends_with_the_command_that_begins_it(
    tmp_path: Path, module: str, number: signal.Signals, code: int, log_json: bool
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STRIKE, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    given = ["--baseline", "http://127.0.0.1:9", "--candidate", "http://127.0.0.1:8", "--replay-set", "short"]
    arguments = ["run", *given, "--declare", "build=a b..c", *(["--log-json"] if log_json else [])]
    done = subprocess.run(
        [sys.executable, "-m", "prefillgate", *arguments],
        env={**os.environ, "PYTHONPATH": path, "STRIKE_AT": module, "STRIKE_WITH": str(int(number))},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    run = Ended(done.returncode, done.stdout, done.stderr)
    assert (run.code, run.out) == (code, b""), run.said
    assert b"Traceback" not in run.err
    last = said(run)[-1]["command"] if log_json else run.lines[-1]
    words = shlex.split(last)
    assert words[:2] == ["prefillgate", "run"]
    if module in EARLY:
        assert words[1:] == arguments
    else:  # the store had its name by then: the same command makes it, and resumes it from then on
        store = next(line for line in run.lines if "store: " in line).partition("store: ")[2].partition('"')[0]
        assert words[-2:] == ["--store", store]
        assert sorted(words[1:-2]) == sorted(arguments)
    assert not list(tmp_path.glob(".prefillgate/*.db"))
