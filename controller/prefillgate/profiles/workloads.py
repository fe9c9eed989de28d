"""The workloads a profile is read from, and what the reader must be allowed to read for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefillgate.profiles.fields import at_path, items, kind_of, mapping, text_of
from prefillgate.profiles.marks import marks_of
from prefillgate.profiles.model import OTHER, PLACEMENT, WEIGHTS, Profile, ProfileError, Setting, bounded, refused
from prefillgate.profiles.parts import part_of, sealed_value
from prefillgate.profiles.pod import Raw, learn, read_pod
from prefillgate.profiles.seal import Sealing
from prefillgate.profiles.sources import Sources

READ = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a Role: what must be allowed, and why."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str


# For every kind. Secrets are not among them: what a profile needs of one stands in the pod template.
COMMON = (
    Rule("", ("pods",), READ, "resolved images, and which pod is of which profile"),
    Rule("", ("configmaps",), READ, "mounted config, and variables out of it"),
)
RBAC: Mapping[str, tuple[Rule, ...]] = {
    "Deployment": (
        Rule("apps", ("deployments", "replicasets"), READ, "the pod template, and that of each pod's owner"),
    ),
    "StatefulSet": (
        Rule(
            "apps", ("statefulsets", "controllerrevisions"), READ, "the pod template, and that of each pod's revision"
        ),
    ),
    "LeaderWorkerSet": (
        Rule("leaderworkerset.x-k8s.io", ("leaderworkersets",), READ, "leader and worker templates"),
        Rule("apps", ("statefulsets", "controllerrevisions"), READ, "the template of each pod's revision"),
    ),
    "InferenceService": (
        Rule("serving.kserve.io", ("inferenceservices",), READ, "the predictor"),
        Rule("apps", ("deployments", "replicasets"), READ, "what the predictor really runs"),
    ),
    "LLMInferenceService": (
        Rule("serving.kserve.io", ("llminferenceservices",), READ, "model, templates, parallelism"),
        Rule("apps", ("deployments", "replicasets"), READ, "what it really runs"),
    ),
}


def rules_for(kind: str, group: str, plural: str) -> tuple[Rule, ...]:
    """What must be allowed to read profiles from a kind; one that is not known by name takes its group and plural."""
    known = RBAC.get(kind)
    return (*COMMON, *(known or (Rule(group, (plural,), READ, "the object that holds the pod template"),)))


def profile_of(workload: Mapping[str, Any], sources: Sources, template_path: str | None = None) -> Profile:
    """The profile of a workload as the API server returns it.

    With `template_path` (`spec.template`) any object will do. Raises `ProfileError` with the path of the field.
    """
    kind = str(workload.get("kind") or "")
    if template_path:
        found = mapping(at_path(workload, template_path), template_path)
        template = found if "spec" in found else {"spec": found}
        where = template_path if "spec" in found else template_path.rpartition(".")[0] or template_path
        return _profile([(template, where, "pod")], sources)
    if kind == "LeaderWorkerSet":
        return _leader_worker_set(workload, sources)
    if kind == "InferenceService":
        return _inference_service(workload, sources)
    if kind == "LLMInferenceService":
        return _llm_inference_service(workload, sources)
    if kind == "Pod":
        return _profile([(workload, "", "pod")], sources)
    spec = mapping(workload.get("spec"), "spec")
    if not isinstance(spec.get("template"), Mapping):
        what = f"{kind[:60]} has no pod template at spec.template" if kind else "no kind, and no pod template"
        raise refused("spec.template", what, "a workload with one, or a podTemplatePath")
    return _profile([(spec["template"], "spec.template", "pod")], sources)


def _profile(
    templates: Sequence[tuple[Mapping[str, Any], str, str]],
    sources: Sources,
    extra: tuple[tuple[str, str, str], ...] = (),
) -> Profile:
    """`extra` are (area, name, value) of the workload around its pods."""
    raws: list[Raw] = [read_pod(template, path, sources, role) for template, path, role in templates]
    sealing = Sealing(sources.seal)
    for raw in raws:
        learn(raw, sealing)
    for _, name, value in extra:
        sealing.learn(name, value)
    around = tuple(
        Setting(area, name, name, bounded(sealed_value(name, value, sealing)), "spec") for area, name, value in extra
    )
    marks = marks_of([template for template, _, _ in templates], extra, raws, sources, sealing)
    return Profile(tuple(part_of(raw, sealing) for raw in raws), around, marks=marks)


def _leader_worker_set(workload: Mapping[str, Any], sources: Sources) -> Profile:
    at = "spec.leaderWorkerTemplate"
    held = mapping(at_path(workload, at), at)
    worker = mapping(held.get("workerTemplate"), f"{at}.workerTemplate")
    leader = mapping(held.get("leaderTemplate"), f"{at}.leaderTemplate")
    size = held.get("size", 1)
    if isinstance(size, bool) or not isinstance(size, int):
        raise refused(f"{at}.size", f"{kind_of(size)} stands where a number is expected", "a whole number")
    templates = [(worker, f"{at}.workerTemplate", "worker")] if size > 1 or not leader else []
    if leader:
        templates.insert(0, (leader, f"{at}.leaderTemplate", "leader"))
    return _profile(templates, sources, ((PLACEMENT, "group size", str(size)),))


_OF_A_POD = (
    "containers",
    "initContainers",
    "volumes",
    "nodeSelector",
    "affinity",
    "runtimeClassName",
    "resourceClaims",
)


def _inference_service(workload: Mapping[str, Any], sources: Sources) -> Profile:
    at = "spec.predictor"
    predictor = mapping(at_path(workload, at), at)
    model = mapping(predictor.get("model"), f"{at}.model")
    form = mapping(model.get("modelFormat"), f"{at}.model.modelFormat")
    spec = {name: predictor[name] for name in _OF_A_POD if name in predictor}
    extra: list[tuple[str, str, str]] = []
    if model:
        spec["containers"] = [{"name": "kserve-container", **model}, *spec.get("containers", ())]
        storage = mapping(model.get("storage"), f"{at}.model.storage")
        runtime = model.get("runtime")
        found = [(WEIGHTS, "storage URI", model.get("storageUri")), (WEIGHTS, "storage entry", storage.get("key"))]
        found += [(WEIGHTS, "storage path", storage.get("path")), ("build", "serving runtime", runtime)]
        found += [
            ("build", "model format", form.get("name")),
            ("build", "runtime version", model.get("runtimeVersion")),
        ]
        extra = [(area, name, text_of(value, f"{at}.model")) for area, name, value in found if value is not None]
    elif not spec.get("containers"):
        raise refused(f"{at}.containers", "neither a model nor a container", "predictor.model or predictor.containers")
    annotations = mapping(mapping(workload.get("metadata"), "metadata").get("annotations"), "metadata.annotations")
    template: dict[str, Any] = {"spec": spec, "metadata": {"annotations": annotations}}
    templates: list[tuple[Mapping[str, Any], str, str]] = [(template, at.rpartition(".")[0], "leader")]
    worker = mapping(predictor.get("workerSpec"), f"{at}.workerSpec")
    if worker:
        for name, words in (
            ("tensorParallelSize", "tensor parallel size"),
            ("pipelineParallelSize", "pipeline parallel size"),
        ):
            if name in worker:
                extra.append((PLACEMENT, f"worker {words}", str(worker[name])))
        if worker.get("containers"):
            templates.append(({"spec": worker}, f"{at}.workerSpec", "worker"))
    hint = sources.engine or " ".join(str(each) for each in (model.get("runtime"), form.get("name")) if each)
    return _renamed(_profile(templates, replace(sources, engine=hint), tuple(extra)))


def _llm_inference_service(workload: Mapping[str, Any], sources: Sources) -> Profile:
    spec = mapping(workload.get("spec"), "spec")
    model = mapping(spec.get("model"), "spec.model")
    extra = [
        (area, words, text_of(model[name], f"spec.model.{name}"))
        for name, words, area in (("uri", "model URI", WEIGHTS), ("name", "model name", OTHER))
        if name in model
    ]
    for name, value in mapping(spec.get("parallelism"), "spec.parallelism").items():
        extra.append((PLACEMENT, f"{name} parallelism", str(value)))
    for each, at in items(spec.get("baseRefs"), "spec.baseRefs"):
        extra.append(("build", f"base config {at.rpartition('[')[2][:-1]}", str(mapping(each, at).get("name"))))
    templates = [
        ({"spec": mapping(spec[name], f"spec.{name}")}, f"spec.{name}", role)
        for name, role in (("template", "leader"), ("worker", "worker"))
        if spec.get(name)
    ]
    if not templates:
        raise refused("spec.template", "no container is told here", "a template with containers")
    return _renamed(_profile(templates, replace(sources, engine=sources.engine or "vllm"), tuple(extra)))


def _renamed(profile: Profile) -> Profile:
    """A single pod is called so; what the platform adds is not told by the object."""
    said = "KServe adds what its runtime says: the Deployment that it makes tells the profile that really runs"
    parts = profile.parts if len(profile.parts) > 1 else (replace(profile.parts[0], role="pod"),)
    return replace(profile, parts=parts, findings=(*profile.findings, said))


def inline_profile(given: Mapping[str, Any], sources: Sources) -> Profile:
    """The profile of an inline description: `image`, `command`, `args`, `env` (a mapping or as in a pod) and
    `configDigest`. Raises `ProfileError`."""
    unknown = sorted(str(name) for name in given if name not in ("image", "command", "args", "env", "configDigest"))
    if unknown:
        raise refused(
            f"profile.{unknown[0][:60]}", "not a field of an inline profile", "image, command, args, env, configDigest"
        )
    env = given.get("env")
    listed = [{"name": str(name), "value": value} for name, value in env.items()] if isinstance(env, Mapping) else env
    container = {**{name: given[name] for name in ("image", "command", "args") if name in given}, "env": listed}
    digest = given.get("configDigest")
    extra = () if digest is None else ((OTHER, "config digest", text_of(digest, "profile.configDigest")),)
    template = {"spec": {"containers": [{"name": "inline", **container}]}}
    try:
        return _profile([(template, "profile", "pod")], sources, extra)
    except ProfileError as error:
        fields = [replace(p, field=p.field.replace("profile.spec.containers[0].", "profile.")) for p in error.problems]
        raise ProfileError(*fields) from error
