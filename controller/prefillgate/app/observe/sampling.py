"""A case with the sampling that a ReplaySet asks for in the place of its own. Pure."""

from __future__ import annotations

import json

from prefillgate.api.kinds.replay_set_kind import Sampling
from prefillgate.api.replay_set import Case, canonical_json, read_line

TOKEN_LIMIT, CHAT_TOKEN_LIMIT = "max_tokens", "max_completion_tokens"


def sampled(case: Case, sampling: Sampling | None) -> Case:
    """The case as it is sent, with digests of its own. Raises `ReplaySetError`."""
    if sampling is None:
        return case
    line = json.loads(case.canonical_line)
    body = line["body"]
    if sampling.temperature_percent is not None:
        body["temperature"] = _share(sampling.temperature_percent)
    if sampling.top_p_percent is not None:
        body["top_p"] = _share(sampling.top_p_percent)
    if sampling.top_k is not None:
        body["top_k"] = sampling.top_k
    if sampling.max_tokens is not None:
        body[CHAT_TOKEN_LIMIT if CHAT_TOKEN_LIMIT in body else TOKEN_LIMIT] = sampling.max_tokens
    return read_line(canonical_json(line), f"line {case.line}", case.line)


def _share(percent: int) -> float | int:
    """Hundredths as JSON has them: 0 and 1 without a point, as a person writes them."""
    return percent // 100 if percent % 100 == 0 else percent / 100
