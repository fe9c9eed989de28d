"""The custom resources on a real API server: what it takes, what it refuses in which words, what kubectl shows."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from prefillgate.api.kinds.names import LONGEST_LINE_NAME
from tests.support.broken_rules import BROKEN, LONG_KEYS
from tests.support.cluster.api import Api, Refused, path_of, wait_for
from tests.support.cluster.control_plane import ControlPlane, running_control_plane
from tests.support.cluster_crds import SERVED, install_crds, standing
from tests.support.kinds import (
    OF_KIND,
    Object,
    Wrong,
    changed,
    each_wrong_field_once,
    sample,
    samples,
    schema_of,
    schema_paths,
    with_status,
    wrong_fields,
)

GROUP, VERSION = "prefillgate.io", "v1alpha1"
STRICT = {"fieldValidation": "Strict"}
TRIED = {**STRICT, "dryRun": "All"}  # judged as ever, and nothing is kept


@dataclass(frozen=True)
class Place:
    """A namespace of a test's own on an API server that has our kinds."""

    plane: ControlPlane
    name: str

    @property
    def api(self) -> Api:
        """The server, for who may do everything."""
        return self.plane.api()

    def kubectl(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """The real kubectl, in the namespace."""
        return self.plane.kubectl(f"--namespace={self.name}", *words, text=text)


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without a node: thousands of requests would fill the audit log of one that others read."""
    with running_control_plane(tmp_path_factory.mktemp("kinds")) as plane:
        install_crds(plane)
        yield plane


@pytest.fixture
def kinds(own_plane: ControlPlane, request: pytest.FixtureRequest) -> Place:
    """A namespace of this test's own, on it."""
    name = f"test-{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    own_plane.api().create(path_of("namespaces"), {"metadata": {"name": name}})
    return Place(own_plane.recorded(), name)


def path(where: Place, thing: Object, name: str = "") -> str:
    """Where objects of the kind are."""
    return path_of(OF_KIND[thing["kind"]].names.plural, name, where.name, group=GROUP, version=VERSION)


def explained(where: Place, *words: str) -> str:
    """What `kubectl explain` says, once kubectl has found the kind: it remembers for a while what was not there."""
    told: str = wait_for(lambda: where.kubectl("explain", *words).stdout)
    return told


def refusal(where: Place, thing: Object) -> str | None:
    """What the server says of an object that would be created; None when it takes it."""
    try:
        where.api.ask("POST", path(where, thing), thing, **TRIED)
    except Refused as no:
        assert no.code in (400, 422), no
        return no.told
    return None


def names_field(told: str | None, wrong: Wrong) -> bool:
    """Whether what was said names the field."""
    return told is not None and (f"{wrong.field}: " in told or f'unknown field "{wrong.field}"' in told)


def test_the_definitions_are_structural_and_served(kinds: Place) -> None:
    for resource in OF_KIND.values():
        crd = kinds.api.get(path_of("customresourcedefinitions", resource.names.crd_name, group="apiextensions.k8s.io"))
        assert standing(crd) == SERVED  # NonStructuralSchema would stand there


def test_every_sample_is_taken_and_kept_as_it_was_written(kinds: Place) -> None:
    kept = []
    for thing in samples():
        name = f"{thing['metadata']['name']}-{len(kept)}"
        made = kinds.api.ask("POST", path(kinds, thing), changed(thing, ("metadata", "name"), name), **STRICT)
        kept.append(made["spec"] == thing["spec"])  # a default would be written into it
    assert kept and all(kept)


def test_whatever_is_wrong_with_a_field_of_a_spec_is_refused_by_its_path(kinds: Place) -> None:
    wrong = list(each_wrong_field_once())
    untold = [str(each) for each in wrong if not names_field(refusal(kinds, each.thing), each)]
    assert untold == []
    assert len(wrong) > 700


def test_what_breaks_a_rule_over_several_fields_is_refused_in_its_words(kinds: Place) -> None:
    told = {str(broken): (broken, refusal(kinds, broken.thing)) for broken in (*BROKEN, *LONG_KEYS)}
    untold = {
        name: said
        for name, (broken, said) in told.items()
        if said is None or broken.says not in said or f"{broken.field}: " not in said
    }
    assert untold == {}


def test_a_rollouts_spec_never_changes_and_its_annotations_may(kinds: Place) -> None:
    api, thing = kinds.api, sample("ProfileRollout", "chat-5f2c1e9a")
    api.create(path(kinds, thing), thing)
    own = path(kinds, thing, thing["metadata"]["name"])
    for change in ({"seed": 1}, {"supersedes": None}, {"rerunOf": "x"}, {"candidate": {"settings": []}}):
        with pytest.raises(Refused, match="a rollout compares what it was made for and never changes"):
            api.merge(own, {"spec": change})
    api.merge(own, {"metadata": {"annotations": {"prefillgate.io/override": "hold"}}})
    assert api.get(own)["metadata"]["generation"] == 1


def test_a_lines_name_leaves_room_for_those_of_its_rollouts(kinds: Place) -> None:
    thing = sample("ServingLine", "chat")
    assert refusal(kinds, changed(thing, ("metadata", "name"), "a" * LONGEST_LINE_NAME)) is None
    told = refusal(kinds, changed(thing, ("metadata", "name"), "a" * (LONGEST_LINE_NAME + 1)))
    assert told is not None and "at most 40 characters" in told


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_status_is_judged_by_its_schema_and_written_by_way_of_the_subresource_alone(kinds: Place, kind: str) -> None:
    api, thing = kinds.api, with_status(kind)
    made = api.create(path(kinds, thing), thing)
    assert "status" not in made
    own = path(kinds, thing, f"{thing['metadata']['name']}/status")
    full = {**made, "status": thing["status"]}
    assert api.ask("PUT", own, full, **TRIED)["status"] == thing["status"]
    untold = []
    for wrong in wrong_fields(full, "status"):
        try:
            api.ask("PUT", own, wrong.thing, **TRIED)
            untold.append(str(wrong))
        except Refused as no:
            untold += [] if names_field(no.told, wrong) else [f"{wrong}: {no.told}"]
    assert untold == []


def test_kubectl_explains_every_field(kinds: Place) -> None:
    for kind, resource in OF_KIND.items():
        short = resource.names.short[0]
        everything = explained(kinds, short, "--recursive")
        known = {
            place.rpartition(".")[2] for place, _ in schema_paths(schema_of(kind)) if not place.endswith(("[]", "*"))
        }
        assert {name for name in known if name and f" {name}\t<" not in everything} == set()
    told = " ".join(explained(kinds, "sl.spec.baseline.isolation.mode").split())
    assert "Quiet: cells wait until the server is idle." in told and "Default: Quiet." in told
    told = " ".join(explained(kinds, "pro.status.counts.candidate.badRequests").split())
    assert "Bad ones among them: never a sample size." in told


def test_kubectl_shows_the_decision_first_and_more_when_asked(kinds: Place) -> None:
    for kind, name in (("ServingLine", "chat"), ("ProfileRollout", "chat-5f2c1e9a")):
        assert kinds.kubectl("apply", "-f", "-", text=json.dumps(sample(kind, name))).returncode == 0
    usual = ["NAME", "DECISION", "PREFILLS", "ROLLBACK", "CANDIDATE", "AGE"]
    lines = wait_for(lambda: kinds.kubectl("get", "sl").stdout).splitlines()
    assert lines[0].split() == [*usual, "NOT", "WELL"] and len(lines[1].split()) == 2  # nothing is told of it
    ill = json.dumps({"status": {"notWell": "SecretNotUsable"}})
    patched = kinds.kubectl("patch", "sl", "chat", "--subresource=status", "--type=merge", "--patch", ill)
    assert patched.returncode == 0, patched.stderr
    assert kinds.kubectl("get", "sl").stdout.splitlines()[1].split()[-1] == "SecretNotUsable"
    assert kinds.kubectl("get", "pro").stdout.splitlines()[0].split() == usual
    wide = kinds.kubectl("get", "pro", "-o", "wide").stdout.splitlines()
    assert wide[0].split()[6:] == [
        *("LINE", "PROMOTION", "REASON", "BASELINE", "THROUGHPUT", "SUCCEEDED", "DIFFERENCES"),
    ]
    assert wide[1].split()[0] == "chat-5f2c1e9a" and wide[1].split()[-1] == "chat"
    of_the_category = kinds.kubectl("get", "prefillgate", "-o", "name").stdout.split()
    assert of_the_category == ["profilerollout.prefillgate.io/chat-5f2c1e9a", "servingline.prefillgate.io/chat"]


def test_kubectl_says_a_misspelt_field_by_its_path(kinds: Place) -> None:
    thing = changed(sample("ServingLine", "chat"), ("spec", "watch", "everySecond"), 5)
    done = kinds.kubectl("apply", "-f", "-", text=json.dumps(thing))
    assert done.returncode == 1
    assert 'unknown field "spec.watch.everySecond"' in done.stderr
