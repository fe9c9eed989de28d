"""Starts `prefillgate replayset record` in front of a server, and ends it as a person would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_WAIT_SECONDS = 60


class Recording:
    """A running recorder: `url`, `said` (its lines so far), and the cases in its file."""

    def __init__(self, upstream: str, output: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.output = output
        self.said: list[str] = []
        command = [
            sys.executable,
            "-m",
            "prefillgate",
            "replayset",
            "record",
            "--upstream",
            upstream,
            "-o",
            str(output),
        ]
        listen = () if "--listen" in arguments else ("--listen", "0")
        self._process = subprocess.Popen(
            [*command, *listen, *arguments],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._listening.wait(_WAIT_SECONDS)
        self.url = next((line.split()[2].rstrip(",") for line in self.said if line.startswith("listening on")), "")
        if not self.url:
            self.kill()
            raise RuntimeError(f"the recorder did not start: {self.said}")

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line.rstrip("\n"))
            if line.startswith("listening on"):
                self._listening.set()
        self._listening.set()

    @property
    def pid(self) -> int:
        """Of the recorder's process."""
        return self._process.pid

    def cases(self) -> list[dict[str, Any]]:
        """Every whole line of the file."""
        if not self.output.exists():
            return []
        return [json.loads(line) for line in self.output.read_bytes().split(b"\n")[:-1]]

    def stop(self, number: int = signal.SIGINT) -> int:
        """End it politely; its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._ended()

    def kill(self) -> None:
        """End it without warning."""
        self._process.kill()
        self._ended()

    def _ended(self) -> int:
        try:
            code = self._process.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._reader.join()
        return code

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self.kill()
        else:
            self._reader.join()
