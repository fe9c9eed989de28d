"""The runner: does what the schedule says, one cell at a time on each server, and writes every fact down before
looking at it.

Killed at any instant and started again on the same journal it goes on where it was: a cell whose event was committed
is never run again, one that was not is planned anew with another nonce.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prefillgate.core.cells import BASELINE, CANDIDATE, ColdProof, Status
from prefillgate.core.decision import Ruling
from prefillgate.core.gate import REFUSALS, Gate
from prefillgate.core.journal import (
    CellChecked,
    CellMeasured,
    DeadlinePassed,
    Event,
    Journal,
    ReplicateAborted,
    ReplicateStarted,
    SeparationKept,
    Texts,
)
from prefillgate.core.quality import Output
from prefillgate.core.schedule import (
    CheckCell,
    RunCell,
    Separate,
    StartReplicate,
    Step,
    Stop,
    next_step,
    tainted_epochs,
)
from prefillgate.core.windows import SwapServers
from prefillgate.engines.base import EngineError
from prefillgate.replay.checks import CheckContext, CheckSuite
from prefillgate.replay.clock import Clock
from prefillgate.replay.flying import Flying
from prefillgate.replay.lane import BUSY_STATUS, Lane, Measurement, NotIdleError
from prefillgate.replay.replay_set import ReplaySet
from prefillgate.replay.swapping import SwapFailed, Swapper

SEPARATION_POLL_SECONDS = 2.0
PACE_POLL_SECONDS = 1.0  # how long a cell that must wait is not asked for again
SEPARATION_ASK_SECONDS = 2.0  # how long one look at the candidate's epoch may take
FIRST_BUSY_WAIT_SECONDS = 1.0  # doubled with each 429 or 503 that names no time
MAX_UNTOLD_BUSY_WAIT_SECONDS = 30.0
MAX_BUSY_WAIT_SECONDS = 300.0  # of what a server asks for; it is asked again then


def busy_wait_seconds(asked: float | None, in_a_row: int) -> float:
    """How long a server is left alone that said 429 or 503 `in_a_row` times, the last time asking for `asked`."""
    if asked is not None:
        return max(FIRST_BUSY_WAIT_SECONDS, min(asked, MAX_BUSY_WAIT_SECONDS))
    return min(FIRST_BUSY_WAIT_SECONDS * 2.0 ** min(in_a_row - 1, 10), MAX_UNTOLD_BUSY_WAIT_SECONDS)


class Watcher(Protocol):
    """Who is told what happens, as it happens."""

    def event(self, gate: Gate, event: Event) -> None:
        """A fact was written and folded."""

    def waiting(self, gate: Gate, step: Separate) -> None:
        """The replicate waits for its separation; called at each look."""


class Silent:
    """A watcher that says nothing."""

    def event(self, gate: Gate, event: Event) -> None:
        """Nothing."""

    def waiting(self, gate: Gate, step: Separate) -> None:
        """Nothing."""


@dataclass(slots=True)
class Runner:
    """Everything one run needs. `gate` is the journal folded so far."""

    gate: Gate
    journal: Journal
    lanes: Mapping[str, Lane]
    replay_set: ReplaySet
    suite: CheckSuite
    clock: Clock
    watcher: Watcher = field(default_factory=Silent)
    deadline_at: float | None = None
    one_server: bool = False  # both arms behind one address: a change of model starts a new epoch
    more_lanes: Sequence[Lane] = ()  # further servers of the arms
    swapper: Swapper | None = None  # of a sequential run; fills `lanes`
    pace: Callable[[RunCell], float] | None = None  # seconds before a cell may be begun; 0: now, and it is counted
    _last_arm: str | None = None
    _busy_in_a_row: Counter[Lane] = field(default_factory=Counter)
    _flying: Flying = field(default_factory=Flying)

    def record(self, event: Event, texts: Texts | None = None) -> None:
        """Write an event, then fold it."""
        self.journal.append(event, texts)
        self.gate.apply(event)
        self.watcher.event(self.gate, event)

    async def run(self) -> Ruling:
        """Go on until the schedule says stop and no cell is in flight any more."""
        try:
            while True:
                if self.out_of_time():
                    self._pass_deadline()
                step = next_step(self.gate, self._flying.flight)
                if isinstance(step, Stop) and not self._flying.flight.cells:
                    return step.ruling
                await self._do(step)
        finally:
            await self._flying.drop()

    async def _do(self, step: Step) -> None:
        if isinstance(step, RunCell):
            await self._begin(step)
        elif isinstance(step, CheckCell):
            await self._check_cell(step)
        elif isinstance(step, StartReplicate):
            self.record(ReplicateStarted(step.number, self.clock.now(), step.seed))
        elif isinstance(step, Separate):
            await self._separate(step)
        elif isinstance(step, SwapServers):
            await self._put_up(step)
        else:
            await self._flying.next_change()

    async def _begin(self, step: RunCell) -> None:
        """Begin a cell. Where only one is ever in flight, it is waited for, and so is the rest its server is given.

        One that must wait is asked for anew: by then something else may be due.
        """
        seconds = 0.0 if self.pace is None else self.pace(step)
        if seconds > 0:
            await self.pause(min(seconds, PACE_POLL_SECONDS))
            return
        self._flying.begin(step, self._run_cell(step), self.pause)
        if not self.gate.plan.shape.parallel:
            await self._flying.all()

    def out_of_time(self) -> bool:
        """Whether the deadline is here and was not written down yet."""
        return self.deadline_at is not None and self.gate.deadline is None and self.clock.now() >= self.deadline_at

    def _pass_deadline(self) -> None:
        running = self.gate.open_replicate
        if running is not None:
            self.record(ReplicateAborted(running.plan.number, self.clock.now(), "deadline"))
        self.record(DeadlinePassed(self.clock.now()))

    # -- cells

    async def loose(self, step: RunCell) -> None:
        """Run a cell that no schedule asked for, then the checks on its answer."""
        await self.pause(await self._run_cell(step))
        if any(event.cell_id == step.cell_id for event in self.gate.unchecked()):
            await self._check_cell(CheckCell(step.cell_id))

    def lanes_of(self, arm: str) -> list[Lane]:
        """The arm's servers."""
        return [self.lanes[arm], *(lane for lane in self.more_lanes if lane.arm == arm)]

    async def meet(self, arm: str, number: int = 0) -> None:
        """Probe a server of this arm if its present life was not met yet, and write that down. Raises `EngineError`."""
        lane = self.lanes_of(arm)[number]
        if self.one_server and self._last_arm not in (None, arm):
            lane.swapped()
        self._last_arm = arm
        seen = await lane.meet()
        if seen is not None:
            if self.swapper is not None:
                self.swapper.check(self.gate, seen)
            self.record(seen)

    async def _put_up(self, step: SwapServers) -> None:
        """The server of the next window, met. Raises `SwapFailed`."""
        assert self.swapper is not None
        opened = await self.swapper.put_up(self.gate, step)
        if opened is None:
            return
        try:
            await self.meet(opened.arm)
        except EngineError as error:
            if self.out_of_time():
                return
            raise SwapFailed(f"{opened.arm}: the server that was put up cannot be probed: {error}") from error
        self.record(opened)

    async def _run_cell(self, step: RunCell) -> float:
        """Run a cell and write it down; seconds to leave its server alone."""
        lane, case = self.lanes_of(step.arm)[step.lane], self.replay_set.case(step.case_id)
        try:
            await self._others_at_rest(step.arm)
            await self.meet(step.arm, step.lane)
            measurement = await lane.measure(step, case)
        except EngineError as error:
            measurement = lane.refused(step, case, error)
        event = measurement.event
        self.record(event, measurement.texts)
        busy = event.http_status in BUSY_STATUS
        self._busy_in_a_row[lane] = self._busy_in_a_row[lane] + 1 if busy else 0
        return self._wait_after(measurement, lane) if event.cell.status is Status.INVALID else 0.0

    async def _others_at_rest(self, arm: str) -> None:
        """A server of the other arm may still compute an answer that its client gave up: never both at once, unless the
        arms share no hardware."""
        for lane in () if self.gate.plan.shape.at_once else (*self.lanes.values(), *self.more_lanes):
            if lane.arm != arm and not await lane.settle():
                raise NotIdleError(f"{lane.engine.url}: the {lane.arm} still computes an answer that broke off")

    def _wait_after(self, measurement: Measurement, lane: Lane) -> float:
        """Seconds to leave the server alone after an invalid cell."""
        event, asked = measurement.event, measurement.retry_after_seconds
        if asked is not None or event.http_status in BUSY_STATUS:
            return busy_wait_seconds(asked, self._busy_in_a_row[lane])
        return lane.times.refused_pause_seconds if event.reason in REFUSALS else lane.times.invalid_pause_seconds

    async def pause(self, seconds: float) -> None:
        """Wait, not beyond the deadline."""
        if self.deadline_at is not None:
            seconds = max(0.0, min(seconds, self.deadline_at - self.clock.now()))
        await self.clock.sleep(seconds)

    async def _check_cell(self, step: CheckCell) -> None:
        event = self.gate.measured[step.cell_id]
        case = self.replay_set.case(event.cell.case_id)
        outcomes = await self.suite.run(case, self.output(event), self.context(event))
        self.record(CellChecked(step.cell_id, outcomes))

    def context(self, event: CellMeasured) -> CheckContext:
        """What the checks of this cell may look at beside its output."""
        return CheckContext(self._baseline_output(event), self._foreign(event))

    def output(self, event: CellMeasured) -> Output:
        """What the cell said, as the checks read it."""
        texts = self.journal.texts(event.cell_id) or Texts()
        return Output(
            content=texts.content,
            reasoning=texts.reasoning,
            tool_calls=texts.tool_calls,
            finish_reason=event.cell.finish_reason,
        )

    def _baseline_output(self, event: CellMeasured) -> Output | None:
        """The baseline's last complete output of the same case: of the same pair where there is one."""
        if event.cell.arm != CANDIDATE:
            return None
        same = [
            other
            for other in self.gate.measured.values()
            if other.cell.arm == BASELINE
            and other.cell.case_id == event.cell.case_id
            and other.cell.status is Status.OK
            and (other.purpose is not event.purpose or other.pair == event.pair)
        ]
        return self.output(same[-1]) if same else None

    def _foreign(self, event: CellMeasured) -> tuple[str, ...]:
        """Nonces of other cells: in an output they are another conversation's text."""
        if event.cell.cold_proof is not ColdProof.NONCE:
            return ()
        others = (other.nonce for other in self.gate.measured.values() if other.nonce != event.nonce)
        return tuple(nonce for nonce in others if nonce is not None)

    # -- separation

    async def _separate(self, step: Separate) -> None:
        """Wait until the replicate stands apart from its trigger: a new candidate epoch, or the policy's gap."""
        while not self.out_of_time():
            self.watcher.waiting(self.gate, step)
            restarted = await self._restarted(step)
            now = self.clock.now()
            if restarted is not None:
                self.record(SeparationKept(step.number, now, "restart", restarted))
                return
            if step.not_before is None or now >= step.not_before:
                gap = self.gate.plan.policy.replicate.gap_seconds
                self.record(SeparationKept(step.number, now, "gap", f"{gap:g} s after the last bad cell"))
                return
            await self.pause(min(SEPARATION_POLL_SECONDS, step.not_before - now))

    async def _restarted(self, step: Separate) -> str | None:
        """What the candidate's new epoch is, once it was probed; None while it is the old one or away.

        With several servers none may be in a life that a bad cell is known of.
        """
        # A change of model behind one address adds /1, /2, ... to the epoch; that is no restart.
        before = None if step.trigger_epoch is None else step.trigger_epoch.partition("/")[0]
        tainted = {epoch.partition("/")[0] for epoch in tainted_epochs(self.gate)}
        markers = []
        try:
            for lane in self.lanes_of(CANDIDATE):
                async with asyncio.timeout(SEPARATION_ASK_SECONDS):
                    marker = await lane.marker()
                if marker is None or before is None or marker in tainted:
                    return None
                await self.meet(CANDIDATE, lane.number)
                markers.append(marker)
        except (EngineError, TimeoutError):
            return None
        return f"candidate epoch {before} before, {', '.join(markers)} after"
