"""A rollout that names a line which is not there: it says so, and waits."""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.api.kinds.common import HandledOverride
from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.names import OVERRIDE_VALUES, PROFILE_ROLLOUT
from prefillgate.api.kinds.reasons import CONDITIONS_OF, ROWS, ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.reconcile import restated
from prefillgate.reconcile.answer import LONGEST_LINE, bounded
from prefillgate.reconcile.conditions_rollout import permissions, standing
from prefillgate.reconcile.effects import Tell
from prefillgate.reconcile.findings import Finding, as_conditions
from prefillgate.reconcile.override_words import LONGEST_VALUE, Refusal, Where, asked, key_of, name_of
from prefillgate.reconcile.rollout_status import settled
from prefillgate.reconcile.seen import RolloutView, view_of_rollout
from prefillgate.reconcile.snapshot import Object, RolloutSeen
from prefillgate.reconcile.telling import Said, transitions

MEND = "A ServingLine of the name that spec.lineRef says. Until there is one an override is refused, too."
_REFUSED = "OverrideWithoutRollout"
_NO_CANDIDATE = Finding(ConditionType.SUPERSEDED, "Unknown", "LineNotFound")
_UNKNOWN = (
    Finding(ConditionType.ENDPOINTS_READY, "Unknown", "ServersUnknown"),
    Finding(ConditionType.INSTRUMENT_CHECKED, "Unknown", "FloorDue"),
    Finding(ConditionType.SCREENED, "Unknown", "NotStarted"),
    Finding(ConditionType.REPLICATE_CONFIRMED, "False", "NoReplicate"),
    Finding(ConditionType.ALARM_RAISED, "False", "NoAlarm"),
    Finding(ConditionType.OVERRIDDEN, "False", "NoOverride"),
    Finding(ConditionType.STORE_BEHIND, "False", "StoreCurrent"),
    _NO_CANDIDATE,
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


@dataclass(frozen=True, slots=True)
class Orphaned:
    """What the status of such a rollout says, and what is told of it."""

    status: ProfileRolloutStatus
    events: tuple[Tell, ...] = ()


def orphaned(seen: RolloutSeen, now: float) -> Orphaned | None:
    """What to say of it; None where it has ended, and nothing is to be said any more. An override on it is refused:
    there is nothing that it could be about. Pure."""
    rollout = view_of_rollout(seen, {})
    ref = seen.thing.get("spec", {}).get("lineRef", {}).get("name", "")
    detail = f"spec.lineRef.name: there is no ServingLine {ref} in this namespace."
    handled = _refused(seen.thing, rollout.before, detail, now)
    if rollout.ended and handled is None:
        return None
    status = rollout.before if rollout.ended else _waiting(rollout, detail, now)
    said = Said()
    if handled is not None:
        status = _with_refusal(status, handled, rollout, now)
        said.tell(Tell(_REFUSED, handled.message or "", f"{handled.key}/Refused", rollout.name, True))
    transitions(said, rollout.before.conditions, status.conditions or (), (ConditionType.ACCEPTED,), (rollout, status))
    return Orphaned(status, tuple(said.events))


def _refused(thing: Object, before: ProfileRolloutStatus, detail: str, now: float) -> HandledOverride | None:
    """An override that it bears and that was not dealt with yet, refused."""
    wanted, last = asked(thing), before.last_handled_override
    if wanted is None or (last is not None and last.key == key_of(wanted, last)):
        return None
    where = Where(PROFILE_ROLLOUT.singular, str(thing.get("metadata", {}).get("namespace", "")), name_of(thing))
    value = wanted.value if wanted.value in OVERRIDE_VALUES else OVERRIDE_VALUES[0]
    again = where.command(override=f"={value}", override_reason='="why you do it"')
    refusal = Refusal(_REFUSED, f"{detail} Once there is one, say it again: {again}")
    return HandledOverride.model_validate(
        {
            "key": key_of(wanted, last),
            "value": bounded(wanted.value, LONGEST_VALUE),
            "outcome": "Refused",
            "at": moment(now),
            "reason": bounded(wanted.reason or "", LONGEST_LINE) or None,
            "message": refusal.message,
        }
    )


def _with_refusal(
    status: ProfileRolloutStatus, handled: HandledOverride, rollout: RolloutView, now: float
) -> ProfileRolloutStatus:
    detail = (handled.message or "").removeprefix(ROWS[ConditionType.OVERRIDDEN, _REFUSED].sentence).strip()
    refused = Finding(ConditionType.OVERRIDDEN, "False", _REFUSED, detail)
    findings = [refused if each.type == refused.type else each for each in status.conditions or ()]
    conditions = as_conditions(rollout.before.conditions, findings, moment(now), rollout.generation)
    return status.model_copy(update={"last_handled_override": handled, "conditions": conditions})


def _waiting(rollout: RolloutView, detail: str, now: float) -> ProfileRolloutStatus:
    found = {each.type: standing(rollout, each.type) or each for each in _UNKNOWN}
    found[ConditionType.ENDPOINTS_READY] = _UNKNOWN[0]
    if not found[ConditionType.SUPERSEDED].holds:
        found[ConditionType.SUPERSEDED] = _NO_CANDIDATE
    for kind, running, stopped in _ENDED_WITH_THE_LINE:
        if found[kind].reason in running:
            found[kind] = stopped
    found[ConditionType.ACCEPTED] = Finding(ConditionType.ACCEPTED, "False", "LineNotFound", detail)
    before = rollout.before
    evidence = before.evidence_decision or (before.decision if before.counts is not None else None)
    said = restated.not_accepted("LineNotFound", detail, evidence, now)
    decision = settled(before.decision, said.model_copy(update={"what_would_change": [MEND]}))
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
