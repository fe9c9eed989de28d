"""What a plan costs and whether it can work, before a prefill is spent (STATISTICS.md sections 2, 7 and 8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from prefillgate.core.acceptance import affordable_margin, check_rate
from prefillgate.core.journal import CaseRef
from prefillgate.core.policy import Policy
from prefillgate.core.prefill_cost import PrefillCost as PrefillCost
from prefillgate.core.replicate import prefills_needed
from prefillgate.core.shape import Isolation, Shape
from prefillgate.core.window_plan import window_cost
from prefillgate.core.window_replicate import window_prefills_needed

WANTED_POWER = 0.8
POPULATION_PROMPTS = 48
WARM_UP_PREFILLS = 2  # the first pair after a server start is discarded and run again
TWO_SERVERS = Shape()
MAX_SUBSETS = 12  # entries of a table whose subsets are still summed over: 4,095 of them


def expected_prefills(
    policy: Policy, prompts: int, pairable: int | None = None, shape: Shape = TWO_SERVERS
) -> PrefillCost:
    """What a run over `prompts` prompts costs; `pairable` of them can give a throughput pair (None: all).

    A candidate alone has no baseline pass, no pairs and no replicate; a shared server gives no pairs; a sequential run
    has windows.
    Raises ValueError for a run without prompts.
    """
    if prompts < 1:
        raise ValueError(f"prompts must be at least 1, got {prompts}")
    if shape.candidate_alone:
        return PrefillCost(0, 0, max(policy.acceptance[0], prompts), 0, 0, policy.budget, 0, 0)
    if shape.sequential:
        return window_cost(policy, prompts, prompts if pairable is None else pairable)
    throughput = policy.throughput
    able = 0 if shape.isolation is Isolation.SHARED else prompts if pairable is None else pairable
    covered = min(able, throughput.max_prompts, throughput.max_pairs)
    pairs = (
        max(covered, min(throughput.min_pairs, throughput.max_pairs)) if covered and throughput.required else covered
    )
    return PrefillCost(
        baseline_pass=prompts if policy.aa_check else min(policy.baseline_pass, prompts),
        second_pass=prompts if policy.aa_check else 0,
        candidate=max(policy.acceptance[0], prompts, pairs),
        pair_halves=pairs,
        warm_up=WARM_UP_PREFILLS if pairs else 0,
        budget=policy.budget,
        replicate_least=policy.replicate.clean_units,
        replicate_most=2 * policy.replicate.max_pairs,
    )


def promotion_power(policy: Policy, rate: float, prompts: int = 1) -> float:
    """P(promote) of the acceptance table for a candidate whose bad rate is `rate` under each declared flag.

    Exact for flags that fail independently; the bound of the whole state machine, in which an alarm may still hold.
    All flags must satisfy the table at one and the same n (section 7), no n is below the number of prompts, and none
    lies beyond the budget. Raises ValueError for a rate outside 0 to 1 or a table of more than 12 entries.
    """
    check_rate(rate)
    reachable = policy.budget - min(policy.baseline_pass, prompts)
    stops: dict[int, int] = {}  # units: bad ones allowed there, in each flag
    for allowed, entry in enumerate(policy.acceptance):
        if max(entry, prompts) <= reachable:
            stops[max(entry, prompts)] = allowed
    if len(stops) > MAX_SUBSETS:
        raise ValueError(f"a table of {len(stops)} entries is too long to plan with; {MAX_SUBSETS} is the most")
    flags, total = len(policy.flags), 0.0
    for size in range(1, len(stops) + 1):  # equivalent mutant: no subset is larger than the whole
        sign = 1 if size % 2 else -1
        total += sign * sum(_all_met(chosen, rate) ** flags for chosen in combinations(stops.items(), size))
    return min(1.0, max(0.0, total))  # the sum may err in its last bits


def _all_met(stops: Sequence[tuple[int, int]], rate: float) -> float:
    """P(one flag has at most so many bad at each of these numbers of units), which rise."""
    running, units = [1.0], 0
    for stop, allowed in stops:
        for _ in range(stop - units):
            pairs = zip([*running, 0.0], [0.0, *running], strict=True)  # equivalent mutant: equally long
            running = [same * (1 - rate) + fewer * rate for same, fewer in pairs]
        running, units = running[: allowed + 1], stop
    return sum(running)


def plan_warnings(
    policy: Policy, cases: Sequence[CaseRef], first_replicate: int = 1, shape: Shape = TWO_SERVERS
) -> tuple[str, ...]:
    """Why this plan may not work, a sentence each; empty where nothing speaks against it."""
    return (
        *_power(policy, len(cases)),
        *_pairs(policy, cases),
        *_population(cases),
        *_budget(policy, cases, first_replicate, shape),
        *_sampling(cases),
    )


def _power(policy: Policy, prompts: int) -> Iterator[str]:
    chance = promotion_power(policy, policy.healthy_rate, prompts)
    if chance < WANTED_POWER:
        yield (
            f"P(promote) is {chance:.2f} for a healthy candidate (bad rate {_percent(policy.healthy_rate)}"
            f"{_of_each_flag(policy)}), below {WANTED_POWER}; {_way_out(policy, policy.healthy_rate)}."
        )


def _way_out(policy: Policy, rate: float) -> str:
    """The margin that would work; the bar is never lowered by itself."""
    wanted = WANTED_POWER ** (1 / len(policy.flags))
    margin = affordable_margin(rate, wanted, policy.alpha, policy.budget)
    if margin is None:
        return "no margin reaches it"
    if margin <= policy.margin:
        return "the usual entries for this margin and a budget beyond them would reach it"
    return f"a margin of {_percent(margin)} would reach it"


def _of_each_flag(policy: Policy) -> str:
    return f" under each of {len(policy.flags)} flags" if len(policy.flags) > 1 else ""


def _pairs(policy: Policy, cases: Sequence[CaseRef]) -> Iterator[str]:
    throughput = policy.throughput
    able = pairable_cases(policy, cases)
    if not throughput.required or able >= min(len(cases), throughput.max_prompts):
        return
    short = f"{len(cases) - able} of {len(cases)} prompts may write fewer than {throughput.min_output_tokens} tokens"
    if not able:
        yield f"{short} and give no throughput pair: decode speed stays open and nothing is promoted."
    else:
        yield f"{short} and give no throughput pair: the speed will be judged on {able} prompts alone."


def pairable_cases(policy: Policy, cases: Sequence[CaseRef]) -> int:
    """How many cases have a token limit that lets them give a throughput pair."""
    least = policy.throughput.min_output_tokens
    return sum(case.max_tokens is None or case.max_tokens >= least for case in cases)


def _population(cases: Sequence[CaseRef]) -> Iterator[str]:
    if len(cases) < POPULATION_PROMPTS:
        yield (
            f"{len(cases)} prompts: the answer will speak of these prompts, not of a population of prompts "
            f"({POPULATION_PROMPTS} or more)."
        )


def _budget(policy: Policy, cases: Sequence[CaseRef], first_replicate: int, shape: Shape) -> Iterator[str]:
    clean = expected_prefills(policy, len(cases), pairable_cases(policy, cases), shape).total
    needs = window_prefills_needed if shape.sequential else prefills_needed
    needed = needs(first_replicate, policy.replicate, len(policy.flags))
    if policy.budget < clean:
        yield f"The budget of {policy.budget} prefills ends before the {clean} that a run with nothing bad spends."
    elif policy.replicate.max_attempts and policy.budget < clean + needed:
        yield (
            f"The budget of {policy.budget} prefills leaves {policy.budget - clean} beside the {clean} of a run with "
            f"nothing bad; a replicate needs {needed}, so a late alarm would end in hold."
        )


def _sampling(cases: Sequence[CaseRef]) -> Iterator[str]:
    sampled = sum(not case.greedy for case in cases)
    if sampled:
        yield (
            f"{sampled} of {len(cases)} prompts are sampled at a temperature above 0: a healthy server fails more of "
            "them, and identical output cannot be claimed."
        )


def baseline_warning(bad: int, units: int, policy: Policy, prompts: int = 1) -> str | None:
    """Why the measured baseline rate makes promotion unlikely, with the margin that would work; None if it does not.

    A candidate exactly as good as the baseline is what must be promotable. Raises ValueError for impossible counts.
    """
    if not 0 <= bad <= units:
        raise ValueError(f"bad must be from 0 to units, got {bad} of {units}")
    if not bad:
        return None
    rate = bad / units
    chance = promotion_power(policy, rate, prompts)
    if chance >= WANTED_POWER:
        return None
    return (
        f"The baseline itself was bad in {bad} of {units} prefills: a candidate just as good is promoted with a chance "
        f"of {chance:.2f} only, below {WANTED_POWER}; {_way_out(policy, rate)}."
    )


def _percent(rate: float) -> str:
    return f"{100 * rate:.3g} %"
