"""An OpenAI-style reply, streamed or whole, put together: text, reasoning and tool calls apart.

Pure. Knows nothing of HTTP and nothing of a server family's counters: `usage`, `timings` and the rest are handed on
as they came. What is odd about a reply becomes a finding, what makes it no answer becomes a failure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from prefillgate.engines.base import Body
from prefillgate.report.clean import one_line

DETAIL_LIMIT = 440
EXTRAS = ("metrics", "sglext", "meta_info")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a reply is no answer: one CamelCase word and one clean line."""

    reason: str
    detail: str


@dataclass(slots=True)
class _ToolCall:
    id: str = ""
    type: str = "function"
    name: str = ""
    arguments: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id or None,
            "type": self.type,
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(slots=True)
class Assembly:
    """A reply so far. Add chunks with `add_chunk`, or one whole reply with `add_whole`; then ask `failure`."""

    finish_reason: str | None = None
    usage: Body | None = None
    timings: Body | None = None
    extras: dict[str, Body] = field(default_factory=dict)  # what only some families tell, by the names in `EXTRAS`
    request_id: str | None = None
    system_fingerprint: str | None = None
    model: str | None = None  # as the reply names it
    choices: int = 0  # how many choices the reply had; more than one is one prefill posing as several
    done: bool = False  # the stream said [DONE], or a whole reply was read to its end
    error: Failure | None = None
    findings: list[str] = field(default_factory=list)
    _content: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _tools: dict[int, _ToolCall] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """The answer's text."""
        return joined(self._content)

    @property
    def reasoning(self) -> str:
        """What the model thought aloud, apart from the answer."""
        return joined(self._reasoning)

    @property
    def tool_calls(self) -> str:
        """The tool calls in the order of their index as a JSON array, or an empty text when there are none."""
        if not self._tools:
            return ""
        calls = [self._tools[index].as_json() for index in sorted(self._tools)]
        return joined([json.dumps(calls, ensure_ascii=False, separators=(",", ":"))])

    def add_data(self, data: str, event: str = "message") -> bool:
        """Add the data of one server-sent event. True when it brought a piece of the answer."""
        if data.strip() == "[DONE]":
            self.done = True
            return False
        try:
            payload = json.loads(data)
        except (ValueError, RecursionError):
            self.fail("ErrorInStream" if event == "error" else "NotJson", f"an event is not JSON: {data[:200]!r}")
            return False
        if event == "error" and isinstance(payload, dict):
            payload = {"error": payload.get("error", payload)}
        return self.add_chunk(payload)

    def add_chunk(self, payload: Any) -> bool:
        """Add one chunk of a stream. True when it brought a piece of text, of reasoning or of a tool call."""
        return self._add(payload, "delta")

    def add_whole(self, payload: Any) -> None:
        """Add a reply that came in one piece."""
        self._add(payload, "message")
        self.done = True

    def fail(self, reason: str, detail: str) -> None:
        """Note what makes this no answer. The first one stays."""
        if self.error is None:
            self.error = Failure(reason, one_line(detail, DETAIL_LIMIT))

    def note(self, finding: str) -> None:
        """Note what is odd, once."""
        finding = one_line(finding, DETAIL_LIMIT)
        if finding not in self.findings:
            self.findings.append(finding)

    def failure(self) -> Failure | None:
        """Why this is no answer, or None. Call after the last byte; notes what is odd but no failure."""
        if self.error is not None:
            return self.error
        if not self.done and self.finish_reason is None:
            return Failure("CutStream", "the stream ended without a finish reason and without [DONE]")
        if not (self.content or self.reasoning or self.tool_calls):
            told = "no finish reason" if self.finish_reason is None else f"finish reason {self.finish_reason!r}"
            return Failure("EmptyAnswer", one_line(f"the reply holds no text, no reasoning and no tool call ({told})"))
        if not self.done:
            self.note("the stream ended without [DONE]")
        if self.finish_reason is None:
            return Failure("NoFinishReason", "the reply tells no finish reason: a delivery that failed, not an answer")
        return None

    def _add(self, payload: Any, part: str) -> bool:
        if not isinstance(payload, dict):
            self.fail("NotJson", f"the reply is not a JSON object: {json.dumps(payload)[:200]}")
            return False
        if payload.get("error") or payload.get("object") == "error":
            self.fail("ErrorInStream", error_message(payload))
            return False
        self._take_envelope(payload)
        choices = payload.get("choices")
        if choices is None:
            return False
        if not isinstance(choices, list):
            self.note(f"choices is {type(choices).__name__}, not a list")
            return False
        brought = False
        for position, choice in enumerate(choices):
            brought = self._take_choice(choice, position, part) or brought
        return brought

    def _take_envelope(self, payload: Body) -> None:
        if isinstance(payload.get("id"), str) and self.request_id is None:
            self.request_id = joined([payload["id"][:200]])
        if isinstance(payload.get("model"), str) and self.model is None:
            self.model = joined([payload["model"][:200]])
        if isinstance(payload.get("system_fingerprint"), str):
            self.system_fingerprint = joined([payload["system_fingerprint"][:200]])
        for name in ("usage", "timings"):
            value = payload.get(name)
            if isinstance(value, dict):
                setattr(self, name, value)
            elif value is not None:
                self.note(f"{name} is {type(value).__name__}, not an object")
        self._take_extras(payload)

    def _take_extras(self, owner: Body) -> None:
        self.extras.update({name: owner[name] for name in EXTRAS if isinstance(owner.get(name), dict)})

    def _take_choice(self, choice: Any, position: int, part: str) -> bool:
        if not isinstance(choice, dict):
            self.note(f"a choice is {type(choice).__name__}, not an object")
            return False
        index = choice.get("index")
        index = index if isinstance(index, int) and index >= 0 else position
        self.choices = max(self.choices, index + 1)
        if index > 0:
            return False
        self._take_extras(choice)
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self.finish_reason = joined([finish[:100]])
        message = choice.get(part)
        if message is None:
            # /v1/completions, streamed or whole; or a whole message where a chunk was due.
            message = choice.get("message") or {"content": choice.get("text")}
        if not isinstance(message, dict):
            self.note(f"{part} is {type(message).__name__}, not an object")
            return False
        return self._take_message(message)

    def _take_message(self, message: Body) -> bool:
        pieces = len(self._content) + len(self._reasoning)
        self._take_text(message, "content", self._content)
        # Both names are in use; a server that sends both sends the same text twice.
        name = "reasoning_content" if message.get("reasoning_content") else "reasoning"
        self._take_text(message, name, self._reasoning)
        brought_tool = self._take_tools(message.get("tool_calls"))
        return brought_tool or len(self._content) + len(self._reasoning) > pieces

    def _take_text(self, message: Body, name: str, into: list[str]) -> None:
        value = message.get(name)
        if isinstance(value, list):
            texts = [part.get("text") for part in value if isinstance(part, dict)]
            value = "".join(text for text in texts if isinstance(text, str))
        if isinstance(value, str):
            if value:
                into.append(value)
        elif value is not None:
            self.note(f"{name} is {type(value).__name__}, not text")

    def _take_tools(self, calls: Any) -> bool:
        if not calls:
            return False
        if not isinstance(calls, list):
            self.note(f"tool_calls is {type(calls).__name__}, not a list")
            return False
        brought = False
        for position, call in enumerate(calls):
            if isinstance(call, dict):
                brought = True
                self._take_tool(call, position)
            else:
                self.note(f"a tool call is {type(call).__name__}, not an object")
        return brought

    def _take_tool(self, call: Body, position: int) -> None:
        index = call.get("index")
        tool = self._tools.setdefault(index if isinstance(index, int) else position, _ToolCall())
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        for owner, name in ((call, "id"), (call, "type")):
            if isinstance(owner.get(name), str) and owner[name]:
                setattr(tool, name, owner[name])
        if isinstance(function.get("name"), str):
            tool.name += function["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            tool.arguments += arguments
        elif arguments is not None:
            # Some servers send the arguments as an object: keep them as JSON text, as the others do.
            tool.arguments += json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def joined(pieces: list[str]) -> str:
    """The pieces as one text that encodes as UTF-8: halves of a surrogate pair meet, a lone half becomes U+FFFD."""
    text = "".join(pieces)
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def error_message(payload: Any) -> str:
    """The words of a server's error object, in any of the usual shapes, on one clean line."""
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict):
        kind, message = error.get("type"), error.get("message") or error.get("detail")
        if isinstance(message, str):
            return one_line(f"{kind}: {message}" if isinstance(kind, str) else message, DETAIL_LIMIT)
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=True)
    return one_line(text, DETAIL_LIMIT)
