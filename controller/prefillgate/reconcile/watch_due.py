"""The promoted profile after its promotion: when the next small fresh replay is due, and what they all showed.

```
promotion --> every_seconds --> replay 1 --> every_seconds --> replay 2 ... each after the end of the one before
```
What was missed while nobody looked is not made up for: one replay is due, not many.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prefillgate.api.kinds.line_status import WatchSeen
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.core.decision import Reason
from prefillgate.evidence.book_rows import Watch
from prefillgate.reconcile.answer import LONGEST_LINE, LONGEST_WORD, bounded
from prefillgate.reconcile.effects import Effect, EndWatch, KeepWatch, StartWork
from prefillgate.reconcile.findings import Finding, finding_in
from prefillgate.reconcile.floor_due import may_start_again
from prefillgate.reconcile.naming import book_line, seed_of, watch_key, watch_number
from prefillgate.reconcile.question import question_of
from prefillgate.reconcile.seen import LineView
from prefillgate.reconcile.snapshot import WatchFound, WorkKind, WorkSeen, WorkState

WATCHING, ALARM = ConditionType.WATCHING, ConditionType.ALARM_RAISED


@dataclass(frozen=True, slots=True)
class WatchView:
    """The watch at this look. `key` is that of the replay that is due, or will be; `ended` the one that just ended."""

    finding: Finding
    seen: WatchSeen | None = None
    key: str | None = None
    start: StartWork | None = None
    keep: tuple[Effect, ...] = ()
    ended: WorkSeen | None = None
    look_at: tuple[float, ...] = field(default=())

    @property
    def alarm(self) -> Finding | None:
        """What the line says of an alarm that one of these replays raised; None: they raised none."""
        if self.seen is None:
            return None
        if self.seen.reason in (Reason.REGRESSION_CONFIRMED, Reason.REGRESSION_NOT_CONFIRMED):
            return Finding(ALARM, "False", "AlarmAnswered", self.seen.message or "")
        if not self.seen.alarm:
            return None
        without = self.seen.reason == Reason.ALARM_WITHOUT_BASELINE
        return Finding(ALARM, "True", "AlarmWithoutBaseline" if without else "Alarm", self.seen.message or "")

    @property
    def rollback(self) -> bool:
        """Whether a replicate confirmed that the promoted profile is worse than the one before it."""
        return self.seen is not None and bool(self.seen.rollback)


def watch_of(view: LineView, accepted: bool, waits_for: str) -> WatchView:
    """The watch. `waits_for`: why no replay may begin now, in a sentence; empty where one may."""
    finding = _finding(view)
    if finding.reason in ("WatchOff", "NothingPromoted") or view.deleting:
        over = (EndWatch(book_line(view.snapshot.line)),) if view.snapshot.book.watch is not None else ()
        return WatchView(finding, keep=over if accepted or view.deleting else ())
    if view.snapshot.book.trouble is not None or view.snapshot.spec is None or view.promoted is None:
        return WatchView(finding, _known(view))
    digest, since = view.promoted.digest, view.promoted.since
    known, row = _known(view) or _nothing_yet(), view.snapshot.book.watch
    last_at, last_run = _last(view, known)
    number = watch_number(since, last_run) + 1
    for each in view.snapshot.works:  # what has ended is told, though another question be asked now
        if each.state is WorkState.ENDED and each.watch is not None and watch_number(since, each.key) == number:
            return _ended(view, finding, each, each.watch)
    key = watch_key(digest, since, question_of(view.snapshot), number)
    work = next((each for each in view.snapshot.works if each.key == key), None)
    wanted = _row(view, last_at, last_run)
    seen = known.model_copy(update={"next_at": moment(wanted.next_at)})
    may_come = finding.holds
    due = view.now >= wanted.next_at and may_come
    running = work is not None and work.state is WorkState.RUNNING
    again = work is None or running or may_start_again(work, view.now)
    start = _start(view, key, wanted.last_run) if due and again and ((running and accepted) or not waits_for) else None
    if due and waits_for and not running:
        finding = Finding(WATCHING, "False", "WatchWaiting", waits_for)
    elif finding.holds and work is not None:
        finding = _interrupted(view, work, start) or finding
    retry = (work.retry_at,) if work is not None and work.retry_at is not None and not running else ()
    keep = () if row == wanted else (KeepWatch(wanted),)
    return WatchView(finding, seen, key, start, keep, look_at=(wanted.next_at, *retry) if may_come else ())


def watch_due_at(view: LineView) -> float | None:
    """When the next of these replays is due; None: none is, or that is not known."""
    unknown = view.snapshot.spec is None or view.snapshot.book.trouble is not None
    if unknown or view.deleting or view.promoted is None or not _finding(view).holds:
        return None
    return _row(view, *_last(view, _known(view) or _nothing_yet())).next_at


def _interrupted(view: LineView, work: WorkSeen, start: StartWork | None) -> Finding | None:
    """What is told of a replay that broke off or was refused: until it comes to its end, not in turn with each try."""
    if work.state in (WorkState.BROKEN, WorkState.REFUSED) and work.trouble and start is None:
        return Finding(WATCHING, "False", "WatchInterrupted", work.trouble)
    before = finding_in(view.before.conditions, WATCHING)
    return before if before is not None and before.reason == "WatchInterrupted" else None


def _finding(view: LineView) -> Finding:
    spec = view.snapshot.spec
    if spec is None:
        return finding_in(view.before.conditions, WATCHING) or Finding(WATCHING, "False", "WatchOff")
    if spec.watch is None:
        return Finding(WATCHING, "False", "WatchOff")
    if view.promoted is None or view.promoted.how == "FirstSeen":
        return Finding(WATCHING, "False", "NothingPromoted")
    return Finding(WATCHING, "False", "Suspended") if view.suspended else Finding(WATCHING, "True", "WatchScheduled")


def _last(view: LineView, known: WatchSeen) -> tuple[float | None, str | None]:
    """When the last replay since the promotion ended, and its run: by the status, which alone has what it showed. A
    book that is ahead of it was written just before a kill, and that replay is told of now. It goes by the book where
    the status knows of no watch since this promotion."""
    assert view.promoted is not None
    row, told = view.snapshot.book.watch, _known(view)
    in_book = row is not None and watch_number(view.promoted.since, row.last_run) > 0
    if row is not None and in_book and (told is None or told.last_run == row.last_run):
        return row.last_at, row.last_run  # to the fraction of a second
    return seconds_of(known.last_at), known.last_run


def _row(view: LineView, last_at: float | None, last_run: str | None) -> Watch:
    """The schedule as it is to be: so long after the last replay, or after the promotion."""
    assert view.promoted is not None and view.snapshot.spec is not None and view.snapshot.spec.watch is not None
    since = seconds_of(view.promoted.since) or view.now
    start = since if last_at is None else last_at
    every = view.snapshot.spec.watch.every_seconds
    return Watch(book_line(view.snapshot.line), start + every, last_at, last_run)


def _ended(view: LineView, finding: Finding, work: WorkSeen, found: WatchFound) -> WatchView:
    at = view.now if work.ended_at is None else work.ended_at
    row = _row(view, at, work.key)
    seen = WatchSeen.model_validate(
        {
            "lastAt": moment(at),
            "lastRun": work.key,
            "nextAt": moment(row.next_at),
            "prefills": found.prefills,
            "badPrefills": found.bad_prefills,
            "alarm": found.alarm,
            "reason": bounded(found.reason, LONGEST_WORD) or None,
            "rollback": found.rollback,
            "message": bounded(found.sentence, LONGEST_LINE) or None,
        }
    )
    return WatchView(finding, seen, work.key, None, (KeepWatch(row),), work, (row.next_at,) if finding.holds else ())


def _known(view: LineView) -> WatchSeen | None:
    """What the status says of this promotion's replays."""
    known, promoted = view.before.watch, view.before.promoted_profile
    same = promoted is not None and view.promoted is not None and promoted.since == view.promoted.since
    return known if same else None


def _nothing_yet() -> WatchSeen:
    return WatchSeen.model_validate({"prefills": 0, "badPrefills": 0, "alarm": False})


def _start(view: LineView, key: str, after: str | None) -> StartWork:
    spec, promoted = view.snapshot.spec, view.promoted
    assert spec is not None and spec.watch is not None and promoted is not None
    previous = view.previous if spec.watch.previous != "None" else None
    return StartWork(
        key=key,
        kind=WorkKind.WATCH,
        baseline=promoted.digest,
        seed=seed_of(view.uid, key),
        prefills=spec.watch.prefills,
        after=after,
        previous=None if previous is None else previous.digest,
    )
