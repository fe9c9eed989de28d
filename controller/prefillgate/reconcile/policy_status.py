"""What the status of a PromotionPolicy says: a function of the object and what was read of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prefillgate.api.errors import Problem
from prefillgate.reconcile.own_status import own_status
from prefillgate.reconcile.snapshot import Object, PolicySeen


def policy_status(thing: Object, seen: PolicySeen | None, problems: Iterable[Problem], now: float) -> dict[str, Any]:
    """The status as it stands on the wire: what the policy comes to, or every field at fault."""
    told = own_status(thing, problems, None, now)
    if seen is not None:
        told |= {"acceptance": list(seen.acceptance), "budgetPrefills": seen.budget, "sha256": seen.sha256}
    return told
