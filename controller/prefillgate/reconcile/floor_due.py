"""The promoted profile against itself: whether it is known, too old, being measured, or to be measured now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.line_status import FloorSeen
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.evidence.book_rows import Floor
from prefillgate.reconcile import standstill
from prefillgate.reconcile.answer import LONGEST_LINE, bounded
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.findings import Finding, finding_in
from prefillgate.reconcile.naming import book_line, floor_key, seed_of
from prefillgate.reconcile.question import question_of
from prefillgate.reconcile.seen import LineView, RolloutView
from prefillgate.reconcile.snapshot import FloorFound, WorkKind, WorkSeen, WorkState
from prefillgate.reconcile.waits import AT_REST, BEGUN_SECONDS, wait_told, wait_told_at

CHECKED = ConditionType.INSTRUMENT_CHECKED
_FINDINGS: dict[str, tuple[str, str]] = {
    "Sound": ("True", "InstrumentSound"),
    "Unknown": ("Unknown", "InstrumentUnclear"),
    "Broken": ("False", "InstrumentBroken"),
}
_WORDS = {True: "Sound", False: "Broken", None: "Unknown"}


@dataclass(frozen=True, slots=True)
class FloorView:
    """What is known of the floor. `seen` is the last one of the promoted profile on this replay set, `usable` says
    that a candidate may be judged by it. `key` is that of a measurement that would be made now."""

    key: str
    seen: FloorSeen | None
    usable: bool
    finding: Finding
    start: StartWork | None = None
    keep: Floor | None = None  # to be remembered: it has just ended
    expires_at: float | None = None
    retry_at: float | None = None

    @property
    def broken(self) -> bool:
        """Whether nothing can be judged here."""
        return self.usable and self.seen is not None and self.seen.instrument == "Broken"


def floor_of(
    view: LineView, current: RolloutView | None, wanted: bool, may_start: bool, watch_due_at: float | None = None
) -> FloorView:
    """The floor at this look. `wanted`: there is something to judge by it, `current` where that is a rollout already.
    `may_start`: the baseline takes requests, and the line may begin anything. `watch_due_at`: when the next small
    replay of the promoted profile is due, which a broken floor would keep waiting."""
    assert view.promoted is not None and view.snapshot.replay_set is not None and view.snapshot.spec is not None
    digest, cases = view.promoted.digest, view.snapshot.replay_set.sha256
    seen, at = _last(view)
    key = floor_key(digest, question_of(view.snapshot), None if at is None else moment(at))
    work = next((each for each in view.snapshot.works if each.key == key), None)
    keep = None
    if work is not None and work.state is WorkState.ENDED and work.floor is not None:
        at = view.now if work.ended_at is None else work.ended_at
        seen, keep = _seen(work.floor, digest, cases, at), _row(view, work, work.floor, at)
        work = None
    expires = None if at is None else at + view.snapshot.spec.floor.max_age_seconds
    # no idle load: an old one is measured anew once there is something to judge, a broken one for the watch too
    again_at = None
    if seen is not None and seen.instrument == "Broken" and expires is not None and watch_due_at is not None:
        again_at = max(expires, watch_due_at)
    stale = again_at is not None and view.now >= again_at
    usable = seen is not None and not stale and not (wanted and _stale(view, seen, current, expires))
    judged = wanted and not (current is not None and current.started)
    due = not usable
    start = _start(view, key) if due and may_start and _startable(work, view.now) else None
    return FloorView(
        key=key,
        seen=seen,
        usable=usable,
        finding=_finding(view, seen if usable else None, work, start),
        start=start,
        keep=keep,
        expires_at=(expires if judged else again_at) if usable else None,
        retry_at=_look_again_at(view, work, start) if due else None,
    )


def _last(view: LineView) -> tuple[FloorSeen | None, float | None]:
    """The newest of what the book and the status know, and when it was measured."""
    assert view.promoted is not None and view.snapshot.replay_set is not None
    told, row = view.before.floor, view.snapshot.book.floor
    cases = view.snapshot.replay_set.sha256
    if told is not None and (told.baseline_digest != view.promoted.digest or told.replay_set_sha256 != cases):
        told = None
    if row is not None and (row.baseline != view.promoted.digest or row.replay_set_sha256 != cases):
        row = None
    told_at = None if told is None else seconds_of(told.at)
    if row is None or (told_at is not None and int(row.measured_at) < told_at):
        return told, told_at
    if told is not None and told_at == int(row.measured_at):
        return told, row.measured_at
    found = FloorFound(row.sound, row.sentence, 0, 0, row.noise_cv, row.identical, row.compared)
    seen = _seen(found, row.baseline, row.replay_set_sha256, row.measured_at)
    return seen.model_copy(update={"prefills": None, "bad_prefills": None}), row.measured_at  # the book has them not


def _stale(view: LineView, seen: FloorSeen, current: RolloutView | None, expires: float | None) -> bool:
    """Whether it must be measured again before anything is judged by it: too old, or broken before this rollout came.
    What has begun goes on by the floor that it began with."""
    if current is not None and current.started:
        return False
    made = view.now if current is None else current.created
    measured = seconds_of(seen.at) or 0.0
    broken_before = seen.instrument == "Broken" and measured < made
    return broken_before or (expires is not None and view.now >= expires)


def _startable(work: WorkSeen | None, now: float) -> bool:
    return work is None or work.state is WorkState.RUNNING or may_start_again(work, now)


def may_start_again(work: WorkSeen, now: float) -> bool:
    """Whether what broke, or was refused, may be begun again now. What was refused is not, unless it says when."""
    if work.state is WorkState.BROKEN:
        return work.retry_at is None or work.retry_at <= now
    return work.state is WorkState.REFUSED and work.retry_at is not None and work.retry_at <= now


def _start(view: LineView, key: str) -> StartWork:
    assert view.promoted is not None
    return StartWork(key, WorkKind.FLOOR, baseline=view.promoted.digest, seed=seed_of(view.uid, key))


def as_it_stood(view: LineView, conditions: Sequence[ConditionModel] | None) -> Finding:
    """What was told of the floor, where it cannot be known now."""
    before = finding_in(conditions, CHECKED)
    running = [each for each in view.snapshot.works if each.kind is WorkKind.FLOOR and each.state is WorkState.RUNNING]
    if before is None or (before.reason in ("FloorRunning", "FloorInterrupted") and not running):
        return Finding(CHECKED, "Unknown", "FloorDue")
    return before


def _finding(view: LineView, seen: FloorSeen | None, work: WorkSeen | None, start: StartWork | None) -> Finding:
    if seen is not None:
        status, reason = _FINDINGS[seen.instrument]
        return Finding(CHECKED, status, reason, seen.message or "")  # type: ignore[arg-type]
    if (found := standstill.told(work)) is not None:
        detail = f"{standstill.sentence(found)} {standstill.remedy(found)}"
        return Finding(CHECKED, "Unknown", "FloorInterrupted", detail)
    if work is not None and work.state is WorkState.REFUSED and work.trouble:
        return Finding(CHECKED, "Unknown", "FloorInterrupted", work.trouble)
    before = finding_in(view.before.conditions, CHECKED)
    if work is not None and work.standstill is not None and before is not None and before.reason == "FloorInterrupted":
        return before  # not in turn with each try
    if work is not None and work.state is WorkState.RUNNING:
        waits = wait_told(work, view.now)
        return Finding(CHECKED, "Unknown", "FloorDue" if waits or work.waiting in AT_REST else "FloorRunning", waits)
    if start is None:
        return Finding(CHECKED, "Unknown", "FloorDue", "" if work is None else work.trouble)
    if work is None and before is not None and before.reason == "FloorRunning":
        return before  # it ran when this process began, and is taken up again
    return Finding(CHECKED, "Unknown", "FloorDue")


def _look_again_at(view: LineView, work: WorkSeen | None, start: StartWork | None) -> float | None:
    """When there may be something to tell of a floor that is not known, though nothing changes."""
    if work is not None and work.state is WorkState.RUNNING and work.waiting:
        told_at = wait_told_at(work)
        return told_at if told_at > view.now else work.retry_at
    if start is not None and (work is None or work.state is not WorkState.RUNNING):
        return view.now + BEGUN_SECONDS
    return None if work is None else work.retry_at


def _seen(found: FloorFound, digest: str, cases: str, at: float) -> FloorSeen:
    share = None
    if found.identical is not None and found.compared:
        share = round(10_000 * found.identical / found.compared)
    return FloorSeen.model_validate(
        {
            "baselineDigest": digest,
            "replaySetSha256": cases,
            "at": moment(at),
            "instrument": _WORDS[found.sound],
            "prefills": found.prefills,
            "badPrefills": found.bad_prefills,
            "throughputCvBasisPoints": None if found.noise_cv is None else min(round(10_000 * found.noise_cv), 10_000),
            "identicalBasisPoints": share,
            "message": bounded(found.sentence, LONGEST_LINE) or None,
        }
    )


def _row(view: LineView, work: WorkSeen, found: FloorFound, at: float) -> Floor:
    assert view.promoted is not None and view.snapshot.replay_set is not None
    return Floor(
        line=book_line(view.snapshot.line),
        baseline=view.promoted.digest,
        replay_set_sha256=view.snapshot.replay_set.sha256,
        run=work.run,
        measured_at=at,
        sound=found.sound,
        sentence=found.sentence,
        identical=found.identical,
        compared=found.compared,
        noise_cv=found.noise_cv,
    )
