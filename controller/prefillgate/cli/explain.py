"""`prefillgate explain`: a verdict in words, with the next command: of a store, or of a serving line in a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.cluster import LINE, LINE_PREFIXES, ROLLOUT_PREFIXES, Cluster, cluster_options
from prefillgate.cli.errors import BadInput, CommandError
from prefillgate.cli.outcome import columns, palette
from prefillgate.cli.stores import STORE, StoreParameter, reading

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from prefillgate.api.store_address import StoreAddress

_LINE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)


class StoreOrLine(StoreParameter):
    """A store, or the name of a line: what it is, the command decides once it knows the other options."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as it is."""
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Lines where a cluster was named, else stores, and lines where no file begins so."""
        named = any(ctx.params.get(name) is not None for name in ("namespace", "context", "kubeconfig"))
        here = Path().glob(f"{incomplete}*") if incomplete and "/" not in incomplete and "*" not in incomplete else ()
        if named or (incomplete and _LINE_NAME.fullmatch(incomplete) and not any(here)):
            found = LINE.shell_complete(ctx, param, incomplete)
            if found or named:
                return found
        return super().shell_complete(ctx, param, incomplete)


@click.command(name="explain")
@click.argument("what", metavar="STORE|LINE", type=StoreOrLine())
@click.option("--full", is_flag=True, help="Of a line: every difference and every text whole, however long.")
@cluster_options
def command(what: str, full: bool, **options: Any) -> int:
    """Say in words what was seen, what follows and why, what would change it, and what to do.

    STORE is an evidence store: about a page, in which the rule that answered is named, with the bound of its error or
    with what it does not claim. Every number is the verdict's own. The commands at the end can be copied as they stand,
    in the folder the run was started in.

    LINE is the name of a ServingLine of a cluster, or pro/NAME for one ProfileRollout of it: one screen, from the
    objects' status alone. A name is a line's where an option names the cluster, or where no file has that name.

    Exit code 0 when printed, 1 a damaged store or a cluster that cannot be asked, 2 bad input.
    """
    from prefillgate.cli.explain_line import explain

    cluster = Cluster.of(options)
    if cluster.told or _is_line(what):
        try:
            return explain(what, cluster, full)
        except CommandError as error:
            if cluster.told or "/" in what:
                raise
            raise type(error)(f"{what}: there is no file of that name, so it is a line's: {error}") from error
    if full:
        raise BadInput("--full with a store (allowed: with a line; of a store nothing is cut)")
    return _explain_store(STORE.convert(what, click.Argument(["store"]), None))


def _is_line(what: str) -> bool:
    """Whether it can only be a line's name: it is one, and nothing here is called so."""
    named = what.startswith((*LINE_PREFIXES, *ROLLOUT_PREFIXES)) or _LINE_NAME.fullmatch(what) is not None
    return named and not Path(what).exists()


def _explain_store(store: StoreAddress) -> int:
    from prefillgate.cli.next_steps import Place, next_steps
    from prefillgate.core.judge import judge
    from prefillgate.report.explain import Page, render_explanation

    with reading(store) as (_, gate):
        verdict, plan = judge(gate), gate.plan
    steps = next_steps(Place(verdict, store, plan))
    click.echo(render_explanation(verdict, Page(steps, plan.policy.alpha, columns(), palette())), nl=False)
    return 0
