"""Profiles that are read otherwise than before (other ignored or redacted names, another seal key, a newer reader).

Every digest is another one then, though no pod was touched. What the statuses of a line and of its ended rollouts say
of a profile is carried over to the new reading where the very template of it is seen, with the images and ConfigMaps
of then; where that cannot be told nothing is guessed. A rollout that goes on is about what was read when it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefillgate.profiles import Profile, from_same_template, joined, told_apart
from prefillgate.reconcile.answer import LONGEST_LINE, bounded
from prefillgate.reconcile.naming import digits_of
from prefillgate.reconcile.snapshot import LineSnapshot, Object, RolloutSeen, SlotProfile
from prefillgate.reconcile.told_settings import settings_told

KEEPERS = ("ReplicaSet", "ControllerRevision")  # of a pod template, while the workload goes on to the next
DIGITS_OF_A_NAME = 12
MOST_SUMMARY, MOST_NOTES = 64, 32
Told = Mapping[str, Any]  # a profile as a status has it


def profile_seen(profile: Profile) -> dict[str, Any]:
    """A profile as a status has it (the wire fields of `ProfileSeen`)."""
    notes = [bounded(note, LONGEST_LINE) for note in profile.notes]
    return {
        "digest": profile.digest,
        "writtenDigest": profile.written_digest,
        "name": digits_of(profile.digest, DIGITS_OF_A_NAME),
        "summary": [bounded(line, LONGEST_LINE) for line in profile.summary()][:MOST_SUMMARY],
        "notes": notes[:MOST_NOTES],
    }


def as_read(profile: Profile, reading: str | None, before: Iterable[str] = ()) -> dict[str, Any]:
    """How a profile was read, and from what, on the wire; `before` are the marks that it had."""
    marks = joined(before, profile.marks)
    return {**({} if reading is None else {"reading": reading}), **({"marks": marks} if marks else {})}


def as_read_now(snapshot: LineSnapshot) -> LineSnapshot:
    """The look with all statuses as they would be, had profiles been read as now. The same things where nothing is."""
    line, rollouts = reread(snapshot.line, snapshot.rollouts, snapshot.slots, snapshot.reading)
    return replace(snapshot, line=line, rollouts=rollouts)


def reread(
    line: Object, rollouts: Iterable[RolloutSeen], slots: Sequence[SlotProfile], reading: str | None
) -> tuple[Object, tuple[RolloutSeen, ...]]:
    """The same for a line and its rollouts."""
    if reading is None or not slots:
        return line, tuple(rollouts)
    reader = _Reader(tuple(slots), reading)
    return reader.line(line), tuple(reader.rollout(each) for each in rollouts)


@dataclass(frozen=True, slots=True)
class _Reader:
    slots: tuple[SlotProfile, ...]
    reading: str

    def line(self, line: Object) -> Object:
        """What is promoted, what was before it, what would replace it, and what was rejected."""
        status = line.get("status")
        if not isinstance(status, Mapping):
            return line
        now = self._profiles(status, ("promotedProfile", "previousProfile", "candidate"))
        rejected = status.get("rejectedProfiles")
        if isinstance(rejected, list):
            told = [self._digests(each) for each in rejected]
            if told != rejected:
                now["rejectedProfiles"] = list({str(each.get("digest")): each for each in told}.values())
        return {**line, "status": {**status, **now}} if now else line

    def rollout(self, seen: RolloutSeen) -> RolloutSeen:
        """Both profiles of one that has ended."""
        status = seen.thing.get("status")
        if not isinstance(status, Mapping) or status.get("endedAt") is None:
            return seen
        now = self._profiles(status, ("baseline", "candidate"))
        return replace(seen, thing={**seen.thing, "status": {**status, **now}}) if now else seen

    def _profiles(self, status: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Those among them that are told otherwise now."""
        found: dict[str, Any] = {}
        for name in names:
            told = status.get(name)
            slot = self._slot(told)
            if isinstance(told, Mapping) and slot is not None:
                now = {**told, **as_read(slot.profile, self.reading, _marks(told))}
                if slot.profile.digest != told.get("digest"):
                    now |= profile_seen(slot.profile)
                    now |= {"settings": settings_told(slot.profile.settings)} if "settings" in told else {}
                found |= {name: now} if now != told else {}
        return found

    def _digests(self, told: Any) -> Any:
        """The same of a rejected profile, of which no more is known."""
        slot = self._slot(told)
        if slot is None:
            return told
        digests = {"digest": slot.profile.digest, "writtenDigest": slot.profile.written_digest}
        return {**told, **digests, **as_read(slot.profile, self.reading, _marks(told))}

    def _slot(self, told: Any) -> SlotProfile | None:
        """Which slot says it now. None: none is known to; what bears no marks is known by its digest alone."""
        if not isinstance(told, Mapping):
            return None
        same = next((each for each in self.slots if each.profile.digest == told.get("digest")), None)
        marks = _marks(told)
        if same is not None or not marks or told.get("reading") in (None, self.reading):
            return same
        slot = next((each for each in self.slots if _has_template(each, told, marks)), None)
        return None if slot is None or told_apart(marks, slot.profile.marks) else slot


def _marks(told: Told) -> list[str]:
    marks = told.get("marks")
    return [each for each in marks if isinstance(each, str)] if isinstance(marks, list) else []


def _has_template(slot: SlotProfile, told: Told, marks: Iterable[str]) -> bool:
    """Whether a slot has the very template that a profile was read from: in the same keeper, or in the same words."""
    kept, now = told.get("template"), slot.template
    if isinstance(kept, Mapping) and kept.get("kind") in KEEPERS and kept.get("uid") and now is not None:
        return bool(now.uid == kept["uid"]) or from_same_template(marks, slot.profile.marks)
    return from_same_template(marks, slot.profile.marks)
