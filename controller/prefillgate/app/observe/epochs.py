"""The life of each server as the cluster tells it, handed on at every change of a pod and not only at looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from prefillgate.api.kinds.arms import PodsEndpoint
from prefillgate.app.observe.pods import epoch_of, is_leaving, pod_url
from prefillgate.app.seams import Works
from prefillgate.kube.objects import Object
from prefillgate.reconcile.snapshot import ServerSeen


@dataclass(frozen=True, slots=True)
class PodsWay:
    """How the pods of a slot are asked, as the last look found it."""

    endpoint: PodsEndpoint
    container: str


@dataclass(slots=True)
class Epochs:
    """Tells `Works` of lives."""

    _ways: dict[str, tuple[PodsWay, ...]] = field(default_factory=dict)  # by line
    _works: Works | None = None

    def tell(self, works: Works) -> None:
        """Whom to tell from now on."""
        self._works = works

    def put(self, line: str, ways: Iterable[PodsWay]) -> None:
        """How the pods of a line are asked."""
        self._ways[line] = tuple(ways)

    def forget(self, line: str) -> None:
        """The line is gone."""
        self._ways.pop(line, None)

    def seen(self, servers: Iterable[ServerSeen]) -> None:
        """What a look found. A server whose life the cluster cannot tell is not spoken of."""
        for server in servers:
            if self._works is not None and server.url is not None and server.epoch is not None:
                self._works.present_epoch(server.url, server.epoch)

    def pod_changed(self, lines: Iterable[str], old: Object | None, new: Object | None) -> None:
        """A pod of these lines changed: another life, or it was taken away.

        Of a container that ended by itself nothing is told until it runs again: what it died under is its own fault.
        """
        if self._works is None:
            return
        for way in (way for line in lines for way in self._ways.get(line, ())):
            before = None if old is None else pod_url(old, way.endpoint, way.container)
            now = None if new is None else pod_url(new, way.endpoint, way.container)
            if before is not None and before != now and old is not None and epoch_of(old, way.container) is not None:
                self._works.present_epoch(before, None)
            if now is not None and new is not None:
                life = epoch_of(new, way.container)
                ran = old is not None and epoch_of(old, way.container) is not None
                if life is not None or (ran and is_leaving(new)):
                    self._works.present_epoch(now, life)
