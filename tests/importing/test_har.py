"""HAR archives: completions whole and streamed, other traffic by name, credentials nowhere."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from prefillgate.core.cells import Status
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

REPLY = {
    "id": "c1",
    "model": "m",
    "choices": [{"index": 0, "message": {"content": "yo"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 39}},
}
OTHER_ROUTE = "a request to another route than a chat or text completion"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CHUNKS = [
    {"id": "c1", "choices": [{"index": 0, "delta": {"content": "y"}}]},
    {
        "id": "c1",
        "choices": [{"index": 0, "delta": {"content": "o"}, "finish_reason": "stop"}],
        "usage": REPLY["usage"],
    },
]
STREAM = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in CHUNKS) + "data: [DONE]\n\n"


def entry(text: str | None = json.dumps(REPLY), status: int = 200, **more: Any) -> dict[str, Any]:
    request = {
        "method": "POST",
        "url": "http://me:s3cret@old:8080/v1/chat/completions?api_key=s3cret",
        "headers": [{"name": "Authorization", "value": "Bearer s3cret"}],
        "postData": {"mimeType": "application/json", "text": json.dumps(ASK)},
        **more.pop("request", {}),
    }
    content = {"mimeType": "application/json", **({} if text is None else {"text": text}), **more.pop("content", {})}
    return {
        "startedDateTime": "2026-11-29T08:15:00.250+00:00",
        "time": 1500,
        "request": request,
        "response": {"status": status, "headers": [], "content": content},
        "timings": {"wait": 20},
        **more,
    }


def archive(*entries: Any) -> bytes:
    return as_document({"log": {"version": "1.2", "creator": {"name": "t"}, "entries": list(entries)}})


@pytest.mark.parametrize(
    "kept",
    [
        entry(),
        entry(STREAM, content={"mimeType": "text/event-stream"}),
        entry(base64.b64encode(STREAM.encode()).decode(), content={"encoding": "base64"}),
    ],
    ids=["whole", "streamed", "base64"],
)
def test_an_answer_is_read_whole_and_streamed(kept: dict[str, Any]) -> None:
    (found,) = imported(read_bytes(archive(kept)))
    cell = found.line.cell
    assert (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens, cell.finish_reason) == (40, 39, 2, "stop")
    assert (cell.started_at, cell.ended_at, found.line.http_status) == (1795940100.25, 1795940101.75, 200)
    assert found.texts is not None and found.texts.content == "yo"
    assert found.asked is not None and found.asked.body == ASK
    assert (found.label, found.time_to_first_token_ms) == ("old:8080", None), "headers come before the prefill"


def test_nothing_of_a_credential_is_kept() -> None:
    assert "s3cret" not in repr(read_bytes(archive(entry())))


def test_llama_cpps_own_route_is_read() -> None:
    asked = {"url": "http://old:8080/completion", "postData": {"text": json.dumps({"prompt": "p", "n_predict": 4})}}
    reply = {"content": "x", "stop": True, "tokens_evaluated": 9, "timings": {"prompt_n": 1, "cache_n": 8}}
    (found,) = imported(read_bytes(archive(entry(json.dumps(reply), request=asked))))
    assert (found.line.cell.prompt_tokens, found.line.cell.cached_tokens) == (9, 8)
    assert found.asked is not None and found.asked.path == "/v1/completions"


def test_refusals_and_requests_without_an_answer_are_invalid_cells() -> None:
    busy = entry(json.dumps({"error": {"type": "busy", "message": "x"}}), 503)
    gone = entry(None, 0)
    found = imported(read_bytes(archive(busy, gone)))
    assert [(each.line.cell.status, each.line.http_status, each.line.reason) for each in found] == [
        (Status.INVALID, 503, "busy"),
        (Status.INVALID, None, "no answer"),
    ]


def test_an_answer_whose_text_was_not_saved_is_a_request_of_which_nothing_is_known() -> None:
    found = read_bytes(archive(entry(None)))
    (cell,) = cells_of(found)
    assert (cell.status, cell.prompt_tokens, cell.cached_tokens) == (Status.OK, None, None)
    assert "a proxy" in str(absent(found)["some response bodies"])


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (
            entry(request={"url": "http://old:8080/v1/embeddings"}),
            OTHER_ROUTE,
        ),
        (entry(request={"url": "http://old/app.js"}), OTHER_ROUTE),
        (entry(request={"method": "OPTIONS"}), "a request to a route of completions that is no POST"),
        (entry(request={"url": "http://[x"}), "an address that is none"),
        (entry("<html>"), "a body that is not JSON"),
        (entry("[1]"), "an answer that is no object"),
        (entry("%%", content={"encoding": "base64"}), "a body that is not base64"),
        (3, "an entry without its request"),
        ({"request": {}}, "an entry without its response"),
    ],
)
def test_other_traffic_and_damaged_entries_are_named(bad: Any, why: str) -> None:
    found = read_bytes(archive(entry(), bad, entry()))
    assert unread(found) == [("log[1]", why)]
    assert [each.where for each in imported(found)] == ["log[0]", "log[2]"]


def test_what_is_no_archive_is_refused() -> None:
    with pytest.raises(ImportProblem, match=r"log.entries: no list of entries"):
        read_bytes(b'{"log": {"entries": 3}}')
    with pytest.raises(ImportProblem, match="not one JSON document at character"):
        read_bytes(archive(entry())[:-30])


def test_hostile_archives_break_nothing() -> None:
    whole = json.loads(archive(entry(), entry(STREAM)))
    withstands("har", [archive(entry())], lambda seed: [json.dumps(spoiled(whole, seed)).encode()])
