"""Keys are used and told nowhere: not in an object, an event, a log, a metric, a store, or the list of processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine, answer, arm
from tests.support.cluster.tally import Stretch

SERVED, IN_ARGUMENTS, IN_VARIABLE = (
    "planted-key-of-the-server",
    "planted-key-of-an-argument",
    "planted-key-of-a-variable",
)
PLANTED = (SERVED, IN_ARGUMENTS, IN_VARIABLE)


def serve(line: GatedLine, workload: str, *args: str) -> None:
    """A Deployment that asks for a key out of a Secret, and has two more where people put them."""
    key = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}}
    env = [key, {"name": "HF_TOKEN", "value": IN_VARIABLE}]
    line.serve(workload, "--api-key-env", "KEY", "--build-info", "b1", *args, server={"env": env})


def everything(line: GatedLine, gate: Gate) -> dict[str, bytes]:
    """All that the gate wrote or says, by where it stands."""
    found: dict[str, bytes] = {
        "objects": json.dumps([line.line(), *line.rollouts(), *line.events()]).encode(),
        "log": gate.printed().encode(),
        "metrics": json.dumps(gate.metrics()).encode(),
        "arguments": Path(f"/proc/{gate.pid}/cmdline").read_bytes(),
        "requests": json.dumps(
            [entry.request for entry in Stretch(line.namespace.cluster.audit, since=0).entries()]
        ).encode(),
    }
    return found | {str(path): path.read_bytes() for path in Path(gate.store).rglob("*") if path.is_file()}


def test_a_planted_key_is_found_in_no_output(line: GatedLine, namespace: Namespace, gate: Gate) -> None:
    labels = {"prefillgate.io/usable-by": "gate"}
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "labels": labels}}
    namespace.apply({**secret, "stringData": {"token": SERVED}})
    line.judge_by()
    line.replay()
    for workload in line.colours:
        serve(line, workload)
        namespace.rolled_out(workload)
    ref = {"apiKeySecretRef": {"name": "key", "key": "token"}}
    line.apply(baseline=arm("blue", **ref), candidate=arm("green", **ref))
    line.ready()
    serve(line, "green", "--fault", f"no-fault={IN_ARGUMENTS}", "--api-key", IN_ARGUMENTS)
    line.until(line.rollouts)
    assert "sealed-" in json.dumps(line.rollouts()[0]["spec"])
    serve(line, "green", "--seed", "2")
    rollout = line.decided(after=1)
    assert answer(rollout)[0] == "Promote"
    told = everything(line, gate)
    assert len(told) > 6
    assert [(where, key) for where, text in told.items() for key in PLANTED if key.encode() in text] == []
