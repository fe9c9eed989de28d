"""What the classes of all cells of a large log hang on: times of fresh prefills, and where a counter was seen alive.

Eight bytes for each prefill that claims to be fresh and tells its time; beside them only what servers and lengths have.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from prefillgate.core.cells import Status
from prefillgate.core.freshness import claims_cold, claims_fresh, timed_tokens
from prefillgate.core.log_row import Block, Kind
from prefillgate.core.prefill_times import MEDIAN, TIMING_RATIO, UPPER_QUARTILE, quartiles_by_length

_Epoch = tuple[str, str | None]
_Rates = defaultdict[int, "array[float]"]


def _rates() -> _Rates:
    return defaultdict(lambda: array("d"))


@dataclass(slots=True)
class EpochTimes:
    """Prefill milliseconds per processed token of one arm and epoch, by prompt length, as `EpochTiming` has them."""

    cold: _Rates = field(default_factory=_rates)
    claimed: _Rates = field(default_factory=_rates)
    _references: dict[int, float] | None = None

    def reference(self, length: int) -> float | None:
        """What a prefill of that many tokens took per token; None where nothing tells. Once all times are in."""
        if self._references is None:
            lengths = sorted({length for of in (self.cold, self.claimed) for length, rates in of.items() if rates})
            self._references = quartiles_by_length(self.claimed, lengths, UPPER_QUARTILE)
            self._references.update(quartiles_by_length(self.cold, lengths, MEDIAN))
        return self._references.get(length)


@dataclass(slots=True)
class Survey:
    """The first look at all rows, in any order. Invalid ones tell nothing."""

    times: defaultdict[_Epoch, EpochTimes] = field(default_factory=lambda: defaultdict(EpochTimes))
    probed: set[_Epoch] = field(default_factory=set)
    hits: defaultdict[_Epoch, int] = field(default_factory=lambda: defaultdict(int))
    _timed: dict[int, tuple[int, list[array[float]]]] = field(default_factory=dict)
    _met: int = 0  # kinds of the present list

    def take(self, block: Block) -> None:
        """Note the times of a block."""
        if block.anew:
            self._timed, self._met = {}, 0
        for number in range(self._met, len(block.kinds)):
            self._meet(number, block.kinds[number])
        self._met = len(block.kinds)
        prefill, timed = block.column("prefill_ms"), self._timed
        if prefill is not None and timed:
            told = [
                (number, ms)
                for number, ms in zip(block.numbers, prefill, strict=True)  # equivalent mutant: equally long
                if number in timed
            ]
            for number, ms in told:
                if ms:
                    tokens, sinks = timed[number]
                    for sink in sinks:
                        sink.append(ms / tokens)

    def _meet(self, number: int, kind: Kind) -> None:
        tokens, length = timed_tokens(kind), kind.prompt_tokens
        if kind.status is Status.INVALID or tokens is None or length is None:
            return
        times = self.times[kind.arm, kind.server_epoch]
        sinks = [times.cold[length]] if claims_cold(kind) else []
        if claims_fresh(kind):
            sinks.append(times.claimed[length])
        if sinks:
            self._timed[number] = tokens, sinks

    def count(self, counted: Iterable[tuple[Kind, int]]) -> None:
        """Note how many rows of each kind there are."""
        for kind, rows in counted:
            if kind.status is Status.INVALID:
                continue
            epoch = (kind.arm, kind.server_epoch)
            if kind.counter_alive:
                self.probed.add(epoch)
            if kind.cached_tokens:
                self.hits[epoch] += rows

    def alive(self, kind: Kind) -> bool:
        """Whether the counter was seen alive by something other than a single row of this kind."""
        epoch = (kind.arm, kind.server_epoch)
        return epoch in self.probed or self.hits[epoch] > (1 if kind.cached_tokens else 0)

    def limit(self, kind: Kind) -> tuple[int, float] | None:
        """(tokens, milliseconds per token): a prefill time over these tokens under that contradicts a fresh one."""
        tokens, length = timed_tokens(kind), kind.prompt_tokens
        if tokens is None or length is None:
            return None
        reference = self.times[kind.arm, kind.server_epoch].reference(length)
        return None if reference is None else (tokens, TIMING_RATIO * reference)
