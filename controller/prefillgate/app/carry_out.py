"""A plan is carried out: what must be kept, the statuses of rollouts, that of the line, the rest. In that order.

Whether we lead is asked before every write, and a write that hangs is given up when the term ends. What it changes it
changes for the object that was looked at: by uid, by resourceVersion, or under a name that makes it one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prefillgate.api.kinds import names
from prefillgate.api.model import WireModel
from prefillgate.app.logs import logger
from prefillgate.app.seams import Leading, Observed, StatusWanted, Works
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock
from prefillgate.kube.elector import Term
from prefillgate.kube.errors import AlreadyExists, KubeError, NotFound, Transient, Unauthorized
from prefillgate.kube.events import NORMAL, WARNING, Happening, Recorder
from prefillgate.kube.objects import (
    PROFILE_ROLLOUTS,
    SERVING_LINES,
    Kind,
    Object,
    Ref,
    key_of,
    label,
    name_of,
    namespace_of,
    uid_of,
)
from prefillgate.kube.status import StatusWriter, holds
from prefillgate.reconcile.effects import (
    CreateRollout,
    DeleteRollout,
    Effect,
    EndWatch,
    KeepFate,
    KeepFloor,
    KeepNotice,
    KeepWatch,
    NoticeTold,
    OverrideDone,
    Plan,
    RecordOverride,
    StartWork,
    StopWork,
    TakeOverride,
    Tell,
)

T = TypeVar("T")
ACTION = "Reconcile"
UNSEEN_SECONDS = 10.0  # a rollout that no look sees so long after it was made was removed by somebody
NOTICES_KEPT_SECONDS = 30 * 86_400.0
MOST_UNTOLD = 1000  # events that could not be written yet, of all lines


class TermLost(Exception):
    """We lead no more: nothing is written."""


class NotOurs(Exception):
    """An object of another line has the name that one of ours would have."""


@dataclass(slots=True)
class Cycle:
    """One look at a line being carried out. `made`: rollouts created in it, by name."""

    observed: Observed
    made: dict[str, Object] = field(default_factory=dict)

    @property
    def line(self) -> Object:
        return dict(self.observed.snapshot.line)

    @property
    def uids(self) -> set[str]:
        """Of the line and its rollouts."""
        things = [self.line, *(each.thing for each in self.observed.snapshot.rollouts), *self.made.values()]
        return {uid_of(thing) for thing in things}

    def rollout(self, name: str) -> Object | None:
        seen = (dict(each.thing) for each in self.observed.snapshot.rollouts if name_of(each.thing) == name)
        return self.made.get(name) or next(seen, None)


@dataclass(frozen=True, slots=True)
class Means:
    """What a leader carries out with."""

    kube: Kube
    statuses: StatusWriter
    recorder: Recorder
    works: Works
    leading: Leading
    term: Term
    clock: Clock
    told: Callable[[str], None] = lambda reason: None  # of every event that was written, its reason


class Hand:
    """Carries plans out for one term. Raises KubeError, StoreError, TermLost, NotOurs."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._untold: OrderedDict[tuple[str, str], Happening] = OrderedDict()
        self._telling: set[tuple[str, str]] = set()
        self._made: dict[
            str, dict[str, float]
        ] = {}  # uid of a line: of rollouts made for it that no look saw, and when
        self._table: dict[type[Any], Callable[[Cycle, Any], Awaitable[None]]] = {
            StartWork: self._start,
            StopWork: self._stop,
            CreateRollout: self._create,
            DeleteRollout: self._delete,
            KeepFate: self._keep_fate,
            KeepFloor: self._keep_floor,
            KeepWatch: self._keep_watch,
            EndWatch: self._end_watch,
            KeepNotice: self._keep_notice,
            NoticeTold: self._notice_told,
            TakeOverride: self._take,
            OverrideDone: self._done,
            RecordOverride: self._record,
            Tell: self._tell,
        }

    def is_behind(self, observed: Observed) -> bool:
        """Whether a look was made before our copies heard of what we wrote last: a status, or a rollout that we made.
        What it would lead to was done already, and would be told twice."""
        snapshot = observed.snapshot
        things = [snapshot.line, *(each.thing for each in snapshot.rollouts)]
        uids, now = {uid_of(thing) for thing in things}, self._means.clock.monotonic()
        made = self._made.pop(uid_of(snapshot.line), {})
        made = {uid: at for uid, at in made.items() if uid not in uids and now - at < UNSEEN_SECONDS}
        if made:
            self._made[uid_of(snapshot.line)] = made
        return bool(made) or any(self._means.statuses.is_behind(dict(thing)) for thing in things)

    async def carry_out(self, observed: Observed, plan: Plan) -> None:
        """All of it, or up to the first failure: the next look begins where this one ended."""
        cycle = Cycle(observed)
        await self._effects(cycle, plan.before)
        for name, status in plan.rollouts.items():
            thing = cycle.rollout(name)
            if thing is not None:
                await self._write(PROFILE_ROLLOUTS, thing, wire(status))
        await self._write(SERVING_LINES, cycle.line, wire(plan.line))
        await self._effects(cycle, plan.after)
        await self.tell_rest()

    async def write_status(self, wanted: StatusWanted) -> None:
        """The status of a policy, a replay set or a rollout without a line; before it, what is told of it once."""
        for each in wanted.events:
            await self.tell(_happening(wanted.kind, dict(wanted.thing), each))
        await self._write(wanted.kind, dict(wanted.thing), dict(wanted.status))

    def forget(self, uid: str) -> None:
        """An object is gone."""
        self._means.statuses.forget(uid)
        self._made.pop(uid, None)

    async def tell(self, happening: Happening) -> None:
        """An event, now or, where the API server cannot take it, with the next plan."""
        self._untold[uid_of(happening.obj), happening.once or happening.note] = happening
        while len(self._untold) > MOST_UNTOLD:
            self._untold.popitem(last=False)
        await self.tell_rest()

    async def tell_rest(self) -> None:
        """Events that could not be written before. What cannot be written now is kept for the next time, what is
        refused is let go; what another look is telling at this moment is left to it."""
        for key, happening in list(self._untold.items()):
            if key in self._telling or key not in self._untold:
                continue
            self._telling.add(key)
            try:
                if await self._writing(lambda told=happening: self._means.recorder.emit(told)):  # type: ignore[misc]
                    self._means.told(happening.reason)
                    _log(happening)
            except NotFound:
                pass  # its namespace is gone
            except (Transient, Unauthorized):
                return  # of all
            except KubeError as error:  # of this one: its namespace ends, a quota, an admission policy
                text = f"an event of {happening.reason} cannot be written: {error}"
                level = "debug" if error.namespace_ends else "error"
                getattr(logger(), level)("event_refused", object=key_of(happening.obj), message=text)
            finally:
                self._telling.discard(key)
            self._untold.pop(key, None)

    @property
    def untold(self) -> int:
        """How many events wait."""
        return len(self._untold)

    async def _effects(self, cycle: Cycle, effects: Iterable[Effect]) -> None:
        for effect in effects:
            await self._table[type(effect)](cycle, effect)

    async def _write(self, kind: Kind, thing: Object, status: Object) -> None:
        try:
            await self._writing(lambda: self._means.statuses.write(kind, thing, status))
        except NotFound as error:
            if error.reason != "NotFound":
                raise
            self.forget(uid_of(thing))  # deleted since it was looked at

    async def _writing(self, write: Callable[[], Awaitable[T]]) -> T:
        """One write, while we lead."""
        left = self._left()
        try:
            async with asyncio.timeout(left) as limit:
                return await write()
        except TimeoutError:
            if limit.expired():
                raise TermLost from None
            raise

    async def _keeping(self, write: Callable[[], T]) -> T:
        """One write into the book, in a thread: it may wait for a disk or a database."""
        self._left()
        return await asyncio.to_thread(write)

    def _left(self) -> float:
        left = self._means.term.seconds_left()
        if left <= 0:
            raise TermLost
        return left

    async def _start(self, cycle: Cycle, order: StartWork) -> None:
        self._left()
        self._means.works.start(order, cycle.observed)

    async def _stop(self, cycle: Cycle, order: StopWork) -> None:
        self._means.works.stop(uid_of(cycle.line), order.key, order.why)

    async def _create(self, cycle: Cycle, order: CreateRollout) -> None:
        body = dict(order.body)
        try:
            made = await self._writing(lambda: self._means.kube.create(PROFILE_ROLLOUTS, body))
            self._made.setdefault(uid_of(cycle.line), {})[uid_of(made)] = self._means.clock.monotonic()
        except AlreadyExists:
            made = await self._means.kube.get(_ref(body))
            if not _is_same(made, body):
                raise NotOurs(
                    f"ProfileRollout {key_of(body)} is there already, and is not what this line would make: its owner "
                    "or its spec differs. Delete it, or give the line another name."
                ) from None
        cycle.made[name_of(body)] = made

    async def _delete(self, cycle: Cycle, order: DeleteRollout) -> None:
        ref = Ref(PROFILE_ROLLOUTS, order.name, namespace_of(cycle.line))
        await self._writing(lambda: self._means.kube.delete(ref, order.uid))
        self.forget(order.uid)

    async def _keep_fate(self, cycle: Cycle, order: KeepFate) -> None:
        await self._keeping(lambda: self._means.leading.book.add_fate(order.fate))

    async def _keep_floor(self, cycle: Cycle, order: KeepFloor) -> None:
        await self._keeping(lambda: self._means.leading.book.keep_floor(order.floor))

    async def _keep_watch(self, cycle: Cycle, order: KeepWatch) -> None:
        await self._keeping(lambda: self._means.leading.book.keep_watch(order.watch))

    async def _end_watch(self, cycle: Cycle, order: EndWatch) -> None:
        await self._keeping(lambda: self._means.leading.book.end_watch(order.line))

    async def _keep_notice(self, cycle: Cycle, order: KeepNotice) -> None:
        await self._keeping(lambda: self._means.leading.book.add_notice(order.notice))

    async def _notice_told(self, cycle: Cycle, order: NoticeTold) -> None:
        """Its event was written. Where events of this line still wait for the API server the next look tells it again.

        What was told long ago goes: the last ones stand in statuses, and the book stays bounded.
        """
        if not cycle.uids & {uid for uid, _ in self._untold}:
            book, now = self._means.leading.book, self._means.clock.now()
            await self._keeping(lambda: book.notice_sent(order.key, now))
            await self._keeping(lambda: book.drop_sent_notices(now - NOTICES_KEPT_SECONDS))

    async def _take(self, cycle: Cycle, order: TakeOverride) -> None:
        await self._keeping(lambda: self._means.leading.book.take_override(order.override))

    async def _done(self, cycle: Cycle, order: OverrideDone) -> None:
        now = self._means.clock.now()
        await self._keeping(lambda: self._means.leading.book.override_done(order.key, order.answer, now))

    async def _record(self, cycle: Cycle, order: RecordOverride) -> None:
        self._left()
        self._means.works.record(order, cycle.observed)

    async def _tell(self, cycle: Cycle, order: Tell) -> None:
        kind, thing = (
            (SERVING_LINES, cycle.line) if order.rollout is None else (PROFILE_ROLLOUTS, cycle.rollout(order.rollout))
        )
        if thing is None:
            return
        await self.tell(_happening(kind, thing, order))


def _happening(kind: Kind, thing: Object, told: Tell) -> Happening:
    return Happening(kind, thing, WARNING if told.warning else NORMAL, told.reason, ACTION, told.note, told.once)


def _log(happening: Happening) -> None:
    """What people are told stands in the log, too."""
    about = {"rollout": name_of(happening.obj)} if happening.kind == PROFILE_ROLLOUTS else {}
    level = "warning" if happening.type == WARNING else "info"
    getattr(logger(), level)("told", **about, reason=happening.reason, message=happening.note)


def wire(status: WireModel) -> Object:
    """A status as it stands in the API."""
    found: Object = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


def _is_same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether what has the name is what would have been made: of the same line, with the same spec."""
    line = names.LINE_LABEL
    owners = {each.get("uid") for each in (found.get("metadata") or {}).get("ownerReferences") or ()}
    wanted_owners = {each.get("uid") for each in (wanted.get("metadata") or {}).get("ownerReferences") or ()}
    spec, wanted_spec = found.get("spec") or {}, wanted.get("spec") or {}
    return holds(spec, wanted_spec) and label(found, line) == label(wanted, line) and wanted_owners <= owners


def _ref(body: Object) -> Ref:
    return Ref(PROFILE_ROLLOUTS, name_of(body), namespace_of(body))
