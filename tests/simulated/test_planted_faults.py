"""Every planted fault does what its row in the table says, and the truth file keeps the truth."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from prefillgate.simulate.faults import FAULTS
from prefillgate.simulate.truth import TruthLine
from tests.support.simulated import SimulatedServer, start_simulated

from .talk import ask, case, counters, events, get, post, raw_exchange, text

BY_PROMPT = [
    "ignore-cache-prompt=@deaf",
    "cached-zero=@zero",
    "cached-null=@null",
    "cached-absent=@absent",
    "cached-minus-one-on-cold=@minus",
    "processed-inflated=@inflated",
    "metrics-inflated=@counters",
    "timings-absent=@untimed",
    "usage-absent=@unused",
    "cut-stream=@cut",
    "reset=@reset",
    "error-in-stream=@error",
    "malformed=@malformed",
    "http-400=@four-hundred",
    "http-413=@large",
    "http-429=@often",
    "http-500=@crash",
    "http-502=@gateway",
    "html=@login",
    "empty-text=@empty",
    "no-finish=@endless",
    "reasoning-only=@thinking",
    "foreign-text=@foreign",
    "leaked-template=@leaked",
    "loop=@loop",
    "other-traffic=@traffic",
    "unknown-model=@model",
    "comments=@comments",
    "fragment=@fragment",
]


@pytest.fixture(scope="module")
def faulty() -> Iterator[SimulatedServer]:
    """One server in which each prompt meets the fault its tag names."""
    with start_simulated(fault=BY_PROMPT, seed=1) as server:
        yield server


def test_every_fault_of_the_table_is_planted_by_a_test() -> None:
    planted = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [fault.name for fault in FAULTS if f'"{fault.name}=' not in planted] == []


def test_a_server_whose_prompts_cannot_be_counted_has_no_such_route() -> None:
    for fault, status in ((["tokenize-absent=1"], 404), ([], 200)):
        with start_simulated(fault=fault) as server:
            reply = httpx.post(f"{server.url}/tokenize", json={"content": "one two"}, trust_env=False)
        assert reply.status_code == status


def test_an_ignored_knob_leaves_the_cache_on(faulty: SimulatedServer) -> None:
    ask(faulty, case("deaf"))
    reply = ask(faulty, case("deaf"), cache_prompt=False)
    assert reply["timings"]["prompt_n"] == 1
    line = faulty.truth()[-1]
    assert (line["cache_prompt"], line["knob_honoured"], line["fresh"]) == (False, False, False)


@pytest.mark.parametrize(
    ("tag", "lie", "cold", "warm"),
    [
        ("zero", "cached-zero", (0, 0), (0, 0)),
        ("null", "cached-null", (None, None), (None, None)),
        ("absent", "cached-absent", ("absent", "absent"), ("absent", "absent")),
    ],
)
def test_lies_about_cached_tokens_are_told_cold_and_warm(
    faulty: SimulatedServer, tag: str, lie: str, cold: Any, warm: Any
) -> None:
    for expected in (cold, warm):
        reply = ask(faulty, case(tag))
        details = reply["usage"].get("prompt_tokens_details", {})
        assert (reply["timings"].get("cache_n", "absent"), details.get("cached_tokens", "absent")) == expected
        assert faulty.truth()[-1]["lies"] == [lie]
    assert faulty.truth()[-1]["cached_tokens"] == faulty.truth()[-1]["prompt_tokens"] - 1
    assert faulty.truth()[-2]["cached_tokens"] <= 1


def test_a_cold_request_may_claim_to_be_warm(faulty: SimulatedServer) -> None:
    reply = ask(faulty, case("minus"), cache_prompt=False)
    assert reply["timings"]["cache_n"] == reply["usage"]["prompt_tokens"] - 1
    assert faulty.truth()[-1]["cached_tokens"] == 0


def test_processed_tokens_and_the_servers_counters_may_be_inflated(faulty: SimulatedServer) -> None:
    for tag, told, counted in (("inflated", True, False), ("counters", False, True), ("honest", False, False)):
        ask(faulty, case(tag))
        before = counters(faulty)
        reply = ask(faulty, case(tag))
        moved = counters(faulty)["prompt_tokens_total"] - before["prompt_tokens_total"]
        total = reply["usage"]["prompt_tokens"]
        assert (reply["timings"]["prompt_n"], moved) == (total if told else 1, total if counted else 1)
        assert faulty.truth()[-1]["processed_tokens"] == 1


def test_timings_or_usage_may_be_missing_whole_and_streamed(faulty: SimulatedServer) -> None:
    for tag, gone, kept in (("untimed", "timings", "usage"), ("unused", "usage", "timings")):
        reply = ask(faulty, case(tag))
        assert gone not in reply and kept in reply
        last = events(post(faulty, {"prompt": case(tag), "stream": True}).content)[-1]
        assert gone not in last and kept in last


def test_a_cut_answer_ends_without_its_end(faulty: SimulatedServer) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        post(faulty, {"prompt": case("cut"), "stream": True})
    with pytest.raises(httpx.RemoteProtocolError):
        post(faulty, {"prompt": case("cut")})
    raw = raw_exchange(faulty, {"prompt": case("cut"), "stream": True})
    assert raw.startswith(b"HTTP/1.1 200 OK") and raw.count(b"data: {") > 5
    assert b"[DONE]" not in raw and b"timings" not in raw
    lines = faulty.truth()[-3:]
    assert [(line["delivered"], line["outcome"]) for line in lines] == [("cut-stream", None)] * 3


def test_a_reset_connection_answers_nothing_and_computes_nothing(faulty: SimulatedServer) -> None:
    before = counters(faulty)["prompt_tokens_total"]
    with pytest.raises(httpx.TransportError):
        post(faulty, {"prompt": case("reset")})
    assert counters(faulty)["prompt_tokens_total"] == before
    assert (faulty.truth()[-1]["delivered"], faulty.truth()[-1]["prefill"]) == ("reset", None)


def test_an_answer_may_break_in_its_middle(faulty: SimulatedServer) -> None:
    stream = events(post(faulty, {"prompt": case("error"), "stream": True}).content)
    assert stream[-1]["error"]["code"] == 500 and "choices" in stream[-2]
    assert post(faulty, {"prompt": case("error")}).status_code == 500
    for streamed in (True, False):
        content = post(faulty, {"prompt": case("malformed"), "stream": streamed}).content
        broken = content.rstrip().rpartition(b"\n\n")[2].removeprefix(b"data: ")
        with pytest.raises(ValueError):
            json.loads(broken)


@pytest.mark.parametrize(
    ("tag", "status", "kind"),
    [
        ("four-hundred", 400, "application/json"),
        ("large", 413, "application/json"),
        ("often", 429, "application/json"),
        ("crash", 500, "application/json"),
        ("gateway", 502, "text/html"),
        ("login", 200, "text/html"),
    ],
)
def test_refusals_have_their_status_and_compute_nothing(
    faulty: SimulatedServer, tag: str, status: int, kind: str
) -> None:
    reply = post(faulty, {"prompt": case(tag), "stream": True})
    assert (reply.status_code, reply.headers["content-type"].partition(";")[0]) == (status, kind)
    assert reply.headers.get("retry-after") == ("1" if status == 429 else None)
    line = faulty.truth()[-1]
    assert (line["status"], line["prefill"], line["outcome"]) == (status, None, None)
    assert tag[:4] in case(tag) and line["delivered"] in [fault.name for fault in FAULTS]


def test_an_unknown_model_is_refused_and_the_served_one_is_not(faulty: SimulatedServer) -> None:
    served = get(faulty, "/v1/models").json()["data"][0]["id"]
    replies = [post(faulty, {"prompt": case("model"), "model": name}) for name in ("other", served)]
    assert [reply.status_code for reply in replies] == [404, 200]
    assert replies[0].json()["error"]["message"] == "The model `other` does not exist."


def test_texts_may_be_empty_endless_looping_or_leak_the_template(faulty: SimulatedServer) -> None:
    assert text(ask(faulty, case("empty"))) == ""
    assert ask(faulty, case("endless"))["choices"][0]["finish_reason"] is None
    assert text(ask(faulty, case("leaked"))).endswith("<|im_end|>\n<|im_start|>user\n")
    sentences = text(ask(faulty, case("loop"))).split(". ")
    assert len(sentences) > 20 and len(set(sentences[:-1])) == 1
    body = {"messages": [{"role": "user", "content": case("thinking")}], "temperature": 0}
    message = post(faulty, body, "/v1/chat/completions").json()["choices"][0]["message"]
    assert message["content"] == "" and len(message["reasoning_content"].split()) > 20


def test_foreign_text_is_of_the_conversation_before_and_claims_a_cold_cache(faulty: SimulatedServer) -> None:
    canary = "CANARY-7731"
    ask(faulty, f"{canary} " + case("somebody"))
    ask(faulty, case("foreign"))
    ask(faulty, f"{canary} " + case("somebody"))
    reply = ask(faulty, case("foreign"))
    assert canary in text(reply)
    assert (reply["timings"]["cache_n"], reply["timings"]["prompt_n"]) == (0, reply["usage"]["prompt_tokens"])
    assert faulty.truth()[-1]["cached_tokens"] > 50


def test_other_traffic_moves_the_counters_beside_ours(faulty: SimulatedServer) -> None:
    before = counters(faulty)
    reply = ask(faulty, case("traffic"))
    after = counters(faulty)
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == reply["timings"]["prompt_n"] + 120
    assert after["tokens_predicted_total"] - before["tokens_predicted_total"] == reply["timings"]["predicted_n"] + 30
    assert after["requests_processing"] == 0


def test_comments_and_fragments_do_not_change_the_events(faulty: SimulatedServer) -> None:
    plain = post(faulty, {"prompt": case("plain"), "temperature": 0, "stream": True}).content
    commented = post(faulty, {"prompt": case("comments"), "temperature": 0, "stream": True}).content
    assert b"\n\n:\n\n" in commented and b":\n\n" not in plain.replace(b"data: ", b"")[:3]
    assert len(events(commented)) > 10
    raw = raw_exchange(faulty, {"prompt": case("fragment"), "temperature": 0, "stream": True})
    sizes = [int(size, 16) for size in re.findall(rb"\r\n([0-9a-f]+)\r\n", raw)]
    assert max(sizes) == 7 and raw.rstrip().endswith(b"0")


@pytest.mark.parametrize(
    ("kind", "within"),
    [
        ("nul", b"before\\u0000after"),
        ("u2028", "one\u2028two\u2029three\u0085four".encode()),
        ("escape", b"\\u001b]0;owned\\u0007"),
        ("html", b"<script>alert(1)</script>"),
        ("crlf", b"first\\r\\ndata: [DONE]"),
        ("invalid-utf8", b"half a letter: \xc3("),
    ],
)
def test_hostile_text_arrives_as_the_bytes_it_is(kind: str, within: bytes) -> None:
    with start_simulated(fault=[f"hostile-text={kind}"]) as server:
        assert within in post(server, {"prompt": case("x")}).content
        streamed = post(server, {"prompt": case("x"), "stream": True}).content
        assert streamed.endswith(b"data: [DONE]\n\n")
        assert len(server.truth()) == 2


def test_endpoints_may_be_absent() -> None:
    faults = ["metrics-absent=1", "slots-absent=1", "props-absent=1", "always-busy=2"]
    with start_simulated(fault=faults) as server:
        statuses = [get(server, path).status_code for path in ("/metrics", "/slots", "/props", "/health")]
    assert statuses == [501, 501, 404, 200]


def test_an_always_busy_server_says_so_while_it_answers() -> None:
    with start_simulated(fault="always-busy=2") as server:
        ask(server, case("x"))
        assert counters(server)["requests_processing"] == 2
        assert sum(slot["is_processing"] for slot in get(server, "/slots").json()) == 2


def test_an_older_build_has_no_cached_counter_anywhere() -> None:
    with start_simulated(fault="old-counters=1") as server:
        cold, warm = (ask(server, case("x")) for _ in range(2))
        assert "prompt_tokens_cached_total" not in counters(server)
    assert "cache_n" not in warm["timings"] and "prompt_tokens_details" not in warm["usage"]
    assert (cold["timings"]["prompt_n"], warm["timings"]["prompt_n"]) == (cold["usage"]["prompt_tokens"], 1)


def test_speculation_shows_in_timings_slots_and_metrics_and_not_in_props() -> None:
    with start_simulated(fault="draft=0.75") as server:
        timings = ask(server, case("x"))["timings"]
        assert timings["draft_n_accepted"] == int(0.75 * timings["draft_n"]) > 0
        assert counters(server)["spec_decode_num_accepted_tokens_total"] == timings["draft_n_accepted"]
        assert {slot["speculative"] for slot in get(server, "/slots").json()} == {True}
        assert get(server, "/props").json()["default_generation_settings"]["params"]["speculative.types"] == "none"


def test_slow_servers_report_slow_times() -> None:
    with start_simulated(noise_cv=0) as plain:
        normal = ask(plain, case("x"))["timings"]
    slow = ["decode-slowdown=2", "prefill-slowdown=3"]
    with start_simulated(noise_cv=0, fault=slow) as server:
        timings = ask(server, case("x"))["timings"]
    assert timings["predicted_per_token_ms"] == pytest.approx(2 * normal["predicted_per_token_ms"])
    assert timings["prompt_ms"] == pytest.approx(3 * normal["prompt_ms"])
    with start_simulated(noise_cv=0, fault="slow-mode=0.5:4") as server:
        steps = {round(ask(server, case(f"{n}"))["timings"]["predicted_per_token_ms"]) for n in range(12)}
    assert steps == {30, 120}


def test_the_first_requests_may_be_refused_and_one_may_stall() -> None:
    impatient = httpx.Timeout(30, read=0.1)
    with start_simulated(fault=["http-503-first=2", "stall=4:0.3"]) as server:
        replies = [post(server, {"prompt": case("x")}) for _ in range(2)]
        assert [(reply.status_code, reply.headers["retry-after"]) for reply in replies] == [(503, "1")] * 2
        ask(server, case("x"))
        with pytest.raises(httpx.ReadTimeout), httpx.Client(trust_env=False, timeout=impatient) as client:
            client.post(server.url + "/v1/completions", json={"prompt": case("x")})


def test_a_loading_server_answers_503_and_then_serves() -> None:
    with start_simulated(fault="load-seconds=4") as server:
        reply = get(server, "/health")
        assert (reply.status_code, reply.json()["error"]["message"]) == (503, "Loading model")
        while get(server, "/health").status_code == 503:
            time.sleep(0.02)
        assert text(ask(server, case("x")))


@pytest.mark.parametrize("streamed", [True, False])
def test_a_dying_server_leaves_an_answer_unfinished_and_a_truth_line(streamed: bool) -> None:
    with start_simulated(fault="die-after=2") as server:
        ask(server, case("one"))
        with pytest.raises(httpx.TransportError):
            post(server, {"prompt": case("two"), "stream": streamed})
        assert server.wait() == 86
        line = server.truth()[-1]
        assert (line["delivered"], line["outcome"], line["state"]) == ("die-after", None, "good")
        port, marker = server.port, line["epoch"]
        server.restart(fault=[])
        assert (server.port, get(server, "/props").json()["media_marker"] == marker) == (port, False)
        assert ask(server, case("two"))["timings"]["cache_n"] == 0


def test_a_client_that_leaves_is_told_in_the_truth_and_the_server_goes_on() -> None:
    with start_simulated(time_scale=0.6, prefill_ms=20) as server:
        body = {"prompt": case("left"), "stream": True, "temperature": 0}
        with (
            httpx.Client(base_url=server.url, trust_env=False) as client,
            client.stream("POST", "/v1/completions", json=body),
        ):
            pass
        assert sum(slot["is_processing"] for slot in get(server, "/slots").json()) == 1
        while not server.truth():
            time.sleep(0.02)
        line = server.truth()[0]
        assert (line["delivered"], line["outcome"], line["output_tokens"]) == ("abandoned", None, None)
        assert ask(server, case("left"))["timings"]["prompt_n"] == 1


def test_more_requests_than_slots_wait_and_are_counted() -> None:
    with start_simulated(time_scale=0.3, slots=1) as server:
        threads = [threading.Thread(target=ask, args=(server, case(f"{n}"))) for n in range(3)]
        for thread in threads:
            thread.start()
        deepest: tuple[float, float] = (0, 0)
        while any(thread.is_alive() for thread in threads):
            seen = counters(server)
            deepest = max(deepest, (seen["requests_deferred"], seen["requests_processing"]))
        assert deepest == (2, 1)
        assert len(server.truth()) == 3


def test_the_openai_dialect_has_no_knob_and_no_counters_but_a_living_cached_count() -> None:
    with start_simulated(dialect="openai") as server:
        missing = [get(server, path).status_code for path in ("/props", "/slots", "/metrics")]
        cold, warm = (ask(server, case("x"), cache_prompt=False) for _ in range(2))
        plain = events(post(server, {"prompt": case("x"), "stream": True}).content)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        asked = events(post(server, {"prompt": case("x"), **options}).content)
        native = post(server, {"prompt": "x"}, "/completion").status_code
    assert (missing, native) == ([404, 404, 404], 404)
    assert "timings" not in warm and "system_fingerprint" not in warm
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == warm["usage"]["prompt_tokens"] - 1
    assert all("usage" not in event for event in plain)
    assert asked[-1]["choices"] == [] and asked[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 50


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_the_server_cleanly_in_the_middle_of_its_work(number: signal.Signals, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "prefillgate.cli.simulate", "--port", "0", "--ready-file", str(ready)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    while not ready.exists() and process.poll() is None:
        time.sleep(0.01)
    url = ready.read_text().strip()
    with (
        httpx.Client(trust_env=False) as client,
        client.stream("POST", url + "/v1/completions", json={"prompt": case("x"), "stream": True}) as reply,
    ):
        assert reply.status_code == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, f"listening on {url}\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fault", "bad=1"], "unknown fault 'bad'; known are:"),
        (["--fault", "bad-prefill=2"], "fault bad-prefill: '2' is not allowed; give a rate from 0 to 1"),
        (["--api-key-env", "NOT_SET_ANYWHERE"], "the environment variable NOT_SET_ANYWHERE is not set"),
        (["--host", "203.0.113.1"], "cannot start:"),
        (["--truth", "no/such/folder/truth.jsonl"], "cannot start:"),
        (["--time-scale", "-1"], "-1.0 is not in the range"),
    ],
)
def test_bad_options_are_refused_by_name(arguments: list[str], words: str) -> None:
    command = [sys.executable, "-m", "prefillgate.cli.simulate", "--port", "0", *arguments]
    seen = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert seen.returncode == 2
    assert words in " ".join(seen.stderr.split())
    assert "Traceback" not in seen.stderr


def test_the_help_tells_every_fault() -> None:
    command = [sys.executable, "-m", "prefillgate.cli.simulate", "--help"]
    told = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=60).stdout
    assert [fault.name for fault in FAULTS if f"  {fault.name} " not in told] == []
    assert "/v1 routes, no timings" in " ".join(told.split())
    assert [name for name in TruthLine.__dataclass_fields__ if f" {name}" not in told.partition("Truth")[2]] == []


@pytest.mark.parametrize(("dialect", "fault"), [("vllm", "external-cache=1"), ("sglang", "retracted=#1")])
def test_faults_of_other_engines_are_told_as_those_engines_tell_them(dialect: str, fault: str) -> None:
    body = {"prompt": "one two three " * 30, "max_tokens": 4, "return_meta_info": True}
    with start_simulated(fault=[fault], dialect=dialect) as server:
        replies = [
            httpx.post(f"{server.url}/v1/completions", json=body | {"cache_salt": salt}, trust_env=False).json()
            for salt in ("a", "b")
        ]
        totals = httpx.get(f"{server.url}/metrics", trust_env=False).text
        truth = server.truth()
    if dialect == "vllm":
        cached = replies[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached > 0 and cached % 16 == 0
        assert f'vllm:external_prefix_cache_hits_total{{engine="0"}} {float(cached)}' in totals
        assert [line["knob_honoured"] for line in truth] == [False, False]
    else:
        assert [reply["meta_info"]["num_retractions"] for reply in replies] == [1, 0]
        assert [line["cached_tokens"] for line in truth] == [0, 0]


def test_what_is_no_http_or_holds_no_body_is_refused_in_one_line_a_kind_that_quotes_nothing_of_it() -> None:
    packed = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nsk-a-key"
    garbage = (b"\x16\x03\x01 sk-a-key\r\n\r\n", b"GET / HTTP/9.x\r\nsk-a-key\r\n\r\n")
    with start_simulated() as server:
        for sent, status in (*((each, b" 400 ") for each in garbage), (packed, b" 500 "), (packed, b" 500 ")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
                connection.sendall(sent)
                assert status in connection.makefile("rb").readline()
        assert get(server, "/health").status_code == 200
        assert server.said().splitlines() == [
            "a request that is no HTTP was refused; more of its kind are not told",
            "a request failed: RequestPayloadError; more of its kind are not told",
        ]
