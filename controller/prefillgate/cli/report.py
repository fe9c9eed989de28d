"""`prefillgate report`: the verdict of a store in one of five formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefillgate.cli.outcome import exit_code, rendered
from prefillgate.cli.stores import STORE, keep_from_overwriting, reading

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress

FORMATS = ("html", "markdown", "junit", "json", "line")


@click.command(name="report")
@click.argument("store", type=STORE)
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="html", show_default=True, help="What to write."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of standard output.")
@click.option(
    "--exit-decision", is_flag=True, help="Exit 0 promote, 10 hold, 20 rollback allowed, 1 could not measure."
)
def command(store: StoreAddress, format_: str, output: Path | None, exit_decision: bool) -> int:
    """Write the verdict of STORE as one offline HTML page, Markdown, JUnit, JSON or one line.

    All five come from the same object, so they cannot disagree. Exit code 0 when written, 2 bad input, 1 a damaged
    store; `--exit-decision` gives the codes of `decide`.
    """
    from prefillgate.cli.errors import BadInput
    from prefillgate.core.judge import judge

    if output is not None:
        keep_from_overwriting("--output", output, store)
    with reading(store) as (journal, gate):
        verdict = judge(gate)
        text = rendered(verdict, journal, format_)
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise BadInput(f"--output {output}: cannot be written: {error.strerror or error}") from error
    return exit_code(verdict) if exit_decision else 0
