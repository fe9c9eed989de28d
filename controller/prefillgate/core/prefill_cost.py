"""What a plan costs, in prefills."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """Prefills of a run in which nothing is bad, both arms counted. Each costs one cell's time."""

    baseline_pass: int
    second_pass: int  # 0 without the A/A check
    candidate: int
    pair_halves: int  # baseline halves of throughput pairs
    warm_up: int
    budget: int
    replicate_least: int  # a replicate whose leading candidate units are all clean
    replicate_most: int  # one that runs all its pairs

    @property
    def total(self) -> int:
        """All of it, without a replicate: 38 quick, 54 standard, 89 strict with 12 prompts."""
        return self.baseline_pass + self.second_pass + self.candidate + self.pair_halves + self.warm_up

    @property
    def with_replicate(self) -> tuple[int, int]:
        """(least, most) with one replicate; its candidate units count towards promotion, so this is the upper end."""
        return self.total + self.replicate_least, self.total + self.replicate_most
