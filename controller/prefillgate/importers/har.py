"""HAR, the archive of HTTP requests that browsers and proxies save: entries to routes of OpenAI and llama.cpp.

Read of an entry: `request.url` and `postData.text`, `response.status` and `content.text` (plain or base64, whole or a
stream of events), `startedDateTime` and `time`. Headers, cookies and the query of an address are never kept. When the
first byte came (`timings.wait`) is no first token: servers answer with headers before they prefill.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from prefillgate.api.errors import Problem
from prefillgate.importers.base import Absent, Found, Imported, Unread
from prefillgate.importers.openai_jsonl import CACHED_FLAG, body_in
from prefillgate.importers.records import Damaged, document, moment, outline, text
from prefillgate.importers.replies import Beside, asked_of, failed_request, read_reply
from prefillgate.importers.seen import CACHED, PROMPTS, Seen
from prefillgate.importers.source import ImportProblem, Source

FLAGS = {PROMPTS: "an archive saved with request bodies", CACHED: CACHED_FLAG}
NO_BODIES = Absent(
    "some response bodies", "save the archive with content (browsers drop the text of streams: use a proxy)"
)


class Har:
    """The format `har`."""

    name = "har"
    title = "a HAR archive"

    def recognise(self, head: bytes) -> bool:
        """A log with entries or a creator."""
        keys = outline(head)
        return "log.entries" in keys or {"log.version", "log.creator"} <= keys

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each choice of each answer. Raises `ImportProblem` where the file is no archive."""
        found = document(source)
        log = found.get("log") if isinstance(found, dict) else None
        entries = log.get("entries") if isinstance(log, dict) else None
        if not isinstance(entries, list):
            raise ImportProblem(Problem(source.name, "log.entries", "no list of entries", "a HAR archive"))
        seen = Seen()
        without_body = False
        for place, entry in enumerate(entries):
            where = f"{source.name}[{place}]"
            try:
                requests = _entry(entry, where)
            except Damaged as damage:
                yield Unread(where, str(damage))
                continue
            for each in requests:
                seen.add(each)
                without_body = without_body or (each.texts is None and each.line.scored)
                yield each
        if without_body:
            yield NO_BODIES
        yield from seen.absent(FLAGS)


def _entry(entry: Any, where: str) -> list[Imported]:
    request, response = _part(entry, "request"), _part(entry, "response")
    address = text(request, "url") or ""
    try:
        split = urlsplit(address)
        host = split.netloc.rpartition("@")[2] or None
    except ValueError as error:
        raise Damaged("an address that is none") from error
    posted = _body(request.get("postData"))
    asked = asked_of(posted if isinstance(posted, dict) else {}, split.path)
    if asked is None:
        raise Damaged("a request to another route than a chat or text completion")
    if request.get("method") not in ("POST", None):
        raise Damaged("a request to a route of completions that is no POST")
    started, took = moment(entry.get("startedDateTime")), entry.get("time")
    told = response.get("status")
    status = told if type(told) is int and told > 0 else None
    beside = Beside(
        where,
        asked=asked if isinstance(posted, dict) else None,
        http_status=status,
        started_at=started,
        ended_at=started + took / 1000 if started is not None and type(took) in (int, float) and took >= 0 else None,
        label=host,
    )
    if status is None:
        return [failed_request({"type": "no answer"}, beside)]
    reply = _body(response.get("content"))
    if reply is None:
        return read_reply({"choices": [{}]}, beside)
    if not isinstance(reply, dict):
        raise Damaged("an answer that is no object")
    return read_reply(reply, beside)


def _part(owner: Any, name: str) -> Mapping[str, Any]:
    part = owner.get(name) if isinstance(owner, dict) else None
    if not isinstance(part, dict):
        raise Damaged(f"an entry without its {name}")
    return part


def _body(content: Any) -> Any:
    """What was posted or answered; None where the archive leaves it out. Raises `Damaged`."""
    told = text(content, "text") if isinstance(content, dict) else None
    if told is None or not told.strip():
        return None
    if content.get("encoding") == "base64":
        try:
            told = base64.b64decode(told, validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as error:
            raise Damaged("a body that is not base64") from error
    return body_in(told)
