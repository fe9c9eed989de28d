"""inspect_ai logs, as one JSON document (.json) or as the zip archive of its samples (.eval).

Each model event of a sample is a request; epochs repeat the samples. A call that inspect answered from its own cache is
no request. Where the call itself was logged (`--log-model-api`), prompt and counters are read from it. The label is the
model; models in another role and those that scorers asked are labelled so. A log without events tells only the last
answer of each sample.

`bad` is filled where a sample asked its model once and has one score whose value is C (correct) or I (incorrect).
Partial credit, numbers and several scores do not say whether one output was bad.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prefillgate.importers.base import Absent, Asked, Found, Imported, Unread
from prefillgate.importers.inspect_messages import Pool, chat_body, texts_of_choice
from prefillgate.importers.records import Damaged, Record, count, document, moment, outline, text
from prefillgate.importers.replies import TokenCounts, asked_of, read_counts
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, Seen
from prefillgate.importers.source import Source
from prefillgate.importers.told import Told, as_json, cached_within, mapping, positive, prompt_length
from prefillgate.importers.zipped import MAGIC, Archive

MAX_ARCHIVE_BYTES = 512 * 1024 * 1024
FROM_CACHE = "no request: inspect answered it from its own cache (generate without `cache` asks the server)"
EARLIER = "answers of a sample before its last"
_FLAGS = {
    CACHED: "a server that reports cached tokens in `usage`, or its own log",
    LENGTHS: "a server that reports `usage`",
    PROMPTS: "--log-model-api, or a log with its message pool",
}
_SCORES = {"C": False, "I": True}
_FINISHES = {"max_tokens": "length", "model_length": "length", "unknown": None}


class InspectLog:
    """The format `inspect`."""

    name = "inspect"
    title = "inspect_ai logs (.eval, .json)"

    def recognise(self, head: bytes) -> bool:
        """An archive that begins with a journal, a header or samples; or a document with an eval and a status."""
        if head.startswith(MAGIC):
            named = head[30 : 30 + int.from_bytes(head[26:28], "little")]
            return named.startswith((b"_journal/", b"samples/")) or named in (b"header.json", b"summaries.json")
        keys = outline(head)
        return {"version", "status", "eval.task"} <= keys or {"eval.run_id", "eval.model"} <= keys

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each model call of each sample. Raises `ImportProblem` for a document that is none."""
        seen = Seen()
        samples = _in_archive(source) if source.head().startswith(MAGIC) else _in_document(source)
        for sample in samples:
            for found in (sample,) if isinstance(sample, Unread) else _calls(sample):
                if isinstance(found, Imported):
                    seen.add(found)
                yield found
        yield from seen.absent(_FLAGS)


@dataclass(frozen=True, slots=True)
class _Sample:
    where: str
    model: str | None
    record: Record


def _in_document(source: Source) -> Iterator[_Sample | Unread]:
    log = document(source)
    if not isinstance(log, dict):
        yield Unread(source.name, "not the object of an inspect log")
        return
    samples = log.get("samples")
    if not isinstance(samples, list):
        yield Unread(source.name, "a log without samples (log_samples was off, or only its header was kept)")
        return
    for place, sample in enumerate(samples):
        where = f"{source.name}: samples[{place}]"
        if isinstance(sample, dict):
            yield _Sample(where, _model(log), sample)
        else:
            yield Unread(where, "a sample that is no object")


def _in_archive(source: Source) -> Iterator[_Sample | Unread]:
    """The samples of an archive, one at a time; a log that was not finished has a journal and no header."""
    try:
        archive = Archive(source.whole(MAX_ARCHIVE_BYTES))
        names = archive.names()
        header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        model = None if header is None else _model(_member(archive, header))
    except Damaged as damage:
        yield Unread(source.name, str(damage))
        return
    for name in names:
        if name.startswith("samples/"):
            where = f"{source.name}: {name}"
            try:
                yield _Sample(where, model, _member(archive, name))
            except Damaged as damage:
                yield Unread(where, str(damage))


def _member(archive: Archive, name: str) -> Record:
    try:
        found = json.loads(archive.read(name))
    except (ValueError, RecursionError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged("a member of the archive that is not JSON") from error
    if not isinstance(found, dict):
        raise Damaged("a sample that is no object")
    return found


def _model(log: Mapping[str, Any]) -> str | None:
    head = log.get("eval")
    return text(head, "model") if isinstance(head, dict) else None


def _calls(sample: _Sample) -> Iterator[Found]:
    """Every model call of a sample, in order."""
    events = sample.record.get("events")
    if not isinstance(events, list) or not events:
        yield Absent(EARLIER, "a log with its events")
        try:
            yield _last_answer(sample)
        except Damaged as damage:
            yield Unread(sample.where, str(damage))
        return
    pool = Pool(sample.record)
    calls = list(_model_events(events))
    alone = sum(1 for _, _, scorer in calls if not scorer) == 1
    for place, event, scorer in calls:
        where = f"{sample.where}.events[{place}]"
        bad = _bad(sample.record) if alone and not scorer else None
        try:
            yield _call(event, where, _label(event, sample.model, scorer), pool, bad)
        except Damaged as damage:
            yield Unread(where, str(damage))


def _model_events(events: list[Any]) -> Iterator[tuple[int, Record, bool]]:
    """Model events with their places, and whether a scorer made them (spans of today, steps of older logs)."""
    scorers: set[Any] = set()
    steps = 0
    for place, event in enumerate(events):
        kind = event.get("event") if isinstance(event, dict) else None
        if kind == "span_begin":
            named = event.get("type") == "scorer" or event.get("name") == "scorers"
            if named or _hashable(event.get("parent_id")) in scorers:
                scorers.add(_hashable(event.get("id")))
        elif kind == "step":
            of_scorer = event.get("type") == "scorer"
            steps += of_scorer * (1 if event.get("action") == "begin" else -1)
        elif kind == "model":
            yield place, event, steps > 0 or _hashable(event.get("span_id")) in scorers


def _hashable(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _label(event: Record, model: str | None, scorer: bool) -> str | None:
    named = text(event, "model") or model
    role = text(event, "role") or ("scorer" if scorer else None)
    return named if named is None or role is None else f"{named} ({role})"


def _call(event: Record, where: str, label: str | None, pool: Pool, bad: bool | None) -> Imported | Unread:
    if event.get("cache") == "read":
        return Unread(where, FROM_CACHE)
    if event.get("pending") is True:
        return Unread(where, "a call that had not come back when the log was written")
    output = mapping(event, "output")
    asked, raw = _logged_call(event)
    if asked is None:
        messages = pool.messages(event)
        asked = None if messages is None else chat_body(messages, event.get("tools"))
    counts = _counts(output.get("usage")) if raw is None else raw
    error = text(event, "error") or text(output, "error")
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    return Told(
        where,
        asked=asked,
        label=label,
        texts=None if first is None else texts_of_choice(first, pool),
        counts=counts,
        started_at=moment(event.get("timestamp")),
        ended_at=moment(event.get("completed")),
        finish_reason=None if first is None else _finish(first),
        bad=bad,
        failure=error,
    ).imported()


def _logged_call(event: Record) -> tuple[Asked | None, TokenCounts | None]:
    """Request and counters of the call as it went to the server, where the log kept them."""
    call = event.get("call")
    if not isinstance(call, dict):
        return None, None
    reply = call.get("response")
    counts = None
    if isinstance(reply, dict) and isinstance(reply.get("usage"), dict) and "prompt_tokens" in reply["usage"]:
        counts = read_counts(reply)
    request = call.get("request")
    refers = isinstance(request, dict) and "attachment://" in as_json(request.get("messages", request.get("prompt")))
    return (None if refers else asked_of(request)), counts


def _counts(usage: Any) -> TokenCounts:
    if usage is None:
        return TokenCounts()
    if not isinstance(usage, dict):
        raise Damaged("usage is no object")
    parts = {
        "input": count(usage, "input_tokens"),
        "output": count(usage, "output_tokens"),
        "total": positive(usage, "total_tokens"),
        "cached": count(usage, "input_tokens_cache_read"),
        "written": count(usage, "input_tokens_cache_write"),
    }
    prompt = prompt_length(parts) or None
    return TokenCounts(prompt=prompt, cached=cached_within(parts["cached"], prompt), output=parts["output"])


def _finish(choice: Record) -> str | None:
    reason = text(choice, "stop_reason")
    return reason if reason is None else _FINISHES.get(reason, reason)


def _bad(sample: Record) -> bool | None:
    scores = sample.get("scores")
    if not isinstance(scores, dict) or len(scores) != 1 or sample.get("error"):
        return None
    (score,) = scores.values()
    value = score.get("value") if isinstance(score, dict) else None
    return _SCORES.get(value) if isinstance(value, str) else None


def _last_answer(sample: _Sample) -> Imported:
    """The request of which `output` is the answer: the messages before it."""
    record = sample.record
    output = mapping(record, "output")
    messages = record.get("messages")
    asked = None
    turns = 0
    if isinstance(messages, list) and all(isinstance(each, dict) for each in messages):
        turns = sum(1 for each in messages if each.get("role") == "assistant")
        asked = chat_body(messages[:-1], None) if turns and messages[-1].get("role") == "assistant" else None
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    return Told(
        sample.where,
        asked=asked,
        label=text(output, "model") or sample.model,
        texts=None if first is None else texts_of_choice(first, Pool(record)),
        counts=_counts(output.get("usage")),
        finish_reason=None if first is None else _finish(first),
        bad=_bad(record) if turns == 1 else None,
        failure=text(output, "error") or ("no answer" if first is None else None),
    ).imported()
