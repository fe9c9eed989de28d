"""A run that is killed, interrupted or out of time goes on with the same command; nothing is lost or counted twice."""

from __future__ import annotations

import random
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, DeadlinePassed, Event
from tests.support.runs import Bench, Ended, Watch, bench, ended, generations, measured, probes, start, stored
from tests.support.simulated import SimulatedServer, start_simulated

KILLS = 8


def until_cells(store: Path, cells: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the store holds that many cells, or the child ended."""
    while process.poll() is None:
        if store.exists() and _stored_cells(store) >= cells:
            return
        time.sleep(0.01)


def _stored_cells(store: Path) -> int:
    import sqlite3

    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            (count,) = connection.execute("SELECT count(*) FROM events WHERE cell_id IS NOT NULL").fetchone()
    except sqlite3.Error:
        return 0
    finally:
        if "connection" in locals():
            connection.close()
    return int(count)


def test_a_run_killed_at_any_instant_loses_no_cell_and_counts_none_twice(tmp_path: Path) -> None:
    work = bench(tmp_path, baselinePassPrefills=5)
    chosen = random.Random(20261129)
    options: dict[str, Any] = {"text_seed": 9, "time_scale": 0.02}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options) as candidate:
        command = work.arguments(baseline.url, candidate.url, "--store", "run.db", "--seed", "5", "--quiet")
        seen: list[dict[int, CellMeasured]] = []
        for kill in range(KILLS):
            process = start(command, tmp_path)
            until_cells(tmp_path / "run.db", 2 * kill + 1, process)
            time.sleep(chosen.random() * 0.15)
            process.kill()
            process.communicate()
            seen.append(dict(stored(tmp_path / "run.db")[0].measured))
        last = ended(start([*command, "--json"], tmp_path))
        assert last.code == 0, last.said
        lines = generations(baseline, candidate)
    gate, _ = stored(tmp_path / "run.db")
    for before in seen:
        assert all(gate.measured[cell_id] == event for cell_id, event in before.items())  # what was there is there
    assert list(gate.measured) == list(range(len(gate.measured)))
    told = [event.cell.request_id for event in measured(gate, status=Status.OK)]
    assert len(set(told)) == len(told)
    assert {line["id"] for line in lines} >= set(told)
    unknown = [line for line in lines if line["id"] not in told and line["output_tokens"] != 2]
    assert 0 <= len(unknown) <= KILLS  # at most the one each kill struck
    assert len(lines) == len(told) + len(unknown) + probes(lines)
    nonces = [event.nonce for event in gate.measured.values()]
    pairs = {(event.purpose, event.pair, event.cell.case_id, event.round) for event in gate.measured.values()}
    assert len(set(nonces)) == len(pairs)
    assert gate.session >= 1
    assert last.json["arms"]["candidate"]["decision_prefills"] == 16


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_ends_with_the_command_that_resumes_it(
    healthy: SimulatedServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder = tmp_path / "a folder's $HOME"
    folder.mkdir()
    work = bench(folder)
    with start_simulated(seed=2, text_seed=9, time_scale=0.02) as candidate:
        process = start(work.arguments(healthy.url, candidate.url, "--store", "my run's.db"), folder)
        until_cells(folder / "my run's.db", 4, process)
        process.send_signal(number)
        stopped = ended(process)
        assert stopped.code == code
        assert b"Traceback" not in stopped.err
        before = stored(folder / "my run's.db")[0]
        assert before.measured
        program, *arguments = shlex.split(stopped.lines[-1])
        assert program == "prefillgate"
        resumed = work.child(*arguments)
    assert resumed.code == 0, resumed.said
    gate, _ = stored(folder / "my run's.db")
    assert all(gate.measured[cell_id] == event for cell_id, event in before.measured.items())
    assert gate.session == 1
    assert f"resumed: {len(before.measured)} cells stand in the store" in resumed.said


def test_the_resume_command_keeps_every_option_that_was_given(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, time_scale=0.02, build_info="b2") as candidate:
        given = ["--declare", "build=b1..b 2", "--cell-timeout", "30", "--report", "the report.html", "--json"]
        process = start(work.arguments(healthy.url, candidate.url, *given), tmp_path)
        stores: list[Path] = []
        while process.poll() is None and not stores:
            stores = list((tmp_path / ".prefillgate").glob("set-*.db")) if (tmp_path / ".prefillgate").exists() else []
            time.sleep(0.01)
        until_cells(stores[0], 3, process)
        process.terminate()
        stopped = ended(process)
        resumed = work.child(*shlex.split(stopped.lines[-1])[1:])
    assert stopped.code == 143
    assert stopped.lines[0] == f"store: {stores[0].relative_to(tmp_path)}"  # printed first
    assert (resumed.code, resumed.json["decision"]) == (0, "promote")
    assert (tmp_path / "the report.html").exists()


def test_two_runs_on_one_store_are_refused(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    second: list[Ended] = []

    def again(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 3:
            second.append(work.child(*work.arguments(healthy.url, candidate.url, "--store", "run.db")))

    with start_simulated(seed=2, text_seed=9) as candidate:
        finished = work.run(work.request(healthy.url, candidate.url), Watch(acts=[again]))
    assert finished.verdict.decision.decision == "promote"
    assert second[0].code == 2
    assert "another" in second[0].said.lower() and "run.db" in second[0].said
    assert "resumes" not in second[0].said


def test_a_run_that_ended_is_told_again_without_asking_any_server(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json")
        first = work.child(*command)
        asked = len(candidate.truth())
        second = work.child(*command)
        assert len(candidate.truth()) == asked
        candidate.kill()
        third = work.child(*command)
    assert (first.code, second.code, third.code) == (0, 0, 0)
    assert first.out == second.out == third.out


def test_out_of_time_is_a_hold_and_a_resumed_run_gets_a_new_deadline(healthy: SimulatedServer, tmp_path: Path) -> None:
    work: Bench = bench(tmp_path, deadlineSeconds=6)
    passed: list[Event] = []

    def note(gate: Gate, event: Event) -> None:
        if isinstance(event, DeadlinePassed):
            passed.append(event)

    with start_simulated(seed=2, text_seed=9, time_scale=0.6) as candidate:
        request = work.request(healthy.url, candidate.url)
        first = work.run(request, Watch(acts=[note])).verdict.decision
        cells = len(stored(tmp_path / "run.db")[0].measured)
        candidate.restart(time_scale=0)
        second = first
        for _ in range(30):  # each time it comes as far as its own deadline lets it
            second = work.run(request).verdict.decision
            if second.reason != "Deadline":
                break
    assert (first.decision, first.reason, len(passed)) == ("hold", "Deadline", 1)
    assert (second.decision, second.reason) == ("promote", "AcceptanceReached")
    gate, _ = stored(tmp_path / "run.db")
    assert 2 < cells < len(gate.measured)


def test_a_deadline_ends_the_wait_for_separation(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, deadlineSeconds=3, replicate={"gapSeconds": 86_400})
    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=0.9"]) as candidate:
        finished = work.run(work.request(healthy.url, candidate.url))
    assert finished.verdict.decision.reason == "Deadline"
    assert [replicate.ending for replicate in finished.verdict.replicates] == ["aborted"]


def test_a_run_begun_with_another_set_policy_or_server_is_not_this_one(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, budgetPrefills=16)
    with start_simulated(seed=2, text_seed=9) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db")
        assert work.child(*command).code == 10
        before = (tmp_path / "run.db").read_bytes()
        other = work.child(*work.arguments(healthy.url, "http://127.0.0.1:9", "--store", "run.db"))
        seeded = work.child(*command, "--seed", "1")
        strict = work.child(*command, "--policy", "strict")
        written = work.set_path.read_text(encoding="utf-8")
        work.set_path.write_text(written.replace("case-0 ", "case-zero "), encoding="utf-8")
        changed = work.child(*command)
    assert [run.code for run in (other, seeded, strict, changed)] == [2, 2, 2, 2]
    assert "candidate: the store was begun with" in other.said and "this store is of another run" in other.said
    assert "seed: the store was begun with" in seeded.said
    assert "policy: the store was begun with test" in strict.said
    assert "replay set: the store was begun with" in changed.said and "it changed since the run began" in changed.said
    assert (tmp_path / "run.db").read_bytes() == before
    assert not any("resumes" in run.said for run in (other, seeded, strict, changed))


def test_a_store_that_cannot_be_written_any_more_ends_the_run_and_keeps_what_it_holds(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    import sqlite3

    from prefillgate.cli.running import RunBroken

    work = bench(tmp_path)

    def spoil(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 5:
            with sqlite3.connect(tmp_path / "run.db") as connection:
                connection.execute("UPDATE meta SET value = '0:00' WHERE key = 'tail'")
            connection.close()

    with (
        start_simulated(seed=2, text_seed=9) as candidate,
        pytest.raises(RunBroken, match="changed from outside"),
    ):
        work.run(work.request(healthy.url, candidate.url), Watch(acts=[spoil]))
    assert _stored_cells(tmp_path / "run.db") == 6


def test_a_store_that_is_deleted_under_a_run_ends_it_at_the_next_cell(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    options: dict[str, Any] = {"text_seed": 9, "time_scale": 0.02}
    with start_simulated(seed=2, **options) as candidate:
        command = work.arguments(healthy.url, candidate.url, "--store", "run.db", "--quiet")
        process = start(command, tmp_path)
        until_cells(tmp_path / "run.db", 3, process)
        for each in tmp_path.glob("run.db*"):
            each.unlink()
        broken = ended(process)
    assert broken.code == 1, broken.said
    assert "run.db: it was deleted or moved away while it was open. Nothing more goes into the lost file" in broken.said
    assert list(tmp_path.glob("run.db")) == []
