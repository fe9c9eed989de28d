"""A pod of the candidate is replaced in the middle of a run: its successor is asked for what is missing."""

from __future__ import annotations

from tests.support.cluster.gated import GatedLine, answer, assert_nothing_twice, cells_of


def test_a_pod_replaced_in_the_middle_of_a_run_gives_its_open_cells_to_the_next_one(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2", "--time-scale", "0.1")
    line.until(lambda: len(line.truth("green")) >= 4)
    (pod,) = line.namespace.pods(app="green")[-1:]
    line.namespace.cluster.api().delete(line.namespace.path("pods", pod["metadata"]["name"]), gracePeriodSeconds=0)
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    cells = cells_of(rollout)
    lives = {cell.cell.server_epoch for cell in cells if cell.cell.arm == "candidate" and cell.cell.server_epoch}
    assert len(lives) == 2
    assert any(pod["metadata"]["uid"] in life for life in lives)
    assert rollout["status"]["counts"]["candidate"]["badPrefills"] == 0
    assert len(line.rollouts()) == 1
    assert_nothing_twice(line, rollout, struck=1)
