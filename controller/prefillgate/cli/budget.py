"""`run --budget`: how many prefills a run may spend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefillgate.api.policy import PolicyDocument
from prefillgate.cli.errors import BadInput
from prefillgate.runs.budget import GOES_ON as GOES_ON
from prefillgate.runs.budget import MENDABLE as MENDABLE


def budget_of(options: dict[str, Any], from_file: dict[str, Any]) -> tuple[int | None, str]:
    """The budget asked for, None where the policy's or the store's holds, and the option or the field it stands in."""
    if options["budget"] is None and from_file.get("budget") is not None:
        return from_file["budget"], "spec.budgetPrefills"
    return options["budget"], "--budget"


def with_budget(policy: PolicyDocument, budget: int | None, named: str = "--budget") -> PolicyDocument:
    """The policy with the budget asked for. Raises `BadInput` for one that could never promote."""
    if budget is None:
        return policy
    least = policy.policy.acceptance[0]
    if budget < least:
        raise BadInput(
            f"{named} {budget}: too few prefills (allowed: {least} or more, the fresh prefills that promotion needs "
            "with 0 bad)"
        )
    return replace(policy, policy=replace(policy.policy, budget=budget))
