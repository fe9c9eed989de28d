"""What is allowed in a policy and still unwise: warnings, one sentence each."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prefillgate.api.check_spec import CheckSpec
from prefillgate.api.check_type import CheckType
from prefillgate.api.policy import PolicyDocument
from prefillgate.core.acceptance import AcceptanceTable, false_promotion, find_table, power
from prefillgate.core.policy import Policy, ThroughputPolicy

GOOD_POWER = 0.8
REPLICATE_PREFILLS = 10  # what the first replicate needs of the budget; the second needs 12
_ONE_SIDED_05, _POWER_90 = 1.6449, 1.2816


def policy_warnings(document: PolicyDocument) -> tuple[str, ...]:
    """Every warning about a policy that can be used, in the order of its fields."""
    policy = document.policy
    found = [*_power(policy), *_budget(policy), *_throughput(policy.throughput), *_flags(document)]
    return (*found, *_checks(document.checks))


def promotion_power(policy: Policy) -> float:
    """Chance that the acceptance table promotes a candidate at the healthy rate; alarms and budget left out."""
    table = AcceptanceTable(policy.margin, policy.alpha, policy.acceptance)
    return power(table, policy.healthy_rate).promote


def _power(policy: Policy) -> Iterator[str]:
    table = AcceptanceTable(policy.margin, policy.alpha, policy.acceptance)
    if policy.healthy_rate >= policy.margin:
        yield (
            f"spec.healthyRateBasisPoints: a healthy candidate fails in {policy.healthy_rate:.2%} of prefills, which is"
            f" not below the margin of {policy.margin:.2%}: it is promoted by accident only"
        )
        return
    promoted = promotion_power(policy)
    if promoted < GOOD_POWER:
        yield (
            f"P(promote) is {promoted:.3f} for a candidate that fails in {policy.healthy_rate:.2%} of prefills, below "
            f"{GOOD_POWER}; {_margin_that_works(policy)}"
        )
    error = false_promotion(table)
    smaller = find_table(policy.margin, policy.alpha, bad_allowed=min(2, table.bad_allowed)).entries
    if len(smaller) == len(table.entries) and smaller[-1] < table.last and smaller[0] <= table.entries[0]:
        yield f"spec.acceptance: {list(smaller)} costs less and errs no more than alpha (this one errs {error:.6f})"


def _margin_that_works(policy: Policy) -> str:
    for percent in range(math.floor(policy.margin * 100) + 1, 100):
        table = find_table(percent / 100, policy.alpha)
        if power(table, policy.healthy_rate).promote >= GOOD_POWER:
            return f"a margin of {percent} % would reach it"
    return "no margin reaches it"


def _budget(policy: Policy) -> Iterator[str]:
    clean = policy.acceptance[0] + policy.baseline_pass
    if policy.budget < clean:
        yield (
            f"spec.budgetPrefills: {policy.budget} leaves no room for the baseline pass of {policy.baseline_pass} "
            f"beside the {policy.acceptance[0]} prefills that promotion needs; {clean} would"
        )
    elif policy.budget < policy.acceptance[-1] + policy.baseline_pass + REPLICATE_PREFILLS:
        yield (
            f"spec.budgetPrefills: {policy.budget} may end before {policy.acceptance[-1]} prefills with "
            f"{len(policy.acceptance) - 1} bad and a replicate of {REPLICATE_PREFILLS} have been made"
        )
    if policy.replicate.max_attempts == 0:
        yield "spec.replicate.maxAttempts: 0 means that no regression can ever be confirmed; a rollback needs a person"
    if policy.replicate.gap_seconds < 600:
        yield (
            f"spec.replicate.gapSeconds: {policy.replicate.gap_seconds:g} is less than 10 minutes, and a bad window "
            "fools any number of prefills taken inside it"
        )


def pairs_needed(throughput: ThroughputPolicy) -> int | None:
    """Pairs after which an equally fast candidate is cleared in 9 of 10 runs, about; None at a margin of 0 or more.

    Normal approximation of the paired test (one-sided .05, power .9, sd of a log ratio = CV times the root of 2) and
    two pairs more for its small samples. It meets the pairs of STATISTICS.md section 8 to within five.
    """
    if throughput.margin >= 0:
        return None
    distance = -math.log1p(throughput.margin)
    pairs = 2 * ((_ONE_SIDED_05 + _POWER_90) * throughput.planned_cv / distance) ** 2
    return max(throughput.min_pairs, math.ceil(pairs) + 2)


def _throughput(throughput: ThroughputPolicy) -> Iterator[str]:
    if not throughput.required:
        return
    needed = pairs_needed(throughput)
    if needed is None:
        yield (
            f"spec.throughput.marginBasisPoints: {throughput.margin * 10_000:.0f} asks for a faster candidate; one "
            "that is equally fast is never promoted"
        )
    elif needed > throughput.max_pairs:
        yield (
            f"spec.throughput.marginBasisPoints: {throughput.margin:.2%} at a cell variation of "
            f"{throughput.planned_cv:.1%} needs about {needed} pairs and maxPairs is {throughput.max_pairs}"
        )
    if throughput.min_output_tokens < 32:
        yield (
            f"spec.throughput.minOutputTokens: at {throughput.min_output_tokens} tokens the rate of one cell varies by "
            "7 % and more; 32 or more give a steadier pair"
        )


def _flags(document: PolicyDocument) -> Iterator[str]:
    declared = {spec.name for spec in document.checks or ()} | {kind.default_name for kind in CheckType}
    for place, flag in enumerate(document.policy.flags):
        field = f"spec.flags[{place}]"
        if "equal_to_baseline" in flag.checks:
            yield (
                f"{field}: equal_to_baseline calls a healthy candidate bad: outputs of unlike KV cache types differ on "
                "a third or more of healthy outputs, and any other change of profile may do the same"
            )
        for check in flag.checks:
            if check not in declared:
                yield f"{field}: the policy declares no check {check}; only a line of the replay set can"
    if document.checks and len(document.policy.flags) == 1 and document.policy.flags[0].checks:
        unused = {spec.name for spec in document.checks} - set(document.policy.flags[0].checks)
        if unused:
            yield f"spec.flags: no flag names {', '.join(sorted(unused))}; they are reported and decide nothing"


def _checks(checks: tuple[CheckSpec, ...] | None) -> Iterator[str]:
    if checks is None:
        return
    if not checks:
        yield "spec.checks: an empty list; an output is judged only by what its own line declares"
    elif all(spec.type is CheckType.EQUAL_TO_BASELINE for spec in checks):
        yield "spec.checks: equal_to_baseline is reported and in no default flag, so nothing would be judged"
    if any(spec.type is CheckType.EQUAL_TO_BASELINE for spec in checks):
        yield (
            "spec.checks: equal_to_baseline is reported and never in the default flag: unlike KV cache types differ on "
            "a third or more of healthy outputs"
        )
    shape_only = {CheckType.BARE_VERDICT, CheckType.REGEX, CheckType.JSON_SCHEMA}
    if checks and {spec.type for spec in checks} <= shape_only:
        yield (
            "spec.checks: only the shape of an answer is judged; an expected answer (`expect` on a line) catches a "
            "broken server that writes the right shape"
        )
