"""Langfuse exports: the interface's names and blob storage's, JSON, lines and CSV, and what its usage counts."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from prefillgate.core.cells import Status
from prefillgate.importers.langfuse import NO_GENERATION
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

OURS = {"input": 2, "input_cached_tokens": 240, "output": 5, "total": 247}
THEIRS = {"input": 2, "output": 5, "total": 247}
MESSAGES = [{"role": "user", "content": "2+2?"}]


def observation(**more: Any) -> dict[str, Any]:
    """An observation as the interface exports it."""
    return {
        "id": "obs-1",
        "traceId": "trace-1",
        "type": "GENERATION",
        "name": "answer",
        "startTime": "2026-09-01T10:00:00.000Z",
        "endTime": "2026-09-01T10:00:03.000Z",
        "completionStartTime": "2026-09-01T10:00:00.250Z",
        "model": "m-q4",
        "modelParameters": {"temperature": 0, "max_tokens": 64, "api_key": "no", "stop": "None"},
        "input": MESSAGES,
        "output": {"role": "assistant", "content": "four"},
        "usageDetails": {"input": 2, "input_cached_tokens": 240, "output": 5, "total": 247},
        "level": "DEFAULT",
        "statusMessage": None,
        **more,
    }


def stored(**more: Any) -> dict[str, Any]:
    """The same as blob storage writes it."""
    return {
        "id": "obs-1",
        "trace_id": "trace-1",
        "type": "GENERATION",
        "start_time": "2026-09-01 10:00:00.000000",
        "end_time": "2026-09-01 10:00:03.000000",
        "completion_start_time": "2026-09-01 10:00:00.250000",
        "provided_model_name": "m-q4",
        "model_parameters": json.dumps(observation()["modelParameters"]),
        "input": json.dumps(MESSAGES),
        "output": json.dumps(observation()["output"]),
        "usage_details": observation()["usageDetails"],
        "level": "DEFAULT",
        **more,
    }


def as_csv(*rows: dict[str, Any]) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    for row in rows:
        texts = {key: each if isinstance(each, str) or each is None else json.dumps(each) for key, each in row.items()}
        writer.writerow(texts)
    return file.getvalue().encode()


SAMPLE = as_document([observation(), observation(type="SPAN"), observation()])
SAMPLE_LINES = as_lines(stored(), stored())
SAMPLE_CSV = as_csv(observation(input=[{"role": "user", "content": "two\nlines"}]), observation())


def test_a_generation_is_a_cell_with_counts_times_label_prompt_and_text() -> None:
    found = read_bytes(SAMPLE)
    first = imported(found)[0]
    cell = first.line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == (242, 240, 5)
    assert (cell.started_at, cell.ended_at, cell.request_id) == (1788256800.0, 1788256803.0, "obs-1")
    assert (first.time_to_first_token_ms, first.label, first.where) == (250.0, "m-q4", "log[0]")
    assert first.asked is not None
    assert first.asked.body == {"messages": MESSAGES, "temperature": 0, "max_tokens": 64}
    assert first.texts is not None and first.texts.content == "four"
    assert (cell.status, cell.bad) == (Status.OK, None)
    assert unread(found) == [("log[1]", NO_GENERATION)]
    assert absent(found) == {}


def test_blob_storage_and_csv_give_the_same_cells() -> None:
    expected = cells_of(read_bytes(SAMPLE))[0]
    assert cells_of(read_bytes(SAMPLE_LINES)) == [expected, expected]
    assert cells_of(read_bytes(as_csv(stored()))) == [expected]
    two, one = imported(read_bytes(SAMPLE_CSV))
    assert one.line.cell == expected
    assert two.asked is not None and two.asked.body["messages"][0]["content"] == "two\nlines"
    assert (two.where, one.where) == ("log:2", "log:3")


def test_the_answer_of_its_api_is_read_too() -> None:
    assert len(cells_of(read_bytes(as_document({"data": [observation()], "meta": {"page": 1}})))) == 1


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({**OURS, "output": 3, "output_reasoning_tokens": 2}, (242, 240, 5)),
        ({"input": 242, "cache_read_input_tokens": 240, "output": 5, "total": 247}, (242, 240, 5)),
        ({**THEIRS, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 40}, (242, 200, 5)),
        ({"input": 242, "output": 5, "total": 247}, (242, None, 5)),
        ({"input": 242, "input_cached_tokens": 0, "output": 5}, (242, 0, 5)),
        ({"input": 242, "input_cached_tokens": 240, "output": 5}, (None, 240, 5)),
        ({**OURS, "input": 242, "output_reasoning_tokens": 3}, (242, 240, 8)),
        ({}, (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_the_total_tells_whether_the_input_includes_what_was_cached(usage: Any, counts: Any) -> None:
    cell = cells_of(read_bytes(as_document([observation(usageDetails=usage)]), "langfuse"))[0]
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == counts


@pytest.mark.parametrize(
    "old",
    [
        {"promptTokens": 242, "completionTokens": 5},
        {"usage": {"input": 242, "output": 5, "unit": "TOKENS"}},
        {"inputUsage": 242, "outputUsage": 5},
    ],
)
def test_exports_without_details_tell_sums_alone(old: Any) -> None:
    found = read_bytes(as_document([observation(usageDetails=None, **old)]), "langfuse")
    (cell,) = cells_of(found)
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == (242, None, 5)
    assert "cached tokens" in absent(found)


def test_without_texts_the_field_group_is_named() -> None:
    said = absent(read_bytes(as_document([observation(input=None, output=None)])))
    assert set(said) == {"prompts", "outputs"}
    assert "`io`" in str(said["prompts"])


def test_an_error_is_invalid_and_the_seconds_of_the_interface_are_a_time_to_first_token() -> None:
    failed = observation(level="ERROR", statusMessage="rate limited", output=None)
    plain = observation(completionStartTime=None, timeToFirstToken=0.25)
    first, second = imported(read_bytes(as_document([failed, plain])))
    assert (first.line.cell.status, first.line.reason) == (Status.INVALID, "rate limited")
    assert second.time_to_first_token_ms == 250.0


def test_damage_is_named() -> None:
    wrong = observation(usageDetails=7), observation(usageDetails={"input": "x"})
    assert [why for _, why in unread(read_bytes(as_document([observation(), observation(type=7), *wrong, 7])))] == [
        "no type: no observation of Langfuse",
        "usageDetails is no object",
        "input is no count of tokens",
        "not a JSON object",
    ]
    short = SAMPLE_CSV + b"a,b\n"
    assert unread(read_bytes(short)) == [("log:4", "more or fewer cells than the header has names")]


def test_no_hostile_input_is_a_traceback() -> None:
    withstands(
        "langfuse",
        [SAMPLE, SAMPLE_LINES, SAMPLE_CSV],
        lambda seed: [as_lines(spoiled(observation(), seed), spoiled(stored(), seed))],
        times=40,
    )
