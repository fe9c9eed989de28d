"""`run --floor`, `--floor-max-age` and `--first-replicate`: what a run takes over from runs before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.stores import STORE

if TYPE_CHECKING:
    from prefillgate.api.policy import PolicyDocument

_F = TypeVar("_F", bound=Callable[..., Any])
MAX_AGE_DAYS = 14.0
MOST_REPLICATES = 1_000_000


def earlier_options(function: _F) -> _F:
    """Add `--floor`, `--floor-max-age` and `--first-replicate`."""
    for decorate in (
        click.option(
            "--first-replicate",
            type=click.IntRange(1, MOST_REPLICATES),
            metavar="NUMBER",
            help="Number of the first replicate, where these two profiles had some before: each must reach more than "
            "the one before it.  [default: 1]",
        ),
        click.option(
            "--floor-max-age",
            type=NumberRange(0, 3650, min_open=True),
            metavar="DAYS",
            help=f"How old a floor may be.  [default: {MAX_AGE_DAYS:g}]",
        ),
        click.option(
            "--floor",
            type=STORE,
            metavar="FILE|URL",
            help="A store of prefillgate floor, or of run --aa: what it shows of the baseline against itself counts "
            "for this run, which checks the instrument no more.",
        ),
    ):
        function = decorate(function)
    return function


def earlier_of(options: dict[str, Any], from_file: dict[str, Any], policy: PolicyDocument) -> dict[str, Any]:
    """The fields of a run's request that name earlier runs, and the policy without a check that a floor stands for.

    Raises `BadInput` for a floor beside --aa, and for an age without a floor.
    """
    floor = options["floor"] or from_file.get("floor")
    age = options["floor_max_age"] or from_file.get("floor_max_age")
    if floor is not None and options["aa"]:
        raise BadInput(f"--aa and --floor {floor}: the floor stands for that check (allowed: one of them)")
    if age is not None and floor is None:
        raise BadInput(f"--floor-max-age {age:g}: no floor is given (allowed: with --floor)")
    if floor is not None:
        policy = replace(policy, policy=replace(policy.policy, aa_check=False))
    return {
        "floor": floor,
        "floor_max_age_days": age or MAX_AGE_DAYS,
        "first_replicate": options["first_replicate"] or from_file.get("first_replicate") or 1,
        "policy": policy,
    }
