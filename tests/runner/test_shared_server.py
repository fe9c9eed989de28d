"""Servers that others use meanwhile: exclusive runs stop and name the way out, shared ones judge quality."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.shape import Isolation, Shape
from prefillgate.replay.lane import COUNTERS_DISAGREE
from tests.support.llama import real_llama
from tests.support.runs import bench, generations, measured, probes, stored, write_set
from tests.support.simulated import SimulatedServer, start_simulated
from tests.support.traffic import other_traffic

SHARED = Shape(isolation=Isolation.SHARED)
FLAGS = [{"name": "empty", "checks": ["not_empty"]}]  # a few tokens are always cut


def test_more_than_half_of_ten_voided_cells_stop_an_exclusive_run_and_name_the_way_out(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, fault=["other-traffic=#4-5,7-8,10-11"]) as candidate:
        run = work.child(*work.arguments(None, candidate.url, "--store", "run.db", "--json"))
        resumed = work.child(*work.arguments(None, candidate.url, "--store", "run.db", "--json"))
    assert (run.code, run.json["reason"], run.json["measured"]) == (1, "OtherTraffic", False)
    assert "6 of 10 cells in a row on the candidate were voided by other traffic" in run.json["sentences"][0]
    assert "--isolation shared" in run.json["sentences"][0]
    assert (run.json["invalid"]["candidate"], run.json["arms"]["candidate"]["requests"]) == (6, 4)
    assert (resumed.code, resumed.json["decision"]) == (0, "promote")  # at a quiet hour the same command goes on


def test_five_of_ten_do_not(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, fault=["other-traffic=#4-5,7-8,10"]) as candidate:
        run = work.child(*work.arguments(None, candidate.url, "--store", "run.db", "--json"))
    assert (run.code, run.json["invalid"]["candidate"]) == (0, 5)


def test_real_traffic_stops_an_exclusive_run_and_not_a_shared_one(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate, other_traffic(candidate.url, clients=2) as traffic:
        exclusive = work.child(*work.arguments(healthy.url, candidate.url, "--store", "one.db", "--json"))
        before = traffic.answered
        shared = work.child(
            *work.arguments(healthy.url, candidate.url, "--store", "two.db", "--isolation", "shared", "--json")
        )
        assert traffic.answered > before
    assert exclusive.code == 1
    assert "--isolation shared" in exclusive.json["sentences"][0]
    told = shared.json
    assert (shared.code, told["decision"], told["shape"]["isolation"]) == (0, "promote", "shared")
    assert (told["throughput"]["state"], told["throughput"]["pairs"]) == ("NotCompared", [])
    assert told["throughput"]["sentence"] == "Decode speed was not compared: the servers served others meanwhile."
    assert (told["arms"]["candidate"]["prefills"], told["invalid"]) == (16, {"baseline": 0, "candidate": 0})
    gate, _ = stored(tmp_path / "two.db")
    assert {event.cell.counter_processed_tokens for event in measured(gate)} == {None}
    assert {event.cell.shared_server for event in measured(gate)} == {True}
    assert work.child("decide", "two.db", "--json").out == shared.out
    assert "isolation       shared: the servers served others meanwhile" in work.child("decide", "two.db").out.decode()
    html = work.child("report", "two.db", "--format", "html").out.decode()
    assert '<th scope="row">isolation</th><td>shared</td>' in html
    assert 'name="isolation" value="shared"' in work.child("report", "two.db", "--format", "junit").out.decode()
    assert "Isolation shared" in work.child("report", "two.db", "--format", "markdown").out.decode()


def test_totals_that_others_move_are_a_finding_of_an_exclusive_run_alone(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, fault=["other-traffic=#1-3"]) as candidate:
        exclusive = work.run(work.request(None, candidate.url)).verdict
    with start_simulated(seed=2, fault=["other-traffic=1"]) as candidate:
        alone = Shape(candidate_alone=True, isolation=Isolation.SHARED)
        shared = work.run(work.request(None, candidate.url, "shared.db", shape=alone)).verdict
    assert f"candidate: {COUNTERS_DISAGREE}" in exclusive.notes
    assert not [note for note in shared.notes if "counters" in note]
    assert (shared.decision.decision, shared.candidate.invalid) == ("promote", 0)


def test_a_shared_run_waits_for_no_idle_moment(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, fault=["always-busy=3"]) as candidate:
        alone = Shape(candidate_alone=True, isolation=Isolation.SHARED)
        verdict = work.run(work.request(None, candidate.url, shape=alone, times={"idle_timeout_seconds": 0.3})).verdict
    assert (verdict.decision.decision, verdict.candidate.invalid) == ("promote", 0)


def test_a_probe_whose_prompt_others_push_out_of_the_cache_is_tried_again_on_a_server_in_use(tmp_path: Path) -> None:
    work = bench(tmp_path)
    pushed_out = ["cached-zero=#2,5"]  # the repeats of the first two probes
    with start_simulated(seed=2, fault=pushed_out) as candidate:
        exclusive = work.run(work.request(None, candidate.url)).verdict
    with start_simulated(seed=2, fault=pushed_out) as candidate:
        alone = Shape(candidate_alone=True, isolation=Isolation.SHARED)
        shared = work.run(work.request(None, candidate.url, "shared.db", shape=alone)).verdict
        assert probes(candidate.truth()) == 9
    assert exclusive.decision.reason == "IndependenceUnknown"
    assert (shared.decision.decision, shared.decision.reason) == ("promote", "AcceptanceReached")


def test_where_no_response_tells_cached_tokens_independence_is_unknown_and_the_flag_is_named(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, dialect="openai", fault=["cached-absent=1"]) as candidate:
        run = work.child(*work.arguments(None, candidate.url, "--isolation", "shared", "--store", "run.db", "--json"))
        assert probes(candidate.truth()) == 15  # each was tried
    assert (run.code, run.json["reason"]) == (10, "IndependenceUnknown")
    assert "--enable-prompt-tokens-details" in run.json["sentences"][0]


def test_a_server_whose_one_witness_is_usage_is_judged_by_it(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, dialect="openai") as candidate, other_traffic(candidate.url):
        run = work.child(*work.arguments(None, candidate.url, "--isolation", "shared", "--store", "run.db", "--json"))
    assert (run.code, run.json["decision"]) == (0, "promote")
    assert run.json["arms"]["candidate"]["unknown"] == 0


def test_a_restart_is_seen_on_a_server_in_use_too(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, fault=["restart-every=12"]) as candidate:
        alone = Shape(candidate_alone=True, isolation=Isolation.SHARED)
        work.run(work.request(None, candidate.url, shape=alone))
    gate, _ = stored(tmp_path / "run.db")
    assert [event.reason for event in measured(gate, CANDIDATE, Status.INVALID)][:1] == ["EpochChanged"]
    assert len(gate.epochs[CANDIDATE]) > 1


def test_the_ab_check_of_two_passes_is_bad_input_on_servers_in_use(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, aaCheck="Enabled")
    run = work.child(*work.arguments(healthy.url, "http://127.0.0.1:9", "--isolation", "shared"))
    assert run.code == 2
    assert "needs a baseline that serves nobody else, and --isolation is shared" in run.said


def test_a_replicate_on_servers_in_use_still_allows_a_rollback(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})
    with start_simulated(seed=2, fault=["bad-rate=1"]) as candidate, other_traffic(candidate.url):
        verdict = work.run(work.request(healthy.url, candidate.url, shape=SHARED)).verdict
    assert (verdict.decision.reason, verdict.decision.rollback) == ("RegressionConfirmed", "Allowed")


def test_a_shared_run_beside_real_traffic_on_the_real_server(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    llama = real_llama(request, ("--metrics",))
    policy = {"marginPercent": 60, "acceptance": [4], "checks": [{"type": "NotEmpty"}], "flags": FLAGS}
    work = bench(tmp_path, cases=3, **policy)
    write_set(work.set_path, 3, words=8, max_tokens=4)
    with other_traffic(llama.url, max_tokens=2) as traffic:
        asked = work.arguments(None, llama.url, "--isolation", "shared", "--store", "run.db", "--json")
        run = work.child(*asked)
    assert traffic.answered > 4
    assert (run.code, run.json["decision"]) == (0, "promote"), run.said
    assert (run.json["arms"]["candidate"]["prefills"], run.json["invalid"]["candidate"]) == (4, 0)
    gate, _ = stored(tmp_path / "run.db")
    for event in measured(gate):
        assert (event.cell.cached_tokens, event.cell.processed_tokens) == (0, event.cell.prompt_tokens)


def test_two_models_of_one_server_never_overlap_and_each_swap_costs_a_probe_and_an_epoch(tmp_path: Path) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 0})
    with start_simulated(seed=1, model=["old", "new"], fault=["bad-rate=#30-60"]) as server:
        models = {"baseline_model": "old", "candidate_model": "new"}
        work.run(work.request(server.url, server.url, **models))
        lines = generations(server)
    gate, _ = stored(tmp_path / "run.db")
    for one, other in pairwise(lines):
        assert one["ended_at"] <= other["started_at"]
    arms = [event.cell.arm for event in gate.measured.values()]
    met = [CANDIDATE, *arms]  # the start met the baseline, then the candidate
    swaps = sum(1 for one, other in pairwise(met) if one != other)
    seen = gate.epochs[BASELINE] + gate.epochs[CANDIDATE]
    assert swaps >= 1
    assert len(seen) == 2 + swaps
    assert probes(lines) == 3 * len(seen)
    assert len({(epoch.arm, epoch.server_epoch) for epoch in seen}) == len(seen)
    runs = []
    for event in gate.measured.values():
        if not runs or runs[-1] != (event.cell.arm, event.cell.server_epoch):
            runs.append((event.cell.arm, event.cell.server_epoch))
    assert len(runs) == len(set(runs))  # no epoch is come back to
