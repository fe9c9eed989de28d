"""Manifests and command lines out of files, for profiles without a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prefillgate.api.errors import clean
from prefillgate.profiles.config_files import ConfigProblem, load_documents
from prefillgate.profiles.fields import mapping
from prefillgate.profiles.model import Profile, refused
from prefillgate.profiles.shell import ShellProblem, read_script
from prefillgate.profiles.sources import Sources, config_map_data, secret_facts
from prefillgate.profiles.workloads import RBAC, inline_profile, profile_of

_A_MANIFEST = re.compile(r"(?m)^[ \t{\[,-]*[\"']?(?:apiVersion|kind|spec)[\"']?\s*:")


@dataclass(frozen=True, slots=True)
class Named:
    """A profile and what it was read from: `Deployment/vllm`, or `command line`."""

    name: str
    profile: Profile


@dataclass(slots=True)
class Wanted:
    """Which workload of a file, where its pod template stands, the image of a bare command line."""

    workload: str | None = None  # NAME or Kind/NAME
    template_path: str | None = None
    image: str | None = None


@dataclass(slots=True)
class _Objects:
    workloads: list[Mapping[str, Any]] = field(default_factory=list)
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    secrets: dict[str, Any] = field(default_factory=dict)


def read_profiles(text: str, sources: Sources, wanted: Wanted) -> list[Named]:
    """The profiles of a text: objects in YAML or JSON, a list of arguments, or a command line.

    ConfigMaps in the text give mounted files and variables; of Secrets only names, keys and checksum annotations are
    taken. Raises `ProfileError`.
    """
    try:
        loaded = [each for each in load_documents(text) if each is not None]
    except ConfigProblem as problem:
        if _A_MANIFEST.search(text):
            raise refused("", str(problem), "Kubernetes objects in YAML or JSON, or a command line") from problem
        loaded = []
    if len(loaded) == 1 and isinstance(loaded[0], list) and not any(isinstance(e, Mapping) for e in loaded[0]):
        return [Named("arguments", inline_profile(_container(loaded[0], wanted), sources))]
    if not loaded or not _A_MANIFEST.search(text):
        return [Named("command line", inline_profile(_command(text, wanted), sources))]
    return _of_objects(loaded, sources, wanted)


def _container(words: list[Any], wanted: Wanted) -> dict[str, Any]:
    given: dict[str, Any] = {} if wanted.image is None else {"image": wanted.image}
    bare = not words or str(words[0]).startswith("-")
    return {**given, "args": words} if bare else {**given, "command": words}


def _command(text: str, wanted: Wanted) -> dict[str, Any]:
    try:
        commands = read_script(text, {}, []).commands
    except ShellProblem as problem:
        raise refused("", str(problem), "Kubernetes objects in YAML or JSON, or a command line") from problem
    if not commands or not (commands[0].words or commands[0].assigned):
        raise refused("", "nothing in it", "Kubernetes objects in YAML or JSON, or a command line")
    if commands[0].words and commands[0].words[0].startswith("-"):
        return _container(list(commands[0].words), wanted)
    return _container(["sh", "-c", text], wanted)


def _of_objects(loaded: list[Any], sources: Sources, wanted: Wanted) -> list[Named]:
    found = _Objects()
    for each in loaded:
        _sort(each, found, wanted)
    seen = replace(
        sources,
        config_maps={**found.config_maps, **sources.config_maps},
        secrets={**found.secrets, **sources.secrets},
    )
    chosen = [each for each in found.workloads if wanted.workload in (None, *_names(each))]
    if not chosen:
        known = ", ".join(_names(each)[1] for each in found.workloads) or "none is there"
        what = "no workload with a pod template" if wanted.workload is None else "no workload is called so"
        raise refused("", what, f"one of: {clean(known[:300])}")
    return [Named(clean(_names(each)[1][:200]), profile_of(each, seen, wanted.template_path)) for each in chosen]


def _sort(value: Any, found: _Objects, wanted: Wanted) -> None:
    for each in _flat(value):
        kind, name = str(each.get("kind")), _names(each)[0]
        if kind == "ConfigMap":
            found.config_maps[name] = config_map_data(each)
        elif kind == "Secret":
            found.secrets[name] = secret_facts(each)
        elif kind in RBAC or kind == "Pod" or wanted.template_path is not None or _has_template(each):
            found.workloads.append(each)


def _flat(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object of a document, a list or a `List`, not deeper than a list in a list."""
    for each in value if isinstance(value, list) else [value]:
        inner = mapping(each, "")
        if str(inner.get("kind", "")).endswith("List") and isinstance(inner.get("items"), list):
            yield from (mapping(item, f"items[{index}]") for index, item in enumerate(inner["items"]))
        else:
            yield inner


def _has_template(each: Mapping[str, Any]) -> bool:
    spec = each.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    inner = template.get("spec") if isinstance(template, Mapping) else None
    return isinstance(inner, Mapping) and "containers" in inner


def _names(each: Mapping[str, Any]) -> tuple[str, str]:
    metadata = each.get("metadata")
    name = str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""
    return name, f"{each.get('kind') or 'object'}/{name}"
