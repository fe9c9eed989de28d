"""`prefillgate run`: replay real prompts on two servers with independent prefills, and decide."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.outcome import exit_code, quoted, rendered, say, summary, write_report
from prefillgate.cli.stores import keep_from_overwriting

if TYPE_CHECKING:
    from prefillgate.cli.running import Finished
    from prefillgate.core.journal import Difference
    from prefillgate.replay.session import ArmRequest, RunRequest

EXIT_TERMINATED = 143
EXAMPLES = """\b
Examples:
  prefillgate run --baseline http://127.0.0.1:8081 --candidate http://127.0.0.1:8082 --replay-set demo
  prefillgate run --baseline URL --candidate URL --replay-set set.jsonl --policy strict --dry-run
  prefillgate run gate.yaml
"""


@click.command(name="run", epilog=EXAMPLES)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@click.option("--baseline", metavar="URL", help="Base URL of the server with the profile in production.")
@click.option("--candidate", metavar="URL", help="Base URL of the server with the new profile.")
@click.option(
    "--replay-set", metavar="FILE", help="OpenAI Batch JSONL, or the name of a packaged set (demo, short, four)."
)
@click.option("--policy", metavar="NAME|FILE", help="quick, standard, strict or a policy file.  [default: standard]")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="Evidence store; one that exists is resumed.  [default: .prefillgate/SET-TIME.db]",
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
@click.option("--baseline-model", metavar="NAME", help="Model to ask the baseline for.  [default: the one it serves]")
@click.option("--candidate-model", metavar="NAME", help="Model to ask the candidate for.  [default: the one it serves]")
@click.option(
    "--engine", default="auto", show_default=True, help="Server family: auto, llama.cpp or openai-compatible."
)
@click.option(
    "--cell-timeout",
    type=NumberRange(1, 86_400),
    metavar="SECONDS",
    help="How long one generation may take.  [default: 600]",
)
@click.option("--aa", is_flag=True, help="Check the instrument first: two passes over the baseline.")
@click.option("--dry-run", is_flag=True, help="Print the plan, its prefills and its error bounds, and run nothing.")
@click.option("--quiet", is_flag=True, help="No line for each cell.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def command(**options: Any) -> int:
    """Replay real prompts against baseline and candidate with independent prefills, and decide.

    Give two servers and a replay set, or one RUN_FILE that holds all of it. Every cell is written to the evidence
    store before anything looks at it; the same command with that store resumes after any interruption.

    Exit codes: 0 promote, 10 hold, 20 rollback allowed, 1 could not measure, 2 bad input, 130 or 143 interrupted.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.cli.problems import say_problems

    try:
        request = _request(options)
        if options["dry_run"]:
            from prefillgate.cli.dry_run import dry_run

            return dry_run(request, options["as_json"])
        return _execute(request, options)
    except InputError as error:
        return say_problems(error)


def _execute(request: RunRequest, options: dict[str, Any]) -> int:
    from prefillgate.cli.progress import Progress
    from prefillgate.cli.running import RunBroken, execute

    say(f"store: {request.store}")
    _check_report(request, options)
    try:
        finished = _carry_out(execute(request, Progress(options["quiet"])))
        return _tell(finished, request, options)
    except RunBroken as error:
        say(f"prefillgate: error: {error}")
        _say_resume("could not go on", request, options)
        return error.exit_code
    except (KeyboardInterrupt, SystemExit):
        _say_resume("interrupted", request, options)
        raise


def _carry_out(run: Coroutine[Any, Any, Finished]) -> Finished:
    """The run, in an event loop. SIGTERM cancels it between two steps and ends in SystemExit(143).

    An exception raised out of a signal handler could strike anywhere, also where Python swallows it.
    """
    terminated = False

    async def cancellable() -> Finished:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal terminated
            terminated = True
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        before = signal.signal(signal.SIGTERM, terminate)
        try:
            return await run
        finally:
            signal.signal(signal.SIGTERM, before)

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if terminated:
            raise SystemExit(EXIT_TERMINATED) from None
        raise


def _tell(finished: Finished, request: RunRequest, options: dict[str, Any]) -> int:
    """Report, verdict and exit code of a run that came to its end. A report that cannot be written loses no verdict."""
    report: Path = _report_path(request, options)
    with finished.journal:
        try:
            write_report(finished.verdict, finished.journal, report)
            say(f"report: {report}")
        except OSError as error:
            say(f"prefillgate: error: the report {report} cannot be written: {error.strerror or error}")
            report = Path()
        text = (
            rendered(finished.verdict, finished.journal, "json")
            if options["as_json"]
            else summary(finished.verdict, request.store, report if report.name else None)
        )
    click.echo(text, nl=not text.endswith("\n"))
    return exit_code(finished.verdict)


def _report_path(request: RunRequest, options: dict[str, Any]) -> Path:
    return options["report_path"] or request.store.with_suffix(".html")


def _check_report(request: RunRequest, options: dict[str, Any]) -> None:
    """Refuse a report that could not be written, or only over what the run reads or keeps."""
    path = _report_path(request, options)
    named = [Path(options[name]) for name in ("run_file", "replay_set", "policy") if options[name] is not None]
    sources = [request.replay_set.source, *named]
    keep_from_overwriting("--report", path, request.store, *(source for source in sources if source is not None))
    _check_writable("--report", path)


def _check_writable(option: str, path: Path) -> None:
    """Raise `BadInput` for a file that could not be written, before hours are spent on what should stand in it."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise BadInput(f"{option} {path}: cannot be written there (allowed: a file in a folder that can be written)")


def _say_resume(what: str, request: RunRequest, options: dict[str, Any]) -> None:
    """The command that goes on, alone on the last line, to be copied or read by a program."""
    say(f"{what}; this command resumes:")
    say(_resume(request, options))


def _resume(request: RunRequest, options: dict[str, Any]) -> str:
    """The command that goes on with this store."""
    words = ["prefillgate", "run"]
    if options["run_file"] is not None:
        words.append(quoted(str(options["run_file"])))
    names = ("baseline", "candidate", "replay_set", "policy", "baseline_model", "candidate_model")
    for name in (*names, "report_path", "cell_timeout"):
        if options[name] is not None:
            flag = "--report" if name == "report_path" else f"--{name.replace('_', '-')}"
            words += [flag, quoted(str(options[name]))]
    for declared in options["declare"]:
        words += ["--declare", quoted(declared)]
    if options["engine"] != "auto":
        words += ["--engine", options["engine"]]
    words += [f"--{name}" for name in ("aa", "quiet") if options[name]]
    words += ["--json"] if options["as_json"] else []
    return " ".join([*words, "--store", quoted(str(request.store))])


def _request(options: dict[str, Any]) -> RunRequest:
    """What is asked for, from a run file or from options; options win over the file."""
    from dataclasses import replace

    from prefillgate.api.policy import DEFAULT_POLICY, load_policy
    from prefillgate.replay.lane import LaneTimes
    from prefillgate.replay.replay_set import load_replay_set
    from prefillgate.replay.session import ArmRequest, RunRequest

    from_file = _from_file(options)
    urls = {}
    for arm in ("baseline", "candidate"):
        given = options[arm]
        known = from_file.get(arm, ArmRequest(""))
        if given is None and not known.url:
            raise BadInput(f"--{arm} is missing (allowed: the base URL of a server, or a run file that names it)")
        arm_request = known if given is None else ArmRequest(_checked_url(f"--{arm}", given))
        model = options[f"{arm}_model"]
        engine = options["engine"] if options["engine"] != "auto" else arm_request.engine
        urls[arm] = replace(arm_request, model=model or arm_request.model, engine=_checked_engine(engine))
    _two_arms(urls["baseline"], urls["candidate"])
    set_name = options["replay_set"] or from_file.get("replay_set")
    if set_name is None:
        raise BadInput("--replay-set is missing (allowed: a JSONL file, or demo, short, four)")
    replay_set = load_replay_set(set_name)
    policy = from_file.get("policy")
    if options["policy"] is not None or policy is None:
        policy = load_policy(options["policy"] or DEFAULT_POLICY)
    if options["aa"]:
        policy = replace(policy, policy=replace(policy.policy, aa_check=True))
    timeout = options["cell_timeout"] or from_file.get("cell_timeout") or LaneTimes().cell_timeout_seconds
    seed = options["seed"] if options["seed"] is not None else from_file.get("seed")
    return RunRequest(
        baseline=urls["baseline"],
        candidate=urls["candidate"],
        replay_set=replay_set,
        policy=policy,
        store=options["store"] or from_file.get("store") or _default_store(replay_set.name),
        seed=seed,
        differences=(*from_file.get("differences", ()), *(_declared(text) for text in options["declare"])),
        times=LaneTimes(cell_timeout_seconds=timeout),
    )


def _from_file(options: dict[str, Any]) -> dict[str, Any]:
    if options["run_file"] is None:
        return {}
    from prefillgate.api.run_file import Arm, load_run_file
    from prefillgate.replay.session import ArmRequest

    document = load_run_file(options["run_file"])

    def arm(wanted: Arm, name: str) -> ArmRequest:
        key = None
        if wanted.api_key_variable is not None:
            key = os.environ.get(wanted.api_key_variable)
            if not key:
                raise BadInput(f"spec.{name}.apiKeyVariable: {wanted.api_key_variable} is not set in the environment")
        return ArmRequest(wanted.url, wanted.model, wanted.engine, key)

    return {
        "baseline": arm(document.baseline, "baseline"),
        "candidate": arm(document.candidate, "candidate"),
        "replay_set": document.replay_set,
        "policy": document.policy,
        "store": document.store,
        "seed": document.seed,
        "differences": document.declared_differences,
        "cell_timeout": document.cell_timeout_seconds,
    }


def _checked_url(option: str, url: str) -> str:
    from prefillgate.api.run_file import check_url

    try:
        check_url(url)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error
    return url.rstrip("/")


def _two_arms(baseline: ArmRequest, candidate: ArmRequest) -> None:
    """Raise `BadInput` where both arms are one server and one model as written; a server may show it later still."""
    if (baseline.url.rstrip("/"), baseline.model) == (candidate.url.rstrip("/"), candidate.model):
        raise BadInput(
            f"--baseline and --candidate are the same server and model ({baseline.url}): nothing could be compared "
            "(allowed: two servers, or one with two models named by --baseline-model and --candidate-model)"
        )


def _checked_engine(name: str) -> str:
    from prefillgate.engines.registry import engine_names

    if name not in engine_names():
        raise BadInput(f"--engine: {name!r} is not known (allowed: {', '.join(engine_names())})")
    return name


def _declared(text: str) -> Difference:
    """`NAME` or `NAME=OLD..NEW`, with an area where NAME is written as area/name."""
    from prefillgate.core.differences import AREAS
    from prefillgate.core.journal import Difference

    name, _, values = text.partition("=")
    area, _, short = name.rpartition("/")
    old, dots, new = values.partition("..")
    if not short or (values and not dots):
        raise BadInput(f"--declare: {text!r} cannot be read (allowed: NAME, NAME=OLD..NEW or AREA/NAME=OLD..NEW)")
    return Difference(area or AREAS.get(short, "other"), short, old or None, new or None)


def _default_store(set_name: str) -> Path:
    from datetime import UTC, datetime

    return Path(".prefillgate") / f"{set_name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.db"
