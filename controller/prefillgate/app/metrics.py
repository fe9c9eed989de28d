"""What is counted, for Prometheus. Figures of replays are those of their verdicts; labels are bounded.

The first `MOST_LINES` lines have a label of their own, all others share `other`; a line that is gone gives its place
back. Counters count what this process saw happen: what a resumed run had measured before is in no counter.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from prefillgate import __version__
from prefillgate.api.kinds.names import ALL_NAMES
from prefillgate.app.metrics_table import FAST, PREFIX, ROWS
from prefillgate.core.verdict import ArmCounts, Rollback, Verdict
from prefillgate.kube.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    JOBS,
    LEASES,
    PODS,
    REPLICA_SETS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
)
from prefillgate.kube.queue import Depth
from prefillgate.kube.transport import CallMade
from prefillgate.reconcile.snapshot import WorkKind, WorkSeen, WorkState
from prefillgate.reconcile.waits import AT_REST

MOST_LINES = 200
OTHER = "other"
_BUILT_IN = (PODS, SERVICES, SECRETS, CONFIG_MAPS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, ENDPOINT_SLICES)
RESOURCES = frozenset(
    {kind.plural for kind in (*_BUILT_IN, LEASES, EVENTS)}
    | {names.plural for names in ALL_NAMES}
    | {"version", "selfsubjectaccessreviews", "controllerrevisions"}
)

_Counts = dict[tuple[str, ...], int]
_NOW = ("cached_share", "e_value", "rollback_refused")  # of a line and its present replay


@dataclass(slots=True)
class _Line:
    """What is known of a line for its metrics: its label, and what was counted of each of its works."""

    label: str
    counted: dict[str, _Counts] = field(default_factory=dict)
    works: tuple[WorkSeen, ...] = ()
    series: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)


def _state(work: WorkSeen) -> str:
    """What runs beside what was begun and has no turn, or no window, yet."""
    waits = work.state is WorkState.RUNNING and work.waiting in AT_REST
    return "waiting" if waits else work.state.value


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self, most_lines: int = MOST_LINES) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._most = most_lines
        self._lines: dict[str, _Line] = {}
        self._labels: Tally[str] = Tally()
        self._works: Tally[tuple[str, str]] = Tally()
        self._of: dict[str, Any] = {}
        makers: Mapping[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
        for row in ROWS:
            extra = {"buckets": FAST} if row.kind == "histogram" else {}
            made = makers[row.kind](PREFIX + row.name, row.help, row.labels, registry=self.registry, **extra)
            self._of[row.name] = made
        self._of["build_info"].labels(__version__).set(1)

    # -- the process

    def leads(self, token: int | None) -> None:
        """Since now, with that token; None: no longer. Figures that only a leader has go with the term."""
        self._of["leading"].set(0 if token is None else 1)
        self._of["term"].set(token or 0)
        if token is None:
            self._of["lines"].set(0)
            for known in self._lines.values():
                self._quiet(known)
                known.counted.clear()  # what others measure before the next term is theirs

    def synced(self, synced: bool) -> None:
        self._of["synced"].set(int(synced))

    def called(self, call: CallMade) -> None:
        """A call to the API server ended."""
        resource = call.plural if call.plural in RESOURCES else OTHER
        self._of["api_calls"].labels(call.verb, resource, call.outcome).inc()
        if call.verb != "watch":
            self._of["api_call_seconds"].labels(call.verb).observe(call.seconds)

    def looked(self, kind: str, seconds: float) -> None:
        self._of["reconcile_seconds"].labels(kind).observe(seconds)

    def failed(self, kind: str, error: str) -> None:
        self._of["reconcile_errors"].labels(kind, error).inc()

    def queued(self) -> None:
        self._of["queue_adds"].inc()

    def retried(self) -> None:
        self._of["queue_retries"].inc()

    def queue(self, depth: Callable[[], Depth] | None) -> None:
        """How deep the queue is, whenever it is asked for; None: there is no queue now."""
        for state in ("ready", "busy", "later"):
            gauge = self._of["queue_depth"].labels(state)
            gauge.set_function(lambda state=state: 0 if depth is None else getattr(depth(), state))

    def told(self, reason: str) -> None:
        self._of["notices"].labels(reason).inc()

    def waiting(self, notices: int) -> None:
        self._of["notices_waiting"].set(notices)

    # -- lines

    def saw(self, line: str, works: Iterable[WorkSeen]) -> None:
        """A line was looked at, with its works."""
        known = self._line(line)
        self._show(known, tuple(works))
        for work in known.works:
            if work.verdict is not None:
                self._count(known, work, work.verdict)
        keys = {work.key for work in known.works}
        known.counted = {key: counts for key, counts in known.counted.items() if key in keys}

    def decided(self, line: str, verdict: str, reason: str) -> None:
        """A rollout of the line came to its end."""
        self._series(self._line(line), "decisions", [verdict, reason]).inc()

    def only(self, lines: Iterable[str]) -> None:
        """These are all that there are."""
        for line in self._lines.keys() - set(lines):
            self.gone(line)
        self._of["lines"].set(len(self._lines))

    def gone(self, line: str) -> None:
        """A line was deleted."""
        known = self._lines.pop(line, None)
        if known is None:
            return
        self._quiet(known)
        self._labels[known.label] -= 1
        if known.label != OTHER:
            del self._labels[known.label]
            for name, labels in known.series:
                self._of[name].remove(*labels)
        self._of["lines"].set(len(self._lines))

    def _line(self, line: str) -> _Line:
        if line not in self._lines:
            own = len(self._labels) - (OTHER in self._labels) < self._most
            label = line if own else OTHER
            self._labels[label] += 1
            self._lines[line] = _Line(label)
            self._of["lines"].set(len(self._lines))
        return self._lines[line]

    def _quiet(self, known: _Line) -> None:
        """Nothing is measured on it now."""
        self._show(known, ())
        for name, labels in [each for each in known.series if each[0] in _NOW]:
            known.series.discard((name, labels))
            self._of[name].remove(*labels)

    def _show(self, known: _Line, works: tuple[WorkSeen, ...]) -> None:
        """These are the works of the line now."""
        before, after = ([(work.kind.value, _state(work)) for work in each] for each in (known.works, works))
        known.works = works
        if before != after:
            self._works.subtract(before)
            self._works.update(after)
            for kind, state in {*before, *after}:
                self._of["works"].labels(kind, state).set(self._works[kind, state])

    def _count(self, known: _Line, work: WorkSeen, verdict: Verdict) -> None:
        now = _counts(verdict)
        before = known.counted.get(work.key)
        if before is None:
            before = {} if work.before is None else _counts(work.before)
        for (name, *labels), count in now.items():
            more = count - before.get((name, *labels), 0)
            if more > 0:
                self._series(known, name, labels).inc(more)
        known.counted[work.key] = now
        if work.kind is WorkKind.JUDGE and known.label != OTHER:  # of many lines there is no one figure
            self._now(known, verdict)

    def _now(self, known: _Line, verdict: Verdict) -> None:
        for arm, _, counts in verdict.arms:
            if counts.requests:
                share = 1 - counts.prefills / counts.requests
                self._series(known, "cached_share", [arm]).set(share)
        refused = verdict.alarm and verdict.decision.rollback is Rollback.REFUSED
        self._series(known, "rollback_refused", []).set(int(refused))
        if verdict.replicates:
            self._series(known, "e_value", []).set(verdict.replicates[-1].e_value)

    def _series(self, known: _Line, name: str, labels: Iterable[str]) -> Any:
        values = (known.label, *labels)
        known.series.add((name, values))
        return self._of[name].labels(*values)


def _counts(verdict: Verdict) -> _Counts:
    """What is counted of a verdict, by metric and labels."""
    found: _Counts = {}
    for arm, _, counts in verdict.arms:
        for freshness, count in _by_freshness(counts).items():
            found["cells", arm, freshness] = count
        found["prefill_units", arm, "good"] = counts.prefills - counts.bad_prefills
        found["prefill_units", arm, "bad"] = counts.bad_prefills
    for view in verdict.cells:
        if view.cell_class is None and view.reason:
            key = ("refusals", view.cell.arm, view.reason)
            found[key] = found.get(key, 0) + 1
    return found


def _by_freshness(counts: ArmCounts) -> dict[str, int]:
    return {
        "fresh": counts.prefills,
        "copy": counts.copies,
        "partial": counts.partial,
        "unknown": counts.unknown,
        "orphan": counts.orphans,
        "invalid": counts.invalid,
    }
