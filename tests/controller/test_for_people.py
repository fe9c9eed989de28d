"""`get`, `explain` and `watch` of a line that a controller gates: what a person reads is what stands in the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from prefillgate.api.kinds.names import OVERRIDE, OVERRIDE_REASON
from tests.support.cluster.gate import HOME
from tests.support.cluster.gated import GatedLine, answer
from tests.support.cluster.users import ADMIN


def environment(line: GatedLine) -> dict[str, str]:
    return {
        **os.environ,
        "KUBECONFIG": str(line.namespace.cluster.plane.kubeconfig(ADMIN)),
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }


def told(line: GatedLine, *words: str) -> subprocess.CompletedProcess[str]:
    """The program as a person calls it in the line's namespace."""
    command = [sys.executable, "-m", "prefillgate", *words, "--namespace", line.namespace.name]
    return subprocess.run(command, env=environment(line), capture_output=True, encoding="utf-8", check=False)


@contextmanager
def watching(line: GatedLine, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`watch` of the line, as a process of its own."""
    command = [sys.executable, "-m", "prefillgate", "watch", line.name, "-n", line.namespace.name, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(line), stdout=pipe, stderr=pipe, encoding="utf-8") as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_promotion_is_followed_to_its_end_and_explained(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    with watching(line, "--next", "--json") as process:
        assert process.stdout is not None
        assert "NoCandidate" in process.stdout.readline()
        line.serve("green", "--seed", "2")
        rows = [json.loads(row) for row in process.stdout]
        assert process.wait(120) == 0, process.stderr and process.stderr.read()
    rollout = line.decided()
    name = rollout["metadata"]["name"]
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert (rows[-1]["rollout"], rows[-1]["decision"], rows[-1]["reason"]) == (name, "Promote", "AcceptanceReached")
    assert f"rollout {name}: seed absent -> 2" in [each for row in rows for each in row["transitions"]]
    page = told(line, "explain", line.name)
    assert page.returncode == 0
    assert page.stdout.startswith(f"PROMOTE  {line.namespace.name}/{line.name}  rollout {name}\n")
    counts = rollout["status"]["counts"]
    row = next(each for each in page.stdout.splitlines() if each.startswith("candidate "))
    assert f"0 of {counts['candidate']['prefills']} bad" in row
    assert "other: seed, absent -> 2" in page.stdout, page.stdout
    assert "to override" in page.stdout and "prefillgate.io/override=hold" in page.stdout
    assert "No controller" not in page.stdout  # it has renewed its Lease
    table = told(line, "get")
    assert table.stdout.splitlines()[1].split()[:3] == [line.name, "Promote", "0"]
    assert table.stdout.splitlines()[1].endswith("   -"), table.stdout  # all is well
    assert table.stderr == ""


def test_the_command_that_explain_shows_overrides_and_the_one_after_it_takes_that_back(line: GatedLine) -> None:
    line.set_up(policy={"acceptance": [16], "replicate": {"gapSeconds": 0, "maxAttempts": 0}})
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2", "--fault", "bad-prefill=#3")
    assert answer(line.decided()) == ("Hold", "Blocked", "Refused")
    command = told(line, "explain", line.name).stdout.splitlines()[-1].removeprefix("to override").strip()
    assert command.startswith("kubectl --namespace") and "override=rollback" in command
    words = [word.strip('"') for word in command.removeprefix("kubectl ").replace('"..."', "seen").split()]
    done = line.namespace.cluster.plane.kubectl(*words)
    assert done.returncode == 0, done.stderr
    line.wait_rollout(lambda found: found["status"].get("override"))
    back = next(
        row for row in told(line, "explain", line.name).stdout.splitlines() if row.startswith("to take it back")
    )
    again = line.namespace.cluster.plane.kubectl(*back.removeprefix("to take it back").split()[1:])
    assert again.returncode == 0, again.stderr
    line.wait_rollout(lambda found: not found["status"].get("override"))
    words = (f"{OVERRIDE}=hold", f"{OVERRIDE_REASON}=to be looked at")
    assert line.namespace.kubectl("annotate", "servingline", line.name, *words).returncode == 0
    line.wait_rollout(lambda found: found["status"].get("override"))
    rows = [row for row in told(line, "explain", line.name).stdout.splitlines() if row.startswith("to take it back")]
    assert len(rows) == 1 and f"annotate servingline {line.name} " in rows[0]
    last = line.namespace.cluster.plane.kubectl(*rows[0].removeprefix("to take it back").split()[1:])
    assert last.returncode == 0, last.stderr
    line.wait_rollout(lambda found: not found["status"].get("override"))


def test_after_a_promotion_that_is_to_be_rolled_back_the_command_that_explain_shows_leads_back(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    before = line.line()["status"]["promotedProfile"]["digest"]
    line.serve("green", "--seed", "2")
    name = line.decided()["metadata"]["name"]
    line.wait_line(lambda found: found["status"]["promotedProfile"].get("rollout") == name)
    assert "to go back" not in told(line, "explain", line.name).stdout
    words = (f"{OVERRIDE}=rollback", f"{OVERRIDE_REASON}=users see bare verdicts")
    assert line.namespace.kubectl("annotate", "profilerollout", name, *words).returncode == 0
    line.wait_line(lambda found: found["status"]["rollback"] == "Allowed")
    command = next(
        row for row in told(line, "explain", line.name).stdout.splitlines() if row.startswith("to go back")
    ).removeprefix("to go back")
    copied = [word.strip('"') for word in command.replace('"..."', "back").split()[1:]]
    done = line.namespace.cluster.plane.kubectl(*copied)
    assert done.returncode == 0, done.stderr
    after = line.wait_line(lambda found: found["status"]["promotedProfile"]["digest"] == before)["status"]
    assert after["promotedProfile"]["how"] == "Overridden"
    assert after["promotedProfile"]["rollout"] == line.rollouts()[-1]["metadata"]["name"] != name
    line.serve("green", "--seed", "3")
    following = line.decided(after=2)
    assert following["status"]["baseline"]["digest"] == before
    assert answer(following) == ("Promote", "Allowed", "Refused")


def test_a_controller_that_is_gone_is_told(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    assert line.gate.stop() == 0
    try:
        said = told(line, "get", "--controller-namespace", HOME)
        assert f"No controller leads now: the Lease {HOME}/prefillgate-controller was given back" in said.stderr
    finally:
        line.gate.start()
