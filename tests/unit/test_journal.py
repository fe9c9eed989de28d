"""The journal's events: what a fact holds when nothing more is known of it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import get_args

import pytest

from prefillgate.core.acceptance import STANDARD
from prefillgate.core.cells import Cell
from prefillgate.core.journal import (
    OUT_OF_TURN,
    BaselineShown,
    CaseRef,
    CellMeasured,
    CheckOutcome,
    Difference,
    EpochSeen,
    Event,
    Planned,
    Purpose,
    ReplicateAborted,
    SeparationKept,
    Texts,
)


def test_a_case_is_greedy_and_without_a_token_limit_unless_it_says_so() -> None:
    case = CaseRef("c", "sha", 10)
    assert (case.max_tokens, case.greedy) == (None, True)


def test_a_difference_is_declared_unless_it_says_so() -> None:
    assert Difference("KV cache", "-ctk", "f16", "q8_0").declared is True


def test_a_plan_begins_with_the_first_replicate() -> None:
    plan = Planned("run", 0.0, 7, STANDARD, (), "set", "sha", "http://b", "http://c")
    assert (plan.first_replicate, plan.differences) == (1, ())


def test_an_epoch_tells_nothing_it_was_not_told() -> None:
    seen = EpochSeen("baseline", "e1", 0.0, "llama.cpp", None, None, False, None, False)
    assert (seen.findings, seen.weights, seen.context_tokens, seen.settings) == ((), None, None, ())
    assert seen.access_findings == ()


def test_a_measured_cell_is_a_first_attempt_in_the_first_round() -> None:
    event = CellMeasured(0, Cell("candidate", "c"), Purpose.SCREEN)
    assert (event.round, event.attempt) == (0, 1)
    unknown = {field.name for field in fields(event) if getattr(event, field.name) is None}
    assert unknown == {
        "pair",
        "seed",
        "nonce",
        "reason",
        "detail",
        "http_status",
        "place",
        "time_to_first_token_ms",
        "draft_tokens",
        "draft_accepted_tokens",
        "reasoning_tokens",
        "retractions",
    }


def test_words_that_are_not_given_are_empty() -> None:
    assert CheckOutcome("words", "1", None).detail == ""
    assert SeparationKept(1, 0.0, "gap").detail == ""
    assert Texts() == Texts("", "", "", "", "")


def test_no_event_can_be_changed() -> None:
    for kind in get_args(Event):
        assert kind.__dataclass_params__.frozen is True, kind
    with pytest.raises(FrozenInstanceError):
        ReplicateAborted(1, 0.0, "deadline").why = "budget"  # type: ignore[misc]


def test_no_event_holds_a_verdict_or_a_count_of_this_run() -> None:
    of_this_run = (kind for kind in get_args(Event) if kind is not BaselineShown)  # its counts are an earlier run's
    names = {field.name for kind in of_this_run for field in fields(kind)}
    assert not names & {"decision", "promotion", "rollback", "k", "n", "units", "e_value", "prefills", "ending"}


def test_what_journals_in_stores_hold_of_places_and_schedules_stays_as_it_is() -> None:
    assert OUT_OF_TURN == -1
    plan = Planned("run", 0.0, 1, STANDARD, (CaseRef("a", "sha", 1),), "set", "sha", None, "http://c")
    assert plan.scheduled is True
