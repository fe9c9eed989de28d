"""The status of a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefillgate.api.kinds.common import ConditionModel, ProfileKept
from prefillgate.api.kinds.line_status import ServingLineStatus
from prefillgate.api.kinds.not_well import in_short
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.core.decision import Reason
from prefillgate.reconcile.candidates import differences_of
from prefillgate.reconcile.conditions_line import LineFacts, line_findings
from prefillgate.reconcile.findings import Finding, as_conditions, overridden_finding
from prefillgate.reconcile.floor_due import as_it_stood
from prefillgate.reconcile.look import Look
from prefillgate.reconcile.remembered import Remembered
from prefillgate.reconcile.restated import NO_ROLLOUT, NOT_STARTED
from prefillgate.reconcile.seen import LineView, wire_profile

_NOT_CHECKED = Finding(ConditionType.INSTRUMENT_CHECKED, "Unknown", "FloorDue")


def line_facts(
    look: Look, after: LineView, remembered: Remembered, statuses: Mapping[str, ProfileRolloutStatus]
) -> LineFacts:
    """What the line's status is made of."""
    row = look.words.conditions.get(None)
    promoted_now = after.promoted != look.view.promoted
    return LineFacts(
        view=after,
        candidacy=look.candidacy,
        accepted=look.accepted,
        endpoints=look.endpoints,
        checked=_NOT_CHECKED if promoted_now else _checked(look),
        remembered=remembered,
        statuses=statuses,
        shown=_shown(look, after, remembered),
        watching=look.watch.finding,
        overridden=overridden_finding(row),
        watch_alarm=None if promoted_now else look.watch.alarm,
        watch_rollback=not promoted_now and look.watch.rollback,
    )


def _checked(look: Look) -> Finding:
    return as_it_stood(look.view, look.view.before.conditions) if look.floor is None else look.floor.finding


def status_of_line(facts: LineFacts, look: Look) -> ServingLineStatus:
    """The status, its notices left out."""
    view, before = facts.view, facts.view.before
    conditions = as_conditions(before.conditions, line_findings(facts), view.at, view.generation)
    told: dict[str, Any] = {
        "observed_generation": view.generation,
        "conditions": conditions,
        "not_well": in_short([*conditions, *_of_shown(facts)]),
        "current_rollout": facts.shown,
        "promoted_profile": view.promoted,
        "previous_profile": view.previous,
        "rejected_profiles": list(facts.remembered.told) or None,
        "watch": look.watch.seen if view.promoted == look.view.promoted else None,
        "last_handled_override": look.words.line_handled or before.last_handled_override,
        **_answer(facts),
        **_candidate(view),
    }
    if view.snapshot.config_maps is not None:
        told["config_maps"] = list(view.snapshot.config_maps) or None
    if look.floor is not None and look.floor.seen is not None:
        told["floor"] = look.floor.seen
    wish = next((each for each in look.candidacy.reruns if each.on is None), None)
    if wish is not None:
        told["last_handled_rerun"] = wish.value
    return before.model_copy(update=told)


def _of_shown(facts: LineFacts) -> list[ConditionModel]:
    """What the rollout shown says of itself alone: how its replay goes, while it does."""
    status = facts.status_shown
    if status is None or status.ended_at is not None:
        return []
    return [each for each in status.conditions or () if each.type == ConditionType.SCREENED]


def _answer(facts: LineFacts) -> dict[str, Any]:
    """The columns of a table: what the rollout shown says. What is in production may be rolled back beside it."""
    status = facts.status_shown
    if facts.rolls_the_promoted_back:
        told = {"decision": "Rollback", "promotion": "Blocked", "rollback": "Allowed"}
        prefills = status.prefills if status is not None and facts.shows_the_promoted else None
        return {**told, "prefills": prefills, "reason": str(Reason.REGRESSION_CONFIRMED)}
    if facts.shown is None:
        return {"decision": None, "promotion": None, "rollback": None, "prefills": None, "reason": None}
    if facts.shows_nothing:
        nothing = {"decision": None, "prefills": None}
        return {**nothing, "promotion": "Blocked", "rollback": "Refused", "reason": NO_ROLLOUT}
    decision = None if status is None else status.decision
    return {
        "decision": "Continue" if decision is None else decision.verdict,
        "promotion": "Blocked" if decision is None else decision.promotion,
        "rollback": "Allowed" if facts.watch_rollback else "Refused" if decision is None else decision.rollback,
        "prefills": None if status is None else status.prefills,
        "reason": NOT_STARTED if decision is None else decision.reason,
    }


def _candidate(view: LineView) -> dict[str, Any]:
    """What would replace the promoted profile. While no workload can be read it stays as it was."""
    if not view.snapshot.slots:
        return {}
    if view.candidate is None:
        return {"candidate": None, "differences": None}
    seen = ProfileKept.model_validate(wire_profile(view.candidate, view.snapshot.reading))
    return {"candidate": seen, "differences": differences_of(view) or None}


def _shown(look: Look, after: LineView, remembered: Remembered) -> str | None:
    """The rollout that the line tells of: the current one, else the last about this candidate, else the last of all."""
    names = [each.name for each in after.rollouts]
    candidates = [look.candidacy.name, None if look.candidacy.last is None else look.candidacy.last.name]
    if after.candidate is not None and (known := remembered.rejection_of(after.candidate.profile)) is not None:
        candidates.append(known.rollout)
    candidates.append(after.before.current_rollout)
    for name in candidates:
        if name is not None and (name in names or name == look.candidacy.name):
            return name
    return names[-1] if names else None
