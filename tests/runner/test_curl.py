"""What `cells --curl` prints is run by a real shell and a real curl, and the same request comes out of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from prefillgate.api.access import Access
from prefillgate.core.cells import CANDIDATE
from prefillgate.core.journal import CellMeasured, Planned, Texts
from prefillgate.engines.http import encode_body
from prefillgate.evidence import SqliteJournal
from prefillgate.replay.kept_request import keep_request, kept_request
from prefillgate.replay.session import ArmRequest, RunRequest
from tests.support.llama import real_llama
from tests.support.programs import find_curl, record_real_program
from tests.support.rewriting import Arrived, rewriting
from tests.support.runs import Bench, bench, measured, stored
from tests.support.simulated import SimulatedServer
from tests.support.stores import Played

KEY = "a-key-of-the-curl-test"
PROMPTS = (
    "It's \"quoted\", 'twice' and \\ back \\n slashed",
    "line one\nBODY\nKEY\r\n\ttabbed\n",
    "costs $HOME and ${PATH:-x}, `id`, $(id), !! and !ls; a=~ *?[]{}<>|&#",
    "Grüße, 漢字, 🙂 and e\u0301; %s %b \\0101 \\x41",
    "hidden \u202e\u2066 override, \u2028 separator, \x7f delete, \x85 and \x9b31m",
)


@dataclass(frozen=True)
class Shown:
    """A store, the folder it lies in, and what came to the proxy before its servers."""

    work: Bench
    arrived: list[Arrived]

    def command(self, cell_id: int, *options: str) -> str:
        """What `cells --curl` prints."""
        printed = self.work.child("cells", "run.db", "--curl", str(cell_id), *options)
        assert printed.code == 0, printed.said
        return printed.out.decode("utf-8")

    def run(self, command: str, shell: str = "sh", **environment: str) -> subprocess.CompletedProcess[bytes]:
        """Let a real shell run the command, to its end."""
        known = {name: value for name, value in os.environ.items() if "KEY" not in name}
        proxies = {"http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}  # must not be used
        return subprocess.run(
            [shell],
            input=command.encode("utf-8"),
            env={**known, **proxies, **environment},
            cwd=self.work.folder,
            capture_output=True,
            timeout=120,
            check=False,
        )


def bodies_of(arrived: list[Arrived]) -> list[Arrived]:
    return [request for request in arrived if request.method == "POST"]


@pytest.fixture
def curl(request: pytest.FixtureRequest) -> None:
    """Notes which curl the test runs."""
    found = find_curl()
    assert found, "python -m tests.tools.install_programs installs it"
    said = subprocess.run([found, "--version"], capture_output=True, encoding="utf-8", check=True).stdout
    record_real_program("curl", said.split()[1], request.node.nodeid)


@pytest.fixture
def shown(
    request: pytest.FixtureRequest, curl: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shown]:
    """A short run on two real servers that want a key, the candidate behind a proxy that notes every request."""
    guarded = ("--cache-ram", "0", "--api-key", KEY)
    baseline = real_llama(request, guarded)
    candidate = real_llama(request, (*guarded, "-b", "256"))
    work = bench(tmp_path, budgetPrefills=16, baselinePassPrefills=2)
    lines = [
        {
            "custom_id": f"case-{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"temperature": 0, "prompt": prompt, "max_tokens": 3, "model": "m"},
        }
        for number, prompt in enumerate(PROMPTS)
    ]
    work.set_path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    monkeypatch.setenv("KEY_OF_THIS_TEST", KEY)
    access = Access(api_key_variable="KEY_OF_THIS_TEST")
    arrived: list[Arrived] = []
    with rewriting(candidate.url, {}, arrived) as url:
        asked: RunRequest = work.request(baseline.url, f"{url}/v1")
        work.run(
            RunRequest(
                baseline=ArmRequest(baseline.url, access=access),
                candidate=ArmRequest(f"{url}/v1", access=access),
                replay_set=asked.replay_set,
                policy=asked.policy,
                store=asked.store,
                seed=5,
            )
        )
        yield Shown(work, arrived)


def test_the_printed_command_sends_the_request_of_the_cell_to_the_byte(shown: Shown) -> None:
    gate, texts = stored(shown.work.folder / "run.db")
    cells = measured(gate, CANDIDATE)
    assert {event.cell.case_id for event in cells} == {f"case-{number}" for number in range(len(PROMPTS))}
    for place, event in enumerate(cells):
        kept = kept_request(texts[event.cell_id].request)
        assert kept is not None and kept.as_sent
        (sent,) = [r for r in bodies_of(shown.arrived) if r.body == kept.body]  # what the run put on the wire
        before = len(shown.arrived)
        command = shown.command(event.cell_id)
        assert all(character.isprintable() or character == "\n" for character in command)  # nothing steers a terminal
        done = shown.run(command, ("sh", "bash")[place % 2], PREFILLGATE_API_KEY=KEY)
        assert (done.returncode, done.stderr) == (0, b"")
        (again,) = shown.arrived[before:]
        assert (again.method, again.path, again.body) == ("POST", sent.path, sent.body)
        for name in ("authorization", "content-type"):
            assert again.headers[name] == sent.headers[name]
        assert "expect" not in again.headers
        assert b'"text"' in done.stdout  # and the real server answered


def test_the_key_is_read_from_the_variable_named_and_stands_nowhere_in_the_command(shown: Shown) -> None:
    gate, _ = stored(shown.work.folder / "run.db")
    cell_id = measured(gate, CANDIDATE)[0].cell_id
    named = shown.command(cell_id, "--api-key-env", "MY_VARIABLE")
    assert KEY not in named
    before = len(shown.arrived)
    shown.run(named, MY_VARIABLE=KEY)
    shown.run(named, PREFILLGATE_API_KEY=KEY)
    shown.run(named, MY_VARIABLE="")
    told = [request.headers.get("authorization") for request in shown.arrived[before:]]
    assert told == [f"Bearer {KEY}", None, None]
    seen: list[bytes] = []
    spy = shown.work.folder / "curl"  # what a process list would show
    spy.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    spy.chmod(0o755)
    path = f"{shown.work.folder}{os.pathsep}{os.environ['PATH']}"
    seen.append(shown.run(named, MY_VARIABLE=KEY, PATH=path).stdout)
    assert b"--config" in seen[0] and KEY.encode() not in seen[0]


def keep(folder: Path, url: str, requests: list[str]) -> Path:
    """A store whose first cells sent `requests` to `url`."""
    played = Played(most_cells=len(requests))
    played.play()
    first, *rest = played.events
    assert isinstance(first, Planned)
    path = folder / "run.db"
    with SqliteJournal.create(path, replace(first, baseline_url=f"{url}/v1 (m)", candidate_url=url)) as journal:
        for event in rest:
            texts = None
            if isinstance(event, CellMeasured) and event.cell_id < len(requests):
                texts = Texts(request=requests[event.cell_id])
            journal.append(event, texts)
    return path


def test_halves_of_surrogate_pairs_and_bodies_of_many_megabytes_arrive_as_they_were_sent(
    curl: None, healthy: SimulatedServer, tmp_path: Path
) -> None:
    half = encode_body({"prompt": "half \ud83d and 'quote' \x7f", "max_tokens": 2})
    huge = encode_body({"prompt": "x" * 3_000_000 + " 'end'", "max_tokens": 2})
    hidden = encode_body({"prompt": "\u202e" + "y" * 300_000, "max_tokens": 2})
    arrived: list[Arrived] = []
    with rewriting(healthy.url, {}, arrived) as url:
        bodies = [half, huge, hidden]
        keep(tmp_path, url, [keep_request("/v1/completions", body) for body in bodies])
        shown = Shown(bench(tmp_path), arrived)
        for cell_id in range(3):
            assert shown.run(shown.command(cell_id)).returncode == 0
    assert [(request.path, request.body) for request in arrived] == [("/v1/completions", body) for body in bodies]
    assert all("expect" not in request.headers for request in arrived)


def test_a_store_of_sorted_bodies_says_so_and_sends_the_same_json(
    curl: None, healthy: SimulatedServer, tmp_path: Path
) -> None:
    arrived: list[Arrived] = []
    with rewriting(healthy.url, {}, arrived) as url:
        keep(tmp_path, url, ['{"body":{"max_tokens":2,"prompt":"ü"},"path":"/v1/completions"}'])
        shown = Shown(bench(tmp_path), arrived)
        command = shown.command(0)
        assert shown.run(command).returncode == 0
    assert "# This store kept the body's fields in sorted order" in command
    assert [(r.path, json.loads(r.body)) for r in arrived] == [("/v1/completions", {"max_tokens": 2, "prompt": "ü"})]


def test_a_cell_of_an_arm_with_several_servers_goes_to_its_own(tmp_path: Path) -> None:
    request = keep_request("/v1/completions", b"{}")
    played = Played(most_cells=2)
    played.play()
    first, *rest = played.events
    assert isinstance(first, Planned)
    several = "http://one.test, http://two.test/v1 (m)"
    with SqliteJournal.create(
        tmp_path / "several.db", replace(first, baseline_url=several, candidate_url=several)
    ) as journal:
        for event in rest:
            if isinstance(event, CellMeasured):
                journal.append(replace(event, lane=event.cell_id % 2), Texts(request=request))
            else:
                journal.append(event)
    work = bench(tmp_path)
    told = [work.child("cells", "several.db", "--curl", str(cell_id)).out for cell_id in (0, 1)]
    assert b"'http://one.test/v1/completions'" in told[0] and b"two.test" not in told[0]
    assert b"'http://two.test/v1/completions'" in told[1]


def test_options_of_a_run_that_no_store_holds_are_named(tmp_path: Path) -> None:
    keep(tmp_path, "https://models.test/prefix", [keep_request("/v1/completions", b"{}")])
    command = Shown(bench(tmp_path), []).command(0)
    address = re.search(r"'(https://\S+)'", command)
    assert address is not None and address[1] == "https://models.test/prefix/v1/completions"
    for name in ("--header-file", "--proxy", "--ca-file", "--client-cert", "--client-key", "--insecure"):
        assert f"{name}" in command
    keep_folder = tmp_path / "plain"
    keep_folder.mkdir()
    keep(keep_folder, "http://models.test", [keep_request("/v1/completions", b"{}")])
    assert "--ca-file" not in Shown(bench(keep_folder), []).command(0)


def test_a_cell_that_cannot_be_shown_is_bad_input_that_says_why(tmp_path: Path) -> None:
    keep(tmp_path, "http://models.test", [""])
    work = bench(tmp_path)
    nothing = work.child("cells", "run.db", "--curl", "0")
    assert (nothing.code, nothing.out) == (2, b"")
    assert "--curl 0: nothing was sent for that cell" in nothing.said
    other = work.child("cells", "run.db", "--curl", "7")
    assert (other.code, other.out) == (2, b"")
    assert "--curl 7: the store has no such cell (allowed: 0 to 0" in other.said
    for wrong in (["--curl", "0", "--json"], ["--api-key-env", "KEY"], ["--curl", "0", "--api-key-env", "A;id"]):
        refused = work.child("cells", "run.db", *wrong)
        assert (refused.code, refused.out) == (2, b"")
