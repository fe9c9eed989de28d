"""Which real program an image name stands for: a folder of commands on the container's path, made for one pod.

A container's own command, arguments and environment are run as they are, `sh -c "exec llama-server ..."` too. One thing
differs from a cluster: all pods share one network, so a server is told to listen on its pod's own address.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3] / "controller"
PROGRAMS = (PACKAGE, Path(sys.prefix), Path(sys.base_prefix))
"""Where the programs behind the commands are."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PYTHON = f"PYTHONPATH={shlex.quote(str(PACKAGE))} exec {shlex.quote(sys.executable)}"
COMMANDS = {
    "llama-server": f'{_PYTHON} -m prefillgate.hosts.llama_server "$@" --host @ADDRESS@',
    "prefillgate": (
        f'if [ "$1" = simulate ]; then {_PYTHON} -m prefillgate "$@" --host @ADDRESS@; fi\n'
        f'{_PYTHON} -m prefillgate "$@"'
    ),
}
"""Name of a command in every image -> the shell script behind it."""


@dataclass(frozen=True)
class Image:
    """What runs when a container names no command of its own, and the image's own environment."""

    entrypoint: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def standard_images() -> dict[str, Image]:
    """By the last part of an image's name: `registry.example/team/llama-server:b9000` is `llama-server`."""
    return {
        "llama-server": Image(("llama-server",)),
        "prefillgate": Image(("prefillgate",)),
        "busybox": Image(("sh",)),
    }


def short_name(image: str) -> str:
    """The last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def digest_of(image: str) -> str:
    """A digest that belongs to this name and tag: what a registry would answer, were there one."""
    return "sha256:" + hashlib.sha256(image.encode()).hexdigest()


def write_commands(folder: Path, address: str) -> None:
    """Put every command into `folder`, listening on `address`."""
    folder.mkdir()
    for name, script in COMMANDS.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script.replace('@ADDRESS@', address)}\n", encoding="utf-8")
        path.chmod(0o755)
