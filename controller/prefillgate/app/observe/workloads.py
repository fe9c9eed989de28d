"""From a slot of a line to the profile that its workload says, and to the pods that are its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.api.kinds.arms import Arm, InlineProfile, WorkloadRef
from prefillgate.api.kinds.common import TemplateSeen
from prefillgate.api.kinds.serving_line import ServingLineSpec
from prefillgate.app.observe.config import ConfigMaps
from prefillgate.app.observe.held import Held, Kin
from prefillgate.app.observe.index import selects
from prefillgate.app.observe.kinds import Kinds
from prefillgate.app.observe.trims import TEMPLATE_DIGEST, controller, template_digest
from prefillgate.engines.registry import AUTO
from prefillgate.kube.errors import Forbidden, KubeError
from prefillgate.kube.objects import Object, label, metadata, name_of, uid_of
from prefillgate.profiles import (
    Profile,
    ProfileError,
    Seal,
    Sources,
    image_ids_of,
    inline_profile,
    profile_of,
    rules_for,
)
from prefillgate.profiles.fields import at_path
from prefillgate.reconcile.snapshot import Slot, SlotProfile, Trouble

KSERVE = ("InferenceService", "LLMInferenceService")
KSERVE_LABEL = "serving.kserve.io/inferenceservice"
REVISION_LABEL = "controller-revision-hash"
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Asked:
    """A line whose slots are looked at."""

    namespace: str
    spec: ServingLineSpec

    def arm(self, slot: Slot) -> Arm:
        """What the spec says of a slot."""
        return self.spec.baseline if slot is Slot.BASELINE else self.spec.candidate_arm

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Those that are written; a candidate that is left out is the baseline's own workload."""
        return (Slot.BASELINE,) if self.spec.candidate is None else (Slot.BASELINE, Slot.CANDIDATE)


@dataclass(frozen=True, slots=True)
class SlotFound:
    """What a slot's workload came to. `workload` is the object whose pods are its own, None for an inline profile."""

    slot: Slot
    arm: Arm
    namespace: str
    profile: Profile | None = None
    template: TemplateSeen | None = None
    workload: Object | None = None
    sources: Sources | None = None
    pods: tuple[Object, ...] = ()
    newest: str = ""  # uid of the ReplicaSet or ControllerRevision with the template that the profile is read from
    uses: frozenset[tuple[str, str]] = frozenset()  # ConfigMaps by key
    troubles: tuple[Trouble, ...] = ()

    @property
    def container(self) -> str:
        """The container that serves, as the profile found it."""
        return self.profile.parts[0].container if self.profile is not None else ""

    @property
    def told(self) -> SlotProfile | None:
        """As a decision sees it."""
        return None if self.profile is None else SlotProfile(self.slot, self.profile, self.template)


@dataclass(slots=True)
class Workloads:
    """Reads slots. `images` keeps what the pods of a template resolved, for when none runs."""

    kinds: Kinds
    kin: Kin
    config_maps: ConfigMaps
    seal_key: bytes = field(repr=False)
    seconds: float = 5.0
    images: dict[str, Mapping[str, str]] = field(default_factory=dict)

    async def slot(self, asked: Asked, slot: Slot) -> SlotFound:
        """A slot's profile, or why there is none. Raises KubeError where that may pass."""
        arm = asked.arm(slot)
        selected = None if arm.endpoint.pods is None else arm.endpoint.pods.selector
        pods = () if selected is None else self._selected(asked.namespace, selected)
        found = SlotFound(slot, arm, asked.namespace, pods=pods)
        sources = self._sources(asked.spec, arm)
        if arm.profile is not None:
            return _inline(found, arm.profile, sources)
        assert arm.workload_ref is not None  # the spec says so
        workload, troubles = await self.workload(asked.namespace, slot, arm.workload_ref)
        if workload is None:
            return replace(found, troubles=troubles)
        pods = pods if selected is not None else self.pods_of(workload)
        return await self._read(replace(found, workload=workload, pods=pods), sources)

    def _sources(self, spec: ServingLineSpec, arm: Arm) -> Sources:
        return Sources(
            Seal(self.seal_key, tuple(spec.redacted_names)),
            container=None if arm.workload_ref is None else arm.workload_ref.container,
            engine=None if spec.engine == AUTO else spec.engine,
            ignored=tuple(spec.ignored_names),
        )

    async def workload(self, namespace: str, slot: Slot, ref: WorkloadRef) -> tuple[Object | None, tuple[Trouble, ...]]:
        """The object that is referred to; of KServe's kinds the Deployment that it makes."""
        path = f"spec.{slot}.workloadRef"
        found, held = self.kinds.find((ref.api_version, ref.kind)), None
        if found is not None:
            refused = await found.first(self.seconds)
            if refused is not None:
                return None, (_refused(path, ref, refused, found if isinstance(found, Held) else None),)
            held = found if isinstance(found, Held) else found.held
        obj = None if held is None else held.get(namespace, ref.name)
        if obj is None or "deletionTimestamp" in metadata(obj):
            said = f"There is no {ref.kind} {ref.name} in {namespace}."
            return None, (Trouble("WorkloadNotFound", f"{path}.name", said),)
        if ref.kind not in KSERVE or ref.pod_template_path is not None:
            return obj, ()
        made = self._made(obj)
        if made is not None:
            return made, ()
        said = f"KServe has made no Deployment for {ref.kind} {ref.name} yet: that tells the profile that really runs."
        return None, (Trouble("TemplateNotFound", path, said),)

    def _made(self, obj: Object) -> Object | None:
        """The Deployment of a KServe object: that of its predictor, or the one it owns."""
        owned = [self.kinds["Deployment"].at(key) for kind, key in self.kin.below(uid_of(obj)) if kind == "Deployment"]
        if not owned:
            named = (each for each in self.kinds["Deployment"] if label(each, KSERVE_LABEL) == name_of(obj))
            space = metadata(obj).get("namespace")
            owned = [each for each in named if metadata(each).get("namespace") == space]
        known = [each for each in owned if each is not None]
        serving = [each for each in known if label(each, "component") == "predictor"]
        return min(serving or known, key=name_of, default=None)

    def pods_of(self, workload: Object) -> tuple[Object, ...]:
        """Pods that the workload owns, through whatever stands between, by name."""
        found: dict[str, Object] = {}
        todo = [(uid_of(workload), 0)]
        while todo:
            uid, depth = todo.pop()
            for kind, key in self.kin.below(uid):
                obj = self._at(kind, key)
                if obj is None or depth >= _DEEPEST:
                    continue
                if kind == "Pod":
                    found[key] = obj
                todo.append((uid_of(obj), depth + 1))
        return tuple(found[key] for key in sorted(found))

    def _selected(self, namespace: str, selector: Mapping[str, str]) -> tuple[Object, ...]:
        """Pods with these labels, by name."""
        known = (self.kinds["Pod"].at(key) for key in sorted(self.kin.pods_in(namespace)))
        return tuple(pod for pod in known if pod and selects(selector, metadata(pod).get("labels") or {}))

    def _at(self, kind: str, key: str) -> Object | None:
        return next((obj for held in self.kinds.named(kind) if (obj := held.at(key)) is not None), None)

    async def _read(self, found: SlotFound, sources: Sources) -> SlotFound:
        assert found.workload is not None
        ref, workload = found.arm.workload_ref, found.workload
        assert ref is not None
        path = f"spec.{found.slot}.workloadRef"
        missing = _no_template(path, ref, workload)
        if missing is not None:
            return replace(found, troubles=(missing,))
        newest, template = self._newest(workload)
        namespace = str(metadata(workload).get("namespace"))
        try:
            names = frozenset(name for spec in _pod_specs(workload) for name in self.config_maps.used(spec))
            data = await self.config_maps.read(namespace, names)
            seen = replace(sources, config_maps=data, image_ids=self._images(found.pods, newest, workload))
            profile = profile_of(workload, seen, ref.pod_template_path)
        except ProfileError as error:
            return replace(found, troubles=tuple(_unreadable(path, workload, error)))
        uses = frozenset((("ConfigMap", f"{namespace}/{name}")) for name in names)
        troubles = tuple(_synthetic(path, profile))
        return replace(
            found, profile=profile, template=template, sources=seen, newest=newest, uses=uses, troubles=troubles
        )

    def _newest(self, workload: Object) -> tuple[str, TemplateSeen]:
        """What keeps the workload's present template: uid (empty for the workload itself) and reference."""
        kind, namespace = str(workload.get("kind")), str(metadata(workload).get("namespace"))
        keeper: Object | None = None
        if kind == "Deployment":
            digest = template_digest((workload.get("spec") or {}).get("template") or {})
            sets = [self._at(*each) for each in self.kin.below(uid_of(workload))]
            same = [each for each in sets if each is not None and each.get(TEMPLATE_DIGEST) == digest]
            keeper = max(same, key=lambda each: str(metadata(each).get("creationTimestamp")), default=None)
        elif kind == "StatefulSet":
            status = workload.get("status") or {}
            if status.get("observedGeneration") == metadata(workload).get("generation"):
                keeper = self.kinds["ControllerRevision"].get(namespace, str(status.get("updateRevision")))
        if keeper is None:
            return "", _template_seen(str(workload.get("apiVersion")), workload)
        return uid_of(keeper), _template_seen("apps/v1", keeper)

    def _images(self, pods: tuple[Object, ...], newest: str, workload: Object) -> Mapping[str, str]:
        """The images that the newest pod of the template resolved, or those known of it from before."""
        mark = newest or uid_of(workload)
        for pod in sorted(pods, key=lambda one: str(metadata(one).get("creationTimestamp")), reverse=True):
            if newest and uid_of(self.template_keeper(pod) or {}) != newest:
                continue
            if newest or str(workload.get("kind")) not in ("Deployment", "StatefulSet"):
                found = image_ids_of(pod)
                if found:
                    self.images[mark] = found
                    break
        return self.images.get(mark, {}) if newest or self.images.get(mark) else {}

    def template_keeper(self, pod: Mapping[str, Any]) -> Object | None:
        """The ReplicaSet or ControllerRevision that the pod was made from; None where another kind owns it."""
        owner, namespace = controller(pod), str(metadata(pod).get("namespace"))
        if owner is None:
            return None
        if owner.get("kind") == "ReplicaSet":
            return self.kinds["ReplicaSet"].get(namespace, str(owner.get("name")))
        if owner.get("kind") == "StatefulSet":
            revision = label(pod, REVISION_LABEL)
            return None if revision is None else self.kinds["ControllerRevision"].get(namespace, revision)
        return None


def template_in(keeper: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The pod template that a ReplicaSet or a ControllerRevision holds; None where it was not kept."""
    held = keeper.get("data") if keeper.get("kind") == "ControllerRevision" else keeper
    spec = (held or {}).get("spec") or {}
    found = spec.get("template")
    return found if isinstance(found, Mapping) else None


def _inline(found: SlotFound, given: InlineProfile, sources: Sources) -> SlotFound:
    told = given.model_dump(by_alias=True, exclude_none=True)
    try:
        profile = inline_profile(told, sources)
    except ProfileError as error:
        said = tuple(
            Trouble("ProfileUnreadable", f"spec.{found.slot}.{each.field or 'profile'}", _words(each))
            for each in error.problems
        )
        return replace(found, troubles=said)
    return replace(
        found, profile=profile, sources=sources, troubles=tuple(_synthetic(f"spec.{found.slot}.profile", profile))
    )


def _no_template(path: str, ref: WorkloadRef, workload: Object) -> Trouble | None:
    where = ref.pod_template_path or "spec.template"
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


def _unreadable(path: str, workload: Object, error: ProfileError) -> Iterator[Trouble]:
    named = f"{workload.get('kind')} {name_of(workload)}"
    for each in error.problems:
        if each.field == "container":
            yield Trouble("ContainerNotFound", f"{path}.container", f"{named}: {each.message} (there: {each.allowed}).")
        else:
            yield Trouble("ProfileUnreadable", path, f"{named}, {each.field}: {_words(each)}")


def _words(problem: Any) -> str:
    return f"{problem.message} (allowed: {problem.allowed})." if problem.allowed else f"{problem.message}."


def _synthetic(path: str, profile: Profile) -> Iterator[Trouble]:
    for said in profile.refused:
        yield Trouble("SyntheticThroughput", path, said)


def _refused(path: str, ref: WorkloadRef, error: KubeError, held: Held | None) -> Trouble:
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


def _template_seen(api_version: str, obj: Object) -> TemplateSeen:
    told = {"apiVersion": api_version, "kind": str(obj.get("kind")), "name": name_of(obj), "uid": uid_of(obj) or None}
    return TemplateSeen.model_validate(told)


def _pod_specs(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Every pod spec inside an object: whatever holds containers."""
    if isinstance(value, Mapping) and depth < 12:
        if isinstance(value.get("containers"), list):
            yield value
        for inner in value.values():
            yield from _pod_specs(inner, depth + 1)
    elif isinstance(value, list) and depth < 12:
        for inner in value:
            yield from _pod_specs(inner, depth + 1)
