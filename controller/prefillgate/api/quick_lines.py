"""The lines of a large cell log in blocks, decoded and checked by type in one step.

It takes a line only where nothing about it could be told as wrong, and then says what the strict reading of
`api/cell_log.py` says; every other line is left to that, so that both refuse the same in the same words.

No key may stand twice. A decoder does not tell, so keys are counted: every line of a shape holds all of its keys, so
there are at least lines times keys of them, and each has a colon. As many colons as that leave none for a second one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from prefillgate.api import cell_log

MAX_SHAPES = 8
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_KEY_END = re.compile(rb'"\s*:')
_COUNT = Annotated[int, msgspec.Meta(ge=0, le=cell_log.MAX_COUNT)] | None
_TEXT = Annotated[str, msgspec.Meta(min_length=1, max_length=cell_log.MAX_CHARACTERS)] | None
_WORDS = Annotated[str, msgspec.Meta(max_length=cell_log.MAX_CHARACTERS)] | None
_DURATION = Annotated[float, msgspec.Meta(ge=0, le=cell_log.MAX_COUNT)] | None
_TIME = Annotated[float, msgspec.Meta(ge=cell_log.FIRST_SECOND, le=cell_log.LAST_SECOND)] | str | None
_REPLICATE = Annotated[int, msgspec.Meta(ge=0, le=cell_log.MAX_REPLICATE)] | None
_FLAG = bool | None
_BESIDE = Annotated[int, msgspec.Meta(ge=-(10**15), le=10**15)] | float | str | bool | None

#: What the strict rules of `cell_log` take, as types. A line with anything else is theirs.
TYPES: dict[str, Any] = {
    "arm": Literal["baseline", "candidate"],
    "case_id": _TEXT,
    "replicate": _REPLICATE,
    "server_epoch": _TEXT,
    "started_at": _TIME,
    "prompt_sha256": _TEXT,
    "prompt_tokens": _COUNT,
    "cached_tokens": _COUNT,
    "processed_tokens": _COUNT,
    "output_tokens": _COUNT,
    "prefill_ms": _DURATION,
    "decode_ms": _DURATION,
    "finish_reason": _WORDS,
    "cold_proof": Literal["cache_off", "salt", "nonce"] | None,
    "request_id": _TEXT,
    "choice_index": _COUNT,
    "status": Literal["ok", "failed", "invalid"] | None,
    "bad": _FLAG,
    "ended_at": _TIME,
    "counter_processed_tokens": _COUNT,
    "counter_alive": _FLAG,
    "shares_blocks": _FLAG,
    "shared_server": _FLAG,
    "output_sha256": _TEXT,
    "flag_outcomes": None,
    "scored": _FLAG,
    "http_status": _COUNT,
    "cell_id": _COUNT,
    "purpose": _TEXT,
    "pair": _COUNT,
    "reason": _WORDS,
}


class Shape:
    """The keys that lines have, all of them, in whatever order. `ignored` are those that no cell has."""

    def __init__(self, keys: Sequence[str]) -> None:
        own = set(keys)
        self.size = len(own)
        self._timed = not own.isdisjoint(("started_at", "ended_at"))
        self.ignored = tuple(key for key in keys if key not in TYPES and key not in cell_log.DERIVED_FIELDS)
        fields: list[Any] = [(key, TYPES[key]) for key in keys if key in TYPES]
        beside = {f"beside_{place}": key for place, key in enumerate(keys) if key not in TYPES}
        fields += [(name, _BESIDE) for name in beside]
        fields += [(key, kind, None) for key, kind in TYPES.items() if key not in own]
        line = msgspec.defstruct("Line", fields, rename=beside, forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(line).decode

    def block(self, block: bytes, lines: Sequence[bytes]) -> list[Any] | None:
        """All lines of a block; None where one of them is not plainly of this shape."""
        try:
            found = list(map(self._decode, lines))
            if self._timed:
                _read_times(found)
        except (msgspec.MsgspecError, ValueError, OverflowError):
            return None
        return found if _no_more_keys(block, self.size * len(lines)) else None

    def line(self, raw: bytes) -> Any | None:
        """One line; None where it is not plainly of this shape."""
        found = self.block(raw, (raw,))
        return None if found is None else found[0]


def _read_times(lines: Sequence[Any]) -> None:
    """Times that are told as text, as seconds. Raises ValueError or OverflowError."""
    for line in lines:
        if type(line.started_at) is str:
            line.started_at = cell_log.read_moment(line.started_at)
        if type(line.ended_at) is str:
            line.ended_at = cell_log.read_moment(line.ended_at)


def _no_more_keys(block: bytes, least: int) -> bool:
    """Whether a block that has at least so many keys has no more."""
    if block.count(b":") == least:
        return True
    if b"\t" in block or b"\r" in block or b" :" in block:
        return len(_KEY_END.findall(block)) == least
    return block.count(b'":') == least


class Shapes:
    """The shapes met so far, the latest first. A log has few; of one that has many, most lines are left alone."""

    def __init__(self) -> None:
        self._known: list[Shape] = []

    def latest(self) -> Shape | None:
        """The shape that a line had last."""
        return self._known[-1] if self._known else None

    def line(self, raw: bytes) -> tuple[Shape, Any] | None:
        """One line with its shape; None where it is plainly of none that is known."""
        for place in range(len(self._known) - 1, -1, -1):
            shape = self._known[place]
            found = shape.line(raw)
            if found is not None:
                self._known.append(self._known.pop(place))
                return shape, found
        return None

    def learn(self, keys: Sequence[str]) -> None:
        """Take note of the keys of a line that was read strictly."""
        if len(self._known) < MAX_SHAPES and all(map(_PLAIN_NAME.fullmatch, keys)):
            self._known.append(Shape(keys))
