"""The real programs that tests speak to: where they are, and a ledger of which test spoke to which version.

A test (or a fixture it uses) that talks to a real program says so:

    record_real_program("llama-server", build_info, request.node.nodeid)

The run ends with a line for each, and a whole run fails when a program of `EXPECTED` was spoken to by no test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

EXPECTED = (
    *("llama-server", "chromium", "curl", "postgresql", "openssl", "versitygw"),
    *("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"),
)
"""Programs without which a whole run has not tested what it claims. Later parts of the project add theirs."""

_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_CHROMIUM_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
)

Row = tuple[str, str, str]  # program, version, nodeid

_ledger: set[Row] = set()


def record_real_program(name: str, version: str, nodeid: str | None = None) -> None:
    """Note that a test spoke to the real program `name`, which said `version` of itself.

    `nodeid` defaults to the test that is running now, so a fixture that records must be of function scope. Raises
    ValueError for an empty name or version, and outside a test.
    """
    test = nodeid or os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    for what, value in (("name", name), ("version", version), ("nodeid", test)):
        if not value.strip():
            raise ValueError(f"record_real_program: {what} is empty")
    _ledger.add((name, " ".join(version.split()), test))


def recorded() -> list[Row]:
    """Every row noted in this process so far, sorted."""
    return sorted(_ledger)


def summary_lines(rows: Iterable[Row], expected: Iterable[str] = ()) -> list[str]:
    """One line for each program and version, with its number of tests; expected programs nobody spoke to show 0."""
    tests: dict[tuple[str, str], set[str]] = {}
    for name, version, nodeid in rows:
        tests.setdefault((name, version), set()).add(nodeid)
    met = {name for name, _ in tests}
    table = [(name, version, len(ids)) for (name, version), ids in sorted(tests.items())]
    table += [(name, "no version seen", 0) for name in expected if name not in met]
    width = max((len(name) for name, _, _ in table), default=0)
    return [
        f"real program  {name:<{width}}  {version}  {count} test{'' if count == 1 else 's'}"
        for name, version, count in table
    ]


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome: the variable CHROMIUM, the path, then the usual places; None when there is none."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    for name in _CHROMIUM_NAMES:
        if found := shutil.which(name):
            return found
    return next((place for place in _CHROMIUM_PLACES if Path(place).is_file()), None)


def find_openssl() -> str | None:
    """Path of openssl; None when there is none."""
    return shutil.which("openssl")


def find_curl() -> str | None:
    """Path of curl; None when there is none."""
    return shutil.which("curl")


def find_postgres() -> str | None:
    """Path of PostgreSQL's server program, the newest; None when there is none. Debian keeps it off the path."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin/postgres") if path.parent.parent.name.isdigit()]
    if found:
        return str(max(found, key=lambda path: int(path.parent.parent.name)))
    return shutil.which("postgres")
