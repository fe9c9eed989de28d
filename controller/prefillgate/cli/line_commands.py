"""The kubectl commands of a person who decides otherwise than the evidence."""

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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefillgate.cli.cluster import Cluster
    from prefillgate.report.line_view import LineView


def override_command(view: LineView, cluster: Cluster, rollout: Mapping[str, Any] | None) -> str:
    """What overrides the answer: `hold` a promotion, `promote` against a rollback, else `rollback`.

    Empty where there is no rollout, since an override is about one pair of profiles, and where one stands already.
    """
    if view.rollout is None or rollout is None or view.rollout.status.override is not None:
        return ""
    decision = view.rollout.status.decision
    allowed = (None, None) if decision is None else (decision.promotion, decision.rollback)
    value = "hold" if allowed[0] == "Allowed" else "promote" if allowed[1] == "Allowed" else "rollback"
    there = (rollout.get("metadata") or {}).get("annotations") or {}
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


def withdraw_command(view: LineView, cluster: Cluster) -> str:
    """What takes back the override that stands; empty where none does, and after a promotion, which stays."""
    standing = None if view.rollout is None else view.rollout.status.override
    if view.rollout is None or standing is None or standing.verdict == "Promote":
        return ""
    words = (f"{name}-" for name in (OVERRIDE, OVERRIDE_REASON, OVERRIDE_EXPIRES))
    return cluster.kubectl(view.namespace, "annotate", PROFILE_ROLLOUT.singular, view.rollout.name, *words)
