"""The CRDs: structural, bounded and described throughout, the same as what stands in git, and their rules hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import re2
import yaml
from pydantic import Field

from prefillgate.api.kinds.crd import RESOURCES, crd_files, crd_of
from prefillgate.api.kinds.names import ALL_NAMES, LONGEST_LINE_NAME
from prefillgate.api.kinds.schema import CannotBeKept, structural
from prefillgate.api.model import CelRule, WireModel, with_rules
from tests.support.broken_rules import BROKEN, LONG_KEYS, Broken
from tests.support.kinds import (
    OF_KIND,
    ROOT,
    Object,
    changed,
    examples,
    field_text,
    leaves,
    sample,
    samples,
    schema_of,
    schema_paths,
    with_status,
)
from tests.support.rules import Refusal, all_rules, refusals

FOLDER = ROOT / "manifests" / "crds"
OF_A_WORD = {"type", "description"}
MAY_HOLD = {  # everything else is refused by an API server, or is no part of a structural schema
    "object": OF_A_WORD | {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "array": OF_A_WORD | {"items", "minItems", "maxItems"},
    "string": OF_A_WORD | {"minLength", "maxLength", "pattern", "enum", "format"},
    "integer": OF_A_WORD | {"minimum", "maximum", "format"},
    "boolean": OF_A_WORD,
}
EXTENSIONS = {
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
}
KINDS = sorted(OF_KIND)


def nodes(kind: str) -> list[tuple[str, Object]]:
    """(path, schema) of everything in an object's spec and status."""
    whole = schema_of(kind)["properties"]
    return [node for part in ("spec", "status") for node in schema_paths(whole[part], part)]


def test_what_stands_in_git_is_what_the_types_make() -> None:
    held = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert held == crd_files(), "run `make crds`"


def test_the_files_are_written_as_they_stand_in_git(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    done = crd_program(str(target))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == sorted(str(path) for path in target.iterdir())
    assert [(path.name, path.read_bytes()) for path in sorted(target.iterdir())] == [
        (path.name, path.read_bytes()) for path in sorted(FOLDER.iterdir())
    ]


def crd_program(*words: str) -> subprocess.CompletedProcess[str]:
    """What `make crds` runs."""
    command = [sys.executable, "-m", "prefillgate.api.kinds.crd", *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


def test_the_program_that_writes_them_says_what_it_wants() -> None:
    done = crd_program()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "usage: python -m prefillgate.api.kinds.crd FOLDER\n"


def test_there_is_a_definition_of_every_kind_that_has_a_name() -> None:
    assert [resource.names for resource in RESOURCES] == list(ALL_NAMES)
    told = [yaml.safe_load(text)["spec"]["names"] for text in crd_files().values()]
    assert [(names["kind"], names["plural"], names["shortNames"], names["categories"]) for names in told] == [
        ("ServingLine", "servinglines", ["sl"], ["prefillgate"]),
        ("ProfileRollout", "profilerollouts", ["pro"], ["prefillgate"]),
        ("PromotionPolicy", "promotionpolicies", ["ppol"], ["prefillgate"]),
        ("ReplaySet", "replaysets", ["rset"], ["prefillgate"]),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_has_one_version_with_a_status_of_its_own(kind: str) -> None:
    crd = crd_of(OF_KIND[kind])
    assert crd["metadata"]["name"] == f"{crd['spec']['names']['plural']}.prefillgate.io"
    assert (crd["spec"]["group"], crd["spec"]["scope"]) == ("prefillgate.io", "Namespaced")
    (version,) = crd["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"] == {"status": {}}
    assert schema_of(kind)["required"] == ["spec"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_says_nothing_that_an_api_server_refuses(kind: str) -> None:
    for path, node in nodes(kind):
        allowed = MAY_HOLD[node["type"]] | EXTENSIONS
        assert set(node) <= allowed, (path, set(node) - allowed)
        assert not {"properties", "additionalProperties"} <= set(node), path


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_bounded(kind: str) -> None:
    loose = [path for path, node in nodes(kind) if not bounded(node)]
    assert loose == []


def bounded(node: Object) -> bool:
    """Whether the cost of a rule over the node can be known beforehand."""
    if node["type"] == "string":
        return "enum" in node or 0 < node["maxLength"] <= 32_768
    if node["type"] == "integer":
        fits = 2**31 if node["format"] == "int32" else 2**63
        return -fits <= node["minimum"] <= node["maximum"] < fits
    if node["type"] == "array":
        return 0 < node["maxItems"] <= 1000
    return node["type"] == "boolean" or "properties" in node or 0 < node["maxProperties"] <= 1000


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described_in_a_sentence(kind: str) -> None:
    for path, node in nodes(kind):
        if path.endswith(("[]", ".*")) and node["type"] != "object":
            continue  # its list says it
        text = node.get("description", "")
        assert len(text.split()) >= 2 and text.endswith("."), path
        assert "DESIGN.md" not in text and "STATISTICS.md" not in text, path


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_camel_case_and_units_are_told(kind: str) -> None:
    for path, node in nodes(kind):
        name = path.rpartition(".")[2].rstrip("[]*")
        assert re.fullmatch("[a-z][A-Za-z0-9]*", name) or name == "", path
        for word in node.get("enum", ()):
            assert re.fullmatch("[A-Z][A-Za-z0-9]*", word), (path, word)
        if node["type"] == "integer":
            assert not re.search("(Ms|Minutes|Hours|Millis|Days)$", name), path


@pytest.mark.parametrize("kind", KINDS)
def test_patterns_are_such_as_go_reads(kind: str) -> None:
    for path, node in nodes(kind):
        if "pattern" in node:
            assert node["pattern"].startswith("^") and node["pattern"].endswith("$"), path
            assert "\\w" not in node["pattern"], path
            re2.compile(node["pattern"])


@pytest.mark.parametrize("kind", KINDS)
def test_conditions_are_a_map_by_type_and_other_lists_say_how_they_merge(kind: str) -> None:
    found = dict(nodes(kind))
    conditions = found["status.conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert "observedGeneration" in conditions["items"]["required"]
    for path, node in found.items():
        if node["type"] != "array":
            continue
        way = node["x-kubernetes-list-type"]
        if way == "map":
            assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"]["required"]), path
        else:
            assert way == "atomic" or (way == "set" and node["items"]["type"] == "string"), path


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_shows_a_field_that_is_there(kind: str) -> None:
    crd = crd_of(OF_KIND[kind])
    known = {path for path, _ in schema_paths(schema_of(kind))} | {"metadata.creationTimestamp"}
    for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = re.sub(r"\[\?\(@\.type=='[A-Za-z]+'\)\]", "[]", column["jsonPath"].lstrip("."))
        assert path in known, column
        assert column["description"].endswith(".")


def test_a_person_sees_the_decision_first() -> None:
    shown = {}
    for resource in RESOURCES[:2]:
        columns = crd_of(resource)["spec"]["versions"][0]["additionalPrinterColumns"]
        shown[resource.names.kind] = [each["name"] for each in columns if "priority" not in each]
    usual = ["Decision", "Prefills", "Rollback", "Candidate", "Age"]
    assert shown == {
        "ServingLine": [*usual, "Not Well"],
        "ProfileRollout": usual,
    }  # the last is empty where all is well


def test_a_description_tells_the_default_and_the_schema_sets_none() -> None:
    spec = schema_of("ServingLine")["properties"]["spec"]["properties"]
    assert spec["cellTimeoutSeconds"]["description"].endswith("Default: 600.")
    assert spec["suspend"]["description"].endswith("Default: false.")
    assert spec["watch"]["properties"]["previous"]["description"].endswith("Default: None.")
    assert spec["redactedNames"]["description"].endswith("as --my-token.")
    policy = schema_of("PromotionPolicy")["properties"]["spec"]["properties"]
    allowed = policy["checks"]["items"]["properties"]["finishReason"]["properties"]["allowed"]
    assert allowed["description"].endswith("Default: stop, tool_calls.")
    assert '"default"' not in str([crd_of(resource) for resource in RESOURCES]).replace("'", '"')


def test_the_samples_hold_every_field_of_every_spec() -> None:
    refused = ("spec.checks[].exec", "spec.checks[].judge")  # by a rule, as a test below shows
    for kind in KINDS:
        schema = schema_of(kind)["properties"]["spec"]
        held = {
            re.sub(r"\[[0-9]+\]", "[]", field_text(path)).replace("spec.candidate.", "spec.baseline.")
            for thing in samples()
            if thing["kind"] == kind
            for path, _, _ in leaves(schema, thing["spec"], ("spec",))
        }
        known = {path.replace("spec.candidate.", "spec.baseline.") for path, _ in schema_paths(schema, "spec")}
        assert {path for path in known - held if not path.endswith(".*") and not path.startswith(refused)} == set()


def test_the_sample_statuses_hold_every_field_of_every_status() -> None:
    for kind in KINDS:
        schema, thing = schema_of(kind)["properties"]["status"], with_status(kind)
        held = {
            re.sub(r"\[[0-9]+\]", "[]", field_text(path)) for path, _, _ in leaves(schema, thing["status"], ("status",))
        }
        assert {path for path, _ in schema_paths(schema, "status")} == held


# Rules


@pytest.mark.parametrize("thing", samples(), ids=lambda thing: f"{thing['kind']}-{thing['metadata']['name']}")
def test_a_sample_breaks_no_rule(thing: Object) -> None:
    assert refusals(schema_of(thing["kind"]), thing) == []


@pytest.mark.parametrize("broken", [*BROKEN, *LONG_KEYS], ids=str)
def test_a_rule_refuses_what_it_is_for(broken: Broken) -> None:
    found = refusals(schema_of(broken.kind), broken.thing)
    assert [broken.says in each.says for each in found if each.field == broken.field].count(True) == 1, found


def test_every_rule_has_something_that_breaks_it() -> None:
    transitions = {"self == oldSelf", f"size(self.metadata.name) <= {LONGEST_LINE_NAME}"}
    broken = {r.says for each in (*BROKEN, *LONG_KEYS) for r in refusals(schema_of(each.kind), each.thing)}
    for kind in KINDS:
        for path, rule in all_rules(schema_of(kind)):
            assert rule["rule"] in transitions or rule["message"] in broken, (kind, path)


def test_a_rollouts_spec_never_changes() -> None:
    schema, before = schema_of("ProfileRollout"), sample("ProfileRollout", "chat-5f2c1e9a")
    said = "a rollout compares what it was made for and never changes: make a new one, or ask for a rerun"
    for path, value in ((("spec", "seed"), 1), (("spec", "supersedes"), None), (("spec", "rerunOf"), "x")):
        assert refusals(schema, changed(before, path, value), before) == [Refusal("spec", said)]
    annotated = changed(before, ("metadata", "annotations"), {"prefillgate.io/override": "hold"})
    assert refusals(schema, annotated, before) == []


def test_a_lines_name_leaves_room_for_those_of_its_rollouts() -> None:
    schema, thing = schema_of("ServingLine"), sample("ServingLine", "chat")
    assert refusals(schema, changed(thing, ("metadata", "name"), "a" * LONGEST_LINE_NAME)) == []
    (refusal,) = refusals(schema, changed(thing, ("metadata", "name"), "a" * (LONGEST_LINE_NAME + 1)))
    assert "at most 40 characters" in refusal.says


# What a type may not say

Text = Annotated[str, Field(max_length=5, description="A text.")]


class Inner(WireModel):
    """Of its type."""

    model_config = with_rules(CelRule("true", "never"))

    word: Text


class Outer(WireModel):
    """All of it."""

    one: Inner = Field(description="Of its field.")
    maybe: Inner | None = None
    only: Literal["A"] = Field(default="A", description="Always A.")
    small: int = Field(ge=0, le=2**31 - 1)
    large: int = Field(ge=0, le=2**31)
    words: dict[Annotated[str, Field(min_length=1, max_length=9)], Text] = Field(max_length=3)
    anything: dict[str, Any] = Field(max_length=3)


def test_references_are_inlined_and_a_fields_description_goes_before_its_types() -> None:
    schema = structural(Outer)
    inner = {
        "type": "object",
        "properties": {"word": {"description": "A text.", "type": "string", "maxLength": 5}},
        "required": ["word"],
        "x-kubernetes-validations": [{"rule": "true", "message": "never"}],
    }
    assert schema["description"] == "All of it."
    assert schema["required"] == ["one", "small", "large", "words", "anything"]
    assert schema["properties"] == {
        "one": {"description": "Of its field.", **inner},
        "maybe": {"description": "Of its type.", **inner},
        "only": {"description": "Always A. Default: A.", "type": "string", "enum": ["A"]},
        "small": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 2**31 - 1},
        "large": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 2**31},
        "words": {
            "type": "object",
            "maxProperties": 3,
            "additionalProperties": {"description": "A text.", "type": "string", "maxLength": 5},
            "x-kubernetes-validations": [
                {"rule": "self.all(key, size(key) >= 1 && size(key) <= 9)", "message": "a key has 1 to 9 characters"}
            ],
        },
        "anything": {"type": "object", "maxProperties": 3, "x-kubernetes-preserve-unknown-fields": True},
    }


class Unions(WireModel):
    port: int | str


class Fractions(WireModel):
    ratio: float


class Open(WireModel):
    above: Annotated[int, Field(gt=1)]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Unions, "Unions.port: a field of 2 types"),
        (Fractions, "Fractions.ratio: a field of type number"),
        (Open, "Open.above: exclusiveMinimum"),
    ],
)
def test_a_type_that_cannot_be_kept_is_named(model: type[WireModel], says: str) -> None:
    with pytest.raises(CannotBeKept) as refused:
        structural(model)
    assert str(refused.value) == says


def test_the_samples_are_of_every_kind() -> None:
    assert {thing["kind"] for thing in examples()} == set(KINDS)
