"""aiperf result files: records of requests (.jsonl), those with the traffic itself (raw), and the inputs of a run.

A record holds `metadata` and `metrics`; a raw record (`--export-level raw`) the request and the reply too; outputs.json
holds what was answered. Prompts of a run stand in its inputs.json, whose sessions and turns the records name: given
beside them they are joined. Without, the name of the dataset's entry stands for the prompt, so that repeats are seen.
aiperf judges no output, so `bad` stays unknown. Its summaries (.json, .csv) hold figures over a run and no request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.importers.base import Asked, Found, Imported, Prompted, Unread
from prefillgate.importers.records import Damaged, Record, document, json_lines, moment, outline, text
from prefillgate.importers.replies import Beside, TokenCounts, asked_of, joined_stream, read_reply
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, TEXTS, Seen
from prefillgate.importers.source import ImportProblem, Source
from prefillgate.importers.told import Told, cached_within, mapping, texts_of

WARMUP = "a request of the warm-up: aiperf counts it in no figure"
_FLAGS = {
    PROMPTS: "inputs.json of the same folder in the same call, or --export-level raw",
    CACHED: "a server that reports cached tokens in `usage`",
    LENGTHS: "a tokenizer (--tokenizer), or --use-server-token-count",
    TEXTS: "--export-level raw",
}
_UNITS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}
_SUMMARY_CSV = (b"Metric,avg,", b"Metric,Avg,")


def begins_with_inputs(head: bytes) -> bool:
    """Whether a file is the inputs of a run: its sessions with their payloads."""
    return {"data.session_id", "data.payloads"} <= outline(head)


class AiperfResults:
    """The format `aiperf`."""

    name = "aiperf"
    title = "aiperf result files"

    def recognise(self, head: bytes) -> bool:
        """Records, raw records, inputs or outputs of a run; its summary as well, to say why it does not do."""
        keys = outline(head)
        return (
            {"metadata.x_request_id", "metadata.benchmark_phase"} <= keys
            or begins_with_inputs(head)
            or {"schema_version", "data.x_request_id", "data.response_text"} <= keys
            or _is_summary(head)
        )

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each request of the profiling phase, or a `Prompted` for each input."""
        head = source.head()
        if _is_summary(head):
            what = "a summary of aiperf holds figures over a run and no request"
            raise ImportProblem(Problem(source.name, "", what, "profile_export.jsonl of the same folder"))
        if begins_with_inputs(head):
            yield from _inputs(source)
            return
        seen = Seen()
        for found in _records(source):
            if isinstance(found, Imported):
                seen.add(found)
            yield found
        yield from seen.absent(_FLAGS)


def _is_summary(head: bytes) -> bool:
    if head.startswith(_SUMMARY_CSV):
        return True
    keys = outline(head)
    return {"request_latency.unit", "request_latency.avg"} <= keys and not {"metadata", "data"} & keys


def _inputs(source: Source) -> Iterator[Prompted | Unread]:
    """The payload of each turn of each session."""
    for place, session in enumerate(_list(document(source), "data", source)):
        where = f"{source.name}: data[{place}]"
        payloads = session.get("payloads") if isinstance(session, dict) else None
        if not isinstance(payloads, list):
            yield Unread(where, "a session without its payloads")
            continue
        for turn, payload in enumerate(payloads):
            asked = asked_of(payload)
            at = f"{where}.payloads[{turn}]"
            if asked is None:
                yield Unread(at, "a payload that is no chat or text completion")
            else:
                yield Prompted(asked, at, _named(session.get("session_id"), turn))


def _list(found: Any, name: str, source: Source) -> list[Any]:
    """The list under a name, empty where there is none. Raises `ImportProblem` for anything else."""
    entries = found.get(name, []) if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise ImportProblem(Problem(source.name, name, "is no list", "a file of aiperf"))
    return entries


def _named(session: Any, turn: Any) -> str | None:
    """What a prompt is called in every file of a run."""
    return f"{session[:200]}/{turn if type(turn) is int else 0}" if isinstance(session, str) and session else None


def _records(source: Source) -> Iterator[Imported | Unread]:
    if {"data.x_request_id"} <= outline(source.head()):
        yield from _outputs(source)
        return
    for found in json_lines(source):
        if isinstance(found, Unread):
            yield found
            continue
        where, record = found
        try:
            yield from _record(record, where)
        except Damaged as damage:
            yield Unread(where, str(damage))


def _outputs(source: Source) -> Iterator[Imported | Unread]:
    """outputs.json: its entries hold the metadata themselves and metrics without units (milliseconds and tokens)."""
    found = document(source)
    for name in ("data", "warmup"):
        for place, entry in enumerate(_list(found, name, source)):
            where = f"{source.name}: {name}[{place}]"
            try:
                if not isinstance(entry, dict):
                    raise Damaged("an entry that is no object")
                yield from _record({**entry, "metadata": entry}, where)
            except Damaged as damage:
                yield Unread(where, str(damage))


def _record(record: Record, where: str) -> Iterator[Imported | Unread]:
    metadata = mapping(record, "metadata")
    if not metadata:
        raise Damaged("no metadata: no record of aiperf")
    if metadata.get("benchmark_phase") == "warmup":
        yield Unread(where, WARMUP)
        return
    metrics = mapping(record, "metrics")
    named = _named(metadata.get("conversation_id"), metadata.get("turn_index"))
    asked = asked_of(record.get("payload"))
    failure = _failure(record, metadata)
    if failure is None and isinstance(record.get("responses"), list):
        yield from _raw(record, Beside(where, asked=asked, custom_id=named), metadata)
        return
    prompt = _tokens(metrics, "usage_prompt_tokens", "input_sequence_length", "error_isl")
    yield Told(
        where,
        asked=asked,
        custom_id=named,
        label=_label(asked),
        texts=texts_of(record.get("response_text")),
        counts=TokenCounts(
            prompt=prompt,
            cached=cached_within(_cached(metrics), prompt),
            output=_tokens(metrics, "usage_completion_tokens", "output_sequence_length", "output_token_count"),
        ),
        started_at=moment(metadata.get("request_start_ns")),
        ended_at=moment(metadata.get("request_end_ns")),
        time_to_first_token_ms=_milliseconds(metrics.get("time_to_first_token")),
        request_id=text(metadata, "x_request_id"),
        failure=failure,
    ).imported()


def _failure(record: Record, metadata: Mapping[str, Any]) -> str | None:
    error = record.get("error")
    if isinstance(error, dict):
        return text(error, "message") or text(error, "type") or "an error"
    if error:
        return "an error"
    return "cancelled by aiperf" if metadata.get("was_cancelled") is True else None


def _label(asked: Asked | None) -> str | None:
    model = asked.body.get("model") if asked is not None else None
    return model if isinstance(model, str) and model else None


def _raw(record: Record, beside: Beside, metadata: Mapping[str, Any]) -> Iterator[Imported]:
    """The choices of the reply that a raw record keeps, event by event or whole."""
    status = record.get("status")
    known = Beside(
        beside.where,
        asked=beside.asked,
        custom_id=beside.custom_id,
        request_id=text(metadata, "x_request_id"),
        http_status=status if type(status) is int else None,
        started_at=moment(metadata.get("request_start_ns")),
        ended_at=moment(metadata.get("request_end_ns")),
        label=_label(beside.asked),
        time_to_first_token_ms=_first_event_ms(record),
    )
    pieces: list[Record] = []
    for response in record["responses"]:
        for told in _data(response):
            try:
                piece = json.loads(told)
            except (ValueError, RecursionError) as error:
                raise Damaged("a response that is not JSON") from error
            if isinstance(piece, dict):
                pieces.append(piece)
    if not pieces:
        raise Damaged("a raw record without a response")
    yield from read_reply(pieces[0] if len(pieces) == 1 else joined_stream(pieces), known)


def _first_event_ms(record: Record) -> float | None:
    """From the request to the first event of a stream, as aiperf counts time_to_first_token; None of a whole body."""
    responses = record["responses"]
    first = responses[0] if isinstance(responses, list) and responses else None
    if not isinstance(first, dict) or not isinstance(first.get("packets"), list):
        return None
    began, came = record.get("start_perf_ns"), first.get("perf_ns")
    if type(began) is not int or type(came) is not int or not 0 <= came - began <= 10**18:
        return None
    return (came - began) / 1e6


def _data(response: Any) -> Iterator[str]:
    """The JSON texts in one kept response: that of a whole body, or those of the data fields of an event."""
    if not isinstance(response, dict):
        raise Damaged("a response that is no object")
    packets = response.get("packets")
    if not isinstance(packets, list):
        told = response.get("text")
        if isinstance(told, str) and told.strip():
            yield told
        return
    for packet in packets:
        value = packet.get("value") if isinstance(packet, dict) and packet.get("name") == "data" else None
        if isinstance(value, str) and value.strip() not in ("", "[DONE]"):
            yield value


def _value(metric: Any) -> tuple[Any, Any]:
    """The value of a metric and its unit, None where it has none (outputs.json)."""
    return (metric.get("value"), metric.get("unit")) if isinstance(metric, dict) else (metric, None)


def _tokens(metrics: Mapping[str, Any], *names: str) -> int | None:
    """The first of these counts that is told and is not zero."""
    for name in names:
        value, _ = _value(metrics.get(name))
        if value is not None:
            if type(value) not in (int, float) or not 0 <= value <= 10**12 or value % 1:
                raise Damaged("a metric that is no count of tokens")
            if value:
                return int(value)
    return None


def _cached(metrics: Mapping[str, Any]) -> int | None:
    value, _ = _value(metrics.get("usage_prompt_cache_read_tokens"))
    return 0 if value == 0 and type(value) in (int, float) else _tokens(metrics, "usage_prompt_cache_read_tokens")


def _milliseconds(metric: Any) -> float | None:
    value, unit = _value(metric)
    factor = 1.0 if unit is None else _UNITS.get(unit) if isinstance(unit, str) else None
    if value is None:
        return None
    if factor is None or type(value) not in (int, float) or not 0 <= value * factor <= 10.0**12:
        raise Damaged("time_to_first_token is no duration")
    return float(value * factor)
