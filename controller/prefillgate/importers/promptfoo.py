"""promptfoo results: what `promptfoo eval -o results.json`, `.jsonl` or `.yaml` wrote, of every version since 2023.

A row is one test on one provider. Its `provider` is the label. `bad` is what promptfoo's own assertions said: True
where they failed, False where they passed and there was at least one; a row without assertions, or one whose call
failed, says nothing of its output. A row that promptfoo answered from its own cache was no request at all.
promptfoo's `tokenUsage.cached` counts such answers and is no prefix cache; that is told only by
`completionDetails.cacheReadInputTokens` of a response, or by the server's reply where the row keeps it as `raw`. A zero
is left out there, and the row's own `tokenUsage` has one for every provider: neither tells a fresh prefill.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.importers.base import Absent, Found, Imported, Unread
from prefillgate.importers.records import Damaged, Record, count, outline, records, text, yaml_document
from prefillgate.importers.replies import TokenCounts, read_counts
from prefillgate.importers.seen import CACHED, LENGTHS, Seen
from prefillgate.importers.source import ImportProblem, Source
from prefillgate.importers.told import STARTS, Told, asked_text, cached_within, mapping, positive, texts_of

FROM_CACHE = "no request: promptfoo answered it from its own cache (promptfoo eval --no-cache asks the server)"
_FLAGS = {CACHED: "a provider that keeps the server's reply (`raw`), or the server's own log", LENGTHS: None}
_CSV = b",Status,Score,Named Scores,Grader Reason"
_YAML = re.compile(rb"^results:", re.MULTILINE)
_YAML_INSIDE = re.compile(rb"^ {1,4}(?:version: \d|stats:|results:)", re.MULTILINE)
_ERROR = 2  # failureReason of a row whose call failed
_ROW = ({"promptIdx", "testIdx"}, {"vars", "prompt", "success"}, {"testCase", "gradingResult"})


class PromptfooResults:
    """The format `promptfoo`."""

    name = "promptfoo"
    title = "promptfoo results"

    def recognise(self, head: bytes) -> bool:
        """A document of results, or their rows as JSON lines; its CSV as well, to say why it does not do."""
        if head.lstrip()[:1] not in (b"{", b"["):
            return _CSV in head or _is_yaml(head)
        keys = outline(head)
        if any(row <= keys for row in _ROW):
            return True
        inside = {key.rpartition(".")[2] for key in keys if key.startswith("results.")}
        return "results" in keys and (
            ("evalId" in keys and bool({"results", "prompts", "version"} & inside))
            or any(row <= inside for row in _ROW)
            or {"stats", "table"} <= keys
        )

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each row that was a request. Raises `ImportProblem` for a damaged document."""
        seen = Seen()
        yield from seen.tell(_rows(source), _row)
        yield from seen.absent(_FLAGS)
        if seen.requests:
            yield Absent(STARTS, "the server's own log of the run")


def _is_yaml(head: bytes) -> bool:
    return _YAML.search(head) is not None and _YAML_INSIDE.search(head) is not None


def _records(source: Source) -> Iterator[tuple[str, Record] | Unread]:
    head = source.head()
    if head.lstrip()[:1] in (b"{", b"[") or not (_CSV in head or _is_yaml(head)):
        yield from records(source)
    elif _CSV in head:
        what = "promptfoo's CSV holds no prompts as they were sent and no tokens"
        raise ImportProblem(Problem(source.name, "", what, "promptfoo eval -o results.json, of the same run"))
    else:
        found = yaml_document(source)
        yield (source.name, found) if isinstance(found, dict) else Unread(source.name, "not the object of results")


def _rows(source: Source) -> Iterator[tuple[str, Record] | Unread]:
    """The rows of one document or of JSON lines, with their places."""
    for found in _records(source):
        if isinstance(found, Unread):
            yield found
            continue
        where, record = found
        results = record.get("results")
        if isinstance(results, dict):
            results = results.get("results")
        if results is None and "results" not in record:
            yield where, record
        elif not isinstance(results, list):
            yield Unread(where, "results without a list of rows")
        else:
            for place, row in enumerate(results):
                at = f"{source.name}: results[{place}]"
                yield (at, row) if isinstance(row, dict) else Unread(at, "a row that is no object")


def _row(row: Record, where: str) -> Iterator[Imported | Unread]:
    response = mapping(row, "response")
    usage = mapping(response, "tokenUsage")
    counts = _counts(response, usage)
    if response.get("cached") is True or (count(usage, "cached") and not count(usage, "prompt")):
        yield Unread(where, FROM_CACHE)
        return
    if not {"prompt", "response", "success"} & row.keys():
        raise Damaged("neither prompt, response nor success: no row of promptfoo")
    provider = row.get("provider")
    label = provider if isinstance(provider, str) else None
    if isinstance(provider, dict):
        label = text(provider, "label") or text(provider, "id")
    prompt = row.get("prompt")
    raw = prompt.get("raw") if isinstance(prompt, dict) else prompt
    failure = _failure(row, response)
    yield Told(
        where,
        asked=asked_text(raw, chat=":completion:" not in (label or "")),
        label=label,
        texts=texts_of(response.get("output")),
        counts=counts,
        bad=_bad(row),
        finish_reason=text(response, "finishReason"),
        failure=failure,
    ).imported()


def _failure(row: Record, response: Mapping[str, Any]) -> str | None:
    """Why the call itself failed; None where it was answered, whatever the assertions said."""
    told = response.get("error")
    if row.get("failureReason") == _ERROR or (response.get("output") is None and (told or row.get("error"))):
        reason = told or row.get("error")
        return reason if isinstance(reason, str) else "an error of the provider"
    return None


def _bad(row: Record) -> bool | None:
    grading = row.get("gradingResult")
    grading = grading if isinstance(grading, dict) else {}
    test = row.get("testCase")
    asserted = isinstance(test, dict) and bool(test.get("assert"))
    if not asserted and not grading.get("componentResults"):
        return None
    success = row.get("success", grading.get("pass"))
    return not success if isinstance(success, bool) else None


def _counts(response: Mapping[str, Any], usage: Mapping[str, Any]) -> TokenCounts:
    raw = response.get("raw")
    if isinstance(raw, str) and raw.lstrip().startswith("{"):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            raw = None
    if isinstance(raw, dict) and ("usage" in raw or "timings" in raw):
        return read_counts(raw)
    details = mapping(usage, "completionDetails")
    prompt = positive(usage, "prompt")
    cached = cached_within(count(details, "cacheReadInputTokens"), prompt)
    return TokenCounts(prompt=prompt, cached=cached, output=positive(usage, "completion"))
