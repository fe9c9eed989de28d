"""What a check of a bundle found: differences, what was recomputed, and what could not be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from prefillgate.api.errors import shown
from prefillgate.bundle.lines import BadLine
from prefillgate.bundle.manifest import Manifest
from prefillgate.core.verdict import Verdict

MAX_DIFFERENCES = 1000  # kept; more are counted


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as it must be. `line` is from 1, None for a whole file; `file` empty for the folder."""

    file: str
    line: int | None
    what: str

    @property
    def where(self) -> str:
        """file:line, as far as known."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(slots=True)
class Findings:
    """Collected while a bundle is checked."""

    differences: list[Difference] = field(default_factory=list)
    more: int = 0
    recomputed: Counter[str] = field(default_factory=Counter)
    not_recomputed: Counter[str] = field(default_factory=Counter)
    manifest: Manifest | None = None
    verdict: Verdict | None = None
    signed_by: str | None = None  # the key whose signature fits, in hex
    key_given: bool = False

    def differs(self, file: str, line: int | None, what: str) -> None:
        """Note a difference."""
        if len(self.differences) < MAX_DIFFERENCES:
            self.differences.append(Difference(file, line, what))
        else:
            self.more += 1

    def bad_line(self, error: BadLine) -> None:
        """Note a line that cannot be what was written."""
        self.differs(error.file, error.number, error.what)


def unlike(name: str, stated: Any, found: Any, by: str) -> str:
    """`name` is one thing where another was found: the words for it."""
    return f"{name} is {shown(stated)}, {by} {shown(found)}"
