"""The statuses of policies and replay sets: a function of the object and what was read of it."""

from __future__ import annotations

from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.api.kinds.promotion_policy import PromotionPolicyStatus
from prefillgate.api.kinds.replay_set_kind import ReplaySetStatus
from prefillgate.app.observe.policies import standard
from prefillgate.reconcile.policy_status import policy_status
from prefillgate.reconcile.replay_set_status import CasesSeen, replay_set_status
from prefillgate.reconcile.snapshot import ReplaySetSeen, Trouble

NOW = 1_796_040_000.0
AT, BEFORE = "2026-11-30T12:00:00Z", "2026-11-30T10:00:00Z"


def thing(*conditions: Any) -> dict[str, Any]:
    status = {"status": {"conditions": list(conditions)}} if conditions else {}
    return {"kind": "PromotionPolicy", "metadata": {"name": "p", "generation": 3}, **status}


def accepted(status: dict[str, Any]) -> dict[str, Any]:
    (condition,) = status["conditions"]
    assert (condition["type"], condition["observedGeneration"]) == ("Accepted", 3)
    return dict(condition)


def test_a_policy_that_can_be_used_tells_what_it_comes_to() -> None:
    seen = standard().seen
    assert seen is not None
    status = policy_status(thing(), seen, (), NOW)
    PromotionPolicyStatus.model_validate(status)
    assert (status["observedGeneration"], status["acceptance"], status["budgetPrefills"]) == (3, [32, 56, 75], 200)
    assert status["sha256"] == seen.sha256
    condition = accepted(status)
    assert (condition["status"], condition["reason"], condition["lastTransitionTime"]) == ("True", "Accepted", AT)


def test_a_policy_that_cannot_be_used_names_every_field_and_tells_no_numbers() -> None:
    problems = (Problem("x", "spec.budgetPrefills", "2", "at least 32"), Problem("x", "spec", "what is it"))
    status = policy_status(thing(), None, problems, NOW)
    PromotionPolicyStatus.model_validate(status)
    assert set(status) == {"observedGeneration", "conditions"}
    condition = accepted(status)
    assert (condition["status"], condition["reason"]) == ("False", "SpecInvalid")
    assert condition["message"].endswith("spec.budgetPrefills: 2 (allowed: at least 32); spec: what is it")


def test_more_problems_than_anybody_reads_are_counted() -> None:
    problems = [Problem("", f"spec.f{number}", "wrong") for number in range(25)]
    message = accepted(policy_status(thing(), None, problems, NOW))["message"]
    assert message.endswith("spec.f19: wrong; and 5 more")


def test_a_condition_that_stays_keeps_the_time_of_its_transition() -> None:
    seen = standard().seen
    told = accepted(policy_status(thing(), seen, (), NOW))
    again = accepted(policy_status(thing({**told, "lastTransitionTime": BEFORE}), seen, (), NOW))
    assert again["lastTransitionTime"] == BEFORE
    turned = accepted(policy_status(thing({**told, "lastTransitionTime": BEFORE, "status": "False"}), seen, (), NOW))
    assert turned["lastTransitionTime"] == AT
    unreadable = accepted(policy_status(thing({"type": 7}), seen, (), NOW))
    assert unreadable["lastTransitionTime"] == AT


def test_a_replay_set_tells_how_many_cases_it_has_and_their_digest() -> None:
    status = replay_set_status(thing(), CasesSeen(ReplaySetSeen("p", "ab" * 32, 7)), NOW)
    ReplaySetStatus.model_validate(status)
    assert (status["cases"], status["sha256"], accepted(status)["status"]) == (7, "ab" * 32, "True")


def test_a_replay_set_without_cases_tells_why_in_the_words_of_its_source() -> None:
    trouble = Trouble("CasesNotFound", "spec.configMap.name", "There is no ConfigMap x in n.")
    status = replay_set_status(thing(), CasesSeen(trouble=trouble), NOW)
    condition = accepted(status)
    assert (condition["status"], condition["reason"]) == ("False", "CasesNotFound")
    assert condition["message"].endswith("spec.configMap.name: There is no ConfigMap x in n.")
    assert "cases" not in status
    problems = (Problem("", "spec.url", "wrong"),)
    assert accepted(replay_set_status(thing(), CasesSeen(problems=problems), NOW))["reason"] == "SpecInvalid"
