"""Which profile is in production and which one would replace it: by the line's status, never by the names of arms.

What was promoted last is the baseline. The candidate is what another slot says, or the same one once its template
is another. A line that was never looked at takes for promoted what its baseline's slot says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefillgate.profiles import IMAGE, Profile, told_apart
from prefillgate.reconcile.snapshot import Roles, Slot, SlotProfile


def is_profile(profile: Profile, told: Mapping[str, Any]) -> bool:
    """Whether a profile is the one told of in a status: the same digest, or, where one of both was read before any pod
    had resolved its images, the same as written, with no image that is known to be another one."""
    if profile.digest == told.get("digest"):
        return True
    unresolved = not profile.resolved or told.get("digest") == told.get("writtenDigest")
    same = unresolved and profile.written_digest == told.get("writtenDigest")
    return same and not told_apart(told.get("marks") or (), profile.marks, (IMAGE,))


def roles_of(status: Mapping[str, Any], slots: Sequence[SlotProfile]) -> Roles:
    """Who plays what. `status` is that of the ServingLine, as read."""
    promoted = status.get("promotedProfile")
    if not isinstance(promoted, Mapping):
        first = next((each for each in slots if each.slot is Slot.BASELINE), None)
        if first is None:
            return Roles(None, None)
        promoted = {"digest": first.profile.digest, "writtenDigest": first.profile.written_digest}
    others = [each for each in slots if not is_profile(each.profile, promoted)]
    # where neither slot is what was promoted (its workload was changed in place), the one named candidate is it
    candidate = next((each for each in others if each.slot is Slot.CANDIDATE), others[0] if others else None)
    return Roles(str(promoted.get("digest")), candidate)
