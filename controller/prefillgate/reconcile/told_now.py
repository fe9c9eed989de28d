"""All that is told at one look."""

from __future__ import annotations

from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.core.decision import Reason
from prefillgate.reconcile.candidates import differences_of
from prefillgate.reconcile.conditions_line import LineFacts, line_findings
from prefillgate.reconcile.findings import as_conditions
from prefillgate.reconcile.lifecycle import MEND_OR_RERUN
from prefillgate.reconcile.look import Look
from prefillgate.reconcile.naming import digits_of, seed_of
from prefillgate.reconcile.seen import LineView, RolloutView
from prefillgate.reconcile.telling import OF_LINE, OF_ROLLOUT, Said, event, transitions


def told_at_this_look(look: Look, facts: LineFacts) -> Said:
    """Candidate, rollouts made, each transition, promotion and rejection, in the order in which they happen."""
    said = Said()
    view = look.view
    _candidate(said, facts.view)
    _created(said, look)
    for rollout in view.rollouts:
        status = facts.statuses[rollout.name]
        kinds = OF_ROLLOUT if not look.accepted.holds else (ConditionType.ACCEPTED, *OF_ROLLOUT)
        transitions(said, rollout.before.conditions, status.conditions or (), kinds, (rollout, status))
        if _newly_refused(rollout, status):
            assert rollout.work is not None
            note, once = f"{rollout.work.trouble} {MEND_OR_RERUN}", f"refused/{seed_of(rollout.work.trouble)}"
            said.tell(event("ReplayRefused", note, once, rollout.name))
    _fates(said, facts)
    if look.watch.ended is not None and look.watch.ended.watch is not None:
        key, found = look.watch.ended.key, look.watch.ended.watch
        weighty = found.alarm or found.rollback
        said.tell(event("WatchAlarmed" if weighty else "WatchEnded", found.sentence, f"ended/{key}"), weighty)
    conditions = as_conditions(view.before.conditions, line_findings(facts), view.at, view.generation)
    of_watch = [ConditionType.ALARM_RAISED] if facts.watch_alarm is not None else []
    of_watch += [ConditionType.ROLLBACK_ALLOWED] if facts.watch_rollback else []
    transitions(said, view.before.conditions, conditions, (*OF_LINE, *of_watch))
    return said


def _newly_refused(rollout: RolloutView, status: ProfileRolloutStatus) -> bool:
    """Whether a rollout is held now, and was not before, since its replay is refused: it waits for a person."""
    was, now = rollout.before.decision, status.decision
    lost = now is not None and now.reason == Reason.MEASUREMENT_LOST and status.ended_at is None
    return rollout.refused and lost and (was is None or was.reason != Reason.MEASUREMENT_LOST)


def _candidate(said: Said, view: LineView) -> None:
    """Another candidate than at the look before."""
    known = view.before.candidate
    if view.candidate is None or (known is not None and view.is_candidate(known.model_dump(by_alias=True))):
        return
    differ = "; ".join(differences_of(view)) or "what differs is not known"
    digest = view.candidate.profile.digest
    since = "" if view.promoted is None else view.promoted.since
    said.tell(event("CandidateChanged", f"{digits_of(digest, 12)}: {differ}.", f"candidate/{digest}/{since}"))


def _created(said: Said, look: Look) -> None:
    for wish in look.candidacy.reruns:
        on = None if wish.on is None else wish.on.name
        uid = look.view.uid if wish.on is None else wish.on.uid
        if wish.refused:
            said.tell(event("RerunRefused", f"{wish.value}: {wish.refused}.", f"rerun/{uid}/{wish.value}", on))
    create = look.candidacy.create
    if create is None:
        return
    name, spec = create["metadata"]["name"], create["spec"]
    reason = "RerunStarted" if "rerunOf" in spec else "RolloutCreated"
    differ = "; ".join(spec["differences"]) or "what differs is not known"
    said.tell(event(reason, f"{name}: {differ}.", f"created/{name}"))


def _fates(said: Said, facts: LineFacts) -> None:
    """Who was promoted, who was rejected: events of the line."""
    view, before = facts.view, facts.view.before
    promoted, was = view.promoted, before.promoted_profile
    by_gate = promoted is not None and promoted.how != "FirstSeen"
    if promoted is not None and was is not None and by_gate and promoted.since != was.since:
        note = f"{digits_of(promoted.digest, 12)}, by {promoted.rollout}."
        said.tell(event("ProfilePromoted", note, f"promoted/{promoted.digest}/{promoted.since}"), weighty=True)
    known = {(each.digest, each.rollout) for each in before.rejected_profiles or ()}
    for each in facts.remembered.told:
        if (each.digest, each.rollout) not in known:
            note = f"{digits_of(each.digest, 12)}, by {each.rollout}: {each.reason}."
            said.tell(event("ProfileRejected", note, f"rejected/{each.digest}/{each.rollout}"), weighty=True)
