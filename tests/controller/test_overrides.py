"""A person's word on a real cluster: stamped, obeyed, recomputed from the evidence, and over when it is over."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest

from prefillgate.api.kinds.moments import moment
from prefillgate.api.kinds.names import OVERRIDE, OVERRIDE_EXPIRES, OVERRIDE_REASON
from tests.support.cluster.api import Object, Refused, condition, wait_for
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine, answer, cells_of, message, reason
from tests.support.cluster.users import ALICE, BOB
from tests.support.kinds import ROOT

ADMISSION = ROOT / "manifests" / "admission"
SLOW = ("--time-scale", "0.04")  # a cell takes some 0.1 s
OVERRIDING = "create rolebinding overriders --clusterrole=prefillgate-overrider --user=alice"


@pytest.fixture(scope="module", autouse=True)
def stamped(gated_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The cluster once a person has installed manifests/admission too, and it is in force."""
    assert gated_plane.kubectl("apply", "-f", str(ADMISSION)).returncode == 0
    try:
        wait_for(lambda: _in_force(gated_plane))
        yield gated_plane
    finally:
        gated_plane.kubectl("delete", "-f", str(ADMISSION))


def _in_force(plane: ControlPlane) -> bool:
    thing = {
        "apiVersion": "prefillgate.io/v1alpha1",
        "kind": "ProfileRollout",
        "metadata": {"name": "trial", "annotations": {OVERRIDE: "hold"}},
        "spec": {"lineRef": {"name": "trial"}},
    }
    path = "/apis/prefillgate.io/v1alpha1/namespaces/default/profilerollouts"
    try:
        made = plane.api().ask("POST", path, thing, dryRun="All")
    except Refused as no:
        assert no.code == 503, no  # the policy has not heard of our kinds yet
        return False
    return "prefillgate.io/override-actor" in made["metadata"]["annotations"]


def says(line: GatedLine, kind: str, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """ALICE annotates."""
    return line.namespace.kubectl("annotate", "--overwrite", kind, name, *words, user=ALICE)


def running(line: GatedLine, cells: int = 3) -> Object:
    """The newest rollout while it is being replayed."""
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2", *SLOW)
    line.until(lambda: len(line.truth("green")) >= cells)
    return line.rollouts()[-1]


def recomputed(rollout: Object) -> tuple[str, str, str]:
    """What `prefillgate decide` makes of the evidence: decision, reason, first sentence."""
    command = [sys.executable, "-m", "prefillgate", "decide", rollout["status"]["evidence"]["store"], "--json"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    told = json.loads(done.stdout)
    return told["decision"], told["reason"], told["sentences"][0]


def event_of(line: GatedLine, name: str, reason: str) -> Object | None:
    """The event of that reason about a rollout, once there is one."""
    return next((each for each in line.events(name) if each["reason"] == reason), None)


def current(line: GatedLine, name: str) -> Object:
    """A rollout as it is."""
    return line.namespace.cluster.api().get(line.rollout_path(name))


def test_a_hold_by_a_stamped_person_stops_a_replay_and_its_end_lets_it_go_on(line: GatedLine) -> None:
    name = running(line)["metadata"]["name"]
    assert line.namespace.kubectl(*OVERRIDING.split()).returncode == 0
    with pytest.raises(Refused, match="bob may not override"):
        line.namespace.grant(BOB, {"apiGroups": ["prefillgate.io"], "resources": ["*"], "verbs": ["get", "patch"]})
        words = {"metadata": {"annotations": {OVERRIDE: "promote", OVERRIDE_REASON: "I want it"}}}
        line.namespace.cluster.api(BOB).merge(line.rollout_path(name), words)
    done = says(line, "profilerollout", name, f"{OVERRIDE}=hold", f"{OVERRIDE_REASON}=wait for the morning")
    assert done.returncode == 0, done.stderr
    held = line.wait_rollout(lambda found: condition(found, "Overridden") == "True")
    assert answer(held) == ("Hold", "Blocked", "Refused")
    override = held["status"]["override"]
    assert (override["actor"], override["actorVerified"]) == ("alice", True)
    assert (override["baselineDigest"], override["candidateDigest"]) == (
        held["status"]["baseline"]["digest"],
        held["status"]["candidate"]["digest"],
    )
    line.until(lambda: recomputed(current(line, name))[:2] == ("hold", "Override"))
    assert recomputed(held)[2] == "A person overrode the gate. alice: wait for the morning"
    cells = len(line.truth("green"))
    time.sleep(1.0)
    assert len(line.truth("green")) == cells < 16
    assert says(line, "profilerollout", name, f"{OVERRIDE}-", f"{OVERRIDE_REASON}-").returncode == 0
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert reason(rollout, "Overridden") == "OverrideEnded"
    assert rollout["status"]["lastHandledOverride"]["outcome"] == "Withdrawn"
    assert recomputed(rollout)[:2] == ("promote", "AcceptanceReached")
    stored = {cell.cell.request_id for cell in cells_of(rollout)}
    last = max(cell.cell.ended_at or 0.0 for cell in cells_of(rollout))  # afterwards it is the baseline of a new floor
    lost = [row for row in line.truth("green") if row["started_at"] < last and row["id"] not in stored]
    assert len(lost) <= 1, lost  # the cell that the hold interrupted
    assert line.reasons(name).count("OverrideObeyed") == line.reasons(name).count("OverrideEnded") == 1


def test_a_rollback_on_the_line_is_over_at_its_expiry_without_anybody_asking(line: GatedLine) -> None:
    name = running(line)["metadata"]["name"]
    ends = moment(time.time() + 6)
    words = (f"{OVERRIDE}=rollback", f"{OVERRIDE_REASON}=it burns 🔥 überall", f"{OVERRIDE_EXPIRES}={ends}")
    assert line.namespace.kubectl("annotate", "sl", "chat", *words).returncode == 0
    found = line.wait_line(lambda found: found["status"].get("rollback") == "Allowed")
    assert condition(found, "Overridden") == "True" and ends in message(found, "Overridden")
    assert "it burns 🔥 überall" in message(found, "Overridden")
    shown = line.namespace.kubectl("get", "sl", "chat").stdout.splitlines()[1].split()
    assert shown[1] == "Rollback"
    over = line.wait_line(lambda found: condition(found, "Overridden") == "False")
    assert over["status"]["lastHandledOverride"]["outcome"] == "Expired"
    assert over["status"]["rollback"] == "Refused"
    rollout = line.decided()
    assert (rollout["metadata"]["name"], answer(rollout)) == (name, ("Promote", "Allowed", "Refused"))


def test_an_override_outlives_a_kill_and_is_told_and_kept_once(line: GatedLine, gate: Gate) -> None:
    name = running(line)["metadata"]["name"]
    words = (f"{OVERRIDE}=promote", f"{OVERRIDE_REASON}=looked at every answer")
    assert line.namespace.kubectl("annotate", "pro", name, *words).returncode == 0
    gate.kill9()
    gate.start()
    line.wait_line(lambda found: found["status"]["promotedProfile"].get("rollout") == name)
    gate.kill9()
    gate.start()
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert rollout["status"]["override"]["actor"] == "admin"
    line.until(lambda: recomputed(current(line, name))[:2] == ("promote", "Override"))
    events = [each for each in line.events(name) if each["reason"] == "OverrideObeyed"]
    assert len(events) == 1 and events[0].get("series") is None
    assert events[0]["note"].startswith("promote by admin: looked at every answer. About chat-")


def test_one_about_a_run_of_an_earlier_term_is_in_its_evidence_too(line: GatedLine, gate: Gate) -> None:
    line.set_up(policy={"acceptance": [16], "replicate": {"gapSeconds": 0, "maxAttempts": 0}})
    line.apply()
    line.ready()
    line.serve("green", "--fault", "bad-prefill=#3")
    name = line.decided()["metadata"]["name"]
    assert recomputed(current(line, name))[0] == "hold"
    gate.kill9()
    gate.start()
    words = (f"{OVERRIDE}=promote", f"{OVERRIDE_REASON}=one bad of many is fine")
    assert line.namespace.kubectl("annotate", "pro", name, *words).returncode == 0
    line.until(lambda: recomputed(current(line, name))[:2] == ("promote", "Override"))
    after = line.wait_line(lambda found: found["status"]["promotedProfile"].get("rollout") == name)
    assert after["status"]["promotedProfile"]["how"] == "Overridden"


def test_nobody_is_overridden_by_way_of_a_workload_and_a_refusal_tells_the_command_that_does_it_right(
    line: GatedLine,
) -> None:
    name = running(line)["metadata"]["name"]
    words = (f"{OVERRIDE}=rollback", f"{OVERRIDE_REASON}=it came with the old ReplicaSet")
    assert line.namespace.kubectl("annotate", "deployment", "green", "blue", *words).returncode == 0
    assert line.namespace.kubectl("annotate", "pro", name, f"{OVERRIDE}=please").returncode == 0
    for told in ("OverrideUnknown", "OverrideWithoutReason"):
        event = line.until(partial(event_of, line, name, told))
        command = event["note"][event["note"].index("kubectl ") :].replace('"', "").split()
        assert command[0] == "kubectl"
        at = next((n for n, word in enumerate(command) if word.startswith(OVERRIDE_REASON)), len(command) - 1)
        words = (*command[1:at], " ".join(command[at:]))
        assert condition(current(line, name), "Overridden") == "False"
        done = line.namespace.cluster.plane.kubectl(*words)
        assert done.returncode == 0, done.stderr
    held = line.wait_rollout(lambda found: condition(found, "Overridden") == "True")
    assert held["status"]["override"]["reason"] == "why you do it"
