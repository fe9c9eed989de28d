"""What a person gave us and we cannot use. The command line turns every `InputError` into exit code 2."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

MAX_SHOWN = 80
MAX_PROBLEMS = 20


def shown(value: Any) -> str:
    """`value` as it may be printed: JSON, at most 80 characters, control and direction characters escaped."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return clean(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…")


def clean(text: str) -> str:
    """`text` on one line with nothing a terminal would obey: what is not printable becomes a JSON escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where (file:line or file), which field, what is wrong, what is allowed."""

    where: str
    field: str
    message: str
    allowed: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: " if self.where else ""
        text += f"{self.field}: " if self.field else ""
        return text + self.message + (f" (allowed: {self.allowed})" if self.allowed else "")


class InputError(ValueError):
    """An input cannot be used. `problems` holds what is wrong, at most `MAX_PROBLEMS` of it; the text is one a line."""

    def __init__(self, *problems: Problem, more: bool = False) -> None:
        self.problems = problems
        lines = [str(problem) for problem in problems]
        super().__init__("\n".join([*lines, "and more problems after these"] if more else lines))


class ReplaySetError(InputError):
    """A replay set cannot be read or is not one."""


class PolicyError(InputError):
    """A policy cannot be read, is not one, or asks for the impossible."""


class RunFileError(InputError):
    """A run file cannot be read or is not one."""
