"""What the controller costs a cluster, on a real control plane with real pods of the simulated engine.

Writes of ServingLines and ProfileRollouts a rollout (goal: at most 15), the candidate's Ready to its first request
(goal: at most 1 s, the baseline compared with itself before), and memory and requests a minute with idle lines.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.cluster.api import Object
from tests.support.cluster.control_plane import running_control_plane
from tests.support.cluster.fixtures import Cluster, Namespace, made_namespace
from tests.support.cluster.gate import Gate, install_rights
from tests.support.cluster.gated import GatedLine, reason
from tests.support.cluster.node_agent import NodeAgent
from tests.support.cluster.tally import Stretch, tells_of_a_promotion_by
from tests.support.cluster.users import NODE
from tests.support.cluster_crds import install_crds
from tests.support.namespace import Network

ROLLOUTS = 5
LINES = (1, 100, 1_000)
MINUTE_SECONDS = 60
USUAL_LEASE = ("--lease-duration-seconds", "15", "--lease-renew-seconds", "10", "--lease-retry-seconds", "2")
MOST_WRITES, MOST_READY_SECONDS = 15, 1.0
SHOWN = {
    "ServingLine and ProfileRollout": ("servinglines", "profilerollouts"),
    "events": ("events",),
    "Lease": ("leases",),
    "pod conditions": ("pods",),
}


def main() -> int:
    """Print the tables; 1 when a goal is missed."""
    with tempfile.TemporaryDirectory() as folder, Network().entered():
        place = Path(folder)
        (place / "plane").mkdir()
        with running_control_plane(place / "plane") as plane:
            install_crds(plane)
            install_rights(plane)
            (place / "node").mkdir()
            with NodeAgent(plane, place / "node") as node:
                cluster = Cluster(plane, node)
                with made_namespace(cluster, "rollouts") as space:
                    missed = rollouts(space, place / "rollouts")
                for number in LINES:
                    with made_namespace(cluster, f"idle-{number}") as space:
                        idle(space, place / f"idle-{number}", number)
    return int(missed)


def rollouts(space: Namespace, place: Path) -> bool:
    """Several rollouts one after the other, each promoted; whether a goal was missed."""
    gate = Gate(space.cluster.plane, place / "gate").start()
    line = GatedLine(space, gate, place)
    try:
        line.set_up()
        line.apply()
        line.ready()
        rows = [one_rollout(line, number) for number in range(ROLLOUTS)]
    finally:
        gate.stop()
    print(f"{'writes a rollout':<32} {'median':>7} {'most':>7}")
    for name in SHOWN:
        counts = [writes[name] for writes, _ in rows]
        print(f"{name:<32} {statistics.median(counts):>7g} {max(counts):>7}")
    waits = [seconds for _, seconds in rows]
    print(f"{'Ready to the first request, s':<32} {statistics.median(waits):>7.2f} {max(waits):>7.2f}")
    most = max(writes["ServingLine and ProfileRollout"] for writes, _ in rows)
    met = {f"{MOST_WRITES} writes": most <= MOST_WRITES, f"{MOST_READY_SECONDS:g} s": max(waits) <= MOST_READY_SECONDS}
    for goal, reached in met.items():
        print(f"goal {goal}: {'met' if reached else 'NOT met'}")
    return not all(met.values())


def one_rollout(line: GatedLine, number: int) -> tuple[Counter[str], float]:
    """Writes by what they were about, and seconds from the candidate's Ready to the first request that it had."""
    workload, audit = line.colours[(number + 1) % 2], line.namespace.cluster.audit
    asked = {row["id"] for row in line.truth(workload, probes=True)}
    stretch = Stretch(audit)
    line.serve(workload, "--seed", str(number + 2))
    rollout = line.decided(after=number)
    name = rollout["metadata"]["name"]
    line.wait_line(lambda found: found["status"]["promotedProfile"].get("rollout") == name)
    stretch.close(at=tells_of_a_promotion_by(name))
    writes = Counter({name: stretch.writes(*resources) for name, resources in SHOWN.items()})
    first = next(row for row in line.truth(workload, probes=True) if row["id"] not in asked)
    pod = line.namespace.pods(app=workload)[-1]["metadata"]["name"]
    told = audit.writes(user=NODE.name, namespace=line.namespace.name, resource="pods", subresource="status", name=pod)
    ready = [datetime.fromisoformat(entry.at).timestamp() for entry in told]
    wait = first["started_at"] - max(at for at in ready if at < first["started_at"])
    line.ready()
    return writes, wait


def idle(space: Namespace, place: Path, number: int) -> None:
    """Suspended lines whose servers were asked: what they cost a minute. Floors of a thousand would take long."""
    gate = Gate(space.cluster.plane, place / "gate", more=USUAL_LEASE).start()
    try:
        first = GatedLine(space, gate, place)
        first.set_up(cases=1)
        began = time.monotonic()
        for each in range(number):
            GatedLine(space, gate, place, name=f"line-{each}").create(suspend=True)
        path = first.path.rpartition("/")[0]
        api = space.cluster.api()
        done = {("Suspended", "Reachable")}
        first.until(lambda: {_reasons(line) for line in api.items(path)} == done, seconds=1800)
        settled = time.monotonic() - began
        memory = gate.resident_kilobytes()
        stretch = Stretch(space.cluster.audit)
        time.sleep(MINUTE_SECONDS)
        requests = stretch.close().requests()
        lease = sum(count for name, count in requests.items() if name.endswith(" leases"))
        others = sum(requests.values()) - lease
        grown = gate.resident_kilobytes() / memory
        print(
            f"{number:>5} lines: {memory / 1024:.0f} MB ({grown:.3f} of it a minute later), {others} requests a minute "
            f"and {lease} for the Lease; all settled after {settled:.0f} s"
        )
        assert gate.stop() == 0
    finally:
        gate.close()


def _reasons(line: Object) -> tuple[str, str]:
    return reason(line, "Gating"), reason(line, "EndpointsReady")


if __name__ == "__main__":
    sys.exit(main())
