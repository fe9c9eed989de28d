"""Starts the simulated server as a process of its own and speaks its address.

    with start_simulated(fault=["bad-prefill=0.3"], seed=7) as server:
        ...  # server.url, server.truth(), server.pid

Options are those of `prefillgate simulate`, with underscores; a list repeats one, True is a bare flag.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

_START_SECONDS = 60
_STOP_SECONDS = 30


class SimulatedServer:
    """A running `prefillgate simulate`. Truth lines of all its lives are in `truth_path`."""

    def __init__(self, options: dict[str, Any], environment: dict[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="simulated-")
        self._options = {"host": "127.0.0.1", "port": 0, "time_scale": 0, **options}
        self._environment = environment or {}
        given = self._options.pop("truth", None)
        self.truth_path = Path(given) if given is not None else Path(self._folder.name) / "truth.jsonl"
        self.url = ""
        self._process = self._start()

    @property
    def pid(self) -> int:
        """Id of the process that lives now."""
        return self._process.pid

    @property
    def port(self) -> int:
        """The port it listens on; the same after `restart`."""
        return int(self.url.rpartition(":")[2])

    def said(self) -> str:
        """What it said on standard error in this life."""
        return (Path(self._folder.name) / "stderr").read_text(encoding="utf-8", errors="replace")

    def _start(self) -> subprocess.Popen[bytes]:
        """A port kept through a restart may be that of somebody's connection for a moment: then it is tried again."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            process, told = self._try_to_start(deadline)
            if not told:
                return process
            if "address already in use" not in told or time.monotonic() > deadline:
                raise RuntimeError(f"prefillgate simulate did not start: {told}")

    def _try_to_start(self, deadline: float) -> tuple[subprocess.Popen[bytes], str]:
        """A process and nothing once it listens; or one that ended, and why."""
        ready = Path(self._folder.name) / f"ready-{time.monotonic_ns()}"
        errors = Path(self._folder.name) / "stderr"
        command = [sys.executable, "-m", "prefillgate.cli.simulate", *_arguments(self._options)]
        command += ["--truth", str(self.truth_path), "--ready-file", str(ready)]
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.wait()
                return process, errors.read_text(errors="replace") or "without a word"
            time.sleep(0.01)
        self.url = ready.read_text(encoding="utf-8").strip()
        return process, ""

    def restart(self, **options: Any) -> None:
        """End the process and start another on the same port; given options replace the old ones."""
        port = self.port
        self._end()
        self._options |= options | {"port": port}
        self._process = self._start()

    def kill(self) -> None:
        """End the process without warning."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Wait until the process ends by itself; its exit code."""
        return self._process.wait(timeout=_STOP_SECONDS)

    def stop(self) -> int:
        """End the process politely, if it lives, and drop its files; its exit code."""
        code = self._end()
        self._folder.cleanup()
        return code

    def _end(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def truth(self) -> list[dict[str, Any]]:
        """What really happened, one entry a request, in the order of writing."""
        if not self.truth_path.exists():
            return []
        return [json.loads(line) for line in self.truth_path.read_text(encoding="utf-8").split("\n") if line]

    def busy(self) -> bool:
        """Whether it is at work on an answer."""
        slots = httpx.get(self.url + "/slots", timeout=60, trust_env=False).json()
        return any(slot["is_processing"] for slot in slots)

    def __enter__(self) -> SimulatedServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def start_simulated(environment: dict[str, str] | None = None, **options: Any) -> SimulatedServer:
    """Start a server; by default on any free port, never sleeping (`time_scale=0`). Returns once it listens."""
    return SimulatedServer(options, environment)


def free_port() -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _arguments(options: dict[str, Any]) -> list[str]:
    arguments: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is True:
                arguments.append(flag)
            elif each is not None and each is not False:
                arguments += [flag, str(each)]
    return arguments
