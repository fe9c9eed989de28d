"""What a sequential run costs before it begins: prefills, and swaps of servers, which cost more than prefills."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prefillgate.core.policy import Policy
from prefillgate.core.prefill_cost import PrefillCost
from prefillgate.core.window_replicate import later_size, window_pairs_needed
from prefillgate.core.windows import baseline_most, window_size


@dataclass(frozen=True, slots=True)
class Swaps:
    """Starts of a server that the run asks for, beside the one it begins with."""

    least: int
    most: int  # the coin of the first pair puts the candidate first
    replicate_clean: int  # more, for a replicate whose first window is clean, and to go on after it
    replicate_confirmed: int  # more, the fewest in which a replicate can confirm


def window_pairs(policy: Policy, pairable: int) -> int:
    """Pairs of windows of a run in which nothing is bad and the speed is settled as early as can be."""
    throughput = policy.throughput
    if not throughput.max_pairs or not pairable:
        return 0
    return min(throughput.min_pairs, throughput.max_pairs) if throughput.required else 1


def window_cost(policy: Policy, prompts: int, pairable: int) -> PrefillCost:
    """What a sequential run over `prompts` prompts costs, of which `pairable` can tell a speed.

    The first cell of each window warms up; it is counted apart and counts for quality. Raises ValueError for a run
    without prompts.
    """
    size, pairs = window_size(policy, prompts), window_pairs(policy, pairable)
    covered = min(pairable, policy.throughput.max_prompts)
    in_turn = [math.ceil(size * count / prompts) for count in (pairable, covered)]
    halves = min(in_turn[0], max(in_turn[1], baseline_most(policy)))
    least = max(policy.acceptance[0], prompts)
    replicate = policy.replicate
    return PrefillCost(
        baseline_pass=prompts if policy.aa_check else min(policy.baseline_pass, prompts),
        second_pass=prompts if policy.aa_check else 0,
        candidate=max(pairs * size, least - pairs),
        pair_halves=pairs * halves,
        warm_up=2 * pairs,
        budget=policy.budget,
        replicate_least=replicate.clean_units,
        replicate_most=2 * (replicate.clean_units + later_size(replicate) * (replicate.max_pairs - 1)),
    )


def expected_swaps(policy: Policy, pairable: int, first_replicate: int = 1) -> Swaps:
    """How often servers are swapped in a run in which nothing is bad, and what a replicate adds.

    Two starts for each pair of windows; where the baseline's window comes first, the first pass has its server up.
    """
    pairs = window_pairs(policy, pairable)
    needed = window_pairs_needed(first_replicate, policy.replicate, len(policy.flags))
    return Swaps(
        least=2 * pairs - 1 if pairs else 1,
        most=max(1, 2 * pairs),
        replicate_clean=2 if pairs else 1,
        replicate_confirmed=2 * needed,
    )
