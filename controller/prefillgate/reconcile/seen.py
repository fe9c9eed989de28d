"""A look at a line, read: what its status said before, who is the baseline, what its rollouts are about.

```
snapshot --> LineView --> accepted? floor? servers? --> life of each rollout --> promotion --> status of the line
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from prefillgate.api.kinds.common import ProfileSeen, StatusModel
from prefillgate.api.kinds.line_status import PromotedProfile, ServingLineStatus
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.api.kinds.names import RERUN
from prefillgate.api.kinds.profile_rollout import ProfileRolloutSpec
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus, RolloutProfile
from prefillgate.api.model import validate
from prefillgate.core.decision import Reason
from prefillgate.evidence.book_rows import Outcome
from prefillgate.profiles import IMAGE, Profile, told_apart
from prefillgate.reconcile.rereading import KEEPERS, as_read, as_read_now, profile_seen
from prefillgate.reconcile.roles import is_profile
from prefillgate.reconcile.snapshot import LineSnapshot, Object, RolloutSeen, Slot, SlotProfile, WorkSeen, WorkState
from prefillgate.reconcile.told_settings import settings_told, wire_settings

NOT_BEGUN = ("NotStarted", "WaitingForFloor", "WaitingForEndpoints", "Suspended")  # of the condition Screened
LONGEST_RERUN = 256  # of the annotation: more is not looked at
S = TypeVar("S", bound=StatusModel)
Told = Mapping[str, Any]  # `digest` and `writtenDigest` of a profile, as a status or a spec has them


@dataclass(frozen=True, slots=True)
class RolloutView:
    """A rollout of the line, read. `baseline` and `candidate` are what it is about; None: not known yet."""

    name: str
    uid: str
    generation: int
    created: float
    deleting: bool
    rerun: str | None  # the annotation
    spec: ProfileRolloutSpec | None
    seen: RolloutSeen
    before: ProfileRolloutStatus
    baseline: Told | None
    candidate: Told | None
    work: WorkSeen | None

    @property
    def ended(self) -> bool:
        """Whether its status says that it has ended."""
        return self.before.ended_at is not None

    @property
    def asked_again(self) -> bool:
        """Whether it bears a wish for a rerun that was not dealt with yet."""
        return is_new_wish(self.rerun, self.before.last_handled_rerun)

    @property
    def running(self) -> bool:
        """Whether it is being replayed."""
        return self.work is not None and self.work.state is WorkState.RUNNING

    @property
    def refused(self) -> bool:
        """Whether its replay cannot be carried out as it is asked for."""
        return self.work is not None and self.work.state is WorkState.REFUSED

    @property
    def started(self) -> bool:
        """Whether anything of it may stand in the store."""
        screened = next((each.reason for each in self.before.conditions or () if each.type == "Screened"), "NotStarted")
        return self.before.started_at is not None or self.work is not None or screened not in NOT_BEGUN


@dataclass(frozen=True, slots=True)
class LineView:
    """A line, read. `candidate` is what would replace the promoted profile; the one that it replaced is none, unless a
    person asks for it."""

    snapshot: LineSnapshot
    name: str
    uid: str
    generation: int
    deleting: bool
    rerun: str | None
    before: ServingLineStatus
    promoted: PromotedProfile | None
    previous: PromotedProfile | None
    candidate: SlotProfile | None
    rollouts: tuple[RolloutView, ...]  # oldest first

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.snapshot.now

    @property
    def at(self) -> str:
        """The same as it is written."""
        return moment(self.snapshot.now)

    @property
    def dry_run(self) -> bool:
        """Whether the line only tries out."""
        return self.snapshot.spec is not None and self.snapshot.spec.dry_run

    @property
    def suspended(self) -> bool:
        """Whether nothing may run."""
        return self.snapshot.spec is not None and self.snapshot.spec.suspend

    @property
    def asked_again(self) -> bool:
        """Whether it bears a wish for a rerun that was not dealt with yet."""
        return is_new_wish(self.rerun, self.before.last_handled_rerun)

    @property
    def settled(self) -> bool:
        """Whether the servers that were looked at are those of the promoted profile as it is known now."""
        return self.promoted is not None and self.promoted.digest == self.snapshot.roles.promoted

    def is_present(self, rollout: RolloutView) -> bool:
        """Whether a rollout is about the promoted profile and the candidate."""
        return self.is_promoted(rollout.baseline) and self.is_candidate(rollout.candidate)

    def is_promoted(self, told: Told | None) -> bool:
        """Whether a profile is the promoted one."""
        return told is not None and self.promoted is not None and same_profile(told, wire(self.promoted))

    def is_candidate(self, told: Told | None) -> bool:
        """Whether a profile is the candidate."""
        return told is not None and self.candidate is not None and is_profile(self.candidate.profile, told)


def view_of(snapshot: LineSnapshot) -> LineView:
    """The look, read, with all profiles as they are read now."""
    snapshot = as_read_now(snapshot)
    metadata = snapshot.line.get("metadata", {})
    before = status_of(ServingLineStatus, snapshot.line)
    works = {work.key: work for work in snapshot.works}
    rollouts = sorted(
        (view_of_rollout(seen, works) for seen in snapshot.rollouts), key=lambda each: (each.created, each.name)
    )
    view = LineView(
        snapshot=snapshot,
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        generation=_generation(metadata),
        deleting="deletionTimestamp" in metadata,
        rerun=_annotation(metadata, RERUN),
        before=before,
        promoted=_promoted(snapshot, before),
        previous=before.previous_profile,
        candidate=None,
        rollouts=tuple(rollouts),
    )
    view = replace(view, candidate=_candidate(view))
    return flipped(view, {each.name: each.before for each in rollouts if each.ended})


def flipped(view: LineView, statuses: Mapping[str, ProfileRolloutStatus]) -> LineView:
    """The line after a promotion by one of its rollouts that its own status does not tell of yet: that rollout's
    candidate is the promoted profile, what was promoted is the previous one."""
    for rollout in reversed(view.rollouts):
        status = statuses.get(rollout.name)
        promoted = None if status is None else _promoted_by(view, rollout, status)
        if promoted is not None:
            view = replace(view, promoted=promoted, previous=view.promoted)
            return replace(view, candidate=_candidate(view))
    return view


def _promoted_by(view: LineView, rollout: RolloutView, status: ProfileRolloutStatus) -> PromotedProfile | None:
    """The candidate of a rollout that says Promoted, where the line does not know: it is about what the line has for
    promoted, and came to that later than that was."""
    reason = next((each.reason for each in status.conditions or () if each.type == "Succeeded"), None)
    if reason != "Promoted" or status.candidate is None or status.baseline is None or status.ended_at is None:
        return None
    since = settled_at(status) or status.ended_at
    if view.promoted is None or not view.is_promoted(wire(status.baseline)) or since < view.promoted.since:
        return None
    by_a_person = status.override is not None and status.override.verdict == "Promote"
    own: dict[str, Any] = {"since": since, "how": "Overridden" if by_a_person else "Promoted", "rollout": rollout.name}
    slot, spec = slot_of(status.candidate, view.snapshot.slots), rollout.spec
    if slot is not None:
        own |= {"settings": settings_told(slot.profile.settings)}
    elif spec is not None and spec.candidate is not None:
        own["settings"] = wire_settings(spec.candidate.settings)
    return PromotedProfile.model_validate(wire(status.candidate) | own)


def settled_at(status: ProfileRolloutStatus) -> str | None:
    """Since when a rollout's end is what it is, RFC 3339: since it ended, or since a person promoted what had ended.
    None: it has not."""
    override, ended_at = status.override, status.ended_at
    if ended_at is None or override is None or override.verdict != "Promote":
        return ended_at
    return max(ended_at, override.since)


def status_of(model: type[S], thing: Object) -> S:
    """The status as it was read. A field that cannot be read is left out: none of the others is lost for it."""
    told = thing.get("status")
    fields = dict(told) if isinstance(told, Mapping) else {}
    status, wrong = validate(model, fields)
    while status is None and fields:
        at_fault = {path[0] for path, _ in wrong if path} & set(fields)
        fields = {key: value for key, value in fields.items() if at_fault and key not in at_fault}
        status, wrong = validate(model, fields)
    assert status is not None, "a status without fields can be read"
    return status


def wire(model: StatusModel) -> dict[str, Any]:
    """Part of a status as it stands on the wire, what is unknown left out."""
    return model.model_dump(by_alias=True, exclude_none=True)


def same_profile(one: Told, other: Told) -> bool:
    """Whether two profiles that were written down are the same one: by digest, or as written where one of both was
    read before its images were resolved."""
    if one.get("digest") == other.get("digest"):
        return True
    unresolved = any(each.get("digest") == each.get("writtenDigest") for each in (one, other))
    same = unresolved and one.get("writtenDigest") == other.get("writtenDigest") is not None
    return same and not told_apart(one.get("marks") or (), other.get("marks") or (), (IMAGE,))


def refreshed(seen: PromotedProfile | RolloutProfile, snapshot: LineSnapshot) -> dict[str, Any]:
    """What a slot knows better of a profile, on the wire: its images, where it was first seen before any pod had
    resolved them, what keeps its template, where that was the workload itself, and how and from what it is read."""
    better: dict[str, Any] = {}
    for slot in snapshot.slots:
        if not is_profile(slot.profile, wire(seen)):
            continue
        if slot.profile.resolved and seen.digest == seen.written_digest != slot.profile.digest:
            better |= profile_seen(slot.profile)
        was, now = seen.template, slot.template
        if now is not None and now.kind in KEEPERS and (was is None or was.kind not in KEEPERS):
            better["template"] = wire_template(slot)
        told = as_read(slot.profile, snapshot.reading, seen.marks or ())
        return better | {key: value for key, value in told.items() if value != getattr(seen, key)}
    return better


def _promoted(snapshot: LineSnapshot, before: ServingLineStatus) -> PromotedProfile | None:
    """What the status says, its images resolved where they are by now; at the first look the baseline's profile, unless
    the store knows of a promotion."""
    seen = before.promoted_profile
    if seen is not None:
        better = refreshed(seen, snapshot)
        slot = slot_of(seen, snapshot.slots)
        if slot is not None and ("digest" in better or seen.settings is None):
            better["settings"] = settings_told(slot.profile.settings)
        return PromotedProfile.model_validate(wire(seen) | better) if better else seen
    if snapshot.book.trouble is not None:
        return None  # the store may know better than the workloads what was promoted
    kept = _kept(snapshot)
    if kept is not None:
        return kept
    first = next((each for each in snapshot.slots if each.slot is Slot.BASELINE), None)
    return (
        None if first is None else _told_promoted(snapshot, first, {"since": moment(snapshot.now), "how": "FirstSeen"})
    )


def _kept(snapshot: LineSnapshot) -> PromotedProfile | None:
    """Where a status was lost: the last profile that the gate promoted, if a workload still says it."""
    for fate in reversed(snapshot.book.fates):
        slot = next((each for each in snapshot.slots if each.profile.digest == fate.digest), None)
        if fate.outcome == Outcome.PROMOTED and slot is not None:
            how = "Overridden" if fate.reason == Reason.OVERRIDE else "Promoted"
            own = {"since": moment(fate.at), "how": how, "rollout": fate.rollout}
            return _told_promoted(snapshot, slot, own)
    return None


def _told_promoted(snapshot: LineSnapshot, slot: SlotProfile, more: Mapping[str, Any]) -> PromotedProfile:
    own = {"settings": settings_told(slot.profile.settings), **more}
    return PromotedProfile.model_validate(wire_profile(slot, snapshot.reading) | own)


def wire_profile(slot: SlotProfile, reading: str | None) -> dict[str, Any]:
    """What a slot says, as it stands on the wire (the fields of `ProfileKept`)."""
    return profile_seen(slot.profile) | as_read(slot.profile, reading) | {"template": wire_template(slot)}


def slot_of(seen: ProfileSeen, slots: tuple[SlotProfile, ...]) -> SlotProfile | None:
    """The slot whose workload says a profile now; None: none does."""
    return next((each for each in slots if is_profile(each.profile, wire(seen))), None)


def wire_template(slot: SlotProfile) -> dict[str, Any] | None:
    """Where a slot's template is kept, as it stands on the wire."""
    return None if slot.template is None else slot.template.model_dump(by_alias=True, exclude_none=True)


def _candidate(view: LineView) -> SlotProfile | None:
    """The candidate of the roles. What was in production before stays in its slot when the other one is promoted: that
    is no new candidate while the promoted profile stands in a slot of its own, unless a person asks for it."""
    candidate, promoted, previous = view.snapshot.roles.candidate, view.promoted, view.previous
    if candidate is None or promoted is None or is_profile(candidate.profile, wire(promoted)):
        return None
    if previous is None or not is_profile(candidate.profile, wire(previous)):
        return candidate
    if slot_of(promoted, view.snapshot.slots) is None or view.asked_again:
        return candidate
    return candidate if any(_asks_for(view, each, candidate.profile) for each in view.rollouts) else None


def _asks_for(view: LineView, rollout: RolloutView, profile: Profile) -> bool:
    """Whether a rollout has the previous profile judged once more, against the promoted one: it is live, or has come to
    an end of its own since that was promoted, or is asked again."""
    of_this_baseline = rollout.baseline is None or view.is_promoted(rollout.baseline)
    if rollout.deleting or not of_this_baseline:
        return False
    if rollout.candidate is None or not is_profile(profile, rollout.candidate):
        return rollout.candidate is None and not rollout.ended
    if rollout.asked_again or not rollout.ended:
        return True
    reason = next((each.reason for each in rollout.before.conditions or () if each.type == "Succeeded"), None)
    since = "" if view.promoted is None else view.promoted.since
    return reason not in ("Superseded", "Promoted") and (settled_at(rollout.before) or "") >= since


def view_of_rollout(seen: RolloutSeen, works: Mapping[str, WorkSeen]) -> RolloutView:
    """A rollout, read; `works` are those of its line by key."""
    metadata = seen.thing.get("metadata", {})
    uid = str(metadata.get("uid", ""))
    before = status_of(ProfileRolloutStatus, seen.thing)
    spec = seen.spec
    return RolloutView(
        name=str(metadata.get("name", "")),
        uid=uid,
        generation=_generation(metadata),
        created=seconds_of(metadata.get("creationTimestamp")) or 0.0,
        deleting="deletionTimestamp" in metadata,
        rerun=_annotation(metadata, RERUN),
        spec=spec,
        seen=seen,
        before=before,
        baseline=_told(before.baseline, spec and spec.baseline),
        candidate=_told(before.candidate, spec and spec.candidate),
        work=works.get(uid),
    )


def _told(seen: ProfileSeen | None, recorded: Any) -> Told | None:
    if seen is not None:
        return wire(seen)
    return None if recorded is None else recorded.model_dump(by_alias=True, include={"digest", "written_digest"})


def is_new_wish(rerun: str | None, handled: str | None) -> bool:
    """Whether the annotation of a rerun says something else than what was dealt with last."""
    return rerun is not None and rerun[:LONGEST_RERUN] != handled


def _generation(metadata: Mapping[str, Any]) -> int:
    generation = metadata.get("generation", 0)
    return generation if isinstance(generation, int) else 0


def _annotation(metadata: Mapping[str, Any], key: str) -> str | None:
    annotations = metadata.get("annotations")
    value = annotations.get(key) if isinstance(annotations, Mapping) else None
    return value if isinstance(value, str) else None
