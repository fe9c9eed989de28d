"""What stands between an alarm and its replicate, and what a candidate that is gone means."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.cli.running import execute
from prefillgate.core.cells import CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, Event, Purpose
from prefillgate.core.schedule import Separate
from prefillgate.replay.clock import SystemClock
from tests.support.runs import Bench, Watch, bench, ended, measured, start, stored
from tests.support.simulated import SimulatedServer, free_port, start_simulated

BAD = ["bad-rate=0.9"]


class NotedClock(SystemClock):
    """The machine's clock, which remembers how long it was asked to wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await super().sleep(seconds)


def restart_once(server: SimulatedServer, **options: Any) -> Any:
    """Restarts the server at the first look of a replicate that waits."""
    done: list[float] = []

    def act(gate: Gate, step: Separate) -> None:
        if not done:
            server.restart(**options)
            done.append(time.time())

    act.done = done  # type: ignore[attr-defined]
    return act


def verdict_after(work: Bench, baseline: str, candidate: SimulatedServer, watch: Watch) -> tuple[Any, Gate]:
    finished = work.run(work.request(baseline, candidate.url), watch)
    return finished.verdict, stored(work.folder / "run.db")[0]


def test_a_restarted_candidate_that_is_healthy_is_not_confirmed_and_collection_goes_on(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, budgetPrefills=40)
    with start_simulated(seed=2, text_seed=9, fault=["bad-first=6"]) as candidate:
        verdict, gate = verdict_after(
            work, healthy.url, candidate, Watch(waits=[restart_once(candidate, fault=["bad-rate=0"])])
        )
    (replicate,) = verdict.replicates
    assert (replicate.ending, replicate.separation, replicate.candidate_bad) == ("clean", "restart", 0)
    assert (verdict.decision.rollback, verdict.decision.decision) == ("Refused", "promote")
    assert verdict.candidate.bad_for_promotion == 2
    assert not [e for e in measured(gate) if e.purpose is Purpose.REPLICATE and e.cell.arm != CANDIDATE]


def test_both_servers_bad_after_the_restart_refuse_a_rollback(tmp_path: Path) -> None:
    work = bench(tmp_path, budgetPrefills=60)
    with (
        start_simulated(seed=1, text_seed=9) as baseline,
        start_simulated(seed=2, text_seed=9, fault=BAD) as candidate,
    ):
        again = [restart_once(candidate), restart_once(baseline, fault=BAD)]
        verdict, _ = verdict_after(work, baseline.url, candidate, Watch(waits=again))
    replicate = verdict.replicates[0]
    assert (replicate.ending, replicate.separation) == ("futile", "restart")
    assert (verdict.decision.decision, verdict.decision.rollback) == ("hold", "Refused")
    assert any(pair.baseline_bad and pair.candidate_bad for pair in replicate.pairs)


def test_the_candidates_epoch_is_looked_at_often_and_a_new_one_is_used_soon(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    clock = NotedClock()
    looks: list[int] = []

    def act(gate: Gate, step: Separate) -> None:
        looks.append(step.number)
        if len(looks) == 3:
            candidate.restart()

    with start_simulated(seed=2, text_seed=9, fault=BAD) as candidate:
        finished = asyncio.run(execute(work.request(healthy.url, candidate.url), Watch(waits=[act]), clock))
        finished.journal.close()
    (replicate,) = finished.verdict.replicates
    assert (replicate.separation, set(looks)) == ("restart", {1})
    pauses = [seconds for seconds in clock.waits if seconds >= 1]
    assert len(pauses) == len(looks) - 1 >= 2, "one between two looks, none after the look that saw the new life"
    assert set(pauses) == {2.0}


def test_a_run_without_a_terminal_waits_for_the_restart_and_ends_in_a_rollback(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=BAD) as candidate:
        process = start(work.arguments(healthy.url, candidate.url, "--store", "run.db"), tmp_path)
        while process.poll() is None:
            if (tmp_path / "run.db").exists() and stored(tmp_path / "run.db")[0].replicates:
                break
            time.sleep(0.1)
        candidate.restart()
        run = ended(process)
    assert run.code == 20, run.said
    (how,) = {r.separation for r in stored(tmp_path / "run.db")[0].replicates}
    assert how == "restart"
    for said in ("ALARM", "waits for a restarted candidate", "kept apart by restart", "ended confirmed"):
        assert said in run.said
    assert b"ROLLBACK" in run.out


def test_a_candidate_that_is_gone_for_good_is_unavailable_after_a_probe_that_worked(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)

    def kill(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and len(measured(gate, CANDIDATE)) == 3:
            candidate.kill()

    with start_simulated(seed=2, text_seed=9) as candidate:
        verdict, gate = verdict_after(work, healthy.url, candidate, Watch(acts=[kill]))
        again = work.child("decide", "run.db")
    assert (verdict.decision.decision, verdict.decision.reason) == ("rollback", "CandidateUnavailable")
    assert again.code == 20
    refused = measured(gate, CANDIDATE, Status.INVALID)
    assert [event.reason for event in refused[-3:]] == ["ConnectionRefused"] * 3
    assert len({event.nonce for event in refused[-3:]}) == 3


def test_a_candidate_that_dies_while_its_replicate_waits_is_unavailable_once_the_gap_has_passed(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 1})

    def kill(gate: Gate, step: Separate) -> None:
        candidate.kill()

    with start_simulated(seed=2, text_seed=9, fault=BAD) as candidate:
        verdict, _ = verdict_after(work, healthy.url, candidate, Watch(waits=[kill]))
    assert (verdict.decision.decision, verdict.decision.reason) == ("rollback", "CandidateUnavailable")


def test_a_candidate_that_is_restarted_between_cells_is_probed_again_and_none_of_its_cells_is_lost(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)

    def restart(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 6:
            candidate.restart()

    with start_simulated(seed=2, text_seed=9) as candidate:
        verdict, gate = verdict_after(work, healthy.url, candidate, Watch(acts=[restart]))
    assert verdict.decision.decision == "promote"
    assert len(gate.epochs[CANDIDATE]) == 2
    assert len({event.cell.server_epoch for event in measured(gate, CANDIDATE)}) == 2
    assert not measured(gate, CANDIDATE, Status.INVALID)
    assert any("2 lives of the server" in note for note in verdict.notes)


def test_a_restart_under_a_cell_voids_it_and_one_that_dies_under_it_is_bad(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=["restart-every=7"]) as candidate:
        verdict, gate = verdict_after(work, healthy.url, candidate, Watch())
    void = measured(gate, CANDIDATE, Status.INVALID)
    assert verdict.decision.decision == "promote"
    assert {event.reason for event in void} == {"EpochChanged"}

    def back(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell.status is Status.FAILED:
            candidate.restart(fault=["bad-rate=0"])

    with start_simulated(seed=2, text_seed=9, fault=["die-after=8"]) as candidate:
        request = work.request(healthy.url, candidate.url, "second.db")
        finished = work.run(request, Watch(acts=[back]))
    gate, _ = stored(tmp_path / "second.db")
    (failed,) = measured(gate, CANDIDATE, Status.FAILED)
    assert failed.cell.outcome() is True
    assert failed.reason == "ConnectionLost"
    assert finished.verdict.candidate.bad_for_promotion == 1


def test_a_server_that_loads_its_model_is_waited_for_and_not_taken_for_gone(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)

    def restart(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 6:
            candidate.restart(fault=["load-seconds=4"])

    with start_simulated(seed=2, text_seed=9) as candidate:
        verdict, gate = verdict_after(work, healthy.url, candidate, Watch(acts=[restart]))
    waits = measured(gate, CANDIDATE, Status.INVALID)
    assert verdict.decision.decision == "promote"
    assert {(event.reason, event.http_status) for event in waits} == {("Busy", 503)}


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_a_server_that_never_answered_a_probe_is_no_measurement(
    healthy: SimulatedServer, tmp_path: Path, arm: str
) -> None:
    work = bench(tmp_path)
    gone = f"http://127.0.0.1:{free_port()}"
    urls = {"baseline": healthy.url, "candidate": healthy.url, arm: gone}
    with pytest.raises(CouldNotMeasure, match=f"{arm}: .*ConnectionRefused"):
        work.run(work.request(urls["baseline"], urls["candidate"]))
    assert not (tmp_path / "run.db").exists()


def test_a_server_that_answers_but_not_the_probe_is_no_measurement(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=["http-500=1"]) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url, "--store", "run.db"))
    assert run.code == 1
    assert "candidate: the probe was not answered" in run.said
    assert not stored(tmp_path / "run.db")[0].measured
    assert run.lines[-1].startswith("prefillgate run ")
