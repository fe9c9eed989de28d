"""A multiset of numbers in rising order, in blocks: a million of them come and go in microseconds each."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort

BLOCK = 1024  # equivalent mutant: the size of a block changes how long it takes, not what it holds


class Rising:
    """Numbers kept sorted. Eight bytes each."""

    def __init__(self) -> None:
        self._blocks: list[array[float]] = []
        self._last: list[float] = []  # of each block
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, value: float) -> None:
        """Take one more."""
        self._count += 1
        if not self._blocks:
            self._blocks.append(array("d", (value,)))
            self._last.append(value)
            return
        at = min(bisect_right(self._last, value), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, value)
        if len(block) > 2 * BLOCK:  # equivalent mutant: as `BLOCK`
            self._blocks[at : at + 1] = [block[:BLOCK], block[BLOCK:]]
            self._last[at : at + 1] = [block[BLOCK - 1], block[-1]]
        else:
            self._last[at] = block[-1]

    def remove(self, value: float) -> None:
        """Take one such number out. Raises ValueError where there is none."""
        at = bisect_left(self._last, value)
        block = self._blocks[at] if at < len(self._blocks) else array("d")
        place = bisect_left(block, value)
        if place == len(block) or block[place] != value:
            raise ValueError(f"{value!r} is not there")
        self._count -= 1
        del block[place]
        if block:
            self._last[at] = block[-1]
        else:
            del self._blocks[at], self._last[at]

    def __getitem__(self, rank: int) -> float:
        """The number of that rank, from 0. Raises IndexError beyond the last."""
        for block in self._blocks:
            if rank < len(block):
                return block[rank]
            rank -= len(block)
        raise IndexError(rank)
