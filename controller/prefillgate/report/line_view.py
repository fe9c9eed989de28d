"""A serving line and its current rollout as the API server has them, read for people: from their status alone.

What the status does not say is unknown. How old it is is told too: a status that nobody renews looks like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from prefillgate.api.kinds.common import ConditionModel, ProfileSeen
from prefillgate.api.kinds.line_status import PromotedProfile, ServingLineStatus
from prefillgate.api.kinds.not_well import WORST_FIRST, in_short, not_well, rank
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.api.model import WireModel, validate
from prefillgate.report.words import UNKNOWN, span

Object = Mapping[str, Any]
S = TypeVar("S", bound=WireModel)
_ANSWERED_ELSEWHERE = (ConditionType.PROMOTION_ALLOWED, ConditionType.ROLLBACK_ALLOWED, ConditionType.OVERRIDDEN)
LEASE_GRACE_SECONDS = 60.0  # the clocks of two machines, and a renewal that was late


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """The Lease of the controllers, as read: `holder` is empty where it was released, `spec` its spec."""

    name: str
    there: bool
    spec: Object


@dataclass(frozen=True, slots=True)
class RolloutView:
    """A rollout as it stands."""

    name: str
    created: float | None
    spec: Object
    status: ProfileRolloutStatus


@dataclass(frozen=True, slots=True)
class LineView:
    """A line as it stands at `now`, seconds since the epoch. `doubts` say why the status may not hold any more."""

    namespace: str
    name: str
    now: float
    created: float | None
    status: ServingLineStatus
    rollout: RolloutView | None = None
    doubts: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()  # what the spec says about the whole: suspended, dry run
    is_there: bool = True  # else there is only a rollout that names it

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    def doubted(self, why: str) -> LineView:
        """The line with one more reason why the status may not hold any more, before the others; empty: as it is."""
        return replace(self, doubts=(why, *self.doubts)) if why else self

    @property
    def conditions(self) -> list[ConditionModel]:
        """Those of the line, then those of the rollout that the line has not."""
        own = list(self.status.conditions or ())
        known = {each.type for each in own}
        theirs = [] if self.rollout is None else self.rollout.status.conditions or ()
        return own + [each for each in theirs if each.type not in known]

    @property
    def goes_back_to(self) -> PromotedProfile | None:
        """The previous profile, where it is the candidate, or what replaced it may be rolled back."""
        previous, promoted, watch = self.status.previous_profile, self.status.promoted_profile, self.status.watch
        if previous is None or promoted is None:
            return None
        decision = None if self.rollout is None else self.rollout.status.decision
        of_promoted = self.rollout is not None and self.rollout.name == promoted.rollout and decision is not None
        allowed = of_promoted and decision is not None and decision.rollback == "Allowed"
        by_watch = watch is not None and bool(watch.rollback)
        return previous if allowed or by_watch or self.candidate_is(previous) else None

    @property
    def rolls_back_candidate(self) -> bool:
        """Whether a rollback is allowed of what the line has as its candidate, and is not in production."""
        told, decision = (
            (None, None) if self.rollout is None else (self.rollout.status.candidate, self.rollout.status.decision)
        )
        candidate, promoted = self.status.candidate, self.status.promoted_profile
        if told is None or decision is None or decision.rollback != "Allowed" or candidate is None:
            return False
        return _same(told, candidate) and not (promoted is not None and _same(told, promoted))

    def candidate_is(self, profile: ProfileSeen) -> bool:
        """Whether a profile is the line's candidate."""
        candidate = self.status.candidate
        return candidate is not None and candidate.digest == profile.digest

    @property
    def is_past(self) -> bool:
        """Whether the rollout has ended and is about a candidate that the line neither has nor serves any more."""
        told = None if self.rollout is None or self.rollout.status.ended_at is None else self.rollout.status.candidate
        here = [each for each in (self.status.candidate, self.status.promoted_profile) if each is not None]
        return told is not None and bool(here) and not any(_same(told, each) for each in here)

    @property
    def of_now(self) -> LineView:
        """The line without a rollout that is past: what that one allowed is not allowed now."""
        return replace(self, rollout=None) if self.is_past else self

    @property
    def not_well(self) -> list[ConditionModel]:
        """Conditions that a person should know of, the worst first: what the table of reasons warns of, and what it
        does not know."""
        return [each for each in not_well(self.conditions) if not self._is_answered(each)]

    @property
    def not_well_in_short(self) -> str | None:
        """The same in a word or two. None: all is well, or nobody has looked."""
        return self.status.not_well or in_short(self.conditions)

    @property
    def how_bad(self) -> int:
        """Where it stands in a table that has the worst first."""
        found = [each for each in not_well(self.conditions) if in_short([each])]
        if found:
            return rank(found[0])
        unlooked = self.status.observed_generation is None
        return len(WORST_FIRST) + (0 if self.status.not_well else 1 if unlooked else 2)

    def _is_answered(self, condition: ConditionModel) -> bool:
        """Whether the rollout's own decision says it. It does not where the watch of the promoted profile allows a
        rollback."""
        decision = None if self.rollout is None else self.rollout.status.decision
        allowed = condition.type == ConditionType.ROLLBACK_ALLOWED and condition.status == "True"
        if allowed and (decision is None or decision.rollback != "Allowed"):
            return False
        return condition.type in _ANSWERED_ELSEWHERE

    def ago(self, moment: str | None) -> str:
        """How long ago a time of the status was, in words."""
        at = seconds_of(moment)
        return UNKNOWN if at is None else f"{span(max(0.0, self.now - at))} ago"


def view_of(
    line: Object | None, rollout: Object | None, lease: LeaseSeen | None, now: float, *, alone: bool = False
) -> LineView:
    """What people are told of. `line` None: there is only a rollout that names one; `rollout` None: the line has none
    or it is gone, or (`alone`) nobody looked for it; `lease` None: it is not known."""
    if line is None:
        return _without_line(rollout or {}, lease, now)
    status, wrong = _status(ServingLineStatus, line)
    seen = None if rollout is None else rollout_of(rollout)
    doubts = [*_own_doubts("line", line, status.observed_generation), *wrong, *_lease_doubts(lease, now)]
    if rollout is not None and seen is not None:
        doubts += _own_doubts("rollout", rollout, seen.status.observed_generation)
        doubts += _status(ProfileRolloutStatus, rollout)[1]
    elif status.current_rollout is not None and not alone:
        doubts.append(f"The rollout {status.current_rollout} that the status names is not there (any more).")
    metadata, spec = _mapping(line, "metadata"), _mapping(line, "spec")
    view = LineView(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        now=now,
        created=seconds_of(metadata.get("creationTimestamp")),
        status=status,
        rollout=seen,
        doubts=tuple(doubts),
        modes=tuple(_modes(spec)),
    )
    return replace(view, doubts=(*view.doubts, *_past(view)))


def _without_line(rollout: Object, lease: LeaseSeen | None, now: float) -> LineView:
    """A rollout whose line is not there, by its own status."""
    seen, metadata = rollout_of(rollout), _mapping(rollout, "metadata")
    name = str(_mapping(seen.spec, "lineRef").get("name", ""))
    doubts = [
        f"There is no ServingLine {name} here (any more): nothing is done about this rollout.",
        *_status(ProfileRolloutStatus, rollout)[1],
        *_lease_doubts(lease, now),
        *_own_doubts("rollout", rollout, seen.status.observed_generation),
    ]
    status, namespace = ServingLineStatus(), str(metadata.get("namespace", ""))
    return LineView(namespace, name, now, None, status, seen, tuple(doubts), is_there=False)


def _past(view: LineView) -> Iterable[str]:
    if view.rollout is not None and view.is_past:
        of, decision = view.rollout.status.candidate, view.rollout.status.decision
        word = UNKNOWN if decision is None else decision.verdict.lower()
        about = "" if of is None else f" of {of.name or of.digest[7:19]}"
        yield (
            f"What rollout {view.rollout.name} said{about} ({word}, ended {view.ago(view.rollout.status.ended_at)}) is "
            "past: this line neither has nor serves that profile now."
        )


def _same(one: ProfileSeen, other: ProfileSeen) -> bool:
    written = one.written_digest is not None and one.written_digest == other.written_digest
    return one.digest == other.digest or written


def rollout_of(rollout: Object) -> RolloutView:
    """A ProfileRollout as it stands."""
    metadata = _mapping(rollout, "metadata")
    status, _ = _status(ProfileRolloutStatus, rollout)
    created = seconds_of(metadata.get("creationTimestamp"))
    return RolloutView(str(metadata.get("name", "")), created, _mapping(rollout, "spec"), status)


def seconds_of(moment: Any) -> float | None:
    """A time of the API as seconds since the epoch; None for what is none."""
    try:
        found = datetime.fromisoformat(str(moment).replace("Z", "+00:00"))
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _own_doubts(what: str, thing: Object, observed: int | None) -> list[str]:
    generation = _mapping(thing, "metadata").get("generation")
    if _mapping(thing, "metadata").get("deletionTimestamp"):
        return [f"The {what} is being deleted."]
    if not _mapping(thing, "status"):
        return [f"No controller has looked at this {what} yet: everything about it is unknown."]
    if not isinstance(generation, int) or observed is None or observed >= generation:
        return []
    return [f"The {what}'s spec is of generation {generation}, and what stands here is about generation {observed}."]


def _lease_doubts(lease: LeaseSeen | None, now: float) -> list[str]:
    """Whether a controller works at all. Read on our own clock, so that only what is clearly over is told."""
    if lease is None:
        return []
    if not lease.there:
        return [f"No controller has led: no Lease {lease.name} (another: --controller-lease)."]
    renewed = seconds_of(lease.spec.get("renewTime"))
    ago = UNKNOWN if renewed is None else f"{span(max(0.0, now - renewed))} ago"
    if not lease.spec.get("holderIdentity"):
        return [f"No controller leads now: the Lease {lease.name} was given back {ago}."]
    duration = lease.spec.get("leaseDurationSeconds")
    allowed = 4.0 * (duration if isinstance(duration, int) else 15) + LEASE_GRACE_SECONDS
    if renewed is None or now - renewed <= allowed:
        return []
    return [f"No controller has renewed the Lease {lease.name} since {ago}: this may be as old."]


def _modes(spec: Object) -> Iterable[str]:
    if spec.get("suspend") is True:
        yield "Suspended: nothing new is begun (spec.suspend)."
    if spec.get("dryRun") is True:
        yield "Dry run: all is measured and told, nothing is allowed, promoted or remembered (spec.dryRun)."


def _status(model: type[S], thing: Object) -> tuple[S, list[str]]:
    """The status, or an empty one and what is wrong with it: an older controller may have written another shape."""
    status, wrong = validate(model, dict(_mapping(thing, "status")))
    if status is not None:
        return status, []
    return model(), [f"The status cannot be read, so that all is unknown: {wrong[0][1]}."]


def _mapping(thing: Object, field: str) -> Object:
    found = thing.get(field)
    return found if isinstance(found, Mapping) else {}
