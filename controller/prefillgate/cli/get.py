"""`prefillgate get`: the serving lines of a cluster, a row each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.cluster import LINE, Cluster, cluster_options, lease_of, speaking_to, tell_doubts, wanted
from prefillgate.cli.errors import BadInput
from prefillgate.cli.problems import json_line
from prefillgate.cli.speaking import say

if TYPE_CHECKING:
    from prefillgate.kube.client import Kube
    from prefillgate.report.line_view import LineView


@click.command(name="get")
@click.argument("line", required=False, type=LINE)
@click.option("--all-namespaces", "-A", is_flag=True, help="The lines of all namespaces.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with `lines`.")
@cluster_options
def command(line: str | None, all_namespaces: bool, as_json: bool, **options: Any) -> int:
    """List the serving lines of a namespace, or LINE alone: decision, prefills, rollback, candidate, age.

    All of it is what the line's status says. Why that may not hold any more (a spec that was changed since, a
    controller that renews nothing) is told on standard error.

    Exit code 0 when printed, 1 when the cluster cannot be asked, 2 bad input.
    """
    from prefillgate.report.line_table import line_facts, render_line_table

    cluster = Cluster.of(options)
    if all_namespaces and (line is not None or cluster.namespace is not None):
        raise BadInput("--all-namespaces with LINE or --namespace (allowed: one of them)")
    views = speaking_to(cluster, lambda kube: _views(kube, cluster, line, all_namespaces))
    if as_json:
        click.echo(json_line({"lines": [line_facts(view) for view in views]}))
        return 0
    if not views:
        say("no serving lines here" if not all_namespaces else "no serving lines in this cluster")
        return 0
    click.echo(render_line_table(views, namespaces=all_namespaces), nl=False)
    tell_doubts(views)
    return 0


async def _views(kube: Kube, cluster: Cluster, line: str | None, everywhere: bool) -> list[LineView]:
    from prefillgate.kube.lines import find_stuck, list_lines
    from prefillgate.kube.objects import key_of
    from prefillgate.report.line_view import view_of

    if line is not None:
        found, lease = await wanted(kube, cluster, line)
        if found.line is None:
            raise BadInput(f"{line}: its line is not there (see: prefillgate explain {line})")
        lines, stuck = [found.line], {key_of(found.line): found.stuck}
    else:
        where = None if everywhere else cluster.namespace or kube.namespace
        lines = await list_lines(kube, where)
        lease, stuck = await lease_of(kube, cluster), await find_stuck(kube, where, lines)
    views = [view_of(each, None, lease, time.time(), alone=True) for each in lines]
    return [view.doubted(stuck.get(view.title, "")) for view in views]
