"""The verdict as one HTML file that needs nothing else: no script, no outside reference, printable.

Every string of the verdict is cleaned and escaped on its way into the page, so model text can be hostile.
The page's policy allows its own style sheet, named by digest, and nothing else whatever.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.journal import Texts
from prefillgate.core.stored_baseline import age_words
from prefillgate.core.verdict import Verdict
from prefillgate.report import blocks, charts, words
from prefillgate.report.clean import visible
from prefillgate.report.diff import Side, alone, compare
from prefillgate.report.units import (
    bad_cases,
    failed_checks,
    in_time_order,
    invalid_cells,
    shown_parts,
    stage,
    twins,
)

_TEMPLATE = "report.html.j2"
_STYLE = "report.css"


@dataclass(frozen=True, slots=True)
class TextPart:
    """One part (content, reasoning, tool calls) of the bad cell beside the same part of its twin."""

    name: str
    bad: Side
    twin: Side | None


def render_html(verdict: Verdict, texts: Mapping[int, Texts]) -> str:
    """The whole file. `texts` holds what the cells of `units.texts_wanted` said; absent ones are told as not kept."""
    style = _resource(_STYLE)
    return (
        _environment()
        .get_template(_TEMPLATE)
        .render(
            v=verdict,
            style=Markup(style),  # the package's own file
            style_sha256=style_digest(style),
            charts=_charts(verdict),
            rows={arm: blocks.rows(verdict, arm) for arm in (BASELINE, CANDIDATE)},
            legend=[(blocks.legend_block(kind, bad), name) for kind, bad, name in blocks.LEGEND],
            cells=in_time_order(verdict.cells),
            invalid=invalid_cells(verdict),
            bad_cases=bad_cases(verdict),
            pair=twins(verdict),
            parts=_parts(verdict, texts),
            when=_when(verdict),
        )
    )


def style_digest(style: str) -> str:
    """The digest a Content-Security-Policy names an inline style sheet by (CSP level 2, base64 of SHA-256)."""
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _charts(verdict: Verdict) -> dict[str, Any]:
    return {
        "intervals": charts.interval_chart(verdict),
        "path": charts.path_chart(verdict),
        "e_values": [(view, charts.e_value_chart(view)) for view in verdict.replicates],
        "ratios": charts.ratio_chart(verdict),
        "prefills": charts.prefill_chart(verdict),
    }


def _parts(verdict: Verdict, texts: Mapping[int, Texts]) -> list[TextPart]:
    pair = twins(verdict)
    if pair is None:
        return []
    ours = shown_parts(texts.get(pair.bad.cell_id))
    theirs = shown_parts(texts.get(pair.twin.cell_id)) if pair.twin is not None else {}
    parts = []
    for name in dict.fromkeys([*ours, *theirs]):
        if theirs:
            parts.append(TextPart(name, *compare(ours.get(name, ""), theirs.get(name, ""))))
        else:
            parts.append(TextPart(name, alone(ours[name]), None))
    return parts


def _when(verdict: Verdict) -> str:
    """Start and length of the run, UTC, or nothing when the log does not tell."""
    if verdict.started_at is None:
        return ""
    try:
        told = datetime.fromtimestamp(verdict.started_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return ""
    if verdict.ended_at is None:
        return told
    return f"{told}, {words.span(verdict.ended_at - verdict.started_at)}"


@cache
def _resource(name: str) -> str:
    return (files("prefillgate.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=DictLoader({_TEMPLATE: _resource(_TEMPLATE)}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=words.number,
        percent=words.percent,
        percent_interval=words.percent_interval,
        change=words.change,
        change_interval=words.change_interval,
        count=_count,
        duration=_duration,
    )
    environment.globals.update(
        glossary=words.GLOSSARY,
        headline=words.headline,
        requests_of=words.requests_of,
        prefills_of=words.prefills_of,
        counting=words.counting,
        ending=words.ending,
        plural=words.plural,
        speed=words.speed,
        failed_checks=failed_checks,
        age_words=age_words,
        stage=stage,
    )
    return environment


def _shown(value: Any) -> Any:
    """Whatever a template prints: markup as it is, strings cleaned (escaping follows), None as unknown."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return words.UNKNOWN
    return visible(value) if isinstance(value, str) else value


def _count(value: int | None) -> str:
    return words.UNKNOWN if value is None else f"{value:,}"


def _duration(ms: float | None) -> str:
    """Milliseconds with a unit that fits: `312 ms`, `41.2 s`."""
    if ms is None or not abs(ms) < float("inf"):
        return words.UNKNOWN
    return f"{ms:,.0f} ms" if ms < 1000 else f"{ms / 1000:,.1f} s"
