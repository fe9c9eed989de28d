"""Two profiles that do not fit at once: one Deployment at a time, inside the windows, and back as it was."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from prefillgate.api.kinds.names import SCALED
from tests.support.cluster.api import Object, condition, wait_for
from tests.support.cluster.audit import Entry
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.gated import GatedLine, answer, cells_of, reason
from tests.support.cluster.users import GATE

ALWAYS = {"startTime": "00:00", "durationSeconds": 604_800}
BLUE, GREEN = "blue", "green"
SLOW = ("--prefill-ms", "5", "--time-scale", "1")  # a replay is still at work when it is looked at


@pytest.fixture
def line(line: GatedLine, namespace: Namespace) -> GatedLine:
    """The line where the controller may scale: both Deployments are there, the candidate's without a pod."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "prefillgate-scaler"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "prefillgate-scaler"},
        "subjects": [{"kind": "User", "name": GATE.name, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    namespace.apply(binding)
    line.judge_by()
    line.replay()
    return line


def sequential(*windows: Object, downtime: bool = True) -> dict[str, Any]:
    return {"arms": "Sequential", "sequential": {"windows": list(windows), "allowDowntime": downtime}}


def replicas(line: GatedLine, workload: str) -> int:
    found = line.namespace.cluster.api().get(line.namespace.path("deployments", workload, "apps"))
    return int(found["spec"]["replicas"])


def scalings(line: GatedLine) -> list[Entry]:
    """Every request of ours that scaled one of the workloads, in their order."""
    audit, space = line.namespace.cluster.audit, line.namespace.name
    return audit.writes(namespace=space, resource="deployments", subresource="scale", user=GATE.name)


def test_the_two_deployments_take_turns_and_are_never_up_at_once(line: GatedLine) -> None:
    line.serve(BLUE)
    line.serve(GREEN, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS))
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert any(told.startswith("One server at a time: ") for told in rollout["status"]["decision"]["sentences"])
    now = {BLUE: 1, GREEN: 0}
    asked = scalings(line)
    assert asked
    for entry in asked:
        now[entry.name] = int(entry.request["spec"]["replicas"])
        assert sorted(now.values()) in ([0, 0], [0, 1]), [(each.name, each.request) for each in asked]
    assert now == {BLUE: 1, GREEN: 0} == {name: replicas(line, name) for name in now}
    line.until(lambda: SCALED not in line.line()["metadata"].get("annotations", {}))
    cells = cells_of(rollout)
    lives = {(each.cell.arm, each.cell.server_epoch) for each in cells}
    assert {arm for arm, _ in lives} == {"baseline", "candidate"}
    rows = line.truth()
    times = {name: [row["started_at"] for row in rows if row in line.truth(name)] for name in now}
    assert times[BLUE] and times[GREEN]
    others = [each for each in line.namespace.cluster.audit.writes(user=GATE.name) if each.resource == "deployments"]
    assert {each.subresource for each in others} == {"scale"}


def test_the_last_ready_backend_stays_unless_downtime_is_allowed(line: GatedLine) -> None:
    line.serve(BLUE)
    line.serve(GREEN, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS, downtime=False))
    told = line.wait_rollout(lambda found: "last Ready backend" in _screened(found))
    assert "spec.sequential.allowDowntime, or one replica more" in _screened(told)
    assert scalings(line) == [] and replicas(line, BLUE) == 1


def test_with_a_replica_more_production_goes_on_serving(line: GatedLine) -> None:
    line.serve(BLUE, replicas=2)
    line.serve(GREEN, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS, downtime=False))
    assert answer(line.decided()) == ("Promote", "Allowed", "Refused")
    counts = [int(each.request["spec"]["replicas"]) for each in scalings(line) if each.name == BLUE]
    assert set(counts) == {1, 2}
    assert (replicas(line, BLUE), replicas(line, GREEN)) == (2, 0)


def test_nothing_is_touched_outside_of_a_window(line: GatedLine) -> None:
    now = datetime.now(UTC)
    line.serve(BLUE)
    line.serve(GREEN, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    closed = {"startTime": f"{(now.hour + 12) % 24:02}:00", "durationSeconds": 60}
    line.apply(**sequential(closed))
    rollout = line.wait_rollout(lambda found: reason(found, "Screened") == "WaitingForWindow", 180)
    assert condition(rollout, "Succeeded") == "Unknown"
    assert scalings(line) == []
    line.apply(**sequential(ALWAYS))
    assert answer(line.decided()) == ("Promote", "Allowed", "Refused")


def test_a_window_that_closes_gives_production_its_place_back_in_time(line: GatedLine) -> None:
    line.serve(BLUE, "--time-scale", "1", "--prefill-ms", "5")
    line.serve(GREEN, "--seed", "2", "--time-scale", "1", "--prefill-ms", "5", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply()
    line.ready()
    seconds = time.time() % 60
    opens = int(time.time() - seconds) + 60 * (1 if seconds < 50 else 2)
    window = {"startTime": datetime.fromtimestamp(opens, UTC).strftime("%H:%M"), "durationSeconds": 60}
    line.apply(**sequential(window))
    line.until(lambda: time.time() > opens + 61, 200)
    asked = scalings(line)
    assert asked
    for entry in asked:
        assert opens <= datetime.fromisoformat(entry.at).timestamp() < opens + 60, entry
    assert (replicas(line, BLUE), replicas(line, GREEN)) == (1, 0)
    assert SCALED not in line.line()["metadata"].get("annotations", {})


def test_what_a_killed_controller_left_scaled_is_put_back_or_gone_on_with(line: GatedLine) -> None:
    line.serve(BLUE)
    line.serve(GREEN, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS))
    line.until(lambda: scalings(line) and replicas(line, BLUE) == 0)
    line.gate.kill9()
    assert SCALED in line.line()["metadata"]["annotations"]
    line.apply(suspend=True, **sequential(ALWAYS))
    line.gate.start()
    line.until(lambda: (replicas(line, BLUE), replicas(line, GREEN)) == (1, 0))
    line.until(lambda: SCALED not in line.line()["metadata"].get("annotations", {}))
    line.apply(**sequential(ALWAYS))
    assert answer(line.decided()) == ("Promote", "Allowed", "Refused")


def test_a_rollout_that_takes_the_place_of_another_scales_nothing_before_all_is_back(line: GatedLine) -> None:
    line.serve(BLUE, *SLOW, replicas=2)
    line.serve(GREEN, *SLOW, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS, downtime=False))
    line.until(lambda: replicas(line, GREEN) == 1)
    (first,) = line.rollouts()
    other = json.dumps([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--seed=3"}])
    assert line.namespace.kubectl("patch", "deployment", GREEN, "--type=json", "-p", other).returncode == 0
    rollout = line.decided(after=1)
    assert rollout["metadata"]["name"] != first["metadata"]["name"]
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    line.until(lambda: SCALED not in line.line()["metadata"].get("annotations", {}))
    now, counts = {BLUE: 2, GREEN: 0}, [(2, 0)]
    for entry in scalings(line):
        now[entry.name] = int(entry.request["spec"]["replicas"])
        counts.append((now[BLUE], now[GREEN]))
    assert set(counts) <= {(2, 0), (1, 0), (1, 1)}
    assert counts.count((2, 0)) >= 3 and counts[-1] == (2, 0)  # the first one's end, and the last one's
    assert (replicas(line, BLUE), replicas(line, GREEN)) == (2, 0)


@pytest.mark.parametrize("killed", [False, True])
def test_a_line_that_is_deleted_while_it_is_scaled_gets_its_production_back(line: GatedLine, killed: bool) -> None:
    line.serve(BLUE, *SLOW)
    line.serve(GREEN, *SLOW, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS))
    line.until(lambda: replicas(line, GREEN) == 1)
    if killed:
        line.gate.kill9()
    assert line.namespace.kubectl("delete", "servingline", line.name, "--timeout=20s").returncode == 0
    if killed:
        assert (replicas(line, BLUE), replicas(line, GREEN)) == (0, 1)
        line.gate.start()
    line.until(lambda: (replicas(line, BLUE), replicas(line, GREEN)) == (1, 0))


def test_a_namespace_that_is_deleted_while_its_line_is_scaled_goes(line: GatedLine) -> None:
    line.serve(BLUE, *SLOW)
    line.serve(GREEN, *SLOW, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS))
    line.until(lambda: replicas(line, GREEN) == 1)
    space = line.namespace.name
    assert line.namespace.kubectl("delete", "namespace", space, "--timeout=100s").returncode == 0
    told = line.gate.log(about=f"replicas of {space}/{line.name}")
    wait_for(lambda: not told or line.gate.log(about=told[-1]["about"])[-1]["event"] == "trouble_over")


def test_a_count_that_somebody_else_sets_meanwhile_is_left_alone(line: GatedLine) -> None:
    line.serve(BLUE, "--prefill-ms", "5", "--time-scale", "1")
    line.serve(GREEN, "--prefill-ms", "5", "--time-scale", "1", "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS))
    line.until(lambda: replicas(line, GREEN) == 1)
    assert line.namespace.kubectl("scale", "deployment", GREEN, "--replicas=3").returncode == 0
    line.apply(suspend=True, **sequential(ALWAYS))
    line.until(lambda: SCALED not in line.line()["metadata"].get("annotations", {}))
    assert (replicas(line, BLUE), replicas(line, GREEN)) == (1, 3)


def test_a_candidate_alone_is_held_against_the_baseline_as_it_was_measured(line: GatedLine) -> None:
    line.serve(BLUE)
    line.serve(GREEN, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(arms="Sequential", sequential={"storedBaselineMaxAgeSeconds": 3600})
    line.ready()
    for workload, count in ((BLUE, 0), (GREEN, 1)):  # by whoever has one place for both
        assert line.namespace.kubectl("scale", "deployment", workload, f"--replicas={count}").returncode == 0
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    told = " ".join(rollout["status"]["decision"]["sentences"])
    assert "Stored baseline of floor-" in told and "decides nothing" in told
    assert rollout["status"]["throughput"]["state"] == "NotCompared"
    assert scalings(line) == []


def test_without_the_right_to_scale_it_is_said_how_to_give_it(line: GatedLine, namespace: Namespace) -> None:
    assert namespace.kubectl("delete", "rolebinding", "prefillgate-scaler").returncode == 0
    line.serve(BLUE)
    line.serve(GREEN, "--seed", "2", replicas=0)
    line.namespace.rolled_out(BLUE)
    line.apply(**sequential(ALWAYS))
    told = _screened(line.wait_rollout(lambda found: "rolebinding" in _screened(found)))
    assert f"kubectl create rolebinding -n {namespace.name} prefillgate-scaler --clusterrole=prefillgate-scaler" in told


def _screened(rollout: Object) -> str:
    conditions = rollout.get("status", {}).get("conditions", [])
    return next((str(each["message"]) for each in conditions if each["type"] == "Screened"), "")
