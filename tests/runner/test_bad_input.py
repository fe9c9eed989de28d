"""What is wrong with servers, models, sets and policies is told in one clear line, with its exit code."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.journal import Purpose
from tests.support.llama import real_llama
from tests.support.runs import bench, measured, probes, stored, write_set
from tests.support.simulated import SimulatedServer, free_port, start_simulated

CONTROLS = {*range(0x20), 0x7F} - {0x0A}


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """A web server that is no model server: HTML everywhere."""
    listener = socket.create_server(("127.0.0.1", 0))
    body = b"<!doctype html><title>Welcome to nginx</title>"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(head + body)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_servers_that_cannot_be_measured_are_told_apart(healthy: SimulatedServer, page: str, tmp_path: Path) -> None:
    work = bench(tmp_path)
    tls = healthy.url.replace("http:", "https:")
    for url, words in (
        (f"http://127.0.0.1:{free_port()}", "ConnectionRefused"),
        (f"{healthy.url}/wrong/path", "404"),
        (page, "HTML"),
        (tls, "Tls"),
    ):
        run = work.child(*work.arguments(healthy.url, url))
        assert run.code == 1, url
        assert f"error: candidate: {url}" in run.said
        assert words in run.said
        assert not list(tmp_path.glob(".prefillgate/*.db"))


def test_addresses_engines_and_files_that_cannot_be_are_bad_input(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    other = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "a file").write_text("x", encoding="utf-8")
    for arguments, words in (
        (work.arguments(healthy.url, "localhost:8080"), "--candidate"),
        (work.arguments(healthy.url, "ftp://host"), "--candidate"),
        (work.arguments(healthy.url, other, "--engine", "vllm9"), "--engine"),
        (work.arguments(healthy.url, other, "--cell-timeout", "0"), "--cell-timeout"),
        (work.arguments(healthy.url, other, "--cell-timeout", "nan"), "--cell-timeout': nan is not in the range"),
        (["simulate", "--port", "0", "--time-scale", "nan"], "--time-scale': nan is not in the range"),
        (work.arguments(healthy.url, other, "--declare", "build=old"), "--declare"),
        (work.arguments(healthy.url, other, "--report", "a file/report.html"), "--report"),
        (work.arguments(healthy.url, healthy.url + "/"), "same server and model"),
        (["run", "--baseline", healthy.url, "--replay-set", "set.jsonl"], "--candidate is missing"),
        (["run", "--baseline", healthy.url, "--candidate", other], "--replay-set is missing"),
        (["run", "--baseline", healthy.url, "--candidate", other, "--replay-set", "none.jsonl"], "none.jsonl"),
    ):
        run = work.child(*arguments)
        assert run.code == 2, (arguments, run.said)
        assert words in run.said


def test_the_same_server_under_two_addresses_is_found_out(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path)
    run = work.child(*work.arguments(healthy.url, healthy.url.replace("127.0.0.1", "localhost")))
    assert run.code == 2
    assert "same server with the same model (simulated-7b-q8_0.gguf)" in run.said


def test_a_policy_with_impossible_numbers_says_what_would_be_possible(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, acceptance=[3], budgetPrefills=2)
    run = work.child(*work.arguments(healthy.url, "http://127.0.0.1:9"))
    assert run.code == 2
    assert "policy.yaml:" in run.said and "spec.acceptance" in run.said and "for example [" in run.said


def test_a_wrong_model_name_is_bad_input_on_the_real_server(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    llama = real_llama(request, ("--cache-ram", "0"))
    work = bench(tmp_path)
    with start_simulated(seed=1) as baseline:
        run = work.child(*work.arguments(baseline.url, llama.url, "--candidate-model", "gpt-oss"))
    assert run.code == 2
    assert "candidate: " in run.said and "does not serve model 'gpt-oss'; it serves " in run.said


def test_one_server_with_two_models_takes_turns_and_claims_no_speed(tmp_path: Path) -> None:
    work = bench(tmp_path, throughput={"mode": "Require", "minOutputTokens": 8}, baselinePassPrefills=2)
    with start_simulated(seed=1, model=["old", "new"], fault=["unknown-model=1"]) as server:
        models = {"baseline_model": "old", "candidate_model": "new"}
        verdict = work.run(work.request(server.url, server.url, **models)).verdict
        asked = server.truth()
    gate, texts = stored(tmp_path / "run.db")
    assert verdict.decision.decision == "promote"
    assert (verdict.throughput.state, verdict.throughput.pairs) == ("NotCompared", ())
    named = {e.cell.arm: json.loads(texts[e.cell_id].request)["body"]["model"] for e in measured(gate)}
    assert named == {BASELINE: "old", CANDIDATE: "new"}
    assert {e.cell.server_epoch for e in measured(gate, BASELINE)}.isdisjoint(
        e.cell.server_epoch for e in measured(gate, CANDIDATE)
    )
    assert len(asked) == len(gate.measured) + probes(asked)


def test_a_difference_nobody_declared_blocks_and_a_declared_one_does_not(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, build_info="b11600-other", model="other.gguf") as candidate:
        blocked = work.child(*work.arguments(healthy.url, candidate.url, "--store", "one.db", "--json"))
        half = work.child(*work.arguments(healthy.url, candidate.url, "--store", "two.db", "--declare", "build"))
        names = ("--declare", "build", "--declare", "weights")
        declared = work.child(*work.arguments(healthy.url, candidate.url, "--store", "three.db", "--json", *names))
        assert probes(candidate.truth()[:3]) == 3
    assert (blocked.code, blocked.json["reason"]) == (10, "UndeclaredDifference")
    told = blocked.json["sentences"][0]
    assert "build differs" in told and "b11549-simulated" in told and "b11600-other" in told
    assert half.code == 10 and "weights differs" in half.out.decode()
    assert (declared.code, declared.json["decision"]) == (0, "promote")


@pytest.mark.parametrize(
    ("small", "reason", "code"),
    [
        ((CANDIDATE,), "CandidateRefuses", 10),
        ((BASELINE,), "BaselineRefuses", 1),
        ((BASELINE, CANDIDATE), "CaseUnusable", 1),
    ],
)
def test_a_context_too_small_on_one_arm_is_that_arms_refusal(
    tmp_path: Path, small: tuple[str, ...], reason: str, code: int
) -> None:
    work = bench(tmp_path, baselinePassPrefills=6)
    long = write_set(tmp_path / "long.jsonl", cases=1, words=1500).read_text(encoding="utf-8")
    with work.set_path.open("a", encoding="utf-8") as file:
        file.write(long.replace('"case-0"', '"long"'))
    sizes = {arm: 1024 if arm in small else 32_768 for arm in (BASELINE, CANDIDATE)}
    with (
        start_simulated(seed=1, text_seed=9, ctx_size=sizes[BASELINE]) as baseline,
        start_simulated(seed=2, text_seed=9, ctx_size=sizes[CANDIDATE]) as candidate,
    ):
        run = work.child(*work.arguments(baseline.url, candidate.url, "--store", "run.db", "--json"))
    assert (run.json["reason"], run.code) == (reason, code)
    said = run.json["sentences"][0]
    assert "long" in said
    if reason != "CaseUnusable":
        assert "exceeds the available context size" in said and "completes it (" in said
    gate, _ = stored(tmp_path / "run.db")
    asked = [e.cell.arm for e in measured(gate) if e.purpose is Purpose.COMPARE]
    assert asked == ([] if small == (CANDIDATE,) else [CANDIDATE])  # the baseline's pass met every case


@pytest.mark.parametrize(
    ("fault", "reason", "bad"),
    [
        ("http-500=#6", "HttpError", 1),
        ("http-502=#6", "HttpError", 1),
        ("html=#6", "NotJson", 1),
        ("cut-stream=#6", "ConnectionLost", 1),
        ("reset=#6", "ConnectionLost", 1),
        ("error-in-stream=#6", "ErrorInStream", 1),
        ("malformed=#6", None, 1),
        ("empty-text=#6", None, 1),
    ],
)
def test_an_accepted_request_without_a_complete_answer_is_bad_and_never_retried(
    healthy: SimulatedServer, tmp_path: Path, fault: str, reason: str | None, bad: int
) -> None:
    work = bench(tmp_path, budgetPrefills=16)
    with start_simulated(seed=2, text_seed=9, fault=[fault]) as candidate:
        verdict = work.run(work.request(healthy.url, candidate.url)).verdict
        lines = candidate.truth()
    gate, _ = stored(tmp_path / "run.db")
    assert verdict.candidate.bad_for_promotion == bad
    assert len(lines) == len(measured(gate, CANDIDATE)) + 3
    assert not measured(gate, CANDIDATE, Status.INVALID)
    failed = measured(gate, CANDIDATE, Status.FAILED)
    assert all(event.cell.outcome() is True for event in failed)
    if reason is not None:
        assert [event.reason for event in failed] == [reason]


def test_both_arms_answering_a_case_with_a_fault_make_it_unusable(tmp_path: Path) -> None:
    work = bench(tmp_path, baselinePassPrefills=5)
    fault = ["http-500=@case-3"]
    with (
        start_simulated(seed=1, text_seed=9, fault=fault) as baseline,
        start_simulated(seed=2, text_seed=9, fault=fault) as candidate,
    ):
        decision = work.run(work.request(baseline.url, candidate.url)).verdict.decision
    assert (decision.decision, decision.reason, decision.measured) == ("hold", "CaseUnusable", False)
    assert "case-3" in decision.sentences[0]


def test_checks_that_fail_on_the_baseline_stop_the_run_before_the_candidate_is_asked(tmp_path: Path) -> None:
    work = bench(tmp_path, baselinePassPrefills=5)
    with (
        start_simulated(seed=1, text_seed=9, fault=["bad-rate=1"]) as baseline,
        start_simulated(seed=2, text_seed=9) as candidate,
    ):
        run = work.child(*work.arguments(baseline.url, candidate.url, "--json"))
        assert len(candidate.truth()) == 3
    assert (run.code, run.json["reason"]) == (1, "ChecksFailOnBaseline")
    assert "your checks fail on the baseline" in run.json["sentences"][0]


@pytest.mark.parametrize("absent", [["usage-absent=1", "timings-absent=1"], ["usage-absent=1"]])
def test_no_usage_means_that_independence_is_unknown_before_the_budget_is_spent(
    absent: list[str], healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path)
    with start_simulated(seed=2, text_seed=9, fault=absent) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url, "--json"))
    assert run.json["arms"]["candidate"]["requests"] == 0
    assert (run.code, run.json["reason"]) == (10, "IndependenceUnknown")
    assert "candidate" in run.json["sentences"][0]


def test_hostile_text_reaches_no_terminal_and_no_report(healthy: SimulatedServer, tmp_path: Path) -> None:
    work = bench(tmp_path, budgetPrefills=16)
    kinds = ("nul", "u2028", "escape", "html", "crlf", "invalid-utf8")
    with start_simulated(seed=2, fault=[*(f"hostile-text={kind}" for kind in kinds), "bad-rate=#5-6"]) as candidate:
        run = work.child(*work.arguments(healthy.url, candidate.url, "--store", "run.db"))
    assert run.code in (0, 10), run.said
    outputs = [run.out, run.err]
    for name in ("html", "markdown", "junit", "json", "line"):
        outputs.append(work.child("report", "run.db", "--format", name).out)
    outputs.append(work.child("decide", "run.db").out)
    outputs.append((tmp_path / "run.html").read_bytes())
    for said in outputs:
        text = said.decode("utf-8")
        assert not CONTROLS.intersection(map(ord, text))
        assert not any(char in text for char in "\u2028\u2029\u0085\u202e")
        assert "<script" not in text and "onerror=alert" not in text.replace("&lt;img src=x onerror=alert", "")


def test_long_lines_and_odd_characters_in_a_prompt_go_out_as_written(tmp_path: Path) -> None:
    work = bench(tmp_path, budgetPrefills=16)
    odd = "case-odd nul \x00 crlf \r\n separator \u2028 escape \x1b[31m html <b> emoji \U0001f600"
    long = "case-long " + "x" * 1_000_000
    with work.set_path.open("a", encoding="utf-8") as file:
        for name, prompt in (("odd", odd), ("long", long)):
            body = {"model": "m", "prompt": prompt, "max_tokens": 60, "temperature": 0}
            line = {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    room: dict[str, Any] = {"text_seed": 9, "ctx_size": 5_000_000}
    with start_simulated(seed=1, **room) as baseline, start_simulated(seed=2, **room) as candidate:
        work.run(work.request(baseline.url, candidate.url))
    gate, texts = stored(tmp_path / "run.db")
    sent: dict[str, Any] = {}
    for event in measured(gate, CANDIDATE):
        sent[event.cell.case_id] = json.loads(texts[event.cell_id].request)["body"]["prompt"]
    assert sent["odd"] == odd
    assert sent["long"] == long


def test_no_report_is_written_over_evidence_or_over_what_a_run_is_made_from(
    healthy: SimulatedServer, tmp_path: Path
) -> None:
    work = bench(tmp_path, budgetPrefills=16)
    other = f"http://127.0.0.1:{free_port()}"
    with sqlite3.connect(tmp_path / "older.db") as older:
        older.execute("CREATE TABLE meta (key TEXT)")
    older.close()
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for target in ("run.db", "./run.db", "run.db-lock", "run.db-wal", "older.db", "set.jsonl", "policy.yaml"):
        refused = work.child(*work.arguments(healthy.url, other, "--store", "run.db", "--report", target))
        assert refused.code == 2
        assert f"--report {Path(target)}: a report would overwrite what stands there" in refused.said
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept  # nor was a store begun
    # by default the report stands beside the store: here under the store's own name
    assert work.child(*work.arguments(healthy.url, other, "--store", "run.html")).code == 2
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept

    with start_simulated(seed=2, text_seed=9) as candidate:
        work.run(work.request(healthy.url, candidate.url))
    store = (tmp_path / "run.db").read_bytes()
    for target in ("run.db", "older.db"):
        assert work.child("report", "run.db", "-o", target).code == 2
    assert (tmp_path / "run.db").read_bytes() == store
    assert (tmp_path / "older.db").read_bytes() == kept[tmp_path / "older.db"]
    for _ in range(2):  # a report of before may be written anew
        assert work.child("report", "run.db", "-o", "run.html").code == 0
