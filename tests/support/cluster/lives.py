"""One container of a pod: its lives one after the other, each a real process, and the status that tells of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.support import leftovers
from tests.support.cluster import container as starter
from tests.support.cluster.api import Object
from tests.support.cluster.images import PROGRAMS, SYSTEM_PATH, Image, digest_of, short_name
from tests.support.cluster.inputs import CannotStart, Inputs, expanded
from tests.support.cluster.probes import Probe


@dataclass
class Settings:
    """What is the same for all containers of a node. `images` may be changed at any time."""

    images: dict[str, Image]
    environment: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    """Image name -> digest, where a test says that a tag means something else now."""
    backoff_seconds: float = 0.5
    backoff_most_seconds: float = 4.0


class Container:
    """One container. `changed` is called whenever its status is another."""

    def __init__(
        self,
        spec: Object,
        folder: Path,
        settings: Settings,
        place: tuple[str, Inputs, Path],
        changed: Callable[[], None],
    ) -> None:
        self.spec, self._folder, self._settings, self._changed = spec, folder, settings, changed
        self._address, self._inputs, self._commands = place
        self.name: str = spec["name"]
        self.restarts = 0
        self.ready, self._started = False, asyncio.Event()
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.last_state: Object = {}
        self.id = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._in_row = 0  # crashes without a life that lasted
        folder.mkdir(parents=True)

    @property
    def exit_code(self) -> int | None:
        """Of the last life, when none follows it."""
        told = self.state.get("terminated")
        return None if told is None else int(told["exitCode"])

    def status(self) -> Object:
        """As it stands in the pod's containerStatuses."""
        image = self.spec["image"]
        digest = self._settings.digests.get(image) or digest_of(image)
        known = self.id != ""
        return {
            "name": self.name,
            "image": image,
            "imageID": f"{image.partition('@')[0].partition(':')[0]}@{digest}" if known else "",
            "containerID": self.id,
            "ready": self.ready,
            "started": self._started.is_set(),
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        }

    async def live(self, policy: str) -> None:
        """Live, crash, wait and live again, as the pod's restart policy has it; returns when no life follows."""
        while True:
            await self._start()
            code = await self._watch()
            again = policy == "Always" or (policy == "OnFailure" and code != 0)
            if not again:
                return
            self.last_state, wait = dict(self.state), self._backoff()
            if wait:
                message = f"back-off {wait:g}s restarting failed container={self.name}"
                self._set({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
                await asyncio.sleep(wait)
            self.restarts += 1

    def _backoff(self) -> float:
        """The first crash is answered at once, every further one in a row by twice the wait."""
        self._in_row += 1
        if self._in_row == 1:
            return 0.0
        return float(min(self._settings.backoff_seconds * 2 ** (self._in_row - 2), self._settings.backoff_most_seconds))

    async def _start(self) -> None:
        """Until the process lives; an image or an input that is missing is tried again."""
        while True:
            try:
                image = self._settings.images.get(short_name(self.spec["image"]))
                if image is None:
                    self._set({"waiting": {"reason": "ImagePullBackOff", "message": f"no image {self.spec['image']}"}})
                else:
                    await self._spawn(image)
                    return
            except httpx.HTTPError:
                pass  # the API server is away
            except CannotStart as why:
                self._set({"waiting": {"reason": "CreateContainerConfigError", "message": str(why)}})
            await asyncio.sleep(0.25)

    async def _spawn(self, image: Image) -> None:
        own = await self._inputs.environment(self.spec)
        mounts = await self._inputs.mounts(self.spec)
        command = [expanded(word, own) for word in self.spec.get("command") or image.entrypoint]
        command += [expanded(word, own) for word in self.spec.get("args") or []]
        path = {"PATH": f"{self._commands}:{SYSTEM_PATH}", "HOME": "/root"}
        mark = {leftovers.VARIABLE: os.environ[leftovers.VARIABLE]} if leftovers.VARIABLE in os.environ else {}
        life = self._folder / str(self.restarts)
        life.mkdir(exist_ok=True)
        environment = {**path, **self._settings.environment, **image.environment, **own, **mark}
        wanted: Object = {"mounts": mounts, "scratch": str(life), "command": command, "env": environment}
        wanted["cwd"] = self.spec.get("workingDir")
        wanted["image"] = sorted(str(folder) for folder in (*PROGRAMS, self._commands))
        (life / "container.json").write_text(json.dumps(wanted), encoding="utf-8")
        self._process = _begun(life)
        self.id = f"containerd://{uuid.uuid4().hex}{uuid.uuid4().hex}"
        if "startupProbe" not in self.spec:
            self._started.set()
        self.ready = self._started.is_set() and "readinessProbe" not in self.spec
        self._set({"running": {"startedAt": now()}})

    async def _watch(self) -> int:
        """Probe until the process ends; its exit code."""
        assert self._process is not None
        began = asyncio.get_running_loop().time()
        probes = [asyncio.ensure_future(self._probe(kind)) for kind in ("startup", "readiness", "liveness")]
        try:
            code = await _end_of(self._process)
        finally:
            for probe in probes:
                probe.cancel()
        self._end_group()
        if asyncio.get_running_loop().time() - began > 10 * self._settings.backoff_most_seconds:
            self._in_row = 0
        self._note_end(code)
        return code

    async def _probe(self, kind: str) -> None:
        spec = self.spec.get(f"{kind}Probe")
        if spec is None:
            return
        if kind != "startup":
            await self._started.wait()
        heard = {"startup": self._hear_startup, "readiness": self._hear_readiness, "liveness": self._hear_liveness}
        await Probe(spec, self.spec, self._address, heard[kind]).run()

    def _hear_startup(self, good: bool) -> None:
        if good and not self._started.is_set():
            self._started.set()
            self.ready = "readinessProbe" not in self.spec
            self._changed()
        elif not good and not self._started.is_set():
            self._hear_liveness(False)

    def _hear_readiness(self, good: bool) -> None:
        if self.ready is not good:
            self.ready = good
            self._changed()

    def _hear_liveness(self, good: bool) -> None:
        if not good and self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def _note_end(self, code: int) -> None:
        started = self.state.get("running", {}).get("startedAt", now())
        self.ready = False
        self._started.clear()
        told = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error" if code else "Completed"}
        self._set({"terminated": {**told, "startedAt": started, "finishedAt": now(), "containerID": self.id}})

    async def end(self, grace_seconds: float) -> None:
        """End the process politely, then by force."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_end_of(self._process), grace_seconds)
        self.kill()
        self._note_end(self._process.wait())

    def kill(self) -> None:
        """End the process, and all that it started, at once."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._end_group()

    def _end_group(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def log(self) -> str:
        """What the process of the life that is now, or was last, has printed."""
        path = self._folder / str(self.restarts) / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int | None:
        """Of the process that lives now."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process is not None else None

    def _set(self, state: Object) -> None:
        if self.state != state:
            self.state = state
            self._changed()


def _begun(life: Path) -> subprocess.Popen[bytes]:
    """The process of `life`, whose folder says what it is; what the container starts ends with it."""
    with (life / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", starter.__file__, str(life / "container.json")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


async def _end_of(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it has ended."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    with contextlib.suppress(ProcessLookupError):  # somebody else has seen its end
        handle = os.pidfd_open(process.pid)
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
    return process.wait()


def now() -> str:
    """This moment as the API server writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
