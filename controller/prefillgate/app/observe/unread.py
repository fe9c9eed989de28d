"""Why a slot has no profile, in words: what is missing, what is forbidden, which field to change. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prefillgate.api.errors import Problem
from prefillgate.api.kinds.arms import WorkloadRef
from prefillgate.app.observe.held import Held
from prefillgate.app.observe.trims import TEMPLATED, controller
from prefillgate.kube.errors import Forbidden, KubeError
from prefillgate.kube.objects import Object, name_of
from prefillgate.profiles import Profile, ProfileError, rules_for
from prefillgate.profiles.fields import at_path
from prefillgate.reconcile.snapshot import Trouble


def no_template(path: str, ref: WorkloadRef, workload: Object) -> Trouble | None:
    where = ref.pod_template_path or "spec.template"
    owner = controller(workload)
    if ref.kind == "Pod" and owner is not None and owner.get("kind") in TEMPLATED:
        said = f"Pod {ref.name} belongs to {owner.get('kind')} {owner.get('name')}: name the workload that makes it."
        return Trouble("TemplateNotFound", path, said)
    if ref.pod_template_path is None and ref.kind in ("LeaderWorkerSet", "Pod"):
        return None
    try:
        found = at_path(workload, where)
        said = "" if isinstance(found, Mapping) else "what stands there is no pod template"
    except ProfileError as error:
        said = "; ".join(f"{each.field}: {each.message}" for each in error.problems)
    if not said:
        return None
    field_name = f"{path}.podTemplatePath" if ref.pod_template_path else path
    told = f"{ref.kind} {ref.name} has no pod template at {where} ({said}). podTemplatePath says where it stands."
    return Trouble("TemplateNotFound", field_name, told)


def unreadable(path: str, workload: Object, error: ProfileError) -> Iterator[Trouble]:
    named = f"{workload.get('kind')} {name_of(workload)}"
    for each in error.problems:
        if each.field == "container":
            yield Trouble("ContainerNotFound", f"{path}.container", f"{named}: {each.message} (there: {each.allowed}).")
        else:
            yield Trouble("ProfileUnreadable", path, f"{named}, {each.field}: {words_of(each)}")


def words_of(problem: Problem) -> str:
    return f"{problem.message} (allowed: {problem.allowed})." if problem.allowed else f"{problem.message}."


def synthetic(path: str, profile: Profile) -> Iterator[Trouble]:
    for said in profile.refused:
        yield Trouble("SyntheticThroughput", path, said)


def not_listed(path: str, ref: WorkloadRef, error: KubeError, held: Held | None) -> Trouble:
    """Why a kind cannot be listed: RBAC, with the rule that is missing, or no such kind."""
    group = ref.api_version.rpartition("/")[0]
    if isinstance(error, Forbidden):
        plural = held.kind.plural if held is not None else f"{ref.kind.lower()}s"
        return Trouble(
            "WorkloadForbidden", path, f"The controller may not read it. {rules_said(ref.kind, group, plural)}"
        )
    said = f"The API server serves no kind {ref.kind} in {ref.api_version}. Is its CustomResourceDefinition installed?"
    return Trouble("WorkloadNotFound", path, said)


def rules_said(kind: str, group: str, plural: str) -> str:
    """The rules of a ClusterRole that are to be added, as a person pastes them."""
    rules = [rule for rule in rules_for(kind, group, plural) if rule.group or kind in ("Pod", "ConfigMap")]
    told = [
        f'{{apiGroups: ["{rule.group}"], resources: [{", ".join(rule.resources)}], verbs: [{", ".join(rule.verbs)}]}}'
        for rule in rules
    ]
    return f"Add to its ClusterRole: {'; '.join(told)}."
