"""Carrying out one turn of a replay: its store, what is written into that first, and the run itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prefillgate.api.store_address import StoreAddress
from prefillgate.app.epochs import Epochs
from prefillgate.app.orders import SPEC_NAMES, Asked, Place, Servers, Unusable, rollout_request
from prefillgate.app.replay_thread import Answer, Turn, Word
from prefillgate.app.run_stores import RunStores, told
from prefillgate.app.seams import Leading
from prefillgate.app.watching_run import so_far
from prefillgate.core.gate import Gate, fold
from prefillgate.core.journal import Overridden, OverrideEnded
from prefillgate.core.schedule import Stop, next_step
from prefillgate.evidence import KeptJournal, open_store, store_exists
from prefillgate.evidence.book_rows import Replicates
from prefillgate.reconcile.snapshot import WorkKind
from prefillgate.replay.clock import Clock
from prefillgate.replay.lane import LaneTimes
from prefillgate.runs.around import IN_USE, Hooks, Said, unsaid
from prefillgate.runs.running import execute
from prefillgate.runs.stores import store_errors

IDLE_SECONDS = 7 * 86_400.0  # a server in production is waited for until the deadline


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """What replays are carried out with. `store` is a folder, or a database without a run."""

    store: StoreAddress
    most_at_once: int = 8
    wait_ready_seconds: float = 30.0
    times: LaneTimes = field(default_factory=lambda: LaneTimes(idle_timeout_seconds=IDLE_SECONDS))
    said: Callable[[Asked], Said] = lambda asked: unsaid  # who is told what a replay says


@dataclass(frozen=True, slots=True)
class Carrier:
    """Carries turns out, in whatever thread."""

    leading: Leading
    settings: WorkSettings
    epochs: Epochs
    clock: Clock

    async def carry(self, turn: Turn) -> Answer | None:
        """One turn. Raises `NotYet`, `Unusable`, `RunError`, `StoreError`."""
        asked = turn.asked
        run, store = self._located(asked)
        turn.located(run, told(store))
        over = self._look(turn, store)
        if over is not None or turn.words_only:
            return over
        if asked.order.kind is not WorkKind.JUDGE:
            raise Unusable(f"{asked.order.kind} is not replayed yet")
        servers = turn.servers()
        request = rollout_request(asked, servers, self._place(asked, store))
        finished = await execute(request, turn.watcher, self.clock, self._said(turn), self._hooks(turn, servers))
        turn.watcher.ended(finished.journal, finished.verdict)
        finished.journal.close()
        return Answer(verdict=finished.verdict)

    def _located(self, asked: Asked) -> tuple[str, StoreAddress]:
        """The run's name and where its store is."""
        metadata, run = asked.snapshot.line["metadata"], asked.order.key
        try:
            return run, RunStores(self.settings.store).of(metadata["namespace"], metadata["name"], run)
        except ValueError as error:
            raise Unusable(str(error)) from error

    def _look(self, turn: Turn, store: StoreAddress) -> Answer | None:
        """What the store says of a run that is over; None where there is more to do, or none yet.

        A person's words are written into it first. No server is asked.
        """
        with store_errors():
            if not store_exists(store):
                return None
            with open_store(store, self.leading.fence) as journal:
                turn.watcher.opened(journal)
                for word in turn.words:
                    _write(word, journal)
                    turn.written(word)
                gate = fold(journal.events())
                verdict = so_far(gate)
                turn.watcher.ended(journal, verdict)
        return Answer(verdict=verdict) if _is_over(gate) else None

    def _place(self, asked: Asked, store: StoreAddress) -> Place:
        times = replace(self.settings.times, cell_timeout_seconds=float(asked.spec.cell_timeout_seconds))
        return Place(store, times, self.settings.wait_ready_seconds, self._first_replicate(asked))

    def _first_replicate(self, asked: Asked) -> int:
        """The number of the rollout's first replicate: numbers never come again for a pair of profiles."""
        order, policy = asked.order, asked.observed.policy
        if policy is None or order.candidate is None or policy.policy.replicate.max_attempts < 1:
            return 1
        wanted = Replicates(
            order.baseline, order.candidate, order.key, 1, policy.policy.replicate.max_attempts, self.clock.now()
        )
        return self.leading.book.reserve_replicates(wanted).first

    def _hooks(self, turn: Turn, servers: Servers) -> Hooks:
        return Hooks(
            present_epoch=self.epochs.present,
            untold=frozenset(each.url for each in servers.values() if each.epoch is None),
            fence=self.leading.fence,
            opened=turn.watcher.opened,
            names=SPEC_NAMES,
        )

    def _said(self, turn: Turn) -> Said:
        return partial(_said, self.settings.said(turn.asked), turn)


def _said(further: Said, turn: Turn, line: str, event: str = "note", level: str = "info", **facts: Any) -> None:
    if event == IN_USE:
        turn.watcher.waits_for("WaitingForIdle")
    further(line, event, level, **facts)


def _write(word: Word, journal: KeptJournal) -> None:
    """Write it down unless it is the last of a person's words there: after a kill it comes again."""
    words = [each for each in journal.events() if isinstance(each, Overridden | OverrideEnded)]
    if words[-1:] != [word]:
        journal.append(word)


def _is_over(gate: Gate) -> bool:
    """Whether the schedule ended. What a person might mend is not tried anew: an interrupted run ends as any other."""
    return isinstance(next_step(gate), Stop)
