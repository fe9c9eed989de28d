"""A line whose profiles are read otherwise than before, though no pod was touched: whatever is known of them stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.api.kinds.common import TemplateSeen
from prefillgate.profiles import Profile, Seal, Sources, reading_of
from prefillgate.reconcile.snapshot import ArmSeen, Slot
from tests.support.line_world import HOLDS, A, B, World, profile

OLD, NEW = "0" * 16, "1" * 16
WORD = "An override (promote; with a rerun where no rollout is about it)"


def otherwise(known: Profile, name: str, value: str = "x") -> Profile:
    """The same profile, with a setting that was ignored before."""
    part = known.parts[0]
    more = replace(part.settings[0], name=name, words=name, value=value)
    return replace(known, parts=(replace(part, settings=(*part.settings, more)),))


A2, B2 = otherwise(A, "log level"), otherwise(B, "log level")


def kept(name: str) -> TemplateSeen:
    told = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}"}
    return TemplateSeen.model_validate(told)


def rejected_b() -> World:
    """A line that promoted A and rejected B, read in the old way, each by a ReplicaSet of its own."""
    world = World()
    world.reading = OLD
    world.templates = {Slot.BASELINE: kept("old-1"), Slot.CANDIDATE: kept("new-1")}
    world.ready().propose(B)
    world.judge(HOLDS)
    assert world.status["promotedProfile"]["reading"] == OLD
    assert [(each["digest"], each["reading"]) for each in world.status["rejectedProfiles"]] == [(B.digest, OLD)]
    return world


def read_anew(world: World, baseline: Profile = A2, candidate: Profile = B2) -> None:
    world.reading = NEW
    world.slots = {Slot.BASELINE: baseline, Slot.CANDIDATE: candidate}
    world.down[A.digest] = ArmSeen(A.digest, ())
    world.settle()


def test_what_was_promoted_and_what_was_rejected_are_carried_over_to_the_new_reading() -> None:
    world = rejected_b()
    since, rollouts = world.status["promotedProfile"]["since"], list(world.rollouts)
    world.now += 100
    read_anew(world)
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["reading"], promoted["since"]) == (A2.digest, NEW, since)
    assert {"area": "LayerPlacement", "name": "log level", "value": "x"} in promoted["settings"]
    rejected = [(each["digest"], each["reading"]) for each in world.status["rejectedProfiles"]]
    assert rejected == [(B2.digest, NEW)]
    assert list(world.rollouts) == rollouts  # it is not replayed unasked
    # the store has it, under the digest of then
    assert "StoreBehind" not in {each["reason"] for each in world.status["conditions"]}


def test_it_is_written_once() -> None:
    world = rejected_b()
    read_anew(world)
    written = len(world.writes)
    world.settle()
    assert len(world.writes) == written
    assert A2.digest in str(world.line["status"])


@pytest.mark.parametrize("what", ["another template", "no uid", "a workload", "another value beside"])
def test_what_may_be_a_change_of_the_profile_is_not_carried_over_and_what_was_changed_is_named(what: str) -> None:
    world = rejected_b()
    baseline = A2
    if what == "another template":
        world.templates[Slot.BASELINE] = kept("old-2")
    elif what == "no uid":
        world.templates[Slot.BASELINE] = kept("old-1").model_copy(update={"uid": None})
        del world.line["status"]["promotedProfile"]["template"]["uid"]
    elif what == "a workload":
        of = kept("old-1").model_copy(update={"kind": "Deployment"})
        world.templates[Slot.BASELINE] = of
        world.line["status"]["promotedProfile"]["template"]["kind"] = "Deployment"
    else:
        baseline = otherwise(profile("1,3"), "log level")
    read_anew(world, baseline)
    assert world.status["promotedProfile"]["digest"] == A.digest
    ready = next(each for each in world.status["conditions"] if each["type"] == "EndpointsReady")
    assert ready["reason"] == "NoReadyPods"
    assert "Profiles are read otherwise than when the promoted one was (spec.ignoredNames" in ready["message"]
    assert "changed in place" not in ready["message"]


def said_of_servers(world: World) -> str:
    return str(next(each["message"] for each in world.status["conditions"] if each["type"] == "EndpointsReady"))


def promote(world: World, reason: str = "it is in production") -> None:
    world.annotate(None, override="promote", override_reason=reason, override_actor="oncall").settle()


def test_what_is_not_carried_over_is_told_with_whom_an_override_would_promote_and_how_to_have_the_other() -> None:
    world = rejected_b()
    world.templates[Slot.BASELINE] = kept("old-2")
    read_anew(world)
    told = said_of_servers(world)
    assert told.endswith(
        "or the promoted profile's template back. "
        f"{WORD} makes {B2.digest[7:19]} of spec.candidate the promoted profile: only if that is what was in "
        f"production. If it was {A2.digest[7:19]} of spec.baseline, exchange spec.baseline and "
        "spec.candidate first, then that is the candidate."
    )
    wrong = world.copy()
    wrong.annotate(rerun="1")
    promote(wrong)
    assert wrong.status["promotedProfile"]["digest"] == B2.digest
    world.slots = {Slot.BASELINE: B2, Slot.CANDIDATE: A2}  # exchanged
    world.settle()
    assert f"makes {A2.digest[7:19]} of spec.candidate the promoted profile" in said_of_servers(world)
    promote(world)
    assert world.status["promotedProfile"]["digest"] == A2.digest
    assert world.status["candidate"]["digest"] == B2.digest
    world.slots = {Slot.BASELINE: A2, Slot.CANDIDATE: B2}  # and back: names play no role
    world.settle()
    assert world.status["promotedProfile"]["digest"] == A2.digest
    assert world.status["candidate"]["digest"] == B2.digest


def test_where_all_workloads_say_the_same_an_override_promotes_that() -> None:
    world = rejected_b()
    world.templates[Slot.BASELINE] = kept("old-2")
    read_anew(world, A2, A2)
    assert said_of_servers(world).endswith(
        f"{WORD} makes {A2.digest[7:19]} of spec.candidate the promoted profile: only if that is what was in "
        "production."
    )
    promote(world)
    assert world.status["promotedProfile"]["digest"] == A2.digest


def test_a_change_that_is_none_of_reading_is_still_a_change() -> None:
    world = rejected_b()
    world.reading = OLD
    world.slots = {Slot.BASELINE: A2, Slot.CANDIDATE: B2}
    world.down[A.digest] = ArmSeen(A.digest, ())
    world.settle()
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert "changed in place" in str(world.status["conditions"])


def test_a_value_that_is_sealed_in_one_reading_is_the_same_value() -> None:
    world = World()
    world.reading = OLD
    world.templates = {Slot.BASELINE: kept("old-1")}
    plain, sealed = (otherwise(A, "user", text) for text in ("ana", "[sealed-0123456789]"))
    world.slots = {Slot.BASELINE: plain, Slot.CANDIDATE: plain}
    world.ready()
    read_anew(world, sealed, sealed)
    assert world.status["promotedProfile"]["digest"] == sealed.digest


def test_the_mark_is_another_one_for_all_that_makes_other_digests_and_tells_nothing_of_the_key() -> None:
    key = b"a key of many characters"
    plain = Sources(Seal(key))
    others = [
        Sources(Seal(key, ("user",))),
        Sources(Seal(key), ignored=("log",)),
        Sources(Seal(key), engine="vllm"),
        Sources(Seal(b"another key of them")),
    ]
    marks = {reading_of(each) for each in (plain, *others)}
    assert len(marks) == 5
    assert reading_of(Sources(Seal(key, ("a", "b")))) == reading_of(Sources(Seal(key, ("b", "a"))))
    assert reading_of(plain) == "5e99280af21a8bc7"  # while READER is what it is
