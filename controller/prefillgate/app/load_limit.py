"""How many fresh prefills replays put on servers in production: no more within any hour than the line allows.

Each is counted in the book before it is sent, so that a controller that is killed, or follows another, sends no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from prefillgate.core.journal import Purpose
from prefillgate.core.schedule import RunCell
from prefillgate.evidence.book import Book
from prefillgate.evidence.book_rows import Load
from prefillgate.replay.clock import Clock

HOUR_SECONDS = 3600.0


@dataclass
class LoadLimit:
    """The pace of one run. `arm` is the one whose servers are in production.

    A pair of cells is counted where its first half begins: both must run next to each other, and no hour may come
    between them.
    """

    book: Book
    line: str
    work: str
    most: int
    arm: str
    clock: Clock
    told: Callable[[], None]  # that it waits
    _counted: dict[int, bool] = field(default_factory=dict)  # pairs, and whether their cell on production was begun
    _full_until: float = 0.0

    def __call__(self, step: RunCell) -> float:
        """Seconds until the cell may be begun; 0: now, and it is counted. Raises `StoreError`."""
        pair, mine = step.pair if step.purpose is Purpose.PAIR else None, step.arm == self.arm
        begun = None if pair is None else self._counted.get(pair)
        if (begun is None and pair is None and not mine) or (begun is not None and not (begun and mine)):
            seconds = 0.0
        else:
            seconds = self._wait()
        if pair is not None and seconds <= 0:
            self._counted[pair] = bool(begun) or mine
        return seconds

    def _wait(self) -> float:
        now = self.clock.now()
        seconds = self._full_until - now
        if seconds <= 0:
            seconds = self.book.take_load(Load(self.line, now, self.work), self.most, HOUR_SECONDS)
            self._full_until = now + seconds
        if seconds > 0:
            self.told()
        return max(0.0, seconds)
