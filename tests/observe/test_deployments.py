"""A look at a line whose workloads are Deployments of real servers."""

from __future__ import annotations

import json

from prefillgate.reconcile.snapshot import LineSnapshot, Slot
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.workloads import deployment, simulated
from tests.support.looking import Eyes, line


def promoted_status(snapshot: LineSnapshot) -> dict[str, object]:
    """What the gate writes once it has seen a line first."""
    (slot,) = [each for each in snapshot.slots if each.slot is Slot.BASELINE]
    profile = slot.profile
    since = "2026-11-30T10:00:00Z"
    digests = {"digest": profile.digest, "writtenDigest": profile.written_digest}
    return {"promotedProfile": {**digests, "since": since, "how": "FirstSeen"}}


def serving(snapshot: LineSnapshot, servers: int) -> LineSnapshot | None:
    """The look at which the baseline has so many servers that answer."""
    arm = snapshot.baseline
    return snapshot if arm is not None and arm.asked and len(arm.ready) == servers else None


async def test_a_deployment_is_found_with_its_profile_its_pods_and_how_they_are_asked(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated("--model", "m"), replicas=2))
    namespace.apply(line())
    both = await eyes.until(key, lambda seen: serving(seen, 2))
    assert both.troubles == ()
    assert both.spec is not None
    assert both.roles.candidate is None
    assert both.candidate is None
    assert both.baseline is not None
    assert both.baseline.asked
    assert both.baseline.digest == both.roles.promoted == both.slots[0].profile.digest
    assert both.slots[0].profile.resolved
    assert both.slots[0].template is not None
    assert both.slots[0].template.kind == "ReplicaSet"
    pods = namespace.pods(app="engine")
    assert {each.url for each in both.baseline.servers} == {f"http://{p['status']['podIP']}:8080" for p in pods}
    for pod in pods:
        (status,) = pod["status"]["containerStatuses"]
        life = eyes.works.life(f"http://{pod['status']['podIP']}:8080")
        assert life == f"{pod['metadata']['uid']}/{status['containerID']}"
    assert (both.policy is not None and both.policy.name, both.replay_set and both.replay_set.cases) == ("standard", 1)


async def test_new_arguments_make_a_candidate_at_once_and_pods_are_told_apart_by_what_they_run(
    eyes: Eyes, namespace: Namespace
) -> None:
    key = f"{namespace.name}/chat"
    namespace.apply(deployment("engine", simulated("--model", "m")))
    namespace.apply(line())
    first = await eyes.until(key, lambda seen: serving(seen, 1))
    status = {"status": promoted_status(first)}
    namespace.kubectl("patch", "sl", "chat", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    (old,) = namespace.pods(app="engine")
    namespace.apply(deployment("engine", simulated("--model", "m", "--seed", "7"), gate=True))  # not Ready by itself

    def both(seen: LineSnapshot) -> LineSnapshot | None:
        there = seen.candidate is not None and seen.candidate.servers and seen.candidate.servers[0].url
        return seen if there and seen.roles.candidate is not None and seen.roles.candidate.profile.resolved else None

    seen = await eyes.until(key, both)
    assert seen.roles.promoted == first.roles.promoted
    assert seen.baseline is not None
    assert seen.candidate is not None
    assert [each.name for each in seen.baseline.ready] == [old["metadata"]["name"]]
    assert [each.name for each in seen.candidate.servers] != [old["metadata"]["name"]]
    assert seen.candidate.ready == ()
    assert seen.candidate.digest == seen.slots[0].profile.digest != seen.baseline.digest
    (written,) = [each for each in seen.slots[0].profile.settings if each.name == "seed"]
    assert written.value == "7"
