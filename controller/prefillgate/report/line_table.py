"""Serving lines as a table, a row each, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefillgate.report.clean import one_line
from prefillgate.report.line_view import LineView
from prefillgate.report.paper import columns_of
from prefillgate.report.words import UNKNOWN

LONGEST_CELL = 60
_NOT_LEFT = "-"


def render_line_table(views: Sequence[LineView], *, namespaces: bool = False) -> str:
    """A row for each line under a head, what is not well first, the worst of it before all; a newline at the end.
    `namespaces`: with the namespace in front."""
    views = sorted(views, key=lambda view: view.how_bad)
    head = ["NAME", "DECISION", "PREFILLS", "ROLLBACK", "CANDIDATE", "AGE", "NOT WELL"]
    rows = [head, *(_cells(view) for view in views)]
    if namespaces:
        spaces = ["NAMESPACE", *(one_line(view.namespace, LONGEST_CELL) for view in views)]
        rows = [[space, *row] for space, row in zip(spaces, rows, strict=True)]
    widths = [max(columns_of(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ("   ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def line_facts(view: LineView) -> dict[str, Any]:
    """The same as plain data; None is what the status does not say."""
    status = view.status
    return {
        "namespace": view.namespace,
        "name": view.name,
        "decision": status.decision,
        "promotion": status.promotion,
        "rollback": status.rollback,
        "reason": status.reason,
        "prefills": status.prefills,
        "rollout": status.current_rollout,
        "candidate": None if status.candidate is None else status.candidate.digest,
        "promoted": None if status.promoted_profile is None else status.promoted_profile.digest,
        "differences": status.differences,
        "not_well": [{"type": each.type, "reason": each.reason, "message": each.message} for each in view.not_well],
        "doubts": list(view.doubts),
        "age_seconds": None if view.created is None else max(0, round(view.now - view.created)),
    }


def age(seconds: float | None) -> str:
    """A length of time as kubectl tells it, in its largest unit: `45s`, `3m`, `5h`, `12d`."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def _cells(view: LineView) -> list[str]:
    status = view.status
    candidate = None if status.candidate is None else status.candidate.name or status.candidate.digest[7:19]
    told = (view.name, status.decision, status.prefills, status.rollback, candidate)
    since = None if view.created is None else view.now - view.created
    cells = [_NOT_LEFT if each is None else one_line(each, LONGEST_CELL) for each in told]
    nothing = UNKNOWN if status.observed_generation is None else _NOT_LEFT
    return [*cells, age(since), one_line(view.not_well_in_short or nothing, LONGEST_CELL)]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns_of(text))
