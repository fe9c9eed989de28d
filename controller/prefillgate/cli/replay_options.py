"""The options of commands that replay a set on their own, beside `prefillgate run`: floor and recheck."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefillgate.cli.completing import POLICY, REPLAY_SET
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.server_options import unvalidated_judge_option

if TYPE_CHECKING:
    from prefillgate.replay.session import ArmRequest, RunRequest

_F = TypeVar("_F", bound=Callable[..., Any])


def replay_options(function: _F) -> _F:
    """Add what every command that replays a set on its own takes: the set, the policy, times, and how it speaks."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output."),
        click.option("--log-json", is_flag=True, help="Say everything on standard error as one JSON object a line."),
        click.option("--quiet", is_flag=True, help="No line for each cell."),
        unvalidated_judge_option,
        click.option(
            "--cell-timeout",
            type=NumberRange(1, 86_400),
            metavar="SECONDS",
            help="How long one generation may take.  [default: 600]",
        ),
        click.option(
            "--wait-ready",
            type=NumberRange(0, 86_400),
            metavar="SECONDS",
            default=0.0,
            help="Wait for servers that refuse connections or load their model.  [default: 0]",
        ),
        click.option(
            "--isolation",
            type=click.Choice(["exclusive", "shared"]),
            default="exclusive",
            help="Whether the server serves nobody else meanwhile; shared tells nothing of speed.  [default: "
            "exclusive]",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, 2**53 - 1),
            help="Seed of prompt order, nonces and request seeds.  [default: random]",
        ),
        click.option(
            "--policy",
            type=POLICY,
            metavar="NAME|FILE",
            default="standard",
            help="quick, standard, strict or a policy file.  [default: standard]",
        ),
        click.option(
            "--replay-set",
            type=REPLAY_SET,
            metavar="FILE",
            required=True,
            help="OpenAI Batch JSONL, or the name of a packaged set (demo, short, four).",
        ),
    ):
        function = decorate(function)
    return function


def one_arm(arm: str, options: dict[str, Any], side: str = "") -> ArmRequest:
    """The servers given with `--ARM`, reached by the options of `side`. Raises `BadInput`."""
    from dataclasses import replace

    from prefillgate.cli.addresses import check_access, checked_engine
    from prefillgate.cli.lane_request import arm_of
    from prefillgate.cli.server_options import access_of, engine_of, model_of

    asked = arm_of(arm, options[arm])
    asked = replace(
        asked,
        model=model_of(options, side),
        engine=checked_engine(engine_of(options, side) or asked.engine),
        access=access_of(options, side),
    )
    check_access(arm, asked)
    return asked


def replay_request(options: dict[str, Any], arms: tuple[ArmRequest, ArmRequest], name: str) -> RunRequest:
    """The run of `replay_options` on (baseline, candidate); `name` is part of its store's where none is given."""
    from prefillgate.api.policy import load_policy
    from prefillgate.cli.run_request import store_of
    from prefillgate.core.shape import Isolation, Shape
    from prefillgate.replay.lane import LaneTimes
    from prefillgate.replay.replay_set import load_replay_set
    from prefillgate.replay.session import RunRequest

    replay_set = load_replay_set(options["replay_set"])
    return RunRequest(
        baseline=arms[0],
        candidate=arms[1],
        replay_set=replay_set,
        policy=load_policy(options["policy"]),
        store=store_of(options.get("store"), f"{replay_set.name}-{name}"),
        seed=options["seed"],
        times=LaneTimes(cell_timeout_seconds=options["cell_timeout"] or LaneTimes().cell_timeout_seconds),
        shape=Shape(isolation=Isolation(options["isolation"])),
        wait_ready_seconds=options["wait_ready"],
        unvalidated_judge=options["unvalidated_judge"],
    )
