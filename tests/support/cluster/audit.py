"""The API server's audit log: who wrote what, as the server itself saw it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROUP = "prefillgate.io"
WRITES = ("create", "update", "patch", "delete", "deletecollection")

POLICY = f"""apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  resources: [{{group: {GROUP}}}, {{group: apps, resources: [deployments/scale, statefulsets/scale]}}]
- level: Metadata
"""


@dataclass(frozen=True)
class Entry:
    """One request. `request` and `response` are bodies, for objects of our own group and scales; otherwise None."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    at: str
    uri: str
    request: Any
    response: Any


class AuditLog:
    """The log of one control plane, through restarts of its API server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: list[Entry] = []
        self._read_to = 0

    def entries(self, **wanted: Any) -> list[Entry]:
        """Requests that were answered (a watch when it ended), in the order of the log.

        `wanted` names fields of `Entry` and the value that each must have.
        """
        if self.path.exists():
            self._read_on()
        return [entry for entry in self._seen if all(getattr(entry, name) == value for name, value in wanted.items())]

    def _read_on(self) -> None:
        """Take in the lines that are whole since the last time."""
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._read_to += len(whole) + 1
            told = [json.loads(row) for row in whole.split(b"\n")]
            self._seen += [_entry(row) for row in told if row["stage"] in ("ResponseComplete", "Panic")]

    def writes(self, **wanted: Any) -> list[Entry]:
        """Those that meant to change something, refused ones included (see `code`)."""
        return [entry for entry in self.entries(**wanted) if entry.verb in WRITES]

    def wait(self, seen: Callable[[Entry], bool], seconds: float = 30, **wanted: Any) -> Entry:
        """The first request that `seen` says yes to, once it is in the log: it is written just after the answer.

        Raises AssertionError when none is there after `seconds`.
        """
        until = time.monotonic() + seconds
        while True:
            if found := next((entry for entry in self.entries(**wanted) if seen(entry)), None):
                return found
            assert time.monotonic() < until, f"nothing of this kind in the audit log: {wanted}"
            time.sleep(0.05)


def _entry(row: dict[str, Any]) -> Entry:
    about = row.get("objectRef", {})
    return Entry(
        user=row["user"]["username"],
        verb=row["verb"],
        resource=about.get("resource", ""),
        subresource=about.get("subresource", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=row.get("responseStatus", {}).get("code", 0),
        at=row["stageTimestamp"],
        uri=row["requestURI"],
        request=row.get("requestObject"),
        response=row.get("responseObject"),
    )
