"""What is wrong with a line beyond its workloads, as the table of reasons has it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from prefillgate.api.errors import PolicyError
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.app.observe.unread import rules_said
from prefillgate.engines.registry import engine_names
from prefillgate.reconcile.snapshot import Slot, Trouble

SHOWN_PROBLEMS = 5
_AROUND = {"StatefulSet": ("ControllerRevision",), "LeaderWorkerSet": ("ControllerRevision", "StatefulSet")}
_COMMON_RULES = {
    "Pod": 'Add to its ClusterRole: {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}.',
    "ConfigMap": 'Add to its ClusterRole: {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}.',
}


def of_spec(spec: ServingLineSpec, database: bool) -> Iterator[Trouble]:
    """What no API server can see: an engine that is not known, a store that Jobs cannot reach."""
    if spec.engine not in engine_names():
        said = f"There is no engine {spec.engine} (allowed: {', '.join(engine_names())})."
        yield Trouble("SpecInvalid", "spec.engine", said)
    if spec.runner == "Job" and not database:
        said = (
            "A Job cannot write the controller's own store file: run the controller with a PostgreSQL store "
            "(--store postgresql://...), or take runner: Controller."
        )
        yield Trouble("StoreUnsuitable", "spec.runner", said)


def support(spec: ServingLineSpec, held: Iterable[str]) -> Iterator[tuple[str, Trouble]]:
    """Kinds around the workloads of a line, each with what to tell where it may not be listed."""
    for slot, arm in ((Slot.BASELINE, spec.baseline), (Slot.CANDIDATE, spec.candidate)):
        if arm is None:
            continue
        ref, named = arm.workload_ref, arm.endpoint.pods is not None
        kinds = {"Pod"} if named or ref is not None else set()
        if ref is not None:
            kinds |= {"ConfigMap", *_AROUND.get(ref.kind, ("ReplicaSet",))}
        group = "" if ref is None else ref.api_version.rpartition("/")[0]
        for kind in sorted(kinds & set(held)):
            rules = _COMMON_RULES.get(kind) or rules_said(ref.kind if ref is not None else "", group, "")
            said = f"The controller may not list {kind}s, which tell what really runs. {rules}"
            path = f"spec.{slot}.workloadRef" if ref is not None else f"spec.{slot}.endpoint.pods"
            yield kind, Trouble("WorkloadForbidden", path, said)


def policy_trouble(name: str, namespace: str, error: PolicyError | None) -> Trouble:
    """A policy that is not there, or cannot be used."""
    if error is None:
        said = f"There is no PromotionPolicy {name} in {namespace}."
        return Trouble("PolicyNotFound", "spec.policyRef.name", said)
    told = "; ".join(str(replace(each, where="")) for each in error.problems[:SHOWN_PROBLEMS])
    return Trouble("PolicyNotAccepted", "spec.policyRef.name", f"PromotionPolicy {name}: {told}.")


def set_trouble(name: str, namespace: str, found: Trouble | None) -> Trouble:
    """A replay set that is not there, or what is wrong with it, told of the line."""
    if found is None:
        return Trouble("ReplaySetNotFound", "spec.replaySetRef.name", f"There is no ReplaySet {name} in {namespace}.")
    return Trouble(found.reason, "spec.replaySetRef.name", f"ReplaySet {name}, {found.field}: {found.detail}")
