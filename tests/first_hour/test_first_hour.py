"""The first hour of a new user, as README.md tells it: the commands of that section, run as they stand there.

Two real llama.cpp servers, each behind a key of its own. Only the addresses are replaced. The session is played once;
each test reads one command's output.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.gate import Gate
from prefillgate.core.verdict import CellClass
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.replay.replay_set import load_replay_set
from tests.support.llama import SMALL, record
from tests.support.runs import stored

README = Path(__file__).parents[2] / "README.md"
PROMPTS = 8
OLD_KEY, NEW_KEY = "old-key-3141592653", "new-key-2718281828"
COMMAND_SECONDS = 600


@dataclass(frozen=True)
class Ended:
    """One command of the session, to its end."""

    line: str
    code: int
    out: str
    said: str


@dataclass(frozen=True)
class Session:
    """The whole hour. `commands` by what tells them apart."""

    folder: Path
    servers: dict[str, LlamaServer]
    commands: dict[str, Ended]


def commands_of_readme() -> list[str]:
    """The command lines of the section, in order, continued lines joined."""
    section = README.read_text("utf-8").partition("## The first hour\n")[2].partition("\n## ")[0]
    block = section.partition("```console\n")[2].partition("```")[0]
    return block.replace("\\\n ", "").splitlines()


def name_of(line: str) -> str:
    words = shlex.split(line)
    plan = "plan" if "--dry-run" in words else words[1]
    return f"{words[1]} {words[2]}" if words[1] == "replayset" else plan


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("hour")
    lines = load_replay_set("demo")
    source = Path(str(lines.source)).read_text("utf-8").splitlines(keepends=True)
    (folder / "prompts.jsonl").write_text("".join(source[:PROMPTS]), encoding="utf-8")
    common = (*SMALL, "--metrics", "--slots", "--cache-ram", "0")
    old = ("-ctk", "q8_0", "-ctv", "q8_0", "--api-key", OLD_KEY)
    with (
        LlamaServer((*common, *old), log_path=folder / "old.log") as baseline,
        LlamaServer((*common, "--api-key", NEW_KEY), log_path=folder / "new.log") as candidate,
    ):
        servers = {BASELINE: baseline, CANDIDATE: candidate}
        played = {name_of(line): play(line, folder, servers) for line in commands_of_readme()}
        yield Session(folder, servers, played)


def play(line: str, folder: Path, servers: dict[str, LlamaServer]) -> Ended:
    line = line.replace("http://old:8080", servers[BASELINE].url).replace("http://new:8080", servers[CANDIDATE].url)
    words = shlex.split(line)
    assert words[0] == "prefillgate"
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "OLD_KEY": OLD_KEY, "NEW_KEY": NEW_KEY, "PREFILLGATE_API_KEY": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=COMMAND_SECONDS,
        check=False,
    )
    return Ended(line, done.returncode, done.stdout, done.stderr)


@pytest.fixture
def session(hour: Session, request: pytest.FixtureRequest) -> Session:
    """The hour; notes that the asking test rests on the real servers."""
    for server in hour.servers.values():
        record(request, server)
    return hour


@pytest.fixture
def gate(session: Session) -> Gate:
    return stored(session.folder / "gate.db")[0]


def test_every_command_of_the_section_is_played_and_ends_as_it_should(session: Session) -> None:
    codes = {name: ended.code for name, ended in session.commands.items()}
    ends = dict.fromkeys(("doctor", "replayset lint", "plan", "explain", "diff", "cells", "report"), (0,))
    # The small model fails one prompt in twenty by itself; on a busy machine the speed may stay open.
    ends |= {"replayset try": (0, 10), "run": (0, 10)}
    assert codes.keys() == ends.keys()
    for name, code in codes.items():
        assert code in ends[name], session.commands[name].out + session.commands[name].said


def test_no_command_prints_a_key_and_none_stands_in_a_file(session: Session) -> None:
    for ended in session.commands.values():
        for key in (OLD_KEY, NEW_KEY):
            assert key not in ended.line + ended.out + ended.said
    written = [path for path in session.folder.iterdir() if path.suffix != ".log"]
    assert {"gate.db", "gate.html", "gate-report.html"} <= {path.name for path in written}
    for path in written:
        assert not any(key.encode() in path.read_bytes() for key in (OLD_KEY, NEW_KEY)), path


def test_the_doctor_says_that_a_run_can_be_trusted_there(session: Session) -> None:
    out = session.commands["doctor"].out
    assert re.search(r"^  ok +fresh prefill ", out, re.MULTILINE)
    assert re.search(r"^  ok +second witness ", out, re.MULTILINE)
    assert "A run on this server can be trusted." in out
    assert not re.search(r"^  missing", out, re.MULTILINE)


def test_lint_names_every_prompt_and_what_a_set_so_small_cannot_say(session: Session) -> None:
    ended = session.commands["replayset lint"]
    assert len(re.findall(r"^ +\d+  \S+  /v1/completions ", ended.out, re.MULTILINE)) == PROMPTS
    assert "for a claim about prompts like these use at least 48" in ended.said


def test_try_shows_every_prompt_fresh_with_its_text_and_what_a_gate_could_do(session: Session) -> None:
    out = session.commands["replayset try"].out
    cases = re.findall(r"^(\d)/8  (\S+)  (\d+) tokens in \(0 cached\)  (\d+) out  [\d.]+ s  (\w+)", out, re.MULTILINE)
    assert [int(number) for number, *_ in cases] == list(range(1, PROMPTS + 1))
    assert all(200 < int(prompt) < 400 and 20 < int(written) <= 64 for _, _, prompt, written, _ in cases)
    assert out.count('    | {"time": ') == PROMPTS
    bad = sum(standing != "clean" for *_, standing in cases)
    assert f"{bad} of 8 fresh prefills" in out
    assert re.search(r"^P\(promote\) +[\d.]+ for a candidate just as bad, by policy quick", out, re.MULTILINE)
    assert session.commands["replayset try"].code == (10 if bad else 0)


def test_the_plan_tells_prefills_and_minutes_from_what_it_timed_on_both_servers(session: Session) -> None:
    out = session.commands["plan"].out
    assert "16 with 0 bad, 25 with 1 bad, 35 with 2 bad fresh prefills" in out
    assert re.search(r"^prefills +34 when nothing is bad", out, re.MULTILINE)
    for arm in ARMS:
        assert session.servers[arm].url in out
    assert len(re.findall(r"^minutes +about [\d.]+ min ", out, re.MULTILINE)) == 4, out


def test_the_run_decides_by_fresh_prefills_alone(session: Session, gate: Gate) -> None:
    ended = session.commands["run"]
    out = ended.out
    if ended.code == 0:
        assert re.search(r"^decision +promote$", out, re.MULTILINE)
    else:
        assert re.search(r"^reason +(ThroughputOpen|Slower)$", out, re.MULTILINE), out
    assert re.search(r"^what changed +KV cache: cache type, q8_0 -> f16$", out, re.MULTILINE), out
    classes = {item.cell.arm: set[CellClass]() for item in gate.classified()}
    for item in gate.classified():
        classes[item.cell.arm].add(item.cell_class)
    assert classes == {BASELINE: {CellClass.FRESH}, CANDIDATE: {CellClass.FRESH}}
    assert all(item.cell.cached_tokens == 0 for item in gate.classified())


def test_explain_says_what_follows_by_which_rule_and_the_next_command(session: Session, gate: Gate) -> None:
    out = session.commands["explain"].out
    fresh = sum(item.cell.arm == CANDIDATE for item in gate.classified())
    assert re.search(rf"^  Candidate: (\d+) of {fresh} requests bad; by prefill \1 of {fresh}\.$", out, re.MULTILINE), (
        out
    )
    assert re.search(r"^  Why: rule \d+ of 16 is the first that answers", out, re.MULTILINE)
    assert re.search(r"^    prefillgate .*gate\.", out, re.MULTILINE)


def test_diff_shows_both_answers_to_the_prompt(session: Session) -> None:
    out = session.commands["diff"].out
    assert re.search(r"^baseline +cell \d+, \w.*: \w+$\n^candidate +cell \d+, \w.*: \w+$", out, re.MULTILINE), out
    assert '"service": "printer"' in out


def test_the_curl_command_gets_an_answer_from_the_server_without_the_gate(session: Session) -> None:
    script = session.commands["cells"].out
    done = subprocess.run(
        ["sh"], input=script, env={**os.environ, "OLD_KEY": OLD_KEY}, capture_output=True, encoding="utf-8", check=True
    )
    assert '"text"' in done.stdout and "OLD_KEY" in script


def test_the_report_stands_where_it_was_asked_for_and_says_what_the_run_said(session: Session) -> None:
    page = (session.folder / "gate-report.html").read_text("utf-8")
    assert "<!doctype html>" in page[:100].lower()
    promotion = {0: "Allowed", 10: "Blocked"}[session.commands["run"].code]
    assert promotion in page and "q8_0" in page
    assert page == (session.folder / "gate.html").read_text("utf-8")  # the one that the run itself wrote
