"""Installs the programs that tests need and pip cannot bring: a Chromium, curl, openssl and PostgreSQL from Debian's
packages, an S3 server (`tests.tools.s3_server`), and a Kubernetes control plane (`tests.tools.control_plane`).

Does nothing for one that is there already (the variable CHROMIUM may name a Chromium or Chrome). Exits 1, saying what
to do, when it cannot install one. Run from the root of the checkout: python -m tests.tools.install_programs
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from tests.support.programs import find_chromium, find_curl, find_openssl, find_postgres
from tests.tools import control_plane, s3_server

APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300")


class Program(NamedTuple):
    """A program, how to find it, and the Debian packages that bring it. `variable` may name it."""

    name: str
    find: Callable[[], str | None]
    packages: tuple[str, ...]
    advice: str
    variable: str | None = None


PROGRAMS = (
    Program(
        "Chromium",
        find_chromium,
        ("chromium", "fonts-dejavu-core"),
        "Install Chromium or Chrome, or name one by the variable CHROMIUM.",
        "CHROMIUM",
    ),
    Program("curl", find_curl, ("curl",), "Install curl."),
    Program("openssl", find_openssl, ("openssl",), "Install openssl."),
    Program("PostgreSQL server", find_postgres, ("postgresql",), "Install PostgreSQL's server."),
)


def main() -> int:
    """Install what is missing; 0 when everything is there afterwards."""
    made = [_made_sure(program) for program in PROGRAMS]
    return max([*made, s3_server.make_sure(), control_plane.make_sure()])


def _made_sure(program: Program) -> int:
    if program.find():
        return 0
    why_not = _why_not(program)
    if not why_not:
        print(f"Installing {' and '.join(program.packages)} for the tests", flush=True)
        _apt("update")  # may fail for one source and still bring what is needed
        done = _apt("install", "--no-install-recommends", *program.packages)
        why_not = None if done else "apt-get could not install it"
    if program.find():
        return 0
    print(
        f"No {program.name} for the tests: {why_not or 'it was installed and is still not found'}. {program.advice}",
        file=sys.stderr,
    )
    return 1


def _why_not(program: Program) -> str | None:
    """Why this process cannot install Debian packages, or None when it can try."""
    if program.variable and os.environ.get(program.variable):
        return f"{program.variable}={os.environ[program.variable]!r} is not a program"
    if shutil.which("apt-get") is None:
        return "this system has no apt-get"
    if os.geteuid() != 0:
        return "installing Debian packages needs root"
    return None


def _apt(*words: str) -> bool:
    done = subprocess.run(
        [*APT, *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
