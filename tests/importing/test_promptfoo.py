"""promptfoo results of several versions, as document and as lines; its own cache is no request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefillgate.core.cells import Status
from prefillgate.importers.promptfoo import FROM_CACHE
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

ASSERTED = {"componentResults": [{"pass": True, "score": 1, "assertion": {"type": "contains", "value": "4"}}]}


def row(**more: Any) -> dict[str, Any]:
    return {
        "cost": 0,
        "gradingResult": {"pass": True, "score": 1, "reason": "All assertions passed", **ASSERTED},
        "id": "2a1f",
        "latencyMs": 812,
        "namedScores": {},
        "prompt": {"raw": "What is 2+2?", "label": "What is {{sum}}?"},
        "promptId": "p1",
        "promptIdx": 0,
        "provider": {"id": "openai:chat:m-q4", "label": "old profile"},
        "response": {
            "output": "4",
            "tokenUsage": {"total": 30, "prompt": 25, "completion": 5, "numRequests": 1},
            "cached": False,
            "finishReason": "stop",
        },
        "score": 1,
        "success": True,
        "testCase": {"vars": {"sum": "2+2"}, "assert": [{"type": "contains", "value": "4"}]},
        "testIdx": 0,
        "vars": {"sum": "2+2"},
        "failureReason": 0,
        **more,
    }


def summary(*rows: Any) -> dict[str, Any]:
    """EvaluateSummaryV3 inside an output file."""
    prompts = [{"raw": "What is {{sum}}?", "label": "l", "id": "p1", "provider": "old profile", "metrics": {}}]
    results = {"version": 3, "timestamp": "2026-09-01T10:00:00.000Z", "prompts": prompts, "results": list(rows)}
    stats = {"successes": 1, "failures": 0, "errors": 0}
    return {"evalId": "eval-1", "results": {**results, "stats": stats}, "config": {}, "shareableUrl": None}


SAMPLE = as_document(summary(row()))


def response(**more: Any) -> dict[str, Any]:
    return {**row()["response"], **more}


def test_a_row_is_a_cell_with_its_provider_as_label_its_prompt_text_and_counts() -> None:
    found = read_bytes(SAMPLE)
    (one,) = imported(found)
    cell = one.line.cell
    assert (one.label, one.where) == ("old profile", "log: results[0]")
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens) == (25, None, 5)
    assert (cell.status, cell.bad, cell.finish_reason, cell.started_at) == (Status.OK, False, "stop", None)
    assert one.asked is not None
    assert one.asked.body == {"messages": [{"role": "user", "content": "What is 2+2?"}]}
    assert cell.prompt_sha256 is not None
    assert one.texts is not None and one.texts.content == "4"
    assert unread(found) == []


def test_what_promptfoo_keeps_not_is_named_with_what_would_give_it() -> None:
    said = absent(read_bytes(SAMPLE))
    assert set(said) == {"cached tokens", "start times"}
    assert "raw" in str(said["cached tokens"])
    assert said["start times"] == "the server's own log of the run"


@pytest.mark.parametrize(
    ("kept"),
    [
        {"version": 2, "timestamp": "t", "results": [row()], "stats": {}, "table": {}},
        {"version": 1, "results": [{"prompt": "What is 2+2?", "vars": {}, "success": True}], "stats": {}, "table": {}},
        {"results": [{"vars": {}, "prompt": {"raw": "What is 2+2?"}, "success": True}], "table": {}, "stats": {}},
        [row()],
    ],
)
def test_older_documents_and_a_bare_list_are_read(kept: Any) -> None:
    (cell,) = cells_of(read_bytes(as_document(kept)))
    assert cell.prompt_sha256 == cells_of(read_bytes(SAMPLE))[0].prompt_sha256


def test_json_lines_of_rows_are_read_and_named_by_line() -> None:
    found = read_bytes(as_lines(row(), row(provider="openai:completion:base")))
    assert [each.where for each in imported(found)] == ["log:1", "log:2"]
    second = imported(found)[1]
    assert second.label == "openai:completion:base"
    assert second.asked is not None and second.asked.body == {"prompt": "What is 2+2?"}


def test_a_prompt_that_is_a_chat_is_its_messages() -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    (one,) = imported(read_bytes(as_lines(row(prompt={"raw": json.dumps(chat)}))))
    assert one.asked is not None and one.asked.body == {"messages": chat}


@pytest.mark.parametrize(
    "cached",
    [
        response(cached=True, tokenUsage={"total": 30, "cached": 30}),
        response(cached=True, tokenUsage={"prompt": 25, "completion": 5, "total": 30}),
        {"output": "4", "tokenUsage": {"total": 30, "cached": 30}},
    ],
)
def test_an_answer_out_of_promptfoos_cache_is_no_request_and_said(cached: Any) -> None:
    found = read_bytes(as_document(summary(row(), row(response=cached))))
    assert len(imported(found)) == 1
    assert unread(found) == [("log: results[1]", FROM_CACHE)]


def test_tokens_of_the_servers_cache_are_told_by_details_or_by_the_reply_itself() -> None:
    usage = {"total": 30, "prompt": 25, "completion": 5, "completionDetails": {"cacheReadInputTokens": 24}}
    raw = {"usage": {"prompt_tokens": 25, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 20}}}
    rows = [row(response=response(tokenUsage=usage)), row(response=response(raw=raw))]
    rows.append(row(response=response(raw=json.dumps(raw))))
    found = read_bytes(as_lines(*rows))
    assert [cell.cached_tokens for cell in cells_of(found)] == [24, 20, 20]
    assert "cached tokens" not in absent(found)


def test_zero_tokens_are_how_promptfoo_writes_unknown() -> None:
    usage = {"total": 0, "prompt": 0, "completion": 0, "cached": 0}
    (cell,) = cells_of(read_bytes(as_lines(row(response=response(tokenUsage=usage)))))
    assert (cell.prompt_tokens, cell.output_tokens) == (None, None)


@pytest.mark.parametrize(
    ("changed", "bad"),
    [
        ({}, False),
        ({"success": False, "failureReason": 1}, True),
        ({"success": False, "failureReason": 1, "error": "Expected output to contain 4"}, True),
        ({"testCase": {"assert": []}, "gradingResult": {"pass": True, "reason": "No assertions"}}, None),
        ({"testCase": {}, "gradingResult": None}, None),
        ({"testCase": None, "gradingResult": {"pass": False, **ASSERTED}, "success": False}, True),
        ({"success": "yes"}, None),
    ],
)
def test_bad_is_what_its_assertions_said_and_nothing_where_there_were_none(changed: Any, bad: bool | None) -> None:
    (cell,) = cells_of(read_bytes(as_lines(row(**changed)), "promptfoo"))
    assert (cell.bad, cell.status) == (bad, Status.OK)


@pytest.mark.parametrize(
    "changed",
    [
        {"success": False, "failureReason": 2, "error": "API error: 500", "response": {}},
        {"success": False, "error": "API error: 500", "response": None},
        {"success": False, "response": {"error": "API error: 500"}},
    ],
)
def test_a_call_that_failed_is_invalid_and_neither_bad_nor_clean(changed: Any) -> None:
    (one,) = imported(read_bytes(as_lines(row(**changed)), "promptfoo"))
    assert (one.line.cell.status, one.line.cell.bad, one.line.scored) == (Status.INVALID, None, False)
    assert one.line.reason == "API error: 500"


def test_an_empty_output_is_a_failed_delivery() -> None:
    (one,) = imported(read_bytes(as_lines(row(response=response(output="")))))
    assert (one.line.cell.status, one.line.reason) == (Status.FAILED, "EmptyAnswer")


def test_damaged_rows_are_named_each_by_its_kind() -> None:
    usage = {"prompt": "many"}
    bad = [7, {"testIdx": 1}, row(response="no"), row(response=response(tokenUsage=usage))]
    found = read_bytes(as_document(summary(row(), *bad)))
    assert len(imported(found)) == 1
    assert [why for _, why in unread(found)] == [
        "a row that is no object",
        "neither prompt, response nor success: no row of promptfoo",
        "response is no object",
        "prompt is no count of tokens",
    ]
    assert unread(read_bytes(as_document({"evalId": "e", "results": {"version": 3}}), "promptfoo")) == [
        ("log[0]", "results without a list of rows")
    ]


def test_no_hostile_input_is_a_traceback() -> None:
    rows = json.dumps([spoiled(row(), seed) for seed in range(400)]).encode()
    came = withstands(
        "promptfoo", [SAMPLE], lambda seed: [rows, as_document(spoiled(summary(row(), row()), 3))], seeds=1
    )
    assert came[0] >= 400 and came[1] > 0
