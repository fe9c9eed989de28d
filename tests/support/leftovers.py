"""Finds processes that a test run started and did not end, on systems with a /proc; elsewhere it finds nothing.

A mark in the environment goes to every descendant, so that a process whose parent is gone is found too; a child
that was given another environment is found by its parent's id.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from pathlib import Path

VARIABLE = "PREFILLGATE_TEST_RUN"
_PROC = Path("/proc")
_PYTHONS_OWN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def mark_children() -> str:
    """Mark every process started from now on; returns the mark, unique to this process."""
    os.environ[VARIABLE] = mark = f"{os.getpid()}-{uuid.uuid4().hex}"
    return mark


def end_leftovers(mark: str, grace_seconds: float = 5.0) -> list[str]:
    """End every marked process that still runs and return a line for each: its id and what it was started as.

    One that is ending by itself gets `grace_seconds` to be gone.
    """
    deadline = time.monotonic() + grace_seconds
    while (found := _running(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"{pid} {command}" for pid, command in sorted(found.items())]


def _running(mark: str) -> dict[int, str]:
    """Ids and command lines of living processes, other than this one, that hold the mark or are its children."""
    found: dict[int, str] = {}
    for folder in _PROC.glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            if pid != os.getpid() and (_holds(folder, mark) or _is_child(folder)):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if not any(name in command for name in _PYTHONS_OWN):
                    found[pid] = command
    return found


def _holds(process: Path, mark: str) -> bool:
    return f"{VARIABLE}={mark}".encode() in (process / "environ").read_bytes().split(b"\0")


def _is_child(process: Path) -> bool:
    """Whether this process is its parent and it has not ended yet (a zombie has)."""
    state, parent = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
    return int(parent) == os.getpid() and state != "Z"
