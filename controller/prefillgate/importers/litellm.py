"""LiteLLM: standard logging payloads (callbacks, JSON lines) and rows of its spend logs (JSON exports).

One record is a call: `call_type`, `startTime`, `endTime`, `model`, `prompt_tokens`, `cache_hit`; what the server said
of its tokens is in `response.usage` or `metadata.usage_object`. A call with `cache_hit` was answered by LiteLLM
itself: no server saw it, so it is no request and no prefill. Keys, users and addresses of clients are never kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from prefillgate.api.replay_set import CHAT, COMPLETIONS
from prefillgate.importers.base import Asked, Found, Imported, Unread
from prefillgate.importers.openai_jsonl import CACHED_FLAG, unwrapped
from prefillgate.importers.records import Damaged, Record, moment, outline, records, text
from prefillgate.importers.replies import Beside, asked_of, failed_request, read_reply
from prefillgate.importers.seen import CACHED, PROMPTS, TEXTS, Seen
from prefillgate.importers.source import Source

STORE = "general_settings: store_prompts_in_spend_logs: true, and no turn_off_message_logging"
FLAGS = {PROMPTS: STORE, TEXTS: STORE, CACHED: CACHED_FLAG}
FROM_CACHE = "answered from LiteLLM's own cache: no request to a server, zero prefills"
CUT = "litellm_truncated"  # stands in a text of which the database keeps the ends only
REDACTED = "redacted-by-litellm"
_COMPLETIONS = frozenset({"completion", "acompletion", "text_completion", "atext_completion"})
_WRAPPED = "standard_logging_object"
_NOT_ASKED = frozenset(
    {"metadata", "litellm_params", "litellm_metadata", "proxy_server_request", "extra_headers", "user"}
)


class LiteLlm:
    """The format `litellm`."""

    name = "litellm"
    title = "LiteLLM's logs"

    def recognise(self, head: bytes) -> bool:
        """Calls with their type, start and what LiteLLM alone tells beside them."""
        keys = {key.removeprefix(f"{_WRAPPED}.").removeprefix("data.") for key in outline(head)}
        return {"call_type", "startTime"} <= keys and bool({"spend", "trace_id", "model_group", "cache_hit"} & keys)

    def read(self, source: Source) -> Iterator[Found]:
        """A cell for each choice of each call that reached a server."""
        seen = Seen()
        yield from seen.tell(_calls(source), _call)
        yield from seen.absent(FLAGS)


def _calls(source: Source) -> Iterator[tuple[str, Record] | Unread]:
    """Each call: a record, what is wrapped in it, or each of its `data` (a page of the API)."""
    for record in records(source):
        if isinstance(record, Unread):
            yield record
            continue
        where, call = record
        page = call.get("data")
        if isinstance(page, list):
            for place, each in enumerate(page):
                inner = f"{where}.data[{place}]"
                yield (inner, each) if isinstance(each, dict) else Unread(inner, "not a JSON object")
            continue
        inside = call.get(_WRAPPED)
        yield where, inside if isinstance(inside, dict) else call


def _call(call: Record, where: str) -> list[Imported]:
    kind = call.get("call_type")
    if not isinstance(kind, str) or kind not in _COMPLETIONS:
        raise Damaged("a call that is no chat or text completion")
    if str(call.get("cache_hit")).lower() == "true":
        raise Damaged(FROM_CACHE)
    metadata = _object(call.get("metadata")) or {}
    started = moment(call.get("startTime"))
    asked = _asked(call, kind)
    beside = Beside(
        where,
        asked=None if asked is None or _hidden(asked.body) else asked,
        request_id=text(call, "id") or text(call, "request_id"),
        started_at=started,
        ended_at=moment(call.get("endTime")),
        label=_address(call) or text(call, "model"),
        time_to_first_token_ms=_first_token(call, started),
    )
    if (text(call, "status") or text(metadata, "status")) == "failure":
        return [failed_request(_error(call, metadata), beside)]
    return read_reply(_reply(call, metadata), beside)


def _asked(call: Record, kind: str) -> Asked | None:
    """The request: its body as the proxy took it, else the messages with the parameters of the call."""
    body, _, _ = unwrapped(_object(call.get("proxy_server_request")))
    told = None if body is None else asked_of(body)
    if told is None:
        messages = call.get("messages")
        known = _object(call.get("model_parameters")) or {}
        known = {"model": text(call, "model_group") or text(call, "model"), **known}
        if isinstance(messages, str) and messages and not messages.lstrip().startswith(("[", "{")):
            told = Asked(COMPLETIONS, {**known, "prompt": messages})
        elif isinstance(messages := _parsed(messages), list) and messages:
            told = Asked(CHAT, {**known, "messages": messages})
    if told is None:
        return None
    if kind.endswith("text_completion") and told.path == CHAT:
        return None  # LiteLLM's own wrapping of a prompt: the body that was sent is not this one
    return Asked(told.path, {name: value for name, value in told.body.items() if name not in _NOT_ASKED})


def _hidden(body: Any) -> bool:
    """Whether a prompt is not the one that was sent: cut for the database, or taken out."""
    told = json.dumps({name: body.get(name) for name in ("messages", "prompt")}, default=str)
    return CUT in told or REDACTED in told


def _reply(call: Record, metadata: Record) -> Record:
    """The response with the usage that LiteLLM keeps beside it; without content where that was taken out."""
    response = _object(call.get("response")) or {}
    usage = response.get("usage") or _object(metadata.get("usage_object"))
    if not usage:
        told = {name: call.get(name) for name in ("prompt_tokens", "completion_tokens")}
        usage = {name: value for name, value in told.items() if value != 0}  # 0 is what was never told
    if "choices" not in response or CUT in json.dumps(response, default=str) or REDACTED in str(response["choices"]):
        response = {"choices": [{}], "model": call.get("model")}
    return {**response, "usage": usage}


def _error(call: Record, metadata: Record) -> Record:
    told = _object(call.get("error_information")) or _object(metadata.get("error_information")) or {}
    code = told.get("error_code")
    number = int(code) if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3 else code
    return {"type": text(told, "error_class"), "code": number}


def _first_token(call: Record, started: float | None) -> float | None:
    """Milliseconds to the first token of a streamed call; of another LiteLLM tells its end there."""
    first, ended = moment(call.get("completionStartTime")), moment(call.get("endTime"))
    if started is None or first is None or ended is None or not started <= first < ended:
        return None
    return (first - started) * 1000


def _address(call: Record) -> str | None:
    address = text(call, "api_base")
    try:
        return None if address is None else urlsplit(address).netloc.rpartition("@")[2] or None
    except ValueError:
        return None


def _object(value: Any) -> Record | None:
    """An object, or one kept as its JSON; None for anything else."""
    value = _parsed(value)
    return value if isinstance(value, dict) else None


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
