"""Which rollout is about the present candidate, which ones are over, and whether a new one is to be made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefillgate.api.kinds.line_status import PromotedProfile
from prefillgate.api.kinds.names import API_VERSION, CANDIDATE_LABEL, LINE_LABEL, PROFILE_ROLLOUT, SERVING_LINE
from prefillgate.profiles import Profile
from prefillgate.reconcile.acceptance import rollout_accepted
from prefillgate.reconcile.findings import Finding
from prefillgate.reconcile.naming import digits_of, rerun_name, rollout_name, seed_of
from prefillgate.reconcile.remembered import Remembered
from prefillgate.reconcile.seen import LONGEST_RERUN, LineView, RolloutView, settled_at, slot_of, wire, wire_template
from prefillgate.reconcile.told_settings import as_written, differences_in_words, settings_told, wire_settings

OF_A_DRY_RUN = ("PassedDryRun", "FailedDryRun")


@dataclass(frozen=True, slots=True)
class Rerun:
    """A person's wish for another rollout. `on`: the rollout that bears the annotation; None: the line does."""

    value: str
    on: RolloutView | None
    refused: str = ""  # why nothing comes of it


@dataclass(frozen=True, slots=True)
class Candidacy:
    """What is about the present candidate. `current` is live, `last` the newest of this pair of profiles, ended or
    not; `create` is the body of a rollout to be made now."""

    current: RolloutView | None
    last: RolloutView | None
    create: dict[str, Any] | None
    reruns: tuple[Rerun, ...]

    @property
    def name(self) -> str | None:
        """The rollout that is or will be current."""
        if self.create is not None:
            return str(self.create["metadata"]["name"])
        return None if self.current is None else self.current.name


def candidacy_of(view: LineView, remembered: Remembered, accepted: Finding) -> Candidacy:
    """The rollouts of the present pair. Nothing is made while the line cannot be used, or its store be reached."""
    present = [each for each in view.rollouts if view.is_present(each) or _unbound(view, each)]
    last = present[-1] if present else None
    live = [each for each in present if not each.ended and not each.deleting]
    current = live[-1] if live else None
    if not accepted.holds or view.deleting or view.snapshot.book.trouble is not None:
        return Candidacy(current, last, None, ())
    useless = current is not None and (current.refused or not rollout_accepted(view, current, accepted).holds)
    reruns = tuple(_rerun(view, wish, None if useless else current) for wish in _wishes(view))
    asked = next((each for each in reruns if not each.refused), None)
    create = None
    if asked is not None:
        create = _body(view, asked, last)
    elif view.candidate is not None and current is None and _is_due(view, last, remembered):
        create = _body(view, None, _live_of_another(view))
    if create is not None and any(each.name == create["metadata"]["name"] for each in view.rollouts):
        create = None  # it is there: a rerun that was made, and whose wish is not answered in the status yet
    return Candidacy(current, last, create, reruns)


def _unbound(view: LineView, rollout: RolloutView) -> bool:
    """A rollout made by hand without profiles is about those that the line has when it is first seen."""
    if rollout.ended or view.candidate is None or view.promoted is None:
        return False
    baseline = rollout.baseline is None or view.is_promoted(rollout.baseline)
    candidate = rollout.candidate is None or view.is_candidate(rollout.candidate)
    return baseline and candidate


def _is_due(view: LineView, last: RolloutView | None, remembered: Remembered) -> bool:
    """Whether the candidate is to be judged without being asked: it never was, or what was begun came to no end of its
    own. What said nothing of it (it could not be measured, or took no requests) is tried again once it comes back after
    another one. What was rejected never is."""
    assert view.candidate is not None
    if remembered.rejection_of(view.candidate.profile) is not None:
        return False
    if last is None:
        return True
    if not last.ended:
        return last.deleting  # it goes away, and another takes its place
    reason = reason_of(last)
    if reason in OF_A_DRY_RUN:
        return not view.dry_run
    before_this_baseline = view.promoted is not None and (settled_at(last.before) or "") < view.promoted.since
    if reason == "Promoted":
        return before_this_baseline
    known = view.before.candidate
    is_back = known is None or not view.is_candidate(wire(known))
    return reason == "Superseded" or is_back


def reason_of(rollout: RolloutView) -> str | None:
    """The reason of the condition Succeeded, as read."""
    return next((each.reason for each in rollout.before.conditions or () if each.type == "Succeeded"), None)


def _wishes(view: LineView) -> list[Rerun]:
    """Annotations that were not dealt with, the line's first."""
    wishes = []
    if view.asked_again:
        wishes.append(Rerun((view.rerun or "")[:LONGEST_RERUN], None))
    for each in view.rollouts:
        if each.asked_again and not each.deleting:
            wishes.append(Rerun((each.rerun or "")[:LONGEST_RERUN], each))
    return wishes


def _rerun(view: LineView, wish: Rerun, current: RolloutView | None) -> Rerun:
    why = ""
    if view.candidate is None and (wish.on is None or view.snapshot.roles.candidate is None):
        why = "no workload says another profile than the one in production"
    elif wish.on is not None and not (view.is_present(wish.on) or _unbound(view, wish.on)):
        why = "it is about other profiles than the line has now; a rerun on the line is about those"
    elif current is not None and current.name != _rerun_name(view, wish):
        why = f"{current.name} is not decided yet"
    return Rerun(wish.value, wish.on, why)


def unanswered(view: LineView, candidacy: Candidacy) -> str | None:
    """Of a rerun that the line bears and no status answers yet, why no rollout is made for it; empty where one is.
    None: it bears none."""
    if not view.asked_again:
        return None
    wish = next((each for each in candidacy.reruns if each.on is None), None)
    return "the line cannot be used now, or its store not be reached" if wish is None else wish.refused


def _rerun_name(view: LineView, wish: Rerun) -> str:
    assert view.candidate is not None
    asked_on = view.uid if wish.on is None else wish.on.uid
    return rerun_name(view.name, view.candidate.profile.digest, asked_on, wish.value)


def _live_of_another(view: LineView) -> RolloutView | None:
    """The live rollout whose place a new one takes."""
    live = [each for each in view.rollouts if not each.ended]
    return live[-1] if live else None


def _body(view: LineView, rerun: Rerun | None, of: RolloutView | None) -> dict[str, Any]:
    """The ProfileRollout to be made. `of`: the one that is repeated, or whose place it takes."""
    assert view.candidate is not None and view.promoted is not None
    policy, cases = view.snapshot.policy, view.snapshot.replay_set
    assert policy is not None and cases is not None
    digest = view.candidate.profile.digest
    taken = [each.name for each in view.rollouts]
    name = rollout_name(view.name, digest, taken) if rerun is None else _rerun_name(view, rerun)
    metadata = view.snapshot.line.get("metadata", {})
    owner = {"apiVersion": API_VERSION, "kind": SERVING_LINE.kind, "name": view.name, "uid": view.uid}
    spec: dict[str, Any] = {
        "lineRef": {"name": view.name},
        "baseline": _recorded_baseline(view.promoted),
        "candidate": _recorded(view.candidate.profile, wire_template(view.candidate)),
        "differences": differences_of(view),
        "policy": {"name": policy.name, "sha256": policy.sha256},
        "replaySet": {"name": cases.name, "sha256": cases.sha256},
        "seed": seed_of(view.uid, view.promoted.digest, digest, name),
    }
    if of is not None:
        spec["supersedes" if rerun is None else "rerunOf"] = of.name
    return {
        "apiVersion": API_VERSION,
        "kind": PROFILE_ROLLOUT.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace", ""),
            "labels": {LINE_LABEL: view.name, CANDIDATE_LABEL: digits_of(digest)},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "spec": spec,
    }


def differences_of(view: LineView) -> list[str]:
    """What differs between the promoted profile and the candidate, in words; empty where that is not known."""
    if view.promoted is None or view.candidate is None:
        return []
    profile = view.candidate.profile
    slot = slot_of(view.promoted, view.snapshot.slots)
    if slot is not None:
        return differences_in_words(slot.profile, profile)
    if view.promoted.settings is None:
        return []
    was = as_written(wire_settings(view.promoted.settings))
    return differences_in_words(was, as_written(settings_told(profile.settings)))


def _recorded(profile: Profile, template: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "digest": profile.digest,
        "writtenDigest": profile.written_digest,
        "settings": settings_told(profile.settings),
    }
    return found if template is None else {**found, "template": template}


def _recorded_baseline(promoted: PromotedProfile) -> dict[str, Any]:
    found: dict[str, Any] = {"digest": promoted.digest, "writtenDigest": promoted.written_digest}
    found["settings"] = None if promoted.settings is None else wire_settings(promoted.settings)
    if promoted.template is not None:
        found["template"] = promoted.template.model_dump(by_alias=True, exclude_none=True)
    return {key: value for key, value in found.items() if value is not None}


def superseded_by(view: LineView, rollout: RolloutView, candidacy: Candidacy) -> tuple[str, str | None] | None:
    """The reason of Superseded and the rollout that took the place, where one is over by no end of its own."""
    if view.promoted is None:
        return None
    if rollout.baseline is not None and not view.is_promoted(rollout.baseline):
        return "BaselineChanged", candidacy.name
    if view.candidate is None:
        return None if rollout.candidate is None else ("CandidateWithdrawn", None)
    if rollout.candidate is not None and not view.is_candidate(rollout.candidate):
        return "NewerCandidate", candidacy.name
    return ("NewerCandidate", candidacy.name) if candidacy.name not in (None, rollout.name) else None
