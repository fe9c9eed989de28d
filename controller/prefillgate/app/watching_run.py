"""What is known of a replay while it runs: how far its journal is, and the verdict so far, judged now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from prefillgate.core.cells import Status
from prefillgate.core.decision import Reason, decide
from prefillgate.core.distrust import MAX_INVALID_RUN
from prefillgate.core.distrust_shape import voided_by_traffic
from prefillgate.core.gate import Gate
from prefillgate.core.journal import CellMeasured, Event
from prefillgate.core.judge import judge
from prefillgate.core.schedule import Separate, Stop, next_step
from prefillgate.core.snapshot import take_snapshot
from prefillgate.core.verdict import Verdict
from prefillgate.evidence import KeptJournal
from prefillgate.replay.clock import Clock
from prefillgate.replay.lane import BUSY_STATUS

JUDGED_EVERY_SECONDS = 10.0
WAITING_FOR_SERVER = "WaitingForServer"
WAITING_FOR_IDLE = "WaitingForIdle"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is. `rows` and `head` are those of its journal after its last event."""

    rows: int = 0
    head: str | None = None
    verdict: Verdict | None = None
    waiting: str = ""
    waiting_since: float | None = None


class RunWatcher:
    """The watcher of one run. Written by the run's thread, read by any.

    A turn (an alarm, a replicate begun or ended, another ruling) is judged at once and told; all else is judged every
    `JUDGED_EVERY_SECONDS` at most and told nobody: no cell makes a status.
    """

    def __init__(self, clock: Clock, turned: Callable[[], None]) -> None:
        self._clock = clock
        self._turned = turned
        self._lock = threading.Lock()
        self._progress = Progress()
        self._journal: KeptJournal | None = None
        self._stands: Hashable = None
        self._judged_at: float | None = None
        self._begun = False
        self._before: Verdict | None = None
        self.cells = 0  # that came to their end while this process carried the run out
        self.leave: Callable[[], object] | None = None  # called once the cell in flight has come to its end

    @property
    def progress(self) -> Progress:
        """How far it is."""
        with self._lock:
            return self._progress

    @property
    def before(self) -> Verdict | None:
        """What stood in the run's store when this process took it up; None: there was none."""
        with self._lock:
            return self._before

    def takes_up(self, verdict: Verdict | None) -> None:
        """A turn begins, with what its store says; None: there is none. The first one tells what was there before."""
        with self._lock:
            if not self._begun:
                self._begun, self._before = True, None if verdict is None else told_of_ended(verdict)

    def opened(self, journal: KeptJournal) -> None:
        """The run's store was opened, or made."""
        self._journal = journal
        self._put(*_tail(journal))

    def event(self, gate: Gate, event: Event) -> None:
        """A fact was written and folded."""
        assert self._journal is not None
        before, now = self.progress, self._clock.now()
        stands = _stands(gate)
        turned = stands != self._stands
        verdict = before.verdict
        if turned or self._judged_at is None or now - self._judged_at >= JUDGED_EVERY_SECONDS:
            verdict, self._judged_at, self._stands = so_far(gate), now, stands
        waits: tuple[str, float | None] = ("", None)
        if _left_alone(event):
            waited = before.waiting == WAITING_FOR_SERVER
            waits = (WAITING_FOR_SERVER, before.waiting_since if waited else now)
        self._put(*_tail(self._journal), verdict, waits)
        if turned or before.waiting != waits[0]:
            self._turned()
        if isinstance(event, CellMeasured):
            self.cells += 1
            if self.leave is not None:
                self.leave()

    def waiting(self, gate: Gate, step: Separate) -> None:
        """The replicate waits for its separation: its status says so already."""

    def waits_for(self, reason: str) -> None:
        """What it waits for now, as a reason of the condition Screened; until the next event."""
        before = self.progress
        if before.waiting != reason:
            with self._lock:
                self._progress = replace(before, waiting=reason, waiting_since=self._clock.now())
            self._turned()

    def ended(self, journal: KeptJournal, verdict: Verdict) -> None:
        """The run came to its end, or is looked at while it is not carried out.

        Its journal is let go, and of its cells those are kept that were void: many ended runs are known for as long as
        this process leads.
        """
        self.let_go()
        self._put(*_tail(journal), told_of_ended(verdict))

    def let_go(self) -> None:
        """Nothing is carried out now: no journal is kept in memory."""
        self._journal = None

    def _put(
        self, rows: int, head: str, verdict: Verdict | None = None, waits: tuple[str, float | None] = ("", None)
    ) -> None:
        with self._lock:
            self._progress = Progress(rows, head, verdict or self._progress.verdict, *waits)


def _left_alone(event: Event) -> bool:
    """Whether a server did not take this cell and asked to be left alone: it is asked again after a while."""
    if not isinstance(event, CellMeasured):
        return False
    return event.cell.status is Status.INVALID and event.http_status in BUSY_STATUS


def so_far(gate: Gate) -> Verdict:
    """The verdict as it stands: one that more evidence may change says `continue`, where `judge` holds."""
    verdict = judge(gate)
    return replace(verdict, decision=replace(verdict.decision, decision=decide(take_snapshot(gate)).decision))


def told_of_ended(verdict: Verdict) -> Verdict:
    """A verdict as it is kept where nothing is carried out: of its cells those that were void."""
    return replace(verdict, cells=tuple(each for each in verdict.cells if each.cell_class is None))


def is_over(gate: Gate) -> bool:
    """Whether the replay of a rollout is over: its decision stands, and is no more than that others used a server again
    and again. An hour of much traffic is no end of a rollout: that is waited out, until the deadline."""
    return isinstance(next_step(gate), Stop) and not _ended_by_traffic(gate)


def _ended_by_traffic(gate: Gate) -> bool:
    reason = decide(take_snapshot(gate)).reason
    if reason is not Reason.INVALID_CELLS:
        return reason is Reason.OTHER_TRAFFIC
    in_a_row = {(arm, case): count for arm, case, count in gate.invalid_runs() if count >= MAX_INVALID_RUN}
    return all(
        voided_by_traffic(event.cell.status, event.reason)
        for event in gate.flawed
        if (event.cell.arm, event.cell.case_id) in in_a_row and gate.session_of(event.cell_id) == gate.session
    )


def waits_for(gate: Gate) -> str:
    """What a replay waits for of which its store alone is known, as a reason of the condition Screened; or nothing."""
    return WAITING_FOR_IDLE if isinstance(next_step(gate), Stop) and not is_over(gate) else ""


def _tail(journal: KeptJournal) -> tuple[int, str]:
    rows, _, head = journal.tail.partition(":")
    return int(rows), head


def _stands(gate: Gate) -> Hashable:
    """What a person is told of when it changes."""
    ruling = decide(take_snapshot(gate))
    replicates = tuple((each.plan.number, each.separation, each.ending()) for each in gate.replicates)
    return (ruling.decision, ruling.reason, gate.alarm, replicates, gate.session)
