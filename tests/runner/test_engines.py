"""Whole runs against servers that answer as vLLM and as SGLang do: promote, rollback, and what cannot be proven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.journal import Purpose
from tests.support.runs import PROBES, Watch, bench, generations, probes, stored, write_set
from tests.support.simulated import start_simulated

DIALECTS = ["vllm", "sglang"]
SPEED = {"mode": "Require", "minOutputTokens": 8}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_healthy_candidate_is_promoted_on_counts_that_are_true(tmp_path: Path, dialect: str, stream: bool) -> None:
    work = bench(tmp_path)
    if not stream:
        write_set(work.set_path, stream=False)
    options = {"text_seed": 9, "dialect": dialect}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
        gate, texts = stored(tmp_path / "run.db")
        assert finished.verdict.decision.decision == "promote"
        lines = generations(baseline, candidate)
        truth = {line["id"]: line for line in lines}
    assert len(lines) == len(gate.measured) + probes(lines)
    for arm in ARMS:
        (seen,) = gate.epochs[arm]
        assert (seen.engine, seen.cold_proof, seen.counter_alive, seen.findings) == (dialect, "salt", True, ())
        assert (seen.build, seen.shares_blocks) == ("b11549-simulated", True)
    salts: dict[str, set[str]] = {BASELINE: set(), CANDIDATE: set()}
    for cell_id, said in texts.items():
        event = gate.measured[cell_id]
        line = truth[event.cell.request_id]
        assert (event.cell.prompt_tokens, event.cell.cached_tokens) == (line["prompt_tokens"], 0)
        assert event.cell.counter_processed_tokens == line["processed_tokens"] == event.cell.prompt_tokens
        assert (event.cell.output_tokens, line["fresh"]) == (line["output_tokens"], True)
        body = json.loads(said.request)["body"]
        salts[event.cell.arm].add(body["cache_salt"])
        assert body["stream"] is stream
        assert body["prompt"].startswith("case-")  # nothing of the prompt was changed
    assert len(salts[CANDIDATE]) == sum(event.cell.arm == CANDIDATE for event in gate.measured.values())


def test_the_decode_speed_of_vllm_is_compared_and_sglang_tells_none(tmp_path: Path) -> None:
    for dialect, reason in (("vllm", "Slower"), ("sglang", "ThroughputOpen")):
        folder = tmp_path / dialect
        folder.mkdir()
        work = bench(folder, throughput=SPEED)
        slow = {"fault": ["decode-slowdown=1.5"]}
        options = {"text_seed": 9, "dialect": dialect}
        with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options, **slow) as candidate:
            decision = work.run(work.request(baseline.url, candidate.url)).verdict.decision
        assert decision.decision == "hold", dialect
        assert decision.reason == reason


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_bad_candidate_is_rolled_back_once_the_replicate_after_a_restart_confirms_it(
    tmp_path: Path, dialect: str
) -> None:
    work = bench(tmp_path)
    done: list[bool] = []
    options = {"text_seed": 9, "dialect": dialect}
    with (
        start_simulated(seed=1, **options) as baseline,
        start_simulated(seed=2, fault=["bad-rate=0.9"], **options) as candidate,
    ):

        def restart(*_: Any) -> None:
            if not done:
                done.append(True)
                candidate.restart()

        finished = work.run(work.request(baseline.url, candidate.url), Watch(waits=[restart]))
        gate, _ = stored(tmp_path / "run.db")
    decision = finished.verdict.decision
    assert (decision.decision, decision.reason) == ("rollback", "RegressionConfirmed")
    (replicate,) = finished.verdict.replicates
    assert (replicate.ending, replicate.separation) == ("confirmed", "restart")
    assert any(event.purpose is Purpose.REPLICATE for event in gate.measured.values())


@pytest.mark.parametrize(
    ("dialect", "faults", "reason", "words"),
    [
        ("vllm", ["cached-absent=1", "timings-absent=1"], "IndependenceUnknown", "--enable-prompt-tokens-details"),
        ("vllm", ["cached-null=1", "timings-absent=1"], "IndependenceUnknown", "--enable-prompt-tokens-details"),
        ("vllm", ["cached-minus-one-on-cold=1", "timings-absent=1"], "IndependenceUnknown", "cannot be trusted"),
        ("vllm", ["ignore-cache-prompt=1"], "KnobNotHonoured", "`cache_salt` is not honoured"),
        ("vllm", ["external-cache=1"], "KnobNotHonoured", "an external KV connector or a gateway"),
        ("vllm", ["old-counters=1", "metrics-absent=1", "timings-absent=1"], "IndependenceUnknown", "do not confirm"),
        ("sglang", ["cached-absent=1", "timings-absent=1"], "IndependenceUnknown", "--enable-cache-report"),
        ("sglang", ["timings-absent=1", "metrics-absent=1"], "IndependenceUnknown", "do not confirm it"),
        ("sglang", ["cached-minus-one-on-cold=1"], "IndependenceUnknown", "cannot be trusted"),
        ("sglang", ["ignore-cache-prompt=1"], "KnobNotHonoured", "`cache_salt` is not honoured"),
    ],
)
def test_what_a_server_cannot_prove_holds_and_the_verdict_names_what_would_give_it(
    tmp_path: Path, dialect: str, faults: list[str], reason: str, words: str
) -> None:
    work = bench(tmp_path)
    options = {"text_seed": 9, "dialect": dialect}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, fault=faults, **options) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
        gate, _ = stored(tmp_path / "run.db")
    decision = finished.verdict.decision
    assert (decision.decision, decision.reason, decision.promotion) == ("hold", reason, "Blocked")
    assert any(words in told for told in gate.epochs[CANDIDATE][0].findings), gate.epochs[CANDIDATE][0].findings
    assert f"independence unknown on the candidate ({dialect}): " in decision.sentences[0]
    assert words in decision.sentences[0]
    assert finished.verdict.candidate.requests == 0, "nothing is spent on cells that could prove nothing"


@pytest.mark.parametrize("fault", ["ignore-cache-prompt=@case", "external-cache=@case"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_salt_that_is_ignored_once_the_probe_is_over_holds(tmp_path: Path, dialect: str, fault: str) -> None:
    work = bench(tmp_path)
    options = {"text_seed": 9, "dialect": dialect}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, fault=[fault], **options) as candidate:
        decision = work.run(work.request(baseline.url, candidate.url)).verdict.decision
    assert (decision.decision, decision.reason) == ("hold", "KnobNotHonoured")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_older_builds_with_other_names_and_zeros_left_out_are_measured_all_the_same(
    tmp_path: Path, dialect: str
) -> None:
    work = bench(tmp_path)
    options = {"text_seed": 9, "dialect": dialect, "fault": ["old-counters=1", "timings-absent=1"]}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
        gate, _ = stored(tmp_path / "run.db")
    assert finished.verdict.decision.decision == "promote"
    assert {event.cell.cached_tokens for event in gate.measured.values()} == {0}
    assert all(event.cell.counter_processed_tokens == event.cell.prompt_tokens for event in gate.measured.values())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_counter_that_lies_within_a_run_is_contradicted_by_the_servers_totals(tmp_path: Path, dialect: str) -> None:
    work = bench(tmp_path, budgetPrefills=40)  # after each cell the counters are waited for in vain
    options = {"text_seed": 9, "dialect": dialect}
    faults = ["ignore-cache-prompt=@case", "cached-zero=@case", "timings-absent=@case"]
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, fault=faults, **options) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
    assert finished.verdict.decision.decision == "hold"
    assert finished.verdict.candidate.unknown > 0


def test_two_engines_on_the_two_arms_are_a_difference_that_was_not_declared(tmp_path: Path) -> None:
    work = bench(tmp_path)
    with (
        start_simulated(seed=1, text_seed=9, dialect="vllm") as baseline,
        start_simulated(seed=2, text_seed=9, dialect="sglang") as candidate,
    ):
        verdict = work.run(work.request(baseline.url, candidate.url)).verdict
    assert (verdict.decision.decision, verdict.decision.reason) == ("hold", "UndeclaredDifference")
    (engine,) = [difference for difference in verdict.differences if difference.name == "engine"]
    assert (engine.area, engine.baseline, engine.candidate, engine.declared) == ("build", "vllm", "sglang", False)


def test_a_request_that_sglang_took_back_is_kept_with_its_cell_and_has_no_times(tmp_path: Path) -> None:
    work = bench(tmp_path)
    options = {"text_seed": 9, "dialect": "sglang"}
    back = {"fault": [f"retracted=#{PROBES + 2}"]}
    with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options, **back) as candidate:
        finished = work.run(work.request(baseline.url, candidate.url))
        gate, _ = stored(tmp_path / "run.db")
    told = [event for event in gate.measured.values() if event.retractions]
    assert [(event.cell.arm, event.retractions, event.time_to_first_token_ms) for event in told] == [
        (CANDIDATE, 1, None)
    ]
    others = [event for event in gate.measured.values() if event not in told]
    assert {(event.retractions, event.time_to_first_token_ms is None) for event in others} == {(0, False)}
    assert any("1 cell was taken back by the server and computed anew" in note for note in finished.verdict.notes)
    assert finished.verdict.decision.decision == "promote"


def test_accepted_drafts_are_told_by_both(tmp_path: Path) -> None:
    for dialect in DIALECTS:
        folder = tmp_path / dialect
        folder.mkdir()
        work = bench(folder)
        options = {"text_seed": 9, "dialect": dialect, "fault": ["draft=0.5"]}
        with start_simulated(seed=1, **options) as baseline, start_simulated(seed=2, **options) as candidate:
            finished = work.run(work.request(baseline.url, candidate.url))
            gate, _ = stored(folder / "run.db")
        mine = [event for event in gate.scored if event.cell.arm == CANDIDATE]
        drafted, accepted = (
            sum(getattr(event, name) or 0 for event in mine) for name in ("draft_tokens", "draft_accepted_tokens")
        )
        share = f"candidate: {100 * accepted / drafted:.1f} % of {drafted} drafted tokens were accepted"
        assert share in finished.verdict.notes
        told = [event for event in gate.measured.values() if event.draft_tokens]
        assert told and all(event.draft_accepted_tokens == event.draft_tokens // 2 for event in told)
        assert dict(gate.epochs[CANDIDATE][0].settings)["speculation"] == "on"
