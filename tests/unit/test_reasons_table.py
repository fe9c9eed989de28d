"""The table of reasons: every condition and reason there is, each with its sentence, and no other way to write one."""

from __future__ import annotations

import re

import pytest

from prefillgate.api.kinds.common import ConditionModel
from prefillgate.api.kinds.names import ALL_NAMES
from prefillgate.api.kinds.reasons import (
    CONDITIONS_OF,
    EVENTS,
    LONGEST_MESSAGE,
    ROWS,
    ConditionType,
    condition_of,
    merged,
    saying,
)
from prefillgate.core.decision import ERRORS, Reason
from prefillgate.core.sentences import REASON_SENTENCES
from tests.support.kinds import OF_KIND, schema_of

DECISIONS = (ConditionType.PROMOTION_ALLOWED, ConditionType.ROLLBACK_ALLOWED)
AT, LATER = "2026-11-30T10:00:00Z", "2026-11-30T11:00:00Z"


def reasons_of(kind: ConditionType, status: str) -> set[str]:
    """Reasons with which a condition may have a status."""
    return {row.reason for row in ROWS.values() if row.type is kind and status in row.statuses}


def test_every_kind_has_its_conditions_and_every_condition_is_some_kinds() -> None:
    assert set(CONDITIONS_OF) == {names.kind for names in ALL_NAMES}
    assert {each for kinds in CONDITIONS_OF.values() for each in kinds} == set(ConditionType)
    for kind, conditions in CONDITIONS_OF.items():
        assert len(set(conditions)) == len(conditions)
        most = schema_of(kind)["properties"]["status"]["properties"]["conditions"]["maxItems"]
        assert len(conditions) <= most
    assert set(CONDITIONS_OF) == set(OF_KIND)


@pytest.mark.parametrize("kind", ConditionType)
def test_a_condition_can_hold_and_not_hold(kind: ConditionType) -> None:
    assert reasons_of(kind, "True") and reasons_of(kind, "False")


def test_every_reason_is_one_word_with_a_sentence_of_its_own_in_its_condition() -> None:
    for (kind, reason), row in ROWS.items():
        assert (row.type, row.reason) == (kind, reason)
        assert re.fullmatch("[A-Z][A-Za-z]{2,62}", reason)
        assert re.fullmatch(r"[A-Z][^\n]{10,}\.", row.sentence)
        assert row.statuses and set(row.statuses) <= {"True", "False", "Unknown"}
    for kind in ConditionType:
        sentences = [row.sentence for row in ROWS.values() if row.type is kind]
        assert len(set(sentences)) == len(sentences), kind


def test_the_reasons_of_the_decision_are_those_of_the_two_permissions_in_the_same_words() -> None:
    beside = {"DigestMismatch", "NotAccepted", "NotStarted", "Superseded", "DryRun", "NoRollout"}
    for kind in DECISIONS:
        assert {reason for (k, reason) in ROWS if k is kind} == {str(reason) for reason in Reason} | beside
        for reason, sentence in REASON_SENTENCES.items():
            assert ROWS[kind, reason].sentence == sentence


def test_promotion_and_rollback_are_allowed_for_the_reasons_of_the_rules_alone() -> None:
    assert reasons_of(ConditionType.PROMOTION_ALLOWED, "True") == {"AcceptanceReached", "Override"}
    allowed = {"RegressionConfirmed", "CandidateUnavailable", "AlreadyDecided", "Override"}
    assert reasons_of(ConditionType.ROLLBACK_ALLOWED, "True") == allowed
    for kind in DECISIONS:
        assert ROWS[kind, "Override"].statuses == ("True", "False")
        assert reasons_of(kind, "Unknown") == set()


def test_an_error_of_the_measurement_says_that_it_could_not_measure() -> None:
    told = {reason for reason in Reason if ROWS[DECISIONS[0], reason].sentence.startswith("Could not measure: ")}
    assert told == ERRORS
    assert all(ROWS[DECISIONS[0], reason].warning for reason in ERRORS)
    assert not ROWS[DECISIONS[0], Reason.ACCEPTANCE_REACHED].warning
    assert ROWS[ConditionType.OVERRIDDEN, "OverrideWithoutReason"].warning
    assert not ROWS[ConditionType.ACCEPTED, "Accepted"].warning


def test_events_beside_conditions_have_reasons_and_sentences_of_their_own() -> None:
    assert not set(EVENTS) & {reason for _, reason in ROWS}
    for reason, row in EVENTS.items():
        assert re.fullmatch("[A-Z][A-Za-z]+", reason) and re.fullmatch(r"[A-Z].*\.", row.sentence)


# Writing one


def test_a_condition_has_the_sentence_of_its_row() -> None:
    made = condition_of(ConditionType.ACCEPTED, "False", "PolicyNotFound", at=AT, generation=3)
    assert made.model_dump(by_alias=True) == {
        "type": "Accepted",
        "status": "False",
        "observedGeneration": 3,
        "lastTransitionTime": AT,
        "reason": "PolicyNotFound",
        "message": "The PromotionPolicy that it refers to is not there.",
    }


@pytest.mark.parametrize(
    ("status", "reason"), [("True", "PolicyNotFound"), ("False", "Tired"), ("Unknown", "Accepted")]
)
def test_what_stands_in_no_row_cannot_be_written(status: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"Accepted={status} with reason {reason} stands in no row"):
        condition_of(ConditionType.ACCEPTED, status, reason, at=AT, generation=1)  # type: ignore[arg-type]


def made(status: str, at: str, reason: str = "Alarm", generation: int = 1) -> ConditionModel:
    """AlarmRaised, as a test wants it."""
    return condition_of(ConditionType.ALARM_RAISED, status, reason, at=at, generation=generation)  # type: ignore[arg-type]


def test_a_detail_follows_the_sentence_and_is_cut_to_what_a_message_holds() -> None:
    sentence = made("True", AT).message
    assert saying(made("True", AT), "2 bad of 14.").message == f"{sentence} 2 bad of 14."
    assert saying(made("True", AT), "").message == sentence
    assert saying(made("True", AT), "a\x1b[2J\nb").message == f"{sentence} a\\u001b[2J\\u000ab"
    room = LONGEST_MESSAGE - len(sentence) - 1
    assert saying(made("True", AT), "x" * room).message == f"{sentence} {'x' * room}"
    longest = saying(made("True", AT), "x" * (room + 1)).message
    assert (len(longest), longest[-2:]) == (LONGEST_MESSAGE, "x…")
    most = schema_of("ServingLine")["properties"]["status"]["properties"]["conditions"]["items"]["properties"]
    assert most["message"]["maxLength"] == LONGEST_MESSAGE


def test_a_transition_is_a_change_of_status_and_of_nothing_else() -> None:
    before = [made("False", AT, "NoAlarm")]
    (same,) = merged(before, [made("False", LATER, "AlarmAnswered", generation=2)])
    assert (same.last_transition_time, same.reason, same.observed_generation) == (AT, "AlarmAnswered", 2)
    (other,) = merged(before, [made("True", LATER)])
    assert other.last_transition_time == LATER
    (new,) = merged([], [made("True", LATER)])
    assert new.last_transition_time == LATER


def test_conditions_keep_their_order_and_those_that_are_gone_go() -> None:
    accepted = condition_of(ConditionType.ACCEPTED, "True", "Accepted", at=AT, generation=1)
    assert [each.type for each in merged([made("True", AT)], [accepted])] == ["Accepted"]
    assert [each.type for each in merged([], [made("True", AT), accepted])] == ["AlarmRaised", "Accepted"]
