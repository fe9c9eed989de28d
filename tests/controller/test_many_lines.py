"""A thousand lines with nothing to do cost no request and no memory that grows."""

from __future__ import annotations

from tests.support.cluster.api import Object
from tests.support.cluster.gate import Gate
from tests.support.cluster.gated import GatedLine, reason
from tests.support.cluster.tally import Stretch

LINES = 1_000
RENEWALS = 20


def renewals(line: GatedLine) -> int:
    """How often the leader has renewed its Lease."""
    return len(line.namespace.cluster.audit.writes(user="prefillgate", resource="leases", code=200))


def settled(line: Object) -> tuple[str, str]:
    """Its reasons of what comes last."""
    return reason(line, "Gating"), reason(line, "EndpointsReady")


def test_a_thousand_idle_lines_are_not_polled_and_take_no_more_memory_as_time_goes_by(
    line: GatedLine, gate: Gate
) -> None:
    line.set_up()
    made = [GatedLine(line.namespace, gate, line.folder, name=f"line-{number}") for number in range(LINES)]
    for each in made:
        each.create(suspend=True)
    api, path = line.namespace.cluster.api(), made[0].path.rpartition("/")[0]
    line.until(lambda: {settled(each) for each in api.items(path)} == {("Suspended", "Reachable")}, seconds=300)
    gate.wait(lambda: not gate.total("prefillgate_queue_depth", 'state="ready"'))
    first, memory = renewals(line), gate.resident_kilobytes()
    stretch = Stretch(line.namespace.cluster.audit)
    line.until(lambda: renewals(line) >= first + RENEWALS)
    assert sum(stretch.close().but_for_the_lease().values()) <= 12, stretch.requests()  # a watch that begins anew
    assert stretch.writes("servinglines", "profilerollouts", "events") == 0
    assert gate.resident_kilobytes() <= 1.05 * memory
    made[-1].apply(suspend=False)  # the last of them is not forgotten
    assert reason(made[-1].ready(), "Gating") == "NoCandidate"
