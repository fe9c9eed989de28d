"""What is measured of one pair of the throughput test: of two cells, or of two windows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PromptTimes:
    """Mean decode milliseconds per token of one prompt in both windows of a pair."""

    case_id: str
    baseline_ms: float
    candidate_ms: float


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """One pair. Rates in output tokens per second, times in milliseconds; None is unknown.

    Of a pair of `windows` rates and times are the means over its `prompts`.
    """

    pair: int
    case_id: str
    baseline_rate: float | None
    candidate_rate: float | None
    baseline_ms_per_token: float | None
    candidate_ms_per_token: float | None
    baseline_output_tokens: int | None
    candidate_output_tokens: int | None
    baseline_output_sha256: str | None
    candidate_output_sha256: str | None
    first_after_start: bool
    baseline_fresh: bool
    candidate_fresh: bool
    windows: bool = False
    prompts: tuple[PromptTimes, ...] = ()

    @property
    def cases(self) -> tuple[str, ...]:
        """The prompts in it."""
        return tuple(times.case_id for times in self.prompts) if self.windows else (self.case_id,)

    @property
    def key(self) -> str:
        """What is averaged before pairs are compared: a prompt's pairs. A pair of windows stands by itself."""
        return f"windows {self.pair}" if self.windows else self.case_id

    @property
    def times(self) -> tuple[PromptTimes, ...]:
        """The times by prompt, as far as both are known."""
        if self.windows or self.baseline_ms_per_token is None or self.candidate_ms_per_token is None:
            return self.prompts
        return (PromptTimes(self.case_id, self.baseline_ms_per_token, self.candidate_ms_per_token),)
