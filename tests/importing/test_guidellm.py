"""guidellm reports of several versions, in JSON and YAML: prompts, times to first token, and what was left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from prefillgate.core.cells import Status
from prefillgate.importers.guidellm import LEFT_OUT
from prefillgate.importers.source import ImportProblem
from tests.support.imports import (
    absent,
    as_document,
    cells_of,
    imported,
    read_bytes,
    spoiled,
    unread,
    withstands,
)

BODY = {"model": "m-q4", "messages": [{"role": "user", "content": "a long prompt"}], "max_completion_tokens": 64}
CSV = b"Run Info,Run Info,Benchmark\nRun ID,Run Index,Strategy\n,,\n1,0,synchronous\n"


def request(**more: Any) -> dict[str, Any]:
    """A request as guidellm 0.8 writes it."""
    timings = {"request_start": 1788256800.0, "first_token_iteration": 1788256802.5, "request_end": 1788256803.0}
    return {
        "type_": "generative_request_stats",
        "request_id": "r1",
        "response_id": "chatcmpl-1",
        "request_args": json.dumps({"method": "POST", "stream": True, "headers": {"a": "b"}, "body": BODY}),
        "output": "an answer",
        "info": {"request_id": "r1", "status": "completed", "timings": timings, "error": None},
        "input_metrics": {"text_tokens": 512, "cached_tokens": 496},
        "output_metrics": {"text_tokens": 64},
        "request_start_time": 1788256800.0,
        "request_end_time": 1788256803.0,
        "prompt_tokens": 512,
        "cached_tokens": 496,
        "output_tokens": 64,
        "time_to_first_token_ms": 2500.0,
        **more,
    }


def old_request(**more: Any) -> dict[str, Any]:
    """A request as guidellm 0.2 writes it."""
    return {
        "type_": "generative_text_response",
        "request_id": "r1",
        "request_type": "text_completions",
        "scheduler_info": {},
        "prompt": "a long prompt",
        "output": "an answer",
        "prompt_tokens": 512,
        "output_tokens": 64,
        "start_time": 1788256800.0,
        "end_time": 1788256803.0,
        "first_token_time": 1788256800.25,
        "last_token_time": 1788256803.0,
        **more,
    }


def report(*successful: Any, **more: Any) -> dict[str, Any]:
    requests = {"successful": list(successful), "incomplete": [], "errored": [], **more}
    benchmark = {
        "type_": "generative_benchmark",
        "config": {"run_id": "x", "strategy": {"type_": "synchronous"}},
        "scheduler_state": {},
        "metrics": {"request_totals": {"successful": len(successful), "total": sum(map(len, requests.values()))}},
        "requests": requests,
    }
    meta = {"version": 2, "guidellm_version": "0.8.1"}
    backend = {"kind": "openai_http", "target": "http://127.0.0.1:8000", "model": "m-of-backend"}
    return {"metadata": meta, "config": {"backend": backend}, "benchmarks": [benchmark], "conclusions": []}


SAMPLE = as_document(report(request(), request(request_id="r2")))
SAMPLE_YAML = yaml.dump(report(request())).encode()


def test_a_request_is_a_cell_with_prompt_counts_times_and_time_to_first_token() -> None:
    found = read_bytes(SAMPLE)
    first = imported(found)[0]
    cell = first.line.cell
    assert (first.where, first.label) == ("log: benchmarks[0].successful[0]", "m-q4")
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens, cell.bad) == (512, 496, 64, None)
    assert (cell.started_at, cell.ended_at) == (1788256800.0, 1788256803.0)
    assert first.time_to_first_token_ms == 2500.0
    assert first.asked is not None and first.asked.body == BODY
    assert first.texts is not None and first.texts.content == "an answer"
    assert len({each.prompt_sha256 for each in cells_of(found)}) == 1, "a repeated prompt"
    assert (unread(found), absent(found)) == ([], {})


def test_a_report_in_yaml_gives_what_the_one_in_json_gives() -> None:
    (found,) = imported(read_bytes(SAMPLE_YAML))
    assert found.line.cell == imported(read_bytes(as_document(report(request()))))[0].line.cell
    assert found.time_to_first_token_ms == 2500.0


def test_an_old_report_keeps_the_prompt_itself_and_no_cached_tokens() -> None:
    found = read_bytes(as_document(report(old_request(), old_request(request_type="chat_completions"))))
    first, second = imported(found)
    assert first.asked is not None and first.asked.body == {"prompt": "a long prompt"}
    assert second.asked is not None and "messages" in second.asked.body
    assert first.time_to_first_token_ms == 250.0
    assert (first.label, first.line.cell.cached_tokens) == ("m-of-backend", None)
    assert set(absent(found)) == {"cached tokens"}


def test_times_and_counts_stand_inside_where_the_request_does_not_repeat_them() -> None:
    plain = request()
    for name in ("request_start_time", "request_end_time", "prompt_tokens", "cached_tokens", "output_tokens"):
        del plain[name]
    del plain["time_to_first_token_ms"]
    (found,) = imported(read_bytes(as_document(report(plain))))
    cell = found.line.cell
    assert (cell.started_at, cell.ended_at) == (1788256800.0, 1788256803.0)
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == (512, 496, 64)
    assert found.time_to_first_token_ms == 2500.0


def test_the_model_is_that_of_the_body_else_of_the_backend_of_any_version() -> None:
    bare = request(request_args=None)
    assert imported(read_bytes(as_document(report(bare))))[0].label == "m-of-backend"
    old = {"benchmarks": [{"args": {}, "worker": {"backend_model": "w"}, "requests": {"successful": [bare]}}]}
    assert imported(read_bytes(as_document(old)))[0].label == "w"
    args = {"args": {"model": "a"}, "benchmarks": [{"config": {}, "requests": {"successful": [bare]}}]}
    assert imported(read_bytes(as_document(args)))[0].label == "a"


def test_incomplete_and_errored_requests_are_invalid_with_their_reason() -> None:
    failed = request(info={"status": "errored", "error": "HTTP 500", "timings": {}})
    cut = request(output=None, info={"status": "cancelled", "timings": {}})
    found = imported(read_bytes(as_document(report(request(), errored=[failed], incomplete=[cut]))))
    assert [(each.line.cell.status, each.line.reason) for each in found] == [
        (Status.OK, None),
        (Status.INVALID, "incomplete"),
        (Status.INVALID, "HTTP 500"),
    ]


def test_requests_that_the_report_leaves_out_are_said() -> None:
    kept = report(request())
    kept["benchmarks"][0]["metrics"]["request_totals"]["total"] = 200
    assert LEFT_OUT in absent(read_bytes(as_document(kept)))
    assert LEFT_OUT not in absent(read_bytes(SAMPLE))


def test_without_the_bodies_prompts_are_said_to_be_absent() -> None:
    found = read_bytes(as_document(report(request(request_args=None), request(request_args="not JSON"))))
    assert "prompts" in absent(found)
    assert len({cell.case_id for cell in cells_of(found)}) == 2, "unknown prompts are not merged"


def test_the_csv_is_refused_with_what_to_give_instead() -> None:
    with pytest.raises(ImportProblem, match="JSON or YAML report"):
        read_bytes(CSV)


def test_damage_is_named() -> None:
    kept = report(7, request(prompt_tokens="x"), errored="no")
    kept["benchmarks"] += [7, {"config": {}}]
    assert [why for _, why in unread(read_bytes(as_document(kept), "guidellm"))] == [
        "a request that is no object",
        "prompt_tokens is no count of tokens",
        "requests that are no list",
        "a benchmark that is no object",
        "a benchmark without its requests",
    ]
    for data, said in ((b'{"benchmarks": 7}', "is no list"), (b"benchmarks: [", "not one YAML"), (b"- 1", "object")):
        with pytest.raises(ImportProblem, match=said):
            read_bytes(data, "guidellm")


def test_no_hostile_input_is_a_traceback() -> None:
    whole = report(request(), old_request(), errored=[request()])
    withstands("guidellm", [SAMPLE, SAMPLE_YAML], lambda seed: [as_document(spoiled(whole, seed))], seeds=400)
