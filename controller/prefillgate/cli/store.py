"""`prefillgate store`: what stores hold, and their tables led to another version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from prefillgate.cli.stores import STORE, store_errors

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress
    from prefillgate.evidence.facts import StoreFacts

HEADER = ("store", "version", "events", "cells", "kept", "last written (UTC)", "written by")


@click.group(name="store")
def command() -> None:
    """List what stores hold, or lead their tables to another version."""


@command.command(name="list")
@click.argument("store", type=STORE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def list_(store: StoreAddress, as_json: bool) -> int:
    """List what is in STORE: a file, one run (URL?run=NAME), or every run of a database (URL), the latest first.

    Each line names the version of its tables, its events, cells and bytes, when its last event was written and who
    writes it now. Unknown is `-`. The digest chain is not held here; every other command holds it.

    Exit code 0 when listed, 2 bad input, 1 a damaged store or a server that is away.
    """
    import json
    from dataclasses import asdict

    from prefillgate.evidence import store_facts

    with store_errors():
        found = store_facts(store)
    if as_json:
        for each in found:
            click.echo(json.dumps(asdict(each)))
        return 0
    rows = [HEADER, *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


@command.command(name="migrate")
@click.argument("store", type=STORE)
@click.option("--to", "target", type=click.IntRange(1, 1_000), help="The version to go to.  [default: the latest]")
def migrate(store: StoreAddress, target: int | None) -> int:
    """Lead the tables of STORE to a version: up, or back to the one before for an older prefillgate.

    A file is copied beside itself first. In a database (URL) the tables of all its runs change at once, and only while
    no gate writes there. Every event, text and digest stays as it is; what going back forgets is said.

    Exit code 0 when the store has that version, 2 bad input, 1 a damaged store or a server that is away.
    """
    from prefillgate.evidence import migrate_store
    from prefillgate.evidence.versions import SCHEMA

    wanted = SCHEMA if target is None else target
    with store_errors():
        moved = migrate_store(store, wanted)
    if moved.before == wanted:
        click.echo(f"{store}: it has schema version {wanted} already")
        return 0
    forgotten = f"; forgotten: {', '.join(moved.lost)}" if moved.lost else ""
    click.echo(f"{store}: from schema version {moved.before} to {wanted}{forgotten}")
    if moved.copy is not None:
        click.echo(f"as it was: {moved.copy}")
    return 0


def _row(facts: StoreFacts) -> tuple[str, ...]:
    from prefillgate.api.cell_log import iso_time
    from prefillgate.report.clean import one_line

    at = "-" if facts.written_at is None else str(iso_time(facts.written_at)).replace("T", " ")[:19]
    return (
        one_line(facts.store),
        str(facts.version),
        str(facts.events),
        str(facts.cells),
        f"{facts.kept_bytes / 1024:.0f} KiB",
        at,
        "-" if facts.writer is None else one_line(facts.writer, 80),
    )
