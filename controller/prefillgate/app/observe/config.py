"""ConfigMaps that profiles are read from: contents are read when a look needs them, and kept by their digest."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from prefillgate.api.kinds.line_status import MOST_CONFIG_MAPS, ContentsSeen
from prefillgate.app.observe.contents import Contents
from prefillgate.app.observe.held import Held
from prefillgate.app.observe.trims import DATA_DIGEST, config_map
from prefillgate.kube.client import Kube
from prefillgate.kube.clock import Clock, SystemClock
from prefillgate.kube.objects import CONFIG_MAPS, Object, Ref
from prefillgate.profiles import config_map_data

Data = Mapping[str, str]


@dataclass(slots=True)
class _Kept:
    digest: str
    data: Data


class ConfigMaps:
    """Reads ConfigMaps. What is kept is what lines use; of all that are told of, which contents stood there when."""

    def __init__(self, kube: Kube, held: Held, key: bytes, clock: Clock | None = None) -> None:
        self._kube = kube
        self._held = held
        self._kept: dict[str, _Kept] = {}
        self._contents = Contents(clock or SystemClock(), key)

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
        seen = self._held.at(key)
        kept = self._kept.get(key)
        if seen is None:
            self.told(key, None)
            return None
        if kept is not None and kept.digest == seen.get(DATA_DIGEST):
            return kept.data
        obj = await self._kube.find(Ref(CONFIG_MAPS, name, namespace))
        if obj is None:
            self.told(key, None)
            return None
        trimmed = config_map(obj)
        self.told(key, trimmed)
        kept = self._kept[key] = _Kept(str(trimmed[DATA_DIGEST]), config_map_data(obj))
        return kept.data

    def told(self, key: str, obj: Object | None) -> None:
        """A ConfigMap is this now (`trims.config_map`); None: it is gone."""
        self._contents.seen(key, obj)
        if obj is None:
            self._kept.pop(key, None)

    def recall(self, namespace: str, told: object) -> None:
        """What a line's status says of them, as it was read."""
        for each in told if isinstance(told, list) else ():
            with contextlib.suppress(ValidationError):
                known = ContentsSeen.model_validate(each)
                self._contents.recall(f"{namespace}/{known.name}", known.mark, known.since)

    def seen(self, namespace: str, names: Iterable[str]) -> tuple[ContentsSeen, ...]:
        """What a line's status is to say of them."""
        known = ((name, self._contents.last(f"{namespace}/{name}")) for name in sorted(names))
        told = (ContentsSeen(name=name, mark=last[0], since=last[1]) for name, last in known if last and last[1])
        return tuple(itertools.islice(told, MOST_CONFIG_MAPS))

    def another_than(self, namespace: str, names: Iterable[str], needed: Iterable[str], at: str) -> str | None:
        """Which of these say something else now than at a moment (RFC 3339, in whole seconds), in words; None: none.

        One that is not there and was never seen counts where it is needed, for without it nothing could have started.
        """
        wanted = frozenset(needed)
        changed: list[str] = []
        gone: list[str] = []
        for name in names:
            key = f"{namespace}/{name}"
            kept = self._kept.get(key)
            other = self._contents.another(key, None if kept is None else kept.digest, at)
            if other or (other is None and name in wanted):
                (gone if kept is None else changed).append(name)
        if changed:
            return (
                f"ConfigMap {', '.join(changed)} was changed after it started (restart it, or give each version of a "
                "ConfigMap a name of its own)"
            )
        if gone:
            said = "is not there any more (put it back, and restart the pod where that is not enough)"
            return f"ConfigMap {', '.join(gone)} {said}"
        return None

    def versions(self, namespace: str, names: Iterable[str]) -> tuple[str, ...]:
        """What tells the contents of now from those of another time."""
        kept = (self._kept.get(f"{namespace}/{name}") for name in sorted(names))
        return tuple("" if each is None else each.digest for each in kept)
