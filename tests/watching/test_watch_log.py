"""`watch-log` beside a program that writes its log: live lines, rotation, and kill -9 at any instant."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from prefillgate.hosts.llama_server import LlamaServer
from tests.support.llama import SMALL, record, wait_for_releases

_WAIT_SECONDS = 120


class Watch:
    """A running `prefillgate watch-log --json`: `alarms` and `counts` so far, and every line of standard error."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "prefillgate", "watch-log", "--json", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.events: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._readers = [threading.Thread(target=self._read_events), threading.Thread(target=self._read_said)]
        for reader in self._readers:
            reader.start()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # a killed one may leave a piece
                self.events.append(json.loads(line))

    def _read_said(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line.rstrip("\n"))

    @property
    def alarms(self) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event["event"] == "alarm"]

    def series(self) -> dict[str, Any]:
        """The last counts that were printed."""
        counts: dict[str, Any] = [event for event in list(self.events) if event["event"] == "counts"][-1]["series"]
        return counts

    def until(self, true: Callable[[Watch], bool]) -> None:
        """Wait until it is so."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not true(self):
            told = f"said {self.said}, last {self.events[-2:]}"
            assert time.monotonic() < deadline and self._process.poll() is None, told
            time.sleep(0.02)

    def end(self, number: int = signal.SIGINT) -> int:
        """End it by a signal, or wait for its own end; its exit code."""
        if number and self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(_WAIT_SECONDS)
        for reader in self._readers:
            reader.join()
        return code

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.end(0)


def cell(prompt: str, bad: bool, cached: int = 0) -> str:
    counts = {"prompt_tokens": 100, "cached_tokens": cached, "processed_tokens": 100 - cached}
    return json.dumps({"arm": "candidate", "case_id": prompt, **counts, "bad": bad}) + "\n"


def add(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(lines)


def requests(count: int) -> Callable[[Watch], bool]:
    """Whether so many requests were counted by the last counts that were printed."""

    def seen(watch: Watch) -> bool:
        counts = [event for event in list(watch.events) if event["event"] == "counts"]
        return bool(counts) and sum(each["requests"] for each in counts[-1]["series"].values()) >= count

    return seen


def test_a_log_that_comes_later_is_followed_and_alarms_as_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Watch(log, "--tell-every", "1") as watch:
        watch.until(lambda watch: len(watch.events) > 0)
        add(log, *(cell("a", True), *[cell("a", True, 99)] * 20, cell("b", True)))
        watch.until(requests(22))
        assert watch.alarms == []
        add(log, cell("c", True)[:-20])
        add(log, cell("c", True)[-20:])
        watch.until(lambda watch: len(watch.alarms) == 1)
        assert watch.alarms[0]["prefills"] == 3 and watch.alarms[0]["copies"] == 20
        assert watch.alarms[0]["repeated"] is False
        assert watch.end() == 130


def test_rotation_by_rename_and_by_truncation_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    add(log, cell("a", False))
    with Watch(log, "--tell-every", "1") as watch:
        watch.until(requests(1))
        log.rename(tmp_path / "log.1")
        add(tmp_path / "log.1", cell("b", False))
        add(log, cell("c", False))
        watch.until(requests(3))
        log.write_text("")
        time.sleep(1.5)  # a writer that fills it again at once is tests/unit/test_following.py's
        add(log, cell("d", False))
        watch.until(requests(4))
        assert watch.end(signal.SIGTERM) == 143
        assert watch.series()["candidate"]["prefills"] == 4
        assert any("truncated" in line for line in watch.said)


def test_without_an_outcome_it_ends_by_itself_after_twenty_requests(tmp_path: Path) -> None:
    log = tmp_path / "log"
    rows = [
        json.dumps({"arm": "candidate", "case_id": f"p{number}", "prompt_tokens": 5}) + "\n" for number in range(25)
    ]
    add(log, *rows[:19])
    with Watch(log, "--tell-every", "1") as watch:
        watch.until(requests(19))
        add(log, rows[19])
        assert watch.end(0) == 2
        assert any("has an outcome" in line for line in watch.said)


def test_an_unknown_content_is_waited_for_and_a_second_watch_of_one_state_is_refused(tmp_path: Path) -> None:
    log, state = tmp_path / "log", tmp_path / "state"
    add(log, "a banner of some program\n")
    with Watch(log, "--state", state, "--tell-every", "1") as watch:
        watch.until(lambda watch: any("nothing recognises its content yet" in line for line in watch.said))
        with Watch(log, "--state", state, "--once") as second:
            assert second.end(0) == 2
            assert any("another watch keeps it" in line for line in second.said)
        assert watch.end() == 130


def test_killed_at_any_instant_no_cell_is_counted_twice_or_lost_and_each_alarm_is_said(tmp_path: Path) -> None:
    log, state = tmp_path / "log", tmp_path / "state"
    source = random.Random(3)
    lines = []
    for number in range(1500):
        lines.append(cell(f"p{number}", source.random() < 0.25))
        lines += [cell(f"p{number}", source.random() < 0.25, 99)] * source.randrange(3)
    with Watch(write_all(tmp_path / "whole", lines), "--once") as whole:
        assert whole.end(0) == 10
    expected = {alarm["number"]: alarm["where"].rpartition(":")[2] for alarm in whole.alarms}
    assert len(expected) > 50

    stop = threading.Event()

    def write() -> None:
        for place in range(0, len(lines), 20):
            add(log, *lines[place : place + 20])
            if stop.wait(0.03):
                return

    writer = threading.Thread(target=write)
    writer.start()
    alarms: list[dict[str, Any]] = []
    kills = 0
    try:
        while writer.is_alive() or kills < 6:
            with Watch(log, "--state", state) as watch:
                time.sleep(0.5 + source.random() * 1.2)
                watch.end(signal.SIGKILL)
            kills += 1
            alarms += watch.alarms
    finally:
        stop.set()
        writer.join()
    with Watch(log, "--state", state, "--once") as last:
        assert last.end(0) in (0, 10)
    alarms += last.alarms
    assert last.series() == whole.series()
    said: dict[int, list[bool]] = {}
    for alarm in alarms:
        said.setdefault(alarm["number"], []).append(alarm["repeated"])
        assert alarm["where"].rpartition(":")[2] == expected[alarm["number"]]
    assert set(said) == set(expected)
    # Said again only where a kill struck between printing and noting it, and then marked.
    assert all(not any(repeats[:1]) or len(repeats) == 1 for repeats in said.values())
    assert all(all(repeats[1:]) for repeats in said.values())
    assert sum(len(repeats) - 1 for repeats in said.values()) <= kills


def write_all(path: Path, lines: list[str]) -> Path:
    add(path, *lines)
    return path


@pytest.fixture
def talking(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A real server that writes its log at the verbosity that tells prompt lengths."""
    server = LlamaServer((*SMALL, "--cache-ram", "0", "-lv", "4"), log_path=tmp_path / "server.log")
    with server:
        record(request, server)
        yield server


def ask(server: LlamaServer, prompt: str, tokens: int = 20) -> None:
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    httpx.post(f"{server.url}/v1/completions", json=body, timeout=120, trust_env=False).raise_for_status()


def test_a_real_servers_log_is_watched_live_its_copies_are_none_and_rotation_and_kills_cost_nothing(
    talking: LlamaServer, tmp_path: Path
) -> None:
    log, state = talking.log_path, tmp_path / "state"
    options = (log, "--state", state, "--slow-decode-ms", "0.001", "--tell-every", "1")
    prompts = [f"Story {number}: " + f"the {number} cat and dog sat on a mat, " * 6 for number in range(4)]
    with Watch(*options) as watch:
        ask(talking, prompts[0])
        for _ in range(4):
            ask(talking, prompts[0])
        watch.until(requests(5))
        (series,) = watch.series().values()
        assert (series["prefills"], series["bad_prefills"]) == (1, 1)
        assert watch.alarms == []  # five slow answers, one prefill
        watch.end(signal.SIGKILL)
    ask(talking, prompts[1])
    wait_for_releases(log, 6)
    copied = tmp_path / "server.log.1"
    copied.write_bytes(log.read_bytes())
    os.truncate(log, 0)  # as logrotate's copytruncate does; the server goes on writing
    with Watch(*options) as watch:
        watch.until(requests(6))
        ask(talking, prompts[2])
        watch.until(lambda watch: len(watch.alarms) == 1)
        assert watch.alarms[0]["prefills"] == 3 and watch.alarms[0]["requests"] == 7
        assert watch.end() == 130
        (series,) = watch.series().values()
        assert (series["requests"], series["prefills"], series["copies"] + series["others"]) == (7, 3, 4)


def test_at_its_default_verbosity_a_real_servers_log_says_what_is_missing(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = LlamaServer((*SMALL, "--cache-ram", "0"), log_path=tmp_path / "server.log")
    with server:
        record(request, server)
        ask(server, "One two three four five six", 4)
        wait_for_releases(server.log_path, 1)
    with Watch(server.log_path, "--once") as watch:
        assert watch.end(0) == 2
        assert any("llama-server's text log" in line and "--slow-decode-ms" in line for line in watch.said)
