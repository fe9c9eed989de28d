"""Reading the dicts of the API, naming objects, and the clock."""

from __future__ import annotations

import time

import pytest

from prefillgate.kube import objects
from prefillgate.kube.clock import SystemClock, micro_time
from prefillgate.kube.objects import DEPLOYMENTS, LEASES, NAMESPACES, PODS, Ref
from tests.support.gadgets import GADGETS

FULL = {
    "metadata": {
        "name": "one",
        "namespace": "here",
        "uid": "u-1",
        "resourceVersion": "17",
        "generation": 3,
        "annotations": {"prefillgate.io/rerun": "", objects.LAST_APPLIED: "{}"},
        "labels": {"app": "x"},
        "managedFields": [{"manager": "kubectl"}],
    },
    "status": {"conditions": [{"type": "Accepted", "status": "True"}, {"type": "Screened", "status": "False"}]},
}


def test_paths_are_those_of_the_api() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("a") == "/api/v1/namespaces/a/pods"
    assert NAMESPACES.path(name="a") == "/api/v1/namespaces/a"
    assert NAMESPACES.path("ignored", "a", "finalize") == "/api/v1/namespaces/a/finalize"
    assert Ref(DEPLOYMENTS, "d", "a").path("scale") == "/apis/apps/v1/namespaces/a/deployments/d/scale"
    with pytest.raises(ValueError, match="Lease l: an object of this kind stands in a namespace"):
        LEASES.path(name="l")


def test_an_object_is_read() -> None:
    assert (objects.name_of(FULL), objects.namespace_of(FULL), objects.key_of(FULL)) == ("one", "here", "here/one")
    assert (objects.uid_of(FULL), objects.version_of(FULL), objects.generation_of(FULL)) == ("u-1", "17", 3)
    assert objects.annotation(FULL, "prefillgate.io/rerun") == ""
    assert objects.label(FULL, "app") == "x"
    assert objects.condition(FULL, "Screened") == {"type": "Screened", "status": "False"}
    assert str(objects.ref_of(GADGETS, FULL)) == "Gadget here/one"
    assert objects.ref_of(NAMESPACES, FULL) == Ref(NAMESPACES, "one") and Ref(NAMESPACES, "one").key == "one"


@pytest.mark.parametrize(
    "empty", [{}, {"metadata": None}, {"metadata": {"annotations": None, "labels": None}, "status": None}]
)
def test_what_is_not_there_is_unknown(empty: dict[str, object]) -> None:
    assert (objects.name_of(empty), objects.namespace_of(empty), objects.uid_of(empty)) == ("", None, "")
    assert (objects.version_of(empty), objects.generation_of(empty)) == ("", None)
    assert objects.annotation(empty, "x") is None and objects.label(empty, "x") is None
    assert objects.condition(empty, "Accepted") is None


def test_an_owner_controls_and_is_of_its_own_life() -> None:
    assert objects.owner_of(GADGETS, FULL) == {
        "apiVersion": "test.prefillgate.io/v1",
        "kind": "Gadget",
        "name": "one",
        "uid": "u-1",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_the_usual_trim_leaves_what_was_given_alone() -> None:
    kept = objects.lean(FULL)
    assert kept["metadata"]["annotations"] == {"prefillgate.io/rerun": ""} and "managedFields" not in kept["metadata"]
    assert kept["status"] is FULL["status"]
    assert FULL["metadata"]["managedFields"] and objects.LAST_APPLIED in FULL["metadata"]["annotations"]  # type: ignore[index, operator]


def test_a_time_is_written_as_the_api_reads_it() -> None:
    assert micro_time(1_800_000_000.25) == "2027-01-15T08:00:00.250000Z"
    assert micro_time(0) == "1970-01-01T00:00:00.000000Z"


def test_our_clock_counts_the_time_a_machine_slept_where_the_system_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda which: 123.5 if which == 7 else 0.0, raising=False)
    assert SystemClock().monotonic() == 123.5
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    monkeypatch.setattr(time, "monotonic", lambda: 55.0)
    assert SystemClock().monotonic() == 55.0


def test_our_own_kinds_are_where_their_definitions_serve_them() -> None:
    ours = (objects.SERVING_LINES, objects.PROFILE_ROLLOUTS, objects.PROMOTION_POLICIES, objects.REPLAY_SETS)
    assert [kind.path("a", "x") for kind in ours] == [
        f"/apis/prefillgate.io/v1alpha1/namespaces/a/{plural}/x"
        for plural in ("servinglines", "profilerollouts", "promotionpolicies", "replaysets")
    ]
    assert [kind.kind for kind in ours] == ["ServingLine", "ProfileRollout", "PromotionPolicy", "ReplaySet"]
