"""Servers that do other work: cells beside it are void, nothing is sent while an earlier answer is computed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.core.cells import CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, Event
from tests.support.runs import Watch, bench, generations, measured, stored
from tests.support.simulated import SimulatedServer, start_simulated


def test_cells_beside_other_traffic_are_void_and_planned_again_with_a_new_nonce(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=["other-traffic=#6,10-11"]) as candidate:
        verdict = work.run(work.request(healthy.url, candidate.url)).verdict
    gate, _ = stored(tmp_path / "run.db")
    void = measured(gate, CANDIDATE, Status.INVALID)
    assert verdict.decision.decision == "promote"
    assert verdict.candidate.requests == 16
    assert verdict.candidate.invalid == 3
    assert [event.reason for event in void] == ["OtherTraffic"] * 3
    for event in void:
        again = gate.measured[event.cell_id + 1]
        assert (again.cell.case_id, again.seed, again.attempt) == (event.cell.case_id, event.seed, event.attempt + 1)
        assert again.nonce != event.nonce
        assert event.cell_id not in {scored.cell_id for scored in gate.scored}


def test_three_void_cells_in_a_row_are_an_error_and_no_hold(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=["other-traffic=@case"]) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json"))
    assert run.code == 1
    assert run.json["reason"] == "InvalidCells"
    assert "3 invalid cells in a row" in run.json["sentences"][0] and "OtherTraffic" in run.json["sentences"][0]
    assert run.json["invalid"] == {"baseline": 0, "candidate": 3}


def test_a_server_that_is_never_idle_is_not_even_probed_and_the_wait_is_said(
    healthy: SimulatedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = bench(tmp_path)
    times = {"idle_timeout_seconds": 0.3, "notice_after_seconds": 0.05}
    with start_simulated(seed=2, text_seed=9, fault=["always-busy=1"]) as candidate:
        with pytest.raises(CouldNotMeasure, match=r"candidate: .*did not become idle"):
            work.run(work.request(healthy.url, candidate.url, times=times))
        assert candidate.truth() == []
    assert capsys.readouterr().err.splitlines().count("candidate: the server is busy; waiting until it is idle") == 1


def test_a_server_that_is_never_idle_any_more_is_an_error(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)

    def busy(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 5:
            candidate.restart(fault=["always-busy=2"])

    with start_simulated(seed=2, text_seed=9) as candidate:
        request = work.request(healthy.url, candidate.url, times={"idle_timeout_seconds": 0.3})
        decision = work.run(request, Watch(acts=[busy])).verdict.decision
    gate, _ = stored(tmp_path / "run.db")
    assert (decision.reason, decision.measured) == ("InvalidCells", False)
    assert [e.reason for e in measured(gate, CANDIDATE, Status.INVALID)] == ["NotIdle"] * 3


def test_after_a_client_timeout_nothing_is_sent_to_either_server_until_it_rests(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput={"mode": "Report", "minOutputTokens": 8})
    slow = {"text_seed": 9, "slots": 1}
    with (
        start_simulated(seed=1, **slow) as baseline,
        start_simulated(seed=2, fault=["stall=5:2.5"], **slow) as candidate,
    ):
        request = work.request(baseline.url, candidate.url, times={"cell_timeout_seconds": 1.0})
        verdict = work.run(request).verdict
        lines = generations(baseline, candidate)
    gate, _ = stored(tmp_path / "run.db")
    (failed,) = measured(gate, CANDIDATE, Status.FAILED)
    assert (failed.reason, failed.cell.outcome()) == ("Timeout", True)
    assert (verdict.candidate.bad_for_promotion, verdict.candidate.decision_prefills) == (1, 25)
    given_up = [line for line in lines if line["delivered"] == "abandoned"]
    assert len(given_up) == 1
    for one, other in pairwise(lines):
        assert one["ended_at"] <= other["started_at"]
    later = [line for line in lines if line["prompt_sha256"] == given_up[0]["prompt_sha256"]]
    assert all(line["fresh"] for line in later)  # the retry trap: no cell rode on what the one given up had warmed


def test_a_server_that_asks_to_be_left_alone_is_waited_for(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, baselinePassPrefills=1)

    def ask(gate: Gate, event: Event) -> None:
        if isinstance(event, CellMeasured) and event.cell_id == 0:
            candidate.restart(fault=["http-429=#4-7"])

    with start_simulated(seed=2, text_seed=9) as candidate:
        verdict = work.run(work.request(healthy.url, candidate.url), Watch(acts=[ask])).verdict
    gate, _ = stored(tmp_path / "run.db")
    waits = measured(gate, CANDIDATE, Status.INVALID)
    assert verdict.decision.decision == "promote"
    assert [event.http_status for event in waits] == [429] * 4  # four in a row, and no Error
    times = [event.cell.started_at or 0.0 for event in waits]
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(times))  # as Retry-After asked
