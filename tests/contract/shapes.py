"""What a reply looks like, without what it says."""

from __future__ import annotations

import json
from typing import Any


def shape(value: Any) -> Any:
    """Names and types: objects by their keys, lists by their first element, numbers alike."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, int | float) else type(value).__name__


def events(raw: bytes) -> list[Any]:
    """The stream's events in order: parsed JSON, or the text where it is none. Comment lines are left out."""
    assert raw.endswith(b"\n\n")
    blocks = raw.removesuffix(b"\n\n").split(b"\n\n")
    assert all(block.startswith((b"data: ", b":")) and b"\n" not in block for block in blocks)
    texts = [block.removeprefix(b"data: ").decode() for block in blocks if not block.startswith(b":")]
    return [json.loads(text) if text.startswith("{") else text for text in texts]


def course(raw: bytes) -> list[Any]:
    """The shapes of a stream's events, equal neighbours once."""
    shapes = [shape(item) if isinstance(item, dict) else item for item in events(raw)]
    return [item for place, item in enumerate(shapes) if place == 0 or item != shapes[place - 1]]
