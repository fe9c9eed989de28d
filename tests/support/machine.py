"""What a run asks of the machine, so that it waits for neither the compiler nor the disk.

Tests start some thousand processes of the package, and each of those keeps its evidence event by event.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

MEMORY = Path("/dev/shm")
"""Where files are in memory, on systems that have such a place."""

ROOM_BYTES = 4 << 30
"""What must be free there: ten times what a run holds at once."""


def compile_once(environment: MutableMapping[str, str]) -> None:
    """Let this process and those started from now on keep what they compile, instead of each compiling everything."""
    sys.dont_write_bytecode = False
    environment.pop("PYTHONDONTWRITEBYTECODE", None)


def keep_files_in_memory(environment: MutableMapping[str, str], memory: Path = MEMORY, room: int = ROOM_BYTES) -> None:
    """Put temporary folders, of this process and of those started from now on, where no write waits for a disk.

    A process that is killed leaves the same there as on a disk. Nothing changes where `memory` is missing or has less
    than `room` bytes free, and where the person named a folder of their own.
    """
    named = any(environment.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    if not named and memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= room:
        environment["TMPDIR"] = tempfile.tempdir = str(memory)
