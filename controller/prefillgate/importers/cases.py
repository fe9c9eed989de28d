"""Requests of foreign logs as cases of a replay set: one line of OpenAI Batch JSONL each, without secrets.

A body keeps what the application asked for. What names or carries a credential is taken out wherever it stands beside
the prompt: header objects, and texts under a key that is called like one. Fields that are null say nothing and go too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.errors import ReplaySetError
from prefillgate.api.replay_set import MAX_ID_CHARACTERS, canonical_json, prompt_digest, read_line
from prefillgate.importers.base import Absent, Asked, Found, Imported, Unread
from prefillgate.importers.joining import Joiner
from prefillgate.importers.reading import UnreadKind
from prefillgate.importers.seen import PROMPTS

ID_DIGITS = 16
FIRST_PLACES = 3
NO_PROMPT = "no prompt in the log"
SAME_PROMPT = "the prompt of an earlier case (--keep-duplicates keeps them)"
_SECRET = re.compile(
    r"(?i)api[-_ ]?key|authorization|access[-_]?token|auth[-_]?token|id[-_]?token|bearer|passw|passphrase|secret"
    r"|credential|cookie|private[-_]?key"
)
_HEADERS = re.compile(r"(?i)headers$")
_PROMPT_FIELDS = ("messages", "prompt", "suffix")
_NO_LIMIT = ("n_predict", "max_tokens", "max_completion_tokens")


@dataclass(slots=True)
class Cases:
    """Feed everything that was read to `line`. Equal requests have equal ids, in this run and in every other.

    `read` counts requests, `written` lines, `secrets` what was taken out of bodies; `left` is what became no case, by
    reason with its first places, and `flags` what would give the prompts that a log does not hold.
    """

    keep_duplicates: bool = False
    read: int = 0
    written: int = 0
    secrets: int = 0
    left: dict[str, UnreadKind] = field(default_factory=dict)
    flags: dict[str, None] = field(default_factory=dict)
    _joiner: Joiner = field(default_factory=Joiner)
    _prompts: set[bytes] = field(default_factory=set)
    _ids: set[str] = field(default_factory=set)

    def line(self, found: Found) -> bytes | None:
        """The line of a case without its line end, or None where `found` gives none."""
        joined = self._joiner.join(found)
        if isinstance(joined, Absent):
            if joined.what == PROMPTS and joined.flag is not None:
                self.flags[joined.flag] = None
            return None
        if isinstance(joined, Unread):
            return self._leave(joined.why, joined.where)
        if isinstance(joined, Imported):
            if joined.line.cell.choice_index or (joined.custom_id is not None and joined is not found):
                return None  # one request: its first choice, or its line in the other file, is the case
            self.read += 1
            if joined.asked is None:
                return self._leave(NO_PROMPT, joined.where)
            return self._case(joined.asked, joined.custom_id, joined.where)
        self.read += 1
        return self._case(joined.asked, joined.custom_id, joined.where, joined.own)

    def _case(
        self, asked: Asked, custom_id: str | None, where: str, own: Mapping[str, Any] | None = None
    ) -> bytes | None:
        body, secrets = without_secrets(asked.body)
        try:
            digest = prompt_digest(body)
            twice = digest in self._prompts
            if twice and not self.keep_duplicates:
                return self._leave(SAME_PROMPT, where)
            case_id = self._id(custom_id, body)
            told: dict[str, Any] = {"custom_id": case_id, "method": "POST", "url": asked.path, "body": body}
            if own is not None:
                told["prefillgate"] = own
            line = canonical_json(told)
            read_line(line, where, 1)
        except ReplaySetError as error:
            problem = error.problems[0]
            allowed = f" (allowed: {problem.allowed})" if problem.allowed else ""
            return self._leave(f"no case, by its {problem.field or 'line'}{allowed}", where)
        except (ValueError, RecursionError, AttributeError, TypeError):
            return self._leave("no case, by what its body is made of", where)
        self._prompts.add(digest)
        self._ids.add(case_id)
        self.written += 1
        self.secrets += secrets
        return line

    def _id(self, custom_id: str | None, body: dict[str, Any]) -> str:
        """The log's own name of a request where it is free and can be one, else a digest of the body."""
        if custom_id and len(custom_id) <= MAX_ID_CHARACTERS and custom_id.isprintable() and custom_id not in self._ids:
            return custom_id
        name = base = f"case-{hashlib.sha256(canonical_json(body)).hexdigest()[:ID_DIGITS]}"
        times = 1
        while name in self._ids:
            times += 1
            name = f"{base}-{times}"
        return name

    def _leave(self, why: str, where: str) -> bytes | None:
        """Count a request that is no case; there is no line of it."""
        kind = self.left.setdefault(why, UnreadKind(why))
        kind.count += 1
        if len(kind.first) < FIRST_PLACES:
            kind.first.append(where)
        return None


def without_secrets(body: Any) -> tuple[dict[str, Any], int]:
    """A request body as a case holds it, and how many credentials were taken out of it."""
    kept: dict[str, Any] = {}
    taken = 0
    for name, value in body.items():
        if value is None or (name in _NO_LIMIT and type(value) is int and value < 0):
            continue
        if name in _PROMPT_FIELDS:
            kept[name] = value
            continue
        clean, found = _cleaned(name, value)
        taken += found
        if clean is not None:
            kept[name] = clean
    return kept, taken


def _cleaned(name: str, value: Any) -> tuple[Any, int]:
    """`value` without credentials, None where it is one."""
    if isinstance(value, str) and _SECRET.search(name):
        return None, 1
    if isinstance(value, dict):
        if _HEADERS.search(name) and all(isinstance(each, str) for each in value.values()):
            return None, len(value)
        inner = {key: _cleaned(key, each) for key, each in value.items()}
        return {key: each for key, (each, _) in inner.items() if each is not None}, sum(n for _, n in inner.values())
    if isinstance(value, list):
        items = [_cleaned(name, each) for each in value]
        return [each for each, _ in items if each is not None], sum(found for _, found in items)
    return value, 0
