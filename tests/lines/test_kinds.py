"""The custom resources as types: samples are read, and whatever is wrong is told by the path of its field."""

from __future__ import annotations

import pytest
import re2

from prefillgate.api.errors import PolicyError
from prefillgate.api.kinds.reading import read_policy_object, read_spec
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.api.model import validate
from prefillgate.api.policy import load_policy
from prefillgate.api.policy_model import PolicySpec
from tests.support.broken_rules import BROKEN, LONG_KEYS, Broken
from tests.support.kinds import (
    OF_KIND,
    ROOT,
    UNKNOWN,
    Object,
    changed,
    each_wrong_field_once,
    sample,
    samples,
    schema_of,
    with_status,
    wrong_fields,
)


def problems(thing: Object) -> list[str]:
    """What is wrong with an object's spec, as a person reads it."""
    return [str(problem) for problem in read_spec(OF_KIND[thing["kind"]].spec, thing)[1]]


@pytest.mark.parametrize("thing", samples(), ids=lambda thing: f"{thing['kind']}-{thing['metadata']['name']}")
def test_a_sample_is_read(thing: Object) -> None:
    assert problems(thing) == []


def test_whatever_is_wrong_with_a_field_is_told_by_its_path() -> None:
    wrong = list(each_wrong_field_once())
    told = [[p.field for p in read_spec(OF_KIND[each.thing["kind"]].spec, each.thing)[1]] for each in wrong]
    assert [str(each) for each, fields in zip(wrong, told, strict=True) if each.field not in fields] == []
    assert len(wrong) > 700


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_a_rule_over_several_fields_is_kept_by_the_type_too(broken: Broken) -> None:
    (problem,) = problems(broken.thing)
    place = f"{broken.kind} /{broken.name}: {broken.field}"
    assert problem.startswith(place)
    assert broken.says in problem


@pytest.mark.parametrize("broken", LONG_KEYS, ids=str)
def test_a_key_of_a_map_is_bounded(broken: Broken) -> None:
    (problem,) = read_spec(OF_KIND[broken.kind].spec, broken.thing)[1]
    assert problem.field.startswith(broken.field)


def test_a_candidate_that_is_left_out_is_the_baselines_own_workload() -> None:
    own, _ = read_spec(ServingLineSpec, sample("ServingLine", "review-bot"))
    two, _ = read_spec(ServingLineSpec, sample("ServingLine", "chat"))
    assert own is not None and two is not None
    assert own.candidate_arm is own.baseline
    assert two.candidate_arm is two.candidate


def test_an_object_without_a_spec_lacks_what_a_spec_must_have() -> None:
    thing = {"kind": "ServingLine", "metadata": {"namespace": "a", "name": "b"}}
    assert [problem.partition(": missing")[0] for problem in problems(thing)] == [
        "ServingLine a/b: spec.baseline",
        "ServingLine a/b: spec.replaySetRef",
    ]


def test_every_policy_of_the_samples_can_be_judged_by() -> None:
    policies = [thing for thing in samples() if thing["kind"] == "PromotionPolicy"]
    assert len(policies) == 6
    for thing in policies:
        assert read_policy_object(thing).policy.acceptance


def test_a_policy_object_is_the_policy_that_its_file_is() -> None:
    thing = next(each for each in samples() if each["metadata"]["name"] == "strict")
    assert read_policy_object(thing).digest == load_policy(ROOT / "policies" / "strict.yaml").digest
    assert read_policy_object(thing).name == "strict"


def test_a_policy_object_whose_numbers_are_impossible_names_the_field() -> None:
    thing = changed(sample("PromotionPolicy", "review-bot"), ("spec", "budgetPrefills"), 5)
    thing["metadata"]["namespace"] = "bots"
    with pytest.raises(PolicyError) as refused:
        read_policy_object(thing)
    allowed = "at least 32, the fresh prefills that promotion needs with 0 bad"
    assert str(refused.value) == f"PromotionPolicy bots/review-bot: spec.budgetPrefills: 5 (allowed: {allowed})"


def test_a_policy_object_asks_no_program_and_no_server() -> None:
    for broken in BROKEN:
        if "policy files alone" in broken.says:
            spec, wrong = read_spec(PolicySpec, broken.thing)
            assert (spec, [problem.field for problem in wrong]) == (None, ["spec.checks[0].type"])
            with pytest.raises(PolicyError, match="policy files alone"):
                read_policy_object(broken.thing)


# Statuses


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_status_with_every_field_there_is_is_read_and_written_as_it_was(kind: str) -> None:
    status = with_status(kind)["status"]
    model, wrong = validate(OF_KIND[kind].status, status)
    assert (model is not None, wrong) == (True, ())
    assert model is not None and model.model_dump(by_alias=True, exclude_unset=True) == status


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_status_of_a_newer_controller_is_read_without_what_is_new(kind: str) -> None:
    thing = with_status(kind)
    known, _ = validate(OF_KIND[kind].status, thing["status"])
    for wrong in wrong_fields(thing, "status"):
        if wrong.how == UNKNOWN:
            assert validate(OF_KIND[kind].status, wrong.thing["status"])[0] == known, wrong


@pytest.mark.parametrize("kind", OF_KIND)
def test_whatever_else_is_wrong_with_a_status_is_told_by_its_path(kind: str) -> None:
    untold = []
    for wrong in wrong_fields(with_status(kind), "status"):
        if wrong.how != UNKNOWN:
            problems = validate(OF_KIND[kind].status, wrong.thing["status"])[1]
            untold += [str(wrong)] if wrong.field not in [f"status.{p.field}".rstrip(".") for _, p in problems] else []
    assert untold == []


@pytest.mark.parametrize(
    ("keyword", "good"), [("VERDICT", True), ("Übersicht 2-b", True), ("評価", True), (" x", False), ("a.b", False)]
)
def test_a_verdicts_keyword_may_be_a_word_of_any_language_in_files_and_in_a_cluster(keyword: str, good: bool) -> None:
    field = ("spec", "checks", 1, "bareVerdict", "keyword")
    assert (problems(changed(sample("PromotionPolicy", "review-bot"), field, keyword)) == []) is good
    checks = schema_of("PromotionPolicy")["properties"]["spec"]["properties"]["checks"]["items"]["properties"]
    pattern = checks["bareVerdict"]["properties"]["keyword"]["pattern"]
    assert (re2.search(pattern, keyword) is not None) is good
