"""A swap command for tests: ends the server that is up and starts the wanted arm's on the same port.

    python swap_servers.py CONFIG ARM

CONFIG is a JSON file: `commands` (argument list by arm), `ready` (file a server writes when it listens, or the URL of
its /health), `pid` (file that holds the id of the one that is up), `asked` (file that gets a line for each call).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


def main(config: str, arm: str) -> int:
    """Swap; exit code 0 once the new server listens."""
    told = json.loads(Path(config).read_text(encoding="utf-8"))
    with Path(told["asked"]).open("a", encoding="utf-8") as asked:
        asked.write(f"{arm} {os.environ.get('PREFILLGATE_ARM')}\n")
    mood = told.get("mood", "works")
    if mood == "fails":
        print("no such \x1b[31munit: model-server")
        return 3
    if mood == "sleeps":
        time.sleep(600)
    if mood != "nothing":
        swap(told, {"baseline": "candidate", "candidate": "baseline"}[arm] if mood == "wrong" else arm)
    return 0


def swap(told: dict[str, object], arm: str) -> None:
    """End the one that is up, start the other."""
    stop(Path(str(told["pid"])))
    ready = str(told["ready"])
    if not ready.startswith("http"):
        Path(ready).unlink(missing_ok=True)
    commands = told["commands"]
    assert isinstance(commands, dict)
    server = subprocess.Popen(commands[arm], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    Path(str(told["pid"])).write_text(str(server.pid), encoding="utf-8")
    until = time.monotonic() + 120
    while not listens(ready):
        if server.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the {arm} did not start")
        time.sleep(0.02)


def listens(ready: str) -> bool:
    if not ready.startswith("http"):
        return Path(ready).exists()
    try:
        with urllib.request.urlopen(ready, timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def stop(pid_file: Path) -> None:
    """End the server whose id stands there, and wait for its end."""
    if not pid_file.exists():
        return
    pid = int(pid_file.read_text(encoding="utf-8"))
    pid_file.unlink()
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        for _ in range(500):
            if not alive(pid):
                return
            time.sleep(0.01)


def alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # only where it is a child of ours
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
