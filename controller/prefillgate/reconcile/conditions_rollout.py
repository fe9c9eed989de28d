"""The conditions of a rollout, in the order of the table."""

from __future__ import annotations

from collections.abc import Iterator

from prefillgate.api.kinds.names import PROFILE_ROLLOUT
from prefillgate.api.kinds.reasons import CONDITIONS_OF, ROWS, ConditionType
from prefillgate.api.kinds.rollout_status import DecisionStatus, ProfileRolloutStatus
from prefillgate.core.decision import Reason
from prefillgate.reconcile.findings import Finding, finding_in
from prefillgate.reconcile.floor_due import as_it_stood
from prefillgate.reconcile.lifecycle import Ground, Life
from prefillgate.reconcile.seen import RolloutView

ALARM, REPLICATE = ConditionType.ALARM_RAISED, ConditionType.REPLICATE_CONFIRMED
BEHIND, GONE = ConditionType.STORE_BEHIND, "EvidenceGone"


def rollout_findings(ground: Ground, life: Life, told: ProfileRolloutStatus) -> list[Finding]:
    """All of them. `told` is the status so far: the decision and the numbers that these conditions go with."""
    assert told.decision is not None
    found = {
        each.type: each
        for each in (
            ground.accepted,
            *_surroundings(ground),
            life.screened,
            alarm_of(ground, life, told),
            replicate_of(told),
            *permissions(told.decision),
            ground.overridden,
            store_behind(ground),
            life.superseded,
            life.succeeded,
        )
    }
    return [found[kind] for kind in CONDITIONS_OF[PROFILE_ROLLOUT.kind]]


def standing(rollout: RolloutView, kind: ConditionType) -> Finding | None:
    """A condition as the rollout's status has it."""
    return finding_in(rollout.before.conditions, kind)


def _surroundings(ground: Ground) -> Iterator[Finding]:
    """Servers and floor: those of the line while this is about what the line has, else as they stood."""
    current = ground.candidacy.current
    present = current is not None and current.name == ground.rollout.name
    floor = as_it_stood(ground.view, ground.rollout.before.conditions)
    for now, kind in (
        (ground.endpoints, ConditionType.ENDPOINTS_READY),
        (floor if ground.floor is None else ground.floor.finding, ConditionType.INSTRUMENT_CHECKED),
    ):
        yield now if present else standing(ground.rollout, kind) or now


def permissions(decision: DecisionStatus) -> Iterator[Finding]:
    """The two permissions, each with the reason of the decision."""
    for kind, allowed in (
        (ConditionType.PROMOTION_ALLOWED, decision.promotion == "Allowed"),
        (ConditionType.ROLLBACK_ALLOWED, decision.rollback == "Allowed"),
    ):
        sentence = ROWS[kind, decision.reason].sentence
        of_rollback = [each for each in decision.sentences if each.startswith("Rollback is ")]
        first = of_rollback if of_rollback and kind is ConditionType.ROLLBACK_ALLOWED else decision.sentences
        more = [each for each in first[:1] if each != sentence]
        yield Finding(kind, "True" if allowed else "False", decision.reason, " ".join(more))


def alarm_of(ground: Ground, life: Life, told: ProfileRolloutStatus) -> Finding:
    """Whether an alarm stands that no replicate has answered."""
    said = told.evidence_decision or told.decision
    reason = "" if said is None else said.reason
    if reason == Reason.ALARM_WITHOUT_BASELINE:
        return Finding(ALARM, "True", "AlarmWithoutBaseline")
    work = ground.rollout.work
    known = life.answer is not None and work is not None and work.verdict is not None
    if known and work is not None and work.verdict is not None and work.verdict.alarm:
        return Finding(ALARM, "True", "Alarm")
    before = standing(ground.rollout, ALARM)
    if not known and before is not None:
        return before
    ended = [each for each in told.replicates or () if each.ending is not None]
    return Finding(ALARM, "False", "AlarmAnswered") if ended else Finding(ALARM, "False", "NoAlarm")


def replicate_of(told: ProfileRolloutStatus) -> Finding:
    """What the last replicate came to."""
    said = told.evidence_decision or told.decision
    last = told.replicates[-1] if told.replicates else None
    if last is not None and last.ending == "Confirmed":
        return Finding(REPLICATE, "True", "RegressionConfirmed")
    if last is not None and last.ending is None:
        return Finding(REPLICATE, "Unknown", "ReplicateRunning")
    if said is not None and said.reason == Reason.REPLICATE_DUE:
        return Finding(REPLICATE, "Unknown", "ReplicateDue")
    return Finding(REPLICATE, "False", "NoReplicate" if last is None else "NotConfirmed")


def store_behind(ground: Ground) -> Finding:
    """Whether the store has the rows that the status says it has."""
    if ground.view.snapshot.book.trouble is not None:
        return Finding(BEHIND, "Unknown", "StoreUnreachable", ground.view.snapshot.book.trouble)
    known, work = ground.rollout.before.evidence, ground.rollout.work
    if ground.rollout.name in ground.view.snapshot.book.gone:
        return Finding(BEHIND, "True", GONE, "" if known is None else f"It was in {known.store}.")
    if known is not None and work is not None and work.head is not None and work.rows < known.rows:
        detail = f"It has {work.rows} rows of this rollout, where {known.rows} were told."
        return Finding(BEHIND, "True", "StoreBehind", detail)
    before = standing(ground.rollout, BEHIND)
    if (
        before is not None
        and before.holds
        and before.reason != GONE
        and (known is None or work is None or work.head is None)
    ):
        return before
    return Finding(BEHIND, "False", "StoreCurrent")


def behind_of_ended(ground: Ground) -> Finding | None:
    """What is new about the evidence of a rollout that ended before; None: what stands there stays."""
    book, before = ground.view.snapshot.book, standing(ground.rollout, BEHIND)
    was_gone = before is not None and before.reason == GONE
    if book.trouble is not None or (ground.rollout.name in book.gone) == was_gone:
        return None
    return store_behind(ground)
