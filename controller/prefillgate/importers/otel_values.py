"""OpenTelemetry attributes and GenAI messages, of the conventions of today and of those before them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from prefillgate.api.replay_set import CHAT
from prefillgate.core.journal import Texts
from prefillgate.importers.base import Asked
from prefillgate.importers.records import Damaged, Record
from prefillgate.importers.told import as_json, asked_text

_SCALARS = ("stringValue", "boolValue", "doubleValue", "bytesValue")
_OTLP_VALUES = frozenset({*_SCALARS, "intValue", "arrayValue", "kvlistValue"})
_INDEXED = re.compile(r"(?:gen_ai\.prompt|llm\.prompts)\.(\d{1,4})\.(role|content)")
EVENT_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_COMPLETIONS = ("gen_ai.completion.0.content", "llm.completions.0.content", "gen_ai.completion")


def attributes(owner: Mapping[str, Any]) -> Record:
    """The attributes of a span, an event or a log record, OTLP's list or a plain object. Raises `Damaged`."""
    told = owner.get("attributes")
    if told is None:
        return {}
    if isinstance(told, dict):
        return told
    try:
        return _pairs(told)
    except (RecursionError, ValueError, OverflowError, TypeError, AttributeError, KeyError) as error:
        raise Damaged("attributes is no list of keys and values") from error


def _pairs(told: Any) -> Record:
    return {str(each["key"]): _value(each.get("value")) for each in told}


def _value(told: Any) -> Any:
    if told is None:
        return None
    if "intValue" in told:
        return int(told["intValue"])
    for name in _SCALARS:
        if name in told:
            return told[name]
    if "arrayValue" in told:
        return [_value(each) for each in (told["arrayValue"] or {}).get("values", [])]
    if "kvlistValue" in told:
        return _pairs((told["kvlistValue"] or {}).get("values", []))
    return None


def plain_value(told: Any) -> Any:
    """A value as OTLP writes it (`{"stringValue": ...}`), or one that is plain already. Raises `Damaged`."""
    if isinstance(told, dict) and len(told) == 1 and next(iter(told)) in _OTLP_VALUES:
        try:
            return _value(told)
        except (RecursionError, ValueError, OverflowError, TypeError, AttributeError, KeyError) as error:
            raise Damaged("a value that is none of OTLP") from error
    return told


def with_events(span: Mapping[str, Any]) -> Record:
    """The attributes of a span and of the events in it; message events of older conventions become messages."""
    found = dict(attributes(span))
    messages: list[Record] = []
    events = span.get("events")
    for event in events if isinstance(events, list) else ():
        if not isinstance(event, dict):
            continue
        inside = attributes(event)
        role = EVENT_ROLES.get(str(event.get("name")))
        if role is not None:
            messages.append({"role": role, "content": inside.get("content", inside.get(f"gen_ai.{role}.content"))})
        else:
            for key, value in inside.items():
                found.setdefault(key, value)
    if messages and all(isinstance(each["content"], str) for each in messages):
        found.setdefault("gen_ai.input.messages", messages)
    return found


def parsed(told: Any) -> Any:
    """JSON kept as text, else the value itself."""
    if isinstance(told, str) and told[:1] in ("{", "["):
        try:
            return json.loads(told)
        except (ValueError, RecursionError):
            return told
    return told


def request_of(attrs: Mapping[str, Any]) -> Asked | None:
    """The request whose messages the attributes hold, None where content was not captured."""
    messages = _messages(parsed(attrs.get("gen_ai.input.messages")))
    if messages is None:
        messages = _indexed(attrs)
    if messages is None:
        told = parsed(attrs.get("gen_ai.prompt"))
        return asked_text(told, more=_settings(attrs)) if told else None
    system = _messages([{"role": "system", "parts": parsed(attrs.get("gen_ai.system_instructions"))}])
    if system is not None and attrs.get("gen_ai.system_instructions"):
        messages = [*system, *messages]
    body: Record = {"messages": messages, **_settings(attrs)}
    tools = parsed(attrs.get("gen_ai.tool.definitions"))
    if isinstance(tools, list) and tools:
        body["tools"] = tools
    return Asked(CHAT, body)


def _settings(attrs: Mapping[str, Any]) -> Record:
    named = {name: attrs.get(f"gen_ai.request.{name}") for name in ("temperature", "top_p", "max_tokens", "seed")}
    return {name: value for name, value in named.items() if type(value) in (int, float)}


def _messages(told: Any) -> list[Record] | None:
    """Messages with parts, or with contents as they are sent; None where any of them is something else."""
    if not isinstance(told, list) or not told:
        return None
    found = []
    for each in told:
        if not isinstance(each, dict) or not isinstance(each.get("role"), str):
            return None
        if "parts" not in each:
            found.append(each)
            continue
        parts = each["parts"]
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            return None
        plain = all(part.get("type") == "text" and isinstance(part.get("content"), str) for part in parts)
        content: Any = "\n".join(part["content"] for part in parts) if plain else parts
        found.append({"role": each["role"], "content": content})
    return found


def _indexed(attrs: Mapping[str, Any]) -> list[Record] | None:
    """Messages as attributes with numbers in their names."""
    by_place: dict[int, Record] = {}
    for key, value in attrs.items():
        match = _INDEXED.fullmatch(key)
        if match is not None:
            by_place.setdefault(int(match.group(1)), {})[match.group(2)] = value
    found = [by_place[place] for place in sorted(by_place)]
    whole = all(isinstance(each.get("role"), str) and each.get("content") is not None for each in found)
    return found if found and whole else None


def output_of(attrs: Mapping[str, Any]) -> Texts | None:
    """What came back, None where content was not captured."""
    told = parsed(attrs.get("gen_ai.output.messages"))
    if isinstance(told, list) and told and isinstance(told[0], dict):
        parts = told[0].get("parts")
        if isinstance(parts, list):
            return _joined([part for part in parts if isinstance(part, dict)])
        if isinstance(told[0].get("content"), str):
            return Texts(told[0]["content"])
        return None
    for name in _COMPLETIONS:
        said = parsed(attrs.get(name))
        if isinstance(said, list) and said and isinstance(said[0], dict):
            said = said[0].get("content")
        if isinstance(said, str):
            return Texts(said)
    return None


def _joined(parts: list[Record]) -> Texts:
    def of(kind: str) -> str:
        return "".join(str(part.get("content") or "") for part in parts if part.get("type") == kind)

    calls = [part for part in parts if part.get("type") == "tool_call"]
    return Texts(of("text"), of("reasoning"), as_json(calls) if calls else "")
