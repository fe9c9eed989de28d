"""A line whose profiles are read otherwise than before, though no pod was touched: whatever is known of them stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillgate.api.kinds.common import TemplateSeen
from prefillgate.core.verdict import Verdict
from prefillgate.profiles import Profile, Seal, Sources, reading_of
from prefillgate.reconcile.plan import plan
from prefillgate.reconcile.seen import same_profile
from prefillgate.reconcile.snapshot import ArmSeen, Slot, WorkKind
from tests.support.line_world import HOLDS, LOST, PROMOTES, ROLLS_BACK, SOUND, A, B, C, World, profile

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


def rejected_b(promoted: Profile = A, first: Profile = B, final: Verdict = HOLDS, candidate: Profile = B) -> World:
    """A line that promoted A and rejected B, read in the old way, each by a ReplicaSet of its own. `first` is what B is
    read as when its rollout is made, `final` what that comes to."""
    world = World()
    world.reading = OLD
    world.slots = {Slot.BASELINE: promoted, Slot.CANDIDATE: promoted}
    world.templates = {Slot.BASELINE: kept("old-1"), Slot.CANDIDATE: kept("new-1")}
    world.ready().propose(first)
    world.propose(candidate)
    world.judge(final)
    assert world.status["promotedProfile"]["reading"] == OLD
    if final is HOLDS:
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


def marked(known: Profile, **changed: str) -> Profile:
    """The same profile with other marks: `template`, `image_server`, `config_chat`; an empty one takes it away."""
    marks = dict(each.rsplit(" ", 1) for each in known.marks)
    marks |= {name.replace("_", " "): mark for name, mark in changed.items()}
    return replace(known, marks=tuple(f"{name} {mark}" for name, mark in marks.items() if mark))


OTHER = marked(A2, template="0f3a9c21-000000000000")  # the same digest, of another template than A had


def with_config(known: Profile) -> Profile:
    return marked(known, config_chat="0f3a9c21-91c0d2f3a4b5")


@pytest.mark.parametrize(
    "what",
    ["another template", "no uid", "a workload", "another image", "another ConfigMap", "no marks", "no template"],
)
def test_what_may_be_a_change_of_the_profile_is_not_carried_over_and_what_was_changed_is_named(what: str) -> None:
    world = rejected_b(with_config(A))
    told, now = world.line["status"]["promotedProfile"], with_config(A2)
    changed = marked(now, template="0f3a9c21-000000000000")
    if what == "another template":
        world.templates[Slot.BASELINE], now = kept("old-2"), changed
    elif what == "no uid":
        world.templates[Slot.BASELINE], now = kept("old-1").model_copy(update={"uid": None}), changed
        del told["template"]["uid"]
    elif what == "a workload":
        world.templates[Slot.BASELINE] = kept("old-1").model_copy(update={"kind": "Deployment"})
        told["template"]["kind"], now = "Deployment", changed
    elif what == "another image":
        now = marked(now, image_server="2")
    elif what == "another ConfigMap":
        now = marked(now, config_chat="0f3a9c21-000000000000")
    elif what == "no marks":
        del told["marks"]
    else:
        del told["template"], world.templates[Slot.BASELINE]
        now = changed
    read_anew(world, now)
    assert world.status["promotedProfile"]["digest"] == A.digest
    ready = next(each for each in world.status["conditions"] if each["type"] == "EndpointsReady")
    assert ready["reason"] == "NoReadyPods"
    assert "Profiles are read otherwise than when the promoted one was (spec.ignoredNames" in ready["message"]
    assert "its template with the images and the ConfigMaps of then" in ready["message"]
    assert "changed in place" not in ready["message"]


def said_of_servers(world: World) -> str:
    return str(next(each["message"] for each in world.status["conditions"] if each["type"] == "EndpointsReady"))


def promote(world: World, reason: str = "it is in production") -> None:
    world.annotate(None, override="promote", override_reason=reason, override_actor="oncall").settle()


def test_what_is_not_carried_over_is_told_with_whom_an_override_would_promote_and_how_to_have_the_other() -> None:
    world = rejected_b()
    world.templates[Slot.BASELINE] = kept("old-2")
    read_anew(world, OTHER)
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
    world.slots = {Slot.BASELINE: B2, Slot.CANDIDATE: OTHER}  # exchanged
    world.settle()
    assert f"makes {A2.digest[7:19]} of spec.candidate the promoted profile" in said_of_servers(world)
    promote(world)
    assert world.status["promotedProfile"]["digest"] == A2.digest
    assert world.status["candidate"]["digest"] == B2.digest
    world.slots = {Slot.BASELINE: OTHER, Slot.CANDIDATE: B2}  # and back: names play no role
    world.settle()
    assert world.status["promotedProfile"]["digest"] == A2.digest
    assert world.status["candidate"]["digest"] == B2.digest


def test_where_all_workloads_say_the_same_an_override_promotes_that() -> None:
    world = rejected_b()
    world.templates[Slot.BASELINE] = kept("old-2")
    read_anew(world, OTHER, OTHER)
    assert said_of_servers(world).endswith(
        f"{WORD} makes {A2.digest[7:19]} of spec.candidate the promoted profile: only if that is what was in "
        "production."
    )
    promote(world)
    assert world.status["promotedProfile"]["digest"] == A2.digest


@pytest.mark.parametrize(
    "what", ["another key", "no pod", "made anew", "in a workload", "written out", "in other words", "a new ConfigMap"]
)
def test_the_same_template_with_its_images_and_config_maps_is_the_same_profile(what: str) -> None:
    world = rejected_b(with_config(A))
    told, now = world.line["status"]["promotedProfile"], with_config(A2)
    if what == "another key":  # then keyed marks say nothing of each other
        now = marked(now, template="00000000-1", config_chat="00000000-91c0d2f3a4b6")
    elif what == "no pod":
        now = marked(otherwise(profile("3,1", resolved=False), "log level"), config_chat="0f3a9c21-91c0d2f3a4b5")
    elif what == "made anew":  # the ReplicaSet was, of the same words
        world.templates[Slot.BASELINE] = kept("old-2")
    elif what == "in a workload":
        world.templates[Slot.BASELINE] = kept("old-1").model_copy(update={"kind": "LeaderWorkerSet"})
        told["template"]["kind"] = "LeaderWorkerSet"
    elif what == "written out":
        del told["template"], world.templates[Slot.BASELINE]
    elif what == "in other words":  # of a newer reader
        now = replace(with_config(otherwise(profile("3.0,1.0"), "log level")), marks=now.marks)
    else:
        now = marked(now, config_more="0f3a9c21-555555555555")
    read_anew(world, now)
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["reading"], promoted["since"]) == (now.digest, NEW, told["since"])
    assert list(world.rollouts) == [f"chat-{B.digest[7:15]}"]
    marks = dict(each.rsplit(" ", 1) for each in promoted["marks"])
    assert marks == {"image server": "1"} | dict(each.rsplit(" ", 1) for each in now.marks)


def test_an_image_that_nobody_ran_when_profiles_came_to_be_read_otherwise_is_told_from_another_one_later() -> None:
    world = rejected_b()
    down = otherwise(profile("3,1", resolved=False), "log level")
    read_anew(world, down)
    assert world.status["promotedProfile"]["digest"] == down.digest
    moved = otherwise(profile("3,1", image="2"), "log level")
    world.down[down.digest] = ArmSeen(down.digest, ())
    world.propose(moved, Slot.BASELINE)
    assert world.status["promotedProfile"]["digest"] == down.digest
    assert world.condition("EndpointsReady") == ("False", "NoReadyPods")
    world.propose(A2, Slot.BASELINE)
    assert world.status["promotedProfile"]["digest"] == A2.digest


def test_a_rejection_stays_where_the_rollout_was_made_before_any_pod_of_its_candidate_ran() -> None:
    world = rejected_b(first=profile("2,2", resolved=False))
    rollouts = list(world.rollouts)
    world.now += 100
    read_anew(world)
    assert [each["digest"] for each in world.status["rejectedProfiles"]] == [B2.digest]
    assert list(world.rollouts) == rollouts


def test_a_rejection_is_known_again_without_its_rollout_and_where_its_template_comes_back_much_later() -> None:
    world = rejected_b()
    world.templates[Slot.CANDIDATE] = kept("new-2")
    world.propose(C)
    world.judge(HOLDS)
    del world.rollouts[f"chat-{B.digest[7:15]}"]  # a history limit
    read_anew(world, candidate=otherwise(C, "log level"))
    told = {each["digest"]: each["reading"] for each in world.status["rejectedProfiles"]}
    assert told == {B.digest: OLD, otherwise(C, "log level").digest: NEW}
    rollouts = list(world.rollouts)
    world.templates[Slot.CANDIDATE] = kept("new-1")
    world.propose(B2)
    assert {each["digest"]: each["reading"] for each in world.status["rejectedProfiles"]}[B2.digest] == NEW
    assert list(world.rollouts) == rollouts
    assert world.condition("Gating") == ("False", "RejectedBefore")


def test_one_that_could_not_be_measured_is_not_tried_again_for_being_read_otherwise() -> None:
    world = rejected_b(final=LOST)
    rollouts = list(world.rollouts)
    read_anew(world)
    assert list(world.rollouts) == rollouts
    assert world.status["candidate"]["digest"] == B2.digest


def test_of_a_rejection_whose_status_was_lost_the_digest_of_now_alone_is_told() -> None:
    world = rejected_b()
    del world.line["status"]["rejectedProfiles"]
    read_anew(world)
    assert [each["digest"] for each in world.status["rejectedProfiles"]] == [B2.digest]


def test_what_pods_resolved_after_the_first_look_is_held_against_the_images_of_now() -> None:
    world = World()
    world.reading = OLD
    world.templates = {Slot.BASELINE: kept("old-1")}
    unresolved = profile("3,1", resolved=False)
    world.slots = {Slot.BASELINE: unresolved, Slot.CANDIDATE: unresolved}
    world.settle()
    world.propose(A, Slot.BASELINE)
    assert world.status["promotedProfile"]["digest"] == A.digest
    moved = otherwise(profile("3,1", image="2"), "log level")
    read_anew(world, moved, moved)
    assert world.status["promotedProfile"]["digest"] == A.digest


def test_what_changed_beside_the_profile_before_is_not_held_against_it() -> None:
    world = rejected_b(with_config(A), first=with_config(B), candidate=with_config(B))
    other = {"config_chat": "0f3a9c21-222222222222"}  # of a key that nobody uses: the digests are the same
    world.slots = {Slot.BASELINE: marked(A, **other), Slot.CANDIDATE: marked(B, **other)}
    world.settle()
    rollouts, answer = list(world.rollouts), world.condition("PromotionAllowed")
    read_anew(world, marked(A2, **other), marked(B2, **other))
    assert world.status["promotedProfile"]["digest"] == A2.digest
    assert [each["digest"] for each in world.status["rejectedProfiles"]] == [B2.digest]
    assert (list(world.rollouts), world.condition("PromotionAllowed")) == (rollouts, answer)


@pytest.mark.parametrize("key", ["0f3a9c21", "00000000"])
def test_another_mark_under_which_all_digests_are_the_same_is_written_down_everywhere(key: str) -> None:
    world = rejected_b()
    world.reading = NEW
    world.templates = {}  # of workloads that keep none
    world.slots = {slot: marked(each, template=f"{key}-{slot}") for slot, each in world.slots.items()}
    world.settle()
    rollout = world.of(world.newest)
    told = [world.status[name] for name in ("promotedProfile", "candidate")] + world.status["rejectedProfiles"]
    for each in (*told, rollout["baseline"], rollout["candidate"]):
        assert (each["reading"], each["marks"][0].partition("-")[0]) == (NEW, f"template {key}")


def test_a_rollout_that_goes_on_is_told_with_the_images_that_its_pods_resolved() -> None:
    world = World()
    world.reading = OLD
    world.ready().propose(profile("2,2", resolved=False))
    assert "image server 1" not in world.of(world.newest)["candidate"]["marks"]
    world.propose(B)
    assert world.of(world.newest)["candidate"]["marks"] == ["template 0f3a9c21-2,2", "image server 1"]


def test_an_image_that_was_rejected_is_told_from_another_one_of_its_tag_though_nobody_ran_it_meanwhile() -> None:
    world = rejected_b()
    read_anew(world, candidate=otherwise(profile("2,2", resolved=False), "log level"))
    rollouts = list(world.rollouts)
    world.propose(B2)
    assert list(world.rollouts) == rollouts
    world.propose(otherwise(profile("2,2", image="2"), "log level"))
    assert len(world.rollouts) == len(rollouts) + 1


def test_what_is_told_of_a_profile_stays_while_its_digest_does_and_nothing_is_written_again() -> None:
    world = rejected_b()
    told = world.of(world.newest)["candidate"]
    (part,) = B.parts
    named = [
        replace(each, value="other (sha256 1)", written="other") if each.written else each for each in part.settings
    ]
    world.propose(replace(B, parts=(replace(part, settings=tuple(named)),)))
    assert world.of(world.newest)["candidate"] == told
    assert plan(world.look()).rollouts == {}


def test_of_two_that_nobody_runs_images_that_are_known_tell_them_apart() -> None:
    one = {"digest": "d", "writtenDigest": "d", "marks": ["image server 1"]}
    other = {"digest": "e", "writtenDigest": "d", "marks": ["image server 2"]}
    assert not same_profile(one, other)
    assert same_profile(one, other | {"marks": ["image server 1", "config chat 0f3a9c21-1"]})


COLUMNS = ("decision", "promotion", "rollback", "reason", "prefills", "currentRollout")


@pytest.mark.parametrize("final", [PROMOTES, HOLDS, ROLLS_BACK])
def test_the_answer_of_the_line_and_of_its_rollout_stays_and_their_profiles_are_told_as_read_now(
    final: Verdict,
) -> None:
    world = rejected_b(final=final)
    before, permissions = {key: world.status.get(key) for key in COLUMNS}, world.condition("PromotionAllowed")
    rollout = world.newest
    answer = {key: value for key, value in world.of(rollout).items() if key not in ("baseline", "candidate")}
    if final is PROMOTES:
        world.ends(WorkKind.FLOOR, floor=SOUND)
        world.settle()
    read_anew(world)
    assert {key: world.status.get(key) for key in COLUMNS} == before
    assert world.condition("PromotionAllowed") == permissions
    now = world.of(rollout)
    assert {key: value for key, value in now.items() if key not in ("baseline", "candidate")} == answer
    assert [now[arm]["digest"] for arm in ("baseline", "candidate")] == [A2.digest, B2.digest]
    assert [now[arm]["reading"] for arm in ("baseline", "candidate")] == [NEW, NEW]
    assert world.status["promotedProfile"]["digest"] == (B2 if final is PROMOTES else A2).digest


@pytest.mark.parametrize("at_the_same_look", [True, False])
def test_a_person_may_still_promote_what_was_rejected_and_the_word_is_about_what_is_read_now(
    at_the_same_look: bool,
) -> None:
    world = rejected_b()
    rollout = world.newest
    if not at_the_same_look:
        read_anew(world)
    world.annotate(None, override="promote", override_reason="looked at every answer", override_actor="ana")
    read_anew(world)
    handled = world.status["lastHandledOverride"]
    assert (handled["outcome"], handled["message"]) == (
        "Obeyed",
        f"About {rollout}: {A2.digest[7:15]} -> {B2.digest[7:15]}.",
    )
    promoted = world.status["promotedProfile"]
    assert (promoted["digest"], promoted["how"], promoted["rollout"]) == (B2.digest, "Overridden", rollout)
    override = world.of(rollout)["override"]
    assert (override["baselineDigest"], override["candidateDigest"]) == (A2.digest, B2.digest)


def test_a_standing_word_on_an_ended_rollout_goes_on_under_the_digests_of_now() -> None:
    world = rejected_b()
    world.annotate(None, override="rollback", override_reason="no more of it", override_actor="ana").settle()
    rollout = world.newest
    read_anew(world)
    override = world.of(rollout)["override"]
    assert (override["verdict"], override["baselineDigest"], override["candidateDigest"]) == (
        "Rollback",
        A2.digest,
        B2.digest,
    )
    assert world.status["decision"] == "Rollback"


def test_a_rollout_that_goes_on_is_superseded_by_one_under_the_digests_of_now() -> None:
    world = World()
    world.reading = OLD
    world.templates = {Slot.BASELINE: kept("old-1"), Slot.CANDIDATE: kept("new-1")}
    world.ready().propose(B)
    first = world.newest
    read_anew(world)
    assert world.condition("Superseded", first) == ("True", "BaselineChanged")
    assert world.newest == f"chat-{B2.digest[7:15]}"


def test_a_change_that_is_none_of_reading_is_still_a_change() -> None:
    world = rejected_b()
    world.reading = OLD
    world.slots = {Slot.BASELINE: A2, Slot.CANDIDATE: B2}
    world.down[A.digest] = ArmSeen(A.digest, ())
    world.settle()
    assert world.status["promotedProfile"]["digest"] == A.digest
    assert "changed in place" in str(world.status["conditions"])


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
