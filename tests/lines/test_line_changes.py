"""What `watch` says: each transition once, the answer last, and the end only where there is one."""

from __future__ import annotations

from typing import Any

import pytest

from prefillgate.report.line_changes import answer, changes
from prefillgate.report.line_view import LineView, view_of
from tests.support.lines import ROLLOUT, condition, decided, rollout, serving_line

RUNNING = condition("Succeeded", "Unknown", "Running")
SCREENING = condition("Screened", "False", "Screening")


def seen(*conditions: Any, name: str = ROLLOUT, **status: Any) -> LineView:
    of = rollout(name, conditions=list(conditions), **{"decision": None, "prefills": None, **status})
    of["spec"]["differences"] = ["tensor split 3,1 -> 2,2"]
    return view_of(serving_line(currentRollout=name), of, None, 0.0)


def test_at_first_it_is_told_where_the_line_stands_and_what_is_not_well() -> None:
    ill = condition("EndpointsReady", "False", "NoReadyPods")
    well = condition("Accepted", "True", "Accepted")
    assert changes(None, seen(well, ill, SCREENING)) == [
        f"rollout {ROLLOUT}: tensor split 3,1 -> 2,2",
        "EndpointsReady False (NoReadyPods): An arm has no Ready pod.",
        "Screened False (Screening): The first collection is running.",
    ]


def test_afterwards_only_what_is_another_than_before_is_told() -> None:
    before = seen(SCREENING, RUNNING)
    assert changes(before, seen(SCREENING, RUNNING)) == []
    ended = condition("Screened", "True", "ScreenEnded")
    assert changes(before, seen(ended, RUNNING)) == ["Screened True (ScreenEnded): The first collection has ended."]
    waiting = condition("Screened", "False", "WaitingForIdle")
    assert changes(before, seen(waiting, RUNNING)) == [
        "Screened False (WaitingForIdle): The server in production is in use."
    ]


def test_prefills_are_told_as_they_come_and_with_the_answer() -> None:
    before = seen(RUNNING, prefills="0 bad of 8")
    assert changes(before, seen(RUNNING, prefills="0 bad of 16")) == ["fresh prefills of the candidate: 0 bad of 16"]
    assert changes(before, seen(RUNNING, prefills="0 bad of 8")) == []
    done = seen(RUNNING, prefills="0 bad of 32", decision=decided("Promote", "AcceptanceReached"))
    assert changes(before, done) == [
        "PROMOTE (AcceptanceReached, 0 bad of 32); promotion allowed, rollback refused: Promote it is."
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"verdict": "Hold"},
        {"promotion": "Blocked"},
        {"rollback": "Allowed"},
        {"reason": "Override"},
    ],
)
def test_an_answer_that_changed_in_any_word_is_told_again(other: dict[str, str]) -> None:
    first = decided("Promote", "AcceptanceReached")
    assert changes(seen(decision=first), seen(decision={**first, "sentences": ["In other words."]})) == []
    assert len(changes(seen(decision=first), seen(decision={**first, **other}))) == 1


def test_a_newer_rollout_is_told_with_its_differences_and_its_own_answer() -> None:
    same = decided("Continue", "MoreEvidenceNeeded")
    before, now = seen(SCREENING, decision=same), seen(SCREENING, name="chat-2", decision=same)
    assert changes(before, now) == [
        "rollout chat-2: tensor split 3,1 -> 2,2",
        "CONTINUE (MoreEvidenceNeeded); promotion blocked, rollback refused: Continue it is.",
    ]


def test_a_line_without_a_rollout_says_so_once() -> None:
    none = view_of(serving_line(currentRollout=None, candidate=None), None, None, 0.0)
    assert changes(None, none) == ["there is no rollout yet: no new candidate was seen"]
    assert changes(none, none) == []
    waits = view_of(serving_line(currentRollout=None), None, None, 0.0)
    (told,) = changes(None, waits)
    assert told.startswith("there is no rollout yet: the candidate ") and told.endswith(" is not judged yet")


def test_a_doubt_is_told_when_it_arises() -> None:
    older = serving_line()
    older["metadata"]["generation"] = 2
    before, now = (view_of(line, rollout(), None, 0.0) for line in (serving_line(), older))
    note = "note: The line's spec is of generation 2, and what stands here is about generation 1."
    assert changes(before, now) == [note]
    assert changes(now, now) == []


@pytest.mark.parametrize(
    ("status", "reason", "ended"),
    [
        ("Unknown", "Running", False),
        ("False", "Superseded", False),
        ("True", "Promoted", True),
        ("True", "PassedDryRun", True),
        ("False", "Held", True),
        ("False", "NotMeasured", True),
        ("False", "RollbackAllowed", True),
    ],
)
def test_a_rollout_is_answered_once_it_ended_and_none_took_its_place(status: str, reason: str, ended: bool) -> None:
    view = seen(condition("Succeeded", status, reason))
    assert answer(view) is (view.rollout if ended else None)
    assert answer(view_of(serving_line(currentRollout=None), None, None, 0.0)) is None
    assert answer(seen()) is None
