"""The present life of every server under test, as the cluster tells it: written by the one, read around every cell."""

from __future__ import annotations

import threading

from prefillgate.app.orders import Asked, Servers


def untold(asked: Asked, servers: Servers) -> frozenset[str]:
    """Addresses of whose servers the cluster cannot tell the life: a Service before several pods, a URL."""
    arms = (asked.snapshot.baseline, asked.snapshot.candidate)
    seen = [(each.url, each.epoch) for arm in arms if arm is not None for each in arm.servers]
    seen += [(each.url, each.epoch) for each in servers.values()]
    return frozenset(url for url, epoch in seen if epoch is None and url is not None)


class Epochs:
    """By URL. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def seen(self, asked: Asked) -> None:
        """What a look at a line tells of its servers."""
        for arm in (asked.snapshot.baseline, asked.snapshot.candidate):
            for server in () if arm is None else arm.servers:
                if server.url is not None and server.epoch is not None:
                    self.told(server.url, server.epoch)

    def told(self, url: str, epoch: str | None) -> None:
        """Its life is this now; None: it was taken away."""
        with self._lock:
            if epoch is None:
                self._known.pop(url, None)
            else:
                self._known[url] = epoch

    def present(self, arm: str, url: str) -> str | None:
        """Its life now; None where nothing is known to be there."""
        with self._lock:
            return self._known.get(url)
