"""`prefillgate watch-log`: the alarm rule over a log that is being written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.completing import LOG_FORMAT, POLICY
from prefillgate.cli.defaults import default_option
from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.outcome import say
from prefillgate.cli.problems import json_line, say_problems

if TYPE_CHECKING:
    from prefillgate.cli.watching import LogReader, Rule, Watching
    from prefillgate.core.policy import AlarmPolicy

EXIT_ALARMED = 10


@click.command(name="watch-log")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@default_option(
    "--policy",
    type=POLICY,
    default="standard",
    metavar="NAME|FILE",
    help="Whose alarm numbers count, and whose checks judge outputs.",
)
@click.option(
    "--format", "format_", type=LOG_FORMAT, metavar="NAME", help="What the logs are.  [default: told by their content]"
)
@click.option("--state", type=click.Path(path_type=Path), help="Go on where the last watch with this file ended.")
@click.option("--once", is_flag=True, help="Read what is there and end: 10 when an alarm fired, else 0.")
@click.option("--from-end", is_flag=True, help="Leave out what stands in a log that no --state knows.")
@click.option(
    "--slow-decode-ms",
    type=NumberRange(0, min_open=True),
    metavar="MS",
    help="Also bad: more than MS milliseconds of decoding a token, over 16 output tokens or more.",
)
@click.option("--count-only", is_flag=True, help="Count prefills and copies; no alarm, so no outcome is needed.")
@default_option(
    "--tell-every",
    type=NumberRange(1, 604_800),
    default=3600.0,
    metavar="SECONDS",
    help="How often to print the counts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print alarms and counts as JSON lines.")
def command(files: tuple[Path, ...], **options: Any) -> int:
    """Follow logs and print a line when the alarm rule fires on prefills, never on requests.

    FILE is a llama-server text log or any log of JSON lines that `audit` reads; it need not be there yet, and may be
    rotated by renaming or truncating. A prefill is bad when the log says so (`bad`), when its output fails the checks
    of --policy, or when it decodes slower than --slow-decode-ms. Copies of a prefill and requests that are not shown to
    be one are counted and move nothing. The alarm is the CUSUM of --policy at the level for months of looks
    (watchThreshold); after an alarm it starts anew. Models or arms that a log tells apart are watched apart.

    A log without outcomes cannot alarm: llama-server's text log holds no output, so say --slow-decode-ms, or
    --count-only; otherwise the watch ends with 2 after 20 such requests.

    With --state nothing is counted twice or lost over a restart, and an alarm is printed once; where a kill struck
    between printing and noting it, once more and marked as repeated.

    With --json each line has "event": "alarm" (time, series, number, level, alarm_at, since_prefills, since_bad,
    requests, prefills, bad_prefills, copies, case_id, where, repeated) or "counts" (time, series, unread, absent).

    Exit codes: 130 or 143 ended by a signal, after the counts; with --once 10 alarmed, 0 not; 2 bad input, or no
    outcome in sight.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.api.policy import load_policy

    if options["count_only"] and options["slow_decode_ms"]:
        raise BadInput("--count-only: nothing is bad there, so --slow-decode-ms says nothing (allowed: one of them)")
    if len({str(path) for path in files}) < len(files):
        raise BadInput("FILE: a log is named twice (allowed: each once)")
    try:
        numbers = load_policy(options["policy"]).policy.alarm
        with ExitStack() as stack:
            rule = _rule(options)
            shared = _shared(numbers, rule, options, stack)
            return _watched(shared, _readers(files, shared, options), options)
    except InputError as error:
        return say_problems(error)


def _rule(options: dict[str, Any]) -> Rule:
    from prefillgate.cli.audit_checks import load_checks
    from prefillgate.cli.watching import Rule

    if options["count_only"]:
        return Rule(count_only=True)
    return Rule(load_checks(options["policy"]), options["slow_decode_ms"])


def _shared(numbers: AlarmPolicy, rule: Rule, options: dict[str, Any], stack: ExitStack) -> Watching:
    """The watch as the state left it, or a new one. Raises `BadInput` for a state of another rule or in use."""
    from dataclasses import asdict

    from prefillgate.cli.watch_state import damaged, load
    from prefillgate.cli.watching import Watching
    from prefillgate.core.live import LiveWatch

    state: Path | None = options["state"]
    about = {
        "policy": {"name": options["policy"], **asdict(numbers)},
        "rule": {"slow_ms": rule.slow_ms, "count_only": rule.count_only},
    }
    shared = Watching(LiveWatch(numbers), rule, _teller(options), about, state)
    if state is None:
        return shared
    stack.enter_context(_alone(state))
    known = load(state)
    if known is None:
        return shared
    for name, told in about.items():
        if known[name] != told:
            raise BadInput(
                f"--state {state}: kept under another {name}: {known[name]} (allowed: the same, or a new file)"
            )
    try:
        shared.watch.restore(known["watch"])
        shared.known, shared.pending = known["places"], list(known["pending"])
        shared.lives = {name: (number, label) for name, (number, label) in known["lives"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(state, "its counts cannot be used") from error
    return shared


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Nobody else keeps that state meanwhile."""
    from prefillgate.evidence.errors import StoreError
    from prefillgate.evidence.lock import WriterLock

    if not state.parent.is_dir():
        raise BadInput(
            f"--state {state}: there is no folder {state.parent} (allowed: a file in a folder that is there)"
        )
    try:
        lock = WriterLock(state.absolute())
    except StoreError as error:
        raise BadInput(f"--state {state}: another watch keeps it, or its lock cannot be had: {error}") from error
    try:
        yield
    finally:
        lock.release()


def _readers(files: tuple[Path, ...], shared: Watching, options: dict[str, Any]) -> list[LogReader]:
    from prefillgate.cli.watch_state import place_of
    from prefillgate.cli.watching import LogReader
    from prefillgate.importers.following import QUIET_LOOKS, Follower, end_of
    from prefillgate.importers.registry import format_names

    name = options["format_"]
    if name is not None and name not in (allowed := ("cells", *format_names())):
        raise BadInput(f"--format {name!r}: not known (allowed: {', '.join(allowed)})")
    readers = []
    for path in files:
        if path.is_dir():
            raise BadInput(f"{path}: a folder (allowed: a log file, also one that is not there yet)")
        if str(path) == "-":
            raise BadInput(
                "FILE -: standard input cannot be followed (allowed: a file; `prefillgate audit -` reads it)"
            )
        if not path.exists():
            say(f"note: {path}: not there yet")
        place = place_of(shared.known, str(path), options["state"])
        if place is None and options["from_end"]:
            place = end_of(path)
        shared.places[str(path)] = place
        readers.append(LogReader(shared, Follower(path, place, 1 if options["once"] else QUIET_LOOKS), name, options))
    return readers


def _watched(shared: Watching, readers: list[LogReader], options: dict[str, Any]) -> int:
    """Run the readers to their end, or for ever. Whatever ends it, the state is kept and the counts are printed."""
    shared.alarms += len(shared.pending)
    if shared.pending:
        shared.tell_pending(again=True)
    for reader in readers:
        reader.thread.start()
    try:
        _until_the_end(shared, readers, options)
    finally:
        shared.stop.set()
        for reader in readers:
            reader.thread.join()
        shared.save()
        _tell_counts(shared, options)
    if shared.error is not None:
        raise shared.error
    if shared.without_outcomes(at_its_end=True):
        raise BadInput(_no_outcomes(readers, options["slow_decode_ms"] is not None))
    return EXIT_ALARMED if shared.alarms else 0


def _until_the_end(shared: Watching, readers: list[LogReader], options: dict[str, Any]) -> None:
    import time

    told_at = time.monotonic()
    while (alive := [reader.thread for reader in readers if reader.thread.is_alive()]) and not shared.stop.is_set():
        alive[0].join(0.2)
        if time.monotonic() - told_at >= options["tell_every"]:
            told_at = time.monotonic()
            _tell_counts(shared, options)


def _no_outcomes(readers: list[LogReader], timed: bool) -> str:
    from prefillgate.cli.watching import LEAST_DECODED

    titles = ", ".join(sorted({reader.title for reader in readers if reader.title}))
    decode = f"a decode time of {LEAST_DECODED} output tokens or more"
    none = f"neither `bad`, an output that checks could judge, nor {decode}"
    no_output = "neither `bad` nor an output that checks could judge"
    slow = "" if timed else "--slow-decode-ms MS where decode times are told, "
    return (
        f"no request in these logs ({titles}) has an outcome: {none if timed else no_output}, so no alarm can come "
        f"(allowed: a log that holds one of them, {slow}or --count-only)"
    )


def _teller(options: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    from prefillgate.report.clean import one_line

    def tell(facts: dict[str, Any]) -> None:
        if options["as_json"]:
            click.echo(json_line({"event": "alarm", "time": _now(), **facts}))
        else:
            click.echo(one_line(_alarm(facts)))
        sys.stdout.flush()

    return tell


def _alarm(facts: dict[str, Any]) -> str:
    named = f" [{facts['series']}]" if facts["series"] else ""
    again = " (repeated: it may have been printed before)" if facts["repeated"] else ""
    return (
        f"ALARM {_now()}{named}{again}: {facts['since_bad']} of the last {facts['since_prefills']} prefills are bad "
        f"(CUSUM {facts['level']:.2f}, alarm at {facts['alarm_at']:.2f}); in all {facts['requests']} requests, "
        f"{facts['prefills']} prefills, {facts['copies']} copies; the last was {facts['case_id']} at {facts['where']}. "
        "An alarm is no verdict: replicate with fresh prefills before a rollback."
    )


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _tell_counts(shared: Watching, options: dict[str, Any]) -> None:
    from dataclasses import asdict

    from prefillgate.core.alarm import alarm_level

    with shared.lock:
        series = {name: asdict(each) for name, each in shared.watch.series.items()}
        unread, absent = dict(shared.unread), dict(shared.absent)
    if options["as_json"]:
        click.echo(json_line({"event": "counts", "time": _now(), "series": series, "unread": unread, "absent": absent}))
        return
    limit = alarm_level(shared.watch.policy, watch=True)
    for name, seen in series.items():
        alarm = "" if options["count_only"] else f"; CUSUM {seen['level']:.2f} of {limit:.2f}, {seen['alarms']} alarms"
        invalid = f", {seen['invalid']} invalid" if seen["invalid"] else ""
        say(
            f"{name}{': ' if name else ''}{seen['requests']} requests ({seen['bad_requests']} bad), "
            f"{seen['prefills']} prefills ({seen['bad_prefills']} bad), {seen['copies']} copies "
            f"({seen['bad_copies']} bad), {seen['others']} not shown to be a prefill{invalid}{alarm}"
        )
    if not series:
        say("no request yet")
    for why, count in unread.items():
        say(f"{count} lines not used: {why}")
