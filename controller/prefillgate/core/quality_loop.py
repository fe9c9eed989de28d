"""Repetition loops: the same block of text again and again in direct succession, in linear time.

A sequence repeats with period p where every element equals the one p places before it. Runs are sought over lines
(periods to 16), words (to 64) and characters (to 16, for text without spaces); a loop of any longer period that lasts
to the end of the text is found by the failure function of the reversed units (Knuth, Morris and Pratt 1977).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import eq

from prefillgate.core.quality import Finding, Output

LINE_PERIODS = 16
WORD_PERIODS = 64
CHARACTER_PERIODS = 16


@dataclass(frozen=True, slots=True)
class LoopRule:
    """A loop is a block repeated at least `repeats` times over a stretch of at least `characters` characters."""

    repeats: int = 4
    characters: int = 60


@dataclass(frozen=True, slots=True)
class _Stretch:
    block: str
    times: int
    characters: int


def repetition_loop(output: Output, rule: LoopRule) -> Finding | None:
    """The content or the reasoning runs in a loop."""
    for name, text in (("content", output.content), ("reasoning", output.reasoning)):
        stretch = _find(text, rule)
        if stretch is not None:
            return Finding(f"{name} repeats {_shown(stretch.block)} {stretch.times} times in a row")
    return None


def _find(text: str, rule: LoopRule) -> _Stretch | None:
    if len(text) < rule.characters:
        return None
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    words = text.split()
    for units, periods in ((lines, LINE_PERIODS), (words, WORD_PERIODS), (text, CHARACTER_PERIODS)):
        stretch = _repeated_run(units, periods, rule)
        if stretch is not None:
            return stretch
    return _periodic_end(words, rule) or _periodic_end(text.rstrip(), rule)


def _repeated_run(units: Sequence[str], periods: int, rule: LoopRule) -> _Stretch | None:
    glue = _glue(units)
    for period in range(1, min(periods, len(units) // rule.repeats) + 1):
        for start, matches in _runs(units, period, (rule.repeats - 1) * period):
            stretch = _stretch(units[start : start + matches + period], period, glue)
            if _counts(stretch, rule):
                return stretch
    return None


def _glue(units: Sequence[str]) -> str:
    return "" if isinstance(units, str) else " "


def _runs(units: Sequence[str], period: int, shortest: int) -> Iterator[tuple[int, int]]:
    """Start and length of each maximal run of at least `shortest` places equal to the one `period` before."""
    equal = bytes(map(eq, units, islice(units, period, None))) + b"\0"  # a zero ends the last run
    wanted = b"\1" * shortest
    start = equal.find(wanted)
    while start >= 0:
        end = equal.index(b"\0", start)
        yield start, end - start
        start = equal.find(wanted, end)


def _stretch(units: Sequence[str], period: int, glue: str) -> _Stretch:
    return _Stretch(glue.join(units[:period]), len(units) // period, len(glue.join(units)))


def _counts(stretch: _Stretch, rule: LoopRule) -> bool:
    # Rules and table borders are made of punctuation: a block without a letter or digit is no loop.
    return stretch.characters >= rule.characters and any(map(str.isalnum, stretch.block))


def _periodic_end(units: Sequence[str], rule: LoopRule) -> _Stretch | None:
    """The longest end of the text that repeats one block often enough, whatever the block's length."""
    backwards = units[::-1]
    failure = [0] * len(backwards)
    best: tuple[int, int] | None = None
    border = 0
    for place in range(1, len(backwards)):
        while border and backwards[place] != backwards[border]:
            border = failure[border - 1]
        border += backwards[place] == backwards[border]
        failure[place] = border
        length, period = place + 1, place + 1 - border
        if border and length >= rule.repeats * period:
            best = (length, period)
    if best is None:
        return None
    length, period = best
    stretch = _stretch(units[len(units) - length :], period, _glue(units))
    return stretch if _counts(stretch, rule) else None


def _shown(block: str) -> str:
    short = " ".join(block.split())
    return repr(short if len(short) <= 40 else short[:39] + "…")
