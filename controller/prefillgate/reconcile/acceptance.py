"""Whether a line and its rollouts can be used as they are written, and whether their servers take requests."""

from __future__ import annotations

from collections.abc import Iterable

from prefillgate.api.errors import Problem
from prefillgate.api.kinds.reasons import ConditionType
from prefillgate.reconcile.findings import Finding
from prefillgate.reconcile.naming import digits_of
from prefillgate.reconcile.rereading import DIGITS_OF_A_NAME
from prefillgate.reconcile.roles import is_profile
from prefillgate.reconcile.seen import LineView, RolloutView, wire
from prefillgate.reconcile.snapshot import ArmSeen, Trouble

ACCEPTED, READY = ConditionType.ACCEPTED, ConditionType.ENDPOINTS_READY
MOST_TOLD = 5
_IN_PLACE = (
    "Its workload was changed in place, and no pod of the promoted profile is left to compare with: put the profile "
    "back, hold the next rolling update until it is judged (minReadySeconds), or take isolation Scratch, which makes a "
    "pod of the recorded template."
)


_READ_OTHERWISE = (
    "Profiles are read otherwise than when the promoted one was (spec.ignoredNames, spec.redactedNames, spec.engine, "
    "the seal key or the controller's version was changed), and no workload has its template with the images and the "
    "ConfigMaps of then: put that back, or the promoted profile's template back."
)


def line_accepted(view: LineView) -> Finding:
    """What is wrong with the line, by the path of each field; else whether everything it refers to was read."""
    snapshot = view.snapshot
    if snapshot.problems:
        return Finding(ACCEPTED, "False", "SpecInvalid", _problems(snapshot.problems))
    troubles = [each for each in snapshot.troubles if each.condition is ACCEPTED]
    if troubles:
        return Finding(ACCEPTED, "False", troubles[0].reason, _troubles(troubles))
    missing = [
        name
        for name, thing in (
            ("its spec", snapshot.spec),
            ("its policy", snapshot.policy),
            ("its replay set", snapshot.replay_set),
            ("the profile of its baseline", view.promoted),
        )
        if thing is None
    ]
    if missing:
        return Finding(ACCEPTED, "Unknown", "Pending", f"Not read yet: {', '.join(missing)}.")
    return Finding(ACCEPTED, "True", "Accepted")


def rollout_accepted(view: LineView, rollout: RolloutView, line: Finding) -> Finding:
    """A rollout is as good as its line, and compares what it was made for."""
    spec, snapshot = rollout.spec, view.snapshot
    if spec is None:
        return Finding(ACCEPTED, "False", "SpecInvalid", _problems(rollout.seen.problems))
    if not line.holds:
        return line
    assert snapshot.policy is not None and snapshot.replay_set is not None
    for field, named, there in (
        ("spec.policy", spec.policy, snapshot.policy),
        ("spec.replaySet", spec.replay_set, snapshot.replay_set),
    ):
        if named is not None and named.name != there.name:
            detail = f"{field}.name: {named.name} is not the line's (allowed: {there.name})."
            return Finding(ACCEPTED, "False", "SpecInvalid", detail)
        if named is not None and named.sha256 is not None and named.sha256 != there.sha256:
            detail = (
                f"{field}: {there.name} says something else than when this rollout was made. Annotate the line with "
                "prefillgate.io/rerun to have a rollout by what it says now."
            )
            return Finding(ACCEPTED, "False", "DigestMismatch", detail)
    return Finding(ACCEPTED, "True", "Accepted")


def endpoints_ready(view: LineView) -> Finding:
    """Whether the servers of every profile that is asked take requests."""
    troubles = [each for each in view.snapshot.troubles if each.condition is READY]
    if troubles:
        return Finding(READY, "False", troubles[0].reason, _troubles(troubles))
    arms = [("baseline", view.snapshot.baseline)]
    if view.candidate is not None:
        arms.append(("candidate", view.snapshot.candidate))
    found = [_arm(name, arm) for name, arm in arms]
    if found[0].reason == "NoReadyPods" and _changed_in_place(view):
        found[0] = Finding(READY, "False", "NoReadyPods", f"{found[0].detail} {_why_gone(view)}")
    if _one_at_a_time(view) and any(each.holds for each in found):
        found = [each for each in found if each.holds or each.reason == "CandidateUnavailable"]
    if view.candidate is None:
        found += [_at_rest(f"spec.{slot}.endpoint", arm) for slot, arm in view.snapshot.resting]
    worst = next((each for each in found if each.status == "False"), None)
    return worst or next((each for each in found if not each.holds), Finding(READY, "True", "Reachable"))


def _why_gone(view: LineView) -> str:
    known, now = None if view.promoted is None else view.promoted.reading, view.snapshot.reading
    if known is None or now is None or known == now:
        return _IN_PLACE
    return f"{_READ_OTHERWISE} {_who_can_be_promoted(view)}".strip()


def _who_can_be_promoted(view: LineView) -> str:
    """What an override would promote, which need not be what is in production, and how to have it be that."""
    if view.candidate is None:
        return ""
    named = f"{digits_of(view.candidate.profile.digest, DIGITS_OF_A_NAME)} of spec.{view.candidate.slot}"
    told = (
        f"An override (promote; with a rerun where no rollout is about it) makes {named} the promoted profile: only if "
        "that is what was in production."
    )
    other = next((each for each in view.snapshot.slots if each.profile.digest != view.candidate.profile.digest), None)
    if other is None:
        return told
    others = f"{digits_of(other.profile.digest, DIGITS_OF_A_NAME)} of spec.{other.slot}"
    return f"{told} If it was {others}, exchange spec.baseline and spec.candidate first, then that is the candidate."


def baseline_ready(view: LineView) -> bool:
    """Whether the promoted profile alone may be asked."""
    return _arm("baseline", view.snapshot.baseline).holds


def _changed_in_place(view: LineView) -> bool:
    """Whether no workload says the promoted profile any more, so that nothing will bring its pods back."""
    slots, promoted = view.snapshot.slots, view.promoted
    return bool(slots) and promoted is not None and not any(is_profile(each.profile, wire(promoted)) for each in slots)


def _one_at_a_time(view: LineView) -> bool:
    """Whether one of both profiles may be down, since the other one takes its place."""
    return view.snapshot.spec is not None and view.snapshot.spec.arms == "Sequential"


def _arm(name: str, arm: ArmSeen | None) -> Finding:
    if arm is None:
        return Finding(READY, "Unknown", "ServersUnknown")
    if arm.unavailable is not None:
        reason = "CandidateUnavailable" if name == "candidate" else "EndpointUnreachable"
        return Finding(READY, "False", reason, f"The {name}: {arm.unavailable}")
    if arm.unreachable is not None:
        return Finding(READY, "False", "EndpointUnreachable", f"The {name}: {arm.unreachable}")
    if not arm.ready:
        troubles = sorted({server.trouble for server in arm.servers if server.trouble})
        return Finding(READY, "False", "NoReadyPods", _sentence(f"The {name} has none", troubles))
    return Finding(READY, "True", "Reachable") if arm.asked else Finding(READY, "Unknown", "Probing")


def _at_rest(field: str, arm: ArmSeen) -> Finding:
    """Of a slot that no profile is asked by now: its servers, where it has any, are asked as it is written."""
    if arm.unreachable is not None:
        return Finding(READY, "False", "EndpointUnreachable", f"{field}: {arm.unreachable}")
    return Finding(READY, "True", "Reachable") if arm.asked else Finding(READY, "Unknown", "Probing")


def _sentence(start: str, more: list[str]) -> str:
    return f"{start}: {'; '.join(more[:MOST_TOLD])}" if more else f"{start}."


def _problems(problems: Iterable[Problem]) -> str:
    told = [str(Problem("", each.field, each.message, each.allowed)) for each in problems]
    return _bounded_list(told)


def _troubles(troubles: Iterable[Trouble]) -> str:
    return _bounded_list([f"{each.field}: {each.detail}" if each.field else each.detail for each in troubles])


def _bounded_list(told: list[str]) -> str:
    more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return "; ".join([*told[:MOST_TOLD], *more])
