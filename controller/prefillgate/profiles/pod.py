"""One pod template as settings: which container serves, what it starts, and everything around it that matters.

In the digest: image, arguments, variables, working directory and postStart hook, mounted ConfigMaps, names of Secrets
and their checksums, where every other volume comes from, GPUs and other extended resources, node selector and node
affinity (they choose the card), init containers and sidecars with what is mounted into them. Not in it: CPU and memory,
requests, probes, preStop, ports, labels, other annotations, names of containers and volumes, replicas.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.profiles.commands import documents, has_blank
from prefillgate.profiles.config_files import ConfigProblem, load_sections, load_yaml, read_presets, read_yaml_config
from prefillgate.profiles.environment import Variable, variables_of
from prefillgate.profiles.fields import items, kind_of, mapping, text_of, texts
from prefillgate.profiles.given import LONGEST_JSON, Collected, load_json, read_arguments, read_variable
from prefillgate.profiles.launch import LLAMA, Launch, engine_of_image, read_launch
from prefillgate.profiles.model import refused
from prefillgate.profiles.seal import Sealing
from prefillgate.profiles.sources import Mounts, Sources, Within, image_digest, mounts_of, secret_checksums
from prefillgate.profiles.tables import TABLES
from prefillgate.profiles.volumes import Start, start_of, storage_annotations

# Containers that meshes and secret injectors add to pods.
INJECTED_CONTAINERS = ("istio-*", "linkerd-*", "vault-agent*", "cloudsql-proxy")
SELECTED = "node selector "  # before the name of a label
MOST_WORDS = 65_536  # of arguments once a script and its variables are read


@dataclass(slots=True)
class Raw:
    """What was read of one pod, before anything is sealed."""

    role: str
    container: str
    why: str
    engine: str | None
    launch: Launch
    collected: Collected
    variables: dict[str, Variable]
    mounts: Mounts
    start: Start
    image: str
    image_id: str | None
    read_files: set[str] = field(default_factory=set)
    placement: list[tuple[str, str]] = field(default_factory=list)  # setting and value
    others: list[Beside] = field(default_factory=list)
    checksums: list[tuple[str, str]] = field(default_factory=list)
    storage: list[tuple[str, str]] = field(default_factory=list)  # annotations that tell which weights are put in
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Beside:
    """An init container or a sidecar."""

    kind: str  # init container or sidecar
    name: str
    image: str
    digest: str | None
    words: list[str]
    variables: dict[str, Variable]
    mounts: Mounts
    start: Start


def read_pod(template: Mapping[str, Any], path: str, sources: Sources, role: str) -> Raw:
    """Read a pod template (`spec`, and `metadata` for checksum annotations) that stands at `path`.

    Raises `ProfileError` with the path of the field.
    """
    base = f"{path}." if path else ""
    spec_path = f"{base}spec"
    spec = mapping(template.get("spec"), spec_path)
    containers = [(mapping(each, at), at) for each, at in items(spec.get("containers"), f"{spec_path}.containers")]
    if not containers:
        raise refused(f"{spec_path}.containers", "no container", "a pod template with at least one")
    (container, at), why = _choose(containers, sources)
    name = text_of(container.get("name", ""), f"{at}.name")
    metadata = mapping(template.get("metadata"), f"{base}metadata")
    within = Within(spec, spec_path, sources, str(metadata.get("name") or ""))
    raw = _read_container(container, at, within)
    raw.role, raw.container, raw.why = role, name, why
    raw.placement = [*_resources(container, at), *_nodes(spec, spec_path)]
    raw.others = list(_others(within, at))
    annotations = mapping(metadata.get("annotations"), f"{base}metadata.annotations")
    raw.checksums, raw.storage = secret_checksums(annotations), storage_annotations(annotations)
    return raw


def _choose(
    containers: list[tuple[Mapping[str, Any], str]], sources: Sources
) -> tuple[tuple[Mapping[str, Any], str], str]:
    if sources.container is not None:
        for each in containers:
            if each[0].get("name") == sources.container:
                return each, "named"
        known = ", ".join(str(each.get("name")) for each, _ in containers)
        raise refused("container", f"no container is called {sources.container[:80]}", known[:200])
    for each in containers:
        container, at = each
        words = texts(container.get("command"), f"{at}.command") + texts(container.get("args"), f"{at}.args")
        image = str(container.get("image") or "")
        if read_launch(words, [], image, {}).engine is not None or engine_of_image(image) is not None:
            return each, "its image or command is a known engine's"
    return containers[0], "the first one; none is a known engine's"


def _image(container: Mapping[str, Any], at: str, sources: Sources) -> tuple[str, str | None]:
    image = container.get("image")
    text = "" if image is None else text_of(image, f"{at}.image")
    return text, image_digest(text, sources.image_ids.get(str(container.get("name"))))


def _read_container(container: Mapping[str, Any], at: str, within: Within) -> Raw:
    sources = within.sources
    image, digest = _image(container, at, sources)
    command, args = texts(container.get("command"), f"{at}.command"), texts(container.get("args"), f"{at}.args")
    variables, notes = variables_of(container, at, sources)
    known = {name: each.value for name, each in variables.items()}
    launch = read_launch(command, args, image, known, sources.engine)
    if len(launch.words) > MOST_WORDS:
        raise refused(f"{at}.args", f"{len(launch.words)} words once variables are put in", f"up to {MOST_WORDS}")
    table = TABLES[launch.engine]
    mounts, start = mounts_of(within, container, at, known), start_of(container, at)
    flags = Collected(table, sources.seal.takes_credential)
    read_arguments(launch.words, flags)
    collected = Collected(table, sources.seal.takes_credential, notes=notes)
    raw = Raw("", "", "", launch.engine, launch, collected, variables, mounts, start, image, digest)
    _read_config(raw, flags)
    for name, value in [*((v.name, v.value) for v in variables.values()), *launch.assigned]:
        if value is not None and read_variable(name, value, collected):
            raw.read_files.add(f"env {name}")
    _read_presets(raw, flags)
    for given in flags.found.values():
        collected.add(given)
    for note in flags.notes:
        collected.note(note)
    return raw


def _read_config(raw: Raw, flags: Collected) -> None:
    """The file of `--config`, which counts less than anything else."""
    given = flags.found.get("config")
    if given is None or raw.engine == LLAMA:
        return
    path = given.values[0]
    _read_file(raw, path, read_yaml_config)


def _read_presets(raw: Raw, flags: Collected) -> None:
    given = flags.found.get("models-preset") or raw.collected.found.get("models-preset")
    if given is not None and raw.engine == LLAMA:
        _read_file(raw, given.values[0], read_presets)


def _read_file(raw: Raw, path: str, read: Any) -> None:
    file = raw.mounts.file(path)
    if file is None or file.text is None:
        raw.collected.note(f"config file {path} was not read: no ConfigMap that was given holds it")
        return
    try:
        read(file.text, path, raw.collected)
    except ConfigProblem as problem:
        raw.collected.note(f"config file {path} could not be read: {problem}")
        return
    raw.read_files.add(path)


def _resources(container: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
    """GPUs and other extended resources: `nvidia.com/gpu`. CPU and memory are left out."""
    resources = mapping(container.get("resources"), f"{at}.resources")
    for name, amount in sorted(mapping(resources.get("limits"), f"{at}.resources.limits").items()):
        if "/" in str(name):
            if isinstance(amount, bool) or not isinstance(amount, str | int):
                raise refused(
                    f"{at}.resources.limits", f"{kind_of(amount)} stands where an amount is expected", "a number"
                )
            yield str(name), str(amount)
    for each, path in items(resources.get("claims"), f"{at}.resources.claims"):
        yield f"resource claim {mapping(each, path).get('name')}", str(mapping(each, path).get("request") or "all")


def _nodes(spec: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """What chooses the node, and so the card."""
    for name, value in sorted(mapping(spec.get("nodeSelector"), f"{path}.nodeSelector").items()):
        yield f"{SELECTED}{name}", text_of(value, f"{path}.nodeSelector.{name}")
    affinity = mapping(spec.get("affinity"), f"{path}.affinity")
    nodes = mapping(affinity.get("nodeAffinity"), f"{path}.affinity.nodeAffinity")
    required = nodes.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required:
        yield "node affinity", json.dumps(required, sort_keys=True, default=str)
    if spec.get("runtimeClassName"):
        yield "runtime class", text_of(spec["runtimeClassName"], f"{path}.runtimeClassName")
    for each, at in items(spec.get("resourceClaims"), f"{path}.resourceClaims"):
        claim = mapping(each, at)
        told = claim.get("resourceClaimTemplateName") or claim.get("resourceClaimName")
        yield f"resource claim {claim.get('name')} from", str(told)


def _others(within: Within, chosen: str) -> Iterator[Beside]:
    sources = within.sources
    ignored = (*INJECTED_CONTAINERS, *sources.ignored)
    for kind, field_name in (("init container", "initContainers"), ("sidecar", "containers")):
        for each, at in items(within.spec.get(field_name), f"{within.path}.{field_name}"):
            container = mapping(each, at)
            name = str(container.get("name"))
            if at == chosen or any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored):
                continue
            image, digest = _image(container, at, sources)
            words = texts(container.get("command"), f"{at}.command") + texts(container.get("args"), f"{at}.args")
            variables, _ = variables_of(container, at, sources)
            known = {variable.name: variable.value for variable in variables.values()}
            mounts = mounts_of(within, container, at, known)
            yield Beside(kind, name, image, digest, words, variables, mounts, start_of(container, at))


def learn(raw: Raw, sealing: Sealing) -> None:
    """Everything in a pod that is given under the name of a credential."""
    for variables in (raw.variables, *(each.variables for each in raw.others)):
        for variable in variables.values():
            _learn_value(variable.name, variable.value or "", sealing)
    for name, value in [*raw.launch.assigned, *raw.launch.local]:
        _learn_value(name, value, sealing)
    for given in raw.collected.found.values():
        for value in given.values:
            if refers(value, raw.variables):
                continue
            if is_listed(given.name, raw) and not has_blank(value) and load_json(value) is None:
                sealing.learn(given.name, value)
            else:
                _learn_value(given.name, value, sealing)
    sealing.learn_text(raw.launch.script)
    for text in (raw.launch.text, *(word for other in raw.others for word in other.words)):
        _learn_documents(text, sealing)
    for words in (*raw.launch.beside, raw.launch.wrapper, raw.launch.script.split(), *(o.words for o in raw.others)):
        sealing.learn_words(words)
    containers: list[Raw | Beside] = [raw, *raw.others]
    for each in containers:
        hook = each.start.hook[1] if each.start.hook is not None else ()
        sealing.learn_words(hook)
        for text in hook:
            _learn_documents(text, sealing)
        for volume in each.mounts.volumes:
            sealing.learn_all(volume.more)
    for name, value in raw.storage:
        _learn_value(name, value, sealing)


def _learn_value(name: str, value: str, sealing: Sealing) -> None:
    sealing.learn(name, value)
    loaded = load_json(value)
    if loaded is not None:
        sealing.learn_all(loaded, name)
        return
    _learn_documents(value, sealing)
    sealing.learn_text(value)
    if has_blank(value):
        sealing.learn_words(value.split())


def _learn_documents(text: str, sealing: Sealing) -> None:
    """The fields of YAML, TOML or INI in a variable, or in a here-document of a script."""
    for document in documents(text):
        for load in (load_yaml, load_sections) if len(document) <= LONGEST_JSON else ():
            with contextlib.suppress(ConfigProblem):
                loaded = load(document)
                sealing.learn_all(loaded if isinstance(loaded, Mapping) else {})


def is_listed(name: str, raw: Raw) -> bool:
    """Whether a setting is one of those that are known of its engine."""
    return name in raw.collected.table.by_name


def refers(value: str, variables: Mapping[str, Variable]) -> bool:
    """Whether a value is nothing but a reference to a variable of a Secret, written as `$(X)`, `${X}` or `$X`."""
    name = value[1:].strip("(){}") if value[:1] == "$" else ""
    known = variables.get(name)
    return known is not None and known.value is None and value in (f"$({name})", f"${{{name}}}", f"${name}")
