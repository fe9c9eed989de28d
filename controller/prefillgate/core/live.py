"""Counting prefills while they happen: the rules of `freshness` and `alarm` over a log without an end, in flat memory.

A cell is classified as it comes, by what came before it; lines are in time order. The outcome of a prefill is that of
its own fresh cell, as in a replicate: were a bad copy held against it, a prompt asked a thousand times would make an
alarm out of requests. So copies, and whatever is not shown to be a prefill, are counted beside and move nothing. The
level of the alarm is the watch rule's (STATISTICS.md section 4), and the CUSUM starts at 0 again after an alarm.

What is remembered is bounded: `PROMPTS` prompts and requests, `EPOCHS` server lives, `TIMES` prefill times of each,
`SERIES` series. The one not met for longest is forgotten; a copy of a forgotten prompt is an orphan, and series beyond
the bound share one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from prefillgate.core.alarm import alarm_level, stepped
from prefillgate.core.cells import Cell, Status
from prefillgate.core.freshness import Classified, Classifier, EpochTiming
from prefillgate.core.policy import AlarmPolicy
from prefillgate.core.prefill_times import MEDIAN, UPPER_QUARTILE, quartiles_near
from prefillgate.core.throughput import cell_ms_per_token
from prefillgate.core.verdict import CellClass

PROMPTS = 4096
EPOCHS = 32
TIMES = 128
SERIES = 32
OTHER_SERIES = "(others)"

State = dict[str, Any]
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


@dataclass(slots=True)
class _LatestTiming(EpochTiming):
    """Prefill times of the latest cells alone."""

    def reference(self, length: int) -> float | None:
        """As over a whole log, of the times that are remembered."""
        cold = quartiles_near(self.cold, [length], MEDIAN)
        return (cold or quartiles_near(self.claimed, [length], UPPER_QUARTILE)).get(length)


class LiveClassifier(Classifier):
    """Classifies one cell after another and forgets it."""

    def _reset(self) -> None:
        super()._reset()
        self._timing = defaultdict(_LatestTiming)
        self._epochs: dict[tuple[str, str | None], None] = {}

    def take(self, cell: Cell) -> Classified:
        """The class of a cell that was scored, by what came before it."""
        self._note(cell)
        self._place(cell)
        placed = self._result.pop()
        prompt = (cell.arm, cell.server_epoch, cell.prompt_key)
        _keep(self._parent, prompt, PROMPTS)
        _keep(self._in_flight, prompt, PROMPTS)
        _keep(self._primary, (*prompt, cell.request_id or ""), PROMPTS)
        epoch = (cell.arm, cell.server_epoch)
        timing = self._timing[epoch]
        del timing.cold[:-TIMES], timing.claimed[:-TIMES]
        self._epochs[epoch] = None
        for gone in _keep(self._epochs, epoch, EPOCHS):
            self._timing.pop(gone, None)
            self._hits.pop(gone, None)
            self._probed.discard(gone)
        return placed

    def state(self) -> State:
        """Everything it remembers, as JSON values."""
        return {
            "units": list(self._units.items()),
            "parent": _rows(self._parent),
            "in_flight": _rows(self._in_flight),
            "primary": _rows(self._primary),
            "epochs": [
                [*epoch, epoch in self._probed, self._hits[epoch], timing.cold, timing.claimed]
                for epoch in self._epochs
                for timing in [self._timing[epoch]]
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave. Raises ValueError, TypeError or KeyError for anything else."""
        self._reset()
        self._units.update(dict(state["units"]))
        self._parent = {(arm, epoch, prompt): unit for arm, epoch, prompt, unit in state["parent"]}
        self._in_flight = {(arm, epoch, prompt): end for arm, epoch, prompt, end in state["in_flight"]}
        self._primary = {(arm, epoch, prompt, name): unit for arm, epoch, prompt, name, unit in state["primary"]}
        for arm, server, probed, hits, cold, claimed in state["epochs"]:
            epoch = (arm, server)
            self._epochs[epoch] = None
            self._hits[epoch] = hits
            if probed:
                self._probed.add(epoch)
            self._timing[epoch].cold.extend((length, rate) for length, rate in cold)
            self._timing[epoch].claimed.extend((length, rate) for length, rate in claimed)


@dataclass(slots=True)
class Series:
    """What was seen of one server, model or arm. `level` is the CUSUM's, in nats; `since_*` count from its last 0."""

    requests: int = 0
    invalid: int = 0
    prefills: int = 0
    copies: int = 0
    others: int = 0  # not shown to be a prefill: partial, unknown, contradicted, orphan
    known: int = 0  # complete answers with a known outcome: failures alone tell no rate
    bad_requests: int = 0
    bad_prefills: int = 0
    bad_copies: int = 0
    level: float = 0.0
    since_prefills: int = 0
    since_bad: int = 0
    alarms: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm as it fired: the series and its counts at that moment. `level` and `alarm_at` are in nats."""

    series: str
    number: int
    level: float
    alarm_at: float
    since_prefills: int
    since_bad: int
    requests: int
    prefills: int
    bad_prefills: int
    copies: int


@dataclass(slots=True)
class LiveWatch:
    """The alarm rule over cells as they come."""

    policy: AlarmPolicy
    series: dict[str, Series] = field(default_factory=dict)
    _classifier: LiveClassifier = field(default_factory=LiveClassifier)

    def take(self, cell: Cell, name: str) -> Alarm | None:
        """Count a cell of the series `name`, and tell the alarm that it raised."""
        if name not in self.series and len(self.series) >= SERIES:
            name = OTHER_SERIES
        series = self.series.setdefault(name, Series())
        if cell.status is Status.INVALID:
            series.invalid += 1
            return None
        series.requests += 1
        outcome = cell.outcome()
        series.known += cell.bad is not None and cell.status is Status.OK
        series.bad_requests += bool(outcome)
        found = self._classifier.take(cell).cell_class
        if found is CellClass.FRESH:
            series.prefills += 1
            return None if outcome is None else self._stepped(name, series, outcome)
        if found is CellClass.COPY:
            series.copies += 1
            series.bad_copies += bool(outcome)
        else:
            series.others += 1
        return None

    def _stepped(self, name: str, series: Series, bad: bool) -> Alarm | None:
        limit = alarm_level(self.policy, watch=True)
        series.bad_prefills += bad
        series.since_prefills += 1
        series.since_bad += bad
        series.level = level = stepped(series.level, bad, self.policy)
        if level >= limit:
            series.alarms += 1
            alarm = Alarm(
                name,
                series.alarms,
                level,
                limit,
                series.since_prefills,
                series.since_bad,
                series.requests,
                series.prefills,
                series.bad_prefills,
                series.copies,
            )
            series.level = 0.0
        else:
            alarm = None
        if not series.level:
            series.since_prefills = series.since_bad = 0
        return alarm

    def state(self) -> State:
        """Everything it remembers, as JSON values."""
        return {
            "series": {name: asdict(series) for name, series in self.series.items()},
            "classifier": self._classifier.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave. Raises ValueError, TypeError or KeyError for anything else."""
        self.series = {name: Series(**values) for name, values in state["series"].items()}
        self._classifier.restore(state["classifier"])


def slow(cell: Cell, limit_ms: float, least_tokens: int) -> bool | None:
    """Whether a cell took more than `limit_ms` milliseconds of decoding a token; None where it tells no time, or has
    fewer than `least_tokens` output tokens."""
    if cell.output_tokens is None or cell.output_tokens < least_tokens:
        return None
    taken = cell_ms_per_token(cell.output_tokens, cell.decode_ms)
    return None if taken is None else taken > limit_ms


def _keep(known: dict[_K, _V], key: _K, most: int) -> list[_K]:
    """Make `key` the one met last, and forget those met longest ago beyond `most`. Returns the forgotten."""
    if key in known:
        known[key] = known.pop(key)
    forgotten = []
    while len(known) > most:
        oldest = next(iter(known))
        del known[oldest]
        forgotten.append(oldest)
    return forgotten


def _rows(known: Mapping[tuple[Any, ...], Any]) -> list[list[Any]]:
    return [[*key, value] for key, value in known.items()]
