"""Who overrides, on a real API server: stamped from the request's user, never forged, and allowed by its own verb."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from prefillgate.api.kinds.names import (
    API_VERSION,
    OVERRIDE,
    OVERRIDE_ACTOR,
    OVERRIDE_ANNOTATIONS,
    OVERRIDE_EXPIRES,
    OVERRIDE_POLICY,
    OVERRIDE_REASON,
    OVERRIDE_STAMP_POLICY,
)
from prefillgate.reconcile.override_words import actor_of, asked
from prefillgate.reconcile.stamping import stamping_in_force
from tests.support.cluster.api import APPLY_PATCH, JSON_PATCH, STRATEGIC_PATCH, Object, Refused, path_of, wait_for
from tests.support.cluster.control_plane import ControlPlane, running_control_plane
from tests.support.cluster.fixtures import Cluster, Namespace
from tests.support.cluster.node_agent import NodeAgent
from tests.support.cluster.users import ADMIN, ALICE, BOB, GATE, User
from tests.support.cluster_crds import install_crds
from tests.support.kinds import ROOT, changed, sample

FOLDER = ROOT / "manifests" / "admission"
ADMISSION = "admissionregistration.k8s.io"
KINDS = {"profilerollouts": ("ProfileRollout", "chat-5f2c1e9a"), "servinglines": ("ServingLine", "chat")}
EVERY_RIGHT = ["get", "list", "create", "update", "patch", "delete"]
WORDS = {OVERRIDE: "promote", OVERRIDE_REASON: "looked at every answer"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with our kinds and all of manifests/admission, once it is in force."""
    with running_control_plane(tmp_path_factory.mktemp("admission")) as plane:
        install_crds(plane)
        done = plane.kubectl("apply", "--validate=strict", "-f", str(FOLDER))
        assert done.returncode == 0, done.stderr
        with NodeAgent(plane, tmp_path_factory.mktemp("node")) as node:
            wait_for(lambda: in_force(plane))
            yield Cluster(plane, node)


def in_force(plane: ControlPlane) -> bool:
    """Whether a server stamps and refuses: its informers learn of kinds and policies some moments later."""
    admin, trial = plane.api(), annotated("profilerollouts", {**WORDS, OVERRIDE_ACTOR: "x"})
    path = path_of("profilerollouts", "", "default", "prefillgate.io", "v1alpha1")
    try:
        made = admin.ask("POST", path, trial, dryRun="All")
    except Refused as no:
        assert no.code == 503, no
        return False
    admin.http.headers["Impersonate-User"] = "nobody-at-all"
    try:
        admin.ask("POST", path, trial, dryRun="All")
        return False
    except Refused as no:
        return no.code == 403 and made["metadata"]["annotations"][OVERRIDE_ACTOR] == "admin"
    finally:
        del admin.http.headers["Impersonate-User"]


@pytest.fixture
def place(guarded: Cluster, request: pytest.FixtureRequest) -> Namespace:
    """A namespace of this test's own, in it."""
    name = f"test-{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    guarded.api().create(path_of("namespaces"), {"metadata": {"name": name}})
    return Namespace(name, Cluster(guarded.plane.recorded(), guarded.node))


def annotated(resource: str, annotations: dict[str, str] | None = None) -> Object:
    """A sample of the kind with these annotations."""
    kind, name = KINDS[resource]
    return changed(sample(kind, name), ("metadata", "annotations"), annotations or {"else": "where"})


def path(place: Namespace, resource: str, name: str | None = None) -> str:
    """Where the sample is."""
    return place.path(resource, KINDS[resource][1] if name is None else name, "prefillgate.io", "v1alpha1")


def made(place: Namespace, resource: str, annotations: dict[str, str] | None = None, user: User = ADMIN) -> Object:
    """The sample, created by a user."""
    return place.cluster.api(user).create(path(place, resource, ""), annotated(resource, annotations))


def set_by(place: Namespace, user: User, resource: str, annotations: dict[str, str | None]) -> dict[str, str]:
    """Annotations set by a user (None takes one away); those that stand then. Raises Refused."""
    body = {"metadata": {"annotations": annotations}}
    return ours(place.cluster.api(user).merge(path(place, resource), body))


def ours(thing: Object) -> dict[str, str]:
    """The override annotations of an object."""
    told = thing["metadata"].get("annotations") or {}
    return {name: value for name, value in told.items() if name in OVERRIDE_ANNOTATIONS}


def allow(place: Namespace, user: User, *verbs: str, resources: tuple[str, ...] = tuple(KINDS)) -> None:
    """Every right on our two kinds, and these verbs beside."""
    rule = {"apiGroups": ["prefillgate.io"], "resources": list(resources), "verbs": [*EVERY_RIGHT, *verbs]}
    place.grant(user, rule)


BOTH = pytest.mark.parametrize("resource", KINDS)


# Stamped


@BOTH
def test_the_actor_is_stamped_from_the_requests_user(place: Namespace, resource: str) -> None:
    allow(place, ALICE, "override")
    made(place, resource)
    assert set_by(place, ALICE, resource, dict(WORDS)) == {**WORDS, OVERRIDE_ACTOR: "alice"}
    assert set_by(place, ADMIN, resource, {OVERRIDE: "hold"})[OVERRIDE_ACTOR] == "admin"  # of system:masters


@BOTH
def test_one_kubectl_command_overrides_and_one_takes_it_back(place: Namespace, resource: str) -> None:
    allow(place, ALICE, "override")
    made(place, resource)
    singular, name = KINDS[resource][0].lower(), KINDS[resource][1]
    words = [f"{OVERRIDE}=rollback", f"{OVERRIDE_REASON}=it burns", f"{OVERRIDE_EXPIRES}=2030-01-01T00:00:00Z"]
    done = place.kubectl("annotate", "--overwrite", singular, name, *words, user=ALICE)
    assert (done.returncode, done.stderr) == (0, "")
    stands = ours(place.cluster.api().get(path(place, resource)))
    assert stands == {
        OVERRIDE: "rollback",
        OVERRIDE_REASON: "it burns",
        OVERRIDE_EXPIRES: "2030-01-01T00:00:00Z",
        OVERRIDE_ACTOR: "alice",
    }
    names = [f"{each}-" for each in OVERRIDE_ANNOTATIONS]
    done = place.kubectl("annotate", singular, name, *names, user=ALICE)
    assert done.returncode == 0, done.stderr
    gone = ours(place.cluster.api().get(path(place, resource)))
    assert gone == {OVERRIDE_ACTOR: "alice"}  # who took it away


@BOTH
def test_a_name_written_by_hand_is_corrected(place: Namespace, resource: str) -> None:
    allow(place, BOB, "override")
    created = made(place, resource, {**WORDS, OVERRIDE_ACTOR: "alice"}, user=BOB)
    assert ours(created)[OVERRIDE_ACTOR] == "bob"
    assert set_by(place, BOB, resource, {OVERRIDE_ACTOR: "alice"})[OVERRIDE_ACTOR] == "bob"
    alone = set_by(place, BOB, resource, {OVERRIDE: "hold", OVERRIDE_ACTOR: "alice"})
    assert alone == {**WORDS, OVERRIDE: "hold", OVERRIDE_ACTOR: "bob"}


@BOTH
@pytest.mark.parametrize(
    "edit", [{OVERRIDE_REASON: "mine"}, {OVERRIDE_EXPIRES: "2030-01-01T00:00:00Z"}, {OVERRIDE: ""}]
)
def test_whoever_edits_one_word_later_is_the_actor_of_them_all(
    place: Namespace, resource: str, edit: dict[str, str]
) -> None:
    allow(place, ALICE, "override")
    allow(place, BOB, "override")
    made(place, resource, WORDS, user=ALICE)
    assert set_by(place, BOB, resource, dict(edit)) == {**WORDS, **edit, OVERRIDE_ACTOR: "bob"}


@BOTH
def test_whoever_takes_a_word_away_is_the_actor_of_what_stays(place: Namespace, resource: str) -> None:
    allow(place, BOB, "override")
    made(place, resource, {**WORDS, OVERRIDE_EXPIRES: "2030-01-01T00:00:00Z"})
    assert set_by(place, BOB, resource, {OVERRIDE_EXPIRES: None}) == {**WORDS, OVERRIDE_ACTOR: "bob"}
    bare = place.cluster.api(BOB).ask(
        "PATCH", path(place, resource), [{"op": "remove", "path": "/metadata/annotations"}], JSON_PATCH
    )
    assert bare["metadata"]["annotations"] == {OVERRIDE_ACTOR: "bob"}


def test_the_stamp_is_who_the_controller_believes(place: Namespace) -> None:
    allow(place, ALICE, "override")
    made(place, "profilerollouts")
    set_by(place, ALICE, "profilerollouts", dict(WORDS))
    thing = place.cluster.api().get(path(place, "profilerollouts"))
    wanted = asked(thing)
    assert wanted is not None
    told = actor_of(thing, wanted, stamped=True)
    assert told is not None and (told.name, told.verified) == ("alice", True)


def test_without_stamps_the_managed_fields_of_a_real_server_tell_who_wrote_it(place: Namespace) -> None:
    made(place, "profilerollouts")
    place.kubectl("annotate", "pro", KINDS["profilerollouts"][1], f"{OVERRIDE}=hold", f"{OVERRIDE_REASON}=why")
    thing = place.cluster.api().get(path(place, "profilerollouts"))
    wanted = asked(thing)
    assert wanted is not None
    assert str(actor_of(thing, wanted, stamped=False)) == "kubectl-annotate (not verified)"


# Allowed


@BOTH
@pytest.mark.parametrize("way", ["patch", "create", "replace", "apply", "json patch", "removal"])
def test_a_person_without_the_verb_is_told_what_must_be_granted(place: Namespace, resource: str, way: str) -> None:
    allow(place, BOB)
    bob, own = place.cluster.api(BOB), path(place, resource)
    words = {"metadata": {"annotations": dict(WORDS)}}
    if way != "create":
        made(place, resource, WORDS if way == "removal" else None)
    before = place.cluster.api().find(own)
    with pytest.raises(Refused) as refused:
        if way == "create":
            made(place, resource, WORDS, user=BOB)
        elif way == "replace":
            bob.ask("PUT", own, changed(before or {}, ("metadata", "annotations"), dict(WORDS)))
        elif way == "apply":
            kind = {"apiVersion": API_VERSION, "kind": KINDS[resource][0], **words}
            bob.ask("PATCH", own, kind, APPLY_PATCH, fieldManager="bob", force="true")
        elif way == "json patch":
            bob.ask("PATCH", own, [{"op": "add", "path": "/metadata/annotations", "value": dict(WORDS)}], JSON_PATCH)
        elif way == "removal":
            set_by(place, BOB, resource, {OVERRIDE: None})
        else:
            bob.merge(own, words)
    assert refused.value.code == 403
    assert (
        f"bob may not override: that needs the verb override on {resource}.prefillgate.io in the namespace "
        f"{place.name}, as the ClusterRole prefillgate-overrider grants it: kubectl create rolebinding -n "
        f"{place.name} overriders --clusterrole=prefillgate-overrider --user=NAME"
    ) in refused.value.told
    assert place.cluster.api().find(own) == before


def test_kubectl_shows_the_refusal(place: Namespace) -> None:
    allow(place, BOB)
    made(place, "profilerollouts")
    done = place.kubectl("annotate", "pro", KINDS["profilerollouts"][1], f"{OVERRIDE}=promote", user=BOB)
    assert done.returncode == 1
    assert "bob may not override: that needs the verb override on profilerollouts.prefillgate.io" in done.stderr


def test_the_verb_on_one_kind_in_one_namespace_is_for_that_kind_there(place: Namespace) -> None:
    rule = {"apiGroups": ["prefillgate.io"], "resources": list(KINDS), "verbs": EVERY_RIGHT}
    only = {"apiGroups": ["prefillgate.io"], "resources": ["profilerollouts"], "verbs": ["override"]}
    place.grant(ALICE, rule, only)
    for resource in KINDS:
        made(place, resource)
    assert set_by(place, ALICE, "profilerollouts", dict(WORDS))[OVERRIDE_ACTOR] == "alice"
    with pytest.raises(Refused, match="alice may not override"):
        set_by(place, ALICE, "servinglines", dict(WORDS))
    other = Namespace(f"{place.name}-other", place.cluster)
    place.cluster.api().create(path_of("namespaces"), {"metadata": {"name": other.name}})
    allow(other, ALICE)
    made(other, "profilerollouts")
    with pytest.raises(Refused, match=f"in the namespace {other.name}"):
        set_by(other, ALICE, "profilerollouts", dict(WORDS))


def test_the_verb_on_one_rollout_by_its_name_is_for_that_one(place: Namespace) -> None:
    rule = {"apiGroups": ["prefillgate.io"], "resources": ["profilerollouts"], "verbs": EVERY_RIGHT}
    named = {**rule, "verbs": ["override"], "resourceNames": ["chat-2"]}
    place.grant(ALICE, rule, named)
    for name in ("chat-1", "chat-2"):
        thing = changed(annotated("profilerollouts"), ("metadata", "name"), name)
        place.cluster.api().create(path(place, "profilerollouts", ""), thing)
    alice, body = place.cluster.api(ALICE), {"metadata": {"annotations": dict(WORDS)}}
    assert ours(alice.merge(path(place, "profilerollouts", "chat-2"), body))[OVERRIDE_ACTOR] == "alice"
    with pytest.raises(Refused, match="alice may not override"):
        alice.merge(path(place, "profilerollouts", "chat-1"), body)


def test_the_cluster_role_of_the_manifests_is_enough_to_override_a_rollout_and_changes_no_line(
    place: Namespace,
) -> None:
    bound = "create rolebinding overriders --clusterrole=prefillgate-overrider --user=alice"
    assert place.kubectl(*bound.split()).returncode == 0
    for resource in KINDS:
        made(place, resource)
    words = [f"{name}={value}" for name, value in WORDS.items()]
    done = place.kubectl("annotate", "pro", KINDS["profilerollouts"][1], *words, user=ALICE)
    assert done.returncode == 0, done.stderr
    assert ours(place.cluster.api().get(path(place, "profilerollouts")))[OVERRIDE_ACTOR] == "alice"
    for change in ({"spec": {"suspend": True}}, {"metadata": {"annotations": dict(WORDS)}}):
        with pytest.raises(Refused, match='cannot patch resource "servinglines"'):
            place.cluster.api(ALICE).merge(path(place, "servinglines"), change)
    editor = {"apiGroups": ["prefillgate.io"], "resources": ["servinglines"], "verbs": ["patch"]}
    place.grant(ALICE, editor)
    assert set_by(place, ALICE, "servinglines", dict(WORDS))[OVERRIDE_ACTOR] == "alice"


def test_the_verb_alone_writes_nothing(place: Namespace) -> None:
    place.grant(ALICE, {"apiGroups": ["prefillgate.io"], "resources": ["*"], "verbs": ["override", "get"]})
    made(place, "profilerollouts")
    with pytest.raises(Refused, match='cannot patch resource "profilerollouts"'):
        set_by(place, ALICE, "profilerollouts", dict(WORDS))


# What is none of its business


@BOTH
def test_whoever_leaves_the_words_alone_needs_no_verb(place: Namespace, resource: str) -> None:
    allow(place, BOB)
    made(place, resource, {**WORDS, "else": "where"})
    stands = ours(place.cluster.api().get(path(place, resource)))
    bob = place.cluster.api(BOB)
    bob.merge(path(place, resource), {"metadata": {"annotations": {"prefillgate.io/rerun": "1"}, "labels": {"a": "b"}}})
    again = bob.get(path(place, resource))
    bob.ask("PUT", path(place, resource), again)  # all of it, as it stands
    assert ours(bob.get(path(place, resource))) == stands == {**WORDS, OVERRIDE_ACTOR: "admin"}
    bob.delete(path(place, resource))
    assert place.cluster.api().find(path(place, resource)) is None


@BOTH
def test_a_manifest_without_the_words_is_applied_over_an_override_and_keeps_it(place: Namespace, resource: str) -> None:
    allow(place, BOB)
    allow(place, ALICE, "override")
    text = yaml.safe_dump(annotated(resource))
    assert place.kubectl("apply", "-f", "-", user=BOB, text=text).returncode == 0
    stands = set_by(place, ALICE, resource, dict(WORDS))
    text = yaml.safe_dump(annotated(resource, {"else": "there"}))
    for how in ((), ("--server-side", "--force-conflicts")):
        done = place.kubectl("apply", *how, "-f", "-", user=BOB, text=text)
        assert done.returncode == 0, done.stderr
    assert ours(place.cluster.api().get(path(place, resource))) == stands == {**WORDS, OVERRIDE_ACTOR: "alice"}


def test_the_gate_makes_rollouts_and_writes_statuses_without_the_verb(place: Namespace) -> None:
    rules = yaml.safe_load_all((ROOT / "manifests" / "rbac" / "controller.yaml").read_text(encoding="utf-8"))
    role = next(each for each in rules if each["kind"] == "ClusterRole")
    assert not any("override" in rule["verbs"] or "*" in rule["verbs"] for rule in role["rules"])
    place.grant(GATE, *role["rules"])
    made(place, "servinglines", WORDS)
    gate = place.cluster.api(GATE)
    made(place, "profilerollouts", user=GATE)
    for resource in KINDS:
        kind, name = KINDS[resource]
        status = {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": {"name": name},
            "status": {"prefills": "0 bad of 1"},
        }
        where = f"{path(place, resource)}/status"
        gate.ask("PATCH", where, status, APPLY_PATCH, fieldManager="prefillgate", force="true")
        assert place.cluster.api().get(path(place, resource))["status"] == {"prefills": "0 bad of 1"}
    assert ours(place.cluster.api().get(path(place, "servinglines")))[OVERRIDE] == "promote"
    gate.delete(path(place, "profilerollouts"))


@BOTH
def test_nobody_overrides_by_way_of_the_status(place: Namespace, resource: str) -> None:
    rule = {"apiGroups": ["prefillgate.io"], "resources": [f"{resource}/status"], "verbs": ["*"]}
    place.grant(BOB, rule)
    made(place, resource)
    bob, own, words = place.cluster.api(BOB), f"{path(place, resource)}/status", {"annotations": dict(WORDS)}
    kind, name = KINDS[resource]
    bob.merge(own, {"metadata": words})
    applied = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **words}, "status": {}}
    bob.ask("PATCH", own, applied, APPLY_PATCH, fieldManager="bob", force="true")
    assert ours(place.cluster.api().get(path(place, resource))) == {}


# Hostile input


@BOTH
@pytest.mark.parametrize("before", [None, WORDS])
def test_an_empty_word_is_a_word(place: Namespace, resource: str, before: dict[str, str] | None) -> None:
    allow(place, BOB)
    made(place, resource, before)
    for name in (OVERRIDE_EXPIRES, OVERRIDE_ACTOR):
        with pytest.raises(Refused, match="bob may not override"):
            set_by(place, BOB, resource, {name: ""})


def test_a_name_that_the_server_makes_up_changes_nothing(place: Namespace) -> None:
    allow(place, BOB)
    allow(place, ALICE, "override")
    thing = changed(annotated("profilerollouts", {**WORDS, OVERRIDE_ACTOR: "root"}), ("metadata", "name"), None)
    thing["metadata"]["generateName"] = "chat-"
    where = path(place, "profilerollouts", "")
    with pytest.raises(Refused, match="bob may not override"):
        place.cluster.api(BOB).create(where, thing)
    assert ours(place.cluster.api(ALICE).create(where, thing))[OVERRIDE_ACTOR] == "alice"


def test_server_side_apply_stamps_on_creation_and_on_every_change(place: Namespace) -> None:
    for user in (ALICE, BOB):
        allow(place, user, "override")
    thing, where = annotated("profilerollouts", {**WORDS, OVERRIDE_ACTOR: "root"}), path(place, "profilerollouts")
    for user, reason in ((ALICE, "one"), (BOB, "two"), (ALICE, "three")):
        thing = changed(thing, ("metadata", "annotations", OVERRIDE_REASON), reason)
        api = place.cluster.api(user)
        api.ask("PATCH", where, thing, APPLY_PATCH, fieldManager=user.name, force="true")
        assert ours(api.get(where)) == {**WORDS, OVERRIDE_REASON: reason, OVERRIDE_ACTOR: user.name}


def test_a_patch_of_a_form_that_our_kinds_have_not_changes_nothing(place: Namespace) -> None:
    allow(place, BOB)
    made(place, "profilerollouts")
    body = {"metadata": {"annotations": dict(WORDS)}}
    with pytest.raises(Refused) as refused:
        place.cluster.api(BOB).ask("PATCH", path(place, "profilerollouts"), body, STRATEGIC_PATCH)
    assert refused.value.code == 415
    assert ours(place.cluster.api().get(path(place, "profilerollouts"))) == {}


def test_texts_that_would_break_a_terminal_or_a_log_are_stamped_like_any_other(place: Namespace) -> None:
    allow(place, ALICE, "override")
    made(place, "profilerollouts")
    for reason in ("\x1b[2J\u202e\n\ttwo\x00", "x" * 65_536, "'; DROP TABLE overrides --", "${jndi:ldap://x}"):
        told = set_by(place, ALICE, "profilerollouts", {OVERRIDE: "hold", OVERRIDE_REASON: reason})
        assert (told[OVERRIDE_REASON], told[OVERRIDE_ACTOR]) == (reason, "alice")
    with pytest.raises(Refused, match="Too long: may not be more than 262144 bytes"):
        set_by(place, ALICE, "profilerollouts", {OVERRIDE_REASON: "x" * 262_144})


def test_who_may_act_for_another_is_stamped_as_the_other(place: Namespace) -> None:
    allow(place, ALICE, "override")
    made(place, "profilerollouts")
    done = place.kubectl("annotate", "pro", KINDS["profilerollouts"][1], f"{OVERRIDE}=hold", "--as=alice")
    assert done.returncode == 0, done.stderr
    assert ours(place.cluster.api().get(path(place, "profilerollouts")))[OVERRIDE_ACTOR] == "alice"
    done = place.kubectl("annotate", "--overwrite", "pro", "--all", f"{OVERRIDE}=promote", "--as=bob")
    assert done.returncode == 1  # who has no right at all has none by way of an admin either


# The policies themselves


def policies() -> dict[tuple[str, str], Object]:
    """Everything in manifests/admission, by kind and name."""
    things = [each for file in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text("utf-8"))]
    return {(each["kind"], each["metadata"]["name"]): each for each in things}


def test_both_policies_look_at_the_same_words_on_the_same_kinds_and_fail_closed() -> None:
    stamp = policies()["MutatingAdmissionPolicy", OVERRIDE_STAMP_POLICY]["spec"]
    check = policies()["ValidatingAdmissionPolicy", OVERRIDE_POLICY]["spec"]
    for part in ("matchConstraints", "matchConditions", "failurePolicy"):
        assert stamp[part] == check[part]
    assert stamp["failurePolicy"] == "Fail"
    named = re.findall(r'"(prefillgate\.io/[a-z-]+)"', stamp["matchConditions"][0]["expression"])
    assert sorted(named) == sorted(OVERRIDE_ANNOTATIONS)


def test_an_api_server_finds_nothing_wrong_with_the_expressions(place: Namespace) -> None:
    where = path_of("validatingadmissionpolicies", OVERRIDE_POLICY, group=ADMISSION)
    checked = place.cluster.api().wait(where, lambda found: "typeChecking" in found.get("status", {}))
    assert checked["status"]["typeChecking"] == {}
    for kind, name in policies():
        plural = {"Policy": kind.lower()[:-1] + "ies"}.get(kind[-6:], kind.lower() + "s")
        if kind != "ClusterRole":
            assert place.cluster.api().get(path_of(plural, name, group=ADMISSION))["metadata"]["generation"] == 1


def test_what_a_real_server_lists_is_known_to_be_in_force(place: Namespace) -> None:
    def listed(kind: str) -> tuple[list[Any], list[Any]]:
        api = place.cluster.api()
        return (
            api.items(path_of(f"{kind}admissionpolicies", group=ADMISSION)),
            api.items(path_of(f"{kind}admissionpolicybindings", group=ADMISSION)),
        )

    assert stamping_in_force(listed("mutating"), listed("validating"))
    assert not stamping_in_force(([], []), listed("validating"))
    assert json.dumps(listed("mutating"))  # as the controller keeps them


def test_a_server_without_stamps_lets_who_may_override_and_leaves_the_actor_out(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_control_plane(tmp_path_factory.mktemp("unstamped")) as plane:
        install_crds(plane)
        for name in ("override.yaml", "overrider.yaml"):
            assert plane.kubectl("apply", "--validate=strict", "-f", str(FOLDER / name)).returncode == 0
        api, where = plane.recorded().api(), path_of("profilerollouts", "", "default", "prefillgate.io", "v1alpha1")
        forged = annotated("profilerollouts", {**WORDS, OVERRIDE_ACTOR: "alice"})

        def refused() -> str:
            try:
                api.ask("POST", where, forged, dryRun="All")
            except Refused as no:
                return no.told if no.code != 503 else ""
            return ""

        assert "prefillgate.io/override-actor is who asks: admin, not alice. Leave it out." in wait_for(refused)
        own = api.create(where, annotated("profilerollouts", {**WORDS, OVERRIDE_ACTOR: "admin"}))
        assert ours(own)[OVERRIDE_ACTOR] == "admin"
        left_out = {"metadata": {"annotations": {OVERRIDE_ACTOR: None, OVERRIDE: "hold"}}}
        assert ours(api.merge(f"{where}/{own['metadata']['name']}", left_out)) == {**WORDS, OVERRIDE: "hold"}
