"""The kubectl commands that a person paged may copy: overriding, taking that back, rolling back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefillgate.api.kinds.names import (
    OVERRIDE,
    OVERRIDE_EXPIRES,
    OVERRIDE_REASON,
    PROFILE_ROLLOUT,
    RERUN,
    SERVING_LINE,
)
from prefillgate.report.line_page import GO_BACK, ROLL_BACK, TAKE_BACK
from prefillgate.report.line_page import OVERRIDE as OVERRIDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefillgate.cli.cluster import Cluster
    from prefillgate.kube.lines import LineRead
    from prefillgate.report.line_view import LineView


def commands_of(view: LineView, cluster: Cluster, found: LineRead) -> list[tuple[str, str]]:
    """All that may be copied from the page about a line, each behind what it is for."""
    told = [(TAKE_BACK, each) for each in withdraw_commands(view, cluster, found)]
    told += [(GO_BACK, back_command(view, cluster)), (ROLL_BACK, roll_back_command(view, cluster, found.line))]
    told.append((OVERRIDING, override_command(view, cluster, found.rollout)))
    return [(name, command) for name, command in told if command]


def override_command(view: LineView, cluster: Cluster, rollout: Mapping[str, Any] | None) -> str:
    """What overrides the answer: `hold` a promotion, `promote` against a rollback, else `rollback`.

    Empty where there is no rollout, since an override is about one pair of profiles, and where one stands already.
    """
    if view.rollout is None or rollout is None or view.rollout.status.override is not None or not view.is_there:
        return ""
    decision = view.rollout.status.decision
    allowed = (None, None) if decision is None else (decision.promotion, decision.rollback)
    value = "hold" if allowed[0] == "Allowed" else "promote" if allowed[1] == "Allowed" else "rollback"
    there = _annotations(_metadata(rollout))
    again = ["--overwrite"] if OVERRIDE in there or OVERRIDE_REASON in there else []
    words = [f"{OVERRIDE}={value}", f'{OVERRIDE_REASON}="..."']
    return cluster.kubectl(view.namespace, "annotate", PROFILE_ROLLOUT.singular, view.rollout.name, *again, *words)


def back_command(view: LineView, cluster: Cluster) -> str:
    """What makes the previous profile the promoted one, by a person's word. Where it is the candidate that is a
    promotion of its rollout; while it only stands in a workload of its own it is asked for by the same command. Empty
    where nothing is to be rolled back, and where another profile is the candidate: the command would promote that."""
    previous, promoted = view.goes_back_to, view.status.promoted_profile
    if previous is None or promoted is None:
        return ""
    words = ["annotate", "--overwrite"]
    own = [f"{OVERRIDE}=promote", f'{OVERRIDE_REASON}="..."']
    if view.candidate_is(previous):
        current = view.status.current_rollout
        if view.rollout is None or view.rollout.name != current:
            return ""
        return cluster.kubectl(view.namespace, *words, PROFILE_ROLLOUT.singular, view.rollout.name, *own)
    if view.status.candidate is not None:
        return ""
    own.insert(0, f"{RERUN}=back-{promoted.since}")  # another one after each promotion
    return cluster.kubectl(view.namespace, *words, SERVING_LINE.singular, view.name, *own)


def roll_back_command(view: LineView, cluster: Cluster, line: Mapping[str, Any] | None) -> str:
    """What has an allowed rollback of a candidate that is not in production: its workload's template of before again,
    or none of its pods where it has a workload of its own. Empty for a workload that kubectl cannot do that to."""
    spec = (line or {}).get("spec") or {}
    arms = [(spec.get(slot) or {}).get("workloadRef") or {} for slot in ("candidate", "baseline")]
    alone, there = arms
    ref = alone or there
    if not view.rolls_back_candidate or (spec.get("candidate") and not alone):
        return ""
    if ref.get("apiVersion") != "apps/v1" or ref.get("kind") not in ("Deployment", "StatefulSet", "DaemonSet"):
        return ""
    what = f"{ref['kind'].lower()}/{ref.get('name')}"
    if not alone or (alone.get("kind"), alone.get("name")) == (there.get("kind"), there.get("name")):
        return cluster.kubectl(view.namespace, "rollout", "undo", what)
    return "" if ref["kind"] == "DaemonSet" else cluster.kubectl(view.namespace, "scale", "--replicas=0", what)


def withdraw_commands(view: LineView, cluster: Cluster, found: LineRead) -> tuple[str, ...]:
    """What takes back the override that stands: of each object that bears one, the one that is obeyed first. None where
    no override stands, and after a promotion, which stays."""
    standing = None if view.rollout is None else view.rollout.status.override
    if view.rollout is None or standing is None or standing.verdict == "Promote":
        return ()
    line = (SERVING_LINE.singular, view.name, _metadata(found.line))
    own = (PROFILE_ROLLOUT.singular, view.rollout.name, _metadata(found.rollout))
    of_line = bool(line[2].get("uid")) and (standing.key or "").startswith(f"{line[2]['uid']}/")
    obeyed, other = (line, own) if of_line else (own, line)
    about_it = other is own or view.status.current_rollout == view.rollout.name
    bearers = [obeyed, *([other] if about_it and OVERRIDE in _annotations(other[2]) else [])]
    words = [f"{name}-" for name in (OVERRIDE, OVERRIDE_REASON, OVERRIDE_EXPIRES)]
    return tuple(cluster.kubectl(view.namespace, "annotate", kind, name, *words) for kind, name, _ in bearers)


def _metadata(thing: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (thing or {}).get("metadata") or {}


def _annotations(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    return metadata.get("annotations") or {}
