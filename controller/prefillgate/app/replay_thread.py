"""One replay in a thread of its own, with a loop of its own: a store that is away blocks it for half a minute, and
nobody else.

It is interrupted to be moved to other servers, to write down a person's word or to be ended, and goes on from its
store: what was committed is never run again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from prefillgate.api.errors import InputError
from prefillgate.app.logs import logger
from prefillgate.app.orders import Asked, Chosen, NotYet, NoWindow, Servers, Unusable, servers_of
from prefillgate.app.watching_run import RunWatcher
from prefillgate.core.journal import Overridden, OverrideEnded
from prefillgate.core.verdict import Verdict
from prefillgate.evidence import StoreDamaged, StoreError, StoreFenced, StoreForeign, StoreVersion
from prefillgate.reconcile.snapshot import FloorFound, Standstill, WatchFound, WorkSeen, WorkState
from prefillgate.reconcile.standstill import BOTH
from prefillgate.replay.clock import Clock
from prefillgate.replay.swapping import SwapFailed
from prefillgate.report.clean import one_line
from prefillgate.runs.errors import BadInput, CouldNotMeasure, RunError

FIRST_RETRY_SECONDS = 5.0  # doubled with each failure that no progress came between
LONGEST_RETRY_SECONDS = 300.0
LONGEST_GAP_SECONDS = 1800.0  # between two tries of one standstill; a try itself may last minutes
LAST_CELL_SECONDS = 10.0  # that a cell in flight has before its replay is moved away from under it
WORDS_AGAIN_SECONDS = 30.0  # a person's words that could not be written are tried again
LONGEST_TROUBLE = 1000
TURN, WINDOW = "WaitingForTurn", "WaitingForWindow"  # reasons of the condition Screened
# Nothing is gained by trying again:
REFUSED = (Unusable, BadInput, InputError, StoreDamaged, StoreForeign, StoreVersion)
TAKEN_OVER = "taken over: another controller leads now and goes on with it"


Word = Overridden | OverrideEnded
"""A person's, for the journal."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a replay came to: of the three the one of its kind."""

    verdict: Verdict | None = None
    floor: FloorFound | None = None
    watch: WatchFound | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one attempt at a replay works with: it lasts until the end of the replay, a failure or an interruption.

    `words` are a person's that are to stand in the journal, and `written` is told of each that does; `words_only`:
    nothing else is wanted.
    """

    asked: Asked
    servers: Callable[[], Servers]  # raises `NotYet`
    watcher: RunWatcher
    words: tuple[Word, ...]
    words_only: bool
    written: Callable[[Word], None]
    located: Callable[[str, str], None]  # told the run's name and where its store is
    alone: Callable[[Chosen], None]  # told of the server that is asked apart from production's traffic


Carry = Callable[[Turn], Coroutine[Any, Any, Answer | None]]
"""Carries a turn out; None where only words were wanted.

Raises `NotYet`, `NoWindow`, `Unusable`, `RunError`, `StoreError`.
"""


class Replay:
    """One piece of work. Every method may be called from any thread, and none waits."""

    def __init__(
        self, asked: Asked, carry: Carry, clock: Clock, changed: Callable[[], None], at_rest: bool = False
    ) -> None:
        """`at_rest`: it ended in an earlier term, and nothing is wanted of it but words in its journal."""
        self.key = asked.order.key
        self._carry = carry
        self._clock = clock
        self._changed = changed
        self._lock = threading.RLock()
        self._asked = asked
        self._servers: Servers = {}
        self._words: list[Word] = []
        self._last_word: Word | None = None  # that stands in the journal
        self._watcher = RunWatcher(clock, changed)
        state = WorkState.ENDED if at_rest else WorkState.RUNNING
        self._seen = WorkSeen(self.key, asked.order.kind, state, clock.now())
        self._living = False  # a thread is at it
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Answer | None] | None = None
        self._stopped: str | None = None
        self._final = False
        self._moving = False
        self._gone: set[str] = set()  # addresses whose servers were taken away since the last look
        self._apart = ""  # address of a server that was put aside
        self._serverless = False
        self._no_journal = False  # words were tried, and there is no store that they could be written into
        self._words_due_at = 0.0  # when those that could not be written are tried again
        self._failures, self._cells_at_failure = 0, 0

    def seen(self) -> WorkSeen:
        """How it stands now."""
        progress = self._watcher.progress
        with self._lock:
            seen = replace(self._seen, rows=progress.rows, head=progress.head, verdict=progress.verdict)
            if self._watcher.before is not None:
                seen = replace(seen, before=self._watcher.before)
            if self._watcher.cells > self._cells_at_failure:
                seen = replace(seen, standstill=None)
            if progress.waiting and self._living and not seen.waiting:
                return replace(seen, waiting=progress.waiting, waiting_since=progress.waiting_since)
            return seen

    @property
    def living(self) -> bool:
        """Whether a thread is at it."""
        with self._lock:
            return self._living

    def waits_since(self, then: float) -> bool:
        """Whether it has only waited since that moment, or longer."""
        since = self._watcher.progress.waiting_since
        return self.living and since is not None and since <= then

    @property
    def wanted(self) -> bool:
        """Whether it is still to be carried out."""
        with self._lock:
            return self._living or self._seen.state is WorkState.RUNNING

    @property
    def scales(self) -> bool:
        """Whether a thread is at it that puts back by itself what its line's workloads had."""
        with self._lock:
            return self._living and self._asked.takes_turns

    # -- what is asked of it

    def ask(self, asked: Asked) -> bool:
        """It is wanted, with what was seen of its line now; whether a thread must be given to it."""
        with self._lock:
            before, self._asked, self._stopped, self._gone = self._asked, asked, None, set()
            moved = _urls(self._available()) != _urls(self._servers)
            if self._living:
                if moved or asked.differs(before):
                    self._move_soon()
                return False
            if self._seen.state is WorkState.RUNNING:
                opens_at = self._seen.retry_at if self._seen.waiting == WINDOW else None
                return opens_at is None or self._clock.now() >= opens_at or asked.differs(before)
            if self._serverless and not self._available():
                return False
            early = self._seen.retry_at is not None and self._clock.now() < self._seen.retry_at
            if moved:  # another server is another matter
                self._set(standstill=None)
            if self._final or (early and not moved and not asked.differs(before)):
                return False
            self._set(state=WorkState.RUNNING, trouble="", retry_at=None)
            return True

    def _available(self) -> Servers:
        """The servers that would be asked now; none where an arm has none."""
        try:
            return servers_of(self._asked, self._servers, self._gone)
        except (NotYet, Unusable):
            return {}

    def stop(self, why: str) -> None:
        """End it at the next await. Once is enough: it may be putting back what it put aside."""
        with self._lock:
            if self._seen.state is not WorkState.RUNNING or self._stopped is not None:
                return
            self._stopped = why
            if self._living:
                self._interrupt()
            else:
                self._set(state=WorkState.BROKEN, trouble=why, waiting="", waiting_since=None)

    def record(self, word: Word) -> bool:
        """Write a person's word into its journal; whether a thread must be given to it."""
        with self._lock:
            if word in self._words:
                if self._living or (self._no_journal and self._clock.now() < self._words_due_at):
                    return False  # it comes again at every look, and the end of a thread asks for one
            elif word == self._last_word:
                return False  # it stands there, and the look was of before
            else:
                self._words.append(word)
            self._no_journal, self._words_due_at = False, self._clock.now() + WORDS_AGAIN_SECONDS
            if self._living:
                self._interrupt()
            return not self._living

    def lost(self, url: str) -> None:
        """The server at that address was taken away: on to another one, or wait for one."""
        with self._lock:
            mine = url in {self._apart, *(each.url for each in self._servers.values())}
            if not self.wanted or not (mine or url in self._asked.urls):
                return  # thousands of others are known, and pods go all the time
            self._gone.add(url)
            if self._living and mine:
                self._move_soon()

    def waits_for_turn(self) -> None:
        """As many replays run as may."""
        with self._lock:
            if self._seen.state is WorkState.RUNNING:
                self._set(waiting=TURN, waiting_since=self._clock.now())

    # -- its thread

    def begin(self, freed: Callable[[], None]) -> bool:
        """Give it a thread; `freed` is told when that has ended. False where the system has none to give: it is tried
        again."""
        thread = threading.Thread(target=self._main, args=(freed,), name=f"replay {self.key}", daemon=True)
        with self._lock:
            self._living = True
            waited = self._seen.waiting == TURN
            self._set(waiting="", waiting_since=None)
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                self._living = False
                self._failed(error)
            begun = self._living
        if waited or not begun:
            self._changed()
        return begun

    def _main(self, freed: Callable[[], None]) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # a fault of our own: nobody may wait for it for ever
            with self._lock:
                self._living = False
                again = self._clock.now() + LONGEST_RETRY_SECONDS
                self._set(state=WorkState.BROKEN, trouble=_told(error), retry_at=again)
            raise
        finally:
            freed()
            self._changed()

    async def _live(self) -> None:
        while (task := self._next()) is not None:
            try:
                answer = await task
            except asyncio.CancelledError:
                continue
            except Exception as error:
                self._failed(error)
            else:
                self._answered(answer)

    def _next(self) -> asyncio.Task[Answer | None] | None:
        """The next turn, begun; None where there is nothing to do, and the thread is gone for everybody."""
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), None
            if self._stopped is not None and self._seen.state is WorkState.RUNNING:
                self._set(state=WorkState.BROKEN, trouble=self._stopped)
            self._watcher.leave, self._moving = None, False
            wanted = self._seen.state is WorkState.RUNNING and self._seen.waiting != WINDOW
            if not wanted and (self._no_journal or not self._words):
                self._watcher.let_go()
                self._living = False
                return None
            turn = Turn(
                self._asked,
                self._choose,
                self._watcher,
                tuple(self._words),
                not wanted,
                self._written,
                self._located,
                self._alone,
            )
            self._task = self._loop.create_task(self._carry(turn))
            return self._task

    def _choose(self) -> Servers:
        with self._lock:
            self._servers = servers_of(self._asked, self._servers, self._gone)
            return self._servers

    def _move_soon(self) -> None:
        """Interrupt it once the cell in flight has come to its end, so that its prefill was not in vain."""
        loop, task = self._loop, self._task
        if self._moving or loop is None or task is None:
            return
        self._moving = True
        self._watcher.leave = task.cancel
        loop.call_soon_threadsafe(lambda: loop.call_later(LAST_CELL_SECONDS, task.cancel))

    def _interrupt(self) -> None:
        if self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _written(self, word: Word) -> None:
        with self._lock:
            self._words, self._last_word = [each for each in self._words if each != word], word

    def _alone(self, server: Chosen) -> None:
        with self._lock:
            self._apart = server.url

    def _located(self, run: str, store: str) -> None:
        with self._lock:
            self._set(run=run, store=store)

    def _answered(self, answer: Answer | None) -> None:
        with self._lock:
            if answer is None:
                self._no_journal = bool(self._words)  # they wait until there is one
                if self._seen.state is WorkState.ENDED and not self._words:
                    self._final = False  # what ended it was taken back: it may be gone on with
                    self._set(state=WorkState.BROKEN)
                return
            self._no_journal, verdict = False, answer.verdict or self._watcher.progress.verdict
            at = self._clock.now() if verdict is None or verdict.ended_at is None else verdict.ended_at
            self._set(state=WorkState.ENDED, ended_at=at, floor=answer.floor, watch=answer.watch, trouble="")
            self._final, self._asked, self._gone = True, self._asked.ended(), set()

    def _failed(self, error: Exception) -> None:
        """What is said of a turn that could not be carried out, and when it may be tried again."""
        with self._lock:
            self._no_journal = bool(self._words)
            if self._seen.state is WorkState.ENDED:
                return
            self._serverless = isinstance(error, NotYet)
            if isinstance(error, NoWindow):
                self._set(waiting=WINDOW, waiting_since=self._clock.now(), retry_at=error.opens_at)
                return
            if self._serverless:  # it may go on as soon as there is one
                self._set(state=WorkState.BROKEN, trouble=str(error), retry_at=None, standstill=None)
                return
            cells, before = self._watcher.cells, self._seen.standstill
            came_on = cells > self._cells_at_failure  # a row of the journal is none: each try writes some
            self._failures = 1 if came_on else self._failures + 1
            self._cells_at_failure = cells
            cause = _cause(error)
            self._final = isinstance(cause, StoreFenced)
            refused = isinstance(cause, REFUSED)
            self._set(
                state=WorkState.REFUSED if refused else WorkState.BROKEN,
                trouble=TAKEN_OVER if self._final else _told(error),
                retry_at=None if self._final else self._clock.now() + retry_seconds(self._failures, refused),
                standstill=standing(None if came_on else before, _told(error), arm_at_fault(error), self._clock.now()),
            )
            _log(self.key, self._seen)

    def _set(self, **changes: Any) -> None:
        self._seen = replace(self._seen, **changes)


def retry_seconds(failures: int, refused: bool = False) -> float:
    """How long a replay is left alone that failed so often in a row; one whose order cannot be used is looked at again
    seldom: a store may be restored, a model be loaded."""
    if refused:
        return LONGEST_RETRY_SECONDS
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), LONGEST_RETRY_SECONDS)


def standing(before: Standstill | None, trouble: str, arm: str, now: float) -> Standstill:
    """A standstill that lasts on, or begins: what servers say and what else keeps a replay from going on are two, and
    so are two that a time without a try lies between."""
    if before is None or bool(before.arm) != bool(arm) or now - before.last > LONGEST_GAP_SECONDS:
        return Standstill(now, now, 1, trouble, arm)
    return Standstill(before.since, now, before.tries + 1, trouble, arm if before.arm == arm else BOTH)


def arm_at_fault(error: BaseException | None) -> str:
    """The arm whose server did not answer as one must; empty where an error is about something else."""
    while error is not None:
        if isinstance(error, CouldNotMeasure) and error.arm:
            return error.arm
        error = error.__cause__
    return ""


def _log(key: str, seen: WorkSeen) -> None:
    tries = 0 if seen.standstill is None else seen.standstill.tries
    logger().warning("replay_broke_off", work=key, tries=tries, message=seen.trouble)


def _cause(error: BaseException) -> BaseException:
    """The error of a store that stands behind one of a run: what it means is told by that."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, StoreError):
        cause = cause.__cause__
    return cause or error


def _told(error: BaseException) -> str:
    known = isinstance(error, RunError | StoreError | SwapFailed | Unusable | InputError)
    return one_line(str(error) if known else f"a fault of the gate itself: {error!r}", LONGEST_TROUBLE)


def _urls(servers: Servers) -> dict[str, str]:
    return {arm: one.url for arm, one in servers.items()}
