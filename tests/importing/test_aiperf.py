"""aiperf result files: records, raw records, inputs and outputs; summaries are refused with what to give instead."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from prefillgate.core.cells import Status
from prefillgate.importers.aiperf import WARMUP, begins_with_inputs
from prefillgate.importers.base import Imported, Prompted
from prefillgate.importers.joining import Joiner, asks_only
from prefillgate.importers.reading import Account, Wanted, read_logs
from prefillgate.importers.source import ImportProblem, Source
from tests.support.imports import (
    absent,
    as_document,
    as_lines,
    cells_of,
    imported,
    read_bytes,
    spoiled,
    unread,
    withstands,
)

PAYLOAD = {"model": "m-q4", "messages": [{"role": "user", "content": "a long prompt"}], "stream": True}


def metadata(**more: Any) -> dict[str, Any]:
    return {
        "session_num": 45,
        "x_request_id": "7609a2e7",
        "x_correlation_id": "32ee4f33",
        "conversation_id": "77aa5b0e",
        "turn_index": 0,
        "request_start_ns": 1788256800_000_000_000,
        "request_ack_ns": 1788256800_100_000_000,
        "request_end_ns": 1788256803_000_000_000,
        "worker_id": "w",
        "record_processor_id": "p",
        "benchmark_phase": "profiling",
        "was_cancelled": False,
        "cancellation_time_ns": None,
        **more,
    }


def record(**more: Any) -> dict[str, Any]:
    """A line of profile_export.jsonl."""
    metrics = {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "time_to_first_token": {"value": 255.5, "unit": "ms"},
        "request_latency": {"value": 297.5, "unit": "ms"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
        "inter_chunk_latency": {"value": [4.8, 5.3], "unit": "ms"},
    }
    return {"metadata": metadata(), "metrics": metrics, "error": None, **more}


def metrics(**values: Any) -> dict[str, Any]:
    return {**record()["metrics"], **{name: {"value": value, "unit": "tokens"} for name, value in values.items()}}


def raw(*texts: str, **more: Any) -> dict[str, Any]:
    """A line of profile_export_raw.jsonl."""
    events = [{"perf_ns": 1, "packets": [{"name": "data", "value": each}]} for each in texts]
    return {"metadata": metadata(), "start_perf_ns": 0, "payload": PAYLOAD, "status": 200, "responses": events, **more}


FIRST = json.dumps(
    {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "fo"}}]}
)
LAST = json.dumps(
    {
        "id": "c",
        "choices": [{"index": 0, "delta": {"content": "ur"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 550, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 544}},
    }
)
SAMPLE = as_lines(record(), record())
INPUTS = as_document({"data": [{"session_id": "77aa5b0e", "payloads": [PAYLOAD]}]})
SUMMARY = as_document(
    {
        "schema_version": "1.5",
        "aiperf_version": "0.13.0",
        "request_latency": {"unit": "ms", "avg": 2620.71, "count": 20},
        "input_config": {"endpoint": {"model_names": ["m"]}},
    }
)
OUTPUTS = as_document(
    {
        "schema_version": "1.1",
        "data": [
            {
                **{key: metadata()[key] for key in ("session_num", "conversation_id", "turn_index", "x_request_id")},
                "benchmark_phase": "profiling",
                "request_start_ns": 1788256800_000_000_000,
                "request_end_ns": 1788256803_000_000_000,
                "metrics": {"input_sequence_length": 20, "output_token_count": 10, "time_to_first_token": 12.5},
                "response_text": "an answer",
            }
        ],
        "warmup": [],
    }
)


def test_a_record_is_a_cell_with_counts_times_and_time_to_first_token() -> None:
    found = read_bytes(SAMPLE)
    first = imported(found)[0]
    cell = first.line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == (550, None, 9)
    assert (cell.started_at, cell.ended_at, cell.request_id) == (1788256800.0, 1788256803.0, "7609a2e7")
    assert (first.time_to_first_token_ms, first.where, first.label) == (255.5, "log:1", None)
    assert (cell.status, cell.bad, first.texts) == (Status.OK, None, None)
    assert {each.case_id for each in cells_of(found)} == {"77aa5b0e/0"}, "repeats of an entry of the dataset are seen"
    assert set(absent(found)) == {"prompts", "cached tokens", "outputs"}
    assert "inputs.json" in str(absent(found)["prompts"])


def test_what_the_server_counted_goes_before_what_aiperf_counted() -> None:
    told = metrics(usage_prompt_tokens=560, usage_completion_tokens=8, usage_prompt_cache_read_tokens=0)
    (cell,) = cells_of(read_bytes(as_lines(record(metrics=told))))
    assert (cell.prompt_tokens, cell.output_tokens, cell.cached_tokens) == (560, 8, 0)
    more = metrics(usage_prompt_cache_read_tokens=544)
    assert cells_of(read_bytes(as_lines(record(metrics=more))))[0].cached_tokens == 544


@pytest.mark.parametrize(
    ("metric", "expected"),
    [({"value": 0.25, "unit": "sec"}, 250.0), ({"value": 250000, "unit": "us"}, 250.0), (None, None)],
)
def test_the_unit_of_a_time_is_the_one_it_names(metric: Any, expected: float | None) -> None:
    told = {**record()["metrics"], "time_to_first_token": metric}
    assert imported(read_bytes(as_lines(record(metrics=told))))[0].time_to_first_token_ms == expected


def test_a_failed_or_cancelled_request_is_invalid_with_its_reason() -> None:
    failed = record(metrics={"error_isl": {"value": 550, "unit": "tokens"}}, error={"code": 499, "message": "gone"})
    cancelled = record(metadata=metadata(was_cancelled=True))
    found = imported(read_bytes(as_lines(failed, cancelled, record(error="?"))))
    assert [each.line.reason for each in found] == ["gone", "cancelled by aiperf", "an error"]
    assert {each.line.cell.status for each in found} == {Status.INVALID}
    assert found[0].line.cell.prompt_tokens == 550


def test_the_warm_up_is_no_part_of_what_aiperf_reports_and_said() -> None:
    found = read_bytes(as_lines(record(), record(metadata=metadata(benchmark_phase="warmup"))))
    assert len(imported(found)) == 1
    assert unread(found) == [("log:2", WARMUP)]


def test_a_raw_record_gives_request_text_and_the_servers_counters() -> None:
    found = read_bytes(as_lines(raw(FIRST, LAST, "[DONE]")))
    (one,) = imported(found)
    cell = one.line.cell
    assert one.texts is not None and one.texts.content == "four"
    assert one.asked is not None and one.asked.body == PAYLOAD
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens, one.label) == (550, 544, 2, "m-q4")
    assert absent(found) == {}
    whole = json.dumps({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}], "usage": {}})
    text = raw(responses=[{"perf_ns": 1, "text": whole, "content_type": "application/json"}])
    assert imported(read_bytes(as_lines(text)))[0].texts is not None


def test_inputs_are_prompts_that_records_of_the_same_run_name() -> None:
    (prompted,) = read_bytes(INPUTS)
    assert isinstance(prompted, Prompted)
    assert (prompted.asked.body, prompted.custom_id) == (PAYLOAD, "77aa5b0e/0")
    assert begins_with_inputs(INPUTS) and asks_only(INPUTS)
    assert not begins_with_inputs(SAMPLE) and not asks_only(SAMPLE)
    joiner = Joiner()
    joiner.join(prompted)
    joined = joiner.join(imported(read_bytes(SAMPLE))[0])
    assert isinstance(joined, Imported) and joined.asked is not None
    assert joined.line.cell.prompt_sha256 == joined.line.cell.case_id


def test_an_audit_says_that_prompts_are_absent_only_where_no_input_held_them() -> None:
    def said(*inputs: bytes) -> Account:
        account = Account()
        for data in inputs:
            list(read_logs(Source(io.BytesIO(data), "log"), None, Wanted(), account))
        return account

    assert "prompts" in said(SAMPLE).absent
    assert "prompts" not in said(INPUTS, SAMPLE).absent
    assert "cached tokens" in said(INPUTS, SAMPLE).absent


def test_outputs_are_cells_with_their_texts() -> None:
    (one,) = imported(read_bytes(OUTPUTS))
    assert one.texts is not None and one.texts.content == "an answer"
    assert (one.line.cell.prompt_tokens, one.time_to_first_token_ms) == (20, 12.5)


@pytest.mark.parametrize("data", [SUMMARY, b"Metric,avg,min,max\nTime to First Token (ms),1,2,3\n"])
def test_a_summary_is_refused_with_what_to_give_instead(data: bytes) -> None:
    with pytest.raises(ImportProblem, match=r"profile_export\.jsonl"):
        read_bytes(data)


def test_damage_is_named() -> None:
    bad = {"value": "x", "unit": "ms"}
    found = read_bytes(
        as_lines(
            record(),
            "{",
            {"metrics": {}},
            record(metrics=metrics(input_sequence_length=-1)),
            record(metrics={"time_to_first_token": bad}),
            raw("{"),
            raw(),
            raw(responses=[7]),
        )
    )
    assert len(imported(found)) == 1
    assert [why for _, why in unread(found)][1:] == [
        "no metadata: no record of aiperf",
        "a metric that is no count of tokens",
        "time_to_first_token is no duration",
        "a response that is not JSON",
        "a raw record without a response",
        "a response that is no object",
    ]
    inputs = as_document({"data": [{"session_id": "a", "payloads": [PAYLOAD, {"input": "x"}]}, {"session_id": "b"}]})
    assert [why for _, why in unread(read_bytes(inputs))] == [
        "a payload that is no chat or text completion",
        "a session without its payloads",
    ]


def test_no_hostile_input_is_a_traceback() -> None:
    def spoil(seed: int) -> tuple[bytes, ...]:
        lines = as_lines(spoiled(record(), seed), spoiled(raw(FIRST, LAST), seed))
        return lines, *(as_document(spoiled(json.loads(each), seed)) for each in (INPUTS, OUTPUTS))

    samples = (SAMPLE, INPUTS, OUTPUTS, SUMMARY, as_lines(raw(FIRST, LAST)))
    assert len(withstands("aiperf", samples, spoil, times=30, seeds=100)) == 300
