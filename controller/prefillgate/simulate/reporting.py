"""True figures of a generation, and what the server says of them after its planted lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefillgate.simulate.faults import Faults, Turn


@dataclass(frozen=True, slots=True)
class Figures:
    """True counts in tokens and times in milliseconds. `decode_ms` spans the tokens after the first."""

    prompt_tokens: int
    cached_tokens: int
    prefill_ms: float
    output_tokens: int = 0
    decode_ms: float = 0.0
    draft_tokens: int = 0
    draft_accepted_tokens: int = 0

    @property
    def processed_tokens(self) -> int:
        """Prompt tokens really computed."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Report:
    """What is told. `cached` None is told as null; `shows_*` False leaves the fields out."""

    figures: Figures
    cached: int | None
    processed: int
    shows_cached: bool
    shows_cache_n: bool
    shows_timings: bool
    shows_usage: bool
    lies: tuple[str, ...]

    def usage(self) -> dict[str, Any]:
        """The OpenAI `usage` object."""
        output = self.figures.output_tokens
        usage: dict[str, Any] = {
            "completion_tokens": output,
            "prompt_tokens": self.figures.prompt_tokens,
            "total_tokens": self.figures.prompt_tokens + output,
        }
        if self.shows_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
        return usage

    def timings(self) -> dict[str, Any]:
        """llama-server's `timings` object; rates follow its own definition, n - 1 tokens in `predicted_ms`."""
        figures = self.figures
        steps = figures.output_tokens - 1
        decode_ms = figures.decode_ms if steps > 0 else 0.001
        timings: dict[str, Any] = {"cache_n": self.cached} if self.shows_cache_n else {}
        timings |= {
            "prompt_n": self.processed,
            "prompt_ms": figures.prefill_ms,
            "prompt_per_token_ms": figures.prefill_ms / max(self.processed, 1),
            "prompt_per_second": 1e3 * self.processed / figures.prefill_ms,
            "predicted_n": figures.output_tokens,
            "predicted_ms": decode_ms,
            "predicted_per_token_ms": decode_ms / steps if steps > 0 else 0.0,
            "predicted_per_second": 1e3 * steps / decode_ms if steps > 0 else 0.0,
        }
        if figures.draft_tokens:
            timings |= {"draft_n": figures.draft_tokens, "draft_n_accepted": figures.draft_accepted_tokens}
        return timings


def report(figures: Figures, faults: Faults, turn: Turn) -> Report:
    """What the server tells of `figures` in this generation."""
    lies = [
        name
        for name in (
            "cached-zero",
            "cached-null",
            "cached-absent",
            "cached-minus-one-on-cold",
            "processed-inflated",
            "timings-absent",
            "usage-absent",
            "old-counters",
            "foreign-text",
            "retracted",
        )
        if faults.hit(name, turn)
    ]
    foreign = "foreign-text" in lies
    cached: int | None = figures.cached_tokens
    if "cached-minus-one-on-cold" in lies and figures.cached_tokens <= 1:
        cached = figures.prompt_tokens - 1
    if "cached-zero" in lies or foreign:
        cached = 0
    if "cached-null" in lies:
        cached = None
    hidden = "cached-absent" in lies or "old-counters" in lies
    return Report(
        figures=figures,
        cached=cached,
        processed=figures.prompt_tokens if "processed-inflated" in lies or foreign else figures.processed_tokens,
        shows_cached=not hidden,
        shows_cache_n=not hidden,
        shows_timings="timings-absent" not in lies,
        shows_usage="usage-absent" not in lies,
        lies=tuple(lies),
    )
