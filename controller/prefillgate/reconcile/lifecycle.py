"""The life of one rollout: an ordered list of rules, the first that answers wins.

```
made -> waits for floor, servers -> screened (-> alarm -> replicate) -> promoted, held, rolled back
     \\______________ superseded, withdrawn, out of time, could not be measured ______________/
```
A rollout that has ended is over: only a person's word changes its status.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from prefillgate.api.kinds.common import HandledOverride
from prefillgate.api.kinds.moments import seconds_of
from prefillgate.api.kinds.reasons import ROWS, ConditionType
from prefillgate.api.kinds.rollout_status import DecisionStatus, OverrideStatus
from prefillgate.core.decision import Reason
from prefillgate.core.verdict import Outcome
from prefillgate.reconcile import restated, standstill
from prefillgate.reconcile.answer import Answer, answered, goes_on
from prefillgate.reconcile.candidates import Candidacy, superseded_by
from prefillgate.reconcile.effects import StartWork
from prefillgate.reconcile.findings import Finding
from prefillgate.reconcile.floor_due import FloorView, may_start_again
from prefillgate.reconcile.naming import seed_of
from prefillgate.reconcile.screening import screened_so_far, screening
from prefillgate.reconcile.seen import LineView, RolloutView
from prefillgate.reconcile.snapshot import Standstill, WorkKind, WorkState

SCREENED, SUCCEEDED, SUPERSEDED = ConditionType.SCREENED, ConditionType.SUCCEEDED, ConditionType.SUPERSEDED
MOST_CHANGES = 16
MEND_OR_RERUN = (
    "What is named put right, or a rerun (annotation prefillgate.io/rerun): a rollout with a run of its own, by what "
    "the line says now."
)
_NO_OVERRIDE = Finding(ConditionType.OVERRIDDEN, "False", "NoOverride")
_RUNNING = Finding(SUCCEEDED, "Unknown", "Running")
_CURRENT = Finding(SUPERSEDED, "False", "Current")


@dataclass(frozen=True, slots=True)
class Ground:
    """What a rollout stands on at this look: whether it can be used, its line's servers and floor, and what a person
    says of it (`override`, with its condition and its echo)."""

    view: LineView
    rollout: RolloutView
    candidacy: Candidacy
    accepted: Finding
    endpoints: Finding
    floor: FloorView | None
    override: OverrideStatus | None = None
    overridden: Finding = _NO_OVERRIDE
    handled: HandledOverride | None = None

    @property
    def deadline(self) -> float | None:
        """When it holds for want of time; None: never by the line's spec."""
        spec = self.view.snapshot.spec
        seconds = None if spec is None else spec.deadline_seconds
        return None if seconds is None else self.rollout.created + seconds

    @property
    def out_of_time(self) -> bool:
        """Whether that is past."""
        return self.deadline is not None and self.view.now >= self.deadline

    @property
    def latest(self) -> Answer | None:
        """What its replay says now, before any answer."""
        work = self.rollout.work
        if work is None or work.verdict is None or not goes_on(work.verdict.decision):
            return None
        return answered(work.verdict, self.view.now)

    @property
    def last_evidence(self) -> DecisionStatus:
        """What the evidence alone says, for a rollout that ends now."""
        return self.evidence if (latest := self.latest) is None else latest.decision

    @property
    def evidence(self) -> DecisionStatus:
        """What the evidence alone says, as last told."""
        before = self.rollout.before
        known = before.evidence_decision or (before.decision if before.counts is not None else None)
        return known or restated.not_started(self.rollout.created)


@dataclass(frozen=True, slots=True)
class Life:
    """What becomes of a rollout. `evidence` is what the evidence alone says, `decision` what is said: another one
    where something goes before it. `answer` are new numbers, None: those that stand stay."""

    decision: DecisionStatus
    evidence: DecisionStatus
    screened: Finding
    succeeded: Finding = _RUNNING
    superseded: Finding = _CURRENT
    by: str | None = None
    answer: Answer | None = None
    ended: bool = False
    may_run: bool = False  # its replay goes on where it runs
    start: StartWork | None = None
    look_at: tuple[float, ...] = field(default=())  # when something may be due though nothing changes


def life_of(ground: Ground) -> Life:
    """The first rule that answers."""
    for rule in RULES:
        life = rule(ground)
        if life is not None:
            if life.screened.reason == "Screening" and (life.ended or not life.may_run):
                life = replace(life, screened=Finding(SCREENED, "False", "ScreenInterrupted"))
            return replace(life, answer=ground.latest) if life.ended and life.answer is None else life
    raise AssertionError("the last rule always answers")


def deleting(g: Ground) -> Life | None:
    """1. Nothing is decided about what goes away."""
    if not (g.view.deleting or g.rollout.deleting):
        return None
    return Life(restated.deleting(g.evidence, g.view.now), g.evidence, _not_started(g))


def superseded(g: Ground) -> Life | None:
    """2. It is about other profiles than the line has now. What the line has cannot be told while it cannot be read."""
    if not g.view.snapshot.slots or (not g.accepted.holds and g.accepted.reason != "DigestMismatch"):
        return None
    over = superseded_by(g.view, g.rollout, g.candidacy)
    if over is None:
        return None
    reason, by = over
    return Life(
        restated.superseded(g.last_evidence, by, g.view.now),
        g.last_evidence,
        screened_so_far(g.rollout),
        Finding(SUCCEEDED, "False", "Superseded"),
        Finding(SUPERSEDED, "True", reason, "" if by is None else f"It is {by}."),
        by=by,
        ended=True,
    )


def overridden(g: Ground) -> Life | None:
    """3. A person's word goes before the evidence. A promotion ends the rollout; hold and rollback stop its replay for
    as long as they stand."""
    if g.override is None:
        return None
    told = said_by_a_person(g.view, g.evidence, g.override)
    if g.override.verdict == "Promote":
        how = Finding(SUCCEEDED, "True", "PassedDryRun" if g.view.dry_run else "Promoted")
        return Life(told, g.evidence, screened_so_far(g.rollout), how, ended=True)
    expires = seconds_of(g.override.expires)
    times = _deadline(g) if expires is None else (*_deadline(g), expires)
    return Life(told, g.evidence, screened_so_far(g.rollout), may_run=True, look_at=times)


def answered_finally(g: Ground) -> Life | None:
    """4. Its replay has come to an answer. A promotion waits while the candidate takes no requests."""
    work, book = g.rollout.work, g.view.snapshot.book
    if work is None or work.state is not WorkState.ENDED or work.verdict is None or book.trouble is not None:
        return None
    if _paused(g) or (work.verdict.decision.decision is Outcome.PROMOTE and _is_down(g)):
        return None
    answer = answered(work.verdict, g.view.now if work.ended_at is None else work.ended_at)
    said = restated.tried_out(answer.decision) if g.view.dry_run else answer.decision
    screened = Finding(SCREENED, "True", "ScreenEnded")
    return Life(said, answer.decision, screened, success_of(answer.decision, g.view.dry_run), answer=answer, ended=True)


def said_by_a_person(view: LineView, evidence: DecisionStatus, override: OverrideStatus) -> DecisionStatus:
    """The decision while a person's word stands before it."""
    told = restated.overridden(evidence, override, view.now)
    return restated.tried_out(told) if view.dry_run else told


def not_accepted(g: Ground) -> Life | None:
    """5. What cannot be used is not judged, and goes on once it can."""
    if g.accepted.holds:
        return None
    if g.accepted.status == "Unknown":
        return Life(g.evidence, g.evidence, _not_started(g), may_run=not g.view.suspended)
    unread = g.rollout.spec is None or g.view.snapshot.spec is None
    reason = g.accepted.reason if unread or g.accepted.reason == "DigestMismatch" else "NotAccepted"
    told = restated.not_accepted(reason, g.accepted.detail, g.evidence, g.view.now)
    return _late(g) or Life(told, g.evidence, _not_started(g), look_at=_deadline(g))


def unavailable(g: Ground) -> Life | None:
    """6. The candidate takes no requests: a rollback is allowed at once. It is judged on where it comes back."""
    arm = g.view.snapshot.candidate
    if arm is None or arm.unavailable is None or not _is_down(g):
        return None
    told = restated.unavailable(arm.unavailable, g.evidence, g.view.now)
    if g.view.dry_run:
        told = restated.tried_out(told)
    waiting = Finding(SCREENED, "False", "WaitingForEndpoints") if not g.rollout.started else screened_so_far(g.rollout)
    return _late(g) or Life(told, g.evidence, waiting, may_run=not g.view.suspended, look_at=_deadline(g))


def suspended(g: Ground) -> Life | None:
    """7. A line that is suspended begins nothing, and goes on where it was."""
    if not g.view.suspended:
        return None
    return _late(g) or Life(g.evidence, g.evidence, Finding(SCREENED, "False", "Suspended"), look_at=_deadline(g))


def store_away(g: Ground) -> Life | None:
    """8. Without its store nothing begins and nothing is lowered."""
    if g.view.snapshot.book.trouble is None:
        return None
    return Life(g.evidence, g.evidence, screened_so_far(g.rollout), may_run=True)


def refused(g: Ground) -> Life | None:
    """9. What the replay was given cannot be used: an Error, and no word about the candidate. Where that may be mended
    (a store restored, a model loaded) it is tried again, seldom."""
    work = g.rollout.work
    if work is None or work.state is not WorkState.REFUSED:
        return None
    if work.retry_at is None:
        return _could_not_measure(g, Reason.MEASUREMENT_LOST, work.trouble)
    told = restated.held(Reason.MEASUREMENT_LOST, work.trouble, g.evidence, g.view.now)
    told = told.model_copy(update={"what_would_change": [MEND_OR_RERUN, *(told.what_would_change or ())]})
    start = _start(g) if _is_current(g) and g.endpoints.holds and may_start_again(work, g.view.now) else None
    times = (*_deadline(g), work.retry_at)
    return _late(g) or Life(told, g.evidence, screened_so_far(g.rollout), may_run=True, start=start, look_at=times)


def standing_still(g: Ground) -> Life | None:
    """10. A server answers again and again what nobody can measure: an Error, and no word about the candidate."""
    work = g.rollout.work
    if work is None or work.state is WorkState.ENDED or not standstill.has_ended_it(work):
        return None
    found = work.standstill
    assert found is not None  # it has ended it
    return _could_not_measure(
        g, Reason.MEASUREMENT_LOST, f"{standstill.sentence(found)} {standstill.remedy(found)} A rerun asks again."
    )


def instrument_broken(g: Ground) -> Life | None:
    """11. Where the baseline differs from itself nothing is judged."""
    if g.floor is None or not g.floor.broken or g.rollout.started:
        return None
    seen = g.floor.seen
    return _could_not_measure(g, Reason.INSTRUMENT_BROKEN, seen.message or "" if seen is not None else "")


def late(g: Ground) -> Life | None:
    """12. Out of time, and no replay runs that would say so itself."""
    return _late(g)


def without_candidate(g: Ground) -> Life | None:
    """13. Made by hand, while there is no candidate: it waits for one."""
    if _is_current(g):
        return None
    return Life(g.evidence, g.evidence, _not_started(g), look_at=_deadline(g))


def waiting_for_floor(g: Ground) -> Life | None:
    """14. The baseline is compared with itself first."""
    if g.rollout.started or (g.floor is not None and g.floor.usable):
        return None
    waiting = Finding(SCREENED, "False", "WaitingForFloor")
    times = (*_deadline(g), *((g.floor.retry_at,) if g.floor is not None and g.floor.retry_at is not None else ()))
    return Life(g.evidence, g.evidence, waiting, look_at=times)


def waiting_for_endpoints(g: Ground) -> Life | None:
    """15. Nobody is asked who takes no requests."""
    if g.endpoints.holds or g.rollout.running:
        return None
    waiting = Finding(SCREENED, "False", "WaitingForEndpoints")
    expires = (g.floor.expires_at,) if g.floor is not None and g.floor.expires_at is not None else ()
    return Life(g.evidence, g.evidence, waiting, look_at=(*_deadline(g), *expires))


def replayed(g: Ground) -> Life:
    """16. It is being replayed, or begins to be."""
    work = g.rollout.work
    wanted = work is None or work.state is WorkState.RUNNING or _paused(g) or may_start_again(work, g.view.now)
    start = _start(g) if wanted and g.endpoints.holds else None
    answer = g.latest
    evidence = g.evidence if answer is None else answer.decision
    screened, waits_until = screening(g.rollout, answer, g.view.now)
    times = [*_deadline(g), *waits_until]
    if work is not None and work.state in (WorkState.BROKEN, WorkState.RUNNING) and work.retry_at is not None:
        times.append(work.retry_at)
    told = _with_remedy(evidence, standstill.told(work))
    return Life(told, evidence, screened, answer=answer, may_run=True, start=start, look_at=tuple(times))


def _with_remedy(evidence: DecisionStatus, found: Standstill | None) -> DecisionStatus:
    """What the evidence says, and first what keeps more of it from coming."""
    if found is None:
        return evidence
    changes = [standstill.remedy(found), *(evidence.what_would_change or ())]
    return evidence.model_copy(update={"what_would_change": changes[:MOST_CHANGES]})


Rule = Callable[[Ground], Life | None]
RULES: tuple[Rule, ...] = (
    deleting,
    superseded,
    overridden,
    answered_finally,
    not_accepted,
    unavailable,
    suspended,
    store_away,
    refused,
    standing_still,
    instrument_broken,
    late,
    without_candidate,
    waiting_for_floor,
    waiting_for_endpoints,
    replayed,
)


def _is_current(g: Ground) -> bool:
    return g.candidacy.current is not None and g.candidacy.current.name == g.rollout.name


def _is_down(g: Ground) -> bool:
    """Whether its candidate is known to take no requests."""
    arm = g.view.snapshot.candidate
    return arm is not None and arm.unavailable is not None and _is_current(g)


def _paused(g: Ground) -> bool:
    """Whether its replay has ended for no more than a person's hold or rollback."""
    work = g.rollout.work
    if work is None or work.state is not WorkState.ENDED or work.verdict is None:
        return False
    decision = work.verdict.decision
    return decision.reason == Reason.OVERRIDE and decision.decision is not Outcome.PROMOTE


def success_of(decision: DecisionStatus, dry_run: bool) -> Finding:
    """How a rollout ended, by what the evidence says."""
    if not decision.measured:
        return Finding(SUCCEEDED, "False", "NotMeasured", decision.sentences[0] if decision.sentences else "")
    if decision.verdict == "Promote":
        return Finding(SUCCEEDED, "True", "PassedDryRun" if dry_run else "Promoted")
    if dry_run:
        return Finding(SUCCEEDED, "False", "FailedDryRun")
    return Finding(SUCCEEDED, "False", "RollbackAllowed" if decision.verdict == "Rollback" else "Held")


def _could_not_measure(g: Ground, reason: Reason, detail: str) -> Life:
    told = restated.held(reason, detail, g.last_evidence, g.view.now)
    sentence = ROWS[ConditionType.PROMOTION_ALLOWED, reason].sentence
    ended = Finding(SUCCEEDED, "False", "NotMeasured", f"{sentence} {detail}".strip())
    return Life(told, told, screened_so_far(g.rollout), ended, ended=True)


def _late(g: Ground) -> Life | None:
    """The end for want of time. A replay that runs, or could go on, says so itself with all that it has measured."""
    work = g.rollout.work
    says_itself = g.rollout.running or (work is None and g.rollout.started and g.endpoints.holds and _may_begin(g))
    if not g.out_of_time or says_itself or g.view.snapshot.book.trouble is not None:
        return None
    told = restated.held(Reason.DEADLINE, _why_late(g), g.last_evidence, g.view.now)
    return Life(told, told, screened_so_far(g.rollout), Finding(SUCCEEDED, "False", "Held", _why_late(g)), ended=True)


def _may_begin(g: Ground) -> bool:
    return g.accepted.holds and not g.view.suspended and _is_current(g)


def _why_late(g: Ground) -> str:
    if g.rollout.started:
        return "Its replay could not go on in time."
    return "It could not begin in time: " + _sentence_of(_waits_for(g))


def _waits_for(g: Ground) -> tuple[ConditionType, str]:
    if g.view.suspended:
        return SCREENED, "Suspended"
    if not g.accepted.holds:
        return g.accepted.type, g.accepted.reason
    return (g.endpoints.type, g.endpoints.reason) if not g.endpoints.holds else (SCREENED, "WaitingForFloor")


def _sentence_of(row: tuple[ConditionType, str]) -> str:
    return ROWS[row].sentence


def _deadline(g: Ground) -> tuple[float, ...]:
    return () if g.deadline is None else (g.deadline,)


def _not_started(g: Ground) -> Finding:
    return screened_so_far(g.rollout) if g.rollout.started else Finding(SCREENED, "Unknown", "NotStarted")


def _start(g: Ground) -> StartWork:
    spec, candidate, promoted = g.rollout.spec, g.view.candidate, g.view.promoted
    assert spec is not None and candidate is not None and promoted is not None
    return StartWork(
        key=g.rollout.uid,
        kind=WorkKind.JUDGE,
        baseline=promoted.digest,
        candidate=candidate.profile.digest,
        rollout=g.rollout.name,
        seed=seed_of(g.rollout.uid) if spec.seed is None else spec.seed,
        must_end_at=g.deadline,
    )
