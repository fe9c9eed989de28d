"""The shape of a run: which arms it has, and how their cells share servers and time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from prefillgate.core.cells import ARMS, BASELINE, CANDIDATE
from prefillgate.core.policy import Policy


class Isolation(StrEnum):
    """Whether the servers under test serve nobody else meanwhile."""

    EXCLUSIVE = "exclusive"  # other traffic voids a cell
    SHARED = "shared"  # other traffic is expected: quality only, freshness by the responses' own witnesses


@dataclass(frozen=True, slots=True)
class Shape:
    """How a run is carried out. The default is two servers that take turns, one lane each."""

    candidate_alone: bool = False  # no baseline: no pairs, no replicate, no throughput
    isolation: Isolation = Isolation.EXCLUSIVE
    sequential: bool = False  # one place for both arms: windows of cells, a swap of servers between them
    at_once: bool = False  # the arms share no hardware: both halves of a pair run at the same time
    baseline_lanes: int = 1  # servers of the arm, each with one request at a time
    candidate_lanes: int = 1
    baseline_alone: bool = False  # a floor: two passes over the baseline, and nobody is judged

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that are there, the baseline first."""
        if self.baseline_alone:
            return (BASELINE,)
        return (CANDIDATE,) if self.candidate_alone else ARMS

    @property
    def shared(self) -> bool:
        """Whether the servers serve others meanwhile."""
        return self.isolation is Isolation.SHARED

    @property
    def no_speed_why(self) -> str | None:
        """Why no decode speed can be compared, as the end of a sentence; None where nothing of the shape forbids it."""
        if self.baseline_alone:
            return "no candidate was run"
        if self.candidate_alone:
            return "no baseline was run"
        return "the servers served others meanwhile" if self.shared else None

    def lanes(self, arm: str) -> int:
        """How many servers the arm has."""
        return self.baseline_lanes if arm == BASELINE else self.candidate_lanes

    @property
    def parallel(self) -> bool:
        """Whether several cells may be in flight at the same time, so that they end in another order than planned."""
        return self.at_once or self.baseline_lanes > 1 or self.candidate_lanes > 1


def fitted(policy: Policy, shape: Shape) -> Policy:
    """The policy as a run of this shape can keep it: without pairs where no speed can be compared, without passes
    over the baseline and without a replicate where there is none; of a baseline alone both passes are all there is."""
    if shape.no_speed_why is not None:
        policy = replace(policy, throughput=replace(policy.throughput, required=False, max_pairs=0))
    if shape.baseline_alone:
        return replace(policy, aa_check=True, replicate=replace(policy.replicate, max_attempts=0))
    if not shape.candidate_alone:
        return policy
    return replace(policy, baseline_pass=0, aa_check=False, replicate=replace(policy.replicate, max_attempts=0))
