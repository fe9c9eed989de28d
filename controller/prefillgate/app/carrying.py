"""Carrying out one turn of a replay: its store, what is written into that first, and the run itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prefillgate.api.store_address import StoreAddress
from prefillgate.app.aside import Aside
from prefillgate.app.epochs import Epochs, untold
from prefillgate.app.holds import Holds
from prefillgate.app.load_limit import LoadLimit
from prefillgate.app.orders import SPEC_NAMES, Asked, Place, Servers, Unusable, called, run_request, seed_of
from prefillgate.app.promoted import Previous, floor_answer, may_be_mended, replicate_run, watch_answer
from prefillgate.app.replay_thread import Answer, Turn, Word
from prefillgate.app.run_stores import RunStores, told
from prefillgate.app.seams import Leading
from prefillgate.app.taking_turns import ScalingHand, alone, in_its_window, in_turns, opening_of, workloads_of
from prefillgate.app.watching_run import WAITING_FOR_IDLE, WAITING_FOR_SERVER, is_over, so_far
from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.gate import fold
from prefillgate.core.journal import Overridden, OverrideEnded
from prefillgate.core.schedule import Stop, next_step
from prefillgate.evidence import KeptJournal, open_store, store_exists
from prefillgate.evidence.book_rows import Replicates
from prefillgate.reconcile.naming import book_line, digest_in
from prefillgate.reconcile.snapshot import WorkKind
from prefillgate.replay.checks import CheckSuite
from prefillgate.replay.clock import Clock
from prefillgate.replay.lane import LaneTimes
from prefillgate.replay.session import RunRequest, named
from prefillgate.runs.around import IN_USE, LEFT_ALONE, Hooks, Said, unsaid
from prefillgate.runs.errors import BadInput
from prefillgate.runs.floor import floor_ended, measure_floor
from prefillgate.runs.floor_store import stored_floor
from prefillgate.runs.running import Finished, execute
from prefillgate.runs.stores import store_errors
from prefillgate.runs.watch import WatchRequest, run_watch

ALONG_WITH_TRAFFIC = ("Quiet", "Shared")  # the other modes ask a server that serves nobody else
LONGEST_PAUSE_SECONDS = 300.0
IDLE_SECONDS = 7 * 86_400.0  # a server in production is waited for until the deadline


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """What replays are carried out with. `store` is a folder, or a database without a run."""

    store: StoreAddress
    most_at_once: int = 8
    wait_ready_seconds: float = 30.0
    namespaces: tuple[str, ...] = ()  # that are watched; none: all
    in_use_pause_seconds: float = 30.0  # before a server is tried again whose traffic voided cell after cell; doubled
    times: LaneTimes = field(default_factory=lambda: LaneTimes(idle_timeout_seconds=IDLE_SECONDS))
    said: Callable[[Asked], Said] = lambda asked: unsaid  # who is told what a replay says
    scaling: Holds | None = None  # for profiles that do not fit at once
    trouble: Callable[[str, str | None], None] = lambda scope, text: None  # told of pods that cannot be put back


@dataclass(frozen=True, slots=True)
class Carrier:
    """Carries turns out, in whatever thread."""

    leading: Leading
    settings: WorkSettings
    epochs: Epochs
    clock: Clock
    aside: Aside | None = None  # None: there is no cluster

    async def carry(self, turn: Turn) -> Answer | None:
        """One turn. Raises `NotYet`, `NoWindow`, `Unusable`, `RunError`, `StoreError`."""
        asked = turn.asked
        store = self._store(asked, asked.order.key)
        turn.located(asked.order.key, told(store))
        over = self._look(turn, store)
        if over is not None or turn.words_only:
            return over
        if asked.takes_turns:
            return await self._in_turns(turn, store)
        async with self._servers(turn) as servers:
            return await self._replay(turn, servers, store)

    @asynccontextmanager
    async def _servers(self, turn: Turn) -> AsyncIterator[Servers]:
        """The servers to ask; that of production apart from its traffic, where the line wants that."""
        asked, servers = turn.asked, turn.servers()
        if asked.spec.baseline.isolation.mode in ALONG_WITH_TRAFFIC or BASELINE not in servers:
            yield servers
            return
        if self.aside is None:
            raise Unusable(f"isolation {asked.spec.baseline.isolation.mode} takes a cluster")
        async with self.aside.server(asked, asked.order.baseline, servers[BASELINE]) as alone:
            turn.alone(alone)
            yield {**servers, BASELINE: alone}

    async def _replay(self, turn: Turn, servers: Servers, store: StoreAddress) -> Answer | None:
        asked, said, hooks = turn.asked, self._said(turn), self._hooks(turn, servers)
        request = run_request(asked, servers, self._place(asked, store))
        if asked.stored_baseline_seconds is not None:
            request = alone(asked, request, store_exists(store))
        request = self._by_its_floor(request, said)
        if asked.order.kind is WorkKind.FLOOR:
            return floor_answer(await measure_floor(request, turn.watcher, self.clock, said, hooks), turn.watcher)
        if asked.order.kind is WorkKind.WATCH:
            watch = self._watch(asked, request)
            return watch_answer(await run_watch(watch, turn.watcher, self.clock, said, hooks), turn)
        return await self._executed(turn, request, hooks)

    async def _executed(self, turn: Turn, request: RunRequest, hooks: Hooks) -> Answer:
        pause = self.settings.in_use_pause_seconds
        while True:
            finished = await execute(request, turn.watcher, self.clock, self._said(turn), hooks)
            turn.watcher.ended(finished.journal, finished.verdict)
            finished.journal.close()
            if is_over(finished.gate):
                return Answer(verdict=finished.verdict)
            turn.watcher.waits_for(WAITING_FOR_IDLE)
            await self.clock.sleep(pause * (1 + seed_of(turn.asked) % 1000 / 1000))  # two must not meet for ever
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _in_turns(self, turn: Turn, store: StoreAddress) -> Answer:
        """One profile at a time, while a window is open."""
        request = in_turns(run_request(turn.asked, {}, self._place(turn.asked, store)))
        if self.settings.scaling is None:
            raise Unusable("nothing scales here")
        opening_of(turn.asked, self.clock.now())
        said, workloads = self._said(turn), workloads_of(turn.asked)
        hand = ScalingHand(turn.asked, self.settings.scaling, self.epochs, workloads, said)
        untold = frozenset(each.url for each in workloads.values() if each.url is not None)
        hooks = replace(self._hooks(turn, {}), hand=lambda asked, said: hand, address=hand.address, untold=untold)
        return await in_its_window(turn.asked, hand, self.clock, lambda: self._executed(turn, request, hooks))

    def _by_its_floor(self, request: RunRequest, said: Said) -> RunRequest:
        """The request, without a floor that was measured by other checks: then the run says less of speed."""
        if request.floor is None:
            return request
        try:
            stored_floor(request, CheckSuite.from_policy(request.policy, request.replay_set, False), self.clock.now())
        except BadInput as error:
            said(Hooks(names=SPEC_NAMES).told(f"begun without a floor: {error}"), "no_floor", "warning")
            return replace(request, floor=None)
        return request

    def _watch(self, asked: Asked, request: RunRequest) -> WatchRequest:
        order = asked.order
        floor = self._floor(asked, self._store(asked, order.key))  # it knows whether answers are always cut
        # the profile may have been read otherwise then; that it is the same one, the order says
        was = () if order.after is None else (replace(request.candidate, called=called(asked, digest_in(order.after))),)
        return WatchRequest(
            replace(request, floor=floor),
            order.prefills or 1,
            after=None if order.after is None else self._store(asked, order.after),
            also_called=tuple(map(named, was)),
            begins_anew=True,
            replicate=self._store(asked, replicate_run(order.key)),
            previous=None if order.previous is None else Previous(asked, order.previous, self.aside),
            number=partial(self._number, asked, 1),
        )

    def _store(self, asked: Asked, run: str) -> StoreAddress:
        """Where the store of a run of that line is. Raises `Unusable` for a name that no run may have."""
        metadata = asked.snapshot.line["metadata"]
        try:
            return RunStores(self.settings.store).of(metadata["namespace"], metadata["name"], run)
        except ValueError as error:
            raise Unusable(str(error)) from error

    def _look(self, turn: Turn, store: StoreAddress) -> Answer | None:
        """What the store says of a run that is over; None where there is more to do, or none yet.

        A person's words are written into it first. No server is asked.
        """
        with store_errors():
            if not store_exists(store):
                turn.watcher.takes_up(None)
                return None
            with open_store(store, self.leading.fence) as journal:
                turn.watcher.opened(journal)
                for word in turn.words:
                    _write(word, journal)
                    turn.written(word)
                gate = fold(journal.events())
                verdict = so_far(gate)
                turn.watcher.takes_up(verdict)
                turn.watcher.ended(journal, verdict)
                if turn.asked.order.kind is WorkKind.JUDGE:  # an interrupted run ends as any other: nothing is mended
                    return Answer(verdict=verdict) if is_over(gate) else None
                if not isinstance(next_step(gate), Stop) or turn.asked.order.kind is WorkKind.WATCH:
                    return None
                found = floor_ended(Finished(journal, gate, verdict))
                return None if may_be_mended(found) else floor_answer(found, turn.watcher)

    def _place(self, asked: Asked, store: StoreAddress) -> Place:
        times = replace(self.settings.times, cell_timeout_seconds=float(asked.spec.cell_timeout_seconds))
        if asked.order.kind is WorkKind.FLOOR or asked.observed.policy is None:
            return Place(store, times, self.settings.wait_ready_seconds)
        if asked.order.kind is WorkKind.WATCH:
            return Place(store, times, self.settings.wait_ready_seconds, floor=self._floor(asked, store))
        attempts = asked.observed.policy.policy.replicate.max_attempts
        first = self._number(asked, attempts) if attempts else 1
        return Place(store, times, self.settings.wait_ready_seconds, first, self._floor(asked, store))

    def _floor(self, asked: Asked, store: StoreAddress) -> StoreAddress | None:
        """The floor that a new run goes by: the last of its baseline, where its store is still there."""
        kept = asked.snapshot.book.floor
        if kept is None or kept.baseline != asked.order.baseline or store_exists(store):
            return None
        found = self._store(asked, kept.run)
        return found if store_exists(found) else None

    def _number(self, asked: Asked, count: int) -> int:
        """The number of this work's first replicate: numbers never come again for a pair of profiles."""
        baseline, candidate = asked.compared
        assert candidate is not None
        wanted = Replicates(baseline, candidate, asked.order.key, 1, count, self.clock.now())
        return self.leading.book.reserve_replicates(wanted).first

    def _hooks(self, turn: Turn, servers: Servers) -> Hooks:
        return Hooks(
            present_epoch=self.epochs.present,
            pace=self._pace(turn),
            untold=untold(turn.asked, servers),
            fence=self.leading.fence,
            opened=turn.watcher.opened,
            names=SPEC_NAMES,
        )

    def _pace(self, turn: Turn) -> LoadLimit | None:
        """What keeps the load on production in bounds; None where nothing bounds it."""
        asked = turn.asked
        most = asked.spec.max_production_prefills_per_hour
        if most is None or asked.spec.baseline.isolation.mode not in ALONG_WITH_TRAFFIC:
            return None
        arm = CANDIDATE if asked.order.kind is WorkKind.WATCH else BASELINE
        told = partial(turn.watcher.waits_for, "LoadLimitReached")
        return LoadLimit(
            self.leading.book, book_line(asked.snapshot.line), asked.order.key, most, arm, self.clock, told
        )

    def _said(self, turn: Turn) -> Said:
        return partial(_said, self.settings.said(turn.asked), turn)


def _said(further: Said, turn: Turn, line: str, event: str = "note", level: str = "info", **facts: Any) -> None:
    waits = {IN_USE: WAITING_FOR_IDLE, LEFT_ALONE: WAITING_FOR_SERVER}.get(event)
    if waits is not None:
        turn.watcher.waits_for(waits)
    further(line, event, level, **facts)


def _write(word: Word, journal: KeptJournal) -> None:
    """Write it down unless it is the last of a person's words there: after a kill it comes again."""
    words = [each for each in journal.events() if isinstance(each, Overridden | OverrideEnded)]
    if words[-1:] != [word]:
        journal.append(word)
