"""The replays of this process, by key: each in a thread of its own, so many at once and no more."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial

from prefillgate.app.apart import Apart
from prefillgate.app.apart_pods import ApartPods
from prefillgate.app.aside import Aside
from prefillgate.app.carrying import Carrier, WorkSettings
from prefillgate.app.epochs import Epochs
from prefillgate.app.leftovers import Leftovers
from prefillgate.app.orders import Asked
from prefillgate.app.replay_thread import Replay
from prefillgate.app.scaling import line_ref, noted_on
from prefillgate.app.seams import Changed, Leading, Observed
from prefillgate.app.turns import Turns
from prefillgate.kube.client import Kube
from prefillgate.reconcile.effects import RecordOverride, StartWork
from prefillgate.reconcile.snapshot import WorkKind, WorkSeen
from prefillgate.replay.clock import Clock, SystemClock

MOST_KNOWN = 20_000  # pieces of work: of a thousand lines with a long history
ENDING = "the controller ends"


Key = tuple[str, str]
"""uid of the line, key of the work: two lines may have the same profile in production."""


class ThreadWorks:
    """The replays of one term of leadership. Make it in the loop that `changed` is to be called in."""

    def __init__(
        self,
        leading: Leading,
        settings: WorkSettings,
        changed: Changed,
        clock: Clock | None = None,
        kube: Kube | None = None,
    ) -> None:
        """`kube` is what pods are put aside with; without it the modes Drain and Scratch are refused."""
        self._settings = settings
        self._clock = clock or SystemClock()
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._epochs = Epochs()
        aside, self._tasks = None, list[asyncio.Task[None]]()
        if kube is not None:
            pods = ApartPods(kube, leading.fence.token, leading.leads)
            left = Leftovers(pods, settings.trouble)
            aside = Aside(Apart(pods, self.present_epoch, left), self._loop)
            self._tasks.append(self._loop.create_task(left.sweep(settings.namespaces)))
        if settings.scaling is not None:
            self._tasks.append(self._loop.create_task(settings.scaling.adopt()))
        self._carrier = Carrier(leading, settings, self._epochs, self._clock, aside)
        self._lock = threading.RLock()
        self._replays: dict[Key, Replay] = {}
        self.turns = Turns(settings.most_at_once, self._clock)
        self._closed = False

    def seen(self, line_uid: str) -> tuple[WorkSeen, ...]:
        """All work of a line that is known, ended work of this term included."""
        with self._lock:
            found = [replay for (line, _), replay in self._replays.items() if line == line_uid]
        return tuple(replay.seen() for replay in found)

    def start(self, order: StartWork, observed: Observed) -> None:
        """Begin it, or go on with what stands in its store. Where it runs, it moves on to the servers seen now."""
        asked, metadata = Asked(order, observed), observed.snapshot.line["metadata"]
        key = (str(metadata["uid"]), order.key)
        with self._lock:
            if self._closed:
                return
            self._epochs.seen(asked)
            replay = self._replays.get(key)
            if replay is None:
                self.turns.ask(self._made(asked))
            elif replay.ask(asked):
                self.turns.ask(replay)

    def stop(self, line_uid: str, key: str, why: str) -> None:
        """End it at the next await; what is in its store stays. Nothing where none runs."""
        with self._lock:
            replay = self._replays.get((line_uid, key))
            if replay is None:
                return
            self.turns.withdraw(replay)
        replay.stop(why)

    def record(self, order: RecordOverride, observed: Observed) -> None:
        """Write a person's override into its journal, now or when it is next open: also where the work ended in an
        earlier term and is not known in this one."""
        with self._lock:
            if self._closed:
                return
            known = self._replays.get((str(observed.snapshot.line["metadata"]["uid"]), order.work))
            replay = known or self._at_rest(order.work, observed)
            if replay.record(order.event):
                self.turns.ask(replay)

    def _at_rest(self, key: str, observed: Observed) -> Replay:
        """Work of an earlier term, of which nothing is wanted but its journal."""
        return self._made(Asked(StartWork(key, WorkKind.JUDGE, baseline=""), observed), at_rest=True)

    def _made(self, asked: Asked, at_rest: bool = False) -> Replay:
        metadata = asked.snapshot.line["metadata"]
        key = (str(metadata["uid"]), asked.order.key)
        self._forget(key, asked.observed)
        tell = partial(self._tell, f"{metadata['namespace']}/{metadata['name']}")
        replay = self._replays[key] = Replay(asked, self._carrier.carry, self._clock, tell, at_rest)
        return replay

    def present_epoch(self, url: str, epoch: str | None) -> None:
        """The present life of a server, as the cluster tells it."""
        self._epochs.told(url, epoch)
        if epoch is None:
            with self._lock:
                for replay in self._replays.values():
                    replay.lost(url)

    def looked(self, observed: Observed) -> None:
        """A look at a line was carried out. What was left scaled is put back, unless its replay goes on."""
        holds, line = self._settings.scaling, observed.snapshot.line
        if holds is None or not (noted_on(line) or holds.scaling.knows(line_ref(line))):
            return
        uid = str(line["metadata"]["uid"])
        with self._lock:
            goes_on = any(replay.scales for (of, _), replay in self._replays.items() if of == uid)
        if not goes_on and not self._closed:
            holds.put_back_soon(line_ref(line))

    def gone(self, line_uid: str) -> None:
        """A line was deleted: what has no thread is not known any more."""
        with self._lock:
            for key in [each for each in self._replays if each[0] == line_uid]:
                self.stop(*key, "the line was deleted")
                if not self._replays[key].living:
                    del self._replays[key]

    async def close(self, seconds: float) -> bool:
        """End all replays and wait for their ends, at most so long; whether all have. Nothing starts afterwards."""
        until = self._loop.time() + seconds
        for task in self._tasks:
            task.cancel()
        self.turns.close()
        with self._lock:
            self._closed = True
            for replay in self._replays.values():
                replay.stop(ENDING)
        all_ended = await self.turns.ended(seconds)
        holds = self._settings.scaling
        all_back = holds is None or await holds.close(max(0.0, until - self._loop.time()))
        return all_ended and all_back

    def _forget(self, key: Key, observed: Observed) -> None:
        """Ended work of rollouts that are gone, and of earlier floors: its store is there, and memory stays bounded."""
        there = {str(each.thing["metadata"]["uid"]) for each in observed.snapshot.rollouts}
        gone = [
            other
            for other, replay in self._replays.items()
            if other[0] == key[0] and other[1] not in there and not replay.wanted
        ]
        old = [other for other, replay in self._replays.items() if not replay.wanted and other not in gone]
        gone += old[: max(0, len(self._replays) - len(gone) - MOST_KNOWN)]  # of lines that were deleted
        for other in gone:
            del self._replays[other]

    def _tell(self, line: str) -> None:
        """From whatever thread."""
        with suppress(RuntimeError):  # the loop was closed: the process ends
            self._loop.call_soon_threadsafe(self._changed, line)
