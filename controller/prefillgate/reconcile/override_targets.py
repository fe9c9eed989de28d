"""What an override is about: one rollout, with the pair of profiles that stands in its own status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from prefillgate.api.kinds.common import HandledOverride
from prefillgate.api.kinds.names import PROFILE_ROLLOUT
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.api.kinds.rollout_status import OverrideStatus
from prefillgate.reconcile.naming import digits_of
from prefillgate.reconcile.override_words import UNKNOWN_ACTOR, Refusal, Where, name_of, uid_of
from prefillgate.reconcile.roles import is_profile
from prefillgate.reconcile.seen import same_profile
from prefillgate.reconcile.snapshot import LineSnapshot, Object, RolloutSeen

GONE = "its candidate is not what the line has now: put that back first, and what it replaced must be the promoted one."


@dataclass(frozen=True, slots=True)
class Target:
    """A rollout with its pair of digests. `refused`: why nothing can be said about one; empty where it can."""

    name: str = ""
    uid: str = ""
    baseline: str = ""
    candidate: str = ""
    refused: str = ""
    current: str = ""  # the rollout that it could be about instead
    early: bool = False  # not yet: the same may be said again later, and `refused` says when
    gone: str = ""  # why it can be promoted no more; empty where it can
    unread: bool = False  # whether it can be is not known while no workload can be read

    @property
    def about(self) -> str:
        """In words."""
        return f"{self.mark} {digits_of(self.baseline)} -> {digits_of(self.candidate)}."

    @property
    def mark(self) -> str:
        """What those words begin with: which rollout it is."""
        return f"About {self.name}:"

    def waits(self, value: str) -> bool:
        """Whether what is asked can be neither obeyed nor refused yet."""
        return value == "promote" and self.unread

    def refusal(self, where: Where, value: str) -> Refusal | None:
        """Why an override cannot be about it, and which could."""
        refused = self.refused or (self.gone if value == "promote" else "")
        if not refused:
            return None
        if self.early:
            again = where.command(override=f"={value}", override_reason='="why you do it"')
            return Refusal("OverrideWithoutRollout", f"{refused}, say it again: {again}")
        if not self.current:
            return Refusal("OverrideWithoutRollout", f"{refused} See: kubectl get -n {where.namespace} pro")
        instead = Where(PROFILE_ROLLOUT.singular, where.namespace, self.current)
        how = instead.command(override=f"={value}", override_reason='="why you do it"')
        return Refusal("OverrideWithoutRollout", f"{refused} The current one is {self.current}: {how}")

    def bound(self, handled: HandledOverride) -> OverrideStatus:
        """The override as it stands, bound to the pair."""
        return OverrideStatus.model_validate(
            {
                "verdict": handled.value.capitalize(),
                "reason": handled.reason,
                "actor": handled.actor or UNKNOWN_ACTOR,
                "actorVerified": bool(handled.actor_verified),
                "since": handled.at,
                "expires": handled.expires,
                "baselineDigest": self.baseline,
                "candidateDigest": self.candidate,
                "key": handled.key,
            }
        )


def target_of(snapshot: LineSnapshot, name: str | None, thing: Object) -> Target | None:
    """What an override on an object is about: on the line (`name` None) its current rollout. None: that is not known
    yet, and the override waits, for what is looked at for the first time now: no longer."""
    line_status = _mapping(snapshot.line.get("status"))
    current = str(line_status.get("currentRollout") or "")
    rollouts = {name_of(seen.thing): seen for seen in snapshot.rollouts}
    if name is None:
        if not current:
            looked_at = line_status.get("observedGeneration") is not None
            return Target(refused="The line has none: nothing was decided yet.") if looked_at else None
        name = current
    seen = rollouts.get(name)
    if seen is None:
        return None
    if "deletionTimestamp" in _mapping(seen.thing.get("metadata")):
        return _going_away(name) if thing is snapshot.line else None
    target = _of_rollout(seen, name, current)
    if target is None or target.refused or _mapping(seen.thing.get("status")).get("endedAt") is None:
        return target
    if not snapshot.slots:
        return replace(target, unread=True)
    return replace(target, gone="" if _may_be_promoted(snapshot, seen) else f"{name} ended, and {GONE}")


def of_rerun(line: Object, refused: str) -> Target | None:
    """What a promotion on a line is about that bears a rerun too: the rollout that is made for that, which is the
    current one at the next look (None: it waits for it), and never another one where none is made."""
    if not refused:
        return None
    current = str(_mapping(line.get("status")).get("currentRollout") or "")
    return Target(refused=f"No rollout was made for the rerun beside it: {refused}.", current=current)


def _may_be_promoted(snapshot: LineSnapshot, seen: RolloutSeen) -> bool:
    """Whether an ended rollout is about what the line has now: its baseline is the promoted profile and a workload says
    its candidate; or that is promoted already."""
    status = _mapping(seen.thing.get("status"))
    promoted = _mapping(_mapping(snapshot.line.get("status")).get("promotedProfile"))
    baseline, candidate = _mapping(status.get("baseline")), _mapping(status.get("candidate"))
    there = any(is_profile(each.profile, candidate) for each in snapshot.slots)
    return same_profile(candidate, promoted) or (there and same_profile(baseline, promoted))


def _of_rollout(seen: RolloutSeen, name: str, current: str) -> Target | None:
    status = _mapping(seen.thing.get("status"))
    ended, other = status.get("endedAt") is not None, current if current != name else ""
    if holds(seen.thing, ConditionType.SUPERSEDED) or status.get("supersededBy"):
        return Target(refused=f"{name} was superseded.", current=other)
    if ended and other:
        return Target(refused=f"{name} ended, and is not the line's current rollout.", current=other)
    baseline, candidate = pair_of(seen)
    if not baseline or not candidate:
        return _without_pair(name, ended) if status else None
    if name != current:
        known = bool(status and current)
        return Target(refused=f"{name} is not the line's current rollout.", current=other) if known else None
    return Target(name, uid_of(seen.thing), baseline, candidate)


def _going_away(name: str) -> Target:
    """A word on the line would be one about whatever takes its place; one on itself goes away with it."""
    return Target(refused=f"{name} is being deleted. Once another takes its place", early=True)


def _without_pair(name: str, ended: bool) -> Target:
    """A word about it would be one about whatever comes later."""
    if ended:
        return Target(refused=f"{name} ended before it was known what it compares.")
    return Target(
        refused=f"{name} compares nothing yet: there was no candidate when it was looked at. Once it does", early=True
    )


def pair_of(seen: RolloutSeen) -> tuple[str, str]:
    """The digests that a rollout's own status compares, or before the first look those of its spec; empty: not known.

    A digest that was read before any pod had resolved its images is another one later, and still the same profile.
    """
    status, spec = _mapping(seen.thing.get("status")), seen.spec
    baseline = _digest(status, "baseline") or (spec.baseline.digest if spec and spec.baseline else "")
    candidate = _digest(status, "candidate") or (spec.candidate.digest if spec and spec.candidate else "")
    return baseline, candidate


def rebound(standing: OverrideStatus, seen: RolloutSeen) -> OverrideStatus:
    """An override of a rollout, its pair told as the rollout's status tells it now."""
    baseline, candidate = pair_of(seen)
    pair = {"baseline_digest": baseline or standing.baseline_digest}
    return standing.model_copy(update={**pair, "candidate_digest": candidate or standing.candidate_digest})


def conditions_of(thing: Object) -> list[Mapping[str, Any]]:
    """The conditions in an object's status, as read."""
    told = _mapping(thing.get("status")).get("conditions")
    return [each for each in told if isinstance(each, Mapping)] if isinstance(told, list) else []


def holds(thing: Object, kind: ConditionType) -> bool:
    """Whether a condition of an object is True, as its status says."""
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions_of(thing))


def _digest(status: Mapping[str, Any], name: str) -> str:
    return str(_mapping(status.get(name)).get("digest") or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
