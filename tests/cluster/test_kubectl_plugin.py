"""`kubectl prefillgate` on a real cluster: the real kubectl finds it on PATH, hands over its words, and completes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.fixtures import Cluster, Namespace
from tests.support.cluster.users import ADMIN, BOB, User
from tests.support.cluster_crds import install_crds
from tests.support.kinds import sample

Plugin = Callable[..., subprocess.CompletedProcess[str]]
PROGRAMS = {"kubectl-prefillgate": "plugin", "kubectl_complete-prefillgate": "complete"}


@pytest.fixture
def plugin(cluster: Cluster, namespace: Namespace, tmp_path: Path) -> Plugin:
    """The real kubectl with our programs on PATH, as an installation puts them."""
    plane: ControlPlane = cluster.plane
    for name, function in PROGRAMS.items():
        program = tmp_path / name
        code = f"import sys; from prefillgate.cli.kubectl import {function}; sys.exit({function}())"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n', encoding="utf-8")
        program.chmod(0o755)

    def run(*words: str, user: User = ADMIN) -> subprocess.CompletedProcess[str]:
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(plane.kubeconfig(user))}
        return subprocess.run(
            [plane.programs["kubectl"], *words], env=environment, capture_output=True, encoding="utf-8", check=False
        )

    install_crds(plane)
    namespace.apply({**sample("ServingLine", "review-bot"), "metadata": {"name": "review-bot"}})
    return run


def test_kubectl_finds_it_and_a_line_nobody_looked_at_is_unknown(plugin: Plugin, namespace: Namespace) -> None:
    listed = plugin("plugin", "list", "--name-only")
    assert "kubectl-prefillgate" in listed.stdout.splitlines()
    got = plugin("prefillgate", "get", "--namespace", namespace.name)
    assert (got.returncode, got.stdout.split()[:6]) == (
        0,
        ["NAME", "DECISION", "PREFILLS", "ROLLBACK", "CANDIDATE", "AGE"],
    )
    assert got.stdout.splitlines()[1].split()[:5] == ["review-bot", "-", "-", "-", "-"]
    assert "No controller has looked at this line yet: everything about it is unknown." in got.stderr
    told = plugin("prefillgate", "explain", "sl/review-bot", "-n", namespace.name)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith(f"NO ROLLOUT  {namespace.name}/review-bot\n")
    assert "to override" not in told.stdout


def until_said(stream: IO[str], words: str) -> list[str]:
    """What is said up to a line with these words: what is noted before it depends on who has led here already."""
    told: list[str] = []
    while not told or words not in told[-1]:
        told.append(stream.readline())
        assert told[-1], told
    return told


def test_watch_speaks_at_once_and_ends_when_the_line_is_deleted(plugin: Plugin, namespace: Namespace) -> None:
    command = [sys.executable, "-m", "prefillgate", "watch", "review-bot", "-n", namespace.name]
    environment = {**os.environ, "KUBECONFIG": str(namespace.cluster.plane.kubeconfig(ADMIN))}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            told = until_said(process.stdout, "there is no rollout yet")
            assert "note: No controller has looked at this line yet" in told[0]
            assert "there is no rollout yet: no new candidate was seen" in told[-1]
            assert namespace.kubectl("delete", "sl", "review-bot").returncode == 0
            _, err = process.communicate(timeout=60)
            assert process.returncode == 1
            assert f"the line {namespace.name}/review-bot is gone: it was deleted" in err
        finally:
            process.kill()


def test_who_may_not_read_lines_is_told_which_right_is_lacking(plugin: Plugin, namespace: Namespace) -> None:
    denied = plugin("prefillgate", "get", "-n", namespace.name, user=BOB)
    assert denied.returncode == 1
    assert "these credentials lack a right (get, list and watch on servinglines and profilerollouts)" in denied.stderr
    assert 'User "bob" cannot list resource "servinglines"' in denied.stderr


def test_kubectl_completes_commands_and_names_of_lines(plugin: Plugin, namespace: Namespace) -> None:
    commands = plugin("__complete", "prefillgate", "e")
    assert [line.split("\t")[0] for line in commands.stdout.splitlines()] == ["explain", ":4"]
    names = plugin("__complete", "prefillgate", "explain", "-n", namespace.name, "rev")
    assert names.stdout.splitlines() == ["review-bot", ":4"]
