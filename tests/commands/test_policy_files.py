"""Policy files: every field arrives in the core, and what is impossible says what would be possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from prefillgate.api.errors import PolicyError
from prefillgate.api.policy import load_policy
from prefillgate.api.policy_lint import pairs_needed, policy_warnings, promotion_power
from prefillgate.api.policy_model import PromotionPolicy
from prefillgate.core.acceptance import NAMED_POLICIES, find_table
from prefillgate.core.policy import (
    DEFAULT_FLAG,
    AlarmPolicy,
    Flag,
    Policy,
    ReplicatePolicy,
    ThroughputPolicy,
)


def write(folder: Path, spec: dict[str, Any], **top: Any) -> Path:
    document = {
        "apiVersion": "prefillgate.io/v1alpha1",
        "kind": "PromotionPolicy",
        "metadata": {"name": "mine"},
        "spec": spec,
    }
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump({**document, **top}, sort_keys=False))
    return file


def problems(file: Path) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        load_policy(file)
    return [str(problem).replace(f"{file}", "policy.yaml") for problem in caught.value.problems]


def spec_problems(folder: Path, spec: dict[str, Any]) -> list[str]:
    """What is wrong with a spec, without the places."""
    return [text.split(": ", 1)[1] for text in problems(write(folder, spec))]


def test_a_named_policy_needs_no_file() -> None:
    document = load_policy("strict")
    assert document.policy == NAMED_POLICIES["strict"]
    assert (document.name, document.checks, document.source) == ("strict", None, None)
    assert document.digest != load_policy("quick").digest


def test_every_field_arrives_in_the_core(tmp_path: Path) -> None:
    spec = {
        "marginBasisPoints": 1250,
        "alphaBasisPoints": 400,
        "acceptance": [30, 60],
        "budgetPrefills": 111,
        "healthyRateBasisPoints": 50,
        "baselinePassPrefills": 9,
        "refusals": 4,
        "deadlineSeconds": 3600,
        "aaCheck": "Enabled",
        "alarm": {"healthyRateBasisPoints": 400, "badRateBasisPoints": 2500, "threshold": 20, "watchThreshold": 200},
        "replicate": {
            "plannedBaselineRateBasisPoints": 300,
            "plannedCandidateRateBasisPoints": 5000,
            "threshold": 50,
            "futilityBasisPoints": 400,
            "cleanUnits": 7,
            "maxPairs": 25,
            "maxCachedTokens": 16,
            "gapSeconds": 900,
            "maxAttempts": 1,
        },
        "throughput": {
            "mode": "Report",
            "marginBasisPoints": -300,
            "alphaBasisPoints": 250,
            "minPairs": 8,
            "maxPairs": 50,
            "minOutputTokens": 48,
            "plannedCvBasisPoints": 350,
            "maxPrompts": 10,
            "slowRatioPercent": 75,
        },
        "checks": [{"type": "Loop"}, {"type": "MinWords", "name": "long"}],
        "flags": [{"name": "form", "checks": ["loop"]}, {"name": "size", "checks": ["long"]}],
    }
    document = load_policy(write(tmp_path, spec))
    assert document.policy == Policy(
        name="mine",
        margin=0.125,
        alpha=0.04,
        acceptance=(30, 60),
        budget=111,
        healthy_rate=0.005,
        baseline_pass=9,
        refusals=4,
        deadline_seconds=3600.0,
        aa_check=True,
        alarm=AlarmPolicy(0.04, 0.25, 20.0, 200.0),
        replicate=ReplicatePolicy(0.03, 0.5, 50.0, 0.04, 7, 25, 16, 900.0, 1),
        throughput=ThroughputPolicy(False, -0.03, 0.025, 8, 50, 48, 0.035, 10, 0.75),
        flags=(Flag("form", ("loop",)), Flag("size", ("long",))),
    )
    assert document.checks is not None
    assert [spec.name for spec in document.checks] == ["loop", "long"]


def test_what_is_left_out_has_the_value_of_the_core(tmp_path: Path) -> None:
    policy = load_policy(write(tmp_path, {"marginPercent": 30})).policy
    table = find_table(0.30, 0.05).entries
    assert policy == Policy("mine", 0.30, 0.05, table, max(150, table[-1] + 125))
    assert policy.flags == (Flag(DEFAULT_FLAG, ()),)
    assert load_policy(write(tmp_path, {"marginPercent": 10})).policy.budget == 200
    assert load_policy(write(tmp_path, {"marginPercent": 20})).policy.budget == 160


def test_the_digest_is_of_the_numbers_and_checks_however_written(tmp_path: Path) -> None:
    first = load_policy(write(tmp_path, {"marginPercent": 10})).digest
    assert load_policy(write(tmp_path, {"marginBasisPoints": 1000, "alphaBasisPoints": 500})).digest == first
    assert load_policy(write(tmp_path, {"marginPercent": 10, "refusals": 4})).digest != first
    assert load_policy(write(tmp_path, {"marginPercent": 10, "checks": []})).digest != first


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec: one of marginPercent (1 to 99) and marginBasisPoints (1 to 9999) is wanted"),
        (
            {"marginPercent": 10, "marginBasisPoints": 1000},
            "spec: one of marginPercent (1 to 99) and marginBasisPoints (1 to 9999) is wanted",
        ),
        ({"marginPercent": 0}, "spec.marginPercent: 0 (allowed: a whole number of 1 to 99)"),
        ({"marginPercent": 100}, "spec.marginPercent: 100 (allowed: a whole number of 1 to 99)"),
        ({"marginPercent": 10.5}, "spec.marginPercent: 10.5 (allowed: a whole number of 1 to 99)"),
        ({"marginPercent": "10"}, 'spec.marginPercent: "10" (allowed: a whole number of 1 to 99)'),
        ({"marginPercent": True}, "spec.marginPercent: true (allowed: a whole number of 1 to 99)"),
        (
            {"marginPercent": 10, "throughput": {"mode": "require"}},
            'spec.throughput.mode: "require" (allowed: Require, Report)',
        ),
        (
            {"marginPercent": 10, "throughput": {"margin": 1}},
            "spec.throughput.margin: unknown field (allowed: mode, marginBasisPoints, alphaBasisPoints, minPairs, "
            "maxPairs, minOutputTokens, plannedCvBasisPoints, maxPrompts, slowRatioPercent)",
        ),
        (
            {"marginPercent": 10, "throughput": {"minPairs": 50}},
            "spec.throughput: maxPairs 40 must be at least minPairs 50",
        ),
        (
            {"marginPercent": 10, "throughput": {"marginBasisPoints": -10_000}},
            "spec.throughput.marginBasisPoints: -10000 (allowed: a whole number of -9000 to 10000)",
        ),
        (
            {"marginPercent": 10, "alarm": {"healthyRateBasisPoints": 3000}},
            "spec.alarm: badRateBasisPoints 3000 must be above healthyRateBasisPoints 3000",
        ),
        (
            {"marginPercent": 10, "replicate": {"threshold": 39}},
            "spec.replicate.threshold: 39 (allowed: a whole number of 40 to 1000000)",
        ),
        (
            {"marginPercent": 10, "acceptance": []},
            "spec.acceptance: [] (allowed: a list of 1 to 20 items, each a whole number of 1 to 100000)",
        ),
        (
            {"marginPercent": 10, "acceptance": [50, 40]},
            "spec.acceptance: acceptance must be rising whole numbers of at least 1, got [50, 40]",
        ),
        (
            {"marginPercent": 10, "checks": [{"type": "Regexp"}]},
            'spec.checks[0].type: "Regexp" (allowed: NotEmpty, ReasoningOnly, MinWords, BareVerdict, Regex, '
            "JsonSchema, Cel, FinishReason, Cut, Loop, TemplateTokens, ForeignText, Expect, EqualToBaseline, Plugin, "
            "Exec, Judge)",
        ),
        (
            {"marginPercent": 10, "checks": ["not_empty"]},
            'spec.checks[0]: "not_empty" (allowed: type, name, minWords, bareVerdict, regex, jsonSchema, cel, '
            "finishReason, loop, templateTokens, plugin, exec, judge)",
        ),
        (
            {"marginPercent": 10, "checks": [{"type": "Loop", "regex": {"mustMatch": "x"}}]},
            "spec.checks[0]: parameters of another check stand in a check of type Loop",
        ),
        (
            {"marginPercent": 10, "checks": [{"type": "Regex", "regex": {}}]},
            "spec.checks[0].regex: mustMatch or mustNotMatch is wanted",
        ),
        (
            {"marginPercent": 10, "checks": [{"type": "Cut", "name": "other"}]},
            "spec.checks[0]: a check of type Cut keeps its name cut",
        ),
        *(
            (
                {"marginPercent": 10, "checks": [{"type": "NotEmpty", "name": name}]},
                f"spec.checks[0]: the name {name} is kept for the gate's own use; "
                "a check of type NotEmpty needs another",
            )
            for name in ("cut", "equal_to_baseline", "expect", "foreign_text", "slow")
        ),
        (
            {"marginPercent": 10, "checks": [{"type": "Expect"}]},
            "spec.checks[0]: Expect is not declared: a case that carries `expect` gets it",
        ),
        (
            {"marginPercent": 10, "checks": [{"type": "Loop", "name": "x"}, {"type": "NotEmpty", "name": "x"}]},
            "spec: two checks are named x; give each a name of its own",
        ),
        (
            {"marginPercent": 10, "flags": [{"name": "x", "checks": ["a"]}, {"name": "x", "checks": ["b"]}]},
            "spec: two flags share a name: x, x",
        ),
        (
            {"marginPercent": 10, "flags": [{"name": "x", "checks": []}]},
            "spec.flags[0].checks: [] (allowed: a list of 1 to 50 items, each text of 1 to 63 characters)",
        ),
    ],
)
def test_a_wrong_field_is_named_by_its_path_with_what_is_allowed(
    tmp_path: Path, spec: dict[str, Any], message: str
) -> None:
    assert spec_problems(tmp_path, spec) == [message]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"marginPercent": 10, "acceptance": [31, 56, 75]},
            "spec.acceptance: [31, 56, 75] promotes a candidate at the margin with probability 0.053250, above alpha "
            "0.05 (allowed: for example [32, 56, 75], or leave it out)",
        ),
        (
            {"marginPercent": 10, "acceptance": [20]},
            "spec.acceptance: [20] promotes a candidate at the margin with probability 0.121577, above alpha 0.05 "
            "(allowed: for example [29], or leave it out)",
        ),
        (
            {"marginPercent": 10, "budgetPrefills": 31},
            "spec.budgetPrefills: 31 (allowed: at least 32, the fresh prefills that promotion needs with 0 bad)",
        ),
        (
            {"marginPercent": 10, "replicate": {"plannedCandidateRateBasisPoints": 200}},
            "spec.replicate.plannedCandidateRateBasisPoints: 200 is not above plannedBaselineRateBasisPoints 200 "
            "(allowed: 201 to 9999)",
        ),
        (
            {"marginPercent": 10, "replicate": {"cleanUnits": 31}},
            "spec.replicate.cleanUnits: 31 is above maxPairs 30 (allowed: 1 to 30)",
        ),
        (
            {"marginPercent": 10, "replicate": {"maxPairs": 5, "cleanUnits": 5}},
            "spec.replicate.maxPairs: 5 pairs cannot reach an e-value of 80 even with every pair against the candidate "
            "(allowed: at least 6)",
        ),
        (
            {"marginPercent": 10, "replicate": {"maxPairs": 4, "cleanUnits": 4, "maxAttempts": 1}},
            "spec.replicate.maxPairs: 4 pairs cannot reach an e-value of 40 even with every pair against the candidate "
            "(allowed: at least 5)",
        ),
    ],
)
def test_impossible_numbers_say_what_would_be_possible(tmp_path: Path, spec: dict[str, Any], message: str) -> None:
    assert spec_problems(tmp_path, spec) == [message]


def test_numbers_on_the_edge_of_the_possible_are_taken(tmp_path: Path) -> None:
    assert load_policy(write(tmp_path, {"marginPercent": 10, "budgetPrefills": 32})).policy.budget == 32
    spec = {"marginPercent": 10, "replicate": {"maxPairs": 6, "cleanUnits": 6}}
    assert load_policy(write(tmp_path, spec)).policy.replicate.max_pairs == 6
    spec = {"marginPercent": 10, "replicate": {"maxPairs": 5, "cleanUnits": 5, "maxAttempts": 1}}
    assert load_policy(write(tmp_path, spec)).policy.replicate.max_pairs == 5


def test_every_problem_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "apiVersion: prefillgate.io/v1\nkind: Policy\nmetadata:\n  name: Mine\nspec:\n  marginPercent: 200\n  x: 1\n"
    )
    assert problems(file) == [
        'policy.yaml:1: apiVersion: "prefillgate.io/v1" (allowed: prefillgate.io/v1alpha1)',
        'policy.yaml:2: kind: "Policy" (allowed: PromotionPolicy)',
        'policy.yaml:4: metadata.name: "Mine" (allowed: text of 1 to 253 characters)',
        "policy.yaml:6: spec.marginPercent: 200 (allowed: a whole number of 1 to 99)",
        "policy.yaml:7: spec.x: unknown field (allowed: marginPercent, marginBasisPoints, alphaBasisPoints, "
        "acceptance, budgetPrefills, healthyRateBasisPoints, baselinePassPrefills, refusals, deadlineSeconds, aaCheck, "
        "alarm, replicate, throughput, checks, flags)",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "policy.yaml:1:6: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a:\n\t- b", "policy.yaml:2:1: not YAML: found character '\\t' that cannot start any token"),
        ("a: 1\na: 2", "policy.yaml:2: a: stands twice, first on line 1"),
        ("s: {a: 1,\n a: 2}", "policy.yaml:2: s.a: stands twice, first on line 1"),
        ("a: 1\n---\nb: 2", "policy.yaml: more than one document (allowed: one YAML document a file)"),
        ("- a", "policy.yaml: not a mapping of fields (allowed: one YAML mapping)"),
        ("", "policy.yaml: not a mapping of fields (allowed: one YAML mapping)"),
        ("a: &x 1", "policy.yaml:1: anchors and aliases are not taken (allowed: every value written out)"),
        ("a: &x [1]\nb: *x", "policy.yaml:1: anchors and aliases are not taken (allowed: every value written out)"),
        (
            "a: 2026-01-01",
            "policy.yaml:1: a: a value of type timestamp (allowed: quoted text, a whole number, a list, a mapping)",
        ),
        (
            "a: !!python/name:os.system x",
            "policy.yaml:1: a: a value of type python/name:os.system (allowed: quoted text, a whole number, a list, a "
            "mapping)",
        ),
        ("1: a", 'policy.yaml:1: the key "1" is not text (allowed: a name)'),
        (
            "{{ template }}",
            "policy.yaml:1: a key that is a mapping, as of a template `{{ ... }}` that was not filled in (allowed: "
            "a name)",
        ),
        ("a:\n  [b]: 1", "policy.yaml:2: a: a key that is a list, as of a template `{{ ... }}` that was not filled in"),
        *(
            (f"a: {text}", f'policy.yaml:1: a: "{text}" is read in different ways (allowed: decimal digits without a')
            for text in ("010", "0x10", "1:30", "1_000", "-00")
        ),
        ("a: .nan", 'policy.yaml:1: a: ".nan" is not a number (allowed: a whole number in decimal digits)'),
        ("a: " + "9" * 5000, f'policy.yaml:1: a: cannot read "{"9" * 78}… (allowed: a whole number in decimal digits)'),
        ("a: " + "[" * 3000 + "]" * 3000, "policy.yaml:1: nested too deep (allowed: up to 64 levels)"),
        ("a: " + "[" * 64 + "]" * 64, "policy.yaml:1: nested too deep (allowed: up to 64 levels)"),
        ("a: 1\nb: \x00", "policy.yaml: not YAML: unacceptable character #x0000: special characters are not allowed"),
    ],
)
def test_yaml_that_two_readers_could_read_differently_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    (found,) = problems(file)
    assert found.startswith(message)


def test_bytes_that_are_no_yaml_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(b"a: 1\nb: \xff")
    assert problems(file) == ["policy.yaml:2: invalid UTF-8 (byte 0xff) (allowed: UTF-8 text)"]
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    assert problems(file) == ["policy.yaml: longer than 1048576 bytes (allowed: up to 1048576 bytes)"]


def test_a_missing_policy_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy("lenient")
    allowed = "quick, standard, strict, or the path of a YAML file"
    assert str(caught.value) == f"policy: no policy and no file lenient (allowed: {allowed})"
    assert problems(tmp_path / "none.yaml") == ["policy.yaml: cannot be read: No such file or directory"]


def test_the_wire_form_has_no_floats_and_bounds_everything() -> None:
    schema = PromotionPolicy.model_json_schema(by_alias=True)
    loose: list[str] = []

    def walk(node: dict[str, Any], path: str) -> None:
        kind = node.get("type")
        bounded = {
            "integer": "minimum" in node and "maximum" in node,
            "string": "maxLength" in node or "enum" in node or "const" in node,
            "array": "maxItems" in node,
            "number": False,
        }
        if kind in bounded and not bounded[kind]:
            loose.append(path)
        for name, inner in node.get("properties", {}).items():
            walk(inner, f"{path}.{name}")
        for inner in (*node.get("anyOf", []), *([node["items"]] if "items" in node else [])):
            walk(inner, path)

    for name, definition in schema["$defs"].items():
        walk(definition, name)
    assert loose == []
    assert len(schema["$defs"]) > 15


def test_a_sound_policy_has_no_warnings() -> None:
    assert [policy_warnings(load_policy(name)) for name in NAMED_POLICIES] == [(), (), ()]


def warnings(folder: Path, spec: dict[str, Any]) -> str:
    return "\n".join(policy_warnings(load_policy(write(folder, {"marginPercent": 10, **spec}))))


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (
            {"healthyRateBasisPoints": 300},
            "P(promote) is 0.680 for a candidate that fails in 3.00% of prefills, below 0.8; a margin of 14 %",
        ),
        ({"healthyRateBasisPoints": 1000}, "it is promoted by accident only"),
        ({"acceptance": [40, 60, 80]}, "spec.acceptance: [32, 56, 75] costs less and errs no more than alpha"),
        ({"budgetPrefills": 39}, "leaves no room for the baseline pass of 8 beside the 32 prefills"),
        ({"budgetPrefills": 92}, "spec.budgetPrefills: 92 may end before 75 prefills with 2 bad"),
        ({"replicate": {"maxAttempts": 0}}, "no regression can ever be confirmed"),
        ({"replicate": {"gapSeconds": 599}}, "spec.replicate.gapSeconds: 599 is less than 10 minutes"),
        ({"throughput": {"marginBasisPoints": 0}}, "one that is equally fast is never promoted"),
        (
            {"throughput": {"marginBasisPoints": -200}},
            "-2.00% at a cell variation of 4.0% needs about 70 pairs and maxPairs is 40",
        ),
        ({"throughput": {"minOutputTokens": 31}}, "at 31 tokens the rate of one cell varies by 7 % and more"),
        (
            {"flags": [{"name": "x", "checks": ["equal_to_baseline"]}]},
            "differ on a third or more of healthy outputs",
        ),
        ({"flags": [{"name": "x", "checks": ["mine"]}]}, "the policy declares no check mine"),
        (
            {"checks": [{"type": "Loop"}, {"type": "NotEmpty"}], "flags": [{"name": "x", "checks": ["loop"]}]},
            "no flag names not_empty; they are reported and decide nothing",
        ),
        ({"checks": []}, "spec.checks: an empty list"),
        ({"checks": [{"type": "EqualToBaseline"}]}, "so nothing would be judged"),
        (
            {"checks": [{"type": "NotEmpty"}, {"type": "EqualToBaseline"}]},
            "never in the default flag: unlike KV cache types differ on a third or more of healthy outputs",
        ),
        ({"checks": [{"type": "BareVerdict"}]}, "only the shape of an answer is judged"),
    ],
)
def test_what_is_unwise_is_warned_of(tmp_path: Path, spec: dict[str, Any], part: str) -> None:
    assert part in warnings(tmp_path, spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"budgetPrefills": 93},
        {"replicate": {"gapSeconds": 600}},
        {"throughput": {"minOutputTokens": 32}},
        {"throughput": {"mode": "Report", "marginBasisPoints": 0}},
        {"checks": [{"type": "Loop"}], "flags": [{"name": "x", "checks": ["loop"]}]},
        {"checks": [{"type": "Loop"}, {"type": "NotEmpty"}]},
    ],
)
def test_what_is_just_wise_is_not_warned_of(tmp_path: Path, spec: dict[str, Any]) -> None:
    assert warnings(tmp_path, spec) == ""


@pytest.mark.parametrize(
    ("margin", "cv", "pairs"),
    [(-0.05, 0.03, 8), (-0.05, 0.05, 18), (-0.05, 0.08, 43), (-0.02, 0.03, 40), (-0.02, 0.05, 107), (-0.02, 0.08, 270)],
)
def test_the_pairs_needed_are_about_those_of_the_page(margin: float, cv: float, pairs: int) -> None:
    """STATISTICS.md section 8, equal against the margin."""
    needed = pairs_needed(ThroughputPolicy(margin=margin, planned_cv=cv))
    assert needed is not None
    assert abs(needed - pairs) <= 5


def test_pairs_are_at_least_the_smallest_number_and_unknown_without_a_negative_margin() -> None:
    assert pairs_needed(ThroughputPolicy(margin=-0.5)) == 6
    assert pairs_needed(ThroughputPolicy(margin=0.0)) is None


def test_the_power_is_that_of_the_table() -> None:
    """STATISTICS.md section 2: standard 0.970 at rate 0.01."""
    assert round(promotion_power(NAMED_POLICIES["standard"]), 3) == 0.970
