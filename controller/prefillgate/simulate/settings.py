"""What a simulated server is told at its start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from prefillgate.simulate.answers import BAD_TEXT

BLOCK_TOKENS = 16  # of vLLM's prefix cache


class Dialect(StrEnum):
    """Whose API is spoken: an engine's, or that of any OpenAI-compatible server, without knob and counters."""

    LLAMA = "llama"
    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"

    @property
    def salted(self) -> bool:
        """Whether `cache_salt` gives a prompt a place of its own in the cache."""
        return self in (Dialect.VLLM, Dialect.SGLANG)


@dataclass(frozen=True, slots=True)
class Speed:
    """Reported times, in milliseconds; really slept times `time_scale` (0: never slept)."""

    prefill_ms: float = 4.0  # per processed token at the prompt's beginning; doubles 20,000 tokens on
    decode_ms: float = 30.0  # per output token on a short prompt; doubles at 40,000 tokens
    noise_cv: float = 0.02  # of a cell's mean time, prefill and decode each
    time_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One server. `host_cache_mib` 0 is llama-server's --cache-ram 0."""

    seed: int = 0
    text_seed: int | None = None  # of the answers' wording; None: `seed`
    model: str = "simulated-7b-q8_0.gguf"
    other_models: tuple[str, ...] = ()  # further names that are served, as a router serves several models
    build_info: str = "b11549-simulated"
    dialect: Dialect = Dialect.LLAMA
    slots: int = 4
    context_tokens: int = 32_768  # per slot
    host_cache_mib: int = 8192
    sliding_window: bool = False
    reprocess_tokens: int = 1  # of a prompt that is cached whole
    ping_seconds: float = 30.0
    count_match: str = ""
    api_key: str | None = None
    bad_text: str = BAD_TEXT
    answers: Path | None = None
    truth: Path | None = None
    speed: Speed = Speed()
