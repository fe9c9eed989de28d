"""The safe test for a rollback: one factor per complete pair (STATISTICS.md section 4).

Source: Turner, Ly and Gruenwald, arXiv 2106.02693, one observation in each arm. Under the null that on every
prompt the candidate is no worse than the baseline each factor's expectation is at most 1, so the product may be
looked at after every pair (Ville): P(E ever reaches t) <= 1/t.
"""

from __future__ import annotations

from prefillgate.core.policy import ReplicatePolicy


def pair_factor(candidate_bad: bool, baseline_bad: bool, planned_baseline: float, planned_candidate: float) -> float:
    """What one pair multiplies E by.

    `planned_baseline` and `planned_candidate` are bad rates in (0, 1), with theta_0 their mean:
    [theta_c/theta_0]^x [(1-theta_c)/(1-theta_0)]^(1-x) * [theta_b/theta_0]^y [(1-theta_b)/(1-theta_0)]^(1-y).
    """
    mean = (planned_baseline + planned_candidate) / 2
    candidate = planned_candidate / mean if candidate_bad else (1 - planned_candidate) / (1 - mean)
    baseline = planned_baseline / mean if baseline_bad else (1 - planned_baseline) / (1 - mean)
    return candidate * baseline


def replicate_threshold(number: int, policy: ReplicatePolicy, flags: int = 1) -> float:
    """E at which replicate `number` confirms: 40, 80, then 80(j-2)(j-1) = 160, 480, 960, ...

    Replicates are numbered from 1 for the life of a pair of profile digests; the false-rollback bounds sum to
    1/40 + 1/80 + 1/80 = .05 for ever. `flags` declared flags multiply the threshold (section 7).
    Raises ValueError for a number below 1.
    """
    if number < 1:
        raise ValueError(f"replicate number {number}: replicates are numbered from 1")
    base = policy.threshold
    if number == 1:
        return base * flags
    if number == 2:
        return 2 * base * flags
    return 2 * base * (number - 2) * (number - 1) * flags
