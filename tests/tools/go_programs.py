"""What building a program from Go modules needs: go, one build at a time, nothing half built that looks whole."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path.home() / ".cache" / "prefillgate"
"""Where programs are kept that take long to build: once for a machine, not for a checkout."""


def find_go() -> str | None:
    """Path of go, also where its own installer puts it; None when there is none."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


@contextmanager
def only_one(target: Path) -> Iterator[None]:
    """Wait until no other process makes `target`, and keep others waiting. Ends with the process, however that ends."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def made_whole(target: Path) -> Iterator[Path]:
    """A folder to make `target` in: it becomes `target` at the end, at once, and nothing stays when the body raises.

    Hold `only_one(target)` around it: what makers that were killed left behind is removed first.
    """
    prefix = f".{target.name}-"
    for left in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        yield folder
        folder.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        folder.replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
