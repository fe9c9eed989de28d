"""Which cells of a case are set against each other: each of the candidate's with one of the baseline's."""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.core.cells import BASELINE, CANDIDATE
from prefillgate.core.verdict import CellView, Verdict


@dataclass(frozen=True, slots=True)
class Meeting:
    """A cell of each arm, None where the arm has none of that case."""

    baseline: CellView | None
    candidate: CellView | None

    @property
    def lead(self) -> CellView:
        """The candidate's cell, else the baseline's."""
        found = self.candidate or self.baseline
        assert found is not None
        return found


def meetings(verdict: Verdict, case_id: str) -> tuple[Meeting, ...]:
    """One for each scored candidate cell of the case, in the order measured; without any, the baseline's cells alone.

    A cell stands beside the other half of its pair, else beside the baseline cell that was measured nearest to it.
    """
    scored = [view for view in verdict.cells if view.cell.case_id == case_id and view.cell_class is not None]
    baselines = [view for view in scored if view.cell.arm == BASELINE]
    candidates = [view for view in scored if view.cell.arm == CANDIDATE]
    if not candidates:
        return tuple(Meeting(view, None) for view in baselines)
    return tuple(Meeting(_nearest(view, baselines), view) for view in candidates)


def _nearest(candidate: CellView, baselines: list[CellView]) -> CellView | None:
    def distance(other: CellView) -> tuple[bool, int]:
        place, its = (candidate.purpose, candidate.pair), (other.purpose, other.pair)
        mates = candidate.pair is not None and place == its and candidate.cell.replicate == other.cell.replicate
        return not mates, abs(candidate.cell_id - other.cell_id)

    return min(baselines, key=distance, default=None)
