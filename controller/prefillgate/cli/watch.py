"""`prefillgate watch`: a serving line live, until its candidate is decided."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from prefillgate.cli.cluster import LINE, Cluster, cluster_options, kind_and_name, speaking_to, viewed, wanted
from prefillgate.cli.errors import BadInput, CouldNotMeasure
from prefillgate.cli.outcome import EXIT_CODES, EXIT_NOT_MEASURED
from prefillgate.cli.problems import json_line
from prefillgate.cli.speaking import say

if TYPE_CHECKING:
    from prefillgate.kube.client import Kube
    from prefillgate.kube.errors import KubeError
    from prefillgate.report.line_view import LineView, RolloutView


@click.command(name="watch")
@click.argument("line", type=LINE)
@click.option("--next", "newer", is_flag=True, help="Wait for another rollout than the one that is there now.")
@click.option("--json", "as_json", is_flag=True, help="Print each transition as a JSON line.")
@cluster_options
def command(line: str, newer: bool, as_json: bool, **options: Any) -> int:
    """Follow LINE and print each transition, until its current rollout is decided. A superseded one is no end.

    A rollout that is decided already ends it at once; with --next the one after it is waited for, so that a change of
    the candidate and its answer can be one step of a pipeline: start it before the change. While the API server is away
    it waits.

    With --json each line has time, line, rollout, transitions, decision, promotion, rollback, reason, prefills.

    Exit codes: 0 promote, 10 hold, 20 rollback allowed, 1 could not measure, or the line cannot be followed any more,
    2 bad input, 130 or 143 ended by a signal.
    """
    cluster = Cluster.of(options)
    kind, name = kind_and_name(line)
    if kind != "line":
        raise BadInput(f"{line}: a rollout (allowed: the name of its line)")
    return speaking_to(cluster, lambda kube: _followed(kube, cluster, name, newer, as_json))


async def _followed(kube: Kube, cluster: Cluster, name: str, newer: bool, as_json: bool) -> int:
    from prefillgate.kube.lines import LineFollower
    from prefillgate.kube.objects import SERVING_LINES, Ref
    from prefillgate.report.line_changes import answer, changes

    first, lease = await wanted(kube, cluster, name)
    passed_over = viewed(first, lease).status.current_rollout if newer else None
    before: LineView | None = None
    ref = Ref(SERVING_LINES, name, cluster.namespace or kube.namespace)
    async with LineFollower(kube, ref, _outage) as follower:
        while (found := await follower.next()) is not None:
            view = viewed(found, lease if before is None else None)
            followed = None if before is None or before.rollout is None else before.rollout.name
            if view.rollout is not None and view.rollout.name != followed:
                view = view.of_now  # of one that was followed the answer counts, wherever its candidate is by then
            _tell(view, changes(before, view), as_json)
            before = view
            decided = answer(view)
            if decided is not None and (passed_over is None or decided.name != passed_over):
                return _exit_code(decided)
    raise CouldNotMeasure(f"the line {ref.key} is gone: it was deleted")


def _exit_code(rollout: RolloutView) -> int:
    decision = rollout.status.decision
    if decision is None or not decision.measured:
        return EXIT_NOT_MEASURED
    return EXIT_CODES[decision.verdict.lower()]


def _tell(view: LineView, transitions: list[str], as_json: bool) -> None:
    from prefillgate.report.clean import one_line

    if not transitions:
        return
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if not as_json:
        for each in transitions:
            click.echo(f"{now}  {one_line(each)}")
    else:
        status = None if view.rollout is None else view.rollout.status
        decision = None if status is None else status.decision
        answers = {
            "decision": None if decision is None else decision.verdict,
            "promotion": None if decision is None else decision.promotion,
            "rollback": None if decision is None else decision.rollback,
            "reason": None if decision is None else decision.reason,
            "prefills": None if status is None else status.prefills,
        }
        rollout = None if view.rollout is None else view.rollout.name
        about = {"time": now, "line": view.title, "rollout": rollout, "transitions": transitions}
        click.echo(json_line({**about, **answers}))
    sys.stdout.flush()


def _outage(error: KubeError | None) -> None:
    if error is None:
        say("the API server answers again")
    else:
        say(f"the API server does not answer, and is asked again until it does: {error}", "outage", "warning")
