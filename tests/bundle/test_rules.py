"""The rules have a number, and it is raised whenever they give another output for the same events."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from prefillgate.api.replay_set import Case, canonical_json
from prefillgate.bundle import content
from prefillgate.bundle.manifest import read_manifest
from prefillgate.bundle.rules import RULES
from prefillgate.cli.errors import CouldNotMeasure
from prefillgate.core.acceptance import QUICK
from prefillgate.core.cells import ColdProof
from prefillgate.core.shape import Shape
from prefillgate.engines.base import EngineError
from prefillgate.engines.registry import engine_names, reader
from prefillgate.replay.request import Sending, prepare
from tests.support.bundles import Bundle
from tests.support.flights import fleet
from tests.support.journals import Stepper, started
from tests.tools.golden_bundle import NAMES, golden_path, unpacked

#: By number of the rules: what they give for the inputs below.
OUTPUTS = {2: "f2e52961b9eb371549f665b4fe8e52dcf1a30bd8e04c4db508ba5b14e513a8e7"}
ADVICE = "the rules give another output: raise RULES in prefillgate/bundle/rules.py, then tests/tools/golden_bundle.py"
CASES = (
    Case("text", "/v1/completions", {"prompt": "Review this: x = 1", "max_tokens": 9, "temperature": 0}),
    Case("chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "stream": False}),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_that_was_kept_is_the_same_for_as_long_as_the_rules_have_their_number(
    name: str, tmp_path: Path
) -> None:
    assert golden_path(name).exists(), ADVICE
    bundle = Bundle(unpacked(golden_path(name), tmp_path / "bundle"))
    assert read_manifest((bundle.folder / content.MANIFEST).read_bytes()).rules == RULES
    told = bundle.verify()
    assert told.code == 0, f"{ADVICE}\n{told.text}"
    kinds = {line["event"]["kind"] for line in bundle.documents(content.EVENTS)}
    assert name != "replicate" or {"ReplicateStarted", "SeparationKept"} <= kinds


def steps() -> list[str]:
    """What the schedule asks for in runs of several shapes, some cells bad."""
    told = []
    for shape in (Shape(), Shape(sequential=True), Shape(candidate_alone=True), Shape(baseline_alone=True)):
        made = Stepper(started(QUICK, shape=shape), bad=lambda step: step.arm == "candidate" and step.seed % 9 == 0)
        for _ in range(120):
            told.append(repr(made.step()))
    flown = fleet(QUICK, Shape(candidate_lanes=3, baseline_lanes=2))
    flown.run()
    return [*told, *(repr(step) for step in flown.begun)]


def requests() -> list[bytes]:
    """What each engine sends for two cases, by each proof; the refusals too."""
    told = []
    for name in engine_names()[1:]:
        engine = reader(name)
        assert engine is not None
        for case in CASES:
            for proof in (None, *ColdProof):
                try:
                    made = prepare(case, engine, Sending("m", 7, "0" * 32, proof))
                    told.append(canonical_json([name, made.path, made.body]))
                except (EngineError, ValueError) as error:
                    told.append(f"{name}: {error}".encode())
    return told


def test_the_outputs_for_fixed_inputs_are_those_of_the_number() -> None:
    digest = hashlib.sha256()
    for step in steps():
        digest.update(step.encode() + b"\n")
    for request in requests():
        digest.update(request + b"\n")
    digest.update(json.dumps(asdict(QUICK), sort_keys=True).encode())
    assert OUTPUTS.get(RULES) == digest.hexdigest(), ADVICE


@pytest.fixture
def other_rules(bundle: Bundle) -> Bundle:
    """The bundle of another number; its decision is what those rules said."""
    path = bundle.folder / content.DECISION
    path.write_bytes(path.read_bytes().replace(b'"reason":"', b'"reason":"Former'))
    manifest = read_manifest((bundle.folder / content.MANIFEST).read_bytes())
    (bundle.folder / content.MANIFEST).write_bytes(replace(manifest, rules=RULES + 1).render())
    bundle.sign_off()
    return bundle


def test_a_bundle_made_under_other_rules_is_not_called_forged(other_rules: Bundle) -> None:
    with pytest.raises(CouldNotMeasure) as newer:
        other_rules.verify()
    assert str(newer.value).startswith(
        f"{other_rules.folder}: made under rules {RULES + 1}, this program has {RULES}: its verdict cannot be "
        "recomputed here, upgrade prefillgate. Its digests and the chain of its "
    )
    assert str(newer.value).endswith(" events hold. It is not signed.")


def test_under_other_rules_every_digest_is_still_held_against_its_text(other_rules: Bundle) -> None:
    path = other_rules.folder / content.TEXTS
    path.write_bytes(path.read_bytes().replace(b'"content":"', b'"content":"!', 1))
    other_rules.sign_off()
    told = other_rules.verify()
    assert told.code == 10
    assert told.first == f"{content.TEXTS}:1: not the texts that the events hold the digest of"
