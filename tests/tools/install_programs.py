"""Installs the programs that tests need and pip cannot bring: a Chromium, from Debian's packages.

Does nothing when a Chromium or Chrome is there already (the variable CHROMIUM may name it). Exits 1, saying what
to do, when it cannot install one. Run from the root of the checkout: python -m tests.tools.install_programs
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.support.programs import find_chromium

PACKAGES = ("chromium", "fonts-dejavu-core")
APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300")


def main() -> int:
    """Install what is missing; 0 when everything is there afterwards."""
    if find_chromium():
        return 0
    why_not = _why_not()
    if not why_not:
        print(f"Installing {' and '.join(PACKAGES)} for the tests", flush=True)
        _apt("update")  # may fail for one source and still bring what is needed
        why_not = None if _apt("install", "--no-install-recommends", *PACKAGES) else "apt-get could not install it"
    if find_chromium():
        return 0
    print(
        f"No Chromium for the tests: {why_not or 'it was installed and is still not found'}. "
        "Install Chromium or Chrome, or name one by the variable CHROMIUM.",
        file=sys.stderr,
    )
    return 1


def _why_not() -> str | None:
    """Why this process cannot install Debian packages, or None when it can try."""
    if os.environ.get("CHROMIUM"):
        return f"CHROMIUM={os.environ['CHROMIUM']!r} is not a program"
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
