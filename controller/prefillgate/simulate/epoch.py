"""One life of the server: its marker, cache, counters and gauges."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from prefillgate.simulate.cache import MIB_PER_TOKEN, PromptCache, Slot
from prefillgate.simulate.reporting import Figures
from prefillgate.simulate.settings import BLOCK_TOKENS, Dialect, Settings

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(slots=True)
class Totals:
    """What /metrics counts since the epoch began: tokens, seconds, calls."""

    processed: int = 0
    cached: int = 0
    prefill_seconds: float = 0.0
    output: int = 0
    decode_seconds: float = 0.0
    decodes: int = 0
    longest: int = 0
    draft_tokens: int = 0
    draft_accepted: int = 0
    drafts: int = 0
    external: int = 0  # of the cached ones, those of an external cache

    def prefilled(self, figures: Figures, inflated: bool) -> None:
        """A prefill was computed. With `inflated` all its prompt tokens count as processed."""
        self.processed += figures.prompt_tokens if inflated else figures.processed_tokens
        self.cached += 0 if inflated else figures.cached_tokens
        self.prefill_seconds += figures.prefill_ms / 1000
        self.decodes += 1

    def decoded(self, figures: Figures, results: int) -> None:
        """An answer was generated, `results` times over."""
        self.output += figures.output_tokens * results
        self.decode_seconds += figures.decode_ms * results / 1000
        self.decodes += figures.output_tokens
        self.longest = max(self.longest, figures.prompt_tokens + figures.output_tokens - 1)
        self.draft_tokens += figures.draft_tokens
        self.draft_accepted += figures.draft_accepted_tokens
        self.drafts += 1 if figures.draft_tokens else 0


@dataclass(slots=True)
class Epoch:
    """State of one life. `ready_at` is on the monotonic clock: before it, everything answers 503."""

    marker: str
    started_microseconds: int
    ready_at: float
    cache: PromptCache
    totals: Totals = field(default_factory=Totals)
    waiting: int = 0
    others: int = 0  # requests of somebody else that run beside ours

    @property
    def loading(self) -> bool:
        """Whether the model is still being loaded."""
        return time.monotonic() < self.ready_at


def begin_epoch(settings: Settings, load_seconds: float, keep: PromptCache | None = None) -> Epoch:
    """A new life. Its marker is random, not seeded: no two lives are alike. `keep` is a cache that survived."""
    marker = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(32))
    cache = PromptCache(
        [Slot(number) for number in range(settings.slots)],
        int(settings.host_cache_mib / MIB_PER_TOKEN),
        settings.sliding_window,
        settings.reprocess_tokens,
        BLOCK_TOKENS if settings.dialect is Dialect.VLLM else 1,
    )
    if keep is not None:
        cache.host = list(keep.sequences())
    now = time.monotonic()
    return Epoch(f"<__media_{marker}__>", int(now * 1e6), now + load_seconds, cache)
