"""What would fit into so many minutes where a plan does not: the ways out a person can take, each with its numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from prefillgate.core.acceptance import AcceptanceTable, affordable_margin, find_table
from prefillgate.core.minutes import Paces, Span, run_minutes
from prefillgate.core.planning import WANTED_POWER, PrefillCost, expected_prefills
from prefillgate.core.policy import Policy
from prefillgate.core.shape import Shape

REPORTED_PAIRS = 6  # the fewest throughput pairs that a policy may ask for
# The acceptance of a plan that asks for nothing beyond each prompt and each pair once.
ONE_PREFILL = (1,)  # equivalent mutant: 0, since a plan has a prompt
MOST_LANES = 16  # servers of an arm that are still worth naming


@dataclass(frozen=True, slots=True)
class TimedPlan:
    """A plan with the seconds its cells take. `pairable` of its `prompts` can give a throughput pair."""

    policy: Policy
    prompts: int
    pairable: int
    shape: Shape
    paces: Paces

    @property
    def cost(self) -> PrefillCost:
        """Its prefills when nothing is bad."""
        return expected_prefills(self.policy, self.prompts, self.pairable, self.shape)

    @property
    def minutes(self) -> Span:
        """Its minutes when nothing is bad."""
        return run_minutes(self.cost, self.paces, self.shape)

    def decides_in(self, minutes: float) -> bool:
        """Whether it is likely to promote a candidate in which nothing is bad within so many minutes."""
        return self.minutes.likely <= minutes


@dataclass(frozen=True, slots=True)
class Way:
    """One change of the plan: what it is, and the minutes of a run in which nothing is bad."""

    name: str
    change: str
    minutes: Span
    fits: bool


def ways_to_fit(plan: TimedPlan, minutes: float) -> tuple[Way, ...]:
    """Every way out that a plan over so many minutes has; each changes one thing alone, and some may not suffice."""
    return tuple(
        way
        for way in (
            _fewer_cases(plan, minutes),
            _wider_margin(plan, minutes),
            _reported_throughput(plan, minutes),
            _candidate_alone(plan, minutes),
            _more_lanes(plan, minutes),
        )
        if way is not None
    )


def _way(name: str, change: str, plan: TimedPlan, minutes: float) -> Way:
    return Way(name, change, plan.minutes, plan.decides_in(minutes))


def _fewer_cases(plan: TimedPlan, minutes: float) -> Way | None:
    """The most cases that fit; one case where even that does not."""
    if plan.prompts == 1:
        return None

    def over(prompts: int) -> TimedPlan:
        return replace(plan, prompts=prompts, pairable=min(plan.pairable, prompts))

    kept = _most(plan.prompts - 1, lambda prompts: over(prompts).decides_in(minutes)) or 1
    return _way("fewer cases", f"{kept} of {plan.prompts}", over(kept), minutes)


def _wider_margin(plan: TimedPlan, minutes: float) -> Way:
    """The smallest margin whose whole table fits and promotes a healthy candidate."""
    policy = plan.policy
    table = affordable_table(plan, minutes)
    if table is None:
        least = replace(plan, policy=replace(policy, acceptance=ONE_PREFILL))
        room = affordable_units(plan, minutes)
        why = "each prompt must run once" if room is None else f"{room} prefills promote no healthy candidate"
        return Way("a wider margin", f"no margin: {why}", least.minutes, False)
    wider = replace(plan, policy=replace(policy, margin=table.margin, acceptance=table.entries))
    change = f"{_percent(table.margin)}, promoted at {' / '.join(map(str, table.entries))} fresh prefills"
    if table.margin <= policy.margin:
        return _way("another table", f"for a margin of {change}", wider, minutes)
    return _way("a wider margin", f"{change}, instead of {_percent(policy.margin)}", wider, minutes)


def affordable_table(plan: TimedPlan, minutes: float) -> AcceptanceTable | None:
    """The table of the smallest margin, in whole percent, that promotes a healthy candidate within so many minutes.

    Healthy is the policy's healthy rate under each flag, and to promote it takes a chance of 0.8 or more. Every entry
    of the table fits beside the other prefills of the plan. None where no margin does.
    """
    policy = plan.policy
    units = affordable_units(plan, minutes)
    if units is None:
        return None
    wanted = WANTED_POWER ** (1 / len(policy.flags))
    margin = affordable_margin(policy.healthy_rate, wanted, policy.alpha, units)
    return None if margin is None else find_table(margin, policy.alpha, units)


def affordable_units(plan: TimedPlan, minutes: float) -> int | None:
    """The most candidate prefills that likely fit into so many minutes beside the others of the plan, the budget's at
    most; None where not even each prompt once does."""
    least = replace(plan, policy=replace(plan.policy, acceptance=ONE_PREFILL)).cost
    most = plan.policy.budget - (least.total - least.candidate)

    def fits(units: int) -> bool:
        return run_minutes(replace(least, candidate=units), plan.paces, plan.shape).likely <= minutes

    found = _most(most, fits)
    return found if found >= least.candidate else None


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `high` that fits, where every smaller one does too; 0 where none does."""
    return bisect_right(range(1, high + 1), False, key=lambda number: not fits(number))


def _reported_throughput(plan: TimedPlan, minutes: float) -> Way | None:
    """Speed reported on the fewest pairs, and not required; nothing where that saves nothing."""
    throughput = replace(plan.policy.throughput, required=False, min_pairs=REPORTED_PAIRS, max_pairs=REPORTED_PAIRS)
    reported = replace(plan, policy=replace(plan.policy, throughput=throughput))
    if reported.minutes.likely >= plan.minutes.likely:
        return None
    return _way("throughput: Report", f"mode: Report with maxPairs: {REPORTED_PAIRS}", reported, minutes)


def _candidate_alone(plan: TimedPlan, minutes: float) -> Way | None:
    if plan.shape.candidate_alone:
        return None
    alone = replace(plan, shape=replace(plan.shape, candidate_alone=True))
    return _way("candidate alone", "without --baseline; no replicate and no throughput then", alone, minutes)


def _more_lanes(plan: TimedPlan, minutes: float) -> Way | None:
    """The fewest servers of each arm that suffice; as many as are worth naming where those do not."""
    found = None
    for found in _with_lanes(plan):
        if found.decides_in(minutes):
            break
    if found is None:
        return None
    servers = f"{found.shape.candidate_lanes} servers of the candidate"
    if not plan.shape.candidate_alone:
        servers = f"{found.shape.baseline_lanes} servers of the baseline and {servers}"
    return _way("lanes", servers, found, minutes)


def _with_lanes(plan: TimedPlan) -> Iterator[TimedPlan]:
    """The same plan with more and more servers of each arm."""
    shape = plan.shape
    for lanes in range(min(shape.baseline_lanes, shape.candidate_lanes) + 1, MOST_LANES + 1):
        more = replace(
            shape,
            baseline_lanes=max(lanes, shape.baseline_lanes),
            candidate_lanes=max(lanes, shape.candidate_lanes),
        )
        yield replace(plan, shape=more)


def _percent(rate: float) -> str:
    return f"{100 * rate:.3g} %"
