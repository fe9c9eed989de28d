"""The simulated servers of the story, each a process of its own that never outlives this one.

Run as `python -m prefillgate.cli.story_server OPTIONS` this module is that child: `prefillgate simulate OPTIONS` that
leaves when its parent's end of standard input closes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from prefillgate.cli.errors import CouldNotMeasure

START_SECONDS = 60.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02


class StoryServer:
    """One running `prefillgate simulate`. Use as a context manager. `url` stays the same through `restart`."""

    def __init__(self, common: Sequence[str], truth: Path, faults: Sequence[str] = ()) -> None:
        self._common = (*common, "--truth", str(truth))
        self._faults = tuple(faults)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> StoryServer:
        self._start("0")
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()

    def restart(self, faults: Sequence[str] = ()) -> None:
        """End the process and start another at the same address, with `faults` in place of the old ones.

        Raises `CouldNotMeasure` when it does not come up.
        """
        port = self.url.rpartition(":")[2]
        self._stop()
        self._faults = tuple(faults)
        self._start(port)

    def _start(self, port: str) -> None:
        planted = [part for fault in self._faults for part in ("--fault", fault)]
        with tempfile.TemporaryDirectory(prefix="prefillgate-story-") as folder:
            ready, errors = Path(folder) / "ready", Path(folder) / "errors"
            options = ("--port", port, *self._common, *planted, "--ready-file", str(ready))
            command = [sys.executable, "-m", "prefillgate.cli.story_server", *options]
            with errors.open("wb") as stderr:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr
                )
            try:
                self.url = _address(self._process, ready, errors)
            finally:
                if not self.url:
                    self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], ready: Path, errors: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            said = errors.read_text(encoding="utf-8", errors="replace").strip()
            raise CouldNotMeasure(f"the simulated server did not start: {said or 'it said nothing'}")
        time.sleep(POLL_SECONDS)
    return ready.read_text(encoding="utf-8").strip()


def _leave_with_parent() -> None:
    # os.read holds no lock of the interpreter's: an ordinary end of the process need not wait for it.
    while os.read(0, 4096):
        pass
    os._exit(0)


def _main() -> None:
    from prefillgate.cli.simulate import command

    threading.Thread(target=_leave_with_parent, daemon=True).start()
    command()


if __name__ == "__main__":
    _main()
