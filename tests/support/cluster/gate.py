"""`prefillgate controller` as its own process on the control plane of the tests, with the rights of manifests/rbac."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.cluster.api import Object, Refused, path_of, wait_for
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.users import ADMIN, GATE
from tests.support.kinds import ROOT
from tests.support.simulated import free_port

HOME = "prefillgate"
"""The namespace of the controller, as manifests/rbac has it."""

QUICK_LEASE = ("--lease-duration-seconds", "5", "--lease-renew-seconds", "2", "--lease-retry-seconds", "0.3")
_START_SECONDS, _STOP_SECONDS = 60, 60


class Gate:
    """One controller. Its evidence is in `store`; `more` are further options."""

    def __init__(
        self, plane: ControlPlane, folder: Path, name: str = "gate", store: str = "", more: Sequence[str] = ()
    ) -> None:
        self.plane, self.name, self._more = plane, name, tuple(more)
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = store or str(folder / "store")
        self.port = free_port()
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that lives now, or was last."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, ready: bool = True) -> Gate:
        """Start it; by default return once it says that it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "prefillgate", "controller", *self._arguments()],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if ready:
            self.wait(lambda: self.answers("/readyz"), _START_SECONDS)
        return self

    def _arguments(self) -> list[str]:
        return [
            *("--kubeconfig", str(self.plane.kubeconfig(GATE)), "--namespace", HOME),
            *("--store", self.store, "--listen", f"127.0.0.1:{self.port}"),
            *QUICK_LEASE,
            *self._more,
        ]

    def kill9(self) -> None:
        """End it as a lost machine would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """End it politely; its exit code. Nothing where it does not run."""
        assert self._process is not None
        if self.alive:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"the controller does not end when asked to: {self.tail()}") from None

    def close(self) -> None:
        """End it however it is."""
        if self.alive:
            self.kill9()

    def answers(self, path: str) -> bool:
        """Whether it says yes there."""
        try:
            return httpx.get(self._url(path), timeout=5, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def log(self, **wanted: Any) -> list[dict[str, Any]]:
        """Its log, of all its lives; `wanted` names fields and the value that each must have."""
        rows = []
        for line in self.printed().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                row = {"not_json": line}
            if isinstance(row, dict) and all(row.get(name) == value for name, value in wanted.items()):
                rows.append(row)
        return rows

    def printed(self) -> str:
        """All that it said."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def tail(self, lines: int = 40) -> str:
        """The last of it, for a person."""
        return "\n".join(self.printed().splitlines()[-lines:])

    def metrics(self) -> dict[str, float]:
        """Series with its labels, as it is exposed -> value."""
        text = httpx.get(self._url("/metrics"), timeout=30, trust_env=False).text
        rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in rows}

    def total(self, name: str, *labels: str) -> float:
        """Sum over the series of that name whose labels contain each of these texts."""
        series = self.metrics().items()
        return sum(v for s, v in series if s.partition("{")[0] == name and all(label in s for label in labels))

    def resident_kilobytes(self) -> int:
        """Memory that its process has of the machine now."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def wait(self, what: Any, seconds: float = 60) -> Any:
        """What `what` gives once it gives something. An AssertionError has the end of the log."""
        end = time.monotonic() + seconds
        while not (found := what()):
            assert self.alive, f"the controller ended: {self.tail()}"
            assert time.monotonic() < end, f"waited in vain; the controller said: {self.tail()}"
            time.sleep(0.05)
        return found


def install_rights(plane: ControlPlane) -> None:
    """What manifests/rbac grants to the controller's service account, granted to the user GATE instead; no more."""
    admin = plane.api()
    if admin.find(path_of("namespaces", HOME)) is None:
        admin.create(path_of("namespaces"), {"metadata": {"name": HOME}})
    objects = [thing for path in sorted((ROOT / "manifests" / "rbac").glob("*.yaml")) for thing in _objects(path)]
    assert objects, "manifests/rbac grants nothing"
    text = yaml.safe_dump_all(_for_the_user(thing) for thing in objects)
    done = plane.kubectl("apply", "-f", "-", text=text)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: _may(plane))


def _objects(path: Path) -> list[Object]:
    return [thing for thing in yaml.safe_load_all(path.read_text(encoding="utf-8")) if thing]


def _for_the_user(thing: Object) -> Object:
    if thing["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
        return thing
    return {**thing, "subjects": [{"kind": "User", "name": GATE.name, "apiGroup": "rbac.authorization.k8s.io"}]}


def _may(plane: ControlPlane) -> bool:
    """Whether the authorizer has heard of it: it learns of new bindings a moment later."""
    try:
        plane.api(GATE).items(path_of("servinglines", group="prefillgate.io", version="v1alpha1"))
    except Refused:
        return False
    return True


__all__ = ["ADMIN", "HOME", "QUICK_LEASE", "Gate", "install_rights"]
