"""Records told one at a time, and what a log turned out not to hold once all of it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prefillgate.importers.base import Absent, Found, Imported, Prompted, Unread
from prefillgate.importers.records import Damaged, Record

PROMPTS, LENGTHS, CACHED = "prompts", "prompt length", "cached tokens"
TEXTS, ENDINGS = "outputs", "finish reasons"


@dataclass(slots=True)
class Seen:
    """Feed every `Imported` to `add`, or all records through `tell`; then read `absent`: what none of them had."""

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

    def tell(
        self, rows: Iterable[tuple[str, Record] | Unread], told: Callable[[Record, str], Iterable[Found]]
    ) -> Iterator[Found]:
        """What `told` makes of each record and its place; one that it calls `Damaged` is `Unread`, whole."""
        for row in rows:
            if isinstance(row, Unread):
                yield row
                continue
            where, record = row
            try:
                found = tuple(told(record, where))
            except Damaged as damage:
                yield Unread(where, str(damage))
                continue
            for each in found:
                if isinstance(each, Imported):
                    self.add(each)
                self.prompts = self.prompts or isinstance(each, Prompted)
                yield each

    def absent(self, flags: Mapping[str, str | None]) -> Iterator[Absent]:
        """What no request had, with the setting out of `flags` that would give it."""
        if not self.requests:
            return
        had = {PROMPTS: self.prompts, LENGTHS: self.lengths, CACHED: self.cached, TEXTS: self.texts}
        for what, seen in had.items():
            if not seen and what in flags:
                yield Absent(what, flags[what])
