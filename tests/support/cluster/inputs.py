"""What a container gets: environment and volumes, out of ConfigMaps, Secrets and the pod itself."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.cluster.api import Object, path_of

Get = Callable[[str], Awaitable[Object | None]]
Token = Callable[[str, str, dict[str, Any]], Awaitable[str]]


class CannotStart(Exception):
    """Why a container cannot be started yet; becomes the message of CreateContainerConfigError."""


class Inputs:
    """The inputs of one pod's containers. `get` gives the object at a path, `token` one of a ServiceAccount."""

    def __init__(self, pod: Object, address: str, folder: Path, get: Get, token: Token) -> None:
        self._pod, self._address, self._folder, self._get, self._token = pod, address, folder, get, token
        self._namespace: str = pod["metadata"]["namespace"]

    async def environment(self, container: Object) -> dict[str, str]:
        """`env` and `envFrom`, later ones winning, with $(NAME) replaced."""
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            for kind, resource in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
                if kind in source:
                    data = await self._data(resource, source[kind]["name"], source[kind].get("optional", False))
                    found.update({source.get("prefix", "") + key: value.decode() for key, value in data.items()})
        for entry in container.get("env", []):
            value = await self._value(entry, container)
            if value is not None:
                found[entry["name"]] = expanded(value, found)
        return found

    async def mounts(self, container: Object) -> list[tuple[str, str, bool]]:
        """(path on this machine, path in the container, read only) of each volume mount."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", [])}
        made = []
        for mount in container.get("volumeMounts", []):
            source = await self._volume(volumes[mount["name"]])
            if "subPath" in mount:
                source = source / mount["subPath"]
            made.append((str(source), mount["mountPath"].rstrip("/"), bool(mount.get("readOnly", False))))
        return made

    async def _value(self, entry: Object, container: Object) -> str | None:
        source = entry.get("valueFrom")
        if not source:
            return str(entry.get("value", ""))
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            asked, resource = source["resourceFieldRef"]["resource"].split(".", 1)
            return str(container.get("resources", {}).get(asked, {}).get(resource, "0"))
        resource, ref = (
            ("configmaps", source["configMapKeyRef"])
            if "configMapKeyRef" in source
            else ("secrets", source["secretKeyRef"])
        )
        data = await self._data(resource, ref["name"], ref.get("optional", False))
        if ref["key"] in data:
            return data[ref["key"]].decode()
        if ref.get("optional", False):
            return None
        raise CannotStart(f"couldn't find key {ref['key']} in {resource[:-1]} {self._namespace}/{ref['name']}")

    def _field(self, path: str) -> str:
        metadata, spec = self._pod["metadata"], self._pod["spec"]
        if named := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            return str(metadata.get(named[1], {}).get(named[2], ""))
        known = {
            **{f"metadata.{name}": metadata.get(name, "") for name in ("name", "namespace", "uid")},
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "status.podIP": self._address,
            "status.podIPs": self._address,
            "status.hostIP": self._address,
        }
        if path not in known:
            raise CannotStart(f"fieldPath {path} is not known to the node agent of the tests")
        return str(known[path])

    async def _data(self, resource: str, name: str, optional: bool) -> dict[str, bytes]:
        """Keys and values of a ConfigMap or a Secret."""
        found = await self._get(path_of(resource, name, self._namespace))
        if found is None:
            if optional:
                return {}
            raise CannotStart(f'{resource[:-1]} "{name}" not found')
        plain = {key: value.encode() for key, value in found.get("data", {}).items()}
        encoded = {key: base64.b64decode(value) for key, value in found.get("binaryData", {}).items()}
        if resource == "secrets":
            return {key: base64.b64decode(value) for key, value in plain.items()}
        return plain | encoded

    async def _volume(self, volume: Object) -> Path:
        """A folder of this machine with what the volume holds; made once for the pod."""
        if "hostPath" in volume:
            return Path(str(volume["hostPath"]["path"]))
        folder = self._folder / "volumes" / str(volume["name"])
        if folder.exists():
            return folder
        files = await self._files(volume)
        folder.mkdir(parents=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    async def _files(self, volume: Object) -> dict[str, bytes]:
        if "emptyDir" in volume:
            return {}
        sources = volume["projected"]["sources"] if "projected" in volume else [volume]
        files: dict[str, bytes] = {}
        for source in sources:
            files |= await self._source(source)
        return files

    async def _source(self, source: Object) -> dict[str, bytes]:
        """Files of one source, whether a volume of its own or part of a projected one."""
        for kind, resource in (("configMap", "configmaps"), ("secret", "secrets")):
            if kind in source:
                told = source[kind]
                name = told.get("name") or told["secretName"]
                return chosen(await self._data(resource, name, told.get("optional", False)), told.get("items"))
        if "downwardAPI" in source:
            items = source["downwardAPI"]["items"]
            return {item["path"]: self._field(item["fieldRef"]["fieldPath"]).encode() for item in items}
        if "serviceAccountToken" in source:
            told = source["serviceAccountToken"]
            account = self._pod["spec"].get("serviceAccountName", "default")
            return {told["path"]: (await self._token(self._namespace, account, told)).encode()}
        raise CannotStart(
            f"a volume of the kinds {', '.join(sorted(source))} is not known to the node agent of the tests"
        )


def chosen(data: dict[str, bytes], items: list[Object] | None) -> dict[str, bytes]:
    """All keys as files, or those that `items` names under the paths that it names."""
    if items is None:
        return data
    missing = [item["key"] for item in items if item["key"] not in data]
    if missing:
        raise CannotStart(f"references non-existent config key: {', '.join(missing)}")
    return {item["path"]: data[item["key"]] for item in items}


def expanded(text: str, environment: dict[str, str]) -> str:
    """$(NAME) replaced by its value, where there is one; $$ stands for a $."""
    return re.sub(
        r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)",
        lambda found: "$" if found[0] == "$$" else environment.get(found[1], found[0]),
        text,
    )
