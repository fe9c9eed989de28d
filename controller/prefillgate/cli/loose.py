"""Cells outside of any run: sent by the runner itself, so they are what a run's cells are, and kept nowhere."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from prefillgate.api.policy import PolicyDocument
from prefillgate.api.replay_set import Case
from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.cli.outcome import say
from prefillgate.core.cells import BASELINE
from prefillgate.core.freshness import Classified
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import CellMeasured, CheckOutcome, EpochSeen, Purpose, Texts
from prefillgate.core.places import derived_nonce, derived_seed
from prefillgate.core.schedule import PASS_ROUND, RunCell
from prefillgate.engines.base import EngineError, Look
from prefillgate.evidence.memory import MemoryJournal
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.clock import Clock, SystemClock
from prefillgate.replay.lane import Lane, LaneTimes, NotIdleError
from prefillgate.replay.replay_set import ReplaySet
from prefillgate.replay.runner import Runner
from prefillgate.replay.session import ArmRequest, RunRequest, plan_run
from prefillgate.runs.around import Around
from prefillgate.runs.judges import compare_judges, keep_judges_apart
from prefillgate.runs.reach import identified, reach
from prefillgate.runs.ready import wait_until_ready


@dataclass(frozen=True, slots=True)
class LooseCells:
    """What may be sent, and by what it is judged."""

    replay_set: ReplaySet
    policy: PolicyDocument
    times: LaneTimes
    suite: CheckSuite = field(default_factory=lambda: CheckSuite((), {}))
    wait_ready_seconds: float = 0.0
    shared: bool = False  # the server serves others meanwhile
    unvalidated_judge: bool = False  # as in a run
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True)
class Sent:
    """One case, sent once. `seconds` are those of a run's cell, the looks at the server and the checks among them.

    `classified` is None for a cell that no server accepted.
    """

    event: CellMeasured
    seconds: float
    classified: Classified | None
    bad: bool | None
    outcomes: tuple[CheckOutcome, ...]
    texts: Texts


@dataclass(slots=True)
class Loose:
    """A server that was met. Each cell has a seed and a nonce of its own, so it is a fresh prefill."""

    lane: Lane
    runner: Runner
    seen: EpochSeen
    notes: tuple[str, ...]  # what must be known of the server as it was met

    @property
    def gate(self) -> Gate:
        """All cells so far, as the first pass over a baseline."""
        return self.runner.gate

    async def send(self, case: Case) -> Sent:
        """Send a case once and have its answer checked. Never raises for what a server does."""
        gate, clock = self.gate, self.runner.clock
        number = gate.next_cell_id()
        seed, place = gate.plan.seed, (BASELINE, case.case_id, Purpose.BASELINE_PASS)
        nonce = derived_nonce(seed, number, case.case_id)
        step = RunCell(number, *place, None, PASS_ROUND, 0, 1, derived_seed(seed, number, case.case_id), nonce)
        began = clock.now()
        await self.runner.loose(step)
        seconds = max(clock.now() - began, 0.0)
        event = gate.measured[number]
        scored = next((item.cell for item in gate.scored if item.cell_id == number), None)
        return Sent(
            event=event,
            seconds=seconds,
            classified=next((item for item in gate.classified() if item.cell is scored), None),
            bad=None if scored is None else scored.bad,
            outcomes=gate.outcomes.get(number, ()),
            texts=self.runner.journal.texts(number) or Texts(),
        )


async def meet(label: str, asked: ArmRequest, cells: LooseCells, stack: AsyncExitStack) -> Loose:
    """Reach a server and probe it, as a run does before its first cell.

    Raises `BadInput` for a model that must be named or is not served and for a judge that is this server,
    `CouldNotMeasure` where no answer comes or a judge is not validated.
    """
    around = Around(cells.clock, say)
    await wait_until_ready(label, asked, cells.wait_ready_seconds, around)
    lane = await reach(label, asked, cells.times, around, stack)
    lane.arm, lane.shared = BASELINE, cells.shared
    lane.on_wait = partial(say, f"{label}: the server is busy; waiting until it is idle")
    request = RunRequest(asked, asked, cells.replay_set, cells.policy, Path())
    planned = plan_run(request, secrets.randbelow(2**31), cells.clock.now(), cells.policy.policy)
    journal = MemoryJournal(planned)
    runner = Runner(fold(journal.events()), journal, {BASELINE: lane}, cells.replay_set, cells.suite, cells.clock)
    identity = await identified(label, lane, around)
    await keep_judges_apart(cells.suite, request, {BASELINE: identity})
    await compare_judges(runner, cells.unvalidated_judge, around)
    try:
        notes = _in_use(await lane.engine.look())
        await runner.meet(BASELINE)
    except NotIdleError as error:
        raise CouldNotMeasure(
            f"{label}: {lane.engine.url} is in use by others and did not become idle (allowed: a server that serves "
            "nobody else meanwhile, or --isolation shared)"
        ) from error
    except EngineError as error:
        raise CouldNotMeasure(f"{label}: the probe was not answered: {error}") from error
    assert lane.seen is not None
    return Loose(lane, runner, lane.seen, notes)


def _in_use(look: Look) -> tuple[str, ...]:
    if look.activity.idle is not False:
        return ()
    running, waiting = look.activity.running or 0, look.activity.waiting or 0
    return (f"in use when it was asked: {running} running, {waiting} waiting",)
