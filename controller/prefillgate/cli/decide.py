"""`prefillgate decide`: the verdict of a store, recomputed from its journal alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from prefillgate.cli.outcome import exit_code, rendered, summary
from prefillgate.cli.stores import STORE, reading

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress


@click.command(name="decide")
@click.argument("store", type=STORE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, as `run --json` does.")
def command(store: StoreAddress, as_json: bool) -> int:
    """Recompute the verdict of STORE, offline: no server is asked and no check is run again.

    The verdict is a function of the journal alone, equal to the byte wherever it is computed.

    Exit codes: 0 promote, 10 hold, 20 rollback allowed, 1 could not measure (a damaged store too), 2 bad input.
    """
    from prefillgate.core.judge import judge

    with reading(store) as (journal, gate):
        verdict = judge(gate)
        text = rendered(verdict, journal, "json") if as_json else summary(verdict, store, None)
    click.echo(text, nl=not text.endswith("\n"))
    return exit_code(verdict)
