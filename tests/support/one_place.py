"""One place for two servers, as on one GPU: a port, both arms' commands, and the swap command of tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import swap_servers
from tests.support.simulated import free_port

SCRIPT = Path(swap_servers.__file__)


class OnePlace:
    """A folder with the swap command's configuration. `url` is that of both arms unless each has a port."""

    def __init__(self, folder: Path, commands: dict[str, Sequence[str]], ready: str, url: str) -> None:
        self.folder, self.url = folder, url
        self.config = folder / "swap.json"
        self.pid_file, self.asked_file = folder / "server.pid", folder / "asked"
        self._told: dict[str, Any] = {
            "commands": {arm: list(words) for arm, words in commands.items()},
            "ready": ready,
            "pid": str(self.pid_file),
            "asked": str(self.asked_file),
        }
        self.be("works")

    @property
    def command(self) -> tuple[str, ...]:
        """The argument list of the swap command."""
        return (sys.executable, str(SCRIPT), str(self.config))

    def be(self, mood: str) -> None:
        """How the next swaps go: works, fails, nothing, wrong or sleeps."""
        self.config.write_text(json.dumps({**self._told, "mood": mood}), encoding="utf-8")

    def put_up(self, arm: str) -> None:
        """Swap by hand."""
        swap_servers.swap(json.loads(self.config.read_text(encoding="utf-8")), arm)

    def stop(self) -> None:
        """End whatever is up."""
        swap_servers.stop(self.pid_file)

    @property
    def asked(self) -> list[str]:
        """The arms the swap command was called for, as its argument and as its variable."""
        return self.asked_file.read_text(encoding="utf-8").splitlines() if self.asked_file.exists() else []


def simulated_place(folder: Path, baseline: Sequence[str] = (), candidate: Sequence[str] = ()) -> OnePlace:
    """Both arms are simulated servers on one port; each appends to its own truth file, `baseline.jsonl` and so on."""
    port, ready = free_port(), folder / "ready"

    def command(arm: str, more: Sequence[str]) -> list[str]:
        words = [sys.executable, "-m", "prefillgate.cli.simulate", "--port", str(port), "--time-scale", "0"]
        words += ["--truth", str(folder / f"{arm}.jsonl"), "--ready-file", str(ready), "--text-seed", "9"]
        return [*words, *more]

    commands = {"baseline": command("baseline", baseline), "candidate": command("candidate", candidate)}
    return OnePlace(folder, commands, str(ready), f"http://127.0.0.1:{port}")


@contextmanager
def put_up(place: OnePlace, arm: str = "baseline") -> Iterator[OnePlace]:
    """That arm is up at first; whatever is up at the end is ended."""
    place.put_up(arm)
    try:
        yield place
    finally:
        place.stop()
