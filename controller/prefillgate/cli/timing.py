"""How long a cell takes on each server: one short and one longest case, sent as a run sends them and kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import mean

from prefillgate.api.replay_set import Case
from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.cli.loose import Loose, LooseCells, Sent, meet
from prefillgate.cli.outcome import say
from prefillgate.core.cells import BASELINE, CANDIDATE, Status
from prefillgate.core.minutes import Paces, Span, even_pace, mean_place, pace
from prefillgate.core.verdict import CellClass
from prefillgate.replay.replay_set import ReplaySet
from prefillgate.replay.session import ArmRequest, RunRequest

IDLE_SECONDS = 10.0  # how long a server in use is waited for; a run waits longer
TRAFFIC = "OtherTraffic"


@dataclass(frozen=True, slots=True)
class TimedCell:
    """One cell that was sent to be timed. Token counts as the server told them, None where it did not."""

    case_id: str
    characters: int
    seconds: float
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class TimedServer:
    """A server with its timed cells, the shortest prompt's first, and what must be known of them."""

    url: str
    cells: tuple[TimedCell, ...]
    notes: tuple[str, ...]


Timed = dict[str, tuple[TimedServer, ...]]  # by arm


def ends_of(replay_set: ReplaySet) -> tuple[Case, ...]:
    """The case with the shortest prompt and the one with the longest; one case where the set has no other."""

    def size(case: Case) -> tuple[int, int]:
        return case.characters, case.max_tokens or 0

    shortest, longest = min(replay_set.cases, key=size), max(replay_set.cases, key=size)
    return (shortest,) if shortest is longest else (shortest, longest)


async def time_servers(request: RunRequest) -> Timed:
    """Time the ends of the set on every server of the run, one after another.

    Raises `BadInput` for a model that must be named or is not served, `CouldNotMeasure` where a server or a cell
    cannot be timed.
    """
    if request.shape.sequential:
        return await _in_place(request)
    return {arm: await _arm(arm, request) for arm in request.shape.arms}


async def _arm(arm: str, request: RunRequest) -> tuple[TimedServer, ...]:
    return tuple([await _server(arm, one, request) for one in _servers(request.arm(arm))])


async def _in_place(request: RunRequest) -> Timed:
    """Of arms that share one place, the one that is in it; the other is taken to be as quick."""
    missing: CouldNotMeasure | None = None
    for arm in request.shape.arms:
        try:
            there = await _arm(arm, request)
        except CouldNotMeasure as error:
            missing = missing or error
            continue
        note = "not timed: one server is in place, and this arm is taken to be as quick"
        other = tuple(TimedServer(server.url, server.cells, (note,)) for server in there)
        return {each: there if each == arm else other for each in request.shape.arms}
    assert missing is not None
    raise missing


def _servers(asked: ArmRequest) -> Iterator[ArmRequest]:
    for url in asked.urls:
        yield replace(asked, url=url, more_urls=())


async def _server(arm: str, asked: ArmRequest, request: RunRequest) -> TimedServer:
    times = replace(
        request.times,
        idle_timeout_seconds=min(IDLE_SECONDS, request.times.idle_timeout_seconds),
        refused_pause_seconds=0.0,
        invalid_pause_seconds=0.0,
    )
    cells = LooseCells(
        request.replay_set,
        request.policy,
        times,
        wait_ready_seconds=request.wait_ready_seconds,
        shared=request.shape.shared,
    )
    async with AsyncExitStack() as stack:
        server = await meet(arm, asked, cells, stack)
        timed, notes = [], list(server.notes)
        for case in ends_of(request.replay_set):
            sent = await server.send(case)
            timed.append(_timed(arm, case, sent, server))
            notes += _notes(case, sent)
            say(f"{arm}: timed {case.case_id}, {timed[-1].seconds:.1f} s; it counts for nothing")
    return TimedServer(asked.url, tuple(timed), tuple(dict.fromkeys(notes)))


def _timed(arm: str, case: Case, sent: Sent, server: Loose) -> TimedCell:
    event = sent.event
    if event.cell.status is not Status.OK and event.reason != TRAFFIC:
        raise CouldNotMeasure(
            f"{arm}: {server.lane.engine.url}: case {case.case_id} could not be timed: {event.reason}: {event.detail} "
            "(allowed: a server that answers it, or --cell-seconds)"
        )
    cell = event.cell
    counts = (cell.prompt_tokens, cell.cached_tokens, cell.output_tokens)
    return TimedCell(case.case_id, case.characters, max(sent.seconds, 1e-6), *counts)


def _notes(case: Case, sent: Sent) -> Iterator[str]:
    if sent.event.reason == TRAFFIC:
        yield f"in use: other work ran beside {case.case_id} ({sent.event.detail}); alone it would be quicker"
    found = sent.classified
    if found is not None and found.cell_class is not CellClass.FRESH:
        yield f"{case.case_id} is not proven fresh ({found.witness}): a fresh prefill may take longer"


def paces_of(timed: Timed, replay_set: ReplaySet) -> Paces:
    """The pace of each arm: of several servers the quickest, the mean and the slowest."""
    place = mean_place([case.characters for case in replay_set.cases])
    baseline = timed.get(BASELINE)
    return Paces(None if baseline is None else _pace(baseline, place), _pace(timed[CANDIDATE], place))


def _pace(servers: tuple[TimedServer, ...], place: float) -> Span:
    each = [pace((server.cells[0].seconds, server.cells[-1].seconds), place) for server in servers]
    return Span(min(s.least for s in each), mean(s.likely for s in each), max(s.most for s in each))


def given_paces(request: RunRequest, seconds: float) -> Paces:
    """Every cell of every server takes as long as a person says."""
    return Paces(None if request.baseline is None else even_pace(seconds), even_pace(seconds))
