"""What became of profiles on a line: what the store, the line's status and its rollouts know of it, all together.

A store that is lost takes nothing back: what a status says stands, and is written into the store again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prefillgate.api.kinds.line_status import MOST_REJECTED, PromotedProfile, RejectedProfile
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.core.decision import Reason
from prefillgate.evidence.book_rows import Fate, Outcome
from prefillgate.profiles import Profile
from prefillgate.reconcile.naming import book_line
from prefillgate.reconcile.roles import is_profile
from prefillgate.reconcile.seen import LineView, Told, settled_at, wire

_REJECTS = ("Held", "RollbackAllowed")
_KNOWN_BY = ("writtenDigest", "template", "reading", "marks")


@dataclass(frozen=True, slots=True)
class Remembered:
    """`rejected` are the profiles that are not replayed again, oldest first; `missing` what the store lacks of all
    that is known, and `lost` whether any of it stood in the line's status."""

    rejected: tuple[RejectedProfile, ...]
    missing: tuple[Fate, ...]
    lost: bool

    @property
    def told(self) -> tuple[RejectedProfile, ...]:
        """Those that a status has room for: the newest. The store has them all."""
        return self.rejected[-MOST_REJECTED:]

    def rejection_of(self, profile: Profile) -> RejectedProfile | None:
        """How a profile was rejected; None: it was not."""
        return next((each for each in reversed(self.rejected) if is_profile(profile, wire(each))), None)


def remembered_of(
    view: LineView, ended: Iterable[tuple[str, ProfileRolloutStatus]], promoted: PromotedProfile | None
) -> Remembered:
    """`ended` are rollouts that have ended, with their statuses, `promoted` is the promoted profile at this look."""
    line = book_line(view.snapshot.line)
    book = view.snapshot.book
    of_rollouts = [fate for name, status in ended if (fate := fate_of(line, name, status)) is not None]
    of_status = list(_of_status(view, line))
    known = {_key(each): each for each in [*of_status, *of_rollouts, *book.fates]}
    there = {_key(each) for each in book.fates}
    missing = () if book.trouble is not None else tuple(each for key, each in known.items() if key not in there)
    candidates = [status.candidate for _, status in ended if status.candidate is not None]
    known_as = {each.digest: wire(each) for each in [*(view.before.rejected_profiles or ()), *candidates]}
    by_rollout = {(each.rollout, each.outcome) for each in book.fates}  # whatever its profile was read as then
    lost = book.trouble is None and any((each.rollout, each.outcome) not in by_rollout for each in of_status)
    as_now = {(each.rollout, each.outcome): each.digest for each in [*of_rollouts, *of_status]}
    present = [each for each in known.values() if as_now.get((each.rollout, each.outcome), each.digest) == each.digest]
    return Remembered(_rejected(present, known_as, promoted), missing, lost)


def fate_of(line: str, name: str, status: ProfileRolloutStatus) -> Fate | None:
    """What an ended rollout means for its candidate. Nothing where it could not be measured, was never begun or gave
    way to another, where the candidate took no requests (that says nothing of its quality), or on a dry run."""
    decision, candidate = status.decision, status.candidate
    reason = next((each.reason for each in status.conditions or () if each.type == "Succeeded"), None)
    at = seconds_of(settled_at(status))
    if decision is None or candidate is None or at is None or reason is None:
        return None
    if reason == "Promoted":
        return Fate(line, candidate.digest, Outcome.PROMOTED, name, decision.reason, at)
    judged = status.counts is not None or status.override is not None
    if reason in _REJECTS and decision.measured and judged and decision.reason != Reason.CANDIDATE_UNAVAILABLE:
        return Fate(line, candidate.digest, Outcome.REJECTED, name, decision.reason, at)
    return None


def _of_status(view: LineView, line: str) -> Iterable[Fate]:
    """What the line's status says."""
    for each in view.before.rejected_profiles or ():
        yield Fate(line, each.digest, Outcome.REJECTED, each.rollout, each.reason, seconds_of(each.at) or 0.0)
    for promoted in (view.before.previous_profile, view.before.promoted_profile):
        if promoted is not None and promoted.how != "FirstSeen" and promoted.rollout is not None:
            reason = Reason.OVERRIDE if promoted.how == "Overridden" else Reason.ACCEPTANCE_REACHED
            at = seconds_of(promoted.since) or 0.0
            yield Fate(line, promoted.digest, Outcome.PROMOTED, promoted.rollout, str(reason), at)


def _key(fate: Fate) -> tuple[str, str, str]:
    return fate.digest, str(fate.outcome), fate.rollout


def _rejected(
    fates: Iterable[Fate], known_as: Mapping[str, Told], promoted: PromotedProfile | None
) -> tuple[RejectedProfile, ...]:
    """The profiles whose last fate is a rejection, oldest first."""
    last: dict[str, Fate] = {}
    for fate in sorted(fates, key=lambda each: (each.at, each.outcome == Outcome.PROMOTED, each.rollout)):
        last[fate.digest] = fate
    found = [
        each
        for each in sorted(last.values(), key=lambda each: (each.at, each.digest))
        if each.outcome == Outcome.REJECTED and (promoted is None or promoted.digest != each.digest)
    ]
    return tuple(
        RejectedProfile.model_validate(
            {
                **{key: told for key, told in known_as.get(each.digest, {}).items() if key in _KNOWN_BY},
                "digest": each.digest,
                "rollout": each.rollout,
                "reason": each.reason,
                "at": moment(each.at),
            }
        )
        for each in found
    )
