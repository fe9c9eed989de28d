"""`prefillgate plan`: what an acceptance table costs and what it is worth, before anything is run."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.plan_minutes import minutes_options

if TYPE_CHECKING:
    from prefillgate.core.acceptance import AcceptanceTable, Power

DEFAULT_RATES = (0.0, 0.01, 0.02, 0.05, 0.10)


class Fraction(click.ParamType[float]):
    """A finite number within bounds. `allowed` says them in words; `above` is exclusive, `most` inclusive."""

    name = "number"

    def __init__(self, allowed: str, above: float, most: float) -> None:
        self.allowed, self.above, self.most = allowed, above, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not (self.above < number <= self.most):
            self.fail(f"{value!s} is not allowed: give {self.allowed}, such as 0.05", param, ctx)
        return number


class Whole(click.ParamType[int]):
    """A whole number of at least 1."""

    name = "integer"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!s} is not allowed: give a whole number of at least 1, such as 75", param, ctx)
        return number


_BELOW_ONE = math.nextafter(1.0, 0.0)
_BELOW_ZERO = math.nextafter(0.0, -1.0)
MARGIN = Fraction("a number above 0 and below 1", 0.0, _BELOW_ONE)
ALPHA = Fraction("a number above 0 and at most 0.5", 0.0, 0.5)
RATE = Fraction("a number from 0 to 1", _BELOW_ZERO, 1.0)


@click.command(name="plan")
@click.option("--margin", type=MARGIN, help="Bad rate that must not pass, as a fraction: 0.10 is 10 %.")
@click.option(
    "--alpha", type=ALPHA, default=0.05, show_default=True, help="Largest chance to promote a candidate at the margin."
)
@click.option("--cap", type=Whole(), help="Largest number of prefills the table may ask for.")
@click.option(
    "--rate",
    "rates",
    type=RATE,
    multiple=True,
    help="True bad rate to tell the chance of promotion at; give it as often as you like.  [default: 0, 1, 2, 5, 10 %]",
)
@minutes_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with unrounded numbers.")
def command(
    margin: float | None, alpha: float, cap: int | None, rates: tuple[float, ...], as_json: bool, **time: Any
) -> None:
    """Plan a promotion: how many fresh prefills, with how many bad ones among them, would promote a candidate.

    The table is judged on the candidate alone. Its error is the exact chance to promote a candidate that is bad as
    often as the margin says; its power the chance to promote one that is bad at a given rate.

    With --minutes and --cell-seconds instead of --margin: the smallest margin, in whole percent, whose whole table
    fits into the minutes beside the other prefills of a run by the standard policy, and promotes a healthy candidate
    with a chance of 0.8 or more.
    """
    from prefillgate.cli.plan_minutes import affordable, only_with_minutes
    from prefillgate.core.acceptance import false_promotion, power

    if time["minutes"] is None:
        only_with_minutes(time)
        found, table = None, _table(margin, alpha, cap)
    elif margin is not None:
        raise click.UsageError("--minutes looks for the margin itself; give it or --margin, not both.")
    else:
        found = affordable(alpha, cap, time)
        table = found.table
    powers = [power(table, rate) for rate in rates or DEFAULT_RATES]
    error_rate = false_promotion(table)
    if as_json:
        document = _document(table, error_rate, powers) | (found.document() if found else {})
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        click.echo("\n".join([*(found.lines() if found else ()), _page(table, error_rate, powers)]))


def _table(margin: float | None, alpha: float, cap: int | None) -> AcceptanceTable:
    from prefillgate.core.acceptance import find_table, smallest_units

    if margin is None:
        raise click.UsageError("Missing option '--margin' (or --minutes with --cell-seconds).")
    try:
        smallest = smallest_units(margin, alpha)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="'--margin'") from error
    if cap is not None and cap < smallest:
        raise click.BadParameter(
            f"{cap} is not allowed: at --margin {margin} and --alpha {alpha} the smallest possible is {smallest}.",
            param_hint="'--cap'",
        )
    return find_table(margin, alpha, cap)


def _document(table: AcceptanceTable, error_rate: float, powers: list[Power]) -> dict[str, object]:
    return {
        "acceptance": [{"bad": bad, "prefills": entry} for bad, entry in enumerate(table.entries)],
        "false_promotion": error_rate,
        "power": [
            {"rate": power.rate, "promote": power.promote, "expected_prefills": power.expected_prefills}
            for power in powers
        ],
    }


def _page(table: AcceptanceTable, error_rate: float, powers: list[Power]) -> str:
    lines = [
        f"Promote a candidate whose bad rate is below {table.margin:.4g}, with error at most {table.alpha:.4g}:",
        "",
        "  bad  promote at fresh prefills",
        *(f"  {bad:>3}  {entry:>25}" for bad, entry in enumerate(table.entries)),
        f"  more than {table.bad_allowed} bad: never",
        "",
        f"Chance to promote a candidate that is bad at a rate of {table.margin:.4g}: {error_rate:.6f} (exact)",
        "",
        "  true bad rate  chance to promote  expected prefills",
        *(f"  {power.rate:>13.4g}  {power.promote:>17.6f}  {power.expected_prefills:>17.2f}" for power in powers),
        "",
        "Expected prefills count fresh prefills of the candidate until promotion, the last entry of the table,",
        "or one bad one more than it allows.",
    ]
    return "\n".join(lines)
