"""A rollout that names a line which is not there: it says so, and waits."""

from __future__ import annotations

from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.names import PROFILE_ROLLOUT
from prefillgate.api.kinds.reasons import CONDITIONS_OF, ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.reconcile import restated
from prefillgate.reconcile.conditions_rollout import permissions, standing
from prefillgate.reconcile.findings import Finding, as_conditions
from prefillgate.reconcile.rollout_status import settled
from prefillgate.reconcile.seen import view_of_rollout
from prefillgate.reconcile.snapshot import RolloutSeen

_UNKNOWN = (
    Finding(ConditionType.ENDPOINTS_READY, "Unknown", "ServersUnknown"),
    Finding(ConditionType.INSTRUMENT_CHECKED, "Unknown", "FloorDue"),
    Finding(ConditionType.SCREENED, "Unknown", "NotStarted"),
    Finding(ConditionType.REPLICATE_CONFIRMED, "False", "NoReplicate"),
    Finding(ConditionType.ALARM_RAISED, "False", "NoAlarm"),
    Finding(ConditionType.OVERRIDDEN, "False", "NoOverride"),
    Finding(ConditionType.STORE_BEHIND, "False", "StoreCurrent"),
    Finding(ConditionType.SUPERSEDED, "False", "Current"),
    Finding(ConditionType.SUCCEEDED, "Unknown", "Running"),
)
_ENDED_WITH_THE_LINE = (
    (ConditionType.INSTRUMENT_CHECKED, ("FloorRunning", "FloorInterrupted"), _UNKNOWN[1]),
    (ConditionType.SCREENED, ("Starting",), _UNKNOWN[2]),
    (
        ConditionType.SCREENED,
        (
            "Screening",
            "WaitingForIdle",
            "WaitingForServer",
            "WaitingForWindow",
            "WaitingForTurn",
            "LoadLimitReached",
            "ReplayInterrupted",
        ),
        Finding(ConditionType.SCREENED, "False", "ScreenInterrupted"),
    ),
)


def orphaned(seen: RolloutSeen, now: float) -> ProfileRolloutStatus | None:
    """Its status; None where it has ended, and nothing is to be said any more. Pure."""
    rollout = view_of_rollout(seen, {})
    if rollout.ended:
        return None
    ref = seen.thing.get("spec", {}).get("lineRef", {}).get("name", "")
    detail = f"spec.lineRef.name: there is no ServingLine {ref} in this namespace."
    found = {each.type: standing(rollout, each.type) or each for each in _UNKNOWN}
    found[ConditionType.ENDPOINTS_READY] = _UNKNOWN[0]
    for kind, running, stopped in _ENDED_WITH_THE_LINE:
        if found[kind].reason in running:
            found[kind] = stopped
    found[ConditionType.ACCEPTED] = Finding(ConditionType.ACCEPTED, "False", "LineNotFound", detail)
    before = rollout.before
    evidence = before.evidence_decision or (before.decision if before.counts is not None else None)
    decision = settled(before.decision, restated.not_accepted("LineNotFound", detail, evidence, now))
    found |= {each.type: each for each in permissions(decision)}
    findings = [found[kind] for kind in CONDITIONS_OF[PROFILE_ROLLOUT.kind]]
    return before.model_copy(
        update={
            "observed_generation": rollout.generation,
            "decision": decision,
            "evidence_decision": evidence,
            "conditions": as_conditions(before.conditions, findings, moment(now), rollout.generation),
        }
    )
