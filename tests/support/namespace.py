"""The network that tests of a cluster run in: a network namespace of its own, where every 10.88.x.y answers.

EndpointSlices refuse loopback addresses, so each pod's server needs an address of its own. Nothing outside is reached
from there, and nothing inside from outside.

A process of root enters it for the tests of `FOLDERS` alone: its own thread, with all that this thread starts, and is
back where it was after each test. Anybody else's run moves into one whole before its first test, as the same user:
`move_in`. What could not be done is told by the tests that need it.

As a program, `python tests/support/namespace.py COMMAND...` makes its own network ready and becomes the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path

FOLDERS = ("cluster", "contract_kube", "controller", "observe")
"""Folders of tests/ that run in it."""

ADDRESS, MASK = "10.88.0.1", "255.255.0.0"
VARIABLE = "PREFILLGATE_TEST_NETWORK"
"""Names the namespace that was made ready by `main`, so that nobody makes another inside."""

MOVING = ("unshare", "--user", "--map-current-user", "--keep-caps", "--net", "--")
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
_IFF_UP_RUNNING = 0x1 | 0x40
_OWN = Path("/proc/thread-self/ns/net")


class NoNamespace(RuntimeError):
    """Why tests of a cluster cannot have a network of their own here."""


class Network:
    """The namespace of this process. Made when first entered."""

    def __init__(self) -> None:
        self._inside: int | None = None
        self._outside: int | None = None

    def enter(self) -> None:
        """Move this thread in. Raises NoNamespace."""
        if os.environ.get(VARIABLE) == _name():
            return  # all of this process is in one
        if self._inside is None:
            self._outside = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
            _call("unshare", _CLONE_NEWNET)
            make_ready()
            self._inside = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        _call("setns", self._inside, _CLONE_NEWNET)

    def leave(self) -> None:
        """Move this thread back to where it was before `enter`. A root that may not (of a container) stays inside."""
        if self._outside is not None:
            with contextlib.suppress(NoNamespace):
                _call("setns", self._outside, _CLONE_NEWNET)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside for the body."""
        self.enter()
        try:
            yield
        finally:
            self.leave()


def make_ready() -> None:
    """Bring loopback up in this thread's namespace, with all of 10.88.0.0/16 on it. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        _set(any_socket, _SIOCSIFFLAGS, "lo", struct.pack("=H", _IFF_UP_RUNNING))
        _set(any_socket, _SIOCSIFADDR, "lo:0", _of(ADDRESS))
        _set(any_socket, _SIOCSIFNETMASK, "lo:0", _of(MASK))


def move_in(folders_asked: bool, command: Sequence[str], environment: MutableMapping[str, str]) -> list[str] | None:
    """The command that runs `command` in a namespace; None where it need not move, or cannot."""
    if not folders_asked or not sys.platform.startswith("linux") or os.geteuid() == 0 or environment.get(VARIABLE):
        return None
    if (
        shutil.which(MOVING[0]) is None
        or subprocess.run([*MOVING, "true"], check=False, capture_output=True).returncode
    ):
        return None
    return [*MOVING, sys.executable, str(Path(__file__).resolve()), *command]


def main(command: Sequence[str]) -> None:
    """Make the namespace that this process was started in ready, and become `command`."""
    make_ready()
    os.environ[VARIABLE] = _name()
    os.execvp(command[0], list(command))


def _name() -> str:
    return str(_OWN.readlink()) if _OWN.exists() else ""


def _call(function: str, *arguments: int) -> None:
    if not sys.platform.startswith("linux"):
        raise NoNamespace("tests of a cluster need Linux: this system has no network namespaces")
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        why = os.strerror(ctypes.get_errno())
        raise NoNamespace(
            f"tests of a cluster need a network namespace of their own, and {function} says: {why}. Run them as root, "
            f"or where `{' '.join(MOVING)} true` works for you."
        )


def _set(any_socket: socket.socket, what: int, interface: str, value: bytes) -> None:
    import fcntl  # not on every system, and only needed where there are namespaces

    fcntl.ioctl(any_socket, what, struct.pack("16s24s", interface.encode(), value))


def _of(address: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))


if __name__ == "__main__":
    main(sys.argv[1:])
