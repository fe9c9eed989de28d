"""`prefillgate recheck`: a promoted profile once more, a few fresh prefills at a time, for as long as it serves."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.outcome import exit_code, quoted, rendered, say, summary, write_report
from prefillgate.cli.replay_options import one_arm, replay_options, replay_request
from prefillgate.cli.run import given_words
from prefillgate.cli.server_options import SidedCommand, server_options
from prefillgate.cli.speaking import tell_resume
from prefillgate.cli.stores import STORE, report_beside

if TYPE_CHECKING:
    from prefillgate.core.gate import Gate
    from prefillgate.replay.session import ArmRequest, RunRequest
    from prefillgate.runs.watch import WatchEnded, WatchRequest

EXAMPLES = """\b
Examples:
  prefillgate recheck --promoted http://llm:8080 --replay-set prompts.jsonl --promoted-by gate.db --folder recheck
  prefillgate recheck --promoted URL --previous URL --replay-set prompts.jsonl --folder recheck --prefills 8
"""
PREFILLS = 8
_REPLAY = re.compile(r"replay-([0-9]{4,12})\.db")
OPTIONS = {"--candidate": "--promoted", "--baseline": "--previous"}


@click.command(name="recheck", cls=SidedCommand, epilog=EXAMPLES)
@click.option(
    "--promoted",
    multiple=True,
    required=True,
    metavar="URL",
    help="Base URL of the server with the promoted profile; again for each further server of it.",
)
@click.option(
    "--previous",
    multiple=True,
    metavar="URL",
    help="Base URL of a server with the profile before it. Without it an alarm warns, and nothing can answer it.",
)
@replay_options
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where the stores are kept: one for each replay, and one for what answers an alarm. The next replay begins "
    "where the last one there ended; one that was interrupted goes on.",
)
@click.option(
    "--prefills",
    type=click.IntRange(1, 10_000),
    default=PREFILLS,
    metavar="NUMBER",
    help=f"Fresh prefills to take.  [default: {PREFILLS}]",
)
@click.option(
    "--promoted-by",
    type=STORE,
    metavar="FILE|URL",
    help="The run that promoted it: its declared differences, how many replicates these profiles had, and whether its "
    "baseline's answers are always cut.",
)
@click.option(
    "--max-minutes",
    type=NumberRange(0, 100_000, min_open=True),
    metavar="MINUTES",
    help="End after so long; the same command goes on.",
)
@server_options("promoted", "previous")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Replay a few prompts on a promoted profile, with fresh prefills; once a day, say, for as long as it serves.

    All replays of a folder are one sequence: bad prefills of many small ones add up to an alarm that a healthy profile
    raises once in thousands. An alarm allows nothing by itself. With a server of the previous profile a fresh
    replicate on both answers it, in a store of its own into which nothing of the replays enters.

    Exit codes: 0 no alarm, 10 an alarm that was not confirmed or could not be answered, 20 rollback allowed, 1 could
    not measure, 2 bad input, 130 or 143 interrupted.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.cli.problems import say_problems

    try:
        request = _requested(ctx, options)
        words = ("prefillgate", *given_words(ctx, ()))
        return _carried_out(request, options, lambda: " ".join(map(quoted, words)))
    except InputError as error:
        return say_problems(error)


def _requested(ctx: click.Context, options: dict[str, Any]) -> WatchRequest:
    from prefillgate.replay.clock import SystemClock
    from prefillgate.runs.watch import WatchRequest

    promoted = one_arm("promoted", options, "promoted")
    previous = one_arm("previous", options, "previous") if options["previous"] else None
    number, before = _place(options["folder"], previous is not None)
    store, minutes = options["folder"] / name_of(number), options["max_minutes"]
    run = replace(
        replay_request({**options, "store": store}, (promoted, promoted), "recheck"),
        command=given_words(ctx),
        seed=None if store.exists() else options["seed"],
        must_end_at=None if minutes is None else SystemClock().now() + 60 * minutes,
        floor=options["promoted_by"],
    )
    judged = _judged(options)
    return WatchRequest(
        run=run if judged is None else replace(run, differences=judged.plan.differences),
        prefills=options["prefills"],
        after=before,
        replicate=_answer_of(store),
        previous=None if previous is None else Servers(previous),
        number=lambda: _next_replicate(options["folder"], judged, run),
    )


def name_of(number: int) -> str:
    """The store of a replay in its folder."""
    return f"replay-{number:04}.db"


def _answer_of(store: Path) -> Path:
    return store.with_name(f"{store.stem}-replicate.db")


def _place(folder: Path, answerable: bool) -> tuple[int, Path | None]:
    """The number of the replay to take, and the store of the one before it: the last that is there, where it is not
    over, else the next. `answerable`: there is a server of the previous profile, so an alarm wants its answer."""
    found = (_REPLAY.fullmatch(path.name) for path in folder.glob("replay-*.db"))
    there = sorted(int(each[1]) for each in found if each is not None)
    if not there:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"--folder {folder}: {error.strerror or error} (allowed: one that can be made)") from error
        return 1, None
    last = there[-1]
    number = last + 1 if _is_over(folder / name_of(last), answerable) else last
    before = [each for each in there if each < number]
    return number, folder / name_of(before[-1]) if before else None


def _is_over(store: Path, answerable: bool) -> bool:
    """Whether nothing of a replay is left to do, the answer to its alarm included."""
    from prefillgate.core.schedule import Stop, next_step
    from prefillgate.runs.budget import MENDABLE
    from prefillgate.runs.stores import reading

    def ended(path: Path) -> tuple[bool, bool]:
        """Whether its run is over, and whether it alarmed."""
        with reading(path) as (_, gate):
            step = next_step(gate)
        return isinstance(step, Stop) and step.ruling.reason not in MENDABLE, gate.ever_alarmed

    over, alarmed = ended(store)
    if not over or not _answer_of(store).exists():
        return over and not (alarmed and answerable)
    return ended(_answer_of(store))[0]


def _judged(options: dict[str, Any]) -> Gate | None:
    from prefillgate.runs.stores import reading

    if options["promoted_by"] is None:
        return None
    with reading(options["promoted_by"]) as (_, gate):
        return gate


def _next_replicate(folder: Path, judged: Gate | None, run: RunRequest) -> int:
    """After those of the run that promoted it, all that its policy allows where that run is not known, and after
    those of earlier replays here."""
    first = 1 + run.policy.policy.replicate.max_attempts
    if judged is not None:
        first = judged.plan.first_replicate + len(judged.replicates)
    earlier = [path for path in folder.glob("replay-*-replicate.db") if path != _answer_of(Path(str(run.store)))]
    return first + len(earlier)


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of the previous profile, which stand there anyway."""

    asked: ArmRequest

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[ArmRequest | None]:
        """Them."""
        yield self.asked


def _carried_out(request: WatchRequest, options: dict[str, Any], again: Callable[[], str]) -> int:
    from prefillgate.cli.interruptible import carry_out
    from prefillgate.cli.progress import Progress
    from prefillgate.cli.running import RunBroken
    from prefillgate.runs.around import Hooks
    from prefillgate.runs.watch import run_watch

    say(f"store: {request.run.store}", "store", store=str(request.run.store))
    hooks = Hooks(names={f"{old}-model": f"{new}-model" for old, new in OPTIONS.items()} | OPTIONS)
    try:
        ended = carry_out(run_watch(request, Progress(options["quiet"]), None, say, hooks))
        return _told(ended, request, options["as_json"])
    except RunBroken as error:
        say(f"prefillgate: error: {error}", "error", "error")
        tell_resume("could not go on", again())
        return error.exit_code
    except (KeyboardInterrupt, SystemExit):
        tell_resume("interrupted", again())
        raise


def _told(ended: WatchEnded, request: WatchRequest, as_json: bool) -> int:
    """Reports, the answer and its exit code. What answers an alarm is the answer."""
    kept = [(ended.replay, request.run.store)]
    if ended.replicate is not None and request.replicate is not None:
        kept.append((ended.replicate, request.replicate))
    try:
        for finished, store in kept:
            report = report_beside(store)
            try:
                write_report(finished.verdict, finished.journal, report)
                say(f"report: {report}", "report", report=str(report))
            except OSError as error:
                raise BadInput(f"{report}: cannot be written: {error.strerror or error}") from error
        finished, store = kept[-1]
        text = (
            rendered(finished.verdict, finished.journal, "json")
            if as_json
            else summary(finished.verdict, store, report_beside(store))
        )
    finally:
        ended.close()
    say(ended.sentence, "watch", "warning" if ended.alarm else "info")
    click.echo(text, nl=not text.endswith("\n"))
    return exit_code(finished.verdict)
