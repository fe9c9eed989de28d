"""`prefillgate policy`: what a policy means in numbers, and what is unwise about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.completing import POLICY, REPLAY_SET
from prefillgate.cli.problems import EXIT_BAD_INPUT, json_line, say_problems

if TYPE_CHECKING:
    from prefillgate.api.policy import PolicyDocument
    from prefillgate.replay.checks import CheckSuite
    from prefillgate.replay.replay_set import ReplaySet

RATES = (0.0, 0.01, 0.05, 0.10)


@click.group(name="policy")
def command() -> None:
    """Lint a policy file.

    A policy says how bad a candidate may be (margin), how often the gate may err (alpha), what it may spend (budget)
    and what an output is judged by (checks). quick, standard and strict come with the package.
    """


@command.command()
@click.argument("policy", type=POLICY, metavar="FILE")
@click.option("--replay-set", type=REPLAY_SET, metavar="FILE", help="Also check the policy against this replay set.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def lint(policy: str, replay_set: str | None, as_json: bool) -> int:
    """Read a policy (a YAML file, or quick, standard, strict); print its numbers, problems and warnings.

    Exit codes: 0 the policy can be used (there may be warnings), 2 it cannot.

    With --json: {"name", "digest", "margin", "alpha", "acceptance": [{"bad", "prefills"}], "false_promotion", "power":
    [{"rate", "promote", "expected_prefills"}], "budget", "checks": [{"name", "version"}], "flags": [{"name",
    "checks"}], "warnings": [...]}; rates are fractions. A policy that cannot be used gives {"problems": [{"where",
    "field", "message", "allowed"}]}.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.api.policy import load_policy
    from prefillgate.replay.replay_set import load_replay_set

    try:
        document = load_policy(policy)
        loaded = load_replay_set(replay_set) if replay_set is not None else None
        numbers = _numbers(document, loaded)
    except InputError as error:
        if not as_json:
            return say_problems(error)
        found = [
            {"where": p.where, "field": p.field, "message": p.message, "allowed": p.allowed} for p in error.problems
        ]
        click.echo(json_line({"problems": found}))
        return EXIT_BAD_INPUT
    if as_json:
        click.echo(json_line(numbers))
    else:
        _print(numbers)
    return 0


def _numbers(document: PolicyDocument, loaded: ReplaySet | None) -> dict[str, Any]:
    from prefillgate.api.policy_lint import policy_warnings
    from prefillgate.core.acceptance import AcceptanceTable, false_promotion, power
    from prefillgate.replay.checks import CheckSuite

    policy = document.policy
    suite = CheckSuite.from_policy(document, loaded, unvalidated_judge=True)
    table = AcceptanceTable(policy.margin, policy.alpha, policy.acceptance)
    warnings = [*policy_warnings(document), *_judge_warnings(suite), *_set_warnings(document, loaded)]
    return {
        "name": document.name,
        "digest": document.digest,
        "margin": policy.margin,
        "alpha": policy.alpha,
        "acceptance": [{"bad": bad, "prefills": entry} for bad, entry in enumerate(policy.acceptance)],
        "false_promotion": false_promotion(table),
        "power": [
            {"rate": rate, "promote": found.promote, "expected_prefills": found.expected_prefills}
            for rate in RATES
            for found in [power(table, rate)]
        ],
        "budget": policy.budget,
        "checks": [{"name": check.name, "version": check.version} for check in suite.common],
        "flags": [{"name": flag.name, "checks": list(flag.checks)} for flag in policy.flags],
        "warnings": warnings,
    }


def _judge_warnings(suite: CheckSuite) -> list[str]:
    found = []
    for check, judge in suite.judges():
        found.append(f"check {check.name}: every output is sent to {judge.spec.url}")
        if judge.shortcoming is not None:
            found.append(f"check {check.name}: {judge.shortcoming}; a run is refused without --unvalidated-judge")
    return found


def _set_warnings(document: PolicyDocument, loaded: ReplaySet | None) -> list[str]:
    from prefillgate.replay.set_lint import SetLint

    if loaded is None:
        return []
    notes = SetLint()
    for case in loaded.cases:
        notes.add(case)
    prompts, policy = len(loaded.cases), document.policy
    found = [f"{loaded.name}: {warning}" for warning in notes.warnings(document.healthy_rate_given)]
    if prompts + policy.baseline_pass > policy.budget:
        found.append(
            f"{loaded.name}: {prompts} prompts, each of which must be fresh once, and a baseline pass of "
            f"{policy.baseline_pass} do not fit into spec.budgetPrefills {policy.budget}"
        )
    short = sum(
        case.max_tokens is not None and case.max_tokens < policy.throughput.min_output_tokens for case in loaded.cases
    )
    if policy.throughput.required and prompts - short < min(prompts, policy.throughput.max_prompts):
        found.append(
            f"{loaded.name}: only {prompts - short} prompts can give a throughput pair and "
            f"{min(prompts, policy.throughput.max_prompts)} are wanted; promotion cannot be reached with "
            "spec.throughput.mode Require"
        )
    return found


def _print(numbers: dict[str, Any]) -> None:
    entries = ", ".join(f"{entry['prefills']} with {entry['bad']} bad" for entry in numbers["acceptance"])
    click.echo(f"policy {numbers['name']}, sha256 {numbers['digest']}")
    click.echo(f"margin {numbers['margin']:.2%}, alpha {numbers['alpha']:.2%}, budget {numbers['budget']} prefills")
    click.echo(f"promotes at {entries}; exact false promotion {numbers['false_promotion']:.6f}")
    for row in numbers["power"]:
        click.echo(
            f"  bad rate {row['rate']:.0%}: promoted {row['promote']:.3f}, {row['expected_prefills']:.1f} prefills"
        )
    click.echo("checks: " + ", ".join(check["name"] for check in numbers["checks"]))
    for flag in numbers["flags"]:
        click.echo(f"flag {flag['name']}: {', '.join(flag['checks']) or 'every check that decides'}")
    for warning in numbers["warnings"]:
        click.echo(f"prefillgate: warning: {warning}", err=True)
