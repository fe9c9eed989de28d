"""A controller that is killed again and again comes to the verdict of one left alone, and asks nothing twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from tests.support.cluster.api import Object, condition
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine, answer, assert_nothing_twice

KILLS = 20
SLOW = ("--time-scale", "0.04")  # a cell takes some 0.1 s: an instant of a kill is mostly within one
FAULTY = ("--fault", "bad-prefill=1@case-3")


def told(rollout: Object) -> Any:
    """All of a verdict that does not hang on when it was reached, or on what was struck on the way."""
    status = rollout["status"]
    counts = {
        arm: {name: value for name, value in status["counts"][arm].items() if name != "invalid"}
        for arm in ("baseline", "candidate")
    }
    replicates = [
        {name: value for name, value in each.items() if name != "number"} for each in status.get("replicates", [])
    ]
    return answer(rollout), status["decision"]["reason"], counts, replicates


def begun(line: GatedLine, *both: str) -> None:
    """The line, and a rollout with a seed that is known. Replicates are numbered for the life of a pair of profiles:
    `both` makes other ones that serve the same."""
    line.judge_by()
    line.replay()
    line.serve_both((*SLOW, *both), FAULTY)
    line.compare(f"{line.name}-by-hand", seed=7)  # there before its line: nothing else is judged
    line.apply()


def ended(line: GatedLine) -> Object | None:
    """The rollout once it has ended."""
    found = line.namespace.cluster.api().get(line.rollout_path(f"{line.name}-by-hand"))
    return found if condition(found, "Succeeded") in ("True", "False") else None


def test_killed_at_twenty_instants_of_a_run_it_comes_to_the_same_verdict_and_runs_no_cell_twice(
    line: GatedLine, gate: Gate, namespace: Namespace, tmp_path: Path
) -> None:
    begun(line)
    whole = line.until(lambda: ended(line))
    cells = len(line.truth())
    killed = GatedLine(namespace, gate, tmp_path / "killed", name="killed", colours=("red", "cyan"))
    chosen = random.Random(20261130)
    begun(killed, "--slots", "4")
    for kill in range(KILLS):
        _until_cells(killed, (kill * cells) // KILLS)
        time.sleep(chosen.random() * 0.2)
        gate.kill9()
        gate.start(ready=chosen.random() < 0.8)
    rollout = killed.until(lambda: ended(killed))
    assert "counts" in rollout["status"], killed.everything()
    assert told(rollout) == told(whole)
    assert_nothing_twice(killed, rollout, struck=KILLS)


def _until_cells(line: GatedLine, number: int) -> None:
    """Until the servers have answered so many, or it is over."""
    line.until(lambda: len(line.truth()) >= number or ended(line))
