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


@dataclass(frozen=True, slots=True)
class Change:
    """A run of text of one side, of the other, or (both True) of both."""

    text: str
    left: bool
    right: bool


@dataclass(frozen=True, slots=True)
class Woven:
    """Two texts as one: what is common once, what differs the left side's first."""

    changes: tuple[Change, ...]
    left_out: tuple[int, int]  # characters of either text that are not shown


def compare(left: str, right: str) -> tuple[Side, Side]:
    """Both texts in pieces, cleaned, each cut at `WORDS_SHOWN` words or `CHARACTERS_SHOWN` characters."""
    words, others = _words(left), _words(right)
    sides: tuple[list[Piece], list[Piece]] = ([], [])
    for change in _changes(words, others):
        if change.left:
            sides[0].append(Piece(change.text, not change.right))
        if change.right:
            sides[1].append(Piece(change.text, not change.left))
    return _side(sides[0], left, words), _side(sides[1], right, others)


def weave(left: str, right: str) -> Woven:
    """Both texts in one, cleaned and cut as by `compare`. Blanks between two changes belong to both of them."""
    words, others = _words(left), _words(right)
    woven: list[Change] = []
    changes = _changes(words, others)
    for place, change in enumerate(changes):
        between = 0 < place < len(changes) - 1 and change.left and change.right and not change.text.strip()
        sides = ((True, False), (False, True)) if between else ((change.left, change.right),)
        for side in sides:
            _add(woven, Change(change.text, *side))
    left_out = (_left_out(left, words), _left_out(right, others))
    return Woven(tuple(woven), left_out)


def _add(woven: list[Change], change: Change) -> None:
    """Append, one run of a side growing where nothing common stands between."""
    if not (change.left and change.right):
        for place in range(len(woven) - 1, max(len(woven) - 3, -1), -1):
            last = woven[place]
            if last.left and last.right:
                break
            if (last.left, last.right) == (change.left, change.right):
                woven[place] = Change(last.text + change.text, change.left, change.right)
                return
    woven.append(change)


def _changes(words: list[str], others: list[str]) -> list[Change]:
    # autojunk keeps text that repeats one word thousands of times from costing the square of its length
    matcher = SequenceMatcher(a=words, b=others, autojunk=True)
    changes = []
    for kind, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        if kind == "equal":
            changes.append(Change("".join(words[a_from:a_to]), True, True))
            continue
        removed, added = "".join(words[a_from:a_to]), "".join(others[b_from:b_to])
        changes += [Change(removed, True, False)] if removed else []
        changes += [Change(added, False, True)] if added else []
    return changes


def alone(text: str) -> Side:
    """A text without another to compare it with."""
    words = _words(text)
    return _side([Piece("".join(words), False)] if words else [], text, words)


def _words(text: str) -> list[str]:
    shown = visible(text)[:CHARACTERS_SHOWN]
    return re.findall(r"\s+|[^\s]+", shown)[: 2 * WORDS_SHOWN]


def _side(pieces: list[Piece], text: str, words: list[str]) -> Side:
    return Side(tuple(pieces), _left_out(text, words))


def _left_out(text: str, words: list[str]) -> int:
    return len(visible(text)) - sum(map(len, words))
