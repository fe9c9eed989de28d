"""The override annotations of an object: what is asked, by whom, and why it cannot be obeyed as it is written.

They stand on a ProfileRollout or a ServingLine, never on a workload: `kubectl rollout undo` would bring one back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from prefillgate.api.errors import shown
from prefillgate.api.kinds.common import HandledOverride, StatusModel
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.api.kinds.names import (
    OVERRIDE,
    OVERRIDE_ANNOTATIONS,
    OVERRIDE_VALUES,
)
from prefillgate.api.kinds.reasons import ROWS, ConditionType
from prefillgate.api.model import validate
from prefillgate.reconcile.answer import LONGEST_LINE, bounded
from prefillgate.reconcile.snapshot import Object

LONGEST_ACTOR = 253
LONGEST_VALUE = 64
UNKNOWN_ACTOR = "unknown"
SOME_HOURS_SECONDS = 8 * 3600.0  # the expiry of an example
_DIGITS = 40  # of a digest in a key
S = TypeVar("S", bound=StatusModel)


@dataclass(frozen=True, slots=True)
class Where:
    """The object that an override stands on, as kubectl is told of it: `profilerollout`, its namespace and name."""

    kind: str
    namespace: str
    name: str

    def command(self, **annotations: str) -> str:
        """The kubectl command that sets annotations, named by their last part (`override_reason`); `-` takes one
        away."""
        words = [f"prefillgate.io/{name.replace('_', '-')}{value}" for name, value in annotations.items()]
        return f"kubectl annotate --overwrite -n {self.namespace} {self.kind} {self.name} {' '.join(words)}"


@dataclass(frozen=True, slots=True)
class Asked:
    """The annotations as written, whitespace around them gone; None where one is absent. `base` is the object's uid and
    the digest of these words."""

    value: str
    reason: str | None
    expires: str | None
    actor: str | None
    base: str


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks. `verified`: stamped at admission from the request's user."""

    name: str
    verified: bool

    def __str__(self) -> str:
        return self.name if self.verified else f"{self.name} (not verified)"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an override is not obeyed: a reason of the condition Overridden, and how to do it right."""

    reason: str
    how: str

    @property
    def message(self) -> str:
        """Both, in words. It begins with the reason's sentence, by which `reason_in` finds it again."""
        return bounded(f"{sentence_of(self.reason)} {self.how}", LONGEST_LINE)


def sentence_of(reason: str) -> str:
    """The sentence of a reason of the condition Overridden. Raises KeyError for another."""
    return ROWS[ConditionType.OVERRIDDEN, reason].sentence


def reason_in(message: str | None) -> tuple[str, str] | None:
    """The reason whose sentence a message begins with, and what comes after it; None where it begins with none."""
    for (kind, reason), row in ROWS.items():
        if kind is ConditionType.OVERRIDDEN and message is not None and message.startswith(row.sentence):
            return reason, message[len(row.sentence) :].strip()
    return None


def part(model: type[S], thing: Object, name: str) -> S | None:
    """A part of an object's status; None where it is absent or what an older version wrote and nobody can read."""
    status = thing.get("status")
    told = status.get(name) if isinstance(status, Mapping) else None
    return validate(model, told)[0] if isinstance(told, Mapping) else None


def uid_of(thing: Object) -> str:
    """An object's uid."""
    return str(_metadata(thing).get("uid", ""))


def name_of(thing: Object) -> str:
    """An object's name."""
    return str(_metadata(thing).get("name", ""))


def asked(thing: Object) -> Asked | None:
    """What the annotations ask; None where there is no override among them."""
    annotations = _metadata(thing).get("annotations")
    if not isinstance(annotations, Mapping) or OVERRIDE not in annotations:
        return None
    words = [annotations.get(name) for name in OVERRIDE_ANNOTATIONS]
    digest = hashlib.sha256(json.dumps(words).encode("utf-8")).hexdigest()[:_DIGITS]
    value, reason, expires, actor = (None if word is None else str(word).strip() for word in words)
    return Asked(value or "", reason, expires, actor, f"{uid_of(thing)}/{digest}")


def key_of(wanted: Asked, last: HandledOverride | None) -> str:
    """What tells this annotation from any before it: the number rises whenever the words are others than those dealt
    with last, or were gone for a while, so that the same words count anew whatever came between."""
    if last is None:
        return wanted.base
    uid, digest, number = [*last.key.split("/"), "", ""][:3]
    if f"{uid}/{digest}" == wanted.base and last.outcome != "Withdrawn":
        return last.key
    before = int(number) if number.isascii() and number.isdecimal() else 0
    return f"{wanted.base}/{before + 1}"


def keys_in_sight(things: Iterable[Object]) -> frozenset[str]:
    """Keys of all overrides that lines and rollouts bear or have dealt with last: those to ask the book about."""
    keys = set()
    for thing in things:
        last, wanted = part(HandledOverride, thing, "lastHandledOverride"), asked(thing)
        keys |= {last.key} if last is not None else set()
        keys |= {key_of(wanted, last)} if wanted is not None else set()
    return frozenset(keys)


def is_new_in(thing: Object) -> bool:
    """Whether an override stands on an object that was not dealt with yet."""
    last, wanted = part(HandledOverride, thing, "lastHandledOverride"), asked(thing)
    return wanted is not None and (last is None or last.key != key_of(wanted, last))


def owners_of(thing: Object) -> list[dict[str, Any]]:
    """Of an object's managedFields what tells who wrote its override, and nothing else."""
    mine = [entry for entry in _list(_metadata(thing).get("managedFields")) if _manages(entry)]
    owned: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{OVERRIDE}": {}}}}
    return [{**{name: each[name] for name in ("manager", "time") if name in each}, "fieldsV1": owned} for each in mine]


def actor_of(thing: Object, wanted: Asked, stamped: bool) -> Actor | None:
    """Who asks. Where admission stamps it, its stamp, and None without one; elsewhere whoever manages the annotation,
    for the annotation of the actor could be anybody's word."""
    if stamped:
        return None if not wanted.actor else Actor(bounded(wanted.actor, LONGEST_ACTOR), True)
    entries = [entry for entry in _list(_metadata(thing).get("managedFields")) if _manages(entry)]
    if not entries:
        return Actor(UNKNOWN_ACTOR, False)
    newest = max(entries, key=lambda entry: seconds_of(entry.get("time")) or 0.0)
    return Actor(bounded(str(newest.get("manager") or ""), LONGEST_ACTOR) or UNKNOWN_ACTOR, False)


def refusal_of(wanted: Asked, actor: Actor | None, where: Where, now: float) -> Refusal | None:
    """Why these words cannot be obeyed, whatever they are about; None where they can."""
    if wanted.value not in OVERRIDE_VALUES:
        told = f"{shown(wanted.value[: LONGEST_VALUE * 2])} is none of them: "
        return Refusal("OverrideUnknown", told + where.command(override="=hold"))
    if not any(character.isalnum() for character in wanted.reason or ""):
        return Refusal("OverrideWithoutReason", where.command(override_reason='="why you do it"'))
    if wanted.expires is not None:
        ends = seconds_of(wanted.expires)
        if ends is None or ends <= now:
            wrong = "is no time as 2026-12-01T08:00:00Z" if ends is None else "is past"
            later, never = (
                where.command(override_expires=f"={moment(now + SOME_HOURS_SECONDS)}"),
                where.command(override_expires="-"),
            )
            return Refusal("OverrideExpired", f"{shown(wanted.expires[:128])} {wrong}: {later}, or {never}")
    if actor is None:
        again = where.command(override_reason='="why you do it"')
        return Refusal("OverrideNotAllowed", f"It was set before names were stamped. Say it again: {again}")
    return None


def _manages(entry: Any) -> bool:
    """Whether an entry of managedFields owns the annotation."""
    fields = entry.get("fieldsV1") if isinstance(entry, Mapping) and not entry.get("subresource") else None
    for name in ("f:metadata", "f:annotations", f"f:{OVERRIDE}"):
        fields = fields.get(name) if isinstance(fields, Mapping) else None
    return fields is not None


def _metadata(thing: Object) -> Mapping[str, Any]:
    metadata = thing.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
