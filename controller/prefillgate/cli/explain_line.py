"""`kubectl prefillgate explain`: a serving line on one screen. `prefillgate explain` comes here for a line."""

from __future__ import annotations

from typing import Any

import click

from prefillgate.cli.cluster import LINE, Cluster, cluster_options, kind_and_name, speaking_to, viewed, wanted


@click.command(name="explain")
@click.argument("line", type=LINE)
@click.option("--full", is_flag=True, help="Every difference and every text whole, however long.")
@cluster_options
def command(line: str, full: bool, **options: Any) -> int:
    """Say on one screen what changed on LINE, what was seen, what is allowed and why, and what would change it.

    LINE is the name of a ServingLine, or pro/NAME for one ProfileRollout of it, an earlier one too. All of it comes
    from the objects' status; no evidence store is asked.

    Exit code 0 when printed, 1 when the cluster cannot be asked, 2 bad input.
    """
    return explain(line, Cluster.of(options), full)


def explain(line: str, cluster: Cluster, full: bool) -> int:
    """Print the page, `full` without a cut. Raises `BadInput` and `CouldNotMeasure`."""
    from prefillgate.cli.line_commands import commands_of
    from prefillgate.cli.outcome import columns, palette
    from prefillgate.report.line_page import LinePage, render_line_page

    found, lease = speaking_to(cluster, lambda kube: wanted(kube, cluster, line))
    view = viewed(found, lease)
    if kind_and_name(line)[0] == "line":  # a rollout that is named is told, and that it is past
        view = view.of_now
    page = LinePage(commands_of(view, cluster, found), columns(), palette(), full)
    click.echo(render_line_page(view, page), nl=False)
    return 0
