"""`--cell-seconds` and `--max-minutes`: how long a plan takes, and what would fit where it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange

if TYPE_CHECKING:
    from prefillgate.core.fitting import TimedPlan, Way
    from prefillgate.core.minutes import Paces, Span
    from prefillgate.replay.session import RunRequest

_F = TypeVar("_F", bound=Callable[..., Any])
MOST_SECONDS, MOST_MINUTES = 86_400, 525_600


def time_options(function: _F) -> _F:
    """Add `--cell-seconds` and `--max-minutes`."""
    limit = click.option(
        "--max-minutes",
        type=NumberRange(0, MOST_MINUTES, min_open=True),
        metavar="MINUTES",
        help="Refuse a plan that is not likely to decide by then, with what would; end the run then at the latest.",
    )
    seconds = click.option(
        "--cell-seconds",
        type=NumberRange(0, MOST_SECONDS, min_open=True),
        metavar="SECONDS",
        help="What a cell takes, for --dry-run and --max-minutes; else two cells on each server are timed for them.",
    )
    return seconds(limit(function))


def within_minutes(request: RunRequest, minutes: float | None, cell_seconds: float | None) -> RunRequest:
    """The run with its end, once it is known that the plan is likely to decide by then.

    A run that goes on is not timed again: its cells are done. Raises `BadInput` for a plan that is not likely to.
    """
    from prefillgate.cli.interruptible import carry_out
    from prefillgate.cli.outcome import say
    from prefillgate.cli.stores import store_errors
    from prefillgate.cli.timing import given_paces, paces_of, time_servers
    from prefillgate.evidence import store_exists

    if minutes is None:
        if cell_seconds is not None:
            raise BadInput("--cell-seconds is for --dry-run and --max-minutes (allowed: with one of them)")
        return request
    bounded = replace(request, must_end_at=time.time() + 60 * minutes)
    with store_errors():
        there = store_exists(request.store)
    if there:
        say(f"--max-minutes: this run goes on and ends in {minutes:g} min at the latest")
        return bounded
    if cell_seconds is not None:
        paces = given_paces(request, cell_seconds)
    else:
        paces = paces_of(carry_out(time_servers(request)), request.replay_set)
    plan = timed_plan(request, paces)
    say(f"--max-minutes: the plan takes {words_of(plan.minutes)} when nothing is bad")
    refuse(plan, minutes)
    return bounded


def timed_plan(request: RunRequest, paces: Paces) -> TimedPlan:
    """The plan of a request with what its cells take."""
    from prefillgate.core.fitting import TimedPlan
    from prefillgate.core.planning import pairable_cases
    from prefillgate.replay.session import plan_run

    planned = plan_run(request, 0, 0.0, request.policy.policy)
    pairable = pairable_cases(planned.policy, planned.cases)
    return TimedPlan(planned.policy, len(planned.cases), pairable, planned.shape, paces)


def refuse(plan: TimedPlan, minutes: float) -> None:
    """Raise `BadInput` for a plan that is not likely to decide in so many minutes, after saying what would."""
    from prefillgate.cli.outcome import say
    from prefillgate.core.fitting import ways_to_fit

    if plan.decides_in(minutes):
        return
    for line in way_lines(ways_to_fit(plan, minutes), minutes):
        say(line)
    raise BadInput(
        f"--max-minutes {minutes:g}: this plan takes {words_of(plan.minutes)} when nothing is bad (allowed: more "
        "minutes, or a change named above)"
    )


def way_lines(ways: tuple[Way, ...], minutes: float) -> Iterator[str]:
    """What would fit, then what would not suffice by itself, each with its minutes."""
    fitting = [way for way in ways if way.fits]
    yield f"what decides in {minutes:g} min:" if fitting else f"no single change decides in {minutes:g} min:"
    for way in sorted(ways, key=lambda way: not way.fits):
        takes = words_of(way.minutes)
        yield f"  {way.name:<20} {way.change}: {takes}{'' if way.fits else ', too long still'}"


def words_of(span: Span) -> str:
    """A span of minutes in words; one figure where its ends read alike."""
    least, most = _figure(span.least), _figure(span.most)
    likely = f"about {_figure(span.likely)}"
    return likely if least == most else f"{likely} ({least} to {most})"


def _figure(minutes: float) -> str:
    if minutes >= 120:
        hours, rest = divmod(round(minutes), 60)
        return f"{hours} h {rest} min"
    if minutes >= 9.95:
        return f"{minutes:.0f} min"
    return f"{minutes:.1f} min" if minutes >= 0.95 else f"{60 * minutes:.0f} s"


def limit_document(plan: TimedPlan, minutes: float | None) -> dict[str, Any] | None:
    """`--max-minutes` as JSON: `minutes`, `decides`, and the `ways` where it does not."""
    from prefillgate.core.fitting import ways_to_fit

    if minutes is None:
        return None
    decides = plan.decides_in(minutes)
    ways = () if decides else ways_to_fit(plan, minutes)
    return {"minutes": minutes, "decides": decides, "ways": [asdict(way) for way in ways]}
