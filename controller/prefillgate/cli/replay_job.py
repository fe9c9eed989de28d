"""`prefillgate replay-job`: one replay of the controller as a process of its own, as a Kubernetes Job runs it."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import TYPE_CHECKING

import click

from prefillgate.cli.controller import settings_options
from prefillgate.cli.errors import BadInput, CouldNotMeasure

if TYPE_CHECKING:
    from prefillgate.app.job_process import Errand
    from prefillgate.app.settings import Settings

EXIT_TERMINATED = 143


@click.command("replay-job")
@click.option("--line", required=True, metavar="NAMESPACE/NAME", help="The ServingLine.")
@click.option("--order", required=True, metavar="JSON", help="What is to be replayed, as the controller wrote it.")
@click.option("--token", required=True, type=click.IntRange(min=0), help="The token of the term of the controller.")
@settings_options
def command(line: str, order: str, token: int, **flags: str | None) -> int:
    """Carry out one replay of a rollout. The controller makes Jobs that run this; nobody else needs it.

    It takes the settings of `prefillgate controller`, and a PostgreSQL store. It looks at the line itself, writes its
    evidence under the token, and goes on with what stands in the store.

    Exit codes: 0 ended with an answer, 1 taken over by a later controller or no longer wanted, 2 refused: starting it
    again unchanged is no use, 143 stopped.
    """
    from prefillgate.api.errors import InputError
    from prefillgate.app.job_manifest import order_of
    from prefillgate.app.job_process import Errand
    from prefillgate.app.logs import set_up_logs, take_in_the_rest
    from prefillgate.app.settings import read_settings
    from prefillgate.evidence.errors import StoreError

    try:
        settings = read_settings(flags, os.environ)
        errand = Errand(order_of(order), _line(line), token)
        set_up_logs(settings.log_level, settings.log_format)
        take_in_the_rest()
        return _run(settings, errand)
    except InputError as error:
        raise BadInput("; ".join(map(str, error.problems))) from error
    except ValueError as error:
        raise BadInput(f"--order: {error} (allowed: what the controller writes)") from error
    except StoreError as error:
        raise CouldNotMeasure(str(error)) from error


def _line(text: str) -> str:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise BadInput(f"--line {text!r}: no line (allowed: NAMESPACE/NAME)")
    return text


def _run(settings: Settings, errand: Errand) -> int:
    import asyncio

    from prefillgate.app.job_process import replay

    async def living() -> int:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def asked_to_stop(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(stop.set)

        before = {number: signal.signal(number, asked_to_stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            code = await replay(settings, errand, stop)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return EXIT_TERMINATED if stop.is_set() else code

    return asyncio.run(living())
