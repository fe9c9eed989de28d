"""What a container is started in: its volumes by where they stand and what they come from, never by their names."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.profiles.fields import kind_of, mapping, text_of, texts
from prefillgate.profiles.model import refused

# Empty at the start of each pod, or told by what is in them: keys of ConfigMaps, names of Secrets.
_TOLD_OTHERWISE = ("configMap", "secret", "projected", "downwardAPI", "emptyDir")
_OWN_CLAIM = "a claim of the pod's own"
_OF_A_CLAIM = ("storageClassName", "dataSource", "dataSourceRef")
_IN_WORDS = {"hostPath": ("host path", "path"), "image": ("image", "reference")}
_STORAGE = "internal.serving.kserve.io/storage-"  # annotations by which KServe has weights put into its pods


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A volume at a path of a container. `source` is in words; `more` tells the source further, by field."""

    path: str
    source: str
    sub_path: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a container's command runs, and what runs in it right after: the kind of the hook and its words."""

    directory: str = ""
    hook: tuple[str, tuple[str, ...]] | None = None


def start_of(container: Mapping[str, Any], at: str) -> Start:
    """Working directory and postStart hook. preStop runs when nothing is served any more. Raises `ProfileError`."""
    directory = container.get("workingDir")
    text = "" if directory is None else text_of(directory, f"{at}.workingDir")
    path = f"{at}.lifecycle.postStart"
    given = mapping(mapping(container.get("lifecycle"), f"{at}.lifecycle").get("postStart"), path)
    for kind, held in sorted(given.items()):
        inner = mapping(held, f"{path}.{kind}")
        if kind == "exec":
            return Start(text, (kind, tuple(texts(inner.get("command"), f"{path}.exec.command"))))
        return Start(text, (str(kind), (json.dumps(inner, sort_keys=True, default=str),)))
    return Start(text)


def volume_at(where: str, sub_path: str, volume: Mapping[str, Any], pod: str, path: str) -> MountedVolume | None:
    """What is mounted at `where` from a `volume` that stands at `path`; None where other settings tell it.

    `pod` is the pod's name where it is one. A volume without a definition is a claim that a StatefulSet makes for each
    pod; in the pod itself its name is `VOLUME-POD`. Raises `ProfileError`.
    """
    if not volume:
        return MountedVolume(where, _OWN_CLAIM, sub_path)
    kind = next((str(each) for each in volume if each != "name"), "emptyDir")
    if kind in _TOLD_OTHERWISE:
        return _of_secret(where, sub_path, volume)
    held = mapping(volume[kind], f"{path}.{kind}")
    if kind == "persistentVolumeClaim":
        claim = text_of(held.get("claimName"), f"{path}.{kind}.claimName")
        own = bool(pod) and claim == f"{volume.get('name')}-{pod}"
        return MountedVolume(where, _OWN_CLAIM if own else f"claim {claim}", sub_path)
    if kind == "ephemeral":
        template = mapping(held.get("volumeClaimTemplate"), f"{path}.{kind}.volumeClaimTemplate")
        spec = mapping(template.get("spec"), f"{path}.{kind}.volumeClaimTemplate.spec")
        return MountedVolume(where, _OWN_CLAIM, sub_path, {name: spec[name] for name in _OF_A_CLAIM if name in spec})
    if kind in _IN_WORDS:
        words, name = _IN_WORDS[kind]
        return MountedVolume(where, f"{words} {text_of(held.get(name), f'{path}.{kind}.{name}')}", sub_path)
    return MountedVolume(where, kind, sub_path, held)


def _of_secret(where: str, sub_path: str, volume: Mapping[str, Any]) -> MountedVolume | None:
    """Of a Secret one of whose keys alone is mounted, which: its content is in no setting."""
    projected = volume.get("projected")
    sources = projected.get("sources") if isinstance(projected, Mapping) else ()
    inner = [volume, *(each for each in sources or () if isinstance(each, Mapping))]
    return MountedVolume(where, "Secret", sub_path) if sub_path and any("secret" in each for each in inner) else None


def plain_path(given: Any, path: str) -> str:
    """A subPath as others may write it too: without `./` and a slash at its end. Empty for none."""
    if given is None or given == "":
        return ""
    if not isinstance(given, str):
        raise refused(path, f"{kind_of(given)} stands where text is expected", "text")
    plain = posixpath.normpath(given)
    return "" if plain == "." else plain


def below(path: str, folder: str) -> str | None:
    """What of `path` stands below `folder`, empty for the folder itself; None: it is elsewhere."""
    if path == folder or not folder:
        return path.removeprefix(folder)
    return path[len(folder) + 1 :] if path.startswith(f"{folder}/") else None


def storage_annotations(annotations: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Those annotations of a pod template that tell KServe which weights to put into its pods, by name."""
    return sorted((str(name), str(value)) for name, value in annotations.items() if str(name).startswith(_STORAGE))
