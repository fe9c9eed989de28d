"""Before anything is judged the baseline is compared with itself; with a broken instrument nothing is judged at all."""

from __future__ import annotations

from tests.support.cluster.api import condition
from tests.support.cluster.gated import GatedLine, answer, message, reason


def test_a_candidate_that_is_there_from_the_first_moment_waits_for_the_floor(line: GatedLine) -> None:
    line.judge_by()
    line.replay()
    line.serve_both(("--time-scale", "0.02"), ("--seed", "2"))
    line.apply()
    line.wait_rollout(lambda found: reason(found, "Screened") == "WaitingForFloor")
    rollout = line.decided()
    assert answer(rollout)[0] == "Promote"
    floor = line.line()["status"]["floor"]
    first = line.truth("green")[0]["started_at"]
    before = [row for row in line.truth("blue") if row["started_at"] < first]
    assert len(before) >= floor["prefills"] >= 2
    assert (floor["instrument"], floor["badPrefills"]) == ("Sound", 0)
    assert floor["identicalBasisPoints"] == 10_000


def test_with_a_server_that_cannot_prove_a_fresh_prefill_nothing_is_judged(line: GatedLine) -> None:
    line.judge_by()
    line.replay()
    line.serve_both(("--fault", "ignore-cache-prompt=1"), ("--seed", "2"))
    line.apply()
    broken = line.wait_line(lambda found: condition(found, "InstrumentChecked") == "False")
    assert reason(broken, "InstrumentChecked") == "InstrumentBroken"
    assert message(broken, "InstrumentChecked")
    rollout = line.wait_rollout(lambda found: reason(found, "PromotionAllowed") == "InstrumentBroken")
    assert answer(rollout)[1:] == ("Blocked", "Refused")
    assert line.truth("green") == []
