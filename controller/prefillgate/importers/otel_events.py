"""Log records of older OpenTelemetry GenAI conventions: an event for each message of a request, one for its answer.

`gen_ai.system.message`, `.user.`, `.assistant.` and `.tool.` tell the messages in their order, `gen_ai.choice` what
came back; trace and span say whose they are. They are held until their span comes, or to the end of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.replay_set import CHAT
from prefillgate.core.journal import Texts
from prefillgate.importers.base import Asked, Prompted
from prefillgate.importers.otel_values import EVENT_ROLES, plain_value
from prefillgate.importers.records import Damaged, Record
from prefillgate.importers.told import as_json

CHOICE = "gen_ai.choice"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT (older: true)"
NO_SPAN = "an event of one message that names no span"
NO_CONTENT = f"an event of one message without its content ({CAPTURE})"


@dataclass(slots=True)
class _Conversation:
    where: str
    messages: list[Record] = field(default_factory=list)
    texts: Texts | None = None
    whole: bool = True  # no message was without its content


@dataclass(slots=True)
class MessageEvents:
    """The events of one file, by the span that they belong to."""

    by_span: dict[str, _Conversation] = field(default_factory=dict)

    def take(self, record: Record, named: str, span: str | None, where: str) -> None:
        """Keep one event, of those that `is_message` knows. Raises `Damaged`."""
        if span is None:
            raise Damaged(NO_SPAN)
        kept = self.by_span.setdefault(span, _Conversation(where))
        body = plain_value(record.get("body"))
        body = body if isinstance(body, dict) else {}
        told = body.get("message") if named == CHOICE else body
        message = _message(told if isinstance(told, dict) else {}, EVENT_ROLES.get(named, "assistant"))
        if named == CHOICE:
            kept.texts = kept.texts or (None if message is None else _texts(message))  # the first choice
        elif message is not None:
            kept.messages.append(message)
        if message is None:
            kept.whole = kept.whole and named == CHOICE
            raise Damaged(NO_CONTENT)

    def of(self, span: str | None) -> tuple[Asked | None, Texts | None]:
        """Request and answer of a span, which are given away."""
        kept = None if span is None else self.by_span.pop(span, None)
        return (None, None) if kept is None else (_asked(kept), kept.texts)

    def left(self) -> Iterator[Prompted]:
        """The requests whose span is not in this file; another may hold it."""
        for span, kept in self.by_span.items():
            asked = _asked(kept)
            if asked is not None:
                yield Prompted(asked, kept.where, span, texts=kept.texts)


def is_message(named: Any) -> bool:
    """Whether an event of this name tells one message."""
    return named == CHOICE or named in EVENT_ROLES


def _asked(kept: _Conversation) -> Asked | None:
    return Asked(CHAT, {"messages": kept.messages}) if kept.messages and kept.whole else None


def _message(told: Mapping[str, Any], role: str) -> Record | None:
    """The message as it was sent; None where its content was not captured."""
    if told.get("content") is None and not told.get("tool_calls"):
        return None
    named = told.get("role")
    found: Record = {"role": named if isinstance(named, str) else role}
    found |= {name: told[name] for name in ("content", "tool_calls") if told.get(name) is not None}
    if role == "tool" and told.get("id") is not None:
        found["tool_call_id"] = told["id"]
    return found


def _texts(message: Record) -> Texts:
    content, calls = message.get("content"), message.get("tool_calls")
    said = content if isinstance(content, str) else "" if content is None else as_json(content)
    return Texts(said, "", as_json(calls) if calls else "")
