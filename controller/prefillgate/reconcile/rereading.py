"""Profiles that are read otherwise than before (other ignored or redacted names, another seal key, a newer reader).

Every digest is another one then, though no pod was touched. What a status says of a profile is carried over to the new
reading where the very ReplicaSet or ControllerRevision of it is seen; where that cannot be told nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prefillgate.profiles import Profile
from prefillgate.reconcile.answer import LONGEST_LINE, bounded
from prefillgate.reconcile.naming import digits_of
from prefillgate.reconcile.snapshot import Object, RolloutSeen, SlotProfile
from prefillgate.reconcile.told_settings import settings_told, wire_settings

KEEPERS = ("ReplicaSet", "ControllerRevision")  # of a pod template, while the workload goes on to the next
DIGITS_OF_A_NAME = 12
MOST_SUMMARY, MOST_NOTES = 64, 32
_SEALED = "[sealed-"


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


def reread(line: Object, rollouts: Iterable[RolloutSeen], slots: Sequence[SlotProfile], reading: str | None) -> Object:
    """The line with its status as it would be, had its profiles been read as now. The same object where nothing is."""
    status = line.get("status")
    if not isinstance(status, Mapping) or reading is None:
        return line
    made = {str(each.thing.get("metadata", {}).get("name")): each for each in rollouts}
    changed: dict[str, Any] = {}
    for name in ("promotedProfile", "previousProfile"):
        told = status.get(name)
        if isinstance(told, Mapping) and _read_otherwise(told, reading):
            slot = _slot(told.get("template"), told.get("settings"), slots)
            if slot is not None:
                settings = settings_told(slot.profile.settings)
                changed[name] = {**told, **profile_seen(slot.profile), "reading": reading, "settings": settings}
    rejected = status.get("rejectedProfiles")
    if isinstance(rejected, list):
        now = [_rejected(each, made, slots, reading) for each in rejected]
        if now != rejected:
            changed["rejectedProfiles"] = list({str(each.get("digest")): each for each in now}.values())
    return {**line, "status": {**status, **changed}} if changed else line


def _rejected(told: Any, made: Mapping[str, RolloutSeen], slots: Sequence[SlotProfile], reading: str) -> Any:
    """A rejected profile, by the template that its rollout had."""
    if not isinstance(told, Mapping) or not _read_otherwise(told, reading):
        return told
    rollout = made.get(str(told.get("rollout")))
    candidate = (rollout.thing.get("status") or {}).get("candidate") if rollout is not None else None
    if rollout is None or not isinstance(candidate, Mapping):
        return told
    spec = None if rollout.spec is None else rollout.spec.candidate
    settings = None if spec is None else wire_settings(spec.settings)
    slot = _slot(candidate.get("template"), settings, slots)
    return told if slot is None else {**told, **_digests(slot, reading)}


def _read_otherwise(told: Mapping[str, Any], reading: str) -> bool:
    """Whether it was read in another way; what bears no mark is as it is."""
    return told.get("reading") not in (None, reading)


def _digests(slot: SlotProfile, reading: str) -> dict[str, Any]:
    return {
        "digest": slot.profile.digest,
        "writtenDigest": slot.profile.written_digest,
        "reading": reading,
    }


def _slot(template: Any, settings: Any, slots: Sequence[SlotProfile]) -> SlotProfile | None:
    """The slot of that very template, unless what stands outside of it (a ConfigMap, a tag's image) changed too."""
    if not isinstance(template, Mapping) or template.get("kind") not in KEEPERS or not template.get("uid"):
        return None
    for slot in slots:
        if slot.template is not None and slot.template.uid == template["uid"]:
            return None if _contradicts(settings, slot) else slot
    return None


def _contradicts(settings: Any, slot: SlotProfile) -> bool:
    """Whether a setting that both readings show has another value, not for its being sealed."""
    now = {(each["area"], each["name"]): each["value"] for each in settings_told(slot.profile.settings)}
    for each in settings if isinstance(settings, list) else ():
        was, there = str(each.get("value")), now.get((each.get("area"), each.get("name")))
        if there is not None and there != was and _SEALED not in there + was:
            return True
    return False
