"""A request as the store keeps it beside its cell: the path, and the body byte for byte as it was sent."""

from __future__ import annotations

import json
from dataclasses import dataclass

_PATH, _BODY, _END = '{"path":', ',"body":', "}"


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """What a cell sent. `as_sent` is False for a store that kept the body's fields in sorted order."""

    path: str
    body: bytes
    as_sent: bool = True


def keep_request(path: str, body: bytes) -> str:
    """The text that the store keeps: one JSON object of `path` and `body`, the body's bytes unchanged in it."""
    return f"{_PATH}{json.dumps(path)}{_BODY}{body.decode()}{_END}"


def kept_request(text: str) -> KeptRequest | None:
    """What `keep_request` kept; None for a cell that was never sent."""
    if not text:
        return None
    if text.startswith(_PATH):
        path, end = json.JSONDecoder().raw_decode(text, len(_PATH))
        return KeptRequest(path, text[end + len(_BODY) : -len(_END)].encode())
    document = json.loads(text)
    body = json.dumps(document["body"], ensure_ascii=False, separators=(",", ":"))
    return KeptRequest(document["path"], body.encode(), as_sent=False)
