"""Prefill units as blocks: a fresh prefill, its copies faded beside it, bad ones crossed."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from prefillgate.core.verdict import CellClass, CellView, Verdict
from prefillgate.report import svg
from prefillgate.report.clean import one_line
from prefillgate.report.units import UnitGroup, failed_checks, stage_of, unit_groups
from prefillgate.report.words import UNKNOWN

_SIZE = 24.0
_COPY = 15.0
_GAP = 3.0
_COPIES_SHOWN = 12
_LABEL = 13.0

LEGEND: tuple[tuple[CellClass, bool | None, str], ...] = (
    (CellClass.FRESH, False, "fresh prefill, clean"),
    (CellClass.FRESH, True, "bad (crossed)"),
    (CellClass.FRESH, None, "no outcome"),
    (CellClass.COPY, False, "copy of the prefill before it"),
    (CellClass.PARTIAL, False, "partial: prompt partly from cache"),
    (CellClass.UNKNOWN, False, "unknown: server does not tell"),
    (CellClass.CONTRADICTED, False, "contradicted: counter against clock or sum"),
    (CellClass.ORPHAN, False, "orphan: copy of a prefill nobody saw"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Blocks of one arm in one stage, in time order."""

    name: str
    blocks: tuple[Markup, ...]


def rows(verdict: Verdict, arm: str) -> tuple[Row, ...]:
    """One row per stage of `arm`, in the order the stages began."""
    stages: dict[str, list[Markup]] = {}
    for group in unit_groups(verdict, arm):
        stages.setdefault(stage_of(group), []).append(unit_block(group))
    return tuple(Row(name, tuple(blocks)) for name, blocks in stages.items())


def unit_block(group: UnitGroup) -> Markup:
    """One unit as a link to its first cell in the table."""
    shown = group.cells[: 1 + _COPIES_SHOWN]
    hidden = len(group.cells) - len(shown)
    parts: list[Markup] = []
    at = 1.0
    for view in shown:
        size = _COPY if view.cell_class is CellClass.COPY else _SIZE
        parts.append(svg.group(svg.title(told(view)), _block(view.cell_class, view.bad, at, size)))
        at += size + _GAP
    if hidden:
        parts.append(svg.label(at, _SIZE - 7, f"+{hidden}", kind="tick"))
        at += 9 + 7 * len(str(hidden))
    number = group.lead.unit if group.lead.unit is not None else "·"
    parts.append(svg.label(1 + _SIZE / 2, _SIZE + _LABEL, str(number), anchor="middle", kind="unit-number"))
    drawn = svg.drawing(max(at - _GAP + 1, _SIZE + 2), _SIZE + _LABEL + 3, *parts, kind="unit")
    return svg.element("a", {"href": f"#cell-{group.lead.cell_id}", "class": "unit-link"}, drawn)


def legend_block(kind: CellClass, bad: bool | None) -> Markup:
    size = _COPY if kind is CellClass.COPY else _SIZE
    return svg.drawing(_SIZE + 2, _SIZE + 2, _block(kind, bad, 1.0, size), kind="unit")


def told(view: CellView) -> str:
    """What a pointer over the block, or a screen reader, is told of the cell."""
    outcome = {True: "BAD", False: "clean", None: "no outcome"}[view.bad]
    cell = view.cell
    cached = UNKNOWN if cell.cached_tokens is None else str(cell.cached_tokens)
    prompt = UNKNOWN if cell.prompt_tokens is None else str(cell.prompt_tokens)
    kind = "invalid" if view.cell_class is None else view.cell_class.value
    parts = [f"cell {view.cell_id}, {cell.case_id}: {kind}, {outcome}", f"cached {cached} of {prompt} prompt tokens"]
    return one_line("; ".join([*parts, *filter(None, [failed_checks(view)])]), 300)


def _block(kind: CellClass | None, bad: bool | None, at: float, size: float) -> Markup:
    top = 1 + _SIZE - size
    middle = (at + size / 2, top + size / 2)
    state = "bad" if bad else "clean" if bad is False else "open"
    parts = [_shape(kind, at, top, size, state)]
    if bad:
        parts.append(svg.cross(*middle, size / 2 - 4))
    elif bad is None:
        parts.append(svg.label(middle[0], middle[1] + 4.5, "?", anchor="middle", kind="mark"))
    elif kind is CellClass.CONTRADICTED:
        parts.append(svg.label(middle[0], middle[1] + 5, "≠", anchor="middle", kind="mark"))
    return Markup("").join(parts)


def _shape(kind: CellClass | None, at: float, top: float, size: float, state: str) -> Markup:
    box: dict[str, str | float | int] = {"x": at, "y": top, "width": size, "height": size, "rx": 3}
    name = f"block {kind.value if kind else 'invalid'} {state}"
    if kind is CellClass.ORPHAN:
        return svg.element("circle", {"cx": at + size / 2, "cy": top + size / 2, "r": size / 2 - 1, "class": name})
    outline = svg.element("rect", {**box, "class": name})
    if kind is CellClass.PARTIAL:
        half = {**box, "y": top + size / 2, "height": size / 2, "class": f"half {state}"}
        return outline + svg.element("rect", half)
    return outline
