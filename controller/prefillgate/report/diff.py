"""Two texts word by word: what only one of them says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

from prefillgate.report.clean import visible

WORDS_SHOWN = 1500
CHARACTERS_SHOWN = 20_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text; `own` when the other side does not have it."""

    text: str
    own: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One text in pieces. `left_out` counts characters that are not shown."""

    pieces: tuple[Piece, ...]
    left_out: int


def compare(left: str, right: str) -> tuple[Side, Side]:
    """Both texts in pieces, cleaned, each cut at `WORDS_SHOWN` words or `CHARACTERS_SHOWN` characters."""
    words, others = _words(left), _words(right)
    # autojunk keeps text that repeats one word thousands of times from costing the square of its length
    matcher = SequenceMatcher(a=words, b=others, autojunk=True)
    sides: tuple[list[Piece], list[Piece]] = ([], [])
    for kind, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        for pieces, text in ((sides[0], "".join(words[a_from:a_to])), (sides[1], "".join(others[b_from:b_to]))):
            if text:
                pieces.append(Piece(text, kind != "equal"))
    return _side(sides[0], left, words), _side(sides[1], right, others)


def alone(text: str) -> Side:
    """A text without another to compare it with."""
    words = _words(text)
    return _side([Piece("".join(words), False)] if words else [], text, words)


def _words(text: str) -> list[str]:
    shown = visible(text)[:CHARACTERS_SHOWN]
    return re.findall(r"\s+|[^\s]+", shown)[: 2 * WORDS_SHOWN]


def _side(pieces: list[Piece], text: str, words: list[str]) -> Side:
    return Side(tuple(pieces), len(visible(text)) - sum(map(len, words)))
