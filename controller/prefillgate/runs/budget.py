"""Going on with a run that ended on its budget, and which endings are tried anew."""

from __future__ import annotations

from dataclasses import replace

from prefillgate.core.decision import Reason
from prefillgate.core.fitted_plan import fitted_plan
from prefillgate.core.gate import Gate
from prefillgate.core.journal import BudgetRaised, Journal
from prefillgate.core.schedule import Stop, next_step
from prefillgate.replay.session import RunRequest
from prefillgate.runs.around import Around
from prefillgate.runs.errors import BadInput


def raise_budget(journal: Journal, gate: Gate, request: RunRequest, around: Around) -> None:
    """Write down that a run in its store may spend more. Raises `BadInput` for less than it may spend already.

    Without --budget the store keeps the budget it has, whatever the policy's file says by now; of a run file only a
    larger one counts, since the run may have gone on with the command that was printed.
    """
    asked = request.budget
    if asked is None:
        policy = fitted_plan(replace(gate.plan, policy=request.policy.policy)).policy.budget
        if policy != gate.plan.policy.budget:
            around.said(
                f"budget: {gate.budget} prefills, as the store has it (the policy says {policy}; --budget raises it)"
            )
        return
    if asked < gate.budget and request.budget_by != "--budget":
        around.said(f"budget: {gate.budget} prefills, as the store has it ({request.budget_by} says {asked})")
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
        around.said(
            f"{request.budget_by} {asked} changes nothing: the run ended with {step.ruling.reason}, not on its budget"
        )
        return
    event = BudgetRaised(around.clock.now(), asked)
    around.said(f"budget: raised from {gate.budget} to {asked} prefills, {gate.prefills_used} are spent")
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
