"""The minutes of a dry run, as JSON and as rows of its page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from prefillgate.cli.time_limit import limit_document, words_of
from prefillgate.cli.timing import Timed
from prefillgate.core.fitting import TimedPlan
from prefillgate.core.minutes import Span, cap_minutes, replicate_minutes
from prefillgate.report.clean import one_line

Row = tuple[str, str]


def minutes_document(plan: TimedPlan | None, timed: Timed | None, limit: float | None) -> dict[str, Any]:
    """`cell_seconds`, `timed`, `minutes` and `max_minutes`; null where no cell was timed and no time was given."""
    if plan is None:
        return {"cell_seconds": None, "timed": None, "minutes": None, "max_minutes": None}
    servers = None if timed is None else {arm: [asdict(server) for server in each] for arm, each in timed.items()}
    return {
        "cell_seconds": asdict(plan.paces),
        "timed": servers,
        "minutes": {name: None if span is None else asdict(span) for name, span in _spans(plan).items()},
        "max_minutes": limit_document(plan, limit),
    }


def _spans(plan: TimedPlan) -> dict[str, Span | None]:
    """Minutes of the plan as it may go; None for what this shape of a run has not."""
    cost, shape, policy = plan.cost, plan.shape, plan.policy
    checked = replace(plan, policy=replace(policy, aa_check=True))
    return {
        "expected": plan.minutes,
        "with_aa": None if shape.candidate_alone or shape.shared else checked.minutes,
        "with_replicate": replicate_minutes(cost, plan.paces, shape, policy.replicate.gap_seconds),
        "at_cap": cap_minutes(cost, plan.paces, shape),
    }


def minutes_rows(document: dict[str, Any], plan: TimedPlan | None) -> Iterator[Row]:
    """The rows of the page: what was timed, and the minutes that follow."""
    if plan is None:
        yield "minutes", "unknown: no cell could be timed, and --cell-seconds was not given"
        return
    yield from _timed_rows(document, plan)
    spans = _spans(plan)
    gap = plan.policy.replicate.gap_seconds / 60
    for name, words in (
        ("expected", "when nothing is bad"),
        ("with_aa", "with the A/A check"),
        ("with_replicate", f"with one replicate; its gap of {gap:g} min may be spared by a restart"),
        ("at_cap", f"at the cap of {plan.policy.budget} prefills, without the gaps before replicates"),
    ):
        span = spans[name]
        if span is not None and document["minutes"][name] is not None:
            yield "minutes", f"{words_of(span)} {words}"


def _timed_rows(document: dict[str, Any], plan: TimedPlan) -> Iterator[Row]:
    if document["timed"] is None:
        yield "a cell takes", f"{plan.paces.candidate.likely:g} s, as given; no server was asked"
        return
    for arm, servers in document["timed"].items():
        for server in servers:
            cells = ", ".join(_cell(cell) for cell in server["cells"])
            where = f" at {one_line(server['url'])}" if len(servers) > 1 else ""
            yield "timed", f"{arm}{where}: {cells}"
            for note in server["notes"]:
                yield "timed", f"{arm}{where}: {one_line(note)}"


def _cell(cell: dict[str, Any]) -> str:
    known = ["?" if cell[name] is None else f"{cell[name]:,}" for name in ("prompt_tokens", "cached_tokens")]
    out = "?" if cell["output_tokens"] is None else f"{cell['output_tokens']:,}"
    tokens = f"{known[0]} tokens in, {known[1]} cached, {out} out"
    return f"{one_line(cell['case_id'], 40)} {cell['seconds']:.1f} s ({tokens})"
