"""Overrides: obeyed once, bound to their pair of profiles, refused with the command that does it right, ended."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from prefillgate.api.kinds.common import HandledOverride
from prefillgate.api.kinds.line_status import ServingLineStatus
from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.profile_rollout import ProfileRolloutSpec
from prefillgate.api.kinds.reasons import EVENTS, ROWS, ConditionType
from prefillgate.api.kinds.rollout_status import ProfileRolloutStatus
from prefillgate.core.gate import fold
from prefillgate.core.journal import Overridden, OverrideEnded
from prefillgate.core.judge import judge
from prefillgate.reconcile.effects import Effect, OverrideDone, RecordOverride, TakeOverride, Tell
from prefillgate.reconcile.override_words import is_new_in, keys_in_sight, owners_of
from prefillgate.reconcile.overrides import Considered, considered
from prefillgate.reconcile.snapshot import BookSeen, LineSnapshot, RolloutSeen, WorkKind, WorkSeen, WorkState
from prefillgate.report.clean import is_clean
from tests.support.journals import started

NOW = 1_796_000_000.0  # 2026-11-30T00:53:20Z
AT = "2026-11-30T00:53:20Z"
BASE, NEW, NEWER = ("sha256:" + digit * 64 for digit in "123")
ONE, TWO = "chat-22222222", "chat-33333333"
LINE_UID, ONE_UID, TWO_UID = "uid-of-line", "uid-of-one", "uid-of-two"


def words(value: str | None = "promote", reason: str | None = "looked at every answer", **more: str) -> dict[str, str]:
    """Override annotations; `more` names others by their last word (`expires`, `actor`)."""
    given = {"override": value, "override-reason": reason}
    given |= {f"override-{name}": told for name, told in more.items()}
    return {f"prefillgate.io/{name}": told for name, told in given.items() if told is not None}


def thing(name: str, uid: str, **status: Any) -> dict[str, Any]:
    """An object as an API server returns it."""
    metadata = {"name": name, "namespace": "prod", "uid": uid, "annotations": {"else": "where"}}
    return {"metadata": metadata, "status": status} if status else {"metadata": metadata}


@dataclass
class World:
    """A line and its rollouts, what the book knows, and looks at them, each carried out as the process does it."""

    line: dict[str, Any] = field(
        default_factory=lambda: thing("chat", LINE_UID, observedGeneration=1, currentRollout=ONE)
    )
    rollouts: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {ONE: thing(ONE, ONE_UID, baseline={"digest": BASE}, candidate={"digest": NEW})}
    )
    now: float = NOW
    stamped: bool = True
    taken: dict[str, Any] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)
    trouble: str | None = None
    works: tuple[WorkSeen, ...] = ()
    told: list[Tell] = field(default_factory=list)
    recorded: list[RecordOverride] = field(default_factory=list)

    def object(self, name: str | None) -> dict[str, Any]:
        """A rollout; None is the line."""
        return self.line if name is None else self.rollouts[name]

    def annotate(self, name: str | None, annotations: dict[str, str]) -> World:
        """The override annotations of an object, in the place of those it had."""
        metadata = self.object(name)["metadata"]
        kept = {key: value for key, value in metadata["annotations"].items() if "override" not in key}
        metadata["annotations"] = kept | annotations
        return self

    def snapshot(self) -> LineSnapshot:
        """The look."""
        seen = tuple(RolloutSeen(copy.deepcopy(each), None) for each in self.rollouts.values())
        keys = keys_in_sight([self.line, *self.rollouts.values()])
        book = BookSeen(handled=frozenset(self.done) & keys if not self.trouble else frozenset(), trouble=self.trouble)
        return LineSnapshot(
            now=self.now,
            line=copy.deepcopy(self.line),
            spec=None,
            rollouts=seen,
            works=self.works,
            book=book,
            actors_stamped=self.stamped,
        )

    def look(self, until: str = "done", later: float = 0.0) -> Considered:
        """Look and carry it out, up to a kill: `before`, `statuses` or `done`."""
        self.now += later
        found = considered(self.snapshot())
        steps = ("before", "statuses", "done")
        self._carry_out(found.before)
        if steps.index(until) >= 1:
            self._write(found)
        if until == "done":
            self._carry_out(found.after)
        return found

    def _write(self, found: Considered) -> None:
        for name, each in self.rollouts.items():
            standing, handled = found.standing.get(name), found.rollout_handled.get(name)
            conditions = [found.conditions[name].condition(moment(self.now), 1).model_dump(by_alias=True)]
            parts = {"override": standing, "lastHandledOverride": handled}
            each.setdefault("status", {}).update(conditions=_other_conditions(each) + conditions)
            _put(each["status"], parts)
            ProfileRolloutStatus.model_validate(each["status"])
        conditions = [found.conditions[None].condition(moment(self.now), 1).model_dump(by_alias=True)]
        self.line.setdefault("status", {}).update(conditions=conditions)
        _put(self.line["status"], {"lastHandledOverride": found.line_handled})
        ServingLineStatus.model_validate(self.line["status"])

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case TakeOverride():
                    assert not self.trouble
                    self.taken.setdefault(effect.override.key, effect.override)
                case OverrideDone():
                    assert effect.key in self.taken
                    self.done.setdefault(effect.key, effect.answer)
                case Tell():
                    if effect.once not in [each.once for each in self.told]:
                        self.told.append(effect)
                case RecordOverride():
                    self.recorded.append(effect)
                case _:
                    raise AssertionError(effect)

    def reasons(self) -> list[str]:
        """Of the events so far."""
        return [each.reason for each in self.told]

    def next_rollout(self) -> World:
        """A newer candidate takes the place of the first rollout."""
        self.rollouts[ONE]["status"].update(supersededBy=TWO, endedAt=moment(self.now))
        self.rollouts[TWO] = thing(TWO, TWO_UID, baseline={"digest": BASE}, candidate={"digest": NEWER})
        self.line["status"]["currentRollout"] = TWO
        return self


def _put(status: dict[str, Any], parts: dict[str, Any]) -> None:
    for name, value in parts.items():
        status.pop(name, None)
        if value is not None:
            status[name] = value.model_dump(by_alias=True, exclude_none=True)


def _other_conditions(each: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for c in each.get("status", {}).get("conditions", []) if c["type"] != "Overridden"]


def overriding(name: str | None = ONE, **more: str) -> World:
    """A promote override by alice on the rollout, or on the line."""
    return World().annotate(name, words(**({"actor": "alice"} | more)))


# Obeyed


def test_an_override_stands_with_who_and_why_bound_to_the_pair_of_the_rollouts_own_status() -> None:
    world = overriding()
    found = world.look()
    standing = found.standing[ONE].model_dump(by_alias=True, exclude_none=True)
    key = standing.pop("key")
    assert standing == {
        "verdict": "Promote",
        "reason": "looked at every answer",
        "actor": "alice",
        "actorVerified": True,
        "since": AT,
        "baselineDigest": BASE,
        "candidateDigest": NEW,
    }
    assert re.fullmatch(f"{ONE_UID}/[0-9a-f]{{40}}", key)
    assert found.rollout_handled[ONE].model_dump(by_alias=True, exclude_none=True) == {
        "key": key,
        "value": "promote",
        "outcome": "Obeyed",
        "at": AT,
        "reason": "looked at every answer",
        "actor": "alice",
        "actorVerified": True,
        "message": "About chat-22222222: 11111111 -> 22222222.",
    }
    assert found.line_handled is None and found.expires_at is None
    for name in (ONE, None):  # the line's condition is about its current rollout
        row = found.conditions[name]
        assert (row.status, row.reason) == ("True", "OverrideObeyed")
        assert row.detail == f"Promote by alice since {AT}: looked at every answer"


@pytest.mark.parametrize("value", ["promote", "hold", "rollback"])
def test_each_value_is_a_verdict(value: str) -> None:
    found = overriding(value=value).look()
    assert found.standing[ONE].verdict == value.capitalize()


def test_the_book_has_it_before_any_effect_and_it_is_told_once_and_done_last() -> None:
    world = overriding()
    found = world.look()
    (take,) = found.before
    assert isinstance(take, TakeOverride)
    row = take.override
    assert (row.line, row.rollout, row.value, row.actor) == (f"prod/chat/{LINE_UID}", ONE, "promote", "alice")
    assert (row.verified, row.reason, row.taken_at) == (True, "looked at every answer", NOW)
    tell, done = found.after
    assert tell == Tell(
        "OverrideObeyed",
        "promote by alice: looked at every answer. About chat-22222222: 11111111 -> 22222222.",
        f"{row.key}/Obeyed",
        ONE,
        warning=True,
    )
    assert done == OverrideDone(row.key, "Obeyed: About chat-22222222: 11111111 -> 22222222.")


def test_the_same_annotation_does_nothing_more_and_still_stands() -> None:
    world = overriding()
    first = world.look()
    for later in (1.0, 60.0, 86_400.0):
        again = world.look(later=later)
        assert (again.standing, again.rollout_handled) == (first.standing, first.rollout_handled)
        assert again.conditions == first.conditions
        assert (again.before, again.after) == ([], [])
    assert world.reasons() == ["OverrideObeyed"]


def test_one_on_the_line_is_about_its_current_rollout() -> None:
    world = overriding(None, value="hold")
    found = world.look()
    assert found.standing[ONE].verdict == "Hold"
    assert (found.standing[ONE].key or "").startswith(f"{LINE_UID}/")
    assert found.line_handled is not None and found.line_handled.outcome == "Obeyed"
    assert found.rollout_handled == {}
    (take,) = found.before
    assert isinstance(take, TakeOverride) and take.override.rollout is None
    assert [each.rollout for each in world.told] == [None]
    assert world.look().standing == found.standing


def test_whitespace_around_words_is_nobodys_meaning() -> None:
    found = overriding(value=" promote\n", reason="  why\n", expires=" 2026-12-01T00:00:00Z ").look()
    assert (found.standing[ONE].verdict, found.standing[ONE].reason) == ("Promote", "why")
    assert found.standing[ONE].expires == "2026-12-01T00:00:00Z"


def test_words_of_people_are_cut_and_made_harmless() -> None:
    world = overriding(reason="\x1b[2J\u202eso\nbe it " + "x" * 70_000, actor="a\x07lice" + "y" * 300)
    found = world.look()
    standing = found.standing[ONE]
    assert (len(standing.reason), len(standing.actor)) == (1024, 253)
    assert standing.reason.startswith("⟨ESC⟩[2J⟨U+202E⟩so ⏎ be it xxx") and standing.reason.endswith("x…")
    texts = [standing.reason, standing.actor, found.conditions[ONE].detail, *(each.note for each in world.told)]
    assert all(is_clean(text) and "\n" not in text for text in texts)
    assert len(world.told[0].note) == 1000


# Who


def test_without_the_stamp_of_admission_the_actor_is_who_manages_the_annotation_and_not_verified() -> None:
    world = overriding(actor="the-king")
    world.stamped = False
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:prefillgate.io/override": {}}}}
    others: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:prefillgate.io/rerun": {}}}}
    world.rollouts[ONE]["metadata"]["managedFields"] = [
        {"manager": "kubectl-edit", "time": "2026-11-29T00:00:00Z", "fieldsV1": fields},
        {"manager": "kubectl-annotate", "time": "2026-11-30T00:00:00Z", "fieldsV1": fields},
        {"manager": "argocd", "time": "2026-11-30T00:10:00Z", "fieldsV1": others},
        {"manager": "prefillgate", "time": "2026-11-30T00:10:00Z", "fieldsV1": fields, "subresource": "status"},
        {"manager": "broken", "time": 5, "fieldsV1": "?"},
        "broken",
    ]
    found = world.look()
    assert (found.standing[ONE].actor, found.standing[ONE].actor_verified) == ("kubectl-annotate", False)
    assert world.told[0].note.startswith("promote by kubectl-annotate (not verified): looked")
    (take,) = found.before
    assert isinstance(take, TakeOverride) and take.override.verified is False


@pytest.mark.parametrize("fields", [None, "x", [], [{"manager": "", "fieldsV1": {"f:metadata": 1}}]])
def test_where_nobody_manages_the_annotation_the_actor_is_unknown(fields: Any) -> None:
    world = overriding()
    world.stamped = False
    world.rollouts[ONE]["metadata"]["managedFields"] = fields
    assert world.look().standing[ONE].actor == "unknown"


def test_one_that_was_set_before_names_were_stamped_is_refused_where_they_are() -> None:
    world = World().annotate(ONE, words())
    found = world.look()
    assert found.standing == {}
    handled = found.rollout_handled[ONE]
    assert (handled.outcome, handled.actor, handled.actor_verified) == ("Refused", None, None)
    assert world.told[0].note == (
        "An override was refused: the actor may not override. It was set before names were stamped. Say it again: "
        f'kubectl annotate --overwrite -n prod profilerollout {ONE} prefillgate.io/override-reason="why you do it"'
    )


# Refused

ANNOTATE = f"kubectl annotate --overwrite -n prod profilerollout {ONE}"


@pytest.mark.parametrize(
    ("given", "reason", "note"),
    [
        (
            {"value": "Promote!"},
            "OverrideUnknown",
            'An override was refused: promote, hold and rollback are the values there are. "Promote!" is none of them: '
            f"{ANNOTATE} prefillgate.io/override=hold",
        ),
        (
            {"value": ""},
            "OverrideUnknown",
            'An override was refused: promote, hold and rollback are the values there are. "" is none of them: '
            f"{ANNOTATE} prefillgate.io/override=hold",
        ),
        (
            {"reason": None},
            "OverrideWithoutReason",
            f'An override was refused: it gives no reason. {ANNOTATE} prefillgate.io/override-reason="why you do it"',
        ),
        (
            {"reason": " -.\x00 "},
            "OverrideWithoutReason",
            f'An override was refused: it gives no reason. {ANNOTATE} prefillgate.io/override-reason="why you do it"',
        ),
        (
            {"expires": "tomorrow"},
            "OverrideExpired",
            'An override was refused: its expiry is past, or is no time. "tomorrow" is no time as '
            "2026-12-01T08:00:00Z: "
            f"{ANNOTATE} prefillgate.io/override-expires=2026-11-30T08:53:20Z, or "
            f"{ANNOTATE} prefillgate.io/override-expires-",
        ),
        (
            {"expires": AT},
            "OverrideExpired",
            f'An override was refused: its expiry is past, or is no time. "{AT}" is past: '
            f"{ANNOTATE} prefillgate.io/override-expires=2026-11-30T08:53:20Z, or "
            f"{ANNOTATE} prefillgate.io/override-expires-",
        ),
    ],
)
def test_a_refusal_says_how_to_do_it_right(given: dict[str, Any], reason: str, note: str) -> None:
    world = overriding(**given)
    found = world.look()
    assert found.standing == {} and found.expires_at is None
    handled = found.rollout_handled[ONE]
    assert (handled.outcome, handled.message, handled.actor) == ("Refused", note, "alice")
    (tell,) = world.told
    assert (tell.reason, tell.note, tell.rollout, tell.warning) == (reason, note, ONE, True)
    row = found.conditions[ONE]
    assert (row.status, row.reason) == ("False", reason)
    assert f"{ROWS[ConditionType.OVERRIDDEN, reason].sentence} {row.detail}" == note
    assert found.conditions[None].reason == "NoOverride"
    again = world.look(later=5.0)
    assert (again.conditions, again.before, again.after) == (found.conditions, [], [])
    assert world.done == {handled.key: f"Refused: {note}"}


def test_an_expiry_a_second_ahead_is_one() -> None:
    assert overriding(expires="2026-11-30T00:53:21Z").look().standing[ONE].expires == "2026-11-30T00:53:21Z"


def test_a_value_of_a_mile_is_told_in_a_line() -> None:
    world = overriding(value="p" * 70_000)
    assert len(world.look().rollout_handled[ONE].value) == 64
    assert "pppp… is none of them: kubectl" in world.told[0].note


def test_what_was_refused_for_want_of_a_reason_is_obeyed_once_it_has_one() -> None:
    world = World().annotate(ONE, words(reason=None, actor="alice"))
    world.look()
    found = world.annotate(ONE, words(actor="alice")).look()
    assert found.standing[ONE].verdict == "Promote"
    assert world.reasons() == ["OverrideWithoutReason", "OverrideObeyed"]
    assert len(world.done) == 2


# What it is about


def test_a_line_without_a_rollout_has_nothing_to_override() -> None:
    world = overriding(None)
    world.rollouts, world.line["status"] = {}, {"observedGeneration": 1}
    found = world.look()
    assert found.line_handled is not None and found.line_handled.outcome == "Refused"
    assert world.told[0].note == (
        "An override was refused: there is no rollout that it could be about. The line has none: nothing was "
        "decided yet. See: kubectl get -n prod pro"
    )
    assert (found.conditions[None].status, found.conditions[None].reason) == ("False", "OverrideWithoutRollout")


def test_before_the_first_look_at_an_object_its_override_waits() -> None:
    world = overriding(None)
    world.rollouts, world.line["status"] = {}, {}
    found = world.look()
    assert (found.line_handled, found.before, found.after) == (None, [], [])
    assert found.conditions[None].reason == "NoOverride"
    world.line["status"] = {"observedGeneration": 1, "currentRollout": ONE}
    assert world.look().line_handled is None  # of which the reflector has not heard yet
    world.rollouts = {ONE: thing(ONE, ONE_UID)}
    assert world.look().line_handled is None  # whose profiles are not known yet
    world.rollouts = World().rollouts
    assert world.look().standing[ONE].candidate_digest == NEW


@pytest.mark.parametrize("on", [ONE, None])
@pytest.mark.parametrize("value", ["promote", "hold", "rollback"])
@pytest.mark.parametrize("half", [{}, {"baseline": {"digest": BASE}}, {"candidate": {"digest": NEW}}])
def test_a_word_about_a_rollout_that_was_looked_at_and_compares_nothing_yet_is_refused_and_waits_for_nobody(
    on: str | None, value: str, half: dict[str, Any]
) -> None:
    world = overriding(on, value=value)
    world.rollouts[ONE]["status"] = {"observedGeneration": 1, **half}
    found = world.look()
    assert found.conditions[on].reason == "OverrideWithoutRollout"
    kind, name = ("servingline", "chat") if on is None else ("profilerollout", ONE)
    assert world.told[0].note == (
        "An override was refused: there is no rollout that it could be about. chat-22222222 compares nothing yet: "
        f"there was no candidate when it was looked at. Once it does, say it again: kubectl annotate --overwrite "
        f'-n prod {kind} {name} prefillgate.io/override={value} prefillgate.io/override-reason="why you do it"'
    )
    world.rollouts[ONE]["status"] |= {"baseline": {"digest": BASE}, "candidate": {"digest": NEWER}}
    assert world.look(later=3 * 86_400.0).standing == {}
    world.annotate(on, words(value, "why I do it", actor="alice"))
    assert world.look(later=1.0).standing[ONE].candidate_digest == NEWER


def test_a_promotion_beside_a_rerun_is_about_the_rollout_that_is_made_for_that() -> None:
    world = overriding(None)
    assert considered(world.snapshot(), "").line_handled is None
    found = considered(world.snapshot(), "chat-33333333 is not decided yet")
    assert found.standing == {} and found.line_handled is not None
    assert found.line_handled.message == (
        "An override was refused: there is no rollout that it could be about. No rollout was made for the rerun beside "
        f"it: chat-33333333 is not decided yet. The current one is {ONE}: kubectl annotate --overwrite -n prod "
        f'profilerollout {ONE} prefillgate.io/override=promote prefillgate.io/override-reason="why you do it"'
    )
    world.annotate(None, words(reason=None, actor="alice"))
    assert considered(world.snapshot(), "no").conditions[None].reason == "OverrideWithoutReason"
    for value in ("hold", "rollback"):  # what is in force now is meant
        assert considered(world.annotate(None, words(value, actor="alice")).snapshot(), "").standing
    of_rollout = overriding(ONE)
    assert considered(of_rollout.snapshot(), "no").standing[ONE].verdict == "Promote"


def test_a_rollout_that_says_in_its_spec_what_it_compares_need_not_be_looked_at_first() -> None:
    world = overriding()
    world.rollouts[ONE].pop("status")
    spec = ProfileRolloutSpec.model_validate(
        {"lineRef": {"name": "chat"}, "baseline": {"digest": BASE}, "candidate": {"digest": NEW}}
    )
    snapshot = replace(world.snapshot(), rollouts=(RolloutSeen(world.rollouts[ONE], spec),))
    standing = considered(snapshot).standing[ONE]
    assert (standing.baseline_digest, standing.candidate_digest) == (BASE, NEW)


def test_the_pair_is_told_as_the_rollouts_status_tells_it_once_images_are_resolved() -> None:
    world = overriding()
    world.look()
    world.rollouts[ONE]["status"]["candidate"] = {"digest": NEWER}
    standing = world.look(later=1.0).standing[ONE]
    assert (standing.baseline_digest, standing.candidate_digest) == (BASE, NEWER)
    del world.rollouts[ONE]["status"]["baseline"], world.rollouts[ONE]["status"]["candidate"]
    assert world.look(later=1.0).standing[ONE] == standing


def test_one_on_a_superseded_rollout_is_refused_with_the_command_for_the_current_one() -> None:
    world = World().next_rollout().annotate(ONE, words(actor="alice"))
    found = world.look()
    assert found.standing == {}
    assert found.rollout_handled[ONE].message == (
        "An override was refused: there is no rollout that it could be about. chat-22222222 was superseded. "
        f"The current one is {TWO}: kubectl annotate --overwrite -n prod profilerollout {TWO} "
        'prefillgate.io/override=promote prefillgate.io/override-reason="why you do it"'
    )
    said = World().annotate(ONE, words(actor="alice"))
    said.rollouts[ONE]["status"]["conditions"] = [_condition("Superseded", "True", "CandidateWithdrawn")]
    assert said.look().rollout_handled[ONE].outcome == "Refused"
    current = World().annotate(ONE, words(actor="alice"))
    current.rollouts[ONE]["status"]["conditions"] = [_condition("Superseded", "False", "Current")]
    assert current.look().rollout_handled[ONE].outcome == "Obeyed"


def _condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "As it is.",
        "observedGeneration": 1,
        "lastTransitionTime": AT,
    }


def test_one_on_an_ended_rollout_is_obeyed_while_that_is_the_lines_current_one() -> None:
    world = overriding(value="hold")
    world.rollouts[ONE]["status"]["endedAt"] = AT
    assert world.look().standing[ONE].verdict == "Hold"
    world = overriding()
    world.rollouts[ONE]["status"]["endedAt"] = AT
    world.line["status"]["currentRollout"] = TWO
    message = world.look().rollout_handled[ONE].message
    assert message is not None and "chat-22222222 ended, and is not the line's current rollout." in message
    del world.rollouts[ONE]["status"]["endedAt"], world.rollouts[ONE]["status"]["lastHandledOverride"]
    world.done.clear()
    message = world.look().rollout_handled[ONE].message
    assert message is not None and "chat-22222222 is not the line's current rollout. The current one is" in message
    del world.rollouts[ONE]["status"]
    assert world.look().rollout_handled == {}  # it may become the current one at this very look
    world.rollouts[ONE] = World().rollouts[ONE]
    world.annotate(ONE, words(actor="alice"))
    del world.line["status"]["currentRollout"]
    assert world.look().rollout_handled == {}  # a status that was lost


def test_a_rollout_that_is_being_deleted_is_left_alone() -> None:
    world = overriding()
    world.rollouts[ONE]["metadata"]["deletionTimestamp"] = AT
    assert world.look().rollout_handled == {}


def test_a_word_on_a_line_whose_rollout_is_being_deleted_is_not_kept_for_what_takes_its_place() -> None:
    world = overriding(None)
    world.rollouts[ONE]["metadata"]["deletionTimestamp"] = AT
    handled = world.look().line_handled
    assert handled is not None and handled.outcome == "Refused" and handled.message is not None
    assert (
        "chat-22222222 is being deleted. Once another takes its place, say it again: kubectl annotate --overwrite -n "
        "prod servingline chat prefillgate.io/override=promote" in handled.message
    )
    assert world.next_rollout().look(later=1.0).standing == {}


def test_a_rollout_that_ended_before_it_was_known_what_it_compares_has_no_pair() -> None:
    world = overriding()
    world.rollouts[ONE]["status"] = {"endedAt": AT}
    message = world.look().rollout_handled[ONE].message
    assert message is not None and "chat-22222222 ended before it was known what it compares." in message


def test_the_next_candidate_inherits_nothing_and_that_is_said_once() -> None:
    world = overriding(None)
    world.look()
    world.next_rollout()
    found = world.look()
    assert TWO not in found.standing
    row = found.conditions[None]
    assert (row.status, row.reason) == ("False", "OverrideEnded")
    assert row.detail == "About chat-22222222: 11111111 -> 22222222."
    assert found.conditions[TWO].reason == "NoOverride"
    assert world.told[-1] == Tell(
        "OverrideNotPassedOn",
        f"About chat-22222222: 11111111 -> 22222222. It says nothing of {TWO}. To override that one too: kubectl "
        f"annotate --overwrite -n prod profilerollout {TWO} prefillgate.io/override=promote "
        'prefillgate.io/override-reason="why you do it"',
        world.told[-1].once,
        None,
        warning=True,
    )
    world.look()
    assert world.reasons() == ["OverrideObeyed", "OverrideNotPassedOn"]
    world.annotate(None, {}).look(later=1.0)
    again = world.annotate(None, words(actor="alice")).look(later=1.0)
    assert again.standing[TWO].candidate_digest == NEWER
    assert again.standing[TWO].key == f"{found.line_handled.key if found.line_handled else ''}/1"


def test_the_newer_of_two_people_goes_before_the_older() -> None:
    world = overriding(value="hold")
    world.look()
    found = world.annotate(None, words("rollback", "it burns", actor="bob")).look(later=1.0)
    assert (found.standing[ONE].verdict, found.standing[ONE].actor) == ("Rollback", "bob")
    found = world.annotate(ONE, words("promote", "no it does not", actor="alice")).look(later=1.0)
    assert (found.standing[ONE].verdict, found.standing[ONE].actor) == ("Promote", "alice")
    assert world.reasons() == ["OverrideObeyed"] * 3
    ended = world.annotate(ONE, {}).look(later=1.0)
    assert ended.standing == {}  # what it took the place of does not come back
    assert ended.conditions[ONE].reason == "OverrideEnded"


def test_of_two_that_are_seen_at_once_the_rollouts_own_stands() -> None:
    world = overriding(None, value="rollback").annotate(ONE, words("hold", "wait", actor="bob"))
    found = world.look()
    assert found.standing[ONE].verdict == "Hold"
    assert found.line_handled is not None and found.line_handled.outcome == "Obeyed"
    assert len(world.done) == 2
    assert world.look(later=1.0).standing == found.standing


# Its end


def test_taking_the_annotation_away_ends_it() -> None:
    world = overriding()
    world.look()
    found = world.annotate(ONE, {}).look(later=10.0)
    assert found.standing == {}
    handled = found.rollout_handled[ONE]
    assert (handled.outcome, handled.at) == ("Withdrawn", "2026-11-30T00:53:30Z")
    assert handled.message == "The override was taken away or is over. It was taken away."
    row = found.conditions[ONE]
    assert (row.status, row.reason, row.detail) == ("False", "OverrideEnded", "It was taken away.")
    assert world.told[-1].reason == "OverrideEnded" and not world.told[-1].warning
    assert world.told[-1].note == "It was taken away. promote by alice: looked at every answer"
    again = world.look(later=10.0)
    assert again.rollout_handled[ONE] == handled and again.conditions == found.conditions
    assert (again.before, again.after) == ([], [])


def test_the_line_and_the_rollout_both_say_that_the_lines_override_is_over() -> None:
    world = overriding(None)
    world.look()
    found = world.annotate(None, {}).look(later=10.0)
    assert found.conditions[ONE].reason == found.conditions[None].reason == "OverrideEnded"
    assert world.told[-1].rollout == ONE
    again = world.look(later=10.0)
    assert again.conditions == found.conditions and again.after == []


def test_the_same_words_count_anew_once_they_were_gone() -> None:
    world = overriding()
    key = world.look().standing[ONE].key
    for number in (1, 2):
        world.annotate(ONE, {}).look(later=1.0)
        found = world.annotate(ONE, words(actor="alice")).look(later=1.0)
        assert found.standing[ONE].key == f"{key}/{number}"
    assert len(world.done) == 3
    assert world.reasons() == ["OverrideObeyed", "OverrideEnded", "OverrideObeyed", "OverrideEnded", "OverrideObeyed"]


def test_the_same_words_count_anew_after_others_though_nobody_saw_them_gone() -> None:
    world = overriding(value="hold")
    keys = [world.look().standing[ONE].key]
    for value in ("rollback", "hold", "rollback", "hold"):
        assert is_new_in(world.annotate(ONE, words(value, actor="alice")).rollouts[ONE])
        found = world.look(later=1.0)
        assert found.standing[ONE].verdict == value.capitalize()
        assert (found.conditions[ONE].status, found.conditions[ONE].reason) == ("True", "OverrideObeyed")
        assert world.look(later=1.0).standing == found.standing
        keys.append(found.standing[ONE].key)
    assert len(set(keys)) == len(world.done) == 5
    assert world.reasons().count("OverrideObeyed") == 5


def test_the_same_words_count_anew_where_others_came_and_went_between() -> None:
    world = overriding(value="hold")
    world.look()
    for value in (None, "rollback", None):
        given = {} if value is None else words(value, actor="alice")
        world.annotate(ONE, given).look(later=1.0)
    found = world.annotate(ONE, words("hold", actor="alice")).look(later=1.0)
    assert found.standing[ONE].verdict == "Hold"


def test_the_same_words_by_another_person_are_another_override() -> None:
    world = overriding()
    first = world.look()
    found = world.annotate(ONE, words(actor="bob")).look(later=1.0)
    assert found.standing[ONE].actor == "bob"
    assert found.standing[ONE].key != first.standing[ONE].key


def test_words_that_became_wrong_end_what_stood() -> None:
    world = overriding()
    world.look()
    found = world.annotate(ONE, words("promot", actor="alice")).look(later=1.0)
    assert found.standing == {}
    assert found.conditions[ONE].reason == "OverrideUnknown"
    assert sorted(world.reasons()) == ["OverrideEnded", "OverrideObeyed", "OverrideUnknown"]
    note = next(each.note for each in world.told if each.reason == "OverrideEnded")
    assert note.startswith("It was written anew.")


def test_an_override_ends_at_its_expiry_to_the_second() -> None:
    world = overriding(expires="2026-11-30T00:54:20Z")
    found = world.look()
    assert found.expires_at == NOW + 60
    assert (
        found.conditions[ONE].detail
        == f"Promote by alice since {AT} until 2026-11-30T00:54:20Z: looked at every answer"
    )
    assert ONE in world.look(later=59.9).standing
    found = world.look(later=0.1)
    assert found.standing == {} and found.expires_at is None
    handled = found.rollout_handled[ONE]
    assert (handled.outcome, handled.message) == ("Expired", "The override was taken away or is over. It expired.")
    assert (found.conditions[ONE].reason, found.conditions[ONE].detail) == ("OverrideEnded", "It expired.")
    assert world.told[-1].note == "It expired. promote by alice: looked at every answer"
    assert world.look(later=60.0).after == []
    assert world.annotate(ONE, {}).look().rollout_handled[ONE].outcome == "Withdrawn"


def test_a_later_expiry_lets_it_stand_on() -> None:
    world = overriding(expires="2026-11-30T00:54:20Z")
    world.look()
    found = world.annotate(ONE, words(actor="alice", expires="2026-11-30T01:54:20Z")).look(later=30.0)
    assert found.expires_at == NOW + 3660
    assert ONE in world.look(later=100.0).standing


def test_the_first_of_several_to_end_is_told() -> None:
    world = overriding(expires="2026-11-30T02:00:00Z")
    world.look()
    world.next_rollout().annotate(TWO, words("hold", actor="bob", expires="2026-11-30T01:00:00Z"))
    assert world.look().expires_at == NOW + 400


def test_a_promotion_that_was_carried_out_stays_told_when_its_annotation_goes_or_its_time_comes() -> None:
    for ending in ({}, words(actor="alice", expires="2026-11-30T00:54:20Z")):
        world = overriding(expires="2026-11-30T00:54:20Z")
        first = world.look()
        world.rollouts[ONE]["status"]["conditions"] += [_condition("Succeeded", "True", "Promoted")]
        found = world.annotate(ONE, ending).look(later=100.0)
        assert found.standing == first.standing
        assert found.conditions[ONE].status == "True"
        assert world.reasons() == ["OverrideObeyed"]
    found = world.annotate(ONE, words("rollback", "it burns", actor="bob")).look(later=1.0)
    assert found.standing[ONE].verdict == "Rollback"
    assert world.annotate(ONE, {}).look(later=1.0).standing == {}  # of a permission nothing stays


def test_an_override_ends_with_its_rollout_when_something_else_takes_its_place() -> None:
    world = overriding()
    world.look()
    world.rollouts[ONE]["status"]["conditions"] += [_condition("Superseded", "True", "CandidateWithdrawn")]
    found = world.look(later=1.0)
    assert found.standing == {} and found.rollout_handled[ONE].outcome == "Obeyed"
    row = found.conditions[ONE]
    assert (row.reason, row.detail) == ("OverrideEnded", "About chat-22222222: 11111111 -> 22222222.")
    assert world.told[-1].note == (
        "Something else took the place of the rollout. promote by alice: looked at every answer"
    )
    assert world.look(later=1.0).after == []


def test_what_was_refused_and_taken_away_is_no_override() -> None:
    world = overriding(value="x")
    world.look()
    found = world.annotate(ONE, {}).look(later=1.0)
    assert (found.rollout_handled[ONE].outcome, found.rollout_handled[ONE].message) == ("Withdrawn", None)
    assert found.conditions[ONE].reason == "NoOverride"
    assert world.reasons() == ["OverrideUnknown"]


# Kills, restarts, a store that is away


@pytest.mark.parametrize("killed_after", ["before", "statuses"])
@pytest.mark.parametrize("on", [ONE, None])
def test_a_kill_at_any_moment_leaves_nothing_undone_and_nothing_twice(killed_after: str, on: str | None) -> None:
    world = overriding(on)
    world.look(until=killed_after)
    assert world.done == {}
    found = world.look(later=7.0)
    assert found.standing[ONE].since == (AT if killed_after == "statuses" else "2026-11-30T00:53:27Z")
    assert world.reasons() == ["OverrideObeyed"]
    assert set(world.done) == set(world.taken) and len(world.done) == 1
    assert world.taken[found.standing[ONE].key or ""].taken_at == NOW
    assert world.look().after == []


def test_a_rollout_whose_status_was_written_before_the_kill_keeps_since_when_it_stands() -> None:
    world = overriding(None)
    world.look(until="statuses")
    del world.line["status"]["lastHandledOverride"]
    found = world.look(later=7.0)
    assert found.standing[ONE].since == AT


def test_a_refusal_is_told_after_a_kill_too() -> None:
    world = overriding(value="x")
    world.look(until="statuses")
    world.look(later=1.0)
    assert world.reasons() == ["OverrideUnknown"] and len(world.done) == 1


def test_an_override_is_obeyed_while_the_store_is_away_and_kept_once_it_is_back() -> None:
    world = overriding()
    world.trouble = "no route to host"
    found = world.look()
    assert found.standing[ONE].verdict == "Promote" and found.before == []
    assert world.reasons() == ["OverrideObeyed"] and world.done == {}
    world.look(later=600.0)
    world.trouble = None
    found = world.look(later=1.0)
    assert [type(each) for each in found.before] == [TakeOverride]
    assert world.taken[found.standing[ONE].key or ""].taken_at == NOW
    assert set(world.done) == {found.standing[ONE].key}
    assert world.reasons() == ["OverrideObeyed"]


def test_one_that_ended_while_the_store_was_away_is_kept_as_well() -> None:
    world = overriding()
    world.trouble = "no route to host"
    world.look()
    world.annotate(ONE, {}).look(later=1.0)
    world.trouble = None
    world.look(later=1.0)
    assert list(world.done.values()) == ["Withdrawn: The override was taken away or is over. It was taken away."]
    assert world.reasons() == ["OverrideObeyed", "OverrideEnded"]


def test_a_status_that_was_lost_gives_no_second_effect() -> None:
    world = overriding()
    world.look()
    world.rollouts[ONE]["status"] = {"baseline": {"digest": BASE}, "candidate": {"digest": NEW}}
    found = world.look(later=1.0)
    assert (found.standing, found.rollout_handled, found.before, found.after) == ({}, {}, [], [])
    row = found.conditions[ONE]
    assert (row.status, row.reason) == ("False", "OverrideEnded")
    assert row.detail.startswith("These words were dealt with already, and do not count again.")
    assert row.detail.endswith(f'{ANNOTATE} prefillgate.io/override-reason="why you do it"')
    assert world.annotate(ONE, words(reason="once more", actor="alice")).look(later=1.0).standing[ONE]


def test_a_status_that_nobody_can_read_is_as_good_as_none() -> None:
    world = overriding()
    world.rollouts[ONE]["status"] |= {"override": {"verdict": 5}, "lastHandledOverride": "x"}
    assert world.look().standing[ONE].verdict == "Promote"
    world.line = {"metadata": {"uid": LINE_UID}}
    world.rollouts = {}
    assert considered(replace(world.snapshot(), line={})).conditions[None].reason == "NoOverride"


def test_an_override_of_a_controller_that_named_no_annotation_stands_until_its_expiry() -> None:
    world = overriding(expires="2026-11-30T00:54:20Z")
    world.look()
    del world.rollouts[ONE]["status"]["override"]["key"]
    world.annotate(ONE, {})
    assert ONE in world.look(later=1.0).standing
    assert world.look(later=60.0).standing == {}


# The journal of the run


def work(*events: Any, state: WorkState = WorkState.RUNNING) -> WorkSeen:
    """The work of the rollout, its verdict recomputed from its journal."""
    plan = started().plan
    verdict = judge(fold((plan, *events)))
    return WorkSeen(ONE_UID, WorkKind.JUDGE, state, NOW, verdict=verdict)


def test_the_journal_has_what_stands_until_the_verdict_shows_it() -> None:
    world = overriding()
    world.works = (work(),)
    for _ in range(2):
        world.look(later=1.0)
    since = NOW + 1
    event = Overridden(since, "promote", "alice", "looked at every answer")
    assert world.recorded == [RecordOverride(ONE_UID, event)] * 2  # the same to the bit: written once
    world.works = (work(event),)
    world.look(later=1.0)
    assert len(world.recorded) == 2


def test_who_is_not_verified_is_no_verified_person_in_the_journal_either() -> None:
    world = overriding()
    world.stamped, world.works = False, (work(),)
    world.look()
    assert isinstance(world.recorded[0].event, Overridden) and world.recorded[0].event.actor == "unknown (not verified)"


def test_another_persons_word_is_recorded_though_it_says_the_same() -> None:
    world = overriding()
    world.look()
    world.works = (work(Overridden(NOW, "promote", "alice", "looked at every answer")),)
    world.annotate(ONE, words(actor="bob")).look(later=1.0)
    assert [each.event for each in world.recorded] == [
        Overridden(NOW + 1, "promote", "bob", "looked at every answer"),
    ]


@pytest.mark.parametrize("how", ["taken away", "expired", "written anew"])
def test_the_end_of_an_override_is_recorded_so_that_the_evidence_decides_again(how: str) -> None:
    world = overriding(expires="2026-11-30T00:54:20Z")
    world.look()
    event = Overridden(NOW, "promote", "alice", "looked at every answer")
    world.works = (work(event),)
    world.look(later=1.0)
    assert world.recorded == []
    given = {"taken away": {}, "expired": None, "written anew": words("x", actor="alice")}[how]
    if given is not None:
        world.annotate(ONE, given)
    found = world.look(later=59.0 if given is None else 9.0)
    (recorded,) = [each for each in found.before if isinstance(each, RecordOverride)]
    ends = NOW + (60 if how == "expired" else 10)
    assert recorded == RecordOverride(ONE_UID, OverrideEnded(ends, f"It {'was ' if how != 'expired' else ''}{how}."))
    again = world.look(later=1.0)  # the journal has not got it yet
    repeated = [each for each in again.before if isinstance(each, RecordOverride)]
    assert repeated == ([] if how == "written anew" else [recorded])
    world.works = (work(event, recorded.event),)
    found = world.look(later=1.0)
    assert [each for each in found.before if isinstance(each, RecordOverride)] == []


def test_the_end_of_a_lines_override_is_recorded_after_a_kill_too() -> None:
    world = overriding(None)
    world.look()
    world.works = (work(Overridden(NOW, "promote", "alice", "looked at every answer")),)
    world.annotate(None, {})
    world.look(later=1.0, until="statuses")
    found = world.look(later=1.0)
    (recorded,) = [each for each in found.before if isinstance(each, RecordOverride)]
    assert recorded.event == OverrideEnded(NOW + 1, "It was taken away.")


def test_a_word_that_a_person_wrote_into_the_store_by_hand_is_left_there() -> None:
    world = World()
    world.works = (work(Overridden(NOW, "promote", "carol", "by prefillgate override")),)
    assert world.look().before == []
    world = overriding()
    world.look()
    world.works = (work(Overridden(NOW, "promote", "carol", "by prefillgate override")),)
    world.annotate(ONE, {})
    assert [each for each in world.look(later=1.0).before if isinstance(each, RecordOverride)] == []


def test_a_run_that_no_work_of_this_term_knows_is_told_until_its_verdict_shows_it_and_only_then_it_is_done() -> None:
    world = overriding()
    world.rollouts[ONE]["status"]["evidence"] = {"store": "gate.db", "run": "r-7", "rows": 5}
    event = Overridden(NOW, "promote", "alice", "looked at every answer")
    for number in range(1, 3):
        world.look(later=number - 1.0)
        assert [each.event for each in world.recorded] == [event] * number
        assert world.done == {} and world.reasons() == ["OverrideObeyed"]
    world.works = (work(event, state=WorkState.ENDED),)
    world.look(later=1.0)
    assert len(world.recorded) == 2 and len(world.done) == 1
    world.works = ()  # the next term
    world.look(later=1.0)
    assert len(world.recorded) == 2
    world.annotate(ONE, {}).look(later=1.0)
    world.look(later=1.0)
    assert [each.event for each in world.recorded[2:]] == [OverrideEnded(NOW + 4, "It was taken away.")]


def test_what_was_never_measured_has_no_journal() -> None:
    world = overriding()
    world.look()
    world.annotate(ONE, {}).look(later=1.0)
    assert world.recorded == []


# All there is


def test_every_reason_that_overrides_may_have_can_come() -> None:
    reasons = {reason for kind, reason in ROWS if kind is ConditionType.OVERRIDDEN}
    come = {
        found.conditions[ONE].reason
        for found in (
            World().look(),
            overriding().look(),
            overriding(value="x").look(),
            overriding(reason=None).look(),  # type: ignore[arg-type]
            overriding(expires="x").look(),
            World().annotate(ONE, words()).look(),
            World().next_rollout().annotate(ONE, words(actor="alice")).look(),
        )
    }
    world = overriding()
    world.look()
    come.add(world.annotate(ONE, {}).look().conditions[ONE].reason)
    assert come == reasons
    assert "OverrideNotPassedOn" in EVENTS


def test_the_keys_to_ask_the_book_about_are_those_dealt_with_and_those_to_come() -> None:
    world = overriding()
    assert world.taken == {}
    keys = keys_in_sight([world.line, *world.rollouts.values()])
    world.look()
    assert keys == set(world.taken)
    world.annotate(ONE, words("hold", actor="alice"))
    later = keys_in_sight([world.line, *world.rollouts.values()])
    world.look()
    assert later == set(world.taken)
    assert keys_in_sight([{}, {"metadata": {"annotations": {"prefillgate.io/override-reason": "x"}}}]) == frozenset()


def test_an_annotation_longer_than_a_status_holds_has_a_key_that_fits() -> None:
    world = overriding()
    world.rollouts[ONE]["metadata"]["uid"] = "u" * 64
    for _ in range(12):
        world.look(later=1.0)
        world.annotate(ONE, {}).look(later=1.0)
        world.annotate(ONE, words(actor="alice"))
    key = world.look().standing[ONE].key or ""
    assert key.endswith("/12") and len(key) <= 128
    assert HandledOverride.model_validate(world.rollouts[ONE]["status"]["lastHandledOverride"]).key == key


def test_what_is_kept_of_managed_fields_is_who_wrote_the_override_and_when() -> None:
    fields: dict[str, Any] = {
        "f:metadata": {"f:annotations": {"f:prefillgate.io/override": {}, "f:else": {}}},
        "f:spec": {"f:x": {}},
    }
    mine = {"manager": "kubectl-annotate", "operation": "Update", "time": AT, "fieldsV1": fields}
    kept = owners_of({"metadata": {"managedFields": [mine, {"manager": "other", "fieldsV1": {"f:spec": {}}}]}})
    owned: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:prefillgate.io/override": {}}}}
    assert kept == [{"manager": "kubectl-annotate", "time": AT, "fieldsV1": owned}]
    assert owners_of({"metadata": {}}) == []
    world = overriding()
    world.stamped = False
    world.rollouts[ONE]["metadata"]["managedFields"] = kept
    assert world.look().standing[ONE].actor == "kubectl-annotate"


def test_an_override_is_new_until_it_was_dealt_with() -> None:
    world = overriding()
    assert is_new_in(world.rollouts[ONE]) and not is_new_in(world.line)
    world.look()
    assert not is_new_in(world.rollouts[ONE])
    assert is_new_in(world.annotate(ONE, words("hold", actor="alice")).rollouts[ONE])
    world.annotate(ONE, {}).look()
    assert not is_new_in(world.rollouts[ONE])
    assert is_new_in(world.annotate(ONE, words("hold", actor="alice")).rollouts[ONE])
