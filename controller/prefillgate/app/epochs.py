"""The present life of every server under test, as the cluster tells it: written by the one, read around every cell."""

from __future__ import annotations

import threading

from prefillgate.app.orders import Asked


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
