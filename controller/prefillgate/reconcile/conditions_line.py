"""The conditions of a line, in the order of the table: its own, and what its current or last rollout says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from prefillgate.api.kinds.names import SERVING_LINE
from prefillgate.api.kinds.reasons import CONDITIONS_OF, ROWS, ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.core.decision import Reason
from prefillgate.reconcile.candidates import OF_A_DRY_RUN, Candidacy
from prefillgate.reconcile.conditions_rollout import GONE
from prefillgate.reconcile.findings import Finding, finding_in
from prefillgate.reconcile.remembered import Remembered
from prefillgate.reconcile.restated import NO_ROLLOUT, NOT_STARTED
from prefillgate.reconcile.seen import LineView, wire

GATING = ConditionType.GATING
MOST_NAMED = 5  # rollouts in a message
_GOES_ON = (
    *("Screening", "ScreenEnded", "WaitingForIdle", "WaitingForServer", "WaitingForWindow", "LoadLimitReached"),
    "ReplayInterrupted",
)
_NO_FLOOR = ("FloorDue", "FloorRunning", "FloorInterrupted")


@dataclass(frozen=True, slots=True)
class LineFacts:
    """What the status of a line is made of. `view` is the line after this look's promotion, `statuses` are those of its
    rollouts after this look, `shown` is the name of the one that the line's status tells of."""

    view: LineView
    candidacy: Candidacy
    accepted: Finding
    endpoints: Finding
    checked: Finding
    remembered: Remembered
    statuses: Mapping[str, ProfileRolloutStatus]
    shown: str | None
    watching: Finding
    overridden: Finding
    watch_alarm: Finding | None = None
    watch_rollback: bool = False

    @property
    def status_shown(self) -> ProfileRolloutStatus | None:
        """The status of that rollout; None where it is only being made, or there is none."""
        return None if self.shown is None else self.statuses.get(self.shown)

    @property
    def shows_nothing(self) -> bool:
        """Whether there is none, or it has ended and is about a profile that the line has no more: what it allowed then
        is not allowed now."""
        status = self.status_shown
        if status is None:
            return self.shown is None
        if status.ended_at is None or status.candidate is None or not self.view.snapshot.slots:
            return False
        told = wire(status.candidate)
        return not (self.view.is_promoted(told) or self.view.is_candidate(told))

    @property
    def rolls_the_promoted_back(self) -> bool:
        """Whether the answer of the line is that of its watch: it allows a rollback, and no other profile is shown."""
        return self.watch_rollback and (self.shows_the_promoted or self.shows_nothing)

    @property
    def shows_the_promoted(self) -> bool:
        """Whether it is the rollout that promoted what is in production now."""
        promoted = self.view.promoted
        return promoted is not None and self.shown is not None and promoted.rollout == self.shown


def line_findings(facts: LineFacts) -> list[Finding]:
    """All of them."""
    found = {
        each.type: each
        for each in (
            facts.accepted,
            facts.endpoints,
            facts.checked,
            gating_of(facts),
            *_answers(facts),
            facts.overridden,
            behind_of(facts),
            facts.watching,
        )
    }
    return [found[kind] for kind in CONDITIONS_OF[SERVING_LINE.kind]]


def gating_of(facts: LineFacts) -> Finding:
    """What the line does about its candidate."""
    view = facts.view
    if not facts.accepted.holds:
        return Finding(GATING, "False", "NotAccepted")
    if view.deleting:
        return Finding(GATING, "False", "Waiting", "The line is being deleted.")
    if view.suspended:
        return Finding(GATING, "False", "Suspended")
    if view.candidate is None:
        return Finding(GATING, "False", "NoCandidate")
    if view.snapshot.book.trouble is not None:
        return Finding(GATING, "False", "Waiting", _sentence(ConditionType.STORE_BEHIND, "StoreUnreachable"))
    if facts.candidacy.name is not None and not _has_ended(facts):
        return _of_current(facts)
    return _of_the_past(facts)


def _has_ended(facts: LineFacts) -> bool:
    status = facts.statuses.get(facts.candidacy.name or "")
    return status is not None and status.ended_at is not None


def _of_current(facts: LineFacts) -> Finding:
    """While a rollout is about the candidate."""
    name = facts.candidacy.name or ""
    status = facts.statuses.get(name)
    conditions = {each.type: each for each in (status.conditions or ())} if status is not None else {}
    accepted, screened = conditions.get(ConditionType.ACCEPTED), conditions.get(ConditionType.SCREENED)
    if accepted is not None and accepted.status == "False":
        return Finding(GATING, "False", "Waiting", f"{name}: {accepted.message}")
    if screened is not None and screened.reason in _GOES_ON:
        return Finding(GATING, "True", "RolloutRunning", f"It is {name}.")
    for each in (facts.checked, facts.endpoints):
        if each.reason in _NO_FLOOR or (each.type == facts.endpoints.type and not each.holds):
            return Finding(GATING, "False", "Waiting", _sentence(each.type, each.reason))
    return Finding(GATING, "True", "RolloutRunning", f"It is {name}.")


def _of_the_past(facts: LineFacts) -> Finding:
    """Where the candidate is not judged, since it was before."""
    view, last = facts.view, facts.candidacy.last
    assert view.candidate is not None
    rejection = facts.remembered.rejection_of(view.candidate.profile)
    if rejection is not None and _is_back(facts):
        why = f"By {rejection.rollout} at {rejection.at}: {rejection.reason}."
        return Finding(GATING, "False", "RejectedBefore", why)
    reason = None if last is None else _reason(facts.statuses.get(last.name))
    if last is not None and reason == "NotMeasured":
        why = f"{last.name} could not measure; annotate the line with prefillgate.io/rerun to try again."
        return Finding(GATING, "False", "Waiting", why)
    if reason in OF_A_DRY_RUN:
        return Finding(GATING, "False", "Decided", "On a dry run: nothing is allowed.")
    return Finding(GATING, "False", "Decided", "" if last is None else f"By {last.name}.")


def _is_back(facts: LineFacts) -> bool:
    """Whether a rejected candidate is there again, or was when the line was looked at before. Just after its rejection
    it is not: that is told as the decision."""
    view, before = facts.view, facts.view.before
    if facts.candidacy.last is None or before.candidate is None or not view.is_candidate(wire(before.candidate)):
        return True
    return any(each.type == GATING and each.reason == "RejectedBefore" for each in before.conditions or ())


def _reason(status: ProfileRolloutStatus | None) -> str | None:
    conditions = () if status is None else status.conditions or ()
    return next((each.reason for each in conditions if each.type == "Succeeded"), None)


def _answers(facts: LineFacts) -> list[Finding]:
    """Alarm and permissions: the watch's where it says anything, else those of the rollout shown."""
    status = facts.status_shown
    told = None if status is None or facts.shows_nothing else status.conditions
    reason = NO_ROLLOUT if facts.shows_nothing else NOT_STARTED
    found = []
    for kind, nothing in (
        (ConditionType.ALARM_RAISED, "NoAlarm"),
        (ConditionType.PROMOTION_ALLOWED, reason),
        (ConditionType.ROLLBACK_ALLOWED, reason),
    ):
        found.append(finding_in(told, kind) or Finding(kind, "False", nothing))
    if facts.watch_alarm is not None:
        found[0] = facts.watch_alarm
    if facts.rolls_the_promoted_back:
        found[1] = Finding(ConditionType.PROMOTION_ALLOWED, "False", Reason.REGRESSION_CONFIRMED)
    if facts.watch_rollback:
        found[2] = _of_the_promoted(facts)
    return found


def _of_the_promoted(facts: LineFacts) -> Finding:
    """That what is in production may be rolled back, though another profile be shown."""
    promoted = facts.view.promoted
    which = "" if promoted is None else f"It is the promoted profile that may be rolled back: {promoted.name}."
    detail = "" if facts.shows_the_promoted else which
    return Finding(ConditionType.ROLLBACK_ALLOWED, "True", Reason.REGRESSION_CONFIRMED, detail)


def behind_of(facts: LineFacts) -> Finding:
    """Whether the store has what the status says. What was found missing is written into it again; that it was lost
    stays told until a later rollout has evidence of its own, and which rollouts have none any more."""
    view, kind = facts.view, ConditionType.STORE_BEHIND
    book = view.snapshot.book
    if book.trouble is not None:
        return Finding(kind, "Unknown", "StoreUnreachable", book.trouble)
    status = facts.status_shown
    of_rollout = None if status is None else finding_in(status.conditions, kind)
    if of_rollout is not None and of_rollout.holds and of_rollout.reason != GONE:
        return of_rollout
    if facts.remembered.lost or _was_lost(facts):
        return Finding(kind, "True", "StoreBehind", _without_evidence(book.gone))
    return of_rollout if of_rollout is not None and of_rollout.holds else Finding(kind, "False", "StoreCurrent")


def _was_lost(facts: LineFacts) -> bool:
    """Whether it stands told that the store was lost, and no later rollout has evidence yet."""
    before = finding_in(facts.view.before.conditions, ConditionType.STORE_BEHIND)
    if before is None or not before.holds or before.reason == GONE:
        return False
    since = next(
        each.last_transition_time
        for each in facts.view.before.conditions or ()
        if each.type == ConditionType.STORE_BEHIND
    )
    started = None if facts.status_shown is None else facts.status_shown.started_at
    return started is None or started <= since


def _without_evidence(gone: Collection[str]) -> str:
    """Whose evidence is gone, in a sentence; empty where nobody's is."""
    if not gone:
        return ""
    named, more = sorted(gone)[:MOST_NAMED], len(gone) - MOST_NAMED
    return f"Without evidence now: {', '.join(named)}{f' and {more} more' if more > 0 else ''}."


def _sentence(kind: ConditionType, reason: str) -> str:
    return ROWS[kind, reason].sentence
