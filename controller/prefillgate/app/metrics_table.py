"""Every metric of the controller: its name, kind, labels and what it says. README's table is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "prefillgate_"
FAST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. A counter's name is shown with `_total`, as a scrape has it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str

    @property
    def shown(self) -> str:
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


ROWS = (
    Row("build_info", "gauge", ("version",), "Always 1"),
    Row("leading", "gauge", (), "1 while this process holds the Lease"),
    Row("term", "gauge", (), "The token of its term, 0 while it does not lead"),
    Row("synced", "gauge", (), "1 once everything that is watched has been listed"),
    Row("lines", "gauge", (), "ServingLines that are looked at"),
    Row("decisions", "counter", ("line", "verdict", "reason"), "Rollouts that ended, and how"),
    Row(
        "cells",
        "counter",
        ("line", "arm", "freshness"),
        "Requests of replays: fresh, copy, partial, unknown, orphan, invalid",
    ),
    Row("prefill_units", "counter", ("line", "arm", "quality"), "Fresh prefills, good and bad: the unit of evidence"),
    Row(
        "cached_share",
        "gauge",
        ("line", "arm"),
        "Share of the current replay's scored requests that were no fresh prefill",
    ),
    Row("refusals", "counter", ("line", "arm", "reason"), "Requests that were refused or cannot count, by reason"),
    Row("rollback_refused", "gauge", ("line",), "1 while an alarm stands that is no reason to roll back"),
    Row("e_value", "gauge", ("line",), "Evidence of the current replicate that the candidate is worse"),
    Row(
        "works",
        "gauge",
        ("kind", "state"),
        "Replays of this process: running, waiting (for a turn or a window), ended, broken, refused",
    ),
    Row("reconcile_seconds", "histogram", ("kind",), "How long a look and what came of it took"),
    Row(
        "reconcile_errors", "counter", ("kind", "error"), "Looks that failed: Transient, Terminal, Conflict, Store, Bug"
    ),
    Row("queue_depth", "gauge", ("state",), "Keys that are ready, busy, or planned for later"),
    Row("queue_adds", "counter", (), "How often a look was asked for"),
    Row("queue_retries", "counter", (), "Looks that are tried again after a failure"),
    Row("api_calls", "counter", ("verb", "resource", "outcome"), "Calls to the API server; outcome is Ok or its error"),
    Row("api_call_seconds", "histogram", ("verb",), "How long they took, watches left out"),
    Row("notices", "counter", ("reason",), "Events written for people"),
    Row("notices_waiting", "gauge", (), "Events that the API server could not take yet"),
)
