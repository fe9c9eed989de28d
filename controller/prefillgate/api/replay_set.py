"""The native format of a replay set: OpenAI Batch JSONL, one case a line, with one key of our own.

A line is an object with `custom_id`, `method` ("POST"), `url` ("/v1/chat/completions" or "/v1/completions"), `body`
(the request as an application sent it) and, optionally, `prefillgate` (`checks`, `expect`, `canary`). A conversation is
one case per turn: each line holds the recorded history up to that turn in its own `messages`.

`read_line` turns the bytes of one line into a `Case`; reading files is `prefillgate.replay.replay_set`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.check_spec import CheckSpec, read_check_list
from prefillgate.api.check_type import ASKING
from prefillgate.api.errors import Problem, ReplaySetError, shown
from prefillgate.core.quality_expect import Expect, NotStrictJson, parse_json

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ROUTES = (CHAT, COMPLETIONS)
LINE_KEYS = ("custom_id", "method", "url", "body", "prefillgate")
OWN_KEYS = ("checks", "expect", "canary")
EXPECT_KINDS = ("exact", "contains", "json")

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_ID_CHARACTERS = 256
MIN_CANARY_CHARACTERS = 8
MAX_CANARY_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One real prompt with its checks.

    `body` goes out as written but for what `prefillgate.replay.request` names. `sha256` is the digest of the canonical
    body, `line_sha256` that of the whole canonical line. `characters` counts the text of the prompt (images left out).
    `max_tokens` is None where the body sets no limit; `greedy` is True only where the body says so.
    """

    case_id: str
    path: str
    body: dict[str, Any]
    expect: Expect | None = None
    checks: tuple[CheckSpec, ...] = ()
    canary: str | None = None
    sha256: str = ""
    characters: int = 0
    max_tokens: int | None = None
    greedy: bool = False
    line: int = 0
    line_sha256: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)  # the key `prefillgate` as written, where it stands

    @property
    def canonical_line(self) -> str:
        """The whole line as the canonical JSON that `line_sha256` is the digest of."""
        line = {"custom_id": self.case_id, "method": "POST", "url": self.path, "body": self.body, **self.own}
        return canonical_json(line).decode()

    @property
    def prompt_text(self) -> str:
        """Every piece of text of the prompt, one a line."""
        return "\n".join(prompt_texts(self.body))


def canonical_json(value: Any) -> bytes:
    """`value` as the bytes that are hashed: sorted keys, no spaces, UTF-8, nothing escaped that need not be.

    Raises UnicodeEncodeError for a lone surrogate, which UTF-8 cannot hold.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def read_line(raw: bytes, where: str, number: int) -> Case:
    """The case of one line without its line end. Raises `ReplaySetError` naming every problem of the line."""
    document = _parse(raw, where)
    problems = [Problem(where, field, message, allowed) for field, message, allowed in _problems(document)]
    if problems:
        raise ReplaySetError(*problems)
    try:
        line_digest = hashlib.sha256(canonical_json(document)).hexdigest()
    except UnicodeEncodeError as error:
        raise ReplaySetError(Problem(where, "", "a lone surrogate (\\ud800 to \\udfff) is not a character")) from error
    own = document.get("prefillgate") or {}
    body = document["body"]
    checks = read_check_list(own.get("checks", []), "prefillgate.checks")
    if checks.problems:
        raise ReplaySetError(*(Problem(where, p.field, p.message, p.allowed) for p in checks.problems))
    asking = next((spec for spec in checks.specs if spec.type in ASKING), None)
    if asking is not None:
        what = f"a check of type {asking.type} runs a program or asks another server, which a replay set may not"
        raise ReplaySetError(Problem(where, "prefillgate.checks", what, "declare it in the policy"))
    return Case(
        case_id=document["custom_id"],
        path=document["url"],
        body=body,
        expect=_expect(own.get("expect")),
        checks=checks.specs,
        canary=own.get("canary"),
        sha256=hashlib.sha256(canonical_json(body)).hexdigest(),
        characters=sum(map(len, prompt_texts(body))),
        max_tokens=_token_limit(body),
        greedy=body.get("temperature") == 0 or body.get("top_k") == 1,
        line=number,
        line_sha256=line_digest,
        own={name: document[name] for name in ("prefillgate",) if name in document},
    )


def prompt_texts(body: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a prompt in order: `prompt`, or the contents and tool calls of `messages`, then `tools`."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        yield prompt
    for message in body.get("messages") or ():
        yield from _strings(message.get("content"))
        yield from _strings(message.get("reasoning_content"))
        yield from _strings(message.get("tool_calls"))
    yield from _strings(body.get("tools"))


def prompt_digest(body: Mapping[str, Any]) -> bytes:
    """16 bytes that stand for what is prefilled: the prompt or the messages, and the tools."""
    prompt = {name: body.get(name) for name in ("prompt", "messages", "tools")}
    return hashlib.sha256(canonical_json(prompt)).digest()[:16]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in ("image_url", "input_audio", "type", "id"):
                yield from _strings(item)


def _parse(raw: bytes, where: str) -> dict[str, Any]:
    if b"\0" in raw:
        position = raw.index(b"\0")
        raise ReplaySetError(Problem(where, "", f"a NUL byte at byte {position + 1} of the line", "UTF-8 text"))
    try:
        document = parse_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        what = f"invalid UTF-8 at byte {error.start + 1} of the line (0x{raw[error.start]:02x})"
        raise ReplaySetError(Problem(where, "", what, "UTF-8 text")) from error
    except NotStrictJson as error:
        raise ReplaySetError(Problem(where, "", f"not JSON: {error}", "one JSON object a line")) from error
    if not isinstance(document, dict):
        raise ReplaySetError(Problem(where, "", f"not a JSON object: {shown(document)}", "one JSON object a line"))
    return document


_Found = Iterator[tuple[str, str, str]]


def _problems(document: dict[str, Any]) -> _Found:
    for key in document:
        if key not in LINE_KEYS:
            yield key, "unknown field", ", ".join(LINE_KEYS)
    for key in LINE_KEYS[:4]:
        if key not in document:
            yield key, "missing", ""
    if "custom_id" in document:
        yield from _id_problems(document["custom_id"])
    if document.get("method", "POST") != "POST":
        yield "method", shown(document["method"]), "POST"
    if "url" in document and document["url"] not in ROUTES:
        yield "url", f"unknown route {shown(document['url'])}", ", ".join(ROUTES)
    if "body" in document:
        yield from _body_problems(document["body"], document.get("url"))
    if document.get("prefillgate") is not None:
        yield from _own_problems(document["prefillgate"])


def _id_problems(value: Any) -> _Found:
    allowed = f"a string of 1 to {MAX_ID_CHARACTERS} printable characters"
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID_CHARACTERS or not value.isprintable():
        yield "custom_id", shown(value), allowed


def _body_problems(body: Any, url: Any) -> _Found:
    if not isinstance(body, dict):
        yield "body", shown(body), "a JSON object"
        return
    if url == CHAT:
        yield from _message_problems(body.get("messages"))
    if url == COMPLETIONS:
        prompt = body.get("prompt")
        tokens = isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt)
        if not tokens and (not isinstance(prompt, str) or not prompt):
            yield "body.prompt", shown(prompt), "one non-empty string, or one list of token numbers"
    if type(body.get("best_of", 1)) is not int or body.get("best_of", 1) != 1:
        yield "body.best_of", f"{shown(body['best_of'])} hides several generations in one cell", "1"
    temperature = body.get("temperature", 1)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 <= temperature <= 100:
        yield "body.temperature", shown(temperature), "a number of 0 or more"
    for key in ("max_completion_tokens", "max_tokens", "n_predict"):
        value = body.get(key)
        if value is not None and (type(value) is not int or value < 1):
            yield f"body.{key}", shown(value), "a whole number of 1 or more"


def _message_problems(messages: Any) -> _Found:
    if not isinstance(messages, list) or not messages:
        yield "body.messages", shown(messages), "a non-empty list of messages"
        return
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            yield f"body.messages[{place}]", shown(message), "an object with a role"


def _own_problems(own: Any) -> _Found:
    if not isinstance(own, dict):
        yield "prefillgate", shown(own), f"an object with {', '.join(OWN_KEYS)}"
        return
    for key in own:
        if key not in OWN_KEYS:
            yield f"prefillgate.{key}", "unknown field", ", ".join(OWN_KEYS)
    if "expect" in own:
        yield from _expect_problems(own["expect"])
    canary = own.get("canary")
    if canary is not None and not _is_canary(canary):
        low, high = MIN_CANARY_CHARACTERS, MAX_CANARY_CHARACTERS
        yield "prefillgate.canary", shown(canary), f"a string of {low} to {high} printable characters, no spaces around"


def _is_canary(value: Any) -> bool:
    return (
        isinstance(value, str)
        and MIN_CANARY_CHARACTERS <= len(value) <= MAX_CANARY_CHARACTERS
        and value.isprintable()
        and value == value.strip()
    )


def _expect_problems(expect: Any) -> _Found:
    allowed = "one of " + ", ".join(f'{{"{kind}": ...}}' for kind in EXPECT_KINDS)
    if not isinstance(expect, dict) or len(expect) != 1 or next(iter(expect)) not in EXPECT_KINDS:
        yield "prefillgate.expect", shown(expect), allowed
        return
    kind, value = next(iter(expect.items()))
    if kind != "json" and (not isinstance(value, str) or not value.strip()):
        yield f"prefillgate.expect.{kind}", shown(value), "a string that is not blank"


def _expect(value: Mapping[str, Any] | None) -> Expect | None:
    if value is None:
        return None
    kind, wanted = next(iter(value.items()))
    return Expect(kind, wanted)


def _token_limit(body: Mapping[str, Any]) -> int | None:
    for key in ("max_completion_tokens", "max_tokens", "n_predict"):
        if body.get(key) is not None:
            return int(body[key])
    return None
