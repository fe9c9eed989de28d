"""How a command says what is wrong with an input: one line for each problem, then exit code 2."""

from __future__ import annotations

import json
from typing import Any

from prefillgate.api.errors import InputError, clean
from prefillgate.cli.errors import BadInput
from prefillgate.cli.speaking import say

EXIT_BAD_INPUT = BadInput.exit_code


def say_problems(error: InputError) -> int:
    """Print every problem on standard error and return the exit code for bad input."""
    for line in str(error).split("\n"):
        say(f"prefillgate: error: {line}", "error", "error")
    return EXIT_BAD_INPUT


def json_line(document: Any) -> str:
    """`document` as one line of JSON that is safe on a terminal: what is not printable is escaped in its strings."""
    return clean(json.dumps(document, ensure_ascii=False))
