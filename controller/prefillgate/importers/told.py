"""What a result file of another tool tells of one request, made into an `Imported`, and the prompts that it holds.

Evaluation and benchmark tools keep no replies as they came, so their readers fill a `Told` field by field; what the
file does not tell stays None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.cell_log import LogLine
from prefillgate.api.replay_set import CHAT, COMPLETIONS
from prefillgate.core.cells import Cell, Status
from prefillgate.core.journal import Texts
from prefillgate.importers.base import UNKNOWN_ARM, Asked, Imported
from prefillgate.importers.records import MAX_MILLISECONDS, Damaged, count
from prefillgate.importers.replies import NO_TEXTS, TokenCounts, known_prompt

MAX_LABEL = 200
STARTS = "start times"


@dataclass(frozen=True, slots=True)
class Told:
    """One request. Times are seconds since 1970. `failure` is why it was not measured, in a word or a clause."""

    where: str
    asked: Asked | None = None
    custom_id: str | None = None
    label: str | None = None
    texts: Texts | None = None
    counts: TokenCounts = field(default_factory=TokenCounts)
    started_at: float | None = None
    ended_at: float | None = None
    time_to_first_token_ms: float | None = None
    request_id: str | None = None
    finish_reason: str | None = None
    bad: bool | None = None
    http_status: int | None = None
    failure: str | None = None

    def imported(self) -> Imported:
        """The request as a cell: invalid where not measured, failed where an empty answer came. Raises `Damaged`."""
        empty = self.failure is None and self.texts == NO_TEXTS
        status = Status.OK if self.failure is None else Status.INVALID
        cell = Cell(
            arm=UNKNOWN_ARM,
            status=Status.FAILED if empty else status,
            bad=self.bad if self.failure is None else None,
            started_at=self.started_at,
            prompt_tokens=self.counts.prompt,
            cached_tokens=self.counts.cached,
            processed_tokens=self.counts.processed,
            output_tokens=self.counts.output,
            prefill_ms=self.counts.prefill_ms,
            decode_ms=self.counts.decode_ms,
            finish_reason=self.finish_reason,
            request_id=None if self.request_id is None else self.request_id[:256],
            ended_at=self.ended_at,
            **known_prompt(self.asked, self.custom_id, self.where),
        )
        reason = "EmptyAnswer" if empty else self.failure
        line = LogLine(
            cell,
            scored=self.failure is None,
            http_status=self.http_status,
            reason=None if reason is None else reason[:MAX_LABEL],
        )
        return Imported(
            line,
            self.where,
            label=None if self.label is None else self.label[:MAX_LABEL],
            texts=self.texts if self.failure is None else None,
            asked=self.asked,
            time_to_first_token_ms=self.time_to_first_token_ms,
            custom_id=self.custom_id,
        )


def prompt_length(parts: Mapping[str, int | None]) -> int | None:
    """Tokens of a prompt out of what a tool tells: `input`, `cached`, `written`, `output`, `total`; None where unclear.

    Tools differ in whether `input` includes what came from the cache. The total tells which: input + output equals it,
    or input + cached + written + output does. Where neither does and something was cached, the length is unknown.
    """
    told, output, total = parts.get("input"), parts.get("output"), parts.get("total")
    beside = (parts.get("cached") or 0) + (parts.get("written") or 0)
    if told is None:
        return None
    if beside == 0 or (total is not None and output is not None and told + output == total):
        return told
    if total is not None and output is not None and told + beside + output == total:
        return told + beside
    return None


def cached_within(cached: int | None, prompt: int | None) -> int | None:
    """The cached tokens, None where they are more than the whole prompt: then the two do not mean what they say."""
    return None if cached is not None and prompt is not None and cached > prompt else cached


def positive(owner: Mapping[str, Any], name: str) -> int | None:
    """A count of tokens that no request is without: zero is how some tools write unknown. Raises `Damaged`."""
    return count(owner, name) or None


def duration_ms(seconds: Any) -> float | None:
    """Milliseconds of a span in seconds, None where it is no number or runs backwards."""
    if type(seconds) not in (int, float) or not 0 <= seconds * 1000 <= MAX_MILLISECONDS:
        return None
    return float(seconds * 1000)


def between_ms(start: float | None, end: float | None) -> float | None:
    """Milliseconds from `start` to `end`, both in seconds."""
    return None if start is None or end is None else duration_ms(end - start)


def messages_in(told: Any) -> list[dict[str, Any]] | None:
    """The messages that `told` is, or that it holds as JSON; None where it is something else."""
    if isinstance(told, str) and told.lstrip().startswith("["):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            return None
    if isinstance(told, list) and told and all(isinstance(each, dict) and "role" in each for each in told):
        return told
    return None


def asked_text(told: Any, chat: bool = True, more: Mapping[str, Any] | None = None) -> Asked | None:
    """The request of a prompt that was kept as text, as messages or as JSON of them. `more` are fields beside it."""
    beside = dict(more or {})
    messages = messages_in(told)
    if messages is not None:
        return Asked(CHAT, {"messages": messages, **beside})
    if not isinstance(told, str):
        return None
    if chat:
        return Asked(CHAT, {"messages": [{"role": "user", "content": told}], **beside})
    return Asked(COMPLETIONS, {"prompt": told, **beside})


def texts_of(said: Any) -> Texts | None:
    """An output as text; an output that is JSON is written as it, None is unknown."""
    if said is None:
        return None
    return Texts(said if isinstance(said, str) else as_json(said))


def as_json(value: Any) -> str:
    """A value that was read as JSON, as JSON. Raises `Damaged` where it is nested too deep."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise Damaged("nested too deep") from error


def mapping(owner: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under a name, empty where absent or null. Raises `Damaged` for anything else."""
    value = owner.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise Damaged(f"{name} is no object")
