"""One server at a time on one place: windows, swaps by a command, a person or anybody, and swaps that go wrong."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.running import RunBroken
from prefillgate.cli.swap_person import PersonHand
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, Event, Purpose, WindowOpened
from prefillgate.core.shape import Shape
from prefillgate.hosts.llama_server import LlamaServer
from prefillgate.replay import swapping
from tests.runner.test_interruptions import until_cells
from tests.support.llama import SMALL, record
from tests.support.one_place import OnePlace, put_up, simulated_place
from tests.support.runs import Bench, Watch, bench, ended, measured, start, stored
from tests.support.simulated import free_port, start_simulated

SPEED = {"minOutputTokens": 32}
SEQUENTIAL = Shape(sequential=True)
TOLD = ("--build-info", "b2")  # a candidate that can be told from the baseline


def run(work: Bench, place: OnePlace, watch: Watch | None = None, **more: Any) -> tuple[Any, Gate]:
    """A run in this process whose servers the swap command swaps."""
    request = work.request(place.url, place.url, shape=SEQUENTIAL, swap_command=place.command, **more)
    verdict = work.run(request, watch).verdict
    return verdict, stored(work.folder / "run.db")[0]


def arguments(work: Bench, place: OnePlace, *more: str) -> list[str]:
    """The same as a command line."""
    return work.arguments(place.url, place.url, "--store", "run.db", "--sequential", *more)


def command_of(place: OnePlace) -> list[str]:
    return ["--swap-command", shlex.join(place.command)]


def true_answers(folder: Path, arm: str) -> set[str]:
    """Ids of what that arm's own server really answered, probes left out."""
    path = folder / f"{arm}.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return {line["id"] for line in lines if line["output_tokens"] != 2}


def never_the_wrong_arm(folder: Path, gate: Gate) -> None:
    """Every scored cell was answered by its own arm's server."""
    for arm in (BASELINE, CANDIDATE):
        told = {event.cell.request_id for event in measured(gate, arm, Status.OK)}
        assert told <= true_answers(folder, arm)
        assert told or arm == CANDIDATE


# Whole runs


def test_windows_of_both_arms_promote_in_one_place(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput=SPEED)
    with put_up(simulated_place(tmp_path)) as place:
        verdict, gate = run(work, place)
    assert (verdict.decision.decision, verdict.decision.reason) == ("promote", "AcceptanceReached")
    assert verdict.throughput.state == "NotWorse" and verdict.throughput.pairs_used == 6
    assert verdict.throughput.prompts_in_pairs == 5
    never_the_wrong_arm(tmp_path, gate)
    swaps = len(place.asked) - 1  # the first makes sure of the baseline
    assert swaps in (11, 12) and gate.windows.swaps == swaps
    assert f"one server at a time: windows took turns, {swaps} swaps of servers" in verdict.notes
    assert all(line.split()[0] == line.split()[1] for line in place.asked)  # last argument and variable
    lives = {(e.cell.server_epoch, e.cell.arm, e.pair) for e in measured(gate) if e.purpose is Purpose.WINDOW}
    assert len({life for life, _, _ in lives}) == len(lives) == 12


def test_a_real_regression_is_confirmed_in_windows_and_a_bad_life_is_not(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path, (), ("--fault", "bad-rate=0.9", "--seed", "2"))) as place:
        verdict, gate = run(work, place)
    assert (verdict.decision.decision, verdict.decision.reason) == ("rollback", "RegressionConfirmed")
    (replicate,) = verdict.replicates
    assert (replicate.ending, replicate.separation, len(replicate.pairs)) == ("confirmed", "restart", 5)
    never_the_wrong_arm(tmp_path, gate)
    lives = {e.cell.server_epoch for e in measured(gate) if e.purpose is Purpose.REPLICATE}
    assert len(lives) == 10
    assert not lives & {e.cell.server_epoch for e in measured(gate) if e.purpose is Purpose.SCREEN}


def test_one_bad_life_of_the_candidate_is_answered_by_a_clean_window(tmp_path: Path) -> None:
    work = bench(tmp_path, budgetPrefills=60)
    good = simulated_place(tmp_path)
    bad = simulated_place(tmp_path, (), ("--fault", "bad-first=6"))
    mended: list[int] = []

    def mend(gate: Gate, event: Event) -> None:
        if gate.replicates and not mended:
            mended.append(1)
            good.pid_file, good._told["commands"] = bad.pid_file, _on_port(good, bad)
            good.be("works")

    with put_up(bad) as place:
        verdict, _ = run(work, place, Watch(acts=[mend]))
    assert verdict.decision.decision == "promote"
    assert [(r.ending, r.candidate_units) for r in verdict.replicates] == [("clean", 8)]
    assert place.asked[-1] == "candidate candidate" and len(place.asked) == 3  # no more swaps than that one


def _on_port(good: OnePlace, bad: OnePlace) -> dict[str, list[str]]:
    """The good servers' commands on the bad ones' port."""
    port = bad.url.rpartition(":")[2]
    return {
        arm: [port if word == good.url.rpartition(":")[2] else word for word in words]
        for arm, words in good._told["commands"].items()
    }


def test_real_servers_take_turns_on_one_port(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    port = free_port()
    words = [sys.executable, "-m", "prefillgate.hosts.llama_server", *SMALL, "--cache-ram", "0", "--port", str(port)]
    commands = {BASELINE: words, CANDIDATE: [*words, "-b", "256"]}
    url = f"http://127.0.0.1:{port}"
    work = bench(
        tmp_path,
        cases=2,
        acceptance=[3],
        marginPercent=90,
        budgetPrefills=20,
        baselinePassPrefills=1,
    )
    write = (tmp_path / "set.jsonl").read_text(encoding="utf-8").replace('"max_tokens": 200', '"max_tokens": 4')
    (tmp_path / "set.jsonl").write_text(write, encoding="utf-8")
    with put_up(OnePlace(tmp_path, commands, f"{url}/health", url)) as place:
        record(request, LlamaServer(SMALL, port=port))
        verdict, gate = run(work, place, times={"cell_timeout_seconds": 60.0})
    assert verdict.decision.decision == "promote"
    assert place.asked == ["baseline baseline", "candidate candidate"]
    epochs = {arm: {e.cell.server_epoch for e in measured(gate, arm)} for arm in (BASELINE, CANDIDATE)}
    assert [len(found) for found in epochs.values()] == [1, 1] and not epochs[BASELINE] & epochs[CANDIDATE]


# Swaps that go wrong


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old life that still answers after a swap is not waited for half a minute."""
    monkeypatch.setattr(swapping, "OLD_LIFE_SECONDS", 1.0)


def spoiling(place: OnePlace, mood: str, after: int = 1) -> Watch:
    """From the window of that number on, swaps go wrong in that way."""
    opened: list[Event] = []

    def spoil(gate: Gate, event: Event) -> None:
        if isinstance(event, WindowOpened):
            opened.append(event)
            if len(opened) == after:
                place.be(mood)

    return Watch(acts=[spoil])


@pytest.mark.parametrize(
    ("mood", "why"),
    [
        ("fails", r"the swap command ended with code 3, asked for the candidate: no such .*unit: model-server"),
        ("nothing", r"the servers were not swapped: what answers is still the baseline: the life \S+ was measured"),
    ],
)
def test_a_swap_that_did_not_happen_ends_the_run_and_the_same_command_goes_on(
    soon: None, tmp_path: Path, mood: str, why: str
) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path)) as place:
        with pytest.raises(RunBroken, match=why) as broken:
            run(work, place, spoiling(place, mood))
        before = stored(tmp_path / "run.db")[0]
        place.be("sleeps")
        late = r"the swap command did not end within 1 s, asked for the candidate; it was ended, what it st"
        with pytest.raises(RunBroken, match=late):
            run(work, place, wait_ready_seconds=1.0)
        place.be("works")
        verdict, gate = run(work, place)
    assert "\x1b" not in str(broken.value)
    assert broken.value.exit_code == 1
    assert [event.cell.arm for event in before.measured.values()] == [BASELINE, BASELINE]
    assert verdict.decision.decision == "promote"
    assert all(gate.measured[cell_id] == event for cell_id, event in before.measured.items())
    never_the_wrong_arm(tmp_path, gate)


def test_the_wrong_arm_is_refused_once_both_profiles_are_known(soon: None, tmp_path: Path) -> None:
    work = bench(tmp_path, throughput=SPEED)
    with put_up(simulated_place(tmp_path, (), ("--ctx-size", "4096"))) as place:
        with pytest.raises(RunBroken, match=r"the servers were not swapped: what answers looks like the"):
            run(work, place, spoiling(place, "wrong", after=3))
        gate = stored(tmp_path / "run.db")[0]
    assert {event.cell.arm for event in gate.measured.values()} == {BASELINE, CANDIDATE}
    never_the_wrong_arm(tmp_path, gate)


def test_a_server_that_is_swapped_in_the_middle_of_a_window_is_not_measured_as_the_other(tmp_path: Path) -> None:
    work = bench(tmp_path)

    def meddle(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell.arm == CANDIDATE and len(measured(gate, CANDIDATE)) == 3:
            place.put_up(BASELINE)

    with put_up(simulated_place(tmp_path, (), ("--ctx-size", "4096"))) as place:
        with pytest.raises(RunBroken, match="the wrong server is up: what answers looks like the baseline"):
            run(work, place, Watch(acts=[meddle]))
        gate = stored(tmp_path / "run.db")[0]
        verdict, after = run(work, place)
    assert len(measured(gate, CANDIDATE, Status.OK)) == 3
    assert verdict.decision.decision == "promote"
    never_the_wrong_arm(tmp_path, after)


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path)) as place:
        ending = work.child(*arguments(work, place, "--swap-command", "/no/such/command now"))
    assert ending.code == 2
    assert "--swap-command: '/no/such/command' is no program that can be started" in ending.said
    assert "Traceback" not in ending.said
    assert not (tmp_path / "run.db").exists()


# Killed, interrupted, out of time


def test_a_run_killed_in_any_window_goes_on_in_that_window(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput=SPEED)
    with put_up(simulated_place(tmp_path, (), TOLD)) as place:
        given = arguments(work, place, *command_of(place), "--declare", "build", "--quiet")
        left = []
        for cells in (1, 6, 17):
            process = start(given, tmp_path)
            until_cells(tmp_path / "run.db", cells, process)
            process.kill()
            process.communicate()
            left.append(stored(tmp_path / "run.db")[0])
        last = ended(start([*given, "--json"], tmp_path))
    assert last.code == 0, last.said
    gate = stored(tmp_path / "run.db")[0]
    for before in left:
        assert all(gate.measured[cell_id] == event for cell_id, event in before.measured.items())
    never_the_wrong_arm(tmp_path, gate)
    told = [event.cell.request_id for event in measured(gate, status=Status.OK)]
    assert len(set(told)) == len(told)
    assert last.json["throughput"]["pairs_used"] == 6
    places = [(e.pair, e.cell.arm, e.round, e.cell.case_id) for e in measured(gate) if e.purpose is Purpose.WINDOW]
    warm_ups = len({(e.cell.arm, e.cell.server_epoch) for e in measured(gate)})
    assert len(places) - len(set(places)) <= warm_ups  # only what warmed a life up was run again


def test_interrupted_while_it_waits_for_a_swap_it_prints_how_to_go_on(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path)) as place:
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = start(arguments(work, place), tmp_path)
            assert process.stderr is not None
            said = _until(process, b"waiting for a swap")
            process.send_signal(number)
            stopped = ended(process)
            assert stopped.code == code, said + stopped.err
            assert stopped.lines[-1].startswith("prefillgate run ") and "--sequential" in stopped.lines[-1]
            assert b"Traceback" not in stopped.err


def _until(process: subprocess.Popen[bytes], word: bytes) -> bytes:
    """What a child says up to that word."""
    assert process.stderr is not None
    said = b""
    while word not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def test_a_deadline_ends_the_wait_for_a_swap(tmp_path: Path) -> None:
    work = bench(tmp_path, deadlineSeconds=6)
    with put_up(simulated_place(tmp_path)) as place:
        waited = work.run(work.request(place.url, place.url, shape=SEQUENTIAL)).verdict
        place.be("sleeps")
        slow, _ = run(work, place)
    assert [v.decision.reason for v in (waited, slow)] == ["Deadline", "Deadline"]


# Swapped by hand


def test_without_a_terminal_it_waits_says_so_and_goes_on_when_the_other_server_answers(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path)) as place:
        process = start(arguments(work, place, "--json"), tmp_path)
        said = _until(process, b"waiting for a swap")
        time.sleep(1.5)
        assert process.poll() is None  # the baseline still answers, and is not taken for the candidate
        place.put_up(CANDIDATE)
        finished = ended(process)
    assert finished.code == 0, finished.said
    assert f"waiting for a swap: put up the candidate's server alone at {place.url}".encode() in said
    gate = stored(tmp_path / "run.db")[0]
    never_the_wrong_arm(tmp_path, gate)
    notes = finished.json["notes"]
    assert notes[0].startswith("taken for the baseline on the word of whoever began the run")  # a screen shows two
    assert notes[1].startswith("taken for the candidate on the word of a restart that was seen")


def test_servers_of_one_address_each_are_told_by_their_answer_and_need_no_word(tmp_path: Path) -> None:
    work = bench(tmp_path)
    started: list[Any] = []
    candidate_port = free_port()

    def swap(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and len(gate.measured) == 2:
            baseline.kill()
            started.append(start_simulated(seed=2, text_seed=9, port=candidate_port))

    with start_simulated(seed=1, text_seed=9) as baseline:
        request = work.request(baseline.url, f"http://127.0.0.1:{candidate_port}", shape=SEQUENTIAL)
        try:
            verdict = work.run(request, Watch(acts=[swap])).verdict
        finally:
            for server in started:
                server.stop()
    assert verdict.decision.decision == "promote"
    assert not any("word" in note for note in verdict.notes)


class Terminal:
    """A child at a terminal of its own; `answer` acts whenever it is asked to swap."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.said = b""
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prefillgate", *words],
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)

    def go(self, answer: Callable[[int], None]) -> int:
        """To its end; the exit code."""
        asked = 0
        guard = threading.Timer(120, self.process.kill)
        guard.start()
        with suppress(OSError):  # a terminal whose other end is closed reads as an error
            while found := os.read(self._ours, 4096):
                self.said += found
                while self.said.count(b"press Enter") > asked:
                    asked += 1
                    answer(asked)
        guard.cancel()
        os.close(self._ours)
        return self.process.wait()

    def press_enter(self) -> None:
        os.write(self._ours, b"\n")


def test_a_person_at_the_terminal_is_asked_and_a_swap_that_did_not_happen_is_asked_for_again(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path)) as place:
        terminal = Terminal(arguments(work, place), tmp_path)

        def answer(asked: int) -> None:
            if asked == 3:
                place.put_up(CANDIDATE)
            terminal.press_enter()

        code = terminal.go(answer)
    said = terminal.said.decode()
    assert code == 0, said
    assert said.count("SWAP:") == 3
    assert f"SWAP: put up the baseline's server alone at {place.url}; then press Enter" in said
    assert f"SWAP: put up the candidate's server alone at {place.url}; then press Enter" in said
    assert "SWAP: what answers is still the baseline" in said
    never_the_wrong_arm(tmp_path, stored(tmp_path / "run.db")[0])


def test_a_person_who_interrupts_the_question_gets_the_command_that_goes_on(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path)) as place:
        terminal = Terminal(arguments(work, place), tmp_path)
        code = terminal.go(lambda asked: terminal.process.send_signal(signal.SIGINT))
    assert code == 130, terminal.said
    assert "prefillgate run " in terminal.said.decode().splitlines()[-1]
    assert PersonHand(None).how == "person"


# What is asked for


def test_another_shape_of_run_is_another_run(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with put_up(simulated_place(tmp_path)) as place:
        first = work.child(*arguments(work, place, *command_of(place)))
        other = work.child(*work.arguments(place.url, "http://127.0.0.1:9", "--store", "run.db"))
    assert first.code == 0, first.said
    assert other.code == 2
