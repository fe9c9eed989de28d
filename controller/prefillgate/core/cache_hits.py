"""Figures of prefill speed that cannot be right: those that measured cache hits.

Three signs, each by a stated rule:

* The time to the first token does not grow with the prompt. The different prompt lengths are paired, each of the
  shorter half with one of the longer half at least `LENGTH_RATIO` times as long; of real prefills the longer one takes
  longer in at least `SLOWER_SHARE` of such pairs. The sign is there when the exact binomial probability of so few
  slower ones is at most `FLAT_P`: that is the error of the rule where the prefills were real.
* Requests repeat an earlier prompt and nothing proves that they were prefills of their own.
* Time per prompt token is far under that of the fresh prefills, or, where none is proven, of each prompt's first time.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from prefillgate.core.exact import binomial_at_most
from prefillgate.core.prefill_times import TIMING_RATIO
from prefillgate.core.restate import P_DIGITS, Seen
from prefillgate.core.verdict import CellClass

LENGTH_RATIO = 2.0
SLOWER_SHARE = 0.9
FLAT_P = 0.01
REPEATED_SHARE = 0.1
TIMES_OF_A_LENGTH = 101  # the first so many of each length are looked at
RODE = frozenset({CellClass.COPY, CellClass.ORPHAN, CellClass.CONTRADICTED})


class Sign(StrEnum):
    """Why a prefill-speed figure of these requests cannot be right."""

    FLAT = "time to first token does not grow with the prompt"
    REPEATED = "repeated prompts"
    TOO_FAST = "time per prompt token far under that of fresh prefills"


@dataclass(frozen=True, slots=True)
class Speed:
    """Prefill speed of one arm as requests show it, and as fresh prefills do. Speeds are prompt tokens per second.

    `repeats` are requests that repeat an earlier prompt and are not proven fresh. `pairs` of lengths were compared, in
    `slower` of them the longer prompt took longer; `flat_p` is the probability of so few.
    """

    requests: int
    timed: int
    repeats: int
    tokens_per_second: float | None
    fresh_tokens_per_second: float | None
    fresh_proven: bool
    pairs: int
    slower: int
    flat_p: float | None
    signs: tuple[Sign, ...]


@dataclass(slots=True)
class SpeedLog:
    """Requests of one arm, in time order, folded into their speeds."""

    requests: int = 0
    timed: int = 0
    repeats: int = 0
    _all: list[float] = field(default_factory=lambda: [0.0, 0.0])  # prompt tokens, milliseconds
    _fresh: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _first: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _times: defaultdict[int, array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))

    def add(self, seen: Seen, repeat: bool) -> None:
        """Take one more request; `repeat` says that its prompt was asked before in this life of the server."""
        fresh = seen.cell_class is CellClass.FRESH
        self.count(1, int(repeat and not fresh))
        if seen.ms and seen.length:
            self.time(seen.length, seen.ms, fresh, not repeat and seen.cell_class not in RODE)

    def count(self, requests: int, repeats: int) -> None:
        """Count requests, and among them those that repeat a prompt and are not proven fresh."""
        self.requests += requests
        self.repeats += repeats

    def time(self, length: int, milliseconds: float, fresh: bool, first: bool) -> None:
        """Take the time of one request. `first` says that it asks its prompt first, and nothing says it rode."""
        self.timed += 1
        self._all[0] += length
        self._all[1] += milliseconds
        if fresh:
            self._fresh[0] += length
            self._fresh[1] += milliseconds
        if first:
            self._first[0] += length
            self._first[1] += milliseconds
        times = self._times[length]
        if len(times) < TIMES_OF_A_LENGTH:
            times.append(milliseconds)

    def speed(self) -> Speed:
        """The speeds of what was taken so far, with every sign that they are none."""
        shown, proven = _per_second(self._all), _per_second(self._fresh)
        fresh = _per_second(self._first) if proven is None else proven
        pairs, slower = length_pairs(self._times)
        flat_p = binomial_at_most(slower, pairs, SLOWER_SHARE) if pairs else None
        signs = []
        if flat_p is not None and round(flat_p, P_DIGITS) <= FLAT_P:
            signs.append(Sign.FLAT)
        if self.timed and self.repeats >= REPEATED_SHARE * self.requests:
            signs.append(Sign.REPEATED)
        if shown is not None and fresh is not None and fresh < TIMING_RATIO * shown:
            signs.append(Sign.TOO_FAST)
        counts = (self.requests, self.timed, self.repeats)
        return Speed(*counts, shown, fresh, proven is not None, pairs, slower, flat_p, tuple(signs))


def _per_second(sums: Sequence[float]) -> float | None:
    tokens, milliseconds = sums
    return 1000 * tokens / milliseconds if milliseconds else None


def length_pairs(times: Mapping[int, Sequence[float]]) -> tuple[int, int]:
    """(pairs, slower): disjoint pairs of lengths at least `LENGTH_RATIO` apart, and in how many the longer was slower.

    The i-th of the shorter half is paired with the i-th of the longer half; each length by its lower median time.
    """
    lengths = sorted(times)
    half = (len(lengths) + 1) // 2
    apart = [
        (short, long) for short, long in zip(lengths, lengths[half:], strict=False) if long >= LENGTH_RATIO * short
    ]
    return len(apart), sum(_median(times[long]) > _median(times[short]) for short, long in apart)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]
