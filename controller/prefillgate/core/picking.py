"""Choosing a few prompts over all their lengths: one of each quantile, and the longest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stratum:
    """A quantile of the lengths: `shortest` to `longest`, `size` prompts, of which `chosen` (a position) was drawn."""

    shortest: int
    longest: int
    size: int
    chosen: int


def choose(lengths: Sequence[int], wanted: int, seed: int) -> tuple[Stratum, ...]:
    """One position of `lengths` from each of `wanted` strata of nearly equal size, shorter ones first.

    From the last stratum the longest is taken (of equals the earliest), from the others one drawn by `seed`: equal
    input, equal choice, on every machine. With no more lengths than wanted all are chosen.
    """
    order = sorted(range(len(lengths)), key=lambda at: (lengths[at], -at))
    count = min(wanted, len(order))
    strata = []
    for number in range(count):
        members = order[number * len(order) // count : (number + 1) * len(order) // count]
        last = number == count - 1
        chosen = members[-1] if last else members[_draw(seed, number, len(members))]
        strata.append(Stratum(lengths[members[0]], lengths[members[-1]], len(members), chosen))
    return tuple(strata)


def _draw(seed: int, number: int, size: int) -> int:
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % size
