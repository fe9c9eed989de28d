"""Two controllers and one database: one leads, the other takes over where it was, and nothing is replayed by both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine, answer, assert_nothing_twice
from tests.support.postgres import PostgresServer, recorded, running_server


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    monkeypatch.setenv("PGUSER", "postgres")  # a status tells the store without a user
    with running_server() as server:
        yield recorded(server)


@pytest.fixture
def two(
    gated_plane: ControlPlane, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gate, Gate]]:
    """Two controllers; the first leads."""
    store, folder = postgres.new_database(), tmp_path_factory.mktemp("gates")
    (folder / "seal.key").write_text("the same key for both of them")
    more = ("--seal-key-file", str(folder / "seal.key"))
    gates = [Gate(gated_plane, folder / name, name, store, more) for name in ("one", "other")]
    try:
        gates[0].start()
        gates[0].wait(lambda: leads(gates[0]))
        gates[1].start()
        yield gates[0], gates[1]
    finally:
        for gate in gates:
            gate.close()


def leads(gate: Gate) -> bool:
    """Whether it says that it leads."""
    return gate.total("prefillgate_leading") == 1


def in_a_replay(line: GatedLine) -> GatedLine:
    """The line, four requests into the replay of its candidate."""
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2", "--time-scale", "0.1")
    line.until(lambda: len(line.truth("green")) >= 4)
    return line


def test_the_leader_is_killed_and_the_other_goes_on_with_its_replay(
    two: tuple[Gate, Gate], namespace: Namespace, tmp_path: Path
) -> None:
    leader, other = two
    line = in_a_replay(GatedLine(namespace, leader, tmp_path))
    assert (leads(leader), leads(other)) == (True, False)
    leader.kill9()
    line.gate = other
    rollout = line.decided()
    assert leads(other)
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert rollout["status"]["counts"]["candidate"]["decisionPrefills"] == 16
    assert len(line.rollouts()) == 1
    assert_nothing_twice(line, rollout, struck=1)


def test_a_leader_that_is_stopped_hands_over_at_once_and_a_third_one_waits(
    two: tuple[Gate, Gate], namespace: Namespace, tmp_path: Path
) -> None:
    leader, other = two
    line = in_a_replay(GatedLine(namespace, leader, tmp_path))
    assert leader.stop() == 0
    line.gate = other
    leader.start()
    rollout = line.decided()
    assert (leads(leader), leads(other)) == (False, True)
    assert answer(rollout)[0] == "Promote"
    assert_nothing_twice(line, rollout, struck=1)
    assert other.stop() == 0
    leader.wait(lambda: leads(leader))
    line.serve("blue", "--seed", "3")
    line.gate = leader
    assert answer(line.decided(after=1))[0] == "Promote"
