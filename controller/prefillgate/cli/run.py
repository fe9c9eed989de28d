"""`prefillgate run`: replay real prompts on two servers with independent prefills, and decide."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from prefillgate.cli.completing import POLICY, REPLAY_SET
from prefillgate.cli.errors import BadInput
from prefillgate.cli.floor_options import earlier_options
from prefillgate.cli.gateway import gateway_options
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.outcome import quoted, say, tell_finished
from prefillgate.cli.sequential import sequential_options
from prefillgate.cli.server_options import SidedCommand, server_options, unvalidated_judge_option
from prefillgate.cli.shape_options import shape_options
from prefillgate.cli.speaking import tell_resume
from prefillgate.cli.stores import STORE, keep_from_overwriting, report_beside
from prefillgate.cli.time_limit import time_options, within_minutes

if TYPE_CHECKING:
    from prefillgate.replay.session import RunRequest

EXAMPLES = """\b
Examples:
  prefillgate run --baseline http://127.0.0.1:8081 --candidate http://127.0.0.1:8082 --replay-set demo
  prefillgate run --baseline URL --candidate URL --replay-set set.jsonl --policy strict --dry-run
  prefillgate run gate.yaml
"""


@click.command(name="run", cls=SidedCommand, epilog=EXAMPLES)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--baseline",
    multiple=True,
    metavar="URL",
    help="Base URL of the server with the profile in production; again for each further server of it. Without it the "
    "candidate is judged alone.",
)
@click.option(
    "--candidate",
    multiple=True,
    metavar="URL",
    help="Base URL of the server with the new profile; again for each further server of it.",
)
@click.option(
    "--replay-set",
    type=REPLAY_SET,
    metavar="FILE",
    help="OpenAI Batch JSONL, or the name of a packaged set (demo, short, four).",
)
@click.option(
    "--policy", type=POLICY, metavar="NAME|FILE", help="quick, standard, strict or a policy file.  [default: standard]"
)
@click.option(
    "--store",
    type=STORE,
    metavar="FILE|URL",
    help="Evidence store, a file or postgresql://...?run=NAME; one that exists is resumed.  "
    "[default: .prefillgate/SET-TIME.db]",
)
@click.option(
    "--report", "report_path", type=click.Path(path_type=Path), help="HTML report.  [default: beside the store]"
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**53 - 1),
    help="Seed of prompt order, coins, nonces and request seeds.  [default: random]",
)
@click.option(
    "--declare",
    multiple=True,
    metavar="NAME[=OLD..NEW]",
    help="Declare a difference between the profiles (build, weights, or any name). Undeclared ones block.",
)
@shape_options
@earlier_options
@server_options("baseline", "candidate")
@gateway_options
@click.option(
    "--wait-ready",
    type=NumberRange(0, 86_400),
    metavar="SECONDS",
    help="Wait for servers that refuse connections or load their model.  [default: 0]",
)
@click.option(
    "--cell-timeout",
    type=NumberRange(1, 86_400),
    metavar="SECONDS",
    help="How long one generation may take.  [default: 600]",
)
@click.option(
    "--budget",
    type=click.IntRange(1, 1_000_000),
    metavar="PREFILLS",
    help="Prefills to spend, both arms. A larger one goes on with a store that ended on its budget.  "
    "[default: the policy's, or the store's]",
)
@time_options
@sequential_options
@click.option("--aa", is_flag=True, help="Check the instrument first: two passes over the baseline.")
@unvalidated_judge_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the plan, its prefills, minutes and error bounds; send two cells to each server to time them.",
)
@click.option("--quiet", is_flag=True, help="No line for each cell.")
@click.option("--log-json", is_flag=True, help="Say everything on standard error as one JSON object a line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Replay real prompts against baseline and candidate with independent prefills, and decide.

    Give two servers and a replay set, or one RUN_FILE that holds all of it; without a baseline quality alone is
    judged. Every cell is written to the evidence store before anything looks at it; the same command with that store
    resumes after any interruption.

    Exit codes: 0 promote, 10 hold, 20 rollback allowed, 1 could not measure, 2 bad input, 130 or 143 interrupted.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.cli.problems import say_problems
    from prefillgate.cli.run_request import requested

    try:
        request = replace(requested(options), command=given_words(ctx))
        if options["dry_run"]:
            from prefillgate.cli.dry_run import dry_run

            return dry_run(request, options)
        return _execute(request, options, partial(resume_command, ctx, request))
    except InputError as error:
        return say_problems(error)


def _execute(request: RunRequest, options: dict[str, Any], resume: Callable[..., str]) -> int:
    try:
        say(f"store: {request.store}", "store", store=str(request.store))
        _check_report(request, options)
        return _to_its_end(request, options, resume)
    except (KeyboardInterrupt, SystemExit):
        tell_resume("interrupted", resume())
        raise


def _to_its_end(request: RunRequest, options: dict[str, Any], resume: Callable[..., str]) -> int:
    from prefillgate.cli.interruptible import carry_out
    from prefillgate.cli.progress import Progress
    from prefillgate.cli.running import RunBroken, execute

    try:
        request = within_minutes(request, options["max_minutes"], options["cell_seconds"])
        finished = carry_out(execute(request, Progress(options["quiet"])))
        needed = finished.verdict.budget_needed
        code = tell_finished(finished, request.store, _report_path(request, options), options["as_json"])
        if needed is not None:
            tell_resume("the budget is spent", resume(needed))
        return code
    except RunBroken as error:
        say(f"prefillgate: error: {error}", "error", "error")
        tell_resume("could not go on", resume())
        return error.exit_code


def _report_path(request: RunRequest, options: dict[str, Any]) -> Path:
    return options["report_path"] or report_beside(request.store)


def _check_report(request: RunRequest, options: dict[str, Any]) -> None:
    """Refuse a report that could not be written, or only over what the run reads or keeps."""
    path = _report_path(request, options)
    named = [Path(options[name]) for name in ("run_file", "replay_set", "policy") if options[name] is not None]
    sources = [request.replay_set.source, *named]
    keep_from_overwriting("--report", path, request.store, *(source for source in sources if source is not None))
    check_writable("--report", path)


def check_writable(option: str, path: Path) -> None:
    """Raise `BadInput` for a file that could not be written, before hours are spent on what should stand in it."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise BadInput(f"{option} {path}: cannot be written there (allowed: a file in a folder that can be written)")


def resume_command(ctx: click.Context, request: RunRequest, budget: int | None = None) -> str:
    """The command that goes on with this store: what was asked for, and the store. The seed stands in the store.

    `budget` takes the place of the one that was given.
    """
    words = ["prefillgate", *given_words(ctx, ("store", "seed") if budget is None else ("store", "seed", "budget"))]
    words += [] if budget is None else ["--budget", str(budget)]
    return " ".join(map(quoted, [*words, "--store", str(request.store)]))


def given_words(ctx: click.Context, left_out: tuple[str, ...] = ("store", "seed")) -> tuple[str, ...]:
    """The command and what was given on its command line, but for the options left out."""
    words = [ctx.command.name or ""]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and name not in left_out:
            words += _words(parameter, ctx.params[name])
    return tuple(words)


def _words(parameter: click.Parameter, value: Any) -> list[str]:
    """One option or argument as it was given."""
    flag = parameter.opts[0]
    if isinstance(parameter, click.Argument):
        return [str(value)]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [flag]
    values = value if parameter.multiple else (value,)
    return [word for one in values for word in (flag, _text(one))]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
