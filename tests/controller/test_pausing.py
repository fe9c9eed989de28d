"""A line may be suspended in the middle of a run, or tried out with nothing promoted and nothing remembered."""

from __future__ import annotations

from tests.support.cluster.api import condition
from tests.support.cluster.gated import GatedLine, answer, assert_nothing_twice, reason


def test_a_suspended_line_asks_nothing_more_and_goes_on_where_it_was(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2", "--time-scale", "0.1")
    line.until(lambda: len(line.truth("green")) >= 3)
    line.apply(suspend=True)
    line.wait_rollout(lambda found: reason(found, "Screened") == "Suspended")
    asked = len(line.truth("green"))
    line.wait_line(lambda found: reason(found, "Gating") == "Suspended")
    line.serve("blue", "--seed", "5")  # noticed, and nothing is begun for it
    line.namespace.rolled_out("blue")
    line.serve("blue")
    line.namespace.rolled_out("blue")
    assert len(line.truth("green")) <= asked + 1  # the one that was in flight
    line.apply(suspend=False)
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert len(line.rollouts()) == 1
    assert_nothing_twice(line, rollout, struck=1)


def test_a_dry_run_measures_all_and_allows_promotes_and_remembers_nothing(line: GatedLine) -> None:
    line.set_up()
    line.apply(dryRun=True)
    line.ready()
    line.serve("green", "--seed", "2")
    passed = line.decided()
    assert reason(passed, "Succeeded") == "PassedDryRun"
    assert (condition(passed, "PromotionAllowed"), reason(passed, "PromotionAllowed")) == ("False", "DryRun")
    line.serve("green", "--fault", "bad-prefill=1")
    failed = line.decided(after=1)
    assert (condition(failed, "RollbackAllowed"), reason(failed, "RollbackAllowed")) == ("False", "DryRun")
    assert failed["status"]["counts"]["candidate"]["badPrefills"] > 0
    status = line.line()["status"]
    assert status["promotedProfile"]["how"] == "FirstSeen"
    assert not status.get("rejectedProfiles")
