"""What an answer and the server's own counters tell of one cell. Token counts; None means not told, never zero."""

from __future__ import annotations

import hashlib
from typing import Any

from prefillgate.core.cells import Status
from prefillgate.engines.base import Answer, Counters, Look

LARGEST_COUNT = 2**53  # beyond it a server's counter is no count


def reported(answer: Answer, status: Status) -> dict[str, Any]:
    """The counters as reported, and the digest of a complete output."""
    said = "\x00".join((answer.reasoning, answer.content, answer.tool_calls))
    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest() if status is Status.OK else None
    return {
        "started_at": answer.started_at,
        "ended_at": answer.ended_at,
        "prompt_tokens": answer.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "processed_tokens": answer.processed_tokens,
        "output_tokens": answer.output_tokens,
        "prefill_ms": answer.prefill_ms,
        "decode_ms": answer.decode_ms,
        "finish_reason": answer.finish_reason,
        "request_id": answer.request_id,
        "output_sha256": digest,
    }


def settled(before: Counters | None, look: Look, answer: Answer) -> bool:
    """Whether the counters moved by what the answer reports, as far as both are told, and nothing runs any more."""
    moved, processed = processed_delta(before, look.counters), processed_tokens(answer)
    caught_up = moved is None or processed is None or moved >= processed or moved < 0
    return caught_up and look.activity.idle is not False


def processed_tokens(answer: Answer) -> int | None:
    """Prompt tokens that were computed, as told or as what is told leaves; None where unknown."""
    if answer.processed_tokens is not None:
        return answer.processed_tokens
    if answer.prompt_tokens is None or answer.cached_tokens is None:
        return None
    return answer.prompt_tokens - answer.cached_tokens


def processed_delta(before: Counters | None, after: Counters | None) -> int | None:
    """By how many prompt tokens the server's own total moved; None where it is not told."""
    if before is None or after is None:
        return None
    return _moved(before.prompt_tokens_processed, after.prompt_tokens_processed)


def output_delta(before: Counters | None, after: Counters | None) -> int | None:
    """By how many output tokens the server's own total moved; None where it is not told."""
    return None if before is None or after is None else _moved(before.output_tokens, after.output_tokens)


def _moved(before: float | None, after: float | None) -> int | None:
    """By how much a counter moved; None where it is not told or no count of tokens."""
    if before is None or after is None or not (abs(before) < LARGEST_COUNT and abs(after) < LARGEST_COUNT):
        return None
    return int(after - before)
