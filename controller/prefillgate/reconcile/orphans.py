"""A rollout that names a line which is not there: it says so, and waits."""

from __future__ import annotations

from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.names import PROFILE_ROLLOUT
from prefillgate.api.kinds.reasons import CONDITIONS_OF, ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.core.decision import Reason
from prefillgate.reconcile import restated
from prefillgate.reconcile.conditions_rollout import permissions, standing
from prefillgate.reconcile.findings import Finding, as_conditions
from prefillgate.reconcile.rollout_status import settled
from prefillgate.reconcile.seen import view_of_rollout
from prefillgate.reconcile.snapshot import RolloutSeen

_UNKNOWN = {
    ConditionType.ENDPOINTS_READY: ("Unknown", "Probing"),
    ConditionType.INSTRUMENT_CHECKED: ("Unknown", "FloorDue"),
    ConditionType.SCREENED: ("Unknown", "NotStarted"),
    ConditionType.REPLICATE_CONFIRMED: ("False", "NoReplicate"),
    ConditionType.ALARM_RAISED: ("False", "NoAlarm"),
    ConditionType.OVERRIDDEN: ("False", "NoOverride"),
    ConditionType.STORE_BEHIND: ("False", "StoreCurrent"),
    ConditionType.SUPERSEDED: ("False", "Current"),
    ConditionType.SUCCEEDED: ("Unknown", "Running"),
}


def orphaned(seen: RolloutSeen, now: float) -> ProfileRolloutStatus | None:
    """Its status; None where it has ended, and nothing is to be said any more. Pure."""
    rollout = view_of_rollout(seen, {})
    if rollout.ended:
        return None
    named = rollout.spec.line_ref.name if rollout.spec is not None else ""
    detail = f"spec.lineRef.name: there is no ServingLine {named} in this namespace."
    found = {
        kind: standing(rollout, kind) or Finding(kind, status, reason) for kind, (status, reason) in _UNKNOWN.items()
    }  # type: ignore[arg-type]
    found[ConditionType.ACCEPTED] = Finding(ConditionType.ACCEPTED, "False", "LineNotFound", detail)
    decision = settled(rollout.before.decision, restated.held(Reason.SPEC_INVALID, detail, None, now))
    found |= {each.type: each for each in permissions(decision)}
    findings = [found[kind] for kind in CONDITIONS_OF[PROFILE_ROLLOUT.kind]]
    return rollout.before.model_copy(
        update={
            "observed_generation": rollout.generation,
            "decision": decision,
            "conditions": as_conditions(rollout.before.conditions, findings, moment(now), rollout.generation),
        }
    )
