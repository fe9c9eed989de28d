"""The baseline serves people meanwhile, and a verdict is reached."""

from __future__ import annotations

from tests.support.cluster.gated import GatedLine, answer, arm
from tests.support.traffic import other_traffic


def url_of(line: GatedLine, workload: str) -> str:
    """Of the workload's newest pod."""
    return f"http://{line.namespace.pods(app=workload)[-1]['status']['podIP']}:8080"


def test_a_verdict_is_reached_under_steady_traffic_on_a_shared_baseline(line: GatedLine) -> None:
    line.set_up()
    with other_traffic(url_of(line, "blue")) as traffic:
        line.apply(baseline=arm("blue", isolation={"mode": "Shared"}))
        line.ready()
        line.serve("green", "--seed", "2")
        before = traffic.answered
        rollout = line.decided()
        assert traffic.answered > before
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert rollout["status"]["counts"]["baseline"]["prefills"] == 2
    assert rollout["status"]["throughput"]["state"] == "NotCompared"
