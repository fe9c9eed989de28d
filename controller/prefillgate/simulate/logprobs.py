"""Log probabilities of an answer's tokens, made up but always the same, in the form llama-server writes them."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from prefillgate.simulate.tokens import token_id

CHAT_ALTERNATIVES = 20  # llama-server's own number, where a chat names none


def wanted(body: dict[str, Any], chat: bool) -> int | None:
    """How many alternatives a token is to be told with; None where none were asked for."""
    asked = body.get("logprobs")
    if chat:
        alternatives = body.get("top_logprobs", CHAT_ALTERNATIVES)
        return alternatives if asked is True and type(alternatives) is int else None
    return asked if type(asked) is int and asked > 0 else None


def of_token(text: str, alternatives: int) -> dict[str, Any]:
    """One token with its log probability and its alternatives, itself the likeliest."""
    others = [_entry(f"{text}{place}" if place else text, place) for place in range(alternatives)]
    return {**_entry(text, 0), "top_logprobs": others}


def _entry(text: str, place: int) -> dict[str, Any]:
    share = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:2], "big") / 65536
    raw = text.encode("utf-8", "surrogateescape")
    return {"id": token_id(text), "token": text, "bytes": list(raw), "logprob": math.log(0.6 + 0.39 * share) - place}
