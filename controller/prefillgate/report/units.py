"""The cells of a verdict as they are shown: units in time order, bad cases, the text and its twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.journal import Texts
from prefillgate.core.verdict import CellClass, CellView, Verdict


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """The cells shown as one: a fresh cell first with its copies after it, or a cell that has no unit."""

    arm: str
    replicate: int
    cells: tuple[CellView, ...]

    @property
    def lead(self) -> CellView:
        return self.cells[0]

    @property
    def bad(self) -> bool:
        return any(view.bad is True for view in self.cells)


@dataclass(frozen=True, slots=True)
class Twins:
    """A bad cell with a cell of the same case to compare it with, None where there is none."""

    bad: CellView
    twin: CellView | None


def in_time_order(cells: tuple[CellView, ...]) -> tuple[CellView, ...]:
    """By start where every cell has one, else as they stand."""
    starts = [view.cell.started_at for view in cells]
    if any(start is None for start in starts):
        return cells
    return tuple(sorted(cells, key=lambda view: view.cell.started_at or 0.0))


def unit_groups(verdict: Verdict, arm: str) -> tuple[UnitGroup, ...]:
    """The scored cells of `arm` in time order; cells of one numbered unit stand together where it began."""
    groups: dict[tuple[str, int], list[CellView]] = {}
    for view in in_time_order(verdict.cells):
        if view.cell.arm != arm or view.cell_class is None:
            continue
        key = ("cell", view.cell_id) if view.unit is None else ("unit", view.unit)
        groups.setdefault(key, []).append(view)
    return tuple(
        UnitGroup(arm, views[0].cell.replicate, tuple(sorted(views, key=lambda v: v.cell_class is not CellClass.FRESH)))
        for views in groups.values()
    )


def invalid_cells(verdict: Verdict) -> tuple[CellView, ...]:
    return tuple(view for view in in_time_order(verdict.cells) if view.cell_class is None)


def bad_cells(verdict: Verdict) -> tuple[CellView, ...]:
    """Scored bad cells, the candidate's first."""
    bad = [view for view in in_time_order(verdict.cells) if view.cell_class is not None and view.bad is True]
    return tuple(sorted(bad, key=lambda view: view.cell.arm != CANDIDATE))


def bad_cases(verdict: Verdict) -> tuple[str, ...]:
    """Case ids with a bad candidate cell, in the order they were first bad."""
    return verdict.bad_cases or tuple(
        dict.fromkeys(v.cell.case_id for v in bad_cells(verdict) if v.cell.arm == CANDIDATE)
    )


def case_ids(verdict: Verdict) -> tuple[str, ...]:
    """Every case of the log, in the order of its first cell."""
    return tuple(dict.fromkeys(view.cell.case_id for view in in_time_order(verdict.cells)))


def twins(verdict: Verdict) -> Twins | None:
    """The first bad cell that is more than a failed request, and its twin. None when no cell is bad."""
    candidates = bad_cells(verdict)
    if not candidates:
        return None
    with_answer = [view for view in candidates if view.cell.status.value == "ok"]
    bad = (with_answer or list(candidates))[0]
    same_case = [
        v
        for v in in_time_order(verdict.cells)
        if v.cell.case_id == bad.cell.case_id and v.cell_class is not None and v.bad is False
    ]
    same_case.sort(key=lambda view: _distance(bad, view))
    return Twins(bad, same_case[0] if same_case else None)


def texts_wanted(verdict: Verdict) -> tuple[int, ...]:
    """The cell ids whose texts a report shows: the only ones a caller needs to read from the store."""
    pair = twins(verdict)
    if pair is None:
        return ()
    return (pair.bad.cell_id,) if pair.twin is None else (pair.bad.cell_id, pair.twin.cell_id)


def shown_parts(texts: Texts | None) -> Mapping[str, str]:
    """What a cell said, by part, empty parts left out; content is always there so that empty can be said."""
    if texts is None:
        return {}
    parts = {"reasoning": texts.reasoning, "content": texts.content, "tool calls": texts.tool_calls}
    return {name: text for name, text in parts.items() if text or name == "content"}


def failed_checks(view: CellView) -> str:
    """Names of the checks that failed or erred, with their detail."""
    told = []
    for outcome in view.outcomes:
        if outcome.bad is False:
            continue
        word = outcome.check if outcome.bad else f"{outcome.check} erred"
        told.append(f"{word}: {outcome.detail}" if outcome.detail else word)
    return "; ".join(told)


def stage(view: CellView) -> str:
    """`replicate 1`, or the purpose in words."""
    if view.cell.replicate:
        return f"replicate {view.cell.replicate}"
    return view.purpose.value.replace("_", " ")


def stage_of(group: UnitGroup) -> str:
    return f"Replicate {group.replicate}" if group.replicate else "Screen"


def _distance(bad: CellView, other: CellView) -> tuple[bool, bool, bool, int]:
    other_arm = BASELINE if bad.cell.arm == CANDIDATE else CANDIDATE
    return (
        other.cell.arm != other_arm,
        other.cell.replicate != bad.cell.replicate,
        other.cell_class is not CellClass.FRESH,
        abs(other.cell_id - bad.cell_id),
    )
