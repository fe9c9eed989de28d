"""How long prefills of about the same length take: what a prefill too fast for a fresh one is held against
(STATISTICS.md section 1)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prefillgate.core.rising import Rising

NEIGHBOUR_SHARE = 0.25  # prompt lengths compared for timing
MEDIAN, UPPER_QUARTILE = 2, 3  # as quartiles
TIMING_RATIO = 0.5  # prefill ms per token under this share of the reference contradicts

Points = list[tuple[int, float]]  # prompt length in tokens, prefill milliseconds per processed token


def quartiles_near(points: Points, lengths: Sequence[int], quartile: int) -> dict[int, float]:
    """The quartile of the rates at prompt lengths within 25 %, for each of the rising `lengths` that has any."""
    rates: dict[int, list[float]] = defaultdict(list)
    for length, rate in points:
        rates[length].append(rate)
    return quartiles_by_length(rates, lengths, quartile)


def quartiles_by_length(
    rates: Mapping[int, Sequence[float]], lengths: Sequence[int], quartile: int
) -> dict[int, float]:
    """As `quartiles_near`, of rates that stand by their length already.

    Both ends of the window rise with the length, so each rate enters and leaves it once.
    """
    found: dict[int, float] = {}
    known, window = sorted(rates), Rising()
    entered = left = 0
    for length in lengths:
        reach = NEIGHBOUR_SHARE * length
        while entered < len(known) and known[entered] <= length + reach:
            for rate in rates[known[entered]]:
                window.add(rate)
            entered += 1
        while left < entered and known[left] < length - reach:
            for rate in rates[known[left]]:
                window.remove(rate)
            left += 1
        if len(window):
            found[length] = quartile_of(window, quartile)
    return found


def quartile_of(rising: Rising | Sequence[float], quartile: int) -> float:
    """The first, second or third quartile of sorted values, with linear interpolation between order statistics."""
    at, quarters = divmod((len(rising) - 1) * quartile, 4)
    if not quarters:
        return rising[at]
    return (rising[at] * (4 - quarters) + rising[at + 1] * quarters) / 4


@dataclass(slots=True)
class _Near:
    """Around one prompt length: rates of cold-proof cells and of claims within 25 %, and of every cell of that length,
    each rising. `known` says that a reference is made for this length."""

    cold: list[float] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    known: bool = False

    def limit(self) -> float | None:
        """The rate below which a prefill of this length is too fast."""
        if not self.known:
            return None
        reference = quartile_of(self.cold, MEDIAN) if self.cold else quartile_of(self.claimed, UPPER_QUARTILE)
        return TIMING_RATIO * reference

    def too_fast(self) -> int:
        """How many cells of this length are: always the fastest ones."""
        limit = self.limit()
        return 0 if limit is None else bisect_left(self.own, limit)


class TimesTold:
    """Prefill times of one life of a server as they become known, one after another.

    The references are those of `quartiles_near` over all of them at any moment.
    """

    def __init__(self) -> None:
        self._near: dict[int, _Near] = {}
        self._cold: Points = []
        self._claimed: Points = []

    def take(self, length: int, rate: float, cold: bool, claimed: bool) -> bool:
        """One more time, milliseconds per processed token of a prompt of `length` tokens; whether an earlier cell
        became too fast by it, or is no longer.

        `cold` is one under a proof, `claimed` one whose own counter says that it was fresh.
        """
        here = self._near.get(length)
        if here is None:
            here = self._near[length] = self._around(length)
        others = [near for at, near in self._near.items() if abs(at - length) <= NEIGHBOUR_SHARE * at]
        before = [near.too_fast() for near in others]
        here.known = here.known or cold or claimed
        for near in others:
            if cold:
                insort(near.cold, rate)
            if claimed:
                insort(near.claimed, rate)
        if cold:
            self._cold.append((length, rate))
        if claimed:
            self._claimed.append((length, rate))
        changed = before != [near.too_fast() for near in others]
        insort(here.own, rate)
        return changed

    def is_too_fast(self, length: int, rate: float) -> bool:
        """Whether a prefill of that length and rate contradicts a fresh one."""
        near = self._near.get(length)
        limit = None if near is None else near.limit()
        return limit is not None and rate < limit

    def _around(self, length: int) -> _Near:
        reach = NEIGHBOUR_SHARE * length
        return _Near(
            sorted(rate for at, rate in self._cold if abs(at - length) <= reach),
            sorted(rate for at, rate in self._claimed if abs(at - length) <= reach),
        )
