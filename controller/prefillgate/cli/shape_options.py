"""The options that say which arms a run has and who else uses their servers, and what they may be together with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.stores import STORE
from prefillgate.core.policy import Policy
from prefillgate.core.shape import Isolation, Shape

_F = TypeVar("_F", bound=Callable[..., Any])
MAX_AGE_DAYS = 14.0
COMPARED = "equal_to_baseline"
OF_A_STORE = frozenset({"baseline_store", "baseline_max_age"})  # options that need no baseline server


def shape_options(function: _F) -> _F:
    """Add `--arms-at-once`, `--isolation`, `--baseline-store` and `--baseline-max-age`."""
    for decorate in (
        click.option(
            "--arms-at-once",
            is_flag=True,
            help="Ask baseline and candidate at the same time: only where they share no hardware.",
        ),
        click.option(
            "--baseline-max-age",
            type=NumberRange(0, 3650, min_open=True),
            metavar="DAYS",
            help=f"How old a stored baseline may be.  [default: {MAX_AGE_DAYS:g}]",
        ),
        click.option(
            "--baseline-store",
            type=STORE,
            metavar="FILE|URL",
            help="An earlier run's store: its baseline is shown beside this run and decides nothing.",
        ),
        click.option(
            "--isolation",
            type=click.Choice([each.value for each in Isolation]),
            help="Whether the servers serve nobody else meanwhile; shared judges quality alone.  [default: exclusive]",
        ),
    ):
        function = decorate(function)
    return function


def shape_of(options: dict[str, Any], from_file: dict[str, Any], baseline: bool) -> Shape:
    """The shape asked for; `baseline` says whether there is one."""
    isolation = options["isolation"] or from_file.get("isolation") or Isolation.EXCLUSIVE
    at_once = options["arms_at_once"] or from_file.get("arms_at_once", False)
    sequential = bool(options["sequential"] or from_file.get("sequential"))
    return replace(
        Shape(),
        candidate_alone=not baseline,
        isolation=Isolation(isolation),
        at_once=at_once,
        sequential=sequential,
    )


def max_age_of(options: dict[str, Any], from_file: dict[str, Any]) -> float:
    """How old a stored baseline may be, in days. Raises `BadInput` where an age is given and no store."""
    given: float | None = options["baseline_max_age"] or from_file.get("baseline_max_age")
    if given and not (options["baseline_store"] or from_file.get("baseline_store")):
        raise BadInput(f"--baseline-max-age {given:g}: no stored baseline is shown (allowed: with --baseline-store)")
    return given or MAX_AGE_DAYS


def check_shape(shape: Shape, policy: Policy) -> None:
    """Raise `BadInput` for a policy that needs what this shape has not."""
    why = "no --baseline was given" if shape.candidate_alone else "--isolation is shared" if shape.shared else None
    if why is None:
        return
    if policy.aa_check:
        raise BadInput(
            f"the A/A check (--aa, or aaCheck of policy {policy.name}) needs a baseline that serves nobody else, and "
            f"{why} (allowed: a run without it)"
        )
    comparing = [flag.name for flag in policy.flags if COMPARED in flag.checks]
    if shape.candidate_alone and comparing:
        raise BadInput(
            f"flag {comparing[0]} of policy {policy.name} reads check {COMPARED}, and {why} (allowed: flags of other "
            "checks, or a --baseline)"
        )
