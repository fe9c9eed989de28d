"""`run --budget`: how many prefills a run may spend, and going on with one that ended on its budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefillgate.api.policy import PolicyDocument
from prefillgate.cli.errors import BadInput
from prefillgate.cli.outcome import say
from prefillgate.core.decision import Reason
from prefillgate.core.gate import Gate
from prefillgate.core.journal import BudgetRaised, Journal
from prefillgate.core.schedule import Stop, next_step
from prefillgate.replay.session import RunRequest


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


def raise_budget(journal: Journal, gate: Gate, request: RunRequest, now: float) -> None:
    """Write down that a run in its store may spend more. Raises `BadInput` for less than it may spend already.

    Without --budget the store keeps the budget it has, whatever the policy's file says by now; of a run file only a
    larger one counts, since the run may have gone on with the command that was printed.
    """
    asked = request.budget
    if asked is None:
        policy = request.policy.policy.budget
        if policy != gate.plan.policy.budget:
            say(f"budget: {gate.budget} prefills, as the store has it (the policy says {policy}; --budget raises it)")
        return
    if asked < gate.budget and request.budget_by != "--budget":
        say(f"budget: {gate.budget} prefills, as the store has it ({request.budget_by} says {asked})")
        return
    if asked < gate.budget:
        raise BadInput(
            f"{request.budget_by} {asked}: the run in {request.store} may spend {gate.budget} prefills and has spent "
            f"{gate.prefills_used} (allowed: {gate.budget} or more)"
        )
    if asked == gate.budget:
        return
    step = next_step(gate)
    if isinstance(step, Stop) and step.ruling.reason not in GOES_ON:
        say(f"{request.budget_by} {asked} changes nothing: the run ended with {step.ruling.reason}, not on its budget")
        return
    event = BudgetRaised(now, asked)
    say(f"budget: raised from {gate.budget} to {asked} prefills, {gate.prefills_used} are spent")
    journal.append(event)
    gate.apply(event)


# A run that ended so goes on with the same command: with a new deadline, or with servers that are back.
MENDABLE = frozenset(
    {
        Reason.DEADLINE,
        Reason.INVALID_CELLS,
        Reason.OTHER_TRAFFIC,
        Reason.BASELINE_UNAVAILABLE,
        Reason.CANDIDATE_UNAVAILABLE,
        Reason.MEASUREMENT_LOST,
        Reason.SERVER_LOST,
    }
)
GOES_ON = MENDABLE | {Reason.BUDGET_SPENT}
