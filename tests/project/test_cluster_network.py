"""Tests of a cluster have a network of their own, whoever runs them; all other tests have the machine's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.namespace import move_in

ROOT = Path(__file__).resolve().parents[2]
TELLS = """
import os, pathlib, socket, subprocess, sys
def own():
    return os.readlink("/proc/thread-self/ns/net")
def test_has_an_address_for_each_pod():
    with socket.socket() as one, socket.socket() as other:
        one.bind(("10.88.3.7", 8080))
        other.bind(("10.88.200.1", 8080))
        one.listen()
        socket.create_connection(("10.88.3.7", 8080), 5).close()
    with open("who.txt", "a") as file:
        file.write(f"cluster {own()} {os.geteuid()}\\n")
def test_gives_it_to_what_it_starts():
    seen = subprocess.run(["readlink", "/proc/self/ns/net"], stdout=subprocess.PIPE, text=True).stdout
    assert seen.strip() == own()
"""
OTHER = """
import os
def test_other():
    with open("who.txt", "a") as file:
        file.write(f"other {os.readlink('/proc/thread-self/ns/net')} {os.geteuid()}\\n")
"""
AS_NOBODY = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Another user than root, to every program below it, whose files are those of whoever runs the tests."""


def run(folder: Path, *options: str, before: tuple[str, ...] = ()) -> tuple[str, list[tuple[str, str, str]]]:
    """What pytest printed over a small project, and the rows that its tests wrote: which, network, user."""
    (folder / "tests").mkdir()
    (folder / "tests" / "support").symlink_to(ROOT / "tests" / "support")
    for name in ("tests/conftest.py", "pyproject.toml"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for name, text in (("cluster/test_a.py", TELLS), ("story/test_b.py", OTHER), ("unit/test_c.py", OTHER)):
        (folder / "tests" / name).parent.mkdir()
        (folder / "tests" / name).write_text(text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PREFILLGATE_"))}
    done = subprocess.run(
        [*before, sys.executable, "-m", "pytest", "-q", "-k", "test", *options],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [tuple(row.split()) for row in (folder / "who.txt").read_text(encoding="utf-8").splitlines()]
    return done.stdout, [(name, network, user) for name, network, user in rows]


def outside() -> str:
    """The network of this process."""
    return str(Path("/proc/thread-self/ns/net").readlink())


@pytest.mark.parametrize("workers", [(), ("-n2", "--dist=loadgroup")], ids=["one", "two"])
def test_root_has_it_for_the_tests_of_a_cluster_alone(tmp_path: Path, workers: tuple[str, ...]) -> None:
    printed, rows = run(tmp_path, *workers)
    assert "4 passed" in printed
    networks = {network for name, network, _ in rows if name == "cluster"}
    assert len(networks) == 1
    assert networks != {outside()}
    others = {outside()} if os.geteuid() == 0 else networks  # whoever is not root has all of it moved
    assert {network for name, network, _ in rows if name == "other"} == others


def test_a_root_that_may_not_come_back_stays_inside(tmp_path: Path) -> None:
    printed, rows = run(tmp_path, before=("unshare", "--user", "--map-root-user"))
    assert "4 passed" in printed
    assert {user for _, _, user in rows} == {"0"}
    assert outside() not in {network for name, network, _ in rows if name == "cluster"}


@pytest.mark.parametrize("workers", [(), ("-n2", "--dist=loadgroup")], ids=["one", "two"])
def test_whoever_is_not_root_has_the_whole_run_moved_and_stays_who_they_are(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    printed, rows = run(tmp_path, *workers, before=AS_NOBODY)
    assert "4 passed" in printed
    assert len({network for _, network, _ in rows}) == 1
    assert {network for _, network, _ in rows} != {outside()}
    assert {user for _, _, user in rows} == {"1000"}


def test_a_run_of_other_tests_alone_is_not_moved(tmp_path: Path) -> None:
    printed, rows = run(tmp_path, "tests/unit", before=AS_NOBODY)
    assert "1 passed" in printed
    assert rows == [("other", outside(), "1000")]


def test_one_file_by_hand_is_moved_too(tmp_path: Path) -> None:
    printed, rows = run(tmp_path, "tests/cluster/test_a.py::test_has_an_address_for_each_pod", before=AS_NOBODY)
    assert "1 passed" in printed
    assert [name for name, _, _ in rows] == ["cluster"]


def test_a_machine_without_namespaces_is_told_by_each_test_that_needs_one(tmp_path: Path) -> None:
    (tmp_path / "unshare").write_text("#!/bin/sh\necho not allowed >&2\nexit 1\n", encoding="utf-8")
    (tmp_path / "unshare").chmod(0o755)
    code = "import sys; sys.path.insert(0, sys.argv[1]); from tests.support.namespace import *\n"
    code += "try: Network().enter()\nexcept NoNamespace as why: print(why, move_in(True, ['x'], {}))"
    real = subprocess.run(["sh", "-c", "command -v unshare"], capture_output=True, encoding="utf-8", check=True)
    told = subprocess.run(
        [real.stdout.strip(), *AS_NOBODY[1:], sys.executable, "-c", code, str(ROOT)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout
    assert "tests of a cluster need a network namespace of their own, and unshare says: Operation not permitted" in told
    assert told.rstrip().endswith("None")


def test_inside_one_that_is_ready_nobody_makes_another() -> None:
    assert move_in(True, ["x"], {"PREFILLGATE_TEST_NETWORK": "net:[1]"}) is None
    assert move_in(False, ["x"], {}) is None
