"""A person applies a ServingLine once; what becomes of each new candidate is noticed, replayed, judged and answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from prefillgate.api.kinds.names import OVERRIDE, OVERRIDE_REASON, RERUN
from tests.support.cluster.api import condition
from tests.support.cluster.audit import Entry
from tests.support.cluster.gated import GatedLine, answer, assert_nothing_twice, message, reason
from tests.support.cluster.tally import Stretch, tells_of_a_promotion_by
from tests.support.cluster.users import ADMIN, GATE

ONE_BAD_HOLDS = {"acceptance": [16], "replicate": {"gapSeconds": 0, "maxAttempts": 0}}
WAITING: dict[str, Any] = {"minReadySeconds": 3600, "progressDeadlineSeconds": 7200}
"""Of a Deployment: the new pod is Ready, and the old one stays until it has been so for an hour."""
TWO_BAD_ASK = {"acceptance": [16, 25]}


def seconds(at: str) -> float:
    """A moment of the audit log as seconds since 1970."""
    return datetime.fromisoformat(at).timestamp()


def created(line: GatedLine, rollout: str) -> Entry:
    """The request that made a rollout."""
    audit, space = line.namespace.cluster.audit, line.namespace.name
    return audit.wait(
        lambda entry: entry.verb in ("create", "patch") and entry.code == 201,
        namespace=space,
        resource="profilerollouts",
        name=rollout,
    )


def changed(line: GatedLine, workload: str) -> Entry:
    """The last request by which a person changed a Deployment."""
    found = line.namespace.cluster.audit.writes(
        namespace=line.namespace.name, resource="deployments", name=workload, subresource="", user=ADMIN.name
    )
    return found[-1]


def test_a_changed_argument_makes_a_rollout_whose_prefills_follow_and_a_clean_candidate_becomes_the_promoted_profile(
    line: GatedLine,
) -> None:
    line.set_up()
    line.apply()
    before = line.ready()
    assert reason(before, "Gating") == "NoCandidate"
    assert before["status"]["promotedProfile"]["how"] == "FirstSeen"
    assert line.rollouts() == [] and line.truth("green") == []
    line.serve("green", "--seed", "2")
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert (reason(rollout, "PromotionAllowed"), reason(rollout, "Succeeded")) == ("AcceptanceReached", "Promoted")
    floor = before["status"]["floor"]["prefills"]  # the promoted profile is compared with itself from now on
    name = rollout["metadata"]["name"]
    asked, made = changed(line, "green"), created(line, name)
    assert made.user == GATE.name
    assert asked.at < made.at
    assert seconds(made.at) < line.truth("green")[0]["started_at"]
    counts = rollout["status"]["counts"]
    told = {arm: (counts[arm]["prefills"], counts[arm]["badPrefills"]) for arm in ("baseline", "candidate")}
    assert told == {"baseline": (2, 0), "candidate": (16, 0)}
    assert_nothing_twice(line, rollout, struck=floor)
    assert rollout["status"]["summary"] == "seed absent -> 2"
    after = line.wait_line(lambda found: found["status"]["promotedProfile"].get("rollout") == name)["status"]
    assert after["promotedProfile"]["digest"] == rollout["status"]["candidate"]["digest"]
    assert after["promotedProfile"]["how"] == "Promoted"
    assert after["previousProfile"]["digest"] == before["status"]["promotedProfile"]["digest"]
    line.until(lambda: {"CandidateChanged", "RolloutCreated", "ProfilePromoted"} <= set(line.reasons()))
    assert line.reasons().count("ProfilePromoted") == 1


def test_a_promotion_flips_the_roles_and_the_new_baseline_is_compared_with_itself_first(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2")
    first = line.decided()
    promoted = first["status"]["candidate"]["digest"]
    line.wait_line(lambda found: found["status"]["floor"]["baselineDigest"] == promoted)
    line.serve("blue", "--seed", "3")
    second = line.decided(after=1)
    assert answer(second) == ("Promote", "Allowed", "Refused")
    assert second["spec"]["baseline"]["digest"] == promoted
    assert second["spec"]["candidate"]["digest"] != first["spec"]["baseline"]["digest"]


def test_a_change_that_serves_the_same_makes_no_rollout(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", replicas=2)
    line.namespace.rolled_out("green")
    line.serve("green", minReadySeconds=1)
    line.serve("green", "--seed", "2")
    line.decided()
    assert len(line.rollouts()) == 1


def test_one_bad_prefill_too_many_holds_for_a_person_and_refuses_a_rollback(line: GatedLine) -> None:
    line.set_up(policy=ONE_BAD_HOLDS)
    line.apply()
    line.ready()
    line.serve("green", "--fault", "bad-prefill=#3")
    rollout = line.decided()
    assert answer(rollout) == ("Hold", "Blocked", "Refused")
    assert condition(rollout, "AlarmRaised") == "True"
    assert reason(rollout, "Succeeded") == "Held"
    assert line.line()["status"]["promotedProfile"]["how"] == "FirstSeen"


def test_an_alarm_that_no_fresh_replicate_confirms_refuses_the_rollback(line: GatedLine) -> None:
    line.set_up(policy=TWO_BAD_ASK)
    line.apply()
    line.ready()
    line.serve("green", "--fault", "bad-first=2")
    rollout = line.decided()
    assert answer(rollout) == ("Hold", "Blocked", "Refused")
    assert (condition(rollout, "ReplicateConfirmed"), reason(rollout, "ReplicateConfirmed")) == (
        "False",
        "NotConfirmed",
    )
    assert reason(rollout, "AlarmRaised") == "AlarmAnswered"
    (replicate,) = rollout["status"]["replicates"]
    assert (replicate["ending"], replicate["candidateBad"]) == ("Clean", 0)
    assert rollout["status"]["decision"]["cause"] == "Unverified"


def test_a_confirmed_regression_allows_the_rollback_and_the_profile_is_remembered_until_a_person_asks_again(
    line: GatedLine,
) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--fault", "bad-prefill=1")
    rollout = line.decided()
    assert answer(rollout) == ("Rollback", "Blocked", "Allowed")
    assert reason(rollout, "ReplicateConfirmed") == "RegressionConfirmed"
    digest = rollout["status"]["candidate"]["digest"]
    rejected = line.wait_line(lambda found: found["status"].get("rejectedProfiles"))["status"]["rejectedProfiles"]
    assert [(each["digest"], each["reason"]) for each in rejected] == [(digest, "RegressionConfirmed")]
    line.serve("green")
    line.wait_line(lambda found: reason(found, "Gating") == "NoCandidate")
    asked = len(line.truth("green"))
    line.serve("green", "--fault", "bad-prefill=1")
    line.wait_line(lambda found: reason(found, "Gating") == "RejectedBefore")
    assert (len(line.rollouts()), len(line.truth("green"))) == (1, asked)
    line.namespace.kubectl("annotate", "servingline", line.name, f"{RERUN}=once")
    again = line.decided(after=1)
    assert again["spec"]["rerunOf"] == rollout["metadata"]["name"]
    assert answer(again) == ("Rollback", "Blocked", "Allowed")
    assert line.line()["status"]["lastHandledRerun"] == "once"
    assert len(line.rollouts()) == 2


def test_a_candidate_that_crash_loops_is_unavailable_and_may_be_rolled_back_at_once(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--fault", "no-such-fault=1", strategy={"type": "Recreate"})
    rollout = line.wait_rollout(lambda found: reason(found, "RollbackAllowed") == "CandidateUnavailable")
    assert answer(rollout)[1:] == ("Blocked", "Allowed")
    assert reason(rollout, "EndpointsReady") == "CandidateUnavailable"
    assert "CrashLoopBackOff" in message(rollout, "EndpointsReady")
    assert line.truth("green") == []


def test_a_candidate_that_refuses_is_unavailable_and_may_be_rolled_back_at_once(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    stops_listening = "prefillgate $0 $@ & while [ $(cat /truth/$POD_NAME.jsonl | wc -l) -lt 6 ]; do sleep 0.05; done; "
    command = ["sh", "-c", stops_listening + "kill $!; sleep 3600"]
    line.serve("green", server={"command": command, "readinessProbe": None})
    rollout = line.decided()
    assert answer(rollout) == ("Rollback", "Blocked", "Allowed")
    assert reason(rollout, "RollbackAllowed") == "CandidateUnavailable"
    assert rollout["status"]["counts"]["candidate"]["badPrefills"] == 0  # no claim about its quality


def test_a_candidate_that_dies_again_and_again_under_load_never_looks_clean(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--fault", "die-after=4")
    rollout = line.decided()
    assert answer(rollout)[1:] == ("Blocked", "Allowed")
    assert reason(rollout, "RollbackAllowed") in ("RegressionConfirmed", "CandidateUnavailable")
    assert rollout["status"]["counts"]["candidate"]["badPrefills"] > 0


def test_a_second_candidate_supersedes_the_first_and_its_evidence_is_kept(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    line.serve("green", "--seed", "2", "--time-scale", "0.5")
    line.until(lambda: line.truth("green"))
    first = line.rollouts()[0]["metadata"]["name"]
    line.serve("green", "--seed", "3")
    second = line.decided(after=1)
    assert answer(second)[0] == "Promote"
    assert second["spec"]["supersedes"] == first
    old = line.until(lambda: next((r for r in line.rollouts() if condition(r, "Superseded") == "True"), None))
    assert (old["metadata"]["name"], reason(old, "Superseded")) == (first, "NewerCandidate")
    assert old["status"]["supersededBy"] == second["metadata"]["name"]
    assert answer(old)[1:] == ("Blocked", "Refused")
    assert old["status"]["evidence"]["rows"] > 0


def test_a_persons_override_promotes_once_and_is_not_inherited_by_the_next_candidate(line: GatedLine) -> None:
    line.set_up(policy=ONE_BAD_HOLDS)
    line.apply()
    line.ready()
    line.serve("green", "--fault", "bad-prefill=#3")
    rollout = line.decided()
    name = rollout["metadata"]["name"]
    assert answer(rollout)[0] == "Hold"
    line.namespace.kubectl("annotate", "profilerollout", name, f"{OVERRIDE}=promote")
    line.until(lambda: "OverrideWithoutReason" in line.reasons(name))
    line.namespace.kubectl("annotate", "profilerollout", name, f"{OVERRIDE_REASON}=one bad of many is fine")
    after = line.wait_line(lambda found: found["status"]["promotedProfile"].get("rollout") == name)
    assert after["status"]["promotedProfile"]["how"] == "Overridden"
    overridden = line.wait_rollout(lambda found: condition(found, "Overridden") == "True")
    assert overridden["status"]["override"]["reason"] == "one bad of many is fine"
    assert answer(overridden)[:2] == ("Promote", "Allowed")
    line.serve("blue", "--fault", "bad-prefill=#3", "--seed", "4")
    following = line.decided(after=1)
    assert answer(following)[0] == "Hold"
    assert condition(following, "Overridden") == "False"


def test_one_deployment_is_judged_while_its_rolling_update_waits(line: GatedLine) -> None:
    line.judge_by()
    line.replay()
    line.serve("blue", **WAITING)
    line.until(lambda: line.namespace.pods(app="blue"))
    line.apply(candidate=None)
    line.ready()
    line.serve("blue", "--seed", "2", **WAITING)
    rollout = line.decided()
    assert answer(rollout) == ("Promote", "Allowed", "Refused")
    assert rollout["status"]["summary"] == "seed absent -> 2"
    assert len(line.namespace.pods(app="blue")) == 2


def test_nobody_but_the_gate_writes_a_status_and_it_writes_few_and_no_workload(line: GatedLine) -> None:
    line.set_up()
    line.apply()
    line.ready()
    audit, space = line.namespace.cluster.audit, line.namespace.name
    stretch = Stretch(audit)
    line.serve("green", "--seed", "2")
    name = line.decided()["metadata"]["name"]
    line.wait_line(lambda found: found["status"]["promotedProfile"]["how"] == "Promoted")
    stretch.close(at=tells_of_a_promotion_by(name))  # the new baseline's floor follows at once
    assert 0 < stretch.writes("servinglines", "profilerollouts") <= 15, stretch.requests()
    statuses = [e for e in audit.writes(namespace=space, subresource="status") if e.response and e.request]
    ours = [e for e in statuses if e.resource in ("servinglines", "profilerollouts", "replaysets", "promotionpolicies")]
    assert {entry.user for entry in ours} == {GATE.name}
    written = {(e.resource, e.subresource) for e in audit.writes(namespace=space, user=GATE.name)}
    assert written <= {
        *(("servinglines", "status"), ("profilerollouts", ""), ("profilerollouts", "status")),
        *(("replaysets", "status"), ("promotionpolicies", "status"), ("events", "")),
    }
