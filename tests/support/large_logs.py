"""The same log judged from memory and from disk: both ways must say the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from prefillgate.cli.audit_large import LargeLog
from prefillgate.core.acceptance import QUICK
from prefillgate.core.audit import audit_facts
from prefillgate.core.cells import Cell
from prefillgate.core.judge import write_verdict
from prefillgate.core.log_row import row_of
from prefillgate.core.policy import Policy
from prefillgate.core.restated import Request, Restatement, restate
from prefillgate.core.verdict import Verdict
from prefillgate.report import verdict_json
from prefillgate.report.restated_json import restated_json
from prefillgate.report.terminal import render_terminal
from prefillgate.report.units import bad_cases

SMALL = replace(QUICK, acceptance=(3, 5), margin=0.2)


@dataclass(frozen=True)
class Log:
    """Cells in line order, with the places of those of a busy server, labels, and times to first token by case."""

    cells: list[Cell]
    waited: frozenset[int] = frozenset()
    labels: tuple[str | None, ...] = (None,)
    first_ms: tuple[float | None, ...] = (None,)

    def requests(self) -> list[Request]:
        return [
            Request(each, self.first_ms[place % len(self.first_ms)], self.labels[place % len(self.labels)])
            for place, each in enumerate(self.cells)
        ]


def said(verdict: Verdict, restatement: Restatement) -> dict[str, Any]:
    return {**verdict_json(verdict), **restated_json(restatement), "bad_cases": sorted(bad_cases(verdict))}


def page(verdict: Verdict) -> list[str]:
    return render_terminal(verdict).splitlines()


def from_memory(log: Log, policy: Policy) -> dict[str, Any]:
    verdict = write_verdict(audit_facts(log.cells, policy, "log", set(log.waited)))
    return said(verdict, restate(log.requests(), True))


def from_disk(log: Log, policy: Policy) -> dict[str, Any]:
    large = LargeLog()
    for place, each in enumerate(log.requests()):
        large.add(row_of(each.cell, each.first_token_ms, place in log.waited, each.label))
    return said(*large.judge(policy, "log", (), True))


def same_page(cells: list[Cell]) -> list[str]:
    """What a person reads, where the order of the log is told: it names the bad cases, first bad first."""
    log = Log(cells)
    large = LargeLog()
    for each in cells:
        large.add(row_of(each))
    told = page(write_verdict(audit_facts(log.cells, SMALL, "log", ())))
    assert page(large.judge(SMALL, "log", ())[0]) == told
    return told


def same(log: Log | list[Cell], policy: Policy = SMALL) -> dict[str, Any]:
    log = Log(log) if isinstance(log, list) else log
    told = from_memory(log, policy)
    assert from_disk(log, policy) == told
    return told
