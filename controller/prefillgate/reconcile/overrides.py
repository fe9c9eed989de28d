"""A person's word goes before the evidence: which overrides stand, which are refused, and what each of them does once.

```
annotation --> asked --> refused: told how to do it right --------------------+
                 |                                                            v
                 +--> obeyed: bound to the pair of digests of a rollout --> echoed in status, kept in the book
                        |
                        +--> over: taken away, written anew, or expired
```
* One on a line is about its current rollout, by the line's own status, and a promotion beside a rerun about the rollout
  that is made for that. No override is passed on to another rollout.
* The newer one goes before the older; of two that are seen at the same look the rollout's own.
* While the store is away an override is obeyed all the same, in status: it may be what ends an outage. The book and the
  journal have it as soon as they are back.
* All events of the condition Overridden come from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prefillgate.api.kinds.common import ConditionModel, HandledOverride
from prefillgate.api.kinds.moments import moment, seconds_of
from prefillgate.api.kinds.names import PROFILE_ROLLOUT, SERVING_LINE
from prefillgate.api.kinds.reasons import ConditionType, condition_of, saying
from prefillgate.api.kinds.rollout_status import OverrideStatus
from prefillgate.core.decision import Reason
from prefillgate.core.journal import Overridden, OverrideEnded
from prefillgate.core.sentences import REASON_SENTENCES
from prefillgate.core.verdict import Verdict
from prefillgate.evidence.book_rows import HandledOverride as HandledRow
from prefillgate.reconcile.answer import LONGEST_LINE, bounded
from prefillgate.reconcile.effects import Effect, OverrideDone, RecordOverride, TakeOverride, Tell
from prefillgate.reconcile.naming import book_line
from prefillgate.reconcile.override_targets import Target, conditions_of, holds, of_rerun, rebound, target_of
from prefillgate.reconcile.override_words import (
    LONGEST_VALUE,
    Actor,
    Asked,
    Refusal,
    Where,
    actor_of,
    asked,
    key_of,
    name_of,
    part,
    reason_in,
    refusal_of,
    sentence_of,
    uid_of,
)
from prefillgate.reconcile.snapshot import LineSnapshot, Object, RolloutSeen, WorkSeen

LONGEST_NOTE = 1000  # of an event
TAKEN_AWAY, WRITTEN_ANEW, EXPIRED = "It was taken away.", "It was written anew.", "It expired."
DEALT_WITH = "These words were dealt with already, and do not count again. To say it again, give another reason:"
SUPERSEDED = "Something else took the place of the rollout."
Name = str | None  # of a rollout; None: the line itself


@dataclass(frozen=True, slots=True)
class OverriddenRow:
    """What the condition Overridden of an object says."""

    status: Literal["True", "False"]
    reason: str
    detail: str = ""

    def condition(self, at: str, generation: int) -> ConditionModel:
        """As it is written. `at` is RFC 3339."""
        made = condition_of(ConditionType.OVERRIDDEN, self.status, self.reason, at=at, generation=generation)
        return saying(made, self.detail)


@dataclass(slots=True)
class Considered:
    """What is to be done about the overrides of a line and of its rollouts.

    `standing`: by the rollout's name, what goes before its evidence now. `rollout_handled`, `line_handled`: the echo of
    each status, unchanged ones too. `conditions`: Overridden of each object, None is the line. `expires_at`: when the
    first of them ends, in seconds since the epoch. `before` and `after` go around the writing of statuses.
    """

    standing: dict[str, OverrideStatus] = field(default_factory=dict)
    line_handled: HandledOverride | None = None
    rollout_handled: dict[str, HandledOverride] = field(default_factory=dict)
    conditions: dict[Name, OverriddenRow] = field(default_factory=dict)
    expires_at: float | None = None
    before: list[Effect] = field(default_factory=list)
    after: list[Effect] = field(default_factory=list)


def considered(snapshot: LineSnapshot, rerun: str | None = None) -> Considered:
    """The overrides of a line and of its rollouts at this look. The same look gives the same answer.

    `rerun`: of one that the line bears and no status answers yet, why no rollout is made for it; empty where one is.
    """
    return _Look(snapshot, rerun).taken()


class _Look:
    """One look, an object after the other: the line, then its rollouts in their order."""

    def __init__(self, snapshot: LineSnapshot, rerun: str | None) -> None:
        self._snapshot, self._now, self._rerun = snapshot, snapshot.now, rerun
        self._book = snapshot.book
        self._told = Considered()
        self._rollouts: dict[str, RolloutSeen] = {name_of(seen.thing): seen for seen in snapshot.rollouts}
        self._present: dict[Name, str | None] = {}  # key of the annotations that an object bears now
        self._handled: dict[Name, HandledOverride] = {}
        self._over: dict[str, tuple[OverrideStatus, str]] = {}  # what ended at this look, and why
        self._dealt_with: set[Name] = set()  # what bears words that the book knows and no status
        self._done: list[OverrideDone] = []
        self._unshown: set[str | None] = set()  # keys of what stands and no journal has yet

    def taken(self) -> Considered:
        told = self._told
        for name, seen in self._rollouts.items():
            standing = part(OverrideStatus, seen.thing, "override")
            if standing is not None:
                told.standing[name] = rebound(standing, seen)
        for of, thing in self._objects():
            self._consider(of, thing)
        for name in list(told.standing):
            self._end_what_is_over(name)
        for name, seen in self._rollouts.items():
            self._journal(name, seen)
        told.after += [each for each in self._done if each.key not in self._unshown]
        for of, thing in self._objects():
            told.conditions[of] = self._row(of, thing)
        told.line_handled = self._handled.pop(None, None)
        told.rollout_handled = {of: each for of, each in self._handled.items() if of is not None}
        ends = [at for each in told.standing.values() if (at := seconds_of(each.expires)) is not None]
        told.expires_at = min(ends, default=None)
        return told

    def _objects(self) -> Iterator[tuple[Name, Object]]:
        yield None, self._snapshot.line
        for name, seen in self._rollouts.items():
            yield name, seen.thing

    # -- one object

    def _consider(self, name: Name, thing: Object) -> None:
        last, wanted = part(HandledOverride, thing, "lastHandledOverride"), asked(thing)
        key = self._present[name] = None if wanted is None else key_of(wanted, last)
        if last is not None:
            self._handled[name] = self._gone(last) if wanted is None else last
            self._owed(name, last)
        if wanted is None or key is None:
            return
        if last is not None and last.key == key:
            self._not_passed_on(name, last)
            return
        if key in self._book.handled:
            self._dealt_with.add(name)  # the status was lost, and it is not obeyed twice
            return
        target = target_of(self._snapshot, name, thing)
        if name is None and wanted.value == "promote" and self._rerun is not None:
            target = of_rerun(thing, self._rerun)
        if target is None or target.waits(wanted.value):
            return  # nothing to refuse and nothing to obey yet
        where = self._where(name, thing)
        actor = actor_of(thing, wanted, self._snapshot.actors_stamped)
        refusal = refusal_of(wanted, actor, where, self._now) or target.refusal(where, wanted.value)
        self._handle(name, key, wanted, (actor or Actor("", False), refusal, target))

    def _handle(self, name: Name, key: str, wanted: Asked, judged: tuple[Actor, Refusal | None, Target]) -> None:
        """Refuse it, or let it stand."""
        actor, refusal, target = judged
        expires = wanted.expires if seconds_of(wanted.expires) is not None else None
        handled = HandledOverride.model_validate(
            {
                "key": key,
                "value": bounded(wanted.value, LONGEST_VALUE),
                "outcome": "Obeyed" if refusal is None else "Refused",
                "at": moment(self._now),
                "reason": bounded(wanted.reason or "", LONGEST_LINE) or None,
                "actor": actor.name or None,
                "actorVerified": actor.verified if actor.name else None,
                "expires": expires,
                "message": target.about if refusal is None else refusal.message,
            }
        )
        self._handled[name] = handled
        if refusal is None:
            standing = target.bound(handled)
            before = self._told.standing.get(target.name)
            if before is not None and before.key == key:  # obeyed at a look whose status of the line was lost
                standing = standing.model_copy(update={"since": before.since})
            self._told.standing[target.name] = standing
        if self._book.trouble is None:
            self._told.before.append(TakeOverride(self._row_of(name, handled)))
        self._owe(name, handled)

    def _owed(self, name: Name, last: HandledOverride) -> None:
        """What a kill, or a store that was away, left undone."""
        if self._book.trouble is None and last.key not in self._book.handled:
            self._told.before.append(TakeOverride(self._row_of(name, last)))
            self._owe(name, last)

    def _owe(self, name: Name, handled: HandledOverride) -> None:
        """Tell of it, and then it is done for the book."""
        told = reason_in(handled.message) if handled.outcome == "Refused" else None
        reason = "OverrideObeyed" if told is None else told[0]
        if handled.outcome in ("Obeyed", "Refused"):
            self._tell(name, reason, _note(handled), f"{handled.key}/{handled.outcome}")
        if self._book.trouble is None:
            self._done.append(OverrideDone(handled.key, f"{handled.outcome}: {handled.message or ''}".strip()))

    def _gone(self, last: HandledOverride) -> HandledOverride:
        """The echo of an override whose annotation is gone."""
        if last.outcome == "Withdrawn":
            return last
        over = f"{sentence_of('OverrideEnded')} {TAKEN_AWAY}"
        message = {"Obeyed": over, "Expired": last.message}.get(last.outcome)
        update = {"outcome": "Withdrawn", "at": moment(self._now), "message": message}
        return last.model_copy(update=update)

    def _not_passed_on(self, name: Name, last: HandledOverride) -> None:
        """Say once that the line's override was about another rollout than its current one."""
        if name is not None or last.outcome != "Obeyed":
            return
        target = target_of(self._snapshot, None, self._snapshot.line)
        if target is None or target.refused or (last.message or "").startswith(target.mark):
            return
        where = self._where(target.name, self._rollouts[target.name].thing)
        again = where.command(override=f"={last.value}", override_reason='="why you do it"')
        note = f"{last.message} It says nothing of {target.name}. To override that one too: {again}"
        self._tell(None, "OverrideNotPassedOn", note, f"{last.key}/{target.uid}")

    # -- what stood before

    def _end_what_is_over(self, name: str) -> None:
        standing = self._told.standing[name]
        source = self._source(name, standing)
        why = self._why_over(name, standing, source)
        if why is None:
            return
        del self._told.standing[name]
        self._over[name] = (standing, why)
        last = self._handled.get(source)
        if why == EXPIRED and last is not None and last.key == standing.key and last.outcome == "Obeyed":
            message = f"{sentence_of('OverrideEnded')} {EXPIRED}"
            self._handled[source] = last.model_copy(update={"outcome": "Expired", "message": message})
        note = f"{why} {standing.verdict.lower()} by {_by(standing)}: {standing.reason}"
        self._tell(name, "OverrideEnded", note, f"{standing.key}/{name}/Ended")

    def _why_over(self, name: str, standing: OverrideStatus, source: Name) -> str | None:
        ends, present, thing = seconds_of(standing.expires), self._present.get(source), self._rollouts[name].thing
        if standing.verdict == "Promote" and holds(thing, ConditionType.SUCCEEDED):
            return None  # it was promoted by it: that is never taken back, and stays told
        if holds(thing, ConditionType.SUPERSEDED):
            return SUPERSEDED
        if ends is not None and ends <= self._now:
            return EXPIRED
        if standing.key is None or present == standing.key:
            return None
        return TAKEN_AWAY if present is None else WRITTEN_ANEW

    def _source(self, name: str, standing: OverrideStatus) -> Name:
        """Which object bears the annotation: the line, or the rollout itself."""
        line = uid_of(self._snapshot.line)
        return None if (standing.key or "").startswith(f"{line}/") else name

    # -- the journal of the run

    def _journal(self, name: str, seen: RolloutSeen) -> None:
        """Bring the journal to what stands: a verdict recomputed from it must be the one in the status."""
        uid = uid_of(seen.thing)
        work = next((each for each in self._snapshot.works if each.key == uid), None)
        standing = self._told.standing.get(name)
        if standing is not None:
            if self._unrecorded(standing, work, seen):
                at = seconds_of(standing.since) or self._now
                self._unshown.add(standing.key)
                event = Overridden(at, standing.verdict.lower(), _by(standing), standing.reason)
                self._told.after.append(RecordOverride(uid, event))
        elif (end := self._unrecorded_end(name, work, seen)) is not None:
            self._told.before.append(RecordOverride(uid, end))

    def _unrecorded(self, standing: OverrideStatus, work: WorkSeen | None, seen: RolloutSeen) -> bool:
        if work is not None and work.verdict is not None:
            decision = work.verdict.decision
            same = decision.decision.value == standing.verdict.lower()
            return not (same and _word_in(work.verdict) == f"{_by(standing)}: {standing.reason}")
        return standing.key not in self._book.handled and _has_run(seen)

    def _unrecorded_end(self, name: str, work: WorkSeen | None, seen: RolloutSeen) -> OverrideEnded | None:
        """The end of an override that the journal has and that stands no more. One that a person wrote into the store
        by hand is none of ours."""
        over = self._over.get(name)
        if work is None or work.verdict is None:
            return None if over is None or not _has_run(seen) else OverrideEnded(self._now, over[1])
        word = _word_in(work.verdict)
        if over is not None and word == f"{_by(over[0])}: {over[0].reason}":
            return OverrideEnded(self._now, over[1])
        for each in (self._handled.get(name), self._handled.get(None)):
            if each is not None and each.outcome in ("Expired", "Withdrawn") and word == _word_of(each):
                ended = each.expires if each.outcome == "Expired" else each.at
                told = reason_in(each.message)
                return OverrideEnded(seconds_of(ended) or self._now, told[1] if told else TAKEN_AWAY)
        return None

    # -- words

    def _row(self, name: Name, thing: Object) -> OverriddenRow:
        """The condition Overridden of an object; that of a line is about its current rollout."""
        about = name if name is not None else _current(thing)
        standing = self._told.standing.get(about) if about is not None else None
        if standing is not None:
            until = f" until {standing.expires}" if standing.expires is not None else ""
            word = f"{standing.verdict} by {_by(standing)} since {standing.since}{until}: {standing.reason}"
            return OverriddenRow("True", "OverrideObeyed", word)
        if name in self._dealt_with:
            again = self._where(name, thing).command(override_reason='="why you do it"')
            return OverriddenRow("False", "OverrideEnded", f"{DEALT_WITH} {again}")
        handled = self._handled.get(name)
        told = reason_in(handled.message) if handled is not None else None
        if told is not None:
            return OverriddenRow("False", *told)
        if handled is not None and handled.outcome == "Obeyed":
            return OverriddenRow("False", "OverrideEnded", handled.message or "")
        was = _overridden_before(thing)
        return OverriddenRow("False", "OverrideEnded" if was or (about in self._over) else "NoOverride")

    def _tell(self, name: Name, reason: str, note: str, once: str) -> None:
        warning = reason != "OverrideEnded"
        self._told.after.append(Tell(reason, bounded(note, LONGEST_NOTE), once, name, warning))

    def _where(self, name: Name, thing: Object) -> Where:
        kind = SERVING_LINE if name is None else PROFILE_ROLLOUT
        namespace = str(self._snapshot.line.get("metadata", {}).get("namespace", ""))
        return Where(kind.singular, namespace, name_of(thing))

    def _row_of(self, name: Name, handled: HandledOverride) -> HandledRow:
        return HandledRow(
            key=handled.key,
            line=book_line(self._snapshot.line),
            rollout=name,
            value=handled.value,
            actor=handled.actor or "",
            verified=bool(handled.actor_verified),
            reason=handled.reason or "",
            taken_at=seconds_of(handled.at) or self._now,
        )


def _by(standing: OverrideStatus) -> str:
    return str(Actor(standing.actor, standing.actor_verified))


def _note(handled: HandledOverride) -> str:
    if handled.outcome == "Refused":
        return handled.message or ""
    by = Actor(handled.actor or "", bool(handled.actor_verified))
    until = f" until {handled.expires}" if handled.expires is not None else ""
    return f"{handled.value} by {by}{until}: {handled.reason}. {handled.message}"


def _word_of(handled: HandledOverride) -> str:
    return f"{Actor(handled.actor or '', bool(handled.actor_verified))}: {handled.reason}"


def _word_in(verdict: Verdict) -> str | None:
    """`actor: reason` of the override that a verdict rests on; None where it rests on none."""
    decision = verdict.decision
    if decision.reason != Reason.OVERRIDE or not decision.sentences:
        return None
    return decision.sentences[0].removeprefix(REASON_SENTENCES[Reason.OVERRIDE]).strip()


def _has_run(seen: RolloutSeen) -> bool:
    """Whether there is a journal, though no work of this term knows it."""
    status = seen.thing.get("status")
    return isinstance(status, Mapping) and isinstance(status.get("evidence"), Mapping)


def _current(line: Object) -> str | None:
    status = line.get("status")
    return status.get("currentRollout") if isinstance(status, Mapping) else None


def _overridden_before(thing: Object) -> bool:
    """Whether the object's status says that it is overridden, or was."""
    told = [each for each in conditions_of(thing) if each.get("type") == ConditionType.OVERRIDDEN]
    return any(each.get("status") == "True" or each.get("reason") == "OverrideEnded" for each in told)
