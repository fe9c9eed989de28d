"""`prefillgate replayset try`: send every case once to one server, and say what a gate over this set can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.completing import POLICY, REPLAY_SET
from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.problems import json_line, say_problems
from prefillgate.cli.server_options import server_options, unvalidated_judge_option

if TYPE_CHECKING:
    from prefillgate.cli.trial import Trial


@click.command(name="try")
@click.argument("replay_set", type=REPLAY_SET, metavar="FILE")
@click.option("--server", required=True, metavar="URL", help="Base URL of the server, best the one in production.")
@server_options()
@click.option(
    "--wait-ready",
    type=NumberRange(0, 86_400),
    metavar="SECONDS",
    help="Wait for a server that refuses connections or loads its model.  [default: 0]",
)
@click.option(
    "--isolation",
    type=click.Choice(["exclusive", "shared"]),
    default="exclusive",
    show_default=True,
    help="Whether the server serves nobody else meanwhile.",
)
@click.option(
    "--policy", type=POLICY, metavar="NAME|FILE", help="quick, standard, strict or a policy file.  [default: standard]"
)
@click.option("--case", "wanted", multiple=True, metavar="ID", help="Try this case only; may be repeated.")
@click.option(
    "--cell-timeout",
    type=NumberRange(1, 86_400),
    metavar="SECONDS",
    help="How long one generation may take.  [default: 600]",
)
@unvalidated_judge_option
@click.option("--full", is_flag=True, help="Print every text whole.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output, with whole texts.")
def command(**options: Any) -> int:
    """Send every case of FILE once to one server, each a fresh prefill, and print what came of it as it comes.

    A line a case: prompt tokens with those from the cache beside them, output tokens, seconds, failing checks, then
    the text. At the end: the bad rate that a healthy server shows on this set, the chance that a candidate just as
    good would be promoted, and the margin that would work. A prompt that does not fit into the server's context is
    refused before it is sent. Nothing is stored and nothing counts for a later run.

    Exit codes: 0 all clean, 10 a case failed a check, 1 a case could not be measured, 2 a case this server cannot
    take (too long a prompt, a body it refuses) or bad input, 130 or 143 interrupted, after what is known by then.

    With --json: {"server", "engine", "build", "model", "context_tokens", "replay_set", "policy", "findings", "cases",
    "counts", "bad_rate", "interrupted"}; each case has "case_id", "status" (clean, bad, failed, error, refused,
    too_long, invalid), "why", "prompt_tokens", "cached_tokens", "output_tokens", "seconds", "finish_reason",
    "freshness", "witness", "checks", "content", "reasoning" and "tool_calls". "bad_rate" (null without a fresh prefill
    of known outcome) has "bad", "prefills", "rate", "interval", "promote", "promote_at_ends" and "margin".
    """
    from prefillgate.api.errors import InputError
    from prefillgate.cli.interruptible import carry_out
    from prefillgate.cli.outcome import say

    try:
        trial = _trial(options)
    except InputError as error:
        return say_problems(error)
    try:
        carry_out(trial.run())
    except (KeyboardInterrupt, SystemExit):
        say("interrupted; these cases ended before:")
        _tell(trial, options, interrupted=True)
        raise
    _tell(trial, options)
    return trial.exit_code()


def _trial(options: dict[str, Any]) -> Trial:
    from dataclasses import replace

    from prefillgate.api.policy import DEFAULT_POLICY, load_policy
    from prefillgate.cli.loose import LooseCells
    from prefillgate.cli.reach import one_server
    from prefillgate.cli.trial import Trial
    from prefillgate.cli.trial_page import case_lines
    from prefillgate.replay.checks import CheckSuite
    from prefillgate.replay.lane import LaneTimes
    from prefillgate.replay.replay_set import load_replay_set

    asked = one_server(options)
    loaded = load_replay_set(options["replay_set"])
    policy = load_policy(options["policy"] or DEFAULT_POLICY)
    missing = sorted(set(options["wanted"]) - {case.case_id for case in loaded.cases})
    if missing:
        raise BadInput(f"--case {missing[0]}: no such case in {loaded.source} (replayset lint lists them)")
    suite = CheckSuite.from_policy(policy, loaded, options["unvalidated_judge"])
    kept = tuple(case for case in loaded.cases if not options["wanted"] or case.case_id in options["wanted"])
    times = LaneTimes(refused_pause_seconds=1.0, invalid_pause_seconds=0.0)
    if options["cell_timeout"]:
        times = replace(times, cell_timeout_seconds=options["cell_timeout"])
    shared = options["isolation"] == "shared"
    full, to_stderr = options["full"], options["as_json"]

    def show(place: int, tried: Any) -> None:
        for line in case_lines(tried, (place, len(kept)), full):
            click.echo(line, err=to_stderr)

    judged = options["unvalidated_judge"]
    cells = LooseCells(loaded, policy, times, suite, options["wait_ready"] or 0.0, shared, judged)
    return Trial(asked, cells, kept, show)


def _tell(trial: Trial, options: dict[str, Any], interrupted: bool = False) -> None:
    """The summary of what is known, which is all of it unless the trial was interrupted."""
    from prefillgate.cli.trial_page import summary_lines, trial_document

    for line in summary_lines(trial):
        click.echo(line, err=options["as_json"])
    if options["as_json"]:
        click.echo(json_line(trial_document(trial, interrupted)))
