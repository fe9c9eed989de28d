"""The kubectl commands of a person who decides otherwise than the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefillgate.api.kinds.names import OVERRIDE, OVERRIDE_EXPIRES, OVERRIDE_REASON, PROFILE_ROLLOUT

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


def withdraw_command(view: LineView, cluster: Cluster) -> str:
    """What takes back the override that stands; empty where none does, and after a promotion, which stays."""
    standing = None if view.rollout is None else view.rollout.status.override
    if view.rollout is None or standing is None or standing.verdict == "Promote":
        return ""
    words = (f"{name}-" for name in (OVERRIDE, OVERRIDE_REASON, OVERRIDE_EXPIRES))
    return cluster.kubectl(view.namespace, "annotate", PROFILE_ROLLOUT.singular, view.rollout.name, *words)
