"""A plan with the policy that it can keep: fitted to its shape, and to what it takes over from earlier runs."""

from __future__ import annotations

from dataclasses import replace

from prefillgate.core.journal import Planned
from prefillgate.core.policy import Policy
from prefillgate.core.shape import fitted


def fitted_plan(plan: Planned) -> Planned:
    """The plan, its policy without what is not run in it. Fitting a plan twice changes nothing.

    A floor spends both its passes, however small the policy's budget. With a floor of an earlier run there is no A/A
    pass. A small replay after a promotion may spend twice its prefills, so that cells that are not fresh end it some
    day; a replicate that answers such a replay's alarm is all there is to its run, and may spend all its pairs.
    """
    policy = fitted(plan.policy, plan.shape)
    if plan.shape.baseline_alone:
        policy = replace(policy, budget=2 * len(plan.cases))
    if plan.floor is not None:
        policy = replace(policy, aa_check=False)
    if plan.watching is not None:
        policy = replace(policy, budget=2 * plan.watching.prefills)
    if plan.trigger is not None:
        policy = _replicate_alone(policy)
    return replace(plan, policy=policy)


def _replicate_alone(policy: Policy) -> Policy:
    return replace(
        policy,
        baseline_pass=0,
        aa_check=False,
        budget=max(policy.budget, 2 * policy.replicate.max_pairs),
        throughput=replace(policy.throughput, required=False, max_pairs=0),
        replicate=replace(policy.replicate, max_attempts=1),
    )
