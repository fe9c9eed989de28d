"""`prefillgate explain`: a verdict in a page of words, with the next command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from prefillgate.cli.outcome import columns, palette
from prefillgate.cli.stores import STORE, reading

if TYPE_CHECKING:
    from prefillgate.api.store_address import StoreAddress


@click.command(name="explain")
@click.argument("store", type=STORE)
def command(store: StoreAddress) -> int:
    """Say in about a page of words what was seen in STORE, what follows and why, what would change it, and what to do.

    The rule that answered is named, with the bound of its error or with what it does not claim. Every number is the
    verdict's own. The commands at the end can be copied as they stand, in the folder the run was started in.

    Exit code 0 when printed, 2 bad input, 1 a damaged store.
    """
    from prefillgate.cli.next_steps import Place, next_steps
    from prefillgate.core.judge import judge
    from prefillgate.report.explain import Page, render_explanation

    with reading(store) as (_, gate):
        verdict, plan = judge(gate), gate.plan
    steps = next_steps(Place(verdict, store, plan))
    click.echo(render_explanation(verdict, Page(steps, plan.policy.alpha, columns(), palette())), nl=False)
    return 0
