"""The loop of a leader: a key that something changed for is looked at, planned for, and what is planned carried out.

```
touched, work went on, time to look again --> queue --> look --> plan --> carry out
```
A conflict is looked at again at once, a transient failure later each time; a bug in one line's look leaves all others
as they are. Nothing is asked of the API server while nothing changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import structlog

from prefillgate.api.kinds import names
from prefillgate.api.kinds.reasons import EVENTS
from prefillgate.app.carry_out import ACTION, Hand, NotOurs, TermLost
from prefillgate.app.logs import TELL_AGAIN_SECONDS, Troubles, logger
from prefillgate.app.metrics import Metrics
from prefillgate.app.seams import Leading, Observed, Observer, Works
from prefillgate.evidence.errors import StoreError, StoreFenced
from prefillgate.kube.backoff import Backoff
from prefillgate.kube.clock import Clock
from prefillgate.kube.errors import Conflict, KubeError, Transient, Unreachable
from prefillgate.kube.events import WARNING, Happening
from prefillgate.kube.objects import SERVING_LINES, Object, name_of, uid_of
from prefillgate.kube.queue import KeyedQueue
from prefillgate.reconcile.effects import Plan
from prefillgate.reconcile.snapshot import LineSnapshot

LINE = names.SERVING_LINE.kind
POLICY = names.PROMOTION_POLICY.kind
REPLAY_SET = names.REPLAY_SET.kind
OWN = (LINE, POLICY, REPLAY_SET)
CATCH_UP = Backoff(0.05, 5.0)  # our copy is behind by the milliseconds that a watch takes
LONGEST_LOOK_SECONDS = 300.0
API_SERVER = "API server"
STORE = "evidence store"

Planner = Callable[[LineSnapshot], Plan]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a loop is made of."""

    observer: Observer
    plan: Planner
    works: Works
    hand: Hand
    leading: Leading
    metrics: Metrics
    troubles: Troubles
    clock: Clock


def ended_by(snapshot: LineSnapshot, plan: Plan) -> Iterator[tuple[str, str]]:
    """Verdict and reason of the rollouts that end with a plan; one that ends without a decision has none of both."""
    before = {name_of(each.thing): each.thing.get("status") or {} for each in snapshot.rollouts}
    for name, status in plan.rollouts.items():
        if status.ended_at is not None and "endedAt" not in before.get(name, {}):
            decision = status.decision
            yield ("None", "None") if decision is None else (decision.verdict, decision.reason)


class LookTooLong(Exception):
    """A look at a line did not end."""


class Loop:
    """One term's loop. `fenced` is set when the store says that another one leads, `store_failed` when it fails."""

    def __init__(self, parts: Parts, workers: int) -> None:
        self._parts = parts
        self._workers = workers
        self._queue = KeyedQueue(self._failed, clock=parts.clock)
        self._seen: dict[str, str] = {}  # uid of each line as last seen
        self._last: dict[str, Object] = {}
        self._waits: dict[str, int] = {}  # looks in a row that were made from a copy that is behind
        self._began: dict[str, float] = {}
        self._telling: set[asyncio.Future[None]] = set()
        self._eventloop = asyncio.get_running_loop()
        self.fenced = asyncio.Event()
        self.store_failed = asyncio.Event()  # since somebody last cleared it

    # -- what asks for a look

    def touched(self, kind: str, key: str) -> None:
        """An object changed."""
        if kind in OWN:
            self._add(f"{kind}/{key}")
        for line in self._parts.observer.lines_of(kind, key):
            self._add(f"{LINE}/{line}")

    def work_changed(self, line: str) -> None:
        """A replay went on. From any thread."""
        self._eventloop.call_soon_threadsafe(self._add, f"{LINE}/{line}")

    def look_at_all(self) -> None:
        """As a new leader does."""
        self._parts.metrics.only(self._parts.observer.keys(LINE))
        for kind in (POLICY, REPLAY_SET, LINE):
            for key in self._parts.observer.keys(kind):
                self._add(f"{kind}/{key}")

    def _add(self, key: str) -> None:
        self._parts.metrics.queued()
        self._queue.add(key)

    # -- looking

    async def run(self) -> None:
        """Work until drained or cancelled."""
        self._parts.metrics.queue(lambda: self._queue.depth)
        try:
            await self._queue.run(self._handle, self._workers)
        finally:
            self._parts.metrics.queue(None)

    async def drain(self, seconds: float) -> bool:
        """Take no more, and wait for what is under way; whether it ended in time."""
        return await self._queue.drain(seconds)

    def longest_look_seconds(self) -> float:
        """How long the look that is under way longest has taken; 0 where none is."""
        return max((self._parts.clock.monotonic() - began for began in self._began.values()), default=0.0)

    async def _handle(self, key: str) -> float | None:
        kind, _, name = key.partition("/")
        look: dict[str, Callable[[str], Awaitable[float | None]]] = {
            LINE: self._line,
            POLICY: self._policy,
            REPLAY_SET: self._replay_set,
        }
        began = self._began[key] = self._parts.clock.monotonic()
        about = {"line": name} if kind == LINE else {"object": key}
        with structlog.contextvars.bound_contextvars(**about):
            try:
                async with asyncio.timeout(LONGEST_LOOK_SECONDS) as limit:
                    after = await look[kind](name)
            except TimeoutError as error:
                if limit.expired():
                    raise LookTooLong(f"a look took longer than {LONGEST_LOOK_SECONDS:.0f} s") from error
                raise
            except Conflict as error:
                return self._conflict(key, kind, error)
            finally:
                self._began.pop(key, None)
                self._parts.metrics.looked(kind, self._parts.clock.monotonic() - began)
            self._parts.troubles.over(key)
            return after

    def _conflict(self, key: str, kind: str, error: Conflict) -> float:
        """Somebody else wrote it since our copy was made: look again, with a copy that is newer by then."""
        self._parts.metrics.failed(kind, "Conflict")
        logger().debug("conflict", message=str(error))
        return self._soon(key)

    def _soon(self, key: str) -> float:
        """In how many seconds to look again at what our copy is behind of; a change that is seen asks at once."""
        times = self._waits[key] = self._waits.get(key, 0) + 1
        return min(CATCH_UP.longest_seconds, CATCH_UP.first_seconds * 2.0 ** (min(times, 20) - 1))

    async def _line(self, name: str) -> float | None:
        parts = self._parts
        observed = await parts.observer.look(name, parts.works, parts.leading)
        if observed is None:
            self._gone(name)
            for wanted in await parts.observer.look_orphans(name):
                await parts.hand.write_status(wanted)
            return None
        self._note(name, observed)
        if parts.hand.is_behind(observed):
            return self._soon(f"{LINE}/{name}")
        plan = parts.plan(observed.snapshot)
        try:
            await parts.hand.carry_out(observed, plan)
        except (Conflict, TermLost, Unreachable):
            raise  # of this look alone, not ours to do, or of no use now
        except Exception:
            parts.works.looked(observed)  # what was left scaled serves nobody, whatever fails for the line
            raise
        self._waits.pop(f"{LINE}/{name}", None)
        parts.works.looked(observed)
        for verdict, reason in ended_by(observed.snapshot, plan):
            parts.metrics.decided(name, verdict, reason)
        parts.metrics.saw(name, parts.works.seen(self._seen[name]))
        parts.metrics.waiting(parts.hand.untold)
        if parts.hand.untold:
            return min(plan.look_again_seconds or 60.0, 60.0)
        return plan.look_again_seconds

    def _note(self, name: str, observed: Observed) -> None:
        """The line is there: remember who it is."""
        snapshot = observed.snapshot
        if snapshot.book.trouble is None:
            self._parts.troubles.over(STORE)
        else:
            self._parts.troubles.note(STORE, snapshot.book.trouble, "store_trouble")
            self.store_failed.set()
        uid = uid_of(snapshot.line)
        if self._seen.get(name, uid) != uid:
            self._gone(name)  # another line of that name
        self._seen[name] = uid
        self._last[name] = dict(snapshot.line)
        self._parts.metrics.saw(name, snapshot.works)

    def _gone(self, name: str) -> None:
        uid = self._seen.pop(name, None)
        self._last.pop(name, None)
        self._waits.pop(f"{LINE}/{name}", None)
        self._parts.metrics.gone(name)
        self._parts.troubles.over(f"{LINE}/{name}")
        if uid is None:
            return
        for work in self._parts.works.seen(uid):
            self._parts.works.stop(uid, work.key, "the ServingLine was deleted")
        self._parts.works.gone(uid)
        self._parts.hand.forget(uid)

    async def _policy(self, name: str) -> float | None:
        wanted = await self._parts.observer.look_policy(name)
        if wanted is None:
            return None
        await self._parts.hand.write_status(wanted)
        self._waits.pop(f"{POLICY}/{name}", None)
        return wanted.look_again_seconds

    async def _replay_set(self, name: str) -> float | None:
        wanted = await self._parts.observer.look_replay_set(name)
        if wanted is None:
            return None
        await self._parts.hand.write_status(wanted)
        self._waits.pop(f"{REPLAY_SET}/{name}", None)
        return wanted.look_again_seconds

    # -- what goes wrong

    def _failed(self, key: str, error: Exception) -> None:
        kind = key.partition("/")[0]
        metrics, troubles = self._parts.metrics, self._parts.troubles
        if isinstance(error, TermLost):
            return
        metrics.retried()
        if isinstance(error, StoreFenced):
            metrics.failed(kind, "Store")
            logger().warning("fenced", message=str(error))
            self.fenced.set()
        elif isinstance(error, Transient):
            metrics.failed(kind, "Transient")
            # one that is away is away for all; what it says of one request may be of that alone
            scope = API_SERVER if isinstance(error, Unreachable) else key
            troubles.note(scope, f"{type(error).__name__}: {error}", "api_server_trouble")
        elif isinstance(error, KubeError) and error.namespace_ends:  # the line is about to go with it
            metrics.failed(kind, "Transient")
            logger().debug("namespace_ends", object=key, message=str(error))
        elif isinstance(error, KubeError):
            metrics.failed(kind, "Terminal")
            text = f"{type(error).__name__}: {error}"
            if troubles.note(key, text, "api_server_refuses", "error", object=key):
                self._tell(key, "CannotGoOn", text)
        elif isinstance(error, StoreError):
            metrics.failed(kind, "Store")
            self.store_failed.set()
            troubles.note(STORE, f"{type(error).__name__}: {error}", "store_trouble")
        elif isinstance(error, NotOurs | LookTooLong):
            metrics.failed(kind, "Terminal")
            if troubles.note(key, str(error), "cannot_go_on", "error", object=key):
                self._tell(key, "CannotGoOn", str(error))
        else:
            metrics.failed(kind, "Bug")
            self._bug(key, error)

    def _bug(self, key: str, error: Exception) -> None:
        """Something that was not thought of. The line is tried again, and everything else goes on."""
        trace = "".join(traceback.format_exception(error))
        where = traceback.extract_tb(error.__traceback__)[-1:] or []
        place = f"{where[0].filename.rsplit('/', 1)[-1]}:{where[0].lineno}" if where else ""
        text = f"{type(error).__name__} at {place}"
        if self._parts.troubles.note(key, text, "bug", "error", object=key, traceback=trace):
            self._tell(key, "InternalError", f"{text}. The log of the controller has the traceback.")

    def _tell(self, key: str, reason: str, detail: str) -> None:
        """An event on a line, in its own time: what is told of here may keep events from being written, too."""
        kind, _, name = key.partition("/")
        thing = self._last.get(name)
        if kind != LINE or thing is None:
            return
        note = f"{EVENTS[reason].sentence} {detail}"
        again = int(self._parts.clock.now() // TELL_AGAIN_SECONDS)  # while it lasts there is an event of it
        once = f"{reason}/{hashlib.sha256(note.encode()).hexdigest()[:16]}/{again}"
        telling = asyncio.ensure_future(
            self._parts.hand.tell(Happening(SERVING_LINES, thing, WARNING, reason, ACTION, note, once))
        )
        self._telling.add(telling)
        telling.add_done_callback(self._told)

    def _told(self, telling: asyncio.Future[None]) -> None:
        self._telling.discard(telling)
        if not telling.cancelled() and (error := telling.exception()) is not None and not isinstance(error, TermLost):
            logger().error("bug", message=f"an event could not be told: {type(error).__name__}")
