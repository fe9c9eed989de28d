"""Writing for one screen of a terminal: a margin of names, texts beside them, columns as a terminal counts them."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from dataclasses import dataclass

from prefillgate.report.clean import one_line

WIDTH = 100
INDENT = 16


@dataclass(frozen=True, slots=True)
class Palette:
    """Colour codes of the terminal, all empty by default: `report` itself knows no terminal."""

    good: str = ""
    bad: str = ""
    warn: str = ""
    dim: str = ""
    bold: str = ""
    reset: str = ""


NO_COLOURS = Palette()


@dataclass(frozen=True, slots=True)
class Paper:
    """So many columns, and lines to match: what takes one line of `WIDTH` columns may take two of half the width.
    `whole`: nothing is cut."""

    width: int
    whole: bool = False

    def lines(self, count: int) -> int:
        return math.ceil(count * WIDTH / self.width)

    def most(self, count: int) -> int | None:
        """How many of a list are shown; None: all."""
        return None if self.whole else count

    def field(self, name: str, text: str, limit: int | None = None) -> list[str]:
        """A name in the margin with its text beside it, in at most so many lines of `WIDTH` columns; None: whole."""
        wrapped = self.wrap(text, " " * INDENT, limit)
        return [f"{name:<{INDENT}}{wrapped[0][INDENT:]}", *wrapped[1:]] if wrapped else []

    def wrap(self, text: str, indent: str, limit: int | None = None) -> list[str]:
        """`text` on as many lines as it takes, cut at so many of `WIDTH` columns; None: whole."""
        room, most = self.width - len(indent), None if limit is None or self.whole else self.lines(limit)
        lines = textwrap.wrap(one_line(text, None if most is None else 1000), room, break_on_hyphens=False)
        if most is not None and len(lines) > most:
            lines = [*lines[: most - 1], f"{lines[most - 1][: room - 1]}…"]
        return [cut(f"{indent}{line}", self.width) for line in lines]


def cut(text: str, columns: int) -> str:
    """`text` in at most `columns` terminal columns, wide characters counted as two."""
    if columns_of(text) <= columns:
        return text
    kept, used = [], 0
    for char in text:
        used += columns_of(char)
        if used > columns - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def columns_of(text: str) -> int:
    """Terminal columns `text` takes: combining marks none, East Asian wide characters two."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def paint(text: str, codes: str, palette: Palette) -> str:
    """`text` in these colour codes of the palette."""
    return f"{codes}{text}{palette.reset}" if codes else text
