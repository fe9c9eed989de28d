"""`prefillgate replayset record`: a pass-through in front of a server that keeps its prompts as a replay set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.defaults import default_option
from prefillgate.cli.errors import BadInput
from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.problems import say_problems
from prefillgate.cli.server_options import prefixed_options

if TYPE_CHECKING:
    from prefillgate.engines.http import EngineOptions
    from prefillgate.recording.recorder import Recorder

DEFAULT_LISTEN = "127.0.0.1:8088"
MEBIBYTE = 1024 * 1024
UPSTREAM = "upstream"


@click.command(name="record")
@click.option("--upstream", required=True, metavar="URL", help="Base URL of the server to pass requests on to.")
@default_option(
    "--listen",
    default=DEFAULT_LISTEN,
    metavar="ADDR",
    help="PORT (on this machine alone) or IP:PORT to listen at; port 0 takes any free one.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The replay set to add cases to.")
@default_option(
    "--sample",
    type=NumberRange(0, 1, min_open=True),
    default=1.0,
    metavar="RATE",
    help="Share of the prompts to keep, drawn by each prompt's digest: the same prompt is always in or always out.",
)
@click.option("--max-cases", type=click.IntRange(1), metavar="N", help="Keep no more once the file holds N cases.")
@default_option(
    "--scrub/--no-scrub", default=True, help="Replace secrets and addresses in what is kept by placeholders."
)
@default_option(
    "--max-body",
    type=NumberRange(0.001, 16),
    default=4.0,
    metavar="MIB",
    help="A larger body is passed on and not kept.",
)
@default_option(
    "--tell-every",
    type=NumberRange(1, 86_400),
    default=60.0,
    metavar="SECONDS",
    help="How often to print the counts while they change.",
)
@prefixed_options(UPSTREAM, "model", "engine")
def command(**options: Any) -> int:
    """Pass requests on to a server and keep the bodies of those it answers with 200 as cases of a replay set.

    Point your application at this address instead of the server's. Requests and replies go through as they come, byte
    for byte, streams chunk by chunk; nothing is sent twice, no connection to the server is reused, and who hangs up is
    passed on. POST /v1/chat/completions and /v1/completions are kept, all else only passes.

    Of a request its body is kept, never its headers. The key it came with goes to the server, or the one of
    --upstream-api-key-env in its place. Keys, tokens, bearer strings, private keys, passwords, e-mail and IP addresses
    inside the text become placeholders such as [email-3f0c9a1b2d], equal ones the same; their number is printed. The
    placeholders' key stands in FILE.scrub-key: delete it once the file is complete.

    A prompt is kept once. Each line is on the disk before the next; killed, the same command goes on with the file and
    cuts a torn last line. A disk that is too slow costs cases (counted), never time of the traffic. Ctrl-C lets what is
    under way end (a second one does not), writes what is queued, and ends with 130.

    Exit codes: 130 or 143 ended by a signal, after the counts; 2 bad input; 1 it cannot listen.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.cli.addresses import checked_url

    upstream = checked_url("--upstream", options["upstream"])
    host, port = listen_address(options["listen"])
    reach = _reach(options)
    _refuse_itself(upstream, host, port)
    try:
        return _record(upstream, (host, port), reach, options)
    except InputError as error:
        return say_problems(error)


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of PORT or IP:PORT. Raises `BadInput`: a name or an empty host could mean every interface."""
    import ipaddress

    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    allowed = "allowed: PORT for this machine alone, or IP:PORT such as 127.0.0.1:8088, [::1]:8088, 0.0.0.0:8088"
    try:
        address = str(ipaddress.ip_address(host))
        number = int(port) if port.isascii() and port.isdigit() else -1
    except ValueError:
        raise BadInput(f"--listen {text!r}: no address to listen at ({allowed})") from None
    if not 0 <= number <= 65535:
        raise BadInput(f"--listen {text!r}: no port from 0 to 65535 ({allowed})")
    return address, number


def _reach(options: dict[str, Any]) -> EngineOptions:
    import os

    from prefillgate.cli.server_options import access_of
    from prefillgate.engines.access import AccessError, engine_options

    try:
        return engine_options(access_of(options, UPSTREAM), None, os.environ)
    except AccessError as error:
        raise BadInput(f"{UPSTREAM}: {error}") from error


def _refuse_itself(upstream: str, host: str, port: int) -> None:
    from prefillgate.recording.serve import is_itself

    if port and is_itself(upstream, host, port):
        raise BadInput(f"--upstream {upstream}: that is where this recorder listens (allowed: another server)")


def _record(upstream: str, at: tuple[str, int], reach: EngineOptions, options: dict[str, Any]) -> int:
    from contextlib import closing

    from prefillgate.cli.errors import CouldNotMeasure
    from prefillgate.cli.outcome import say
    from prefillgate.core.scrub import Scrubber
    from prefillgate.evidence.errors import StoreError
    from prefillgate.evidence.lock import WriterLock
    from prefillgate.recording.case_file import CaseFile, scrub_key
    from prefillgate.recording.recorder import Recorder, Rules

    output: Path = options["output"]
    if not output.parent.is_dir():
        raise BadInput(f"-o {output}: there is no folder {output.parent} (allowed: a file in a folder that is there)")
    try:
        lock = WriterLock(output.absolute())  # before anything is cut: another recorder may be in the middle of a line
    except StoreError as error:
        raise BadInput(f"-o {output}: another recorder adds to it, or its lock cannot be had: {error}") from error
    try:
        with closing(CaseFile(output)) as file:
            if file.cut_bytes:
                say(f"{output}: its last line was torn; {file.cut_bytes} bytes were cut")
            scrubber = Scrubber(scrub_key(output)) if options["scrub"] else None
            recorder = Recorder(file, Rules(options["sample"], options["max_cases"]), scrubber, say)
            listened = True
            try:
                return _served(upstream, at, (reach, recorder), options)
            except CouldNotMeasure:
                listened = False
                raise
            finally:
                recorder.close()
                if listened:
                    _tell(recorder, options)
    finally:
        lock.release()


def _served(upstream: str, at: tuple[str, int], parts: tuple[EngineOptions, Recorder], options: dict[str, Any]) -> int:
    import asyncio
    import ipaddress

    from prefillgate.cli.errors import CouldNotMeasure
    from prefillgate.cli.outcome import say
    from prefillgate.cli.server_options import access_of
    from prefillgate.engines.access import access_findings
    from prefillgate.engines.http import base_url
    from prefillgate.engines.server_troubles import Troubles, troubles_logger
    from prefillgate.recording.proxy import PassThrough
    from prefillgate.recording.serve import Listening, serve

    reach, recorder = parts
    told: dict[str, Any] = {}

    def ready(url: str) -> None:
        say(f"listening on {url}, passing on to {upstream}", "listening", url=url)
        if not ipaddress.ip_address(at[0]).is_loopback:
            whose = "with the key of --upstream-api-key-env" if reach.api_key else "with a key of their own"
            say(f"warning: whoever reaches {url} can use {upstream} through it, {whose}", "warning", "warning")
        for finding in access_findings(access_of(options, UPSTREAM), upstream):
            say(f"warning: {finding}", "warning", "warning")
        if not options["scrub"]:
            say("warning: --no-scrub keeps secrets and addresses as they are", "warning", "warning")

    def tell() -> None:
        if told.get("counts") != recorder.counts:
            told["counts"] = recorder.counts.copy()
            _tell(recorder, options)

    passing = PassThrough(base_url(upstream).root, reach, recorder, int(options["max_body"] * MEBIBYTE))
    troubles = Troubles(
        lambda: recorder.count("unreadable"), lambda kind: say(f"a request could not be passed on: {kind}")
    )
    listening = Listening(*at, ready, tell, options["tell_every"], troubles_logger(troubles))
    try:
        return 128 + asyncio.run(serve(passing.application(), listening))
    except OSError as error:
        raise CouldNotMeasure(f"--listen {options['listen']}: cannot listen: {error.strerror or error}") from error


def _tell(recorder: Recorder, options: dict[str, Any]) -> None:
    """The counts, in two lines."""
    from prefillgate.cli.outcome import say
    from prefillgate.recording.recorder import ENDINGS

    counts = recorder.counts
    statuses = ", ".join(f"{count} with {status}" for status, count in sorted(recorder.refused.items()))
    more = {"refused": f" ({statuses})"}
    parts = [
        f"{counts[name]} {words}{more.get(name, '')}"
        for name, words in ENDINGS.items()
        if counts[name] or name == "kept"
    ]
    total = sum(counts.values())
    say(
        f"{total} request{'' if total == 1 else 's'}: {', '.join(parts)}",
        "counts",
        counts=dict(counts),
        statuses=dict(recorder.refused),
    )
    if options["scrub"]:
        found = recorder.scrubbed()
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items())) or "nothing"
        say(f"scrubbed: {listed}", "scrubbed", counts=dict(found))
