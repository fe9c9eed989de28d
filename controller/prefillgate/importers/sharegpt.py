"""ShareGPT and chat fine-tuning files: conversations, one case for each turn of the assistant.

A record has `conversations` (or `conversation`) of `from` and `value`, or `messages` of `role` and `content`; `system`
may stand beside. Such files tell of no server: no counters, no times, and what they answer is nobody's measured output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prefillgate.api.replay_set import CHAT
from prefillgate.importers.base import Absent, Asked, Found, Prompted, Unread
from prefillgate.importers.records import Record, outline, records, text
from prefillgate.importers.source import Source

ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
}
_BESIDE_MESSAGES = frozenset({"messages", "id", "system", "tools", "source", "category", "dataset", "prompt_id"})


class ShareGpt:
    """The format `sharegpt`."""

    name = "sharegpt"
    title = "ShareGPT conversations"

    def recognise(self, head: bytes) -> bool:
        """Conversations of turns, or messages with nothing of a request or an answer beside them."""
        keys = outline(head)
        if {"conversations.from", "conversations.role", "conversation.from", "conversation.role"} & keys:
            return True
        return "messages.role" in keys and {key for key in keys if "." not in key} <= _BESIDE_MESSAGES

    def read(self, source: Source) -> Iterator[Found]:
        """A `Prompted` for each turn of the assistant, and for a last turn that nobody answered."""
        for record in records(source):
            if isinstance(record, Unread):
                yield record
            else:
                yield from _conversation(record[1], record[0])
        yield Absent("counters, times and outputs of a server: it holds conversations")


def _conversation(record: Record, where: str) -> Iterator[Found]:
    turns = record.get("conversations", record.get("conversation", record.get("messages")))
    if not isinstance(turns, list) or not turns:
        yield Unread(where, "no list of turns")
        return
    history: list[dict[str, str]] = []
    if text(record, "system"):
        history.append({"role": "system", "content": record["system"]})
    name = text(record, "id")
    cases = 0
    for turn in turns:
        said = _turn(turn)
        if said is None:
            yield Unread(where, "a turn that is no text of system, human or assistant; the turns before it are read")
            return
        if said["role"] == "assistant":
            if any(each["role"] == "user" for each in history):
                cases += 1
                yield _case(history, where, name, cases)
            else:
                yield Unread(where, "a first turn of the assistant: nobody asked anything")
        history.append(said)
    if history and history[-1]["role"] == "user":
        yield _case(history, where, name, cases + 1)


def _turn(turn: Any) -> dict[str, str] | None:
    if not isinstance(turn, dict):
        return None
    role = turn.get("from", turn.get("role"))
    said = turn.get("value", turn.get("content"))
    known = ROLES.get(role) if isinstance(role, str) else None
    return {"role": known, "content": said} if known is not None and isinstance(said, str) else None


def _case(history: list[dict[str, str]], where: str, name: str | None, number: int) -> Prompted:
    custom_id = None if name is None else f"{name}-turn-{number}"
    return Prompted(Asked(CHAT, {"messages": list(history)}), f"{where} turn {number}", custom_id)
