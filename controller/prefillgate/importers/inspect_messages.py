"""Messages of inspect_ai logs as requests: without the ids of every sample, with what a log stores apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefillgate.api.replay_set import CHAT
from prefillgate.core.journal import Texts
from prefillgate.importers.base import Asked
from prefillgate.importers.records import Damaged, Record
from prefillgate.importers.told import as_json

_ATTACHED = "attachment://"
_KEPT = ("role", "content", "tool_call_id")


class Pool:
    """What a sample stores once and refers to: messages by range, long texts by digest."""

    def __init__(self, sample: Mapping[str, Any]) -> None:
        pooled = sample.get("events_data")
        messages = pooled.get("messages") if isinstance(pooled, dict) else None
        attached = sample.get("attachments")
        self._messages = messages if isinstance(messages, list) else []
        self._attached = attached if isinstance(attached, dict) else {}

    def messages(self, event: Record) -> list[Record] | None:
        """The input of a model event, whole; None where the log does not hold all of it. Raises `Damaged`."""
        refs = event.get("input_refs")
        found = list(self._referred(refs)) if refs else event.get("input")
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise Damaged("the input of a model event is no list of messages")
        try:
            whole = [self._whole(each) for each in found]
        except RecursionError as error:
            raise Damaged("nested too deep") from error
        return whole if whole and None not in whole else None

    def _referred(self, refs: Any) -> Iterator[Any]:
        for ref in refs if isinstance(refs, list) else ():
            if not isinstance(ref, list) or len(ref) != 2 or not all(type(each) is int for each in ref):
                raise Damaged("input_refs holds something that is no range")
            begin, end = ref
            if not 0 <= begin <= end <= len(self._messages):
                raise Damaged("input_refs goes beyond the messages of the sample")
            yield from self._messages[begin:end]

    def _whole(self, value: Any) -> Any:
        """`value` with its attachments in place; None for a text that is attached and missing."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            found = [self._whole(each) for each in value]
            return (
                None if any(new is None and old is not None for new, old in zip(found, value, strict=True)) else found
            )
        if isinstance(value, dict):
            pairs = {key: self._whole(each) for key, each in value.items()}
            return None if any(pairs[key] is None and value[key] is not None for key in pairs) else pairs
        return value

    def text(self, told: str) -> str | None:
        """A text, or the attachment that it names; None where that is not there."""
        if not told.startswith(_ATTACHED):
            return told
        found = self._attached.get(told.removeprefix(_ATTACHED))
        return found if isinstance(found, str) else None


def chat_body(messages: list[Record], tools: Any) -> Asked:
    """The request of messages and tools as a chat completion."""
    body: Record = {"messages": [_plain(each) for each in messages]}
    named = [each for each in tools if isinstance(each, dict)] if isinstance(tools, list) else []
    if named:
        body["tools"] = [
            {"type": "function", "function": {key: tool.get(key) for key in ("name", "description", "parameters")}}
            for tool in named
        ]
    return Asked(CHAT, body)


def _plain(message: Record) -> Record:
    plain = {key: message[key] for key in _KEPT if message.get(key) is not None}
    content = plain.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        if all(part.get("type") == "text" for part in content):
            plain["content"] = "\n".join(str(part.get("text", "")) for part in content)
        else:
            plain["content"] = [{key: part[key] for key in part if key not in ("id", "internal")} for part in content]
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        plain["tool_calls"] = [
            {
                "type": "function",
                "id": each.get("id"),
                "function": {"name": each.get("function"), "arguments": as_json(each.get("arguments"))},
            }
            for each in calls
            if isinstance(each, dict)
        ]
    return plain


def texts_of_choice(choice: Record, pool: Pool) -> Texts | None:
    """What a choice said; None where the log stores it elsewhere."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    content, reasoning = message.get("content"), ""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        reasoning = "".join(str(part.get("reasoning", "")) for part in parts if part.get("type") == "reasoning")
        content = "".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
    said = pool.text(content) if isinstance(content, str) else None
    if said is None:
        return None
    calls = message.get("tool_calls")
    return Texts(said, reasoning, as_json(calls) if isinstance(calls, list) and calls else "")
