"""A look at a line, with what was found about it before its rollouts are."""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.reconcile.candidates import Candidacy
from prefillgate.reconcile.findings import Finding
from prefillgate.reconcile.floor_due import FloorView
from prefillgate.reconcile.overrides import Considered
from prefillgate.reconcile.seen import LineView
from prefillgate.reconcile.watch_due import WatchView


@dataclass(frozen=True, slots=True)
class Look:
    """A look, with what was found about the line before its rollouts."""

    view: LineView
    words: Considered
    accepted: Finding
    endpoints: Finding
    candidacy: Candidacy
    floor: FloorView | None
    watch: WatchView

    @property
    def may_work(self) -> bool:
        """Whether anything of the line may run."""
        return self.accepted.holds and not self.view.suspended and not self.view.deleting
