"""The pod that is made of a recorded template: what of it is kept, what is left out, who owns it."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prefillgate.api.kinds.common import TemplateSeen
from prefillgate.app.orders import Asked, Unusable
from prefillgate.app.scratch import recorded_template, scratch_name, scratch_pod, template_in
from prefillgate.profiles import Sources, profile_of
from prefillgate.profiles.seal import Seal
from prefillgate.reconcile.snapshot import Slot, SlotProfile
from tests.support.runs import bench
from tests.support.works import LINE_UID, NEW, OLD, ROLLOUT_UID, Looks, order

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web", "pod-template-hash": "abc"}, "annotations": {"checksum/config": "1"}},
    "spec": {
        "containers": [{"name": "server", "image": "registry.example/llm:1", "args": ["--port", "8080"]}],
        "readinessGates": [{"conditionType": "prefillgate.io/promoted"}, {"conditionType": "elb.example/ready"}],
        "nodeName": "node-1",
        "hostname": "web-0",
        "subdomain": "web",
        "nodeSelector": {"gpu": "yes"},
    },
}


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(order(), Looks(bench(tmp_path)).observed())


def test_a_pod_has_all_of_the_template_s_spec_that_a_pod_of_its_own_can_have(asked: Asked) -> None:
    before = copy.deepcopy(TEMPLATE)
    pod = scratch_pod(asked, OLD, TEMPLATE, 7)
    spec = TEMPLATE["spec"]
    assert pod["spec"] == {"containers": spec["containers"], "nodeSelector": spec["nodeSelector"]}
    assert pod["metadata"]["labels"] == {"prefillgate.io/apart": "scratch", "prefillgate.io/line": "llm"}
    assert pod["metadata"]["annotations"] == {"checksum/config": "1", "prefillgate.io/apart-term": "7"}
    pod["spec"]["containers"][0]["args"].append("--more")
    assert before == TEMPLATE


def test_it_is_owned_by_its_rollout_and_without_one_by_the_line(asked: Asked) -> None:
    snapshot = asked.snapshot
    named = replace(snapshot.rollouts[0], thing={"metadata": {"uid": ROLLOUT_UID, "name": "llm-1"}})
    of_rollout = replace(asked, observed=replace(asked.observed, snapshot=replace(snapshot, rollouts=(named,))))
    (owner,) = scratch_pod(of_rollout, OLD, TEMPLATE, 7)["metadata"]["ownerReferences"]
    told = {"apiVersion": "prefillgate.io/v1alpha1", "kind": "ProfileRollout", "name": "llm-1", "uid": ROLLOUT_UID}
    assert owner == told
    floor = replace(asked, order=replace(asked.order, key="floor-1"))
    (owner,) = scratch_pod(floor, OLD, TEMPLATE, 7)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ServingLine", "llm", LINE_UID)


def test_its_name_is_the_same_after_a_kill_and_another_for_other_work_and_another_profile() -> None:
    name = scratch_name("llm", "w", OLD)
    assert name == scratch_name("llm", "w", OLD) and name.startswith("llm-scratch-")
    assert len({name, scratch_name("llm", "v", OLD), scratch_name("llm", "w", NEW)}) == 3
    assert len(scratch_name("a" * 253, "w", OLD)) <= 63


@pytest.mark.parametrize(
    "kept",
    [
        {"kind": "ReplicaSet", "spec": {"template": TEMPLATE}},
        {"kind": "ControllerRevision", "data": {"spec": {"template": {**TEMPLATE, "$patch": "replace"}}}},
    ],
)
def test_the_template_is_found_in_what_keeps_it(kept: dict[str, Any]) -> None:
    assert template_in(kept)["spec"] == TEMPLATE["spec"]


@pytest.mark.parametrize("kept", [{}, {"kind": "ReplicaSet", "spec": {}}, {"kind": "ControllerRevision", "data": None}])
def test_what_keeps_no_template_is_refused(kept: dict[str, Any]) -> None:
    with pytest.raises(Unusable, match="holds no pod template"):
        template_in(kept)


def with_slot(asked: Asked, kind: str) -> tuple[Asked, str]:
    workload = {"kind": "Deployment", "spec": {"template": TEMPLATE}}
    profile = profile_of(workload, Sources(Seal(b"0123456789abcdef0123456789abcdef")))
    ref = TemplateSeen.model_validate({"apiVersion": "apps/v1", "kind": kind, "name": "web-1", "uid": "u"})
    slots = (SlotProfile(Slot.BASELINE, profile, ref),)
    snapshot = replace(asked.snapshot, slots=slots)
    return replace(asked, observed=replace(asked.observed, snapshot=snapshot)), profile.digest


def test_where_the_template_is_kept_is_told_by_the_slot_or_by_the_line_s_status(asked: Asked) -> None:
    seen, digest = with_slot(asked, "ReplicaSet")
    found = recorded_template(seen, digest)
    assert (found.kind.kind, found.name, found.uid) == ("ReplicaSet", "web-1", "u")
    template = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "name": "web-7"}
    line = {**asked.snapshot.line, "status": {"previousProfile": {"digest": OLD, "template": template}}}
    told = replace(asked, observed=replace(asked.observed, snapshot=replace(asked.snapshot, line=line)))
    found = recorded_template(told, OLD)
    assert (found.kind.kind, found.name, found.uid) == ("ControllerRevision", "web-7", None)
    assert found.query("prod").fields == "metadata.name=web-7"


def test_a_workload_whose_template_may_be_another_by_now_is_none(asked: Asked) -> None:
    seen, digest = with_slot(asked, "Deployment")
    for each, wanted in ((seen, digest), (asked, OLD)):
        with pytest.raises(Unusable, match="no ReplicaSet or ControllerRevision is known that keeps its template"):
            recorded_template(each, wanted)
