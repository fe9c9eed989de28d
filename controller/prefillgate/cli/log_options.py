"""How logs of other tools are named and read: the options of every command that takes files of them."""

from __future__ import annotations

import click

from prefillgate.cli.completing import LOG_FORMAT

format_option = click.option(
    "--format",
    "format_name",
    type=LOG_FORMAT,
    metavar="NAME",
    help="Read FILE as this format, whatever it looks like.",
)
column_option = click.option(
    "--column", "columns", multiple=True, metavar="FIELD=NAME", help="CSV: the column of a field; may be repeated."
)
