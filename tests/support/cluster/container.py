"""Becomes a container's process: a root of its own, in which the pod's volumes are where the container wants them.

What the container writes elsewhere is gone with it; the machine's own files are there to read. As a program, started by
the node agent with the path of a JSON file:

    {"mounts": [[source, target, read only], ...], "image": [folder, ...], "scratch": folder, "command": [...],
     "env": {...}, "cwd": path}

`image`: folders of the machine that stand for the image, and are there though a volume is laid over what is above them.

Ends in 128 with a line on standard error when the container cannot be made, in 127 when its command is not there.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_MS_LOCKED = 2 | 4 | 8  # nosuid, nodev, noexec
_CLONE_NEWNS = 0x20000
_KERNELS_OWN = ("dev", "proc", "sys")
CANNOT_MAKE, NO_COMMAND = 128, 127


def main(given: str) -> int:
    """Make the root and become the command; returns only when that failed."""
    wanted: dict[str, Any] = json.loads(Path(given).read_text(encoding="utf-8"))
    try:
        enter_root(Path(wanted["scratch"]), wanted["mounts"], wanted["image"])
        os.chdir(wanted["cwd"] or "/")
    except OSError as error:
        print(f"the container cannot be made: {error}", file=sys.stderr)
        return CANNOT_MAKE
    command, environment = wanted["command"], wanted["env"]
    if program := shutil.which(command[0], path=environment["PATH"]):
        os.execve(program, command, environment)
    print(f"{command[0]}: not found in the container", file=sys.stderr)
    return NO_COMMAND


def enter_root(scratch: Path, mounts: list[list[Any]], image: list[str]) -> None:
    """A root of layers over the machine's folders, which take all writes, an empty /run, and the pod's volumes."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    base = scratch / "base"
    base.mkdir(exist_ok=True)
    _mount("tmpfs", str(base), "tmpfs", 0)  # the upper layers may not lie within the lower ones
    root = base / "root"
    root.mkdir()
    for entry in Path("/").iterdir():
        _lay(entry, root / entry.name, base / "layers" / entry.name)
    for source, target, read_only in sorted(mounts, key=lambda mount: len(mount[1])):
        # As the links of the machine have it (/var/run): followed below the new root they would lead out of it.
        _bind(source, Path(f"{root}{Path(target).resolve()}"), read_only)
    for folder in image:
        if any(Path(folder).is_relative_to(Path(target).resolve()) for _, target, _ in mounts):
            _bind(folder, Path(f"{root}{folder}"), False)
    os.chroot(root)


def _lay(entry: Path, target: Path, layer: Path) -> None:
    """What stands at the top of the machine's root, at the top of the new one."""
    if entry.is_symlink():
        target.symlink_to(entry.readlink())
    elif not entry.is_dir():
        _bind(str(entry), target, False)
    else:
        target.mkdir()
        if entry.name in _KERNELS_OWN:
            _bind(str(entry), target, False)
        elif entry.name != "run":
            _overlay(entry, target, layer)


def _overlay(entry: Path, target: Path, layer: Path) -> None:
    for name in ("upper", "work"):
        (layer / name).mkdir(parents=True)
    layers = f"userxattr,lowerdir={entry},upperdir={layer / 'upper'},workdir={layer / 'work'}"
    try:
        _mount("overlay", str(target), "overlay", 0, layers)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _bind(str(entry), target, False)  # holds mounts that only root may look below


def _bind(source: str, target: Path, read_only: bool) -> None:
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(source, str(target), None, _MS_BIND | _MS_REC)
    if read_only:
        kept = os.statvfs(target).f_flag & _MS_LOCKED  # whoever is not root may not take these away
        _mount("none", str(target), None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    told = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(_libc.mount(told[0], told[1], told[2], ctypes.c_ulong(flags), told[3]), f"mount {target}")


def _check(code: int, what: str) -> None:
    if code:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


_libc = ctypes.CDLL(None, use_errno=True)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
