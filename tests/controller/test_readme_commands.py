"""The five commands of README gate a Deployment that is there already; the columns that README explains are shown."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.support.cluster.api import condition
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine
from tests.support.kinds import ROOT

WAITS = {"minReadySeconds": 86_400, "progressDeadlineSeconds": 90_000}


def commands() -> list[list[str]]:
    """The words of each command of that block."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Gate a cluster in five commands")[2]
    block = text.partition("```console\n")[2].partition("```")[0]
    return [shlex.split(line) for line in block.splitlines()]


def at_root(words: list[str]) -> list[str]:
    """The same as it is at the root of the project."""
    named = [word.replace("=policies/", f"={ROOT}/policies/") for word in words]
    return [str(ROOT / word) if "/" in word and (ROOT / word).exists() else word for word in named]


def kubectl(namespace: Namespace, words: list[str]) -> str:
    """Run a command of README at the root of the project; what it printed."""
    assert words[0] == "kubectl"
    done = namespace.kubectl(*at_root(words[1:]))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_five_commands_gate_a_deployment_and_its_next_template_is_a_candidate(
    namespace: Namespace, gate: Gate, tmp_path: Path
) -> None:
    definitions, cases, line_applied, controller, shown = commands()
    assert controller[:4] == ["prefillgate", "controller", "--namespace", "prefillgate"]  # what the fixture started
    line = GatedLine(namespace, gate, tmp_path, name="review-bot")
    line.serve("review-bot", **WAITS)
    tried = ("--dry-run=server", "--force-conflicts")  # the fixture applied them, with a user as the controller
    done = gate.plane.kubectl(*at_root(definitions[1:]), *tried)
    assert done.returncode == 0 and "servinglines.prefillgate.io" in done.stdout, done.stderr
    kubectl(namespace, cases)
    kubectl(namespace, line_applied)
    line.ready(seconds=300)
    line.serve("review-bot", "--seed", "2", **WAITS)
    made = line.wait_rollout(lambda found: condition(found, "Accepted") == "True")
    assert made["spec"]["differences"] == ["seed absent -> 2"]
    table = kubectl(namespace, [word for word in shown if word != "--watch"])
    assert table.split()[:5] == ["NAME", "DECISION", "PREFILLS", "ROLLBACK", "CANDIDATE"]
    assert "review-bot" in table
    wide = namespace.kubectl("get", "profilerollouts", "-o", "wide").stdout.split("\n")[0].split()
    assert {"DECISION", "PREFILLS", "PROMOTION", "ROLLBACK", "REASON", "SUCCEEDED", "DIFFERENCES"} <= set(wide)
