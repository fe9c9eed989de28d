"""When a stamp of admission can be believed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.reconcile.stamping import stamping_in_force

FOLDER = Path(__file__).resolve().parents[2] / "manifests" / "admission"
Things = dict[str, list[dict[str, Any]]]


def things() -> Things:
    """What stands in manifests/admission, by kind."""
    found: Things = {}
    for file in sorted(FOLDER.glob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            found.setdefault(each["kind"], []).append(each)
    return found


def in_force(found: Things) -> bool:
    """Whether stamps can be believed where these objects are all there is."""
    mutating, validating = (
        (found.get(f"{kind}AdmissionPolicy", []), found.get(f"{kind}AdmissionPolicyBinding", []))
        for kind in ("Mutating", "Validating")
    )
    return stamping_in_force(mutating, validating)


KINDS = [f"{kind}AdmissionPolicy{end}" for kind in ("Mutating", "Validating") for end in ("", "Binding")]


def test_what_stands_in_the_manifests_is_in_force_once_it_is_applied() -> None:
    assert in_force(things())
    assert not in_force({})


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_them_is_needed_under_its_name_and_not_on_its_way_out(kind: str) -> None:
    found = things()
    assert not in_force({**found, kind: []})
    going = copy.deepcopy(found)
    going[kind][0]["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    assert not in_force(going)
    other = copy.deepcopy(found)
    if kind.endswith("Binding"):
        other[kind][0]["spec"]["policyName"] = "another"
    else:
        other[kind][0]["metadata"]["name"] = "another"
    assert not in_force(other)
    assert in_force({**found, kind: [*other[kind], *found[kind]]})


@pytest.mark.parametrize("kind", ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"])
def test_a_policy_that_lets_pass_what_it_cannot_judge_is_none(kind: str) -> None:
    found = things()
    found[kind][0]["spec"]["failurePolicy"] = "Ignore"
    assert not in_force(found)
    del found[kind][0]["spec"]["failurePolicy"]  # an API server fails closed where nothing is said
    assert in_force(found)


@pytest.mark.parametrize("kind", ["MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"])
def test_a_binding_for_some_places_alone_is_none(kind: str) -> None:
    for part, value in (
        ("namespaceSelector", {"matchLabels": {"a": "b"}}),
        ("objectSelector", {"matchLabels": {"a": "b"}}),
        ("resourceRules", [{"resources": ["servinglines"]}]),
        ("excludeResourceRules", [{"resources": ["servinglines"]}]),
    ):
        found = things()
        found[kind][0]["spec"]["matchResources"] = {part: value}
        assert not in_force(found), part
        found[kind][0]["spec"]["matchResources"] = {part: {} if isinstance(value, dict) else []}
        assert in_force(found), part


@pytest.mark.parametrize("actions", [["Audit"], ["Warn", "Audit"], [], None])
def test_a_binding_that_denies_nothing_is_none(actions: list[str] | None) -> None:
    found = things()
    found["ValidatingAdmissionPolicyBinding"][0]["spec"]["validationActions"] = actions
    assert not in_force(found)
    found["ValidatingAdmissionPolicyBinding"][0]["spec"]["validationActions"] = ["Deny", "Audit"]
    assert in_force(found)


def test_objects_of_no_shape_are_none() -> None:
    assert not in_force({kind: [{}, {"metadata": 5, "spec": 5}] for kind in KINDS})
