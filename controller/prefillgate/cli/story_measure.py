"""Measuring the story: the team's replay with the prompt cache on, then the gate's replicate with fresh prefills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from prefillgate.api.policy import load_policy
from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.cli.outcome import say
from prefillgate.cli.stores import store_errors
from prefillgate.cli.story_prompts import LONG, SHORT, story_set
from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import CellChecked, Difference, EpochSeen, Event, Planned, Purpose
from prefillgate.core.places import derived_seed
from prefillgate.core.quality import Output
from prefillgate.core.schedule import RunCell, Separate
from prefillgate.engines.base import EngineError
from prefillgate.engines.http import EngineOptions
from prefillgate.engines.registry import detect
from prefillgate.evidence import SqliteJournal
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.clock import Clock, SystemClock
from prefillgate.replay.lane import Lane, LaneTimes
from prefillgate.replay.runner import Runner
from prefillgate.replay.session import ArmRequest, RunRequest, plan_run

SEED = 11
BASELINE_REPEATS = {**dict.fromkeys(LONG, 10), **dict.fromkeys(SHORT[:5], 8), **dict.fromkeys(SHORT[5:], 7)}
CANDIDATE_REPEATS = dict.fromkeys(LONG, 6)
REPEATS = {BASELINE: BASELINE_REPEATS, CANDIDATE: CANDIDATE_REPEATS}
PURPOSES = {BASELINE: Purpose.BASELINE_PASS, CANDIDATE: Purpose.SCREEN}
DIFFERENCES = (
    Difference("layer placement", "layers across the cards", "as before", "rebalanced"),
    Difference("draft head", "precision of the draft head", "as before", "higher"),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story plays: the two servers' addresses, how to restart the candidate, and the new store."""

    baseline: str
    candidate: str
    restart_candidate: Callable[[], None]
    store: Path


class ReplicateEnded(Exception):
    """The story ends with its replicate; the run that it belongs to would go on."""


class _Watcher:
    """Restarts the candidate when the replicate asks to stand apart, and ends the run with the replicate."""

    def __init__(self, restart: Callable[[], None]) -> None:
        self._restart: Callable[[], None] | None = restart

    def event(self, gate: Gate, event: Event) -> None:
        if gate.replicates and gate.open_replicate is None:
            raise ReplicateEnded

    def waiting(self, gate: Gate, step: Separate) -> None:
        if self._restart is not None:
            say("story: restarting the candidate, so that the replicate stands apart from what triggered it")
            self._restart()
            self._restart = None


async def measure(stage: Stage) -> SqliteJournal:
    """Play the story into a new store, open when it is returned.

    Raises `BadInput` where the store cannot be made, `CouldNotMeasure` where a server does not answer.
    """
    clock, replay_set, policy = SystemClock(), story_set(), load_policy("standard")
    request = RunRequest(
        ArmRequest(stage.baseline), ArmRequest(stage.candidate), replay_set, policy, stage.store, SEED, DIFFERENCES
    )
    suite = CheckSuite.from_policy(policy, replay_set)
    with store_errors():
        journal = SqliteJournal.create(stage.store, _plan(request, clock))
    try:
        async with AsyncExitStack() as stack:
            lanes = {arm: await _lane(arm, request.arm(arm).url, clock, stack) for arm in ARMS}
            watcher = _Watcher(stage.restart_candidate)
            runner = Runner(fold(journal.events()), journal, lanes, replay_set, suite, clock, watcher)
            await _play(runner)
    except EngineError as error:
        journal.close()
        raise CouldNotMeasure(str(error)) from error
    except BaseException:
        journal.close()
        raise
    return journal


def _plan(request: RunRequest, clock: Clock) -> Planned:
    """The standard policy without a throughput claim: the story's cells ride on the cache, so no speed is compared."""
    standard = request.policy.policy
    policy = replace(standard, throughput=replace(standard.throughput, required=False, max_pairs=0))
    return replace(plan_run(request, SEED, clock.now(), policy), scheduled=False)


async def _lane(arm: str, url: str, clock: Clock, stack: AsyncExitStack) -> Lane:
    engine = await stack.enter_async_context(await detect(url, EngineOptions()))
    return Lane(arm, engine, clock, LaneTimes())


async def _play(runner: Runner) -> None:
    for arm in ARMS:
        await runner.meet(arm)
    probed = {arm: runner.lanes[arm].seen for arm in ARMS}
    for arm in ARMS:
        say(f"story: {sum(REPEATS[arm].values())} cells on the {arm}, with its prompt cache on")
        await _replay(runner, arm)
    for arm, seen in probed.items():
        runner.lanes[arm].seen = seen
    if not runner.gate.alarm:
        return  # not as told: there is nothing to replicate
    try:
        await runner.run()
    except ReplicateEnded:
        return


async def _replay(runner: Runner, arm: str) -> None:
    """Every cell of one arm as the team sent it: the probe showed the knob to work, and nobody uses it."""
    lane = runner.lanes[arm]
    lane.seen = _without_knob(lane.seen)
    for case_id, number in _turns(arm):
        step = RunCell(
            cell_id=runner.gate.next_cell_id(),
            arm=arm,
            case_id=case_id,
            purpose=PURPOSES[arm],
            pair=None,
            round=number,
            replicate=0,
            attempt=1,
            seed=derived_seed(SEED, case_id),
            nonce="",
        )
        await _cell(runner, lane, step)


def _without_knob(seen: EpochSeen | None) -> EpochSeen | None:
    return None if seen is None else replace(seen, cold_proof=None)


def _turns(arm: str) -> Iterator[tuple[str, int]]:
    """Each prompt several times in a row, as the replay of a review bot sends them."""
    for case_id, repeats in REPEATS[arm].items():
        for number in range(repeats):
            yield case_id, number


async def _cell(runner: Runner, lane: Lane, step: RunCell) -> None:
    """One cell, written down before its text is looked at. A cell that brings no answer ends the story."""
    case = runner.replay_set.case(step.case_id)
    measurement = await lane.measure(step, case)
    event, texts = measurement.event, measurement.texts
    runner.record(event, texts)
    if event.reason is not None or texts is None:
        raise CouldNotMeasure(f"{step.arm}: {step.case_id} brought no answer: {event.reason}: {event.detail}")
    output = Output(
        content=texts.content,
        reasoning=texts.reasoning,
        tool_calls=texts.tool_calls,
        finish_reason=event.cell.finish_reason,
    )
    runner.record(CellChecked(step.cell_id, await runner.suite.run(case, output)))


__all__ = ["Stage", "measure"]
