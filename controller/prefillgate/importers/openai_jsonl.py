"""OpenAI-style replies as JSON lines: one reply a line, alone or beside its request.

A line is a reply (`choices`), or an object with `response` and mostly `request`; either may be the body itself, its
JSON or its stream as text, or an object that holds it as `body` beside `url` and `status`. Times may stand beside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from prefillgate.importers.base import Asked, Found, Imported
from prefillgate.importers.records import Damaged, Record, moment, outline, records, text
from prefillgate.importers.replies import Beside, asked_of, read_reply, whole_reply
from prefillgate.importers.seen import CACHED, LENGTHS, PROMPTS, Seen
from prefillgate.importers.source import Source

CACHED_FLAG = (
    "vLLM: --enable-prompt-tokens-details; SGLang: --enable-cache-report; llama.cpp: a build that tells timings"
)
FLAGS = {
    PROMPTS: 'lines of {"request": ..., "response": ...}',
    LENGTHS: 'stream_options {"include_usage": true} in a streamed request',
    CACHED: CACHED_FLAG,
}
_STARTED = ("started_at", "start_time", "startTime", "timestamp", "created_at", "time")
_ENDED = ("ended_at", "end_time", "endTime", "finished_at")


class OpenAIJsonLines:
    """The format `openai-jsonl`."""

    name = "openai-jsonl"
    title = "OpenAI-style responses as JSON lines"

    def recognise(self, head: bytes) -> bool:
        """Objects with choices, or with a response that has them."""
        keys = outline(head)
        return "choices" in keys or "response" in keys or {"content", "timings"} <= keys

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each choice of each reply. Raises `ImportProblem` for a damaged stream."""
        seen = Seen()
        yield from seen.tell(records(source), _reply)
        yield from seen.absent(FLAGS)


def _reply(line: Record, where: str) -> Iterable[Imported]:
    return _paired(line, where) if "response" in line else read_reply(line, Beside(where))


def _paired(line: Record, where: str) -> list[Any]:
    request, address, _ = unwrapped(line.get("request"))
    reply, _, status = unwrapped(line.get("response"))
    asked: Asked | None = None
    if request is not None:
        address = address or text(line, "url") or text(line, "path")
        asked = asked_of(request, address)
    if reply is None:
        raise Damaged("a request without a response")
    beside = Beside(
        where,
        asked=asked,
        custom_id=text(line, "custom_id"),
        http_status=status,
        started_at=_moment(line, _STARTED),
        ended_at=_moment(line, _ENDED),
    )
    return list(read_reply(reply, beside))


def unwrapped(value: Any) -> tuple[Record | None, str | None, int | None]:
    """The body in `value`, with the address and the HTTP status that stand around it. Raises `Damaged`."""
    address = status = None
    if isinstance(value, dict) and "body" in value and not {"choices", "messages", "prompt"} & value.keys():
        address = text(value, "url") or text(value, "path")
        told = value.get("status_code", value.get("status"))
        status = told if type(told) is int else None
        value = value["body"]
    if isinstance(value, str) and value.strip():
        value = body_in(value)
    if value is None or isinstance(value, dict):
        return value, address, status
    raise Damaged("a request or response that is no object")


def body_in(told: str) -> Any:
    """The JSON of a body kept as text, or the reply of a stream kept as text. Raises `Damaged`."""
    if told.lstrip().startswith(("data:", "event:", ":", "id:")):
        return whole_reply(told)
    try:
        return json.loads(told)
    except (ValueError, RecursionError) as error:
        raise Damaged("a body that is not JSON") from error


def _moment(line: Record, names: tuple[str, ...]) -> float | None:
    for name in names:
        if name in line:
            return moment(line[name])
    return None
