"""Carrying a run out: engines, store, runner and the verdict, put together for commands and for the controller."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count

from prefillgate.core.cells import ARMS, CANDIDATE
from prefillgate.core.earlier import StoredFloor
from prefillgate.core.gate import Gate, JournalError, fold
from prefillgate.core.journal import RunResumed
from prefillgate.core.judge import judge
from prefillgate.core.policy import Policy
from prefillgate.core.schedule import Stop, next_step
from prefillgate.core.verdict import Verdict
from prefillgate.engines.base import EngineError, Identity
from prefillgate.evidence import KeptJournal, StoreError, create_store, open_store, store_exists
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.clock import Clock, SystemClock
from prefillgate.replay.lane import BUSY_STATUS, Lane
from prefillgate.replay.runner import Runner, Watcher, busy_wait_seconds
from prefillgate.replay.session import (
    RunMismatch,
    RunRequest,
    SameServer,
    check_same_run,
    one_server,
    plan_run,
    policy_for,
)
from prefillgate.replay.swapping import SwapFailed
from prefillgate.runs.around import IN_USE, LEFT_ALONE, Around, Hooks, Said
from prefillgate.runs.baseline_store import show_baseline, stored_baseline
from prefillgate.runs.budget import MENDABLE, raise_budget
from prefillgate.runs.errors import BadInput, CouldNotMeasure, RunBroken, RunError
from prefillgate.runs.floor_store import stored_floor, tell_floor
from prefillgate.runs.gateway import check_gateway, gateway_due, servers_to_ask_again
from prefillgate.runs.judges import compare_judges, keep_judges_apart
from prefillgate.runs.more_lanes import more_lanes, named_lane
from prefillgate.runs.reach import identified, reach
from prefillgate.runs.ready import wait_until_ready
from prefillgate.runs.sequential import Surroundings, check_swap_command, swapper_of
from prefillgate.runs.stores import store_errors


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that came to its end; the journal is still open."""

    journal: KeptJournal
    gate: Gate
    verdict: Verdict


async def execute(
    request: RunRequest, watcher: Watcher, clock: Clock | None, said: Said, hooks: Hooks | None = None
) -> Finished:
    """Run, or resume, until the decision stands.

    It may be cancelled at any await: the store is closed, and what is in it counts when the same request comes again.
    Raises `BadInput` for what a person can mend (another run's store, the same server twice, a model that is not
    served), `CouldNotMeasure` where a server never answered, `RunBroken` where that happened to a run that has begun.
    """
    around = Around(clock or SystemClock(), said, hooks or Hooks())
    try:
        return await _execute(request, watcher, around)
    except RunError as error:
        told = around.hooks.told(str(error))
        if told == str(error):
            raise
        raise type(error)(told) from error


async def _execute(request: RunRequest, watcher: Watcher, around: Around) -> Finished:
    clock = around.clock
    suite = CheckSuite.from_policy(request.policy, request.replay_set, request.unvalidated_judge)
    shown = stored_baseline(request, suite, clock.now())
    opened = _existing(request, around)
    floor = None if opened is not None else stored_floor(request, suite, clock.now())
    if opened is not None:
        tell_floor(opened[1].plan.floor, request, around)
        show_baseline(*opened, shown, around)
        if _is_over(opened[1]):
            if gateway_due(request, opened[1]):
                await _gateway_alone((request, suite, watcher), opened, around)
            return Finished(*opened, judge(opened[1]))
    check_swap_command(request.swap_command)
    try:
        async with AsyncExitStack() as stack:
            lanes = await _reached(request, around, stack)
            identities = {arm: await identified(arm, lane, around) for arm, lane in lanes.items()}
            await keep_judges_apart(suite, request, identities)
            shared = _shared(lanes, identities)
            more = await more_lanes(request, lanes, around, stack)
            if opened is None:
                opened = _new(request, policy_for(request.policy.policy, shared), floor, around)
                show_baseline(*opened, shown, around)
            journal, gate = opened
            deadline = _deadline(gate.plan.policy, request, clock)
            for lane in (*lanes.values(), *more):
                lane.deadline_at = deadline
                lane.shared = request.shape.shared
                lane.on_wait = partial(
                    around.said, f"{named_lane(lane, request)} is busy; waiting until it is idle", IN_USE
                )
            runner = Runner(gate, journal, lanes, request.replay_set, suite, clock, watcher, deadline, shared, more)
            runner.pace = around.hooks.pace
            if request.shape.sequential:
                runner.swapper = swapper_of(request, lanes, Surroundings(suite, around, stack, deadline))
            await _carry_on(runner, request, around)
            await check_gateway(runner, request, around, stack)
    except (CouldNotMeasure, SwapFailed, StoreError, JournalError) as error:
        if opened is None:
            raise
        opened[0].close()
        raise RunBroken(str(error)) from error
    except BaseException:
        if opened is not None:
            opened[0].close()
        raise
    return Finished(journal, gate, judge(gate))


async def _reached(request: RunRequest, around: Around, stack: AsyncExitStack) -> dict[str, Lane]:
    """A lane to each arm; none in a sequential run, whose servers are met when they are put up."""
    arms = () if request.shape.sequential else request.shape.arms
    for arm in arms:
        await wait_until_ready(arm, request.arm(arm), request.wait_ready_seconds, around)
    return {arm: await reach(arm, request.arm(arm), request.times, around, stack) for arm in arms}


async def _carry_on(runner: Runner, request: RunRequest, around: Around) -> None:
    gate = runner.gate
    if gate.measured or gate.session or any(gate.epochs.values()):
        runner.record(RunResumed(runner.clock.now()))
    await compare_judges(runner, request.unvalidated_judge, around)
    await _probe(runner, around)
    await runner.run()


async def _gateway_alone(
    asked: tuple[RunRequest, CheckSuite, Watcher], opened: tuple[KeptJournal, Gate], around: Around
) -> None:
    """The gateway check of a run that was over before it, or was killed in it. The decision stands whatever is met."""
    (request, suite, watcher), (journal, gate) = asked, opened
    try:
        async with AsyncExitStack() as stack:
            first, *more = await servers_to_ask_again(request, around, stack)
            lanes = {CANDIDATE: first}
            runner = Runner(gate, journal, lanes, request.replay_set, suite, around.clock, watcher, more_lanes=more)
            await check_gateway(runner, request, around, stack)
    except CouldNotMeasure as error:
        around.said(f"gateway: not asked: {error}")
    except BaseException:
        journal.close()
        raise


def _is_over(gate: Gate) -> bool:
    """Whether nothing more is to be run. What a person may have mended since is tried anew."""
    step = next_step(gate)
    return isinstance(step, Stop) and step.ruling.reason not in MENDABLE


def _deadline(policy: Policy, request: RunRequest, clock: Clock) -> float | None:
    """The earlier of the policy's deadline and the end that was asked for."""
    ends = [] if policy.deadline_seconds is None else [clock.now() + policy.deadline_seconds]
    return min([*ends, *([] if request.must_end_at is None else [request.must_end_at])], default=None)


def _shared(lanes: dict[str, Lane], identities: dict[str, Identity]) -> bool:
    if len(lanes) < len(ARMS):
        return False
    try:
        return one_server({arm: lane.engine.url for arm, lane in lanes.items()}, identities)
    except SameServer as error:
        raise BadInput(str(error)) from error


def _existing(request: RunRequest, around: Around) -> tuple[KeptJournal, Gate] | None:
    """The store that is there already, if it is of this run."""
    with store_errors():
        if not store_exists(request.store):
            return None
        journal = open_store(request.store, around.hooks.fence)
        try:
            gate = fold(journal.events())
            check_same_run(gate.plan, request)
            raise_budget(journal, gate, request, around)
        except RunMismatch as error:
            journal.close()
            raise BadInput(f"{request.store}: {error}") from error
        except BaseException:
            journal.close()
            raise
    _told_of(journal, around)
    around.said(f"resumed: {len(gate.measured)} cells stand in the store", "resumed", cells=len(gate.measured))
    return journal, gate


def _new(request: RunRequest, policy: Policy, floor: StoredFloor | None, around: Around) -> tuple[KeptJournal, Gate]:
    """A new store with its plan."""
    seed = request.seed if request.seed is not None else secrets.randbelow(2**31)
    around.said(f"seed: {seed}", "seed", seed=seed)
    with store_errors():
        planned = plan_run(request, seed, around.clock.now(), policy, floor)
        journal = create_store(request.store, planned, around.hooks.fence)
        _told_of(journal, around)
        return journal, fold(journal.events())


def _told_of(journal: KeptJournal, around: Around) -> None:
    if around.hooks.opened is not None:
        around.hooks.opened(journal)


async def _probe(runner: Runner, around: Around) -> None:
    """The capability probe of every server. A server that never answered one is no measurement at all."""
    for lane in (*runner.lanes.values(), *runner.more_lanes):
        try:
            await _meet(runner, lane, around)
        except EngineError as error:
            raise CouldNotMeasure(f"{lane.arm}: the probe was not answered: {error}", lane.arm) from error


async def _meet(runner: Runner, lane: Lane, around: Around) -> None:
    """Probe a server. One that asks to be left alone (429, 503) is left alone, as it is between cells."""
    for in_a_row in count(1):
        try:
            await runner.meet(lane.arm, lane.number)
            return
        except EngineError as error:
            if error.http_status not in BUSY_STATUS or runner.out_of_time():
                raise
            seconds = busy_wait_seconds(error.retry_after_seconds, in_a_row)
            why = f"the server is busy (HTTP {error.http_status})"
            around.said(f"{lane.arm}: {why}; its probe waits {seconds:.0f} s", LEFT_ALONE)
            await runner.pause(seconds)
