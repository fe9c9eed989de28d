"""Runs that end in promote, hold and rollback; what the store says of them is what the servers know to be true."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellChecked, Event, Purpose, SeparationKept
from tests.support.runs import Watch, bench, generations, measured, probes, stored
from tests.support.simulated import SimulatedServer, start_simulated

GATE_FIELDS = {"model", "n", "seed", "stream", "stream_options", "cache_prompt"}


def assert_true(gate: Gate, arm: str, server: SimulatedServer) -> None:
    """Every scored cell of the arm says what its server knows: counts, and a planted bad answer is a bad cell."""
    truth = {line["id"]: line for line in server.truth() if line["id"] is not None}
    scored = [event.cell for event in gate.scored if event.cell.arm == arm]
    assert scored
    for cell in scored:
        line = truth[str(cell.request_id)]
        told = (cell.prompt_tokens, cell.cached_tokens, cell.processed_tokens, cell.output_tokens)
        assert told == tuple(line[f"{name}_tokens"] for name in ("prompt", "cached", "processed", "output"))
        assert cell.bad is (line["outcome"] == "bad")
        assert cell.counter_processed_tokens == line["processed_tokens"]
        assert cell.server_epoch is not None and cell.server_epoch in line["epoch"]


def test_a_healthy_candidate_is_promoted_on_counts_that_are_true(tmp_path: Path) -> None:
    speed = {"mode": "Require", "minOutputTokens": 8}
    work = bench(tmp_path, throughput=speed)
    options = {"text_seed": 9, "time_scale": 0.01}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
        gate, texts = stored(tmp_path / "run.db")
        assert finished.verdict.decision.decision == "promote"
        assert finished.verdict.candidate.bad_for_promotion == 0
        assert finished.verdict.candidate.decision_prefills == 16
        assert_true(gate, BASELINE, baseline)
        assert_true(gate, CANDIDATE, candidate)
        lines = generations(baseline, candidate)
    assert len(lines) == len(gate.measured) + probes(lines)  # nothing was asked for twice
    for one, other in pairwise(lines):
        assert one["ended_at"] <= other["started_at"]  # never two in flight, over both servers

    pairs: dict[tuple[Any, ...], dict[str, int | None]] = {}
    for event in gate.measured.values():
        if event.purpose is Purpose.PAIR:
            pairs.setdefault((event.pair, event.cell.case_id), {})[event.cell.arm] = event.seed
    assert len(pairs) >= 6
    assert all(seeds[BASELINE] == seeds[CANDIDATE] for seeds in pairs.values() if set(seeds) == set(ARMS))
    seeds_of_case: dict[str, list[int | None]] = {}
    for event in measured(gate, CANDIDATE):
        seeds_of_case.setdefault(event.cell.case_id, []).append(event.seed)
    assert all(len(seeds) > 1 and len(set(seeds)) == len(seeds) for seeds in seeds_of_case.values())

    bodies = {case.case_id: case.body for case in work.request("http://b", "http://c").replay_set.cases}
    for cell_id, said in texts.items():
        sent, written = json.loads(said.request)["body"], bodies[gate.measured[cell_id].cell.case_id]
        changed = {name for name in {*sent, *written} if sent.get(name) != written.get(name)}
        assert changed <= GATE_FIELDS
        assert (sent["n"], sent["cache_prompt"], sent["seed"]) == (1, False, gate.measured[cell_id].seed)


def test_a_bad_candidate_is_rolled_back_after_a_restart_and_every_bad_cell_is_a_planted_one(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=0.9"]) as candidate:
        watch = Watch(waits=[_once(candidate.restart)])
        finished = work.run(work.request(healthy.url, candidate.url), watch)
        gate, _ = stored(tmp_path / "run.db")
        assert_true(gate, CANDIDATE, candidate)
        assert_true(gate, BASELINE, healthy)
    decision = finished.verdict.decision
    assert (decision.decision, decision.reason) == ("rollback", "RegressionConfirmed")
    (replicate,) = finished.verdict.replicates
    assert (replicate.ending, replicate.separation) == ("confirmed", "restart")
    halves = [event for event in gate.measured.values() if event.purpose is Purpose.REPLICATE]
    trigger = [event for event in gate.measured.values() if event.purpose is not Purpose.REPLICATE]
    assert {e.nonce for e in halves}.isdisjoint(e.nonce for e in trigger)
    assert {e.seed for e in halves}.isdisjoint(e.seed for e in trigger)
    for pair in range(replicate.candidate_units):
        assert len({event.seed for event in halves if event.pair == pair}) == 1


def _once(act: Any) -> Any:
    done: list[bool] = []

    def once(*_: Any) -> None:
        if not done:
            done.append(True)
            act()

    return once


@pytest.mark.parametrize(
    ("faults", "policy", "reason"),
    [
        (["bad-rate=0.5"], {"replicate": {"gapSeconds": 0, "maxAttempts": 0}}, "RegressionNotConfirmed"),
        (["bad-first=5"], {"budgetPrefills": 16, "replicate": {"gapSeconds": 0}}, "BudgetSpent"),
        (["bad-rate=#8,13"], {"budgetPrefills": 18, "replicate": {"gapSeconds": 0}}, "BudgetSpent"),
        (["ignore-cache-prompt=@case"], {}, "KnobNotHonoured"),
        (["ignore-cache-prompt=1"], {}, "KnobNotHonoured"),
        (["decode-slowdown=1.5"], {"throughput": {"mode": "Require", "minOutputTokens": 8}}, "Slower"),
        (
            ["decode-slowdown=1.04"],
            {"throughput": {"mode": "Require", "minOutputTokens": 8, "maxPairs": 6}},
            "ThroughputOpen",
        ),
        (["cached-absent=1", "timings-absent=1"], {}, "IndependenceUnknown"),
        (["foreign-text=#9"], {}, None),
    ],
)
def test_each_reason_to_hold_is_reached(
    healthy: SimulatedServer, tmp_path: Path, faults: list[str], policy: dict[str, Any], reason: str | None
) -> None:
    work = bench(tmp_path, **policy)
    with start_simulated(seed=2, text_seed=9, fault=faults) as candidate:
        decision = work.run(work.request(healthy.url, candidate.url)).verdict.decision
    if reason is None:
        assert decision.decision == "promote"  # without canaries nobody can tell another conversation's text
        return
    assert (decision.decision, decision.reason, decision.promotion) == ("hold", reason, "Blocked")


@pytest.mark.parametrize(
    ("which", "lies"),
    [
        ("@case", ["cached-zero"]),  # cached and processed do not add up
        ("#12-16", ["cached-zero", "processed-inflated", "metrics-inflated"]),  # all agree; the clock does not
    ],
)
def test_a_counter_that_lies_never_counts_as_a_fresh_prefill(
    healthy: SimulatedServer, tmp_path: Path, which: str, lies: list[str]
) -> None:
    work = bench(tmp_path, budgetPrefills=18)
    faults = [f"{name}={which}" for name in ("ignore-cache-prompt", *lies)]
    with start_simulated(seed=2, text_seed=9, fault=faults) as candidate:
        finished = work.run(work.request(healthy.url, candidate.url))
        cells = [line for line in candidate.truth() if line["output_tokens"] != 2]
    reused = sum(1 for line in cells if not line["fresh"])
    assert reused
    assert finished.verdict.decision.decision == "hold"
    assert finished.verdict.candidate.unknown >= reused
    assert finished.verdict.candidate.decision_prefills <= len(cells) - reused


def test_no_way_to_prove_a_fresh_prefill_is_told_before_the_candidates_budget_is_spent(tmp_path: Path) -> None:
    work = bench(tmp_path)
    options: dict[str, Any] = {"text_seed": 9, "dialect": "openai"}
    silent = start_simulated(seed=2, fault=["cached-absent=1"], **options)
    with start_simulated(seed=1, **options) as healthy, silent as candidate:
        decision = work.run(work.request(healthy.url, candidate.url)).verdict.decision
        assert probes(candidate.truth()) == len(candidate.truth())
    assert (decision.decision, decision.reason) == ("hold", "IndependenceUnknown")


def test_an_openai_compatible_server_gets_a_nonce_on_the_first_line_equal_on_both_arms(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput={"mode": "Report", "minOutputTokens": 8})
    options: dict[str, Any] = {"text_seed": 9, "dialect": "openai"}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
    gate, texts = stored(tmp_path / "run.db")
    assert finished.verdict.decision.decision == "promote"
    prompts: dict[int | None, set[str]] = {}
    for cell_id, said in texts.items():
        event, prompt = gate.measured[cell_id], json.loads(said.request)["body"]["prompt"]
        assert prompt.startswith(f"{event.nonce}\n{event.cell.case_id} ")
        if event.pair is not None:
            prompts.setdefault(event.pair, set()).add(prompt)
    assert prompts and all(len(both) == 1 for both in prompts.values())
    nonces = [event.nonce for event in measured(gate, CANDIDATE)]
    assert len(set(nonces)) == len(nonces)


def test_decide_equals_the_runs_own_json_to_the_byte_and_reports_come_in_five_formats(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9) as candidate:
        ran = work.child(*work.arguments(healthy.url, candidate.url, "--store", "run.db", "--json"))
    assert ran.code == 0, ran.said
    decided = work.child("decide", "run.db", "--json")
    assert (decided.code, decided.out, decided.err) == (0, ran.out, b"")
    heads = {"html": b"<!DOCTYPE html>", "markdown": b"#", "junit": b"<?xml", "json": b"{", "line": b"[set] PROMOTE"}
    for name, head in heads.items():
        told = work.child("report", "run.db", "--format", name)
        assert (told.code, told.err) == (0, b"")
        assert told.out.lower().lstrip().startswith(head.lower()), told.out[:80]
    assert work.child("report", "run.db", "--format", "json").out == ran.out
    assert work.child("report", "run.db", "--format", "line", "--exit-decision").code == 0
    assert (tmp_path / "run.html").read_bytes().lower().startswith(b"<!doctype html>")


def test_an_override_is_recorded_shown_and_obeyed(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, budgetPrefills=16)
    with start_simulated(seed=2, text_seed=9) as candidate:
        assert work.run(work.request(healthy.url, candidate.url)).verdict.decision.decision == "hold"
    assert work.child("override", "run.db", "--rollback").code == 2
    both = work.child("override", "run.db", "--promote", "--hold", "--reason", "x")
    assert both.code == 2
    assert "--promote and --hold contradict each other" in both.said
    words = ("--reason", "the pager \x1b[31mrang", "--actor", "anna")
    said = work.child("override", "run.db", "--rollback", *words)
    assert said.code == 20
    decided = work.child("decide", "run.db", "--json")
    assert (decided.code, decided.json["reason"], decided.json["rollback"]) == (20, "Override", "Allowed")
    assert any("anna" in sentence and "the pager" in sentence for sentence in decided.json["sentences"])
    for shown in (said.out, work.child("report", "run.db", "--format", "markdown").out):
        assert b"anna" in shown and b"\x1b[31m" not in shown
    noted = work.child("override", "run.db", "--cause", "a bent riser cable", "--promote", "--reason", "it was swapped")
    assert (noted.code, work.child("decide", "run.db", "--json").json["cause"]) == (0, "a bent riser cable")


def test_a_store_without_one_of_its_rows_is_refused(healthy: SimulatedServer, tmp_path: Path) -> None:
    import sqlite3

    work = bench(tmp_path, budgetPrefills=16)
    with start_simulated(seed=2, text_seed=9) as candidate:
        work.run(work.request(healthy.url, candidate.url))
    with sqlite3.connect(tmp_path / "run.db") as connection:
        (last,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        connection.execute("DELETE FROM events WHERE seq = ?", (last - 4,))
    connection.close()
    for command in (["decide", "run.db"], ["report", "run.db"], work.arguments(healthy.url, "http://127.0.0.1:9")):
        given = [*command, "--store", "run.db"] if command[0] == "run" else command
        refused = work.child(*given)
        assert refused.code == 1
        assert f"event {last - 4} is missing" in refused.said


def test_a_store_can_be_decided_while_a_run_writes_it(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    seen: list[Any] = []

    def look(gate: Gate, event: Event) -> None:
        if isinstance(event, CellChecked) and len(gate.measured) in (4, 9):
            seen.append(work.child("decide", "run.db", "--json"))

    with start_simulated(seed=2, text_seed=9) as candidate:
        finished = work.run(work.request(healthy.url, candidate.url), Watch(acts=[look]))
    assert finished.verdict.decision.decision == "promote"
    assert [(told.code, told.json["reason"], told.json["prefills_used"]) for told in seen] == [
        (10, "MoreEvidenceNeeded", 4),
        (10, "MoreEvidenceNeeded", 9),
    ]


def test_a_replicate_writes_down_how_it_was_kept_apart(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, replicate={"gapSeconds": 1})
    kept: list[SeparationKept] = []

    def note(gate: Gate, event: Event) -> None:
        if isinstance(event, SeparationKept):
            kept.append(event)

    with start_simulated(seed=2, text_seed=9, fault=["bad-rate=0.9"]) as candidate:
        finished = work.run(work.request(healthy.url, candidate.url), Watch(acts=[note]))
    gate, _ = stored(tmp_path / "run.db")
    assert finished.verdict.decision.decision == "rollback"
    assert [event.how for event in kept] == ["gap"]
    halves = [e.cell.started_at or 0.0 for e in gate.measured.values() if e.purpose is Purpose.REPLICATE]
    before = [
        e.cell.ended_at or 0.0
        for e in gate.scored
        if e.cell.arm == CANDIDATE and e.cell.bad and e.purpose is not Purpose.REPLICATE
    ]
    assert min(halves) >= max(before) + 1
    assert not measured(gate, CANDIDATE, Status.INVALID)


def test_a_check_against_the_baseline_stops_no_run_on_the_baseline_itself(tmp_path: Path) -> None:
    work = bench(tmp_path, baselinePassPrefills=4, checks=[{"type": "NotEmpty"}, {"type": "EqualToBaseline"}])
    with start_simulated(seed=1, text_seed=9) as baseline, start_simulated(seed=2, text_seed=9) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
    gate, _ = stored(tmp_path / "run.db")
    said = [next(o.bad for o in found if o.check == "equal_to_baseline") for found in gate.outcomes.values()]
    assert said[:4] == [None] * 4  # the baseline has nothing to be equal to
    assert False in said[4:]
    assert finished.verdict.decision.decision == "promote"
