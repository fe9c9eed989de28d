"""What people are told: one event for each transition of a condition, and of the weighty ones a notice that is kept
until it was told.

A transition is known by what stood before it, so that who is killed and looks again tells the same one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.common import Notice as NoticeTold
from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.reasons import EVENTS, ROWS, ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.evidence.book_rows import Notice
from prefillgate.reconcile import effects as done
from prefillgate.reconcile.answer import LONGEST_LINE, bounded
from prefillgate.reconcile.effects import Effect, KeepNotice, Tell
from prefillgate.reconcile.naming import book_line
from prefillgate.reconcile.seen import LineView, RolloutView

LONGEST_NOTE, LONGEST_KEY, LONGEST_ONCE, MOST_NOTICES = 1000, 128, 90, 20  # a key is a uid and what makes it one
_PERMISSIONS = (ConditionType.PROMOTION_ALLOWED, ConditionType.ROLLBACK_ALLOWED)
OF_LINE = (
    *(ConditionType.ACCEPTED, ConditionType.ENDPOINTS_READY, ConditionType.INSTRUMENT_CHECKED, ConditionType.GATING),
    *(ConditionType.WATCHING, ConditionType.STORE_BEHIND),
)
OF_ROLLOUT = (
    *(ConditionType.SCREENED, ConditionType.ALARM_RAISED, ConditionType.REPLICATE_CONFIRMED, *_PERMISSIONS),
    *(ConditionType.SUPERSEDED, ConditionType.SUCCEEDED),
)
_WEIGHTY = {
    ConditionType.INSTRUMENT_CHECKED: ("InstrumentBroken",),
    ConditionType.GATING: ("RejectedBefore",),
    ConditionType.STORE_BEHIND: ("StoreBehind", "EvidenceGone"),
    ConditionType.ALARM_RAISED: ("Alarm", "AlarmWithoutBaseline"),
    ConditionType.REPLICATE_CONFIRMED: ("RegressionConfirmed", "NotConfirmed"),
    ConditionType.ROLLBACK_ALLOWED: ("CandidateUnavailable",),
    ConditionType.SUCCEEDED: (*("Promoted", "PassedDryRun", "FailedDryRun", "Held", "NotMeasured", "RollbackAllowed"),),
}
_NO_NEWS = {  # told by another condition or by the workload's own events, or on the way to the next reason
    (ConditionType.SCREENED, "NotStarted"),
    (ConditionType.SCREENED, "Starting"),
    (ConditionType.SCREENED, "ScreenInterrupted"),
    (ConditionType.ENDPOINTS_READY, "ServersUnknown"),
    (ConditionType.SUCCEEDED, "Superseded"),
    (ConditionType.ENDPOINTS_READY, "Probing"),
    (ConditionType.ENDPOINTS_READY, "NoReadyPods"),
}


@dataclass(frozen=True, slots=True)
class Said:
    """What is told at this look. `weighty` ones are kept as notices too."""

    events: list[Tell] = field(default_factory=list)
    weighty: set[str] = field(default_factory=set)  # by `once` and rollout

    def tell(self, tell: Tell, weighty: bool = False) -> None:
        """Say it, once."""
        tell = replace(tell, once=_short(tell.once))
        if all((each.once, each.rollout) != (tell.once, tell.rollout) for each in self.events):
            self.events.append(tell)
            if weighty:
                self.weighty.add(_mark(tell))


def transitions(
    said: Said,
    before: Sequence[ConditionModel] | None,
    now: Iterable[ConditionModel],
    kinds: Sequence[ConditionType],
    rollout: tuple[RolloutView, ProfileRolloutStatus] | None = None,
) -> None:
    """An event for each condition of these kinds that became another one. What a first look finds is no news, unless
    it is a warning."""
    known = {each.type: each for each in before or ()}
    for condition in now:
        kind = next((each for each in kinds if each == condition.type), None)
        old = known.get(condition.type)
        if kind is None or (kind, condition.reason) not in ROWS or not _is_news(kind, old, condition):
            continue
        note = condition.message if rollout is None else _of_rollout(kind, condition, rollout[1])
        since = "" if old is None else f"{old.reason}@{old.last_transition_time}"
        said.tell(
            Tell(
                condition.reason,
                bounded(note, LONGEST_NOTE),
                f"{kind}/{condition.reason}/{since}",
                None if rollout is None else rollout[0].name,
                ROWS[kind, condition.reason].warning,
            ),
            condition.reason in _WEIGHTY.get(kind, ()),
        )


def event(reason: str, note: str, once: str, rollout: str | None = None) -> Tell:
    """An event that is no condition's transition. Raises KeyError for a reason that stands in no table."""
    return Tell(
        reason, bounded(f"{EVENTS[reason].sentence} {note}", LONGEST_NOTE), once, rollout, EVENTS[reason].warning
    )


def _is_news(kind: ConditionType, old: ConditionModel | None, now: ConditionModel) -> bool:
    if (kind, now.reason) in _NO_NEWS:
        return False
    warns = ROWS[kind, now.reason].warning
    if kind in _PERMISSIONS:
        was = "False" if old is None else old.status
        return was != now.status
    if old is None or (old.reason, now.reason) == ("FloorDue", "FloorRunning"):  # it was told that it comes
        return warns
    return (old.status, old.reason) != (now.status, now.reason)


def _of_rollout(kind: ConditionType, condition: ConditionModel, status: ProfileRolloutStatus) -> str:
    if kind is not ConditionType.SUCCEEDED:
        return condition.message
    decision = status.decision
    said = [] if decision is None else [each for each in decision.sentences[:1] if each not in condition.message]
    counted = [] if status.prefills is None else [f"Fresh prefills of the candidate: {status.prefills}."]
    differ = [] if not status.summary else [f"Differences: {status.summary}."]
    return " ".join([condition.message, *said, *counted, *differ])


# Notices


@dataclass(frozen=True, slots=True)
class Notices:
    """The notices of a line as of this look, and what is to be done for them."""

    of_line: list[NoticeTold]
    of_rollouts: dict[str, list[NoticeTold]]
    before: list[Effect]
    after: list[Effect]


def noticed(view: LineView, said: Said) -> Notices:
    """The events of this look, the weighty ones kept first; and those that a kill left untold, again."""
    book, line = view.snapshot.book, book_line(view.snapshot.line)
    there = {each.key: each for each in book.notices}
    keep: list[Effect] = []
    after: list[Effect] = []
    rows = dict(there)
    for tell in said.events:
        after.append(tell)
        if _mark(tell) not in said.weighty or book.trouble is not None:
            continue
        key = _key(view, tell)
        if key not in there:
            rows[key] = Notice(key, line, tell.rollout, tell.reason, tell.note, view.now, view.now)
            keep.append(KeepNotice(rows[key]))
    told = {(each.once, each.rollout) for each in said.events}
    for row in rows.values():
        if row.sent_at is None and book.trouble is None:
            once = row.key.partition("/")[2]
            if (once, row.rollout) not in told:
                after.append(Tell(row.kind, row.body, once, row.rollout, _warns(row.kind)))
            after.append(done.NoticeTold(row.key))
    of_rollouts: dict[str, list[NoticeTold]] = {}
    for rollout in view.rollouts:
        of_rollouts[rollout.name] = _mirrored(rollout.before.notices, rows.values(), rollout.name)
    return Notices(_mirrored(view.before.notices, rows.values(), None), of_rollouts, keep, after)


def _mirrored(before: Sequence[NoticeTold] | None, rows: Iterable[Notice], rollout: str | None) -> list[NoticeTold]:
    found = {each.key: each for each in before or ()}
    for row in rows:
        if row.rollout == rollout:
            message = bounded(row.body, LONGEST_LINE)
            found[row.key] = NoticeTold(key=row.key, at=moment(row.made_at), message=message)
    return sorted(found.values(), key=lambda each: (each.at, each.key))[-MOST_NOTICES:]


def _short(once: str) -> str:
    """What makes a telling one, short enough for a notice's key to hold it whole: after a kill it is told by that."""
    if len(once) <= LONGEST_ONCE:
        return once
    return f"{once[:40]}/{hashlib.sha256(once.encode()).hexdigest()[:32]}"


def _mark(tell: Tell) -> str:
    return f"{tell.rollout or ''}/{tell.once}"


def _key(view: LineView, tell: Tell) -> str:
    uid = next((each.uid for each in view.rollouts if each.name == tell.rollout), view.uid)
    return f"{uid}/{tell.once}"[:LONGEST_KEY]


def _warns(reason: str) -> bool:
    if reason in EVENTS:
        return EVENTS[reason].warning
    return any(row.warning for (_, each), row in ROWS.items() if each == reason)
