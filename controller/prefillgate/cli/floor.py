"""`prefillgate floor`: the baseline against itself, before anything is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.outcome import say, tell_finished
from prefillgate.cli.replay_options import one_arm, replay_options, replay_request
from prefillgate.cli.run import check_writable, given_words, resume_command
from prefillgate.cli.server_options import server_options
from prefillgate.cli.speaking import tell_resume
from prefillgate.cli.stores import STORE, keep_from_overwriting, report_beside

if TYPE_CHECKING:
    from prefillgate.replay.session import RunRequest

EXAMPLES = """\b
Examples:
  prefillgate floor --baseline http://127.0.0.1:8081 --replay-set prompts.jsonl --store floor.db
  prefillgate run --floor floor.db --baseline URL --candidate URL --replay-set prompts.jsonl
"""


@click.command(name="floor", epilog=EXAMPLES)
@click.option(
    "--baseline",
    multiple=True,
    required=True,
    metavar="URL",
    help="Base URL of the server with the profile in production; again for each further server of it.",
)
@replay_options
@click.option(
    "--store",
    type=STORE,
    metavar="FILE|URL",
    help="Evidence store, a file or postgresql://...?run=NAME; one that exists is resumed.  "
    "[default: .prefillgate/SET-floor-TIME.db]",
)
@click.option(
    "--report", "report_path", type=click.Path(path_type=Path), help="HTML report.  [default: beside the store]"
)
@server_options()
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Replay the baseline against itself: two passes over the set, without a candidate.

    It says whether the instrument can be trusted here, how much the decode speed varies from cell to cell, and how much
    of the output is the same when nothing changed. `run --floor STORE` goes by it.

    Exit codes: 0 the instrument is sound, 1 it is broken or could not be measured, 2 bad input, 10 not known yet (the
    deadline passed), 130 or 143 interrupted.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.cli.problems import say_problems

    try:
        baseline = one_arm("baseline", options)
        request = replace(replay_request(options, (baseline, baseline), "floor"), command=given_words(ctx))
        return _carried_out(request, options, partial(resume_command, ctx, request))
    except InputError as error:
        return say_problems(error)


def _carried_out(request: RunRequest, options: dict[str, Any], resume: Callable[[], str]) -> int:
    from prefillgate.cli.interruptible import carry_out
    from prefillgate.cli.progress import Progress
    from prefillgate.cli.running import RunBroken
    from prefillgate.runs.floor import measure_floor

    report: Path = options["report_path"] or report_beside(request.store)
    sources = (request.replay_set.source, *(Path(options[name]) for name in ("replay_set", "policy")))
    keep_from_overwriting("--report", report, request.store, *(path for path in sources if path is not None))
    check_writable("--report", report)
    say(f"store: {request.store}", "store", store=str(request.store))
    try:
        ended = carry_out(measure_floor(request, Progress(options["quiet"]), None, say))
        return tell_finished(ended.finished, request.store, report, options["as_json"])
    except RunBroken as error:
        say(f"prefillgate: error: {error}", "error", "error")
        tell_resume("could not go on", resume())
        return error.exit_code
    except (KeyboardInterrupt, SystemExit):
        tell_resume("interrupted", resume())
        raise
