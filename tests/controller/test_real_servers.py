"""A real Deployment brings up real llama.cpp servers, and the gate judges them by what they really answered."""

from __future__ import annotations

from importlib.metadata import version

import httpx
import pytest

from tests.support.cluster.gated import GatedLine, answer, cells_of
from tests.support.cluster.workloads import container, deployment
from tests.support.programs import record_real_program

IMAGE = "ghcr.io/example/llama-server:b1"
SMALL = ("-t", "1", "-c", "512", "-np", "1", "--port", "8080")


def serve(line: GatedLine, workload: str, *more: str) -> None:
    """A Deployment of llama-server."""
    line.namespace.apply(deployment(workload, container(IMAGE, [*SMALL, *more])))
    line.namespace.rolled_out(workload)


def test_two_real_servers_of_a_real_deployment_are_compared_and_the_candidate_is_promoted(
    line: GatedLine, request: pytest.FixtureRequest
) -> None:
    line.judge_by(checks=[{"type": "NotEmpty"}])
    line.replay(cases=3, words=12, max_tokens=3, model="gemma-3-270m")
    serve(line, "blue")
    serve(line, "green")
    line.apply()
    line.ready(seconds=300)
    serve(line, "green", "-ub", "64")
    rollout = line.decided(seconds=600)  # three servers share the machine while one is replaced
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert rollout["status"]["summary"] == "micro-batch size absent -> 64"
    cells = [cell.cell for cell in cells_of(rollout)]
    assert {cell.cached_tokens for cell in cells} == {0}
    assert all(cell.prompt_tokens and cell.prompt_tokens == cell.processed_tokens for cell in cells)
    (pod,) = line.namespace.pods(app="green")[-1:]
    build = httpx.get(f"http://{pod['status']['podIP']}:8080/props", trust_env=False).json()["build_info"]
    record_real_program("llama-server", f"{build} (xllamacpp {version('xllamacpp')})", request.node.nodeid)
