"""`prefillgate plan --minutes`: the smallest margin that so many minutes can afford."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.time_limit import MOST_MINUTES, MOST_SECONDS, words_of

if TYPE_CHECKING:
    from prefillgate.core.acceptance import AcceptanceTable
    from prefillgate.core.fitting import TimedPlan

_F = TypeVar("_F", bound=Callable[..., Any])
PROMPTS = 12
HEALTHY_RATE = 0.01


def minutes_options(function: _F) -> _F:
    """Add the options that look for a margin by the time it takes."""
    for decorate in (
        click.option("--candidate-alone", is_flag=True, help="With --minutes: a run without a baseline."),
        click.option(
            "--healthy-rate",
            type=NumberRange(0, 1, max_open=True),
            metavar="RATE",
            help=f"With --minutes: bad rate of a healthy candidate, to be promoted.  [default: {HEALTHY_RATE:g}]",
        ),
        click.option(
            "--prompts",
            type=click.IntRange(1, 100_000),
            metavar="N",
            help=f"With --minutes: cases of the replay set; each runs once at least.  [default: {PROMPTS}]",
        ),
        click.option(
            "--cell-seconds",
            type=NumberRange(0, MOST_SECONDS, min_open=True),
            metavar="SECONDS",
            help="With --minutes: what a cell takes (run --dry-run times it).",
        ),
        click.option(
            "--minutes",
            type=NumberRange(0, MOST_MINUTES, min_open=True),
            metavar="MINUTES",
            help="Look for the smallest margin that a run of so many minutes can afford.",
        ),
    ):
        function = decorate(function)
    return function


@dataclass(frozen=True, slots=True)
class Affordable:
    """The table that was found, and the plan it belongs to."""

    table: AcceptanceTable
    plan: TimedPlan
    minutes: float
    cell_seconds: float

    def document(self) -> dict[str, Any]:
        """What stands in the JSON beside the table."""
        cost = self.plan.cost
        return {
            "margin": self.table.margin,
            "minutes": self.minutes,
            "cell_seconds": self.cell_seconds,
            "prompts": self.plan.prompts,
            "healthy_rate": self.plan.policy.healthy_rate,
            "other_prefills": cost.total - cost.candidate,
        }

    def lines(self) -> Iterator[str]:
        """What stands above the table."""
        from prefillgate.core.minutes import run_minutes

        plan, cost = self.plan, self.plan.cost
        last = run_minutes(replace(cost, candidate=max(cost.candidate, self.table.last)), plan.paces, plan.shape)
        yield (
            f"The smallest margin that {self.minutes:g} minutes afford, at {self.cell_seconds:g} s a cell and "
            f"{self.plan.prompts} prompts: {100 * self.table.margin:g} %."
        )
        yield (
            f"A run takes {words_of(plan.minutes)} with nothing bad ({cost.candidate} candidate prefills and "
            f"{cost.total - cost.candidate} others), {words_of(last)} to the last entry of the table."
        )
        yield (
            f"A candidate that is bad at a rate of {plan.policy.healthy_rate:.4g} is promoted by then with a chance of "
            "0.8 or more."
        )
        yield ""


def affordable(alpha: float, cap: int | None, options: dict[str, Any]) -> Affordable:
    """The smallest margin within `--minutes`. Raises `BadInput` where none is, with what would do."""
    from prefillgate.core.acceptance import MAX_UNITS, STANDARD
    from prefillgate.core.fitting import ONE_PREFILL, TimedPlan, affordable_table
    from prefillgate.core.minutes import Paces, even_pace
    from prefillgate.core.shape import Shape

    minutes, seconds = options["minutes"], options["cell_seconds"]
    if seconds is None:
        raise BadInput("--minutes needs --cell-seconds (allowed: what a cell takes, as run --dry-run times it)")
    healthy = HEALTHY_RATE if options["healthy_rate"] is None else options["healthy_rate"]
    prompts, shape = options["prompts"] or PROMPTS, Shape(candidate_alone=options["candidate_alone"])
    policy = replace(STANDARD, alpha=alpha, healthy_rate=healthy, acceptance=ONE_PREFILL)
    least = TimedPlan(policy, prompts, prompts, shape, Paces(even_pace(seconds), even_pace(seconds)))
    other = least.cost.total - least.cost.candidate
    plan = replace(least, policy=replace(policy, budget=other + (cap or MAX_UNITS)))
    table = affordable_table(plan, minutes)
    if table is None:
        raise BadInput(
            f"--minutes {minutes:g}: no margin is affordable; {prompts} prompts once each and the {other} prefills "
            f"beside them take {words_of(least.minutes)} (allowed: more minutes, fewer --prompts, a larger --cap, a "
            "smaller --healthy-rate, --candidate-alone)"
        )
    found = replace(plan, policy=replace(plan.policy, margin=table.margin, acceptance=table.entries))
    return Affordable(table, found, minutes, seconds)


def only_with_minutes(options: dict[str, Any]) -> None:
    """Raise `BadInput` for an option that says nothing without `--minutes`."""
    for name, value in options.items():
        if value:
            raise BadInput(f"--{name.replace('_', '-')} is for --minutes (allowed: with --minutes)")
