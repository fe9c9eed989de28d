"""`prefillgate doctor`: what is installed here, and what a given server can and cannot prove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.numbers import NumberRange
from prefillgate.cli.server_options import access_of, engine_of, model_of, server_options
from prefillgate.cli.stores import STORE

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress
    from prefillgate.engines.base import Engine, Identity, Look
    from prefillgate.engines.capability import Capability

EXIT_NOT_READY = 10
GENERATIONS = 3
IDLE_POLL_SECONDS = 0.5
DEFAULT_STORE = Path(".prefillgate") / "run.db"
NAME_WIDTH, SENTENCE_WIDTH = 22, 76
EXAMPLES = """\b
Examples:
  prefillgate doctor
  prefillgate doctor --server http://127.0.0.1:8081 --api-key-env KEY
"""


@click.command(name="doctor", epilog=EXAMPLES)
@click.option("--server", metavar="URL", help="Server to ask: it gets 3 short generations, as every run begins.")
@server_options()
@click.option(
    "--wait-idle",
    type=NumberRange(0, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a server that serves others is waited for.",
)
@click.option("--store", type=STORE, metavar="FILE|URL", help="Where a run would put its evidence.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def command(server: str | None, store: StoreAddress | None, as_json: bool, **options: Any) -> int:
    """Say what is installed here and, with --server, what that server can and cannot prove.

    Each capability is ok, missing or unknown, with the flag that would give it. With --server it runs the discovery and
    the capability probe of a run (3 generations of at most 2 tokens on an idle server) and judges nothing beyond that.

    Exit codes: 0 a run can be trusted here, 10 something that a decision needs is missing, 1 the server could not be
    asked, 2 bad input.
    """
    from prefillgate.cli.installed import installed
    from prefillgate.engines.capability import Standing

    here = installed(store or DEFAULT_STORE)
    examined = None if server is None else _examined(server, options)
    lines = [*here, *(() if examined is None else examined.capabilities)]
    lacking = [line.name for line in lines if line.needed and line.standing is not Standing.OK]
    if as_json:
        _print_json(here, examined, not lacking)
    else:
        _print_page(here, examined, lacking)
    return EXIT_NOT_READY if lacking else 0


class Examined:
    """One server and what it showed."""

    def __init__(self, url: str, identity: Identity, capabilities: tuple[Capability, ...], notes: tuple[str, ...]):
        self.url, self.identity, self.capabilities, self.notes = url, identity, capabilities, notes


def _examined(server: str, options: dict[str, Any]) -> Examined:
    """Ask the server. Raises `BadInput` or `CouldNotMeasure`."""
    import asyncio
    import os

    from prefillgate.cli.addresses import checked_engine, checked_url
    from prefillgate.cli.errors import BadInput
    from prefillgate.engines.access import AccessError, access_findings, engine_options

    access = access_of(options)
    url = checked_url("--server", server)
    name = checked_engine(engine_of(options) or "auto")
    try:
        engine = engine_options(access, model_of(options), os.environ)
    except AccessError as error:
        raise BadInput(f"--server: {error}") from error
    identity, capabilities, notes = asyncio.run(_ask(url, engine, name, options["wait_idle"]))
    return Examined(url, identity, capabilities, (*access_findings(access, url), *notes))


async def _ask(
    url: str, options: Any, name: str, patience_seconds: float
) -> tuple[Identity, tuple[Capability, ...], tuple[str, ...]]:
    import secrets

    from prefillgate.cli.errors import BadInput, CouldNotMeasure
    from prefillgate.cli.speaking import say
    from prefillgate.engines.base import EngineError, ModelNotServedError
    from prefillgate.engines.capability import Seen, capability_report, lists_models_without_key
    from prefillgate.engines.registry import detect, flags_of
    from prefillgate.runs.around import Around
    from prefillgate.runs.reach import told_to_wait

    key_given = options.api_key is not None or any(header.lower() == "authorization" for header, _ in options.headers)
    around = Around(listener=say)
    try:
        with told_to_wait(url, around):
            detected = await detect(url, options, name)
        async with detected as engine:
            with told_to_wait(url, around):
                identity = await engine.discover()
            _one_model(identity)
            look = await _at_rest(engine, patience_seconds)
            probe = await engine.probe(secrets.token_hex(8), identity.model)
            keyless = await lists_models_without_key(url, options) if key_given else None
    except ModelNotServedError as error:
        raise BadInput(f"--model: {error}") from error
    except EngineError as error:
        hint = "; name its key with --api-key-env VARIABLE" if error.http_status in (401, 403) else ""
        raise CouldNotMeasure(f"{error}{hint}") from error
    seen = Seen(identity, probe, look, key_given, keyless)
    return identity, capability_report(seen, flags_of(engine.name)), probe.findings


def _one_model(identity: Identity) -> None:
    from prefillgate.cli.errors import BadInput

    if identity.model is None:
        served = ", ".join(identity.models) or "none"
        raise BadInput(f"--model is missing: the server has {len(identity.models)} models (allowed: {served})")


async def _at_rest(engine: Engine, patience_seconds: float) -> Look:
    """A look at the server once nothing runs there, or where it does not tell. Raises `CouldNotMeasure`."""
    import asyncio
    import time

    from prefillgate.cli.errors import CouldNotMeasure

    until = time.monotonic() + patience_seconds
    look = await engine.look()
    while look.activity.idle is False:
        if time.monotonic() >= until:
            raise CouldNotMeasure(
                f"{engine.url}: it serves others ({look.activity.running or 0} running, "
                f"{look.activity.waiting or 0} waiting) and did not become idle within {patience_seconds:g} s: a probe "
                "beside them would show nothing"
            )
        await asyncio.sleep(IDLE_POLL_SECONDS)
        look = await engine.look()
    return look


def _print_json(here: tuple[Capability, ...], examined: Examined | None, ready: bool) -> None:
    import json
    from dataclasses import asdict

    def rows(lines: tuple[Capability, ...]) -> list[dict[str, Any]]:
        return [asdict(line) for line in lines]

    server = None
    if examined is not None:
        server = {
            "url": examined.url,
            "engine": examined.identity.engine,
            "model": examined.identity.model,
            "generations": GENERATIONS,
            "capabilities": rows(examined.capabilities),
            "findings": list(examined.notes),
        }
    document = {"ready": ready, "here": rows(here), "server": server}
    click.echo(json.dumps(document, indent=2, ensure_ascii=True))


def _print_page(here: tuple[Capability, ...], examined: Examined | None, lacking: list[str]) -> None:
    from prefillgate.report.clean import one_line

    for line in here:
        _print_line(line)
    if examined is not None:
        identity = examined.identity
        what = f"{one_line(examined.url)}: {identity.engine}, model {one_line(identity.model or 'unknown', 80)}"
        click.echo(f"\n{what} (asked by {GENERATIONS} short generations)")
        for line in examined.capabilities:
            _print_line(line)
        for note in _more(examined):
            click.echo(f"  note    {one_line(note, 400)}")
    click.echo(f"\n{_conclusion(examined, lacking)}")


def _more(examined: Examined) -> list[str]:
    """Findings that no line tells already."""
    told = [line.sentence for line in examined.capabilities]
    flags = [line.flag for line in examined.capabilities if line.flag]
    return [
        note
        for note in examined.notes
        if note.partition(";")[0] not in told and not any(flag in note for flag in flags)
    ]


def _conclusion(examined: Examined | None, lacking: list[str]) -> str:
    """The last line: never more than the lines above it say."""
    if lacking:
        where = "here" if examined is None else "on this server"
        return f"A run decides nothing {where} without: {', '.join(lacking)}."
    if examined is None:
        return "Nothing that a run needs is missing here. Ask a server with --server URL."
    whole = all(line.standing == "ok" for line in examined.capabilities)
    return f"A run on this server can be trusted{'' if whole else ', within what is missing above'}."


def _print_line(line: Capability) -> None:
    import textwrap

    from prefillgate.report.clean import one_line

    text = one_line(line.sentence, 600) + (f" -> {one_line(line.flag, 200)}" if line.flag else "")
    first, *rest = textwrap.wrap(text, SENTENCE_WIDTH, break_on_hyphens=False, break_long_words=False) or [""]
    click.echo(f"  {line.standing:<9}{line.name:<{NAME_WIDTH}}{first}")
    for more in rest:
        click.echo(f"  {'':<{9 + NAME_WIDTH}}{more}")
