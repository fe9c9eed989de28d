"""What the clock and the shape of a run forbid: times that run backwards, an answer that took less than its first
token, fields that this kind of run never fills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from prefillgate.bundle.findings import unlike
from prefillgate.core.cells import CANDIDATE, Status
from prefillgate.core.gate import Gate
from prefillgate.core.journal import (
    CauseNoted,
    CellMeasured,
    EpochSeen,
    Event,
    Overridden,
    OverrideEnded,
    Planned,
    RunResumed,
    SeparationKept,
)
from prefillgate.core.schedule import Separate, next_step, tainted_epochs

SLACK_SECONDS = 0.1  # a clock that is kept right by small steps goes back by less
#: Written by people, at their own clock.
_OF_PEOPLE = (Overridden, OverrideEnded, CauseNoted)


@dataclass(slots=True)
class Times:
    """Follows a journal in order. `latest` is the time of the event before, `ended` the end of the last cell of each
    server (of all servers where only one cell ever runs), both of this session: another machine may go on."""

    latest: float | None = None
    ended: dict[tuple[str, int], float] = field(default_factory=dict)

    def differences(self, gate: Gate, event: Event) -> Iterator[str]:
        """What is wrong with the event. `gate` is as it was before it."""
        if isinstance(event, Planned):
            self.latest = event.started_at
            return
        if isinstance(event, RunResumed):
            self.latest, self.ended = event.at, {}
            return
        if isinstance(event, CellMeasured):
            if gate.plan.scheduled:
                yield from _never_filled(gate, event)
            yield from self._of_cell(gate, event)
            return
        if isinstance(event, SeparationKept) and gate.plan.scheduled:
            yield from _separation_differs(gate, event)
        at = event.seen_at if isinstance(event, EpochSeen) else getattr(event, "at", None)
        if at is None or isinstance(event, _OF_PEOPLE) or not gate.plan.scheduled:
            return
        name = "seen_at" if isinstance(event, EpochSeen) else "at"
        if gate.plan.shape.parallel and isinstance(event, EpochSeen):
            return  # a probe may take as long as the cells of other servers
        if self.latest is not None and at < self.latest - SLACK_SECONDS:
            yield f"{name} is {at}, and the event before it is of {self.latest}: {_BACK}"
        self.latest = max(at, self.latest or at)

    def _of_cell(self, gate: Gate, event: CellMeasured) -> Iterator[str]:
        cell, first = event.cell, event.time_to_first_token_ms
        begun, ended = cell.started_at, cell.ended_at
        if begun is None or ended is None:
            if cell.status is Status.OK and gate.plan.scheduled:
                yield "started_at or ended_at is missing"
            return
        if ended < begun:
            yield f"ended_at is {ended}, before started_at ({begun})"
        if first is not None and not 0 <= first <= (ended - begun) * 1000 + 1:
            yield f"time_to_first_token_ms is {first}, and the cell took {(ended - begun) * 1000:.3f} ms"
        if not gate.plan.scheduled:
            return
        server = (event.cell.arm, event.lane) if gate.plan.shape.parallel else ("", 0)
        before = self.ended.get(server)
        if before is not None and begun < before - SLACK_SECONDS:
            yield f"started_at is {begun}, and the cell before it on that server ended at {before}: {_BACK}"
        if not gate.plan.shape.parallel and self.latest is not None and begun < self.latest - SLACK_SECONDS:
            yield f"started_at is {begun}, and the event before it is of {self.latest}: {_BACK}"
        self.ended[server] = ended
        self.latest = max(ended, self.latest or ended) if not gate.plan.shape.parallel else self.latest


_BACK = "a time was changed, or the clock was set back during the run"


def _never_filled(gate: Gate, event: CellMeasured) -> Iterator[str]:
    """Fields that a run leaves empty, or that its shape fixes."""
    cell, shape = event.cell, gate.plan.shape
    due: list[tuple[str, object, object]] = [
        ("choice_index", cell.choice_index, None),
        ("bad", cell.bad, None),
        ("flag_outcomes", cell.flag_outcomes, ()),
        ("shared_server", cell.shared_server, shape.shared),
    ]
    if cell.status is Status.OK:
        due += [("reason", event.reason, None), ("detail", event.detail, None), ("http_status", event.http_status, 200)]
    if cell.arm not in shape.arms:
        yield unlike("arm", cell.arm, " and ".join(shape.arms), "the arms of this run are")
    for name, stated, wanted in due:
        if stated != wanted:
            yield unlike(name, stated, wanted, "in a cell of this run it is")


def _separation_differs(gate: Gate, event: SeparationKept) -> Iterator[str]:
    """A gap must have passed; a restart is told by lives of the candidate without a bad cell."""
    step = next_step(gate)
    if not isinstance(step, Separate):
        return  # said by the order of events
    if event.how == "gap":
        if step.not_before is not None and event.at < step.not_before:
            yield f"at is {event.at}, and the gap ended at {step.not_before}"
        due = f"{gate.plan.policy.replicate.gap_seconds:g} s after the last bad cell"
        if event.detail != due:
            yield unlike("detail", event.detail, due, "a gap of this policy is told as")
    elif event.how == "restart":
        yield from _restart_differs(gate, event, step)
    else:
        yield unlike("how", event.how, "gap or restart", "a run separates by")


def _restart_differs(gate: Gate, event: SeparationKept, step: Separate) -> Iterator[str]:
    before = (step.trigger_epoch or "").partition("/")[0]
    lives = {seen.lane: seen.server_epoch.partition("/")[0] for seen in gate.epochs[CANDIDATE]}
    due = f"candidate epoch {before} before, {', '.join(lives[lane] for lane in sorted(lives))} after"
    if event.detail != due:
        yield unlike("detail", event.detail, due, "the probes of the candidate's servers give")
    tainted = {epoch.partition("/")[0] for epoch in tainted_epochs(gate)}
    for life in lives.values():
        if life in tainted:
            yield f"how is restart, and the candidate's life {life} had a bad cell"
