"""The status of a rollout out of its life: what is new stands in it, what stands there stays.

A status is written at transitions alone. The numbers of a rollout that runs are those of its last transition, a quarter
of its budget among them; the journal has every cell.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.api.kinds.rollout_status import (
    CountsStatus,
    DecisionStatus,
    EvidenceStatus,
    ProfileRolloutStatus,
    ReplicateStatus,
    RolloutProfile,
)
from prefillgate.reconcile import restated
from prefillgate.reconcile.answer import LONGEST_SUMMARY, Answer, bounded
from prefillgate.reconcile.candidates import OF_A_DRY_RUN, differences_of
from prefillgate.reconcile.conditions_rollout import behind_of_ended, permissions, rollout_findings, standing
from prefillgate.reconcile.findings import Finding, as_conditions
from prefillgate.reconcile.lifecycle import Ground, Life, said_by_a_person, success_of
from prefillgate.reconcile.naming import digits_of
from prefillgate.reconcile.rereading import DIGITS_OF_A_NAME
from prefillgate.reconcile.seen import (
    LineView,
    RolloutView,
    Told,
    refreshed,
    wire,
    wire_profile,
)

PARTS = 4  # of the budget at which the numbers are told anew while nothing else happens
LONGEST_STORE, LONGEST_RUN = 1024, 128


def status_of_life(ground: Ground, life: Life) -> ProfileRolloutStatus:
    """The status of a rollout that had not ended before this look."""
    rollout, before = ground.rollout, ground.rollout.before
    answer = life.answer if life.answer is not None and (life.ended or _is_news(before, life.answer)) else None
    evidence = life.evidence if answer is not None or life.answer is None else ground.evidence
    decision = life.decision if life.decision != life.evidence else evidence
    decision = settled(before.decision, decision)
    started = before.started_at or _started(rollout, answer)
    told = before.model_copy(
        update={
            "observed_generation": rollout.generation,
            "decision": decision,
            "evidence_decision": None
            if _says_the_same(decision, evidence)
            else settled(before.evidence_decision or before.decision, evidence),
            "baseline": _baseline(ground),
            "candidate": _candidate(ground),
            "summary": before.summary or _summary(ground),
            "override": ground.override,
            "last_handled_override": ground.handled or before.last_handled_override,
            **({} if answer is None else _numbers(rollout, answer)),
            "started_at": started,
            "ended_at": _ended(ground, life),
            "deadline_at": _deadline(ground, started),
            "superseded_by": life.by,
        }
    )
    conditions = as_conditions(
        before.conditions, rollout_findings(ground, life, told), ground.view.at, rollout.generation
    )
    return told.model_copy(update={"conditions": conditions})


def settled(before: DecisionStatus | None, now: DecisionStatus) -> DecisionStatus:
    """The decision, since when it was first this."""
    if before is not None and _says_the_same(before, now):
        return now.model_copy(update={"at": before.at})
    return now


def _says_the_same(one: DecisionStatus, other: DecisionStatus) -> bool:
    words = [(each.verdict, each.promotion, each.rollback, each.reason, each.measured) for each in (one, other)]
    return words[0] == words[1]


def _is_news(before: ProfileRolloutStatus, answer: Answer) -> bool:
    known = before.evidence_decision or before.decision
    if known is None or before.counts is None:
        return True
    return _stands(known, before.replicates, before.counts) != _stands(
        answer.decision, answer.replicates, answer.counts
    )


def _stands(decision: DecisionStatus, replicates: list[ReplicateStatus] | None, counts: CountsStatus) -> Hashable:
    """What is told anew when it changes."""
    part = PARTS * counts.prefills_used // max(counts.budget, 1)
    numbered = tuple((each.number, each.ending, each.separation) for each in replicates or ())
    return decision.verdict, decision.reason, numbered, part


def _numbers(rollout: RolloutView, answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "prefills": answer.prefills,
        "counts": answer.counts,
        "replicates": answer.replicates or None,
        "throughput": answer.throughput,
        "differences": answer.differences or None,
    }
    if answer.summary:
        found["summary"] = answer.summary
    work = rollout.work
    if work is not None and work.run:
        found["evidence"] = EvidenceStatus(
            store=bounded(work.store, LONGEST_STORE), run=bounded(work.run, LONGEST_RUN), rows=work.rows, head=work.head
        )
    return found


def _started(rollout: RolloutView, answer: Answer | None) -> str | None:
    """Told with the first numbers: a write less."""
    return None if rollout.work is None or answer is None else moment(rollout.work.started_at)


def _ended(ground: Ground, life: Life) -> str | None:
    if not life.ended:
        return None
    work = ground.rollout.work
    by_itself = life.answer is not None and work is not None and work.ended_at is not None
    at = work.ended_at if by_itself and work is not None and work.ended_at is not None else ground.view.now
    since = None if ground.view.promoted is None else seconds_of(ground.view.promoted.since)
    return moment(max(at, since or 0.0))


def _deadline(ground: Ground, started: str | None) -> str | None:
    """By the line, from the making of the rollout on, or by the policy, from its first cell on."""
    policy, began = ground.view.snapshot.policy, seconds_of(started)
    by_policy = None
    if policy is not None and policy.deadline_seconds is not None and began is not None:
        by_policy = began + policy.deadline_seconds
    times = [each for each in (ground.deadline, by_policy) if each is not None]
    return moment(min(times)) if times else None


def _summary(ground: Ground) -> str | None:
    spec = ground.rollout.spec
    told = list(spec.differences) if spec is not None else []
    if not told and _is_about_now(ground.view, ground.rollout):
        told = differences_of(ground.view)
    return bounded("; ".join(told), LONGEST_SUMMARY) or None


def _is_about_now(view: LineView, rollout: RolloutView) -> bool:
    baseline = rollout.baseline is None or view.is_promoted(rollout.baseline)
    return baseline and (rollout.candidate is None or view.is_candidate(rollout.candidate))


def _baseline(ground: Ground) -> RolloutProfile | None:
    view, rollout = ground.view, ground.rollout
    if rollout.before.baseline is not None:
        return _resolved(rollout.before.baseline, view)
    if view.promoted is not None and (rollout.baseline is None or view.is_promoted(rollout.baseline)):
        if rollout.baseline is None and view.candidate is None:
            return None
        return RolloutProfile.model_validate(wire(view.promoted))
    return _recorded(rollout.baseline)


def _candidate(ground: Ground) -> RolloutProfile | None:
    view, rollout = ground.view, ground.rollout
    if rollout.before.candidate is not None:
        return _resolved(rollout.before.candidate, view)
    if view.candidate is not None and (rollout.candidate is None or view.is_candidate(rollout.candidate)):
        return RolloutProfile.model_validate(wire_profile(view.candidate, view.snapshot.reading))
    return _recorded(rollout.candidate)


def _resolved(seen: RolloutProfile, view: LineView) -> RolloutProfile:
    better = refreshed(seen, view.snapshot)
    return RolloutProfile.model_validate(wire(seen) | better) if better else seen


def _recorded(told: Told | None) -> RolloutProfile | None:
    if told is None:
        return None
    name = digits_of(str(told.get("digest")), DIGITS_OF_A_NAME)
    return RolloutProfile.model_validate({"name": name, **told})


def status_of_ended(ground: Ground) -> ProfileRolloutStatus:
    """The status of a rollout that ended before this look: a person's word alone changes it, and that its evidence is
    gone or there again is told.

    What was promoted stays so. Where the word is taken back, what the evidence said stands again.
    """
    told, behind = _by_a_word(ground), behind_of_ended(ground)
    if behind is None:
        return told
    found: dict[str, Finding | ConditionModel] = {each.type: each for each in told.conditions or ()}
    found[behind.type] = behind
    before, rollout = ground.rollout.before.conditions, ground.rollout
    return told.model_copy(
        update={"conditions": as_conditions(before, found.values(), ground.view.at, rollout.generation)}
    )


def _by_a_word(ground: Ground) -> ProfileRolloutStatus:
    rollout, before = ground.rollout, ground.rollout.before
    told = before.model_copy(update={"last_handled_override": ground.handled or before.last_handled_override})
    gone = standing(rollout, ConditionType.SUPERSEDED)  # then that is what stands, whatever the evidence was
    evidence = before.decision if gone is not None and gone.holds else before.evidence_decision or before.decision
    overridden = before.override is not None or ground.override is not None
    if evidence is None or not (overridden or ground.overridden != standing(rollout, ConditionType.OVERRIDDEN)):
        return told
    override, tried = ground.override, _only_tried_out(ground)
    decision = evidence if override is None else said_by_a_person(ground.view, evidence, override)
    decision = settled(before.decision, restated.tried_out(decision) if tried else decision)
    found: dict[str, Finding | ConditionModel] = {each.type: each for each in before.conditions or ()}
    found |= {each.type: each for each in (*permissions(decision), ground.overridden, _ending(ground, evidence, tried))}
    return told.model_copy(
        update={
            "decision": decision,
            "evidence_decision": None if _says_the_same(decision, evidence) else evidence,
            "override": override,
            "conditions": as_conditions(before.conditions, found.values(), ground.view.at, rollout.generation),
        }
    )


def _only_tried_out(ground: Ground) -> bool:
    """Whether what the rollout says is that of a dry run: the line is on one, or was when it ended and when the word
    that stands was given. Nothing of that becomes real by itself; a word that is given later does."""
    ended, known, now = standing(ground.rollout, ConditionType.SUCCEEDED), ground.rollout.before, ground.override
    if ground.view.dry_run or ended is None or ended.reason not in OF_A_DRY_RUN:
        return ground.view.dry_run
    if now is None or known.override is None or known.override.key != now.key:
        return now is None
    return known.decision is not None and known.decision.reason == restated.DRY_RUN


def _ending(ground: Ground, evidence: DecisionStatus, tried: bool) -> Finding:
    """How it ended, with what a person says of it."""
    before = standing(ground.rollout, ConditionType.SUCCEEDED) or success_of(evidence, tried)
    if before.reason in ("Promoted", "Superseded"):
        return before
    if ground.override is not None and ground.override.verdict == "Promote":
        return Finding(ConditionType.SUCCEEDED, "True", "PassedDryRun" if tried else "Promoted")
    if ground.override is None and ground.rollout.before.override is not None:
        return success_of(evidence, tried)
    return before
