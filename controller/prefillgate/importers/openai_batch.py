"""OpenAI Batch files: the input (`custom_id`, `method`, `url`, `body`) and the output, joined by `custom_id`.

A line of the output or of the error file is `custom_id` with `response` (`status_code`, `body`) or `error`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prefillgate.importers.base import Found, Imported, Prompted
from prefillgate.importers.openai_jsonl import CACHED_FLAG
from prefillgate.importers.records import Damaged, Record, outline, records, text
from prefillgate.importers.replies import Beside, asked_of, failed_request, read_reply
from prefillgate.importers.seen import CACHED, PROMPTS, Seen
from prefillgate.importers.source import Source

FLAGS = {PROMPTS: "the Batch input in the same call", CACHED: CACHED_FLAG}


class OpenAIBatch:
    """The format `openai-batch`: input and output lines, in files of their own or mixed."""

    name = "openai-batch"
    title = "OpenAI Batch input and output"

    def recognise(self, head: bytes) -> bool:
        """Lines with a custom_id and a body, a response or an error beside it."""
        keys = outline(head)
        return "custom_id" in keys and ({"url", "body"} <= keys or "response" in keys or "error" in keys)

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each choice of an output line, a `Prompted` for each input line."""
        seen = Seen()
        yield from seen.tell(records(source), _line)
        yield from seen.absent(FLAGS)


def begins_with_requests(head: bytes) -> bool:
    """Whether a file begins as a Batch input does: answers of another file may name its requests."""
    keys = outline(head)
    return {"custom_id", "url", "body"} <= keys and "response" not in keys


def _line(line: Record, where: str) -> list[Imported | Prompted]:
    custom_id = text(line, "custom_id")
    if "body" in line and "response" not in line:
        asked = asked_of(line["body"], text(line, "url"))
        if asked is None:
            raise Damaged("a Batch input line to another route than a chat or text completion")
        return [Prompted(asked, where, custom_id)]
    response, error = line.get("response"), line.get("error")
    if response is None and error is None:
        raise Damaged("a Batch line with neither body, response nor error")
    if response is None:
        return [failed_request(error, Beside(where, custom_id=custom_id))]
    if not isinstance(response, dict):
        raise Damaged("response is no object")
    status = response.get("status_code")
    status = status if type(status) is int else None
    beside = Beside(where, custom_id=custom_id, http_status=status)
    body = response.get("body")
    if not isinstance(body, dict):
        if status in (None, 200):
            raise Damaged("response.body is no object")
        return [failed_request(error or {"type": "an error reply"}, beside)]
    return list(read_reply(body, beside))
