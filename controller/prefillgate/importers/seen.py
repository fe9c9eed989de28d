"""What a log turned out not to hold, once all of it was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prefillgate.importers.base import Absent, Imported

PROMPTS, LENGTHS, CACHED = "prompts", "prompt length", "cached tokens"
TEXTS, ENDINGS = "outputs", "finish reasons"


@dataclass(slots=True)
class Seen:
    """Feed every `Imported` to `add`, then read `absent`: what none of them had."""

    requests: int = 0
    prompts: bool = False
    lengths: bool = False
    cached: bool = False
    texts: bool = False

    def add(self, found: Imported) -> None:
        """Take note of one request."""
        self.requests += 1
        cell = found.line.cell
        if found.asked is not None:
            self.prompts = True
        if cell.prompt_tokens is not None:
            self.lengths = True
        if cell.cached_tokens is not None:
            self.cached = True
        if found.texts is not None:
            self.texts = True

    def absent(self, flags: Mapping[str, str | None]) -> Iterator[Absent]:
        """What no request had, with the setting out of `flags` that would give it."""
        if not self.requests:
            return
        had = {PROMPTS: self.prompts, LENGTHS: self.lengths, CACHED: self.cached, TEXTS: self.texts}
        for what, seen in had.items():
            if not seen and what in flags:
                yield Absent(what, flags[what])
