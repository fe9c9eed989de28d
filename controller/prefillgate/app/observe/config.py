"""ConfigMaps that profiles are read from: contents are read when a look needs them, and kept by version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prefillgate.app.observe.held import Held
from prefillgate.app.observe.trims import data_changed_at
from prefillgate.kube.client import Kube
from prefillgate.kube.objects import CONFIG_MAPS, Ref, uid_of, version_of
from prefillgate.profiles import config_map_data

Data = Mapping[str, str]


@dataclass(slots=True)
class _Kept:
    uid: str
    version: str
    data: Data
    changed_at: str  # when what stands in it was written; empty: as it was created, and no pod started before that


@dataclass(slots=True)
class ConfigMaps:
    """Reads ConfigMaps. What is kept is what lines use."""

    kube: Kube
    held: Held
    _kept: dict[str, _Kept] = field(default_factory=dict)

    async def read(self, namespace: str, names: Iterable[str]) -> dict[str, Data]:
        """Contents by name; one that is not there is left out. Raises KubeError."""
        found: dict[str, Data] = {}
        for name in sorted(names):
            data = await self.data(namespace, name)
            if data is not None:
                found[name] = data
        return found

    async def data(self, namespace: str, name: str) -> Data | None:
        """The texts of a ConfigMap as it is now; None where there is none. Raises KubeError."""
        key = f"{namespace}/{name}"
        seen = self.held.at(key)
        kept = self._kept.get(key)
        if seen is None:
            self._kept.pop(key, None)
            return None
        if kept is not None and (kept.uid, kept.version) == (uid_of(seen), version_of(seen)):
            return kept.data
        obj = await self.kube.find(Ref(CONFIG_MAPS, name, namespace))
        if obj is None:
            self._kept.pop(key, None)
            return None
        data = config_map_data(obj)
        same = kept is not None and (kept.uid, kept.data) == (uid_of(obj), data)
        written = kept.changed_at if same and kept is not None else data_changed_at(obj) or ""
        self._kept[key] = _Kept(uid_of(obj), version_of(obj), data, written)
        return data

    def changed_since(self, namespace: str, names: Iterable[str], moment: str) -> tuple[str, ...]:
        """Names of those whose contents were written after a moment (RFC 3339, in whole seconds)."""
        kept = ((name, self._kept.get(f"{namespace}/{name}")) for name in names)
        return tuple(name for name, each in kept if each is not None and each.changed_at[:19] > moment[:19])

    def versions(self, namespace: str, names: Iterable[str]) -> tuple[str, ...]:
        """What tells the contents of now from those of another time."""
        kept = (self._kept.get(f"{namespace}/{name}") for name in sorted(names))
        return tuple("" if each is None else f"{each.uid}/{each.version}" for each in kept)

    def forget(self, key: str) -> None:
        """It is gone, or no line uses it any more."""
        self._kept.pop(key, None)
