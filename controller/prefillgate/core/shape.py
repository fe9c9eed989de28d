"""The shape of a run: which arms it has, and how their cells share servers and time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
