"""`prefillgate controller`: gate the serving lines of a cluster, until told to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from prefillgate.app.settings_table import ROWS
from prefillgate.cli.errors import BadInput, CouldNotMeasure

if TYPE_CHECKING:
    from prefillgate.app.settings import Settings

EXIT_AT_ONCE = 143


def settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each setting that has one. Values are read by `read_settings`, which knows the variables too."""
    for row in reversed(ROWS):
        if row.flag:
            default = "" if row.default is None else f" [default: {row.default}]"
            text = f"{row.help}{default} ({row.variable})"
            function = click.option(row.option, row.name, metavar=row.metavar, help=text)(function)
    return function


def _secret_help() -> str:
    rows = [row for row in ROWS if not row.flag]
    lines = [f"  {row.variable}  {row.help}" for row in rows]
    return "\n".join(["Only from the environment, since arguments stand in every list of processes:", *lines])


class _Command(click.Command):
    """Prints the settings that have no option below those that have one."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write(f"{_secret_help()}\n")


@click.command("controller", cls=_Command)
@settings_options
def command(**flags: str | None) -> int:
    """Gate the ServingLines of a cluster: replay, judge and answer every new candidate, until told to stop.

    Every option can be given by the environment variable in brackets instead; the option goes before it. SIGTERM or
    Ctrl-C ends replays, gives the Lease back and exits 0; a second one exits at once. Evidence goes on where it stands.

    \b
    prefillgate controller --store evidence --listen 0.0.0.0:8090
    """
    from prefillgate.api.errors import InputError
    from prefillgate.app.logs import logger, set_up_logs, take_in_the_rest
    from prefillgate.app.settings import read_settings, unknown_variables
    from prefillgate.evidence.errors import StoreError

    try:
        settings = read_settings(flags, os.environ)
        set_up_logs(settings.log_level, settings.log_format)
        take_in_the_rest()
        for name in unknown_variables(os.environ):
            logger().warning("unknown_variable", variable=name, message="this is no setting of the controller")
        ended = _run(settings)
    except InputError as error:
        raise BadInput("; ".join(map(str, error.problems))) from error
    except StoreError as error:
        raise CouldNotMeasure(str(error)) from error
    if not ended:  # a thread that does not end would keep the interpreter from ending
        os._exit(0)
    return 0


def _run(settings: Settings) -> bool:
    import asyncio

    from prefillgate.app.make import makers
    from prefillgate.app.process import Process

    async def living() -> bool:
        process = Process(settings, makers())
        loop = asyncio.get_running_loop()
        asked: list[int] = []

        def asked_to_stop(number: int, frame: FrameType | None) -> None:
            if asked:
                os._exit(EXIT_AT_ONCE)
            asked.append(number)
            loop.call_soon_threadsafe(process.stop.set)

        before = {number: signal.signal(number, asked_to_stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            return await process.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    return asyncio.run(living())
