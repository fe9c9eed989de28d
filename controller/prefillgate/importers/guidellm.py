"""guidellm reports, as JSON or YAML, of its versions 0.2 to 0.8.

A request stands under `requests` of a benchmark, by how it ended: successful ones are cells, incomplete and errored
ones are invalid. Prompts stand in `prompt` (until 0.3) or in `request_args` as the body that was sent (later). The
label is the model: all benchmarks of a report ran on one server, so a prompt that two of them sent is one prompt.
guidellm judges no output, so `bad` stays unknown. Its CSV holds figures over whole benchmarks and no request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.core.journal import Texts
from prefillgate.importers.base import Absent, Asked, Found, Imported, Unread
from prefillgate.importers.records import (
    Damaged,
    Record,
    count,
    document,
    milliseconds,
    moment,
    outline,
    text,
    yaml_document,
)
from prefillgate.importers.replies import TokenCounts, asked_of
from prefillgate.importers.seen import CACHED, PROMPTS, Seen
from prefillgate.importers.source import ImportProblem, Source
from prefillgate.importers.told import Told, as_json, asked_text, between_ms, cached_within, mapping

LEFT_OUT = "requests that the report leaves out"
_FLAGS = {
    PROMPTS: "a report of every request (no sample of them), of guidellm 0.4 or later",
    CACHED: "guidellm 0.8 or later, and a server that reports cached tokens in `usage`",
}
_STATUSES = ("successful", "incomplete", "errored")
_CSV = (b"Run Info,", b"Type,Run Id,")
_YAML = re.compile(rb"^(?:args|benchmarks):", re.MULTILINE)
_YAML_INSIDE = re.compile(
    rb"^ +(?:strategy|scheduler_state|request_loader|type_: generative_benchmark)\b", re.MULTILINE
)


class GuidellmReport:
    """The format `guidellm`."""

    name = "guidellm"
    title = "guidellm reports"

    def recognise(self, head: bytes) -> bool:
        """A report with benchmarks, in JSON or YAML; its CSV as well, to say why it does not do."""
        if head.startswith(_CSV):
            return True
        if not head.lstrip().startswith(b"{"):
            return _YAML.search(head) is not None and _YAML_INSIDE.search(head) is not None
        keys = outline(head, 4)
        inside = {"benchmarks.config", "benchmarks.args", "benchmarks.requests", "benchmarks.type_"}
        return bool(inside & keys) or {"metadata.guidellm_version"} <= keys

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each request of each benchmark. Raises `ImportProblem` for what is no report."""
        report = _report(source)
        benchmarks = report.get("benchmarks")
        if not isinstance(benchmarks, list):
            raise ImportProblem(Problem(source.name, "benchmarks", "is no list", "a report of guidellm"))
        seen = Seen()
        left_out = False
        for place, benchmark in enumerate(benchmarks):
            where = f"{source.name}: benchmarks[{place}]"
            if not isinstance(benchmark, dict):
                yield Unread(where, "a benchmark that is no object")
                continue
            kept = 0
            for found in _requests(benchmark, where, _model(report, benchmark)):
                if isinstance(found, Imported):
                    seen.add(found)
                kept += 1
                yield found
            left_out = left_out or _ran(benchmark) > kept
        if left_out:
            yield Absent(LEFT_OUT, "a run that keeps them all (no --sample-requests, no sample_size)")
        yield from seen.absent(_FLAGS)


def _report(source: Source) -> Record:
    head = source.head()
    if head.startswith(_CSV):
        what = "guidellm's CSV holds figures over whole benchmarks and no request"
        raise ImportProblem(Problem(source.name, "", what, "its JSON or YAML report of the same run"))
    found = document(source) if head.lstrip().startswith(b"{") else yaml_document(source)
    if not isinstance(found, dict):
        raise ImportProblem(Problem(source.name, "", "not the object of a report", "a report of guidellm"))
    return found


def _model(report: Record, benchmark: Record) -> str | None:
    """The model of the backend, wherever the version of the report keeps it."""
    for owner in (report, benchmark):
        for name in ("config", "args", "worker"):
            settings = owner.get(name)
            if not isinstance(settings, dict):
                continue
            backend = settings.get("backend")
            inner = backend if isinstance(backend, dict) else settings
            found = text(inner, "model") or text(settings, "model") or text(settings, "backend_model")
            if found is not None:
                return found
    return None


def _ran(benchmark: Record) -> int:
    """How many requests the benchmark says that it ran; 0 where it does not."""
    metrics = benchmark.get("metrics")
    totals = metrics.get("request_totals") if isinstance(metrics, dict) else None
    totals = totals if isinstance(totals, dict) else benchmark.get("request_totals")
    total = totals.get("total") if isinstance(totals, dict) else None
    return total if type(total) is int else 0


def _requests(benchmark: Record, where: str, model: str | None) -> Iterator[Imported | Unread]:
    requests = benchmark.get("requests")
    if not isinstance(requests, dict):
        yield Unread(where, "a benchmark without its requests")
        return
    for status in _STATUSES:
        found = requests.get(status)
        if found is not None and not isinstance(found, list):
            yield Unread(f"{where}.{status}", "requests that are no list")
        for place, request in enumerate(found if isinstance(found, list) else ()):
            at = f"{where}.{status}[{place}]"
            try:
                if not isinstance(request, dict):
                    raise Damaged("a request that is no object")
                yield _request(request, at, status, model)
            except Damaged as damage:
                yield Unread(at, str(damage))


def _request(request: Record, where: str, status: str, model: str | None) -> Imported:
    info = mapping(request, "info")
    timings = mapping(info, "timings")
    asked = _asked(request)
    prompt = _tokens(request, "prompt_tokens", "input_metrics")
    started = _time(request, timings, "request_start_time", "start_time", "request_start")
    first = _time(request, timings, "first_token_time", "first_token_iteration", "first_iteration")
    waited = milliseconds(request, "time_to_first_token_ms")
    named = asked.body.get("model") if asked is not None else None
    return Told(
        where,
        asked=asked,
        label=named if isinstance(named, str) and named else model,
        texts=_texts(request),
        counts=TokenCounts(
            prompt=prompt,
            cached=cached_within(_cached(request), prompt),
            output=_tokens(request, "output_tokens", "output_metrics"),
        ),
        started_at=started,
        ended_at=_time(request, timings, "request_end_time", "end_time", "request_end"),
        time_to_first_token_ms=between_ms(started, first) if waited is None else waited or None,
        request_id=text(request, "response_id") or text(request, "request_id"),
        failure=None if status == "successful" else text(info, "error") or text(request, "error") or status,
    ).imported()


def _asked(request: Record) -> Asked | None:
    prompt = request.get("prompt")
    if isinstance(prompt, str) and prompt:
        return asked_text(prompt, chat=request.get("request_type") != "text_completions")
    told = request.get("request_args")
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            return None
    if not isinstance(told, dict):
        return None
    body = told.get("body", told.get("json"))
    return asked_of(body if isinstance(body, dict) else told)


def _tokens(request: Record, name: str, metrics: str) -> int | None:
    told = count(request, name)
    inside = mapping(request, metrics)
    return told or count(inside, "total_tokens") or count(inside, "text_tokens") or None


def _cached(request: Record) -> int | None:
    told = count(request, "cached_tokens")
    return count(mapping(request, "input_metrics"), "cached_tokens") if told is None else told


def _time(request: Record, timings: Mapping[str, Any], *names: str) -> float | None:
    for owner in (request, timings):
        for name in names:
            found = moment(owner.get(name))
            if found is not None:
                return found
    return None


def _texts(request: Record) -> Texts | None:
    said, thought, calls = request.get("output"), request.get("reasoning_output"), request.get("tool_calls")
    if said is None and thought is None and not calls:
        return None
    return Texts(
        said if isinstance(said, str) else "",
        thought if isinstance(thought, str) else "",
        as_json(calls) if isinstance(calls, list) and calls else "",
    )
