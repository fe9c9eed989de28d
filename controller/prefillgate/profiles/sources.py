"""What else a profile is read from: images as pods resolved them, mounted ConfigMaps, facts about Secrets."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefillgate.profiles.fields import items, mapping, text_of
from prefillgate.profiles.launch import expand
from prefillgate.profiles.seal import Seal
from prefillgate.profiles.volumes import MountedVolume, below, plain_path, volume_at

_IMAGE_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_OF_A_SECRET = ("secret", "token", "cred", "password", "apikey", "api-key")
SERVICE_ACCOUNT_MOUNT = "secrets/kubernetes.io/serviceaccount"  # every pod is given one


@dataclass(frozen=True, slots=True)
class SecretFacts:
    """What may be known of a Secret: its keys (None: unknown) and the annotations that are checksums."""

    keys: tuple[str, ...] | None = None
    checksums: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """What stands beside the workload. A name that is missing in a mapping was not read, which is said."""

    seal: Seal = field(repr=False)
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # name: key: text, as a pod started
    secrets: Mapping[str, SecretFacts] = field(default_factory=dict)
    image_ids: Mapping[str, str] = field(default_factory=dict)  # container: imageID of its pod's status
    container: str | None = None  # the one that serves, where a person named it
    engine: str | None = None  # what tells the engine where neither command nor image do: vllm, llama.cpp, sglang
    ignored: tuple[str, ...] = ()  # variables, containers and volumes that admission adds, `*` for anything


def image_ids_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """imageID by container, of every container of a pod whose status tells one."""
    status = mapping(pod.get("status"), "status")
    found = {}
    for kind in ("containerStatuses", "initContainerStatuses"):
        for at, path in items(status.get(kind), f"status.{kind}"):
            each = mapping(at, path)
            if _IMAGE_DIGEST.search(str(each.get("imageID") or "")):
                found[text_of(each.get("name"), f"{path}.name")] = str(each["imageID"])
    return found


def image_digest(image: str, image_id: str | None) -> str | None:
    """The digest an image is pinned by, else the one its pod resolved; None: not known."""
    found = _IMAGE_DIGEST.search(image) or _IMAGE_DIGEST.search(image_id or "")
    return None if found is None else found[0]


def config_map_data(config_map: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a ConfigMap by key; of binary data its sha256, which is all that a profile needs of it."""
    found = {str(key): str(value) for key, value in mapping(config_map.get("data"), "data").items()}
    for key, value in mapping(config_map.get("binaryData"), "binaryData").items():
        found[str(key)] = f"binary, sha256 {hashlib.sha256(str(value).encode()).hexdigest()}"
    return found


def secret_facts(secret: Mapping[str, Any]) -> SecretFacts:
    """Keys and checksum annotations of a Secret; no value of its data is looked at.

    The object may be its metadata alone (PartialObjectMetadata): then the keys are unknown.
    """
    held = [mapping(secret[name], name) for name in ("data", "stringData") if secret.get(name) is not None]
    keys = sorted({str(key) for each in held for key in each})
    metadata = mapping(secret.get("metadata"), "metadata")
    annotations = mapping(metadata.get("annotations"), "metadata.annotations")
    return SecretFacts(
        tuple(keys) if held else None,
        tuple(sorted((str(name), str(value)) for name, value in annotations.items() if "checksum" in str(name))),
    )


def secret_checksums(annotations: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Those annotations of a pod template that are checksums of a Secret, as charts write them."""
    return sorted(
        (str(name), str(value))
        for name, value in annotations.items()
        if "checksum" in str(name).lower() and any(word in str(name).lower() for word in _OF_A_SECRET)
    )


_CONFIG_MAP = ("configMap", "configMapRef", "configMapKeyRef")


def used_config_maps(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the ConfigMaps that a pod spec mounts or takes variables from: what to read before `profile_of`."""
    return _names(_used(spec, *_CONFIG_MAP))


def needed_config_maps(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of them without which no container of the pod starts: not the `optional` ones."""
    return _names(each for each in _used(spec, *_CONFIG_MAP) if each.get("optional") is not True)


def used_secrets(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The same of Secrets: what to read the metadata of."""
    return _names(_used(spec, "secret", "secretRef", "secretKeyRef"))


def _used(spec: Mapping[str, Any], volume: str, all_keys: str, one_key: str) -> Iterator[Mapping[str, Any]]:
    """Every place that refers to one."""
    for each, path in items(spec.get("volumes"), "volumes"):
        found = mapping(each, path)
        sources = [found, *(mapping(s, p) for s, p in _projected(found, path))]
        for source in sources:
            yield mapping(source.get(volume), f"{path}.{volume}")
    for kind in ("containers", "initContainers"):
        for each, path in items(spec.get(kind), kind):
            container = mapping(each, path)
            for entry, at in items(container.get("envFrom"), f"{path}.envFrom"):
                yield mapping(mapping(entry, at).get(all_keys), at)
            for entry, at in items(container.get("env"), f"{path}.env"):
                source = mapping(mapping(entry, at).get("valueFrom"), f"{at}.valueFrom")
                yield mapping(source.get(one_key), f"{at}.valueFrom.{one_key}")


def _projected(volume: Mapping[str, Any], path: str) -> Iterator[tuple[Any, str]]:
    projected = mapping(volume.get("projected"), f"{path}.projected")
    yield from items(projected.get("sources"), f"{path}.projected.sources")


def _names(references: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    told = (each.get(key) for each in references for key in ("name", "secretName"))
    return tuple(sorted({name for name in told if isinstance(name, str) and name != "kube-root-ca.crt"}))


@dataclass(frozen=True, slots=True)
class MountedFile:
    """A file that a ConfigMap gives a container; `text` None: the ConfigMap or the key was not there."""

    path: str
    config_map: str
    key: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Mounts:
    """What a container finds in its files: of ConfigMaps and Secrets, and volumes of any other kind."""

    files: tuple[MountedFile, ...]
    secrets: tuple[tuple[str, str, str], ...]  # mount path, secret, keys in words
    volumes: tuple[MountedVolume, ...] = ()

    def file(self, path: str) -> MountedFile | None:
        """The mounted file at that path, or None."""
        return next((each for each in self.files if each.path == path), None)


@dataclass(frozen=True, slots=True)
class Within:
    """What a container is read within. `name` is the pod's where it is one, empty for a template."""

    spec: Mapping[str, Any]
    path: str
    sources: Sources
    name: str = ""


def mounts_of(within: Within, container: Mapping[str, Any], at: str, variables: Mapping[str, str | None]) -> Mounts:
    """Follow a container's mounts to their volumes; `at` is the container's path in the object, `variables` are its
    own, which a subPathExpr may name. Raises `ProfileError`."""
    defined: dict[str, tuple[Mapping[str, Any], str]] = {}
    for each, path in items(within.spec.get("volumes"), f"{within.path}.volumes"):
        volume = mapping(each, path)
        defined[str(volume.get("name"))] = (volume, path)
    files: list[MountedFile] = []
    secrets: list[tuple[str, str, str]] = []
    volumes: list[MountedVolume] = []
    sources = within.sources
    for where, sub_path, name, path in _mounted_at(container, at, variables):
        if where.endswith(SERVICE_ACCOUNT_MOUNT) or any(fnmatch.fnmatchcase(name, each) for each in sources.ignored):
            continue
        volume, volume_path = defined.get(name, ({}, path))
        inner = [volume, *(mapping(s, p) for s, p in _projected(volume, volume_path))]
        for source in inner:
            files += _files(source, where, sub_path, sources)
            secrets += _secret_mounts(source, where, sources)
        mounted = volume_at(where, sub_path, volume, within.name, volume_path)
        volumes += [] if mounted is None else [mounted]
    volumes.sort(key=lambda each: each.path)
    return Mounts(tuple(sorted(files, key=lambda each: each.path)), tuple(sorted(secrets)), tuple(volumes))


def _mounted_at(
    container: Mapping[str, Any], at: str, variables: Mapping[str, str | None]
) -> Iterator[tuple[str, str, str, str]]:
    """Mount path, sub-path, volume and the path in the object, of every mount and every block device."""
    for each, path in items(container.get("volumeMounts"), f"{at}.volumeMounts"):
        mount = mapping(each, path)
        where = text_of(mount.get("mountPath"), f"{path}.mountPath").rstrip("/")
        sub_path = plain_path(mount.get("subPath"), f"{path}.subPath")
        written = plain_path(mount.get("subPathExpr"), f"{path}.subPathExpr")
        yield where, sub_path or plain_path(expand(written, variables, {}), path), str(mount.get("name")), path
    for each, path in items(container.get("volumeDevices"), f"{at}.volumeDevices"):
        device = mapping(each, path)
        yield text_of(device.get("devicePath"), f"{path}.devicePath"), "", str(device.get("name")), path


def _files(source: Mapping[str, Any], where: str, sub_path: str, sources: Sources) -> Iterator[MountedFile]:
    """`sub_path` is a file, or the folder of several; one that cannot be told here may be any of them."""
    held = mapping(source.get("configMap"), "configMap")
    name = held.get("name")
    if not isinstance(name, str):
        return
    data = sources.config_maps.get(name)
    chosen = _items(held) or {key: key for key in (data or {})}
    if data is None and not _items(held):
        yield MountedFile(where if sub_path else f"{where}/", name, sub_path, None)
    for key, file in sorted(chosen.items()):
        rest = below(plain_path(file, "items"), "" if "$(" in sub_path else sub_path)
        if rest is not None:
            yield MountedFile(f"{where}/{rest}" if rest else where, name, key, None if data is None else data.get(key))


def _secret_mounts(source: Mapping[str, Any], where: str, sources: Sources) -> Iterator[tuple[str, str, str]]:
    held = mapping(source.get("secret"), "secret")
    name = held.get("secretName") or held.get("name")
    if isinstance(name, str):
        keys = tuple(sorted(_items(held))) or (sources.secrets.get(name) or SecretFacts()).keys
        yield where, name, "all keys" if keys is None else f"keys {', '.join(keys)}"


def _items(held: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for each, path in items(held.get("items"), "items"):
        entry = mapping(each, path)
        found[text_of(entry.get("key"), f"{path}.key")] = text_of(entry.get("path"), f"{path}.path")
    return found
