"""A policy by itself and beside the replay sets of the lines that name it: what a run would refuse is told first."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from prefillgate.api.errors import PolicyError, Problem
from prefillgate.api.kinds.replay_set_kind import ReplaySetSpec
from prefillgate.api.replay_set import Case, canonical_json, read_line
from prefillgate.app import replay_thread
from prefillgate.app.observe.cases import _parsed
from prefillgate.app.observe.policies import Policies, PolicyRead, problems_of
from prefillgate.app.observe.troubles import policy_trouble
from prefillgate.replay.replay_set import ReplaySet

KEY, ONE, OTHER = "n/few", "n/one", "n/other"
BODY = {"messages": [{"role": "user", "content": "Review it."}]}


def read(flags: Any, version: str = "1", **more: Any) -> tuple[Policies, PolicyRead]:
    policies = Policies()
    return policies, policies.read(KEY, thing(flags, version, **more))


def thing(flags: Any, version: str = "1", **more: Any) -> dict[str, Any]:
    metadata = {"name": "few", "namespace": "n", "uid": "u", "resourceVersion": version}
    spec = {"marginPercent": 10, **({"flags": flags} if flags else {}), **more}
    return {"apiVersion": "prefillgate.io/v1alpha1", "kind": "PromotionPolicy", "metadata": metadata, "spec": spec}


def cases(*checks: Any) -> ReplaySet:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": BODY}
    case: Case = read_line(canonical_json({**line, "prefillgate": {"checks": list(checks)}}), "set:1", 1)
    return ReplaySet("set", case.line_sha256, (case,))


BRINGS_NONE, BRINGS_MINE = cases(), cases({"type": "Regex", "name": "mine", "regex": {"mustNotMatch": "LGTM"}})


def beside(policies: Policies, line: str, found: PolicyRead, replay_set: ReplaySet) -> tuple[Any, bool]:
    assert found.document is not None
    return asyncio.run(policies.beside(KEY, line, found.document, replay_set))


def test_a_flag_that_names_no_check_is_told_by_its_path_before_anything_is_replayed() -> None:
    policies, found = read([{"name": "bad", "checks": ["nope"]}, {"name": "worse", "checks": ["loop", "noop"]}])
    assert found.error is None
    assert policies.by_itself(KEY, found) == ()  # a case of a replay set might bring it
    wrong, is_new = beside(policies, ONE, found, BRINGS_NONE)
    assert is_new
    assert [(each.field, each.message) for each in wrong] == [
        ("spec.flags[0].checks", "no check is named nope"),
        ("spec.flags[1].checks", "no check is named noop"),
    ]
    assert "not_empty" in wrong[0].allowed
    assert policies.by_itself(KEY, found) == wrong
    told = policy_trouble("few", "n", PolicyError(*wrong))
    assert told.reason == "PolicyNotAccepted"
    assert "PromotionPolicy few: spec.flags[0].checks: no check is named nope (allowed: " in told.detail
    assert beside(policies, ONE, found, BRINGS_NONE) == (wrong, False)


def test_a_policy_can_be_used_where_the_cases_of_one_line_bring_the_check() -> None:
    policies, found = read([{"name": "bad", "checks": ["mine"]}])
    wrong, _ = beside(policies, ONE, found, BRINGS_NONE)
    assert wrong
    assert beside(policies, OTHER, found, BRINGS_MINE) == ((), True)
    assert policies.by_itself(KEY, found) == ()
    policies.leave(KEY, OTHER)
    assert policies.by_itself(KEY, found) == wrong
    assert beside(policies, ONE, found, BRINGS_MINE) == ((), True)
    assert policies.by_itself(KEY, found) == ()


def test_what_was_wrong_with_another_version_or_for_a_line_that_is_gone_is_not_told() -> None:
    policies, found = read([{"name": "bad", "checks": ["nope"]}])
    assert beside(policies, ONE, found, BRINGS_NONE)[0]
    mended = policies.read(KEY, thing([{"name": "bad", "checks": ["loop"]}], "2"))
    assert policies.by_itself(KEY, mended) == ()
    assert beside(policies, ONE, mended, BRINGS_NONE) == ((), True)
    assert policies.judging(ONE) == {KEY}
    assert policies.judging(OTHER) == set()
    assert policies.by_itself(KEY, found) == ()
    policies.leave(KEY, ONE)
    assert policies.judging(ONE) == set()
    policies.forget(KEY)
    policies.leave(KEY, ONE)


@pytest.mark.parametrize(
    ("check", "field"),
    [
        ({"type": "Regex", "name": "r", "regex": {"mustMatch": "("}}, "spec.checks[0]"),
        ({"type": "Cel", "name": "c", "cel": {"expression": "output +"}}, "spec.checks[0]"),
        ({"type": "JsonSchema", "name": "j", "jsonSchema": {"schema": {"type": 7}}}, "spec.checks[0]"),
    ],
)
def test_what_no_run_could_build_is_told_of_the_policy_alone(check: Any, field: str) -> None:
    policies, found = read([], checks=[check])
    assert found.error is not None
    assert found.document is None
    assert [each.field for each in policies.by_itself(KEY, found)] == [field]


def test_the_named_policies_have_nothing_that_is_wrong_beside_a_set() -> None:
    _, found = read([])
    assert found.document is not None
    assert problems_of(found.document, BRINGS_NONE) == ()


def test_every_case_whose_checks_cannot_be_used_is_named_as_the_linter_names_it() -> None:
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": BODY, "prefillgate": own}
        for name, own in (
            ("a", {"checks": [{"type": "Regex", "name": "r", "regex": {"mustMatch": "("}}]}),
            ("b", {"checks": ["loop"]}),
            ("c", {"checks": [{"type": "Regex", "name": "q", "regex": {"mustMatch": ")"}}]}),
        )
    ]
    data = "\n".join(json.dumps(line) for line in lines).encode()
    spec = ReplaySetSpec.model_validate({"configMap": {"name": "c", "key": "c.jsonl"}})
    read = _parsed("set", spec, data)
    assert read.replay_set is None
    assert read.trouble is not None
    assert (read.trouble.reason, read.trouble.field) == ("CasesInvalid", "spec.configMap")
    assert "set:1: check r: " in read.trouble.detail
    assert "set:3: check q: " in read.trouble.detail


def test_what_cannot_be_used_is_no_fault_of_the_gate() -> None:
    error = PolicyError(Problem("policy few", "spec.flags[0].checks", "no check is named nope", "loop"))
    assert replay_thread._told(error) == "policy few: spec.flags[0].checks: no check is named nope (allowed: loop)"
    assert isinstance(error, replay_thread.REFUSED)
    assert replay_thread._told(KeyError("x")).startswith("a fault of the gate itself: ")
