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
from prefillgate.app.observe.slots import Asked, PodFound, SlotFound
from prefillgate.app.observe.trims import TEMPLATE_DIGEST, TEMPLATED, controller, template_digest
from prefillgate.app.observe.unread import no_template, not_listed, synthetic, unreadable, words_of
from prefillgate.engines.registry import AUTO
from prefillgate.kube.objects import Object, key_of, label, metadata, name_of, uid_of, version_of
from prefillgate.profiles import (
    Profile,
    ProfileError,
    Seal,
    Sources,
    image_ids_of,
    inline_profile,
    needed_config_maps,
    profile_of,
    reading_of,
    used_config_maps,
)
from prefillgate.reconcile.snapshot import Slot, Trouble

KSERVE = ("InferenceService", "LLMInferenceService")
KSERVE_LABEL = "serving.kserve.io/inferenceservice"
REVISION_LABEL = "controller-revision-hash"
_DEEPEST = 6
MOST_PROFILES = 512  # kept, of all lines
MOST_KEPT = 4_096  # of what was read of templates and pods, of all lines


@dataclass(slots=True)
class Workloads:
    """Reads slots. What the pods of a template resolved is kept for when none runs."""

    kinds: Kinds
    kin: Kin
    config_maps: ConfigMaps
    seal_key: bytes = field(repr=False)
    seconds: float = 5.0
    _images_of: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    _profiles: dict[tuple[Any, ...], Profile] = field(default_factory=dict)
    _written_of: dict[tuple[Any, ...], str] = field(default_factory=dict)

    async def slot(self, asked: Asked, slot: Slot) -> SlotFound:
        """A slot's profile, or why there is none. Raises KubeError where that may pass."""
        arm = asked.arm(slot)
        selector = None if arm.endpoint.pods is None else arm.endpoint.pods.selector
        pods = () if selector is None else self._selected(asked.namespace, selector)
        found = SlotFound(slot, arm, asked.namespace)
        sources = self._sources(asked.spec, arm)
        if arm.profile is not None:
            return _inline(replace(found, pods=tuple(map(PodFound, pods))), arm.profile, sources)
        assert arm.workload_ref is not None  # the spec says so
        workload, troubles = await self.workload(asked.namespace, slot, arm.workload_ref)
        if workload is None:
            return replace(found, troubles=troubles)
        pods = pods if selector is not None else self.pods_of(workload)
        read = [await self._pod(each, sources) for each in pods]
        uses = frozenset(("ConfigMap", f"{asked.namespace}/{name}") for each in read for name in each.config_maps)
        return await self._read(replace(found, workload=workload, pods=tuple(read), uses=uses), sources)

    def reading(self, spec: ServingLineSpec) -> str:
        """The mark of how the profiles of a line are read."""
        return reading_of(self._sources(spec, spec.baseline))

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
                held = found if isinstance(found, Held) else found.held
                return None, (not_listed(path, ref, refused, held),)
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
        """Pods that the workload owns, through whatever stands between, by name; a Pod is its own."""
        found: dict[str, Object] = {key_of(workload): workload} if workload.get("kind") == "Pod" else {}
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
        missing = no_template(path, ref, workload)
        if missing is not None:
            return replace(found, troubles=(missing,))
        try:
            names = frozenset(name for spec in pod_specs(workload) for name in used_config_maps(spec))
            seen = replace(sources, config_maps=await self.config_maps.read(found.namespace, names))
            mark = (*self.config_maps.versions(found.namespace, names), ref.pod_template_path, *_told(seen))
            profile = self._profile(workload, seen, mark, ref.pod_template_path)
            images = self._images(profile, found)
            profile = self._profile(workload, replace(seen, image_ids=images), mark, ref.pod_template_path)
        except ProfileError as error:
            return replace(found, troubles=tuple(unreadable(path, workload, error)))
        return replace(
            found,
            profile=profile,
            template=self._template(workload, ref),
            uses=found.uses | {("ConfigMap", f"{found.namespace}/{name}") for name in names},
            troubles=tuple(synthetic(path, profile)),
        )

    def _profile(self, workload: Object, sources: Sources, mark: tuple[Any, ...], path: str | None) -> Profile:
        """What the workload says; each version of it is read once. Raises `ProfileError`."""
        mark = (uid_of(workload), version_of(workload), tuple(sorted(sources.image_ids.items())), *mark)
        known = self._profiles.get(mark)
        if known is None:
            known = profile_of(workload, sources, path)
            if len(self._profiles) >= MOST_PROFILES:
                self._profiles.clear()
            self._profiles[mark] = known
        return known

    def _template(self, workload: Object, ref: WorkloadRef) -> TemplateSeen:
        """What keeps the workload's present template."""
        keeper: Object | None = None
        if workload.get("kind") == "Deployment":
            digest = template_digest((workload.get("spec") or {}).get("template") or {})
            sets = [self._at(*each) for each in self.kin.below(uid_of(workload))]
            same = [each for each in sets if each is not None and each.get(TEMPLATE_DIGEST) == digest]
            keeper = max(same, key=lambda each: str(metadata(each).get("creationTimestamp")), default=None)
        elif workload.get("kind") == "StatefulSet":
            status, generation = workload.get("status") or {}, metadata(workload).get("generation")
            if status.get("observedGeneration") == generation:
                namespace = str(metadata(workload).get("namespace"))
                keeper = self.kinds["ControllerRevision"].get(namespace, str(status.get("updateRevision")))
        if keeper is not None:
            return _template_seen("apps/v1", keeper)
        own = ref.api_version if ref.kind == workload.get("kind") else "apps/v1"
        return _template_seen(own, workload)

    def _images(self, written: Profile, found: SlotFound) -> Mapping[str, str]:
        """Images as the newest pods of each of its templates resolved them, else those known from before."""
        left = {part.written_digest for part in written.parts}
        images: dict[str, str] = {}
        pods = sorted(found.pods, key=lambda one: str(metadata(one.obj).get("creationTimestamp")), reverse=True)
        for pod in pods:
            ids = image_ids_of(pod.obj) if left and pod.sources is not None else {}
            digest = self._written(pod) if ids else None
            if digest in left:
                left.discard(digest)
                images = {**ids, **images}
        mark = (uid_of(found.workload or {}), written.written_digest)
        if images and mark not in self._images_of and len(self._images_of) >= MOST_KEPT:
            self._images_of.clear()
        if images:
            self._images_of[mark] = images
        return self._images_of.get(mark, {})

    def _written(self, pod: PodFound) -> str | None:
        """The digest of what a pod was made from, with images as written; None where it cannot be made out."""
        known = self._written_of.get(pod.mark)
        if known is None:
            try:
                assert pod.sources is not None  # who has none is not asked about
                known = profile_of(pod.as_made, pod.sources).parts[0].written_digest
            except ProfileError:
                return None
            if len(self._written_of) >= MOST_KEPT:
                self._written_of.clear()
            self._written_of[pod.mark] = known
        return known

    async def _pod(self, obj: Object, sources: Sources) -> PodFound:
        """A pod with the template that it was made from, and the ConfigMaps of that."""
        keeper, owner = self._keeper(obj), controller(obj)
        template = None if keeper is None else template_in(keeper)
        if template is None and owner is not None and owner.get("kind") in TEMPLATED:
            return PodFound(obj)
        try:
            spec = (template or obj).get("spec") or {}
            names, needed = used_config_maps(spec), needed_config_maps(spec)
        except ProfileError:
            return PodFound(obj)
        namespace = str(metadata(obj).get("namespace"))
        seen = replace(sources, config_maps=await self.config_maps.read(namespace, names))
        versions = self.config_maps.versions(namespace, names)
        return PodFound(obj, template, seen, names, (uid_of(keeper or obj), versions, *_told(seen)), needed)

    def _keeper(self, pod: Mapping[str, Any]) -> Object | None:
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


def _told(sources: Sources) -> tuple[Any, ...]:
    """What a line says of how a template is read."""
    return sources.container, sources.engine, sources.ignored, sources.seal.more


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
            Trouble("ProfileUnreadable", f"spec.{found.slot}.{each.field or 'profile'}", words_of(each))
            for each in error.problems
        )
        return replace(found, troubles=said)
    return replace(found, profile=profile, troubles=tuple(synthetic(f"spec.{found.slot}.profile", profile)))


def _template_seen(api_version: str, obj: Object) -> TemplateSeen:
    told = {"apiVersion": api_version, "kind": str(obj.get("kind")), "name": name_of(obj), "uid": uid_of(obj) or None}
    return TemplateSeen.model_validate(told)


def pod_specs(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Every pod spec inside an object: whatever holds containers."""
    if isinstance(value, Mapping) and depth < 12:
        if isinstance(value.get("containers"), list):
            yield value
        for inner in value.values():
            yield from pod_specs(inner, depth + 1)
    elif isinstance(value, list) and depth < 12:
        for inner in value:
            yield from pod_specs(inner, depth + 1)
